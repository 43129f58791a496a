//! Every way in which an engine or the machine fails, at its start and under load, and what the session makes of it.

use super::live::alive;
use super::scripted::failure;
use super::*;
use crate::rig::{RigError, Trial};
use autotune_plan::engine::diagnosis::{Cause, Consequence};
use autotune_plan::space::Value;
use autotune_records::units::{Rate, Seconds};

/// A script of functions for starts and for probes.
impl<F, G> Script for (F, G)
where
    F: FnMut(Trial, &Point) -> Option<RigError> + Send,
    G: FnMut(Trial, &Point) -> Option<RigError> + Send,
{
    fn start(&mut self, trial: Trial, point: &Point) -> Option<RigError> {
        (self.0)(trial, point)
    }
    fn probe(&mut self, trial: Trial, point: &Point) -> Option<RigError> {
        (self.1)(trial, point)
    }
}

fn nothing(_: Trial, _: &Point) -> Option<RigError> {
    None
}

/// A job of four candidates whose budget never ends; without a twin, since what happens to engines is none of its business.
fn tiny() -> Plan {
    plan(&[
        ("[0.80, 0.85, 0.90, 0.94, 0.98], default = 0.85", "[0.94], default = 0.94"),
        ("[128, 256, 2048]", "[256, 2048]"),
        ("window = \"1500ms\"", "twin = false\nwindow = \"500ms\""),
        ("certify_window = \"6s\"", "certify_window = \"4s\""),
        ("precision = \"5%\"", "strategy = \"bisect\"\nprecision = \"20%\""),
        ("gpu_time = \"85s\"", "gpu_time = \"1h\""),
    ])
}

fn has(point: &Point, name: &str, value: i64) -> bool {
    point.get(name).is_some_and(|v| v.same(&Value::Int(value)))
}

fn refused(flag: &str) -> Consequence {
    Consequence::ValueRefused { flag: Some(flag.to_owned()) }
}

#[tokio::test]
async fn a_failed_start_rules_out_what_its_consequence_says_and_no_more() {
    let plan = tiny();
    let all = launches(&run(&plan, 1).await.1);
    let searched = |launches: &[(Purpose, u32, Point)]| {
        launches.iter().filter(|(p, ..)| *p == Purpose::Search).map(|(.., point)| point.clone()).collect::<Vec<_>>()
    };
    assert_eq!(searched(&all).len(), 5, "every point but the baseline: {all:?}");
    // The first candidate that fails, its consequence, and whether a launched point must not come after it.
    type Excluded = fn(&Point, &Point) -> bool;
    let at_least = |point: &Point, failed: &Point| {
        failed.0.iter().all(|(name, value)| {
            point.get(name).and_then(|v| v.compare(value)).is_some_and(|order| order != std::cmp::Ordering::Less)
        })
    };
    let same_value: Excluded = |point, failed| point.get("max-num-seqs") == failed.get("max-num-seqs");
    let itself: Excluded = |point, failed| point == failed;
    let cases: [(Cause, Consequence, Excluded, usize); 6] = [
        (Cause::OutOfMemory, Consequence::MemoryBound, at_least, 1),
        (Cause::KvCacheTooSmall, Consequence::NeedsMoreMemory, at_least, 1),
        (Cause::BadArgument, refused("max-num-seqs"), same_value, 1),
        (Cause::BadArgument, Consequence::ValueRefused { flag: None }, itself, 1),
        (Cause::BadArgument, Consequence::PointOnly, itself, 1),
        (Cause::Silent, Consequence::Retry, itself, 2),
    ];
    for (cause, consequence, excluded, attempts) in cases {
        let failing = searched(&all)[0].clone();
        let start = |_, point: &Point| (*point == failing).then(|| failure(cause, consequence.clone()));
        let ended = run_scripted(&plan, 1, (start, nothing)).await;
        let answer = ended.answer.unwrap();
        let proved = matches!(answer.status, Status::Certified | Status::Uncertified);
        assert!(proved, "{consequence:?}: {}", answer.because);
        let tried = launches(&ended.entries);
        assert_eq!(tried.iter().filter(|(.., point)| *point == failing).count(), attempts, "{consequence:?}");
        let first = tried.iter().rposition(|(.., point)| *point == failing).unwrap();
        let after = searched(&tried[first + 1..]);
        assert!(after.iter().all(|point| !excluded(point, &failing)), "{consequence:?}: {failing} then {after:?}");
        let left = searched(&all).iter().filter(|point| !excluded(point, &failing)).count();
        assert_eq!(after.len(), left, "{consequence:?} costs no other point");
        assert_ne!(answer.best.unwrap().point, failing, "{consequence:?}");
    }
}

