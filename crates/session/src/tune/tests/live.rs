//! Sessions on engines that take the limits of other points while they run.

use std::time::Duration;

use super::*;
use crate::journal::{Cost, PointResult};
use crate::rig::EngineProcess;
use autotune_twin::Start;

/// The plan with an engine that alters its limits.
pub(super) fn alive(plan: Plan) -> Plan {
    let mut plan = plan;
    plan.engine.live = true;
    plan
}

/// What each start was for, and on what its trial ran.
fn starts(entries: &[Entry]) -> Vec<(Purpose, EngineProcess)> {
    let start = |(purpose, _, record): (Purpose, &Point, &Record)| match record {
        Record::Ready { ready, .. } => Some((purpose, ready.process.clone())),
        _ => None,
    };
    by_trial(entries).filter_map(start).collect()
}

#[tokio::test]
async fn one_launch_serves_the_search_and_what_is_deployed_is_launched_with_its_arguments() {
    let mut plan = alive(small());
    // Whoever is cut pays for a launch once more: the budget must not end for that.
    plan.budget.gpu_time *= 2;
    let Run { answer, entries, .. } = resumes(&plan, 3, || Uneventful).await;
    let (answer, starts) = (answer.unwrap(), starts(&entries));
    let shares = |purpose: Purpose| purpose == Purpose::Search;
    assert!(starts.iter().filter(|(purpose, _)| shares(*purpose)).count() > 3, "{starts:?}");
    for (purpose, process) in &starts[1..] {
        assert!(!purpose.launches_plainly() || *process == EngineProcess::default(), "{purpose:?} {process:?}");
    }
    // What the memory holds is known at the launch: the first point with another share is launched, and the others run on that.
    let launched = starts.iter().filter(|(purpose, process)| shares(*purpose) && !process.altered).count();
    assert!(launched <= 1, "{starts:?}");
    let counted = starts.iter().filter(|(_, process)| !process.altered).count() as u32;
    let failed = entries.iter().filter(|e| matches!(e.record, Record::NotReady { .. })).count() as u32;
    assert_eq!(Cost::of(&entries).launches, counted + failed);
    let (best, defaults) = (answer.best.unwrap(), answer.baseline.unwrap());
    let certified = |result: &PointResult| result.certified_rate.is_some();
    assert!(best.point != defaults.point && certified(&best) && certified(&defaults), "{}", answer.because);
    let arrivals = |point: &Point| arrivals_of_proof(&entries, point)[0];
    assert_eq!(arrivals(&best.point), arrivals(&defaults.point), "both have the same arrivals");
}

#[tokio::test]
async fn defaults_that_the_engine_tells_serve_the_search_and_are_proved_without_another_launch() {
    let mut plan = alive(small());
    plan.space.parameters.iter_mut().for_each(|parameter| parameter.default = None);
    // A memory share of their own would need a launch.
    plan.space.parameters.retain(|parameter| parameter.name != "gpu-memory-utilization");
    // With this seed the best point is certified above the defaults.
    let (answer, entries, _) = run(&plan, 9).await;
    let starts = starts(&entries);
    let (_, first) = &starts[0];
    assert!(first.widest.as_ref().is_some_and(|told| told.get("max-num-seqs").is_some()), "{first:?}");
    assert!(answer.best.is_some_and(|best| Some(best.point) != answer.baseline.map(|baseline| baseline.point)));
    let proofs: Vec<_> = starts.iter().filter(|(purpose, _)| purpose.certifies()).collect();
    let [(Purpose::CertifyBaseline, defaults), (Purpose::Certify, best)] = proofs[..] else { panic!("{proofs:?}") };
    assert!(defaults.altered && *best == EngineProcess::default(), "{proofs:?}");
}

/// The seeds of the arrivals of the windows of a point's proof, in their order.
fn arrivals_of_proof(entries: &[Entry], wanted: &Point) -> Vec<u64> {
    let of = |(purpose, point, record): (Purpose, &Point, &Record)| match record {
        Record::Probed { ask, .. } if purpose.certifies() && !ask.is_burst() && point == wanted => {
            Some(ask.arrival_seed)
        }
        _ => None,
    };
    by_trial(entries).filter_map(of).collect()
}

