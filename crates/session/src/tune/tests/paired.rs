//! Sessions whose verdicts a fitted twin takes part in.

use super::*;
use crate::verdict::{Outcome, Verdict};

/// A job of two candidates.
fn two() -> Plan {
    plan(&[
        ("[0.80, 0.85, 0.90, 0.94, 0.98], default = 0.85", "[0.94], default = 0.94"),
        ("[128, 256, 2048]", "[256, 2048]"),
        ("window = \"1500ms\"", "window = \"2s\""),
        ("[search]", "[search]\ncandidates = 2"),
        ("gpu_time = \"85s\"", "gpu_time = \"1h\""),
    ])
}

/// Each verdict, but those of bursts, with the purpose of its trial and how many fits that judge came before it.
fn verdicts(entries: &[Entry]) -> Vec<(Purpose, usize, &Verdict)> {
    let (mut fits, mut verdicts) = (0, Vec::new());
    for (purpose, _, record) in by_trial(entries) {
        match record {
            Record::Fitted { fit, .. } => fits += usize::from(fit.residuals.probes.len() > 1),
            Record::Probed { ask, verdict, .. } if !ask.is_burst() => {
                verdicts.push((purpose, fits, &**verdict));
            }
            _ => {}
        }
    }
    verdicts
}

#[tokio::test]
async fn the_twin_is_fitted_as_probes_come_and_weighs_those_that_it_has_not_seen() {
    let (answer, entries, _) = run(&two(), 2).await;
    let all = verdicts(&entries);
    let weighed = |v: &Verdict| v.limits.iter().any(|l| l.paired.is_some());
    assert!(all.iter().filter(|(_, fits, _)| *fits == 0).all(|(.., v)| !weighed(v)), "no word without a fit");
    assert!(all.iter().filter(|(_, fits, v)| *fits > 0 && v.open_to_pairs()).all(|(.., v)| weighed(v)));
    assert!(all.iter().any(|(.., v)| v.by_count.is_some()), "the pair never decided");
    // What certifies is new to the twin: in no fit is a window of it, whatever bursts come between.
    let (mut taught, mut fits) = (0, 0);
    for (purpose, _, record) in by_trial(&entries) {
        match record {
            Record::Probed { ask, .. } => taught += usize::from(!purpose.certifies() || ask.is_burst()),
            Record::Fitted { fit, .. } => {
                fits += 1;
                assert!(
                    fit.residuals.probes.len() <= taught,
                    "a fit to more than the {taught} probes that were taught"
                );
            }
            _ => {}
        }
    }
    assert!(fits >= 2 && all.iter().any(|(purpose, ..)| purpose.certifies()), "{fits} fits");
    assert_eq!(answer.status, Status::Certified, "{}", answer.because);
    // A new fit thinks again of the trial's earlier probes.
    let first = entries.iter().find_map(|e| match &e.record {
        Record::Fitted { fit, .. } if fit.residuals.probes.len() < 2 => None,
        Record::Fitted { trial, probe, verdicts, fit } => Some((*trial, *probe, verdicts.clone(), fit.clone())),
        _ => None,
    });
    let (trial, probe, verdicts, fit) = first.unwrap();
    assert_eq!((trial, probe), (1, 2), "the first fit that judges comes with the second probe");
    assert_eq!(fit.residuals.probes.len(), 2);
    assert!(verdicts.keys().eq(&[1, 2]), "{:?}", verdicts.keys());
}

#[tokio::test]
async fn a_session_with_a_twin_resumes_behind_every_record() {
    resumes(&two(), 2, || Uneventful).await;
}

#[tokio::test]
async fn a_session_with_the_programs_own_replays_and_fits_certifies_what_its_model_keeps() {
    let (plan, memory) = (two(), Memory::default());
    let rig = Scripted::new(&plan, 2, Uneventful, memory.clone());
    let trial_runner = TrialRunner::new(vec![rig], &plan, 2, &Silent, Some(memory.folder()), Journal::default());
    let answer = Session::new(trial_runner, &plan, &Silent).run().await.unwrap();
    assert_eq!(answer.status, Status::Certified, "{}", answer.because);
    let best = answer.best.unwrap();
    let (certified, limit) = (best.certified_rate.unwrap(), best.limit.unwrap());
    assert!((0.8..1.0).contains(&(certified.0 / limit.0)), "{certified} of {limit}");
}

#[tokio::test]
async fn a_verdict_that_a_new_fit_turns_round_is_said() {
    let plan = plan(&[("window = \"1500ms\"", "window = \"1s\"")]);
    let (mut turned, mut said) = (0, 0);
    for seed in 1..=4 {
        let (memory, notes) = (Memory::default(), Notes::default());
        let rig = Scripted::new(&plan, seed, Uneventful, memory.clone());
        let runner = TrialRunner::new(vec![rig], &plan, seed, &notes, Some(memory.folder()), Journal::default());
        let mut session = Session::new(runner.with_sample_sizes(SampleSizes::SMALL), &plan, &notes);
        session.run().await.unwrap();
        let mut latest = Outcome::Void;
        for entry in &session.trial_runner().journal().entries {
            match &entry.record {
                Record::Probed { verdict, .. } => latest = verdict.outcome,
                Record::Fitted { probe, verdicts, .. } => {
                    let now = verdicts.get(probe).map(|verdict| verdict.outcome);
                    turned += usize::from(latest == Outcome::Pass && now == Some(Outcome::Fail));
                }
                _ => {}
            }
        }
        let turns_round = |note: &&String| {
            note.contains(": judged again after a new fit, ")
                && note.starts_with("trial ")
                && note.contains(" fails: in a long run")
        };
        said += notes.0.into_inner().unwrap().iter().filter(turns_round).count();
    }
    assert!(turned > 0 && said == turned, "{said} of {turned}");
}