#[tokio::test]
async fn defaults_that_do_not_start_leave_the_search_without_a_baseline_unless_nothing_can_start() {
    let mut plan = tiny();
    // Without a baseline nothing tells where the rates lie.
    plan.search.first_rate = Some(Rate(40.0));
    let baseline = plan.space.baseline();
    for consequence in
        [Consequence::MemoryBound, Consequence::NeedsMoreMemory, Consequence::PointOnly, Consequence::Retry]
    {
        let start = |_, point: &Point| (*point == baseline).then(|| failure(Cause::Crashed, consequence.clone()));
        let ended = run_scripted(&plan, 1, (start, nothing)).await;
        let answer = ended.answer.unwrap();
        assert_eq!(answer.baseline.unwrap().estimated_rate, None, "{consequence:?}");
        assert!(answer.best.unwrap().estimated_rate.is_some(), "{consequence:?}: {}", answer.because);
    }
    let start = |_, _: &Point| Some(failure(Cause::ModelMissing, Consequence::Abort));
    let ended = run_scripted(&plan, 1, (start, nothing)).await;
    let answer = ended.answer.unwrap();
    assert_eq!((answer.status, launches(&ended.entries).len()), (Status::NeverStarted, 1));
    let says = format!("no engine ever started: scripted: {} (the log says: the line of the log)", Cause::ModelMissing);
    assert_eq!(answer.because, says);
    let start = |_, _: &Point| Some(failure(Cause::Refused, Consequence::Abort));
    let refused = run_scripted(&plan, 1, (start, nothing)).await.answer.unwrap();
    assert_eq!(refused.because, format!("scripted: {}", Cause::Refused), "it started, and refused what it was sent");
}

#[tokio::test]
async fn an_engine_that_dies_or_hangs_once_is_launched_and_asked_again() {
    let plan = tiny();
    let undisturbed = run(&plan, 1).await.0;
    for cause in [Cause::Silent, Cause::Crashed, Cause::Timeout] {
        let probe = |trial: Trial, _: &Point| (trial.attempt == 1).then(|| failure(cause, Consequence::Retry));
        let ended = run_scripted(&plan, 1, (nothing, probe)).await;
        let answer = ended.answer.unwrap();
        let (found, expected) = (answer.best.unwrap(), undisturbed.best.clone().unwrap());
        assert_eq!((found.point, found.certified_rate), (expected.point, expected.certified_rate), "{cause}");
        assert!(launches(&ended.entries).iter().any(|(_, attempt, _)| *attempt == 2), "{cause}");
    }
}

#[tokio::test]
async fn an_engine_that_always_dies_under_load_keeps_what_it_held_before_and_ends_the_run_in_words() {
    let plan = tiny();
    let probe = |_: Trial, _: &Point| Some(failure(Cause::Crashed, Consequence::Retry));
    let ended = run_scripted(&plan, 1, (nothing, probe)).await;
    let answer = ended.answer.unwrap();
    assert!(answer.best.is_none() && answer.status != Status::Certified, "{}", answer.because);
    assert_eq!(ended.probes, 0);
    let broken = ended.entries.iter().filter(|e| matches!(e.record, Record::Broken { .. })).count();
    let trials = launches(&ended.entries).iter().filter(|(_, attempt, _)| *attempt == 1).count();
    assert_eq!(broken, 2 * trials, "each is asked twice, and not more often");
}

#[tokio::test]
async fn out_of_memory_under_load_is_not_tried_again_and_rules_out_what_asks_for_more() {
    let plan = tiny();
    let probe = |_: Trial, point: &Point| {
        has(point, "max-num-seqs", 128).then(|| failure(Cause::OutOfMemory, Consequence::MemoryBound))
    };
    let ended = run_scripted(&plan, 1, (nothing, probe)).await;
    let best = ended.answer.unwrap().best.unwrap().point;
    assert!(!has(&best, "max-num-seqs", 128), "{best}");
    assert!(launches(&ended.entries).iter().all(|(_, attempt, _)| *attempt == 1), "{:?}", launches(&ended.entries));
}

