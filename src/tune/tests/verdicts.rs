//! Every verdict a probe can have, and what the session does after it.

use super::*;
use crate::journal::Purpose;
use crate::rig::Trial;
use crate::units::{Rate, Seconds};
use crate::verdict::Outcome;

/// The probes of a session with the purpose of their trials.
fn probes(entries: &[Entry]) -> Vec<(u32, Purpose, Rate, Outcome)> {
    let mut purpose = Purpose::Baseline;
    let mut probes = Vec::new();
    for entry in entries {
        match &entry.record {
            Record::Launching { purpose: of_trial, .. } => purpose = *of_trial,
            Record::Probed { trial, ask, verdict, .. } => probes.push((*trial, purpose, ask.rate, verdict.outcome)),
            _ => {}
        }
    }
    probes
}

#[tokio::test]
async fn every_verdict_leads_to_a_next_rate_and_no_certified_rate_lies_above_what_was_driven_or_at_what_failed() {
    let plan = small();
    let mut seen = Vec::new();
    for seed in 1..=6 {
        let (answer, entries, _) = run(&plan, seed, Vec::new()).await;
        let certifying: Vec<_> = probes(&entries).into_iter().filter(|(_, p, ..)| *p == Purpose::Certify).collect();
        let trial = certifying.last().map_or(0, |(trial, ..)| *trial);
        let of_the_last = || certifying.iter().filter(|(t, ..)| *t == trial);
        if answer.status == Status::Certified && answer.best != answer.baseline {
            let certified = answer.best.unwrap().certified_rate.unwrap().0;
            let driven = of_the_last().map(|(_, _, rate, _)| rate.0).fold(0.0, f64::max);
            assert!(certified <= driven, "{certified} was never driven, but {driven}");
        }
        seen.extend(probes(&entries).into_iter().map(|(.., outcome)| outcome));
    }
    for outcome in [Outcome::Pass, Outcome::Fail, Outcome::Unresolved] {
        assert!(seen.contains(&outcome), "{outcome:?} never came");
    }
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
    let undisturbed = run(&plan, 3, Vec::new()).await.0;
    let ended = run_scripted(&plan, 3, Vec::new(), Late { times: 2, left: 0, trial: 0 }).await;
    assert_eq!(ended.answer.unwrap(), undisturbed, "the repeated probe has the same arrivals");
    let voids = probes(&ended.entries).iter().filter(|(.., outcome)| *outcome == Outcome::Void).count();
    let trials = ended.entries.iter().filter(|e| matches!(e.record, Record::Ready { .. })).count();
    assert!(voids > 0 && voids <= 2 * trials, "{voids} in {trials} trials");
}

#[tokio::test]
async fn a_client_that_is_always_late_certifies_nothing() {
    let ended = run_scripted(&small(), 3, Vec::new(), Late { times: u32::MAX, left: 0, trial: 0 }).await;
    let answer = ended.answer.unwrap();
    assert_ne!(answer.status, Status::Certified, "{}", answer.because);
    assert!(probes(&ended.entries).iter().all(|(.., outcome)| *outcome == Outcome::Void));
}
