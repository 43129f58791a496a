//! Every verdict a probe can have, and what the session does after it.

use super::*;
use crate::rig::Trial;
use crate::verdict::Outcome;
use autotune_records::units::{Rate, Seconds};

/// The probes of a session with the purpose of their trials.
fn probes(entries: &[Entry]) -> Vec<(u32, Purpose, Rate, Outcome)> {
    let probe = |(purpose, _, record): (Purpose, &Point, &Record)| match record {
        Record::Probed { trial, ask, verdict, .. } => Some((*trial, purpose, ask.rate, verdict.outcome)),
        _ => None,
    };
    by_trial(entries).filter_map(probe).collect()
}

#[tokio::test]
async fn each_verdict_decides_the_next_rate_and_no_certified_one_lies_above_what_was_driven_or_at_what_failed() {
    let (mut seen, mut certified, mut failures) = (Vec::new(), 0, 0);
    for seed in 1..=6 {
        let (answer, entries, _) = run(&small(), seed).await;
        seen.extend(probes(&entries).into_iter().map(|(.., outcome)| outcome));
        let searched: Vec<_> = probes(&entries)
            .into_iter()
            .filter(|(_, p, ..)| matches!(p, Purpose::Baseline | Purpose::Search))
            .collect();
        for trial in searched.chunk_by(|a, b| a.0 == b.0) {
            // What was kept and what was not, so far: the next rate lies between.
            let (mut kept, mut broken) = (0.0, f64::INFINITY);
            for (number, _, rate, outcome) in trial {
                let between = kept < rate.0 && rate.0 < broken;
                assert!(between, "trial {number}: {rate} after {kept} held and {broken} did not");
                if *outcome == Outcome::Pass { kept = rate.0 } else { broken = rate.0 }
            }
        }
        for (purpose, placed) in [(Purpose::Certify, answer.best), (Purpose::CertifyBaseline, answer.baseline)] {
            let Some((rate, placed)) = placed.and_then(|placed| Some((placed.certified_rate?, placed))) else {
                continue;
            };
            let of_this = by_trial(&entries).filter(|(p, point, _)| *p == purpose && **point == placed.point);
            let driven = of_this.filter_map(|(.., record)| match record {
                Record::Probed { ask, verdict, .. } if !ask.is_burst() => Some((ask.rate, verdict)),
                _ => None,
            });
            let driven: Vec<_> = driven.collect();
            if driven.is_empty() {
                // The defaults are the best point: one proof is of both.
                continue;
            }
            let (broken, whole): (Vec<_>, Vec<_>) = driven.iter().partition(|(_, v)| !v.complete || v.saturated);
            let highest = whole.iter().map(|(rate, _)| rate.0).fold(0.0, f64::max);
            assert!(rate.0 <= highest, "seed {seed}: {rate} certified, {highest} driven to the end");
            assert!(broken.iter().all(|(failed, _)| rate.0 < failed.0), "seed {seed}: {rate} certified, {broken:?}");
            (certified, failures) = (certified + 1, failures + broken.len());
        }
    }
    for outcome in [Outcome::Pass, Outcome::Fail, Outcome::Unresolved] {
        assert!(seen.contains(&outcome), "{outcome:?} never came");
    }
    assert!(certified > 4 && failures > 0, "{certified} rates certified, {failures} probes failed");
}

/// Our own client is late in the first probes of every trial.
struct Late {
    times: u32,
    left: u32,
    trial: u32,
}

impl Script for Late {
    fn lag(&mut self, trial: Trial) -> Seconds {
        if trial.number != self.trial {
            (self.trial, self.left) = (trial.number, self.times);
        }
        let late = self.left > 0;
        self.left = self.left.saturating_sub(1);
        Seconds(if late { 0.2 } else { 0.0 })
    }
}

#[tokio::test]
async fn a_probe_that_our_own_client_spoilt_is_repeated_and_counts_for_nothing() {
    let plan = plan(&[
        ("window = \"1500ms\"", "window = \"1s\""),
        ("certify_window = \"6s\"", "certify_window = \"8s\""),
        ("gpu_time = \"85s\"", "gpu_time = \"1h\""),
        ("[search]", "[search]\ncandidates = 3"),
    ]);
    let undisturbed = run(&plan, 3).await.0;
    let ended = run_scripted(&plan, 3, Late { times: 2, left: 0, trial: 0 }).await;
    assert_eq!(ended.answer.unwrap(), undisturbed, "the repeated probe has the same arrivals");
    let voids = probes(&ended.entries).iter().filter(|(.., outcome)| *outcome == Outcome::Void).count();
    let trials = ended.entries.iter().filter(|e| matches!(e.record, Record::Ready { .. })).count();
    assert!(voids > 0 && voids <= 2 * trials, "{voids} in {trials} trials");
}

#[tokio::test]
async fn a_client_that_is_always_late_certifies_nothing() {
    let ended = run_scripted(&small(), 3, Late { times: u32::MAX, left: 0, trial: 0 }).await;
    let answer = ended.answer.unwrap();
    assert_eq!(answer.status, Status::Uncertified, "nothing is known of the promises: {}", answer.because);
    assert!(answer.because.starts_with("nothing was measured: no probe counts, since "), "{}", answer.because);
    assert!(probes(&ended.entries).iter().all(|(.., outcome)| *outcome == Outcome::Void));
}