#[tokio::test]
async fn a_machine_that_fails_ends_the_run_and_a_resumed_one_gives_the_answer_of_the_undisturbed() {
    let plan = tiny();
    let (undisturbed, _, all) = run(&plan, 1).await;
    let machine = || Some(RigError::Machine("the GPU fell off the bus".into()));
    for (failing, at_start) in [1, 3, 7].into_iter().flat_map(|trial| [(trial, true), (trial, false)]) {
        let memory = Memory::default();
        let fails = |here: bool| move |trial: Trial, _: &Point| machine().filter(|_| here && trial.number == failing);
        let script = (fails(at_start), fails(!at_start));
        let ended = run_again(&plan, 1, Vec::new(), script, &memory).await;
        assert!(matches!(ended.answer, Err(RunnerError::Machine(_))), "{:?}", ended.answer);
        let resumed = run_again(&plan, 1, ended.entries, Uneventful, &memory).await;
        assert_eq!((resumed.answer.unwrap(), ended.probes + resumed.probes), (undisturbed.clone(), all));
    }
}

#[tokio::test]
async fn an_engine_that_cannot_be_stopped_cleanly_ends_the_run() {
    struct Stuck;
    impl Script for Stuck {
        fn stop(&mut self, _trial: Trial) -> Option<RigError> {
            Some(RigError::Machine("the GPU's memory did not come back".into()))
        }
    }
    let ended = run_scripted(&tiny(), 1, Stuck).await;
    assert!(matches!(ended.answer, Err(RunnerError::Machine(why)) if why.contains("memory")));
    assert_eq!(launches(&ended.entries).len(), 1, "nothing is launched beside what may still be there");
}

#[tokio::test]
async fn an_interrupted_session_says_so_in_its_journal_and_goes_on_from_there() {
    let plan = tiny();
    let (undisturbed, _, all) = run(&plan, 1).await;
    let memory = Memory::default();
    // A failure of the machine ends the run in the middle of a trial, as a signal does.
    let probe = |trial: Trial, _: &Point| (trial.number == 2).then(|| RigError::Machine("stopped".into()));
    let rig = Scripted::new(&plan, 1, (nothing, probe), memory.clone());
    let trial_runner = runner(vec![rig], &plan, 1, &memory, Journal::default());
    let mut session = Session::new(trial_runner, &plan, &Silent);
    assert!(session.run().await.is_err());
    session.trial_runner().interrupt().await.unwrap();
    let paid = session.trial_runner().rigs().map(|rig| rig.probes).sum::<u32>();
    let journal = session.trial_runner().journal().clone();
    let last: Vec<&Record> = journal.entries.iter().rev().take(2).map(|e| &e.record).collect();
    assert!(matches!(last[..], [Record::Interrupted, Record::Stopped { trial: 2, .. }]), "{last:?}");

    let rig = Scripted::new(&plan, 1, Uneventful, memory.clone());
    let mut trial_runner = runner(vec![rig], &plan, 1, &memory, journal);
    trial_runner.resumed(Seconds(3600.0)).unwrap();
    let mut session = Session::new(trial_runner, &plan, &Silent);
    assert_eq!(session.run().await.unwrap(), undisturbed);
    assert_eq!(paid + session.trial_runner().rigs().map(|rig| rig.probes).sum::<u32>(), all);
}

#[tokio::test]
async fn a_disturbed_session_resumes_behind_every_record() {
    let consequences =
        || [Consequence::MemoryBound, refused("max-num-seqs"), Consequence::PointOnly, Consequence::Retry];
    let disturbed = [tiny(), alive(tiny())].map(|plan| consequences().map(|consequence| (plan.clone(), consequence)));
    for (plan, consequence) in disturbed.into_iter().flatten() {
        let fails = |consequence: Consequence| {
            move |_: Trial, point: &Point| {
                has(point, "max-num-seqs", 8).then(|| failure(Cause::Crashed, consequence.clone()))
            }
        };
        resumes(&plan, 1, || (fails(consequence.clone()), nothing)).await;
        resumes(&plan, 1, || (nothing, fails(consequence.clone()))).await;
    }
}