#[tokio::test]
async fn defaults_that_nothing_beats_are_proved_by_the_process_that_serves_them() {
    let mut plan = alive(small());
    plan.space.parameters.retain(|parameter| parameter.name != "gpu-memory-utilization");
    // Nothing is fifty times as good.
    plan.search.min_gain = 50.0;
    let Run { answer, entries, .. } = resumes(&plan, 3, || Uneventful).await;
    let answer = answer.unwrap();
    assert_eq!(answer.status, Status::Certified, "{}", answer.because);
    assert!(answer.because.ends_with("the defaults are the best point found"), "{}", answer.because);
    let starts = starts(&entries);
    let proofs: Vec<_> = starts.iter().filter(|(purpose, _)| purpose.certifies()).collect();
    let [(Purpose::CertifyRunning, process)] = proofs[..] else { panic!("{proofs:?}") };
    assert!(process.altered, "{process:?}");
}

#[tokio::test]
async fn a_winner_with_the_arguments_that_the_running_engine_was_launched_with_is_proved_by_it() {
    let mut plan = alive(small());
    plan.space.parameters.retain(|parameter| parameter.name != "gpu-memory-utilization");
    // Eight places are too few with a budget of 256 tokens, and the engine is launched with as many as the space has.
    for parameter in &mut plan.space.parameters {
        let is_budget = parameter.name == "max-num-batched-tokens";
        parameter.values.retain(|value| !is_budget || value.number() == Some(256.0));
        parameter.default = parameter.values.first().cloned();
    }
    let Run { answer, entries, .. } = resumes(&plan, 3, || Uneventful).await;
    let best = answer.unwrap().best.unwrap();
    let starts = starts(&entries);
    assert_eq!(starts[0].1.widest.as_ref(), Some(&best.point));
    let proofs: Vec<_> = starts.iter().filter(|(purpose, _)| purpose.certifies()).collect();
    let [(Purpose::CertifyBaseline, defaults), (Purpose::CertifyRunning, best)] = proofs[..] else {
        panic!("{proofs:?}")
    };
    assert!(defaults.altered && best.altered, "{proofs:?}");
    assert_eq!(Cost::of(&entries).launches, 1);
}

#[tokio::test]
async fn a_budget_without_room_for_another_launch_proves_the_defaults_on_the_process_that_serves_them() {
    let mut plan = alive(small());
    plan.space.parameters.retain(|parameter| parameter.name != "gpu-memory-utilization");
    // The second budget ends in the middle of the climb from the first rate: that is not yet near the limit.
    for (seconds, certifies) in [(65, true), (50, false)] {
        plan.budget.gpu_time = Duration::from_secs(seconds);
        let (memory, start) = (Memory::default(), Some(Start { seconds: 30.0 }));
        let profile = Profile { start, ..Profile::quickstart() };
        let rig = Scripted::of(profile, &plan, 3, Uneventful, memory.clone());
        let Run { answer, entries, .. } = run_on(vec![rig], &plan, 3, Vec::new(), &memory).await;
        let answer = answer.unwrap();
        assert_eq!(answer.status == Status::Certified, certifies, "{} {:?}", answer.because, answer.left_out);
        assert_eq!(Cost::of(&entries).launches, 1);
        let starts = starts(&entries);
        assert!(matches!(starts.last(), Some((Purpose::CertifyRunning, process)) if process.altered), "{starts:?}");
    }
}

/// A parameter that the twin has no term for, and that no running engine alters.
const DRAFTS: &str =
    r#"speculative-config = { values = ["off", '{"method":"ngram","num_speculative_tokens":4}'], default = "off" }"#;

#[tokio::test]
async fn a_first_start_that_leaves_no_room_for_another_says_so_at_once_and_names_a_budget_that_does() {
    let mut plan =
        plan(&[("gpu-memory-utilization = { values = [0.80, 0.85, 0.90, 0.94, 0.98], default = 0.85 }", DRAFTS)]);
    let slow_start = || Profile { start: Some(Start { seconds: 30.0 }), ..Profile::quickstart() };
    plan.budget.gpu_time = Duration::from_secs(120);
    let (answer, notes) = run_with_notes(slow_start(), &plan, 3).await;
    let begins = "a start takes 30.2 s, and `engine.start_estimate` is 500 ms. Beside the proofs, the budget of 2 min probably has no time for a second launch";
    assert!(notes[0].starts_with(begins) && notes[0].contains("A budget of 7 min"), "{notes:?}");
    let drafts = "all candidates (no engine was launched with speculative-config {\"method\":\"ngram\"";
    assert!(answer.left_out[0].contains(drafts), "{:?}", answer.left_out);

    plan.budget.gpu_time = answer.enough_budget.unwrap().duration();
    let (answer, notes) = run_with_notes(slow_start(), &plan, 3).await;
    let says = |part: &str| notes.iter().chain(&answer.left_out).any(|said| said.contains(part));
    assert!(!says("no second launch") && !says("the budget is too small"), "{notes:?}");
}
