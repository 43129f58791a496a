//! Several workers: the same answer whoever is faster, and after whatever record a session is resumed.

use super::*;

/// The quickstart with a smaller space and a shorter window.
fn small_with_twin() -> Plan {
    plan(&[("[128, 256, 2048]", "[256, 2048]"), ("window = \"1500ms\"", "window = \"1s\"")])
}

/// Runs a session on so many workers as there are patiences, over a journal.
async fn run_patient(plan: &Plan, patiences: &[usize], entries: Vec<Entry>, memory: &Memory) -> Run {
    let rig = |patience: &usize| {
        let mut rig = Scripted::new(plan, 3, Uneventful, memory.clone());
        rig.patience = *patience;
        rig
    };
    run_on(patiences.iter().map(rig).collect(), plan, 3, entries, memory).await
}

/// After each launch and each end: what the engines that run are for.
fn together(entries: &[Entry]) -> Vec<Vec<Purpose>> {
    let mut running: Vec<(u32, Purpose)> = Vec::new();
    let mut most = Vec::new();
    for entry in entries {
        match &entry.record {
            Record::Launching { trial, purpose, .. } => running.push((*trial, *purpose)),
            Record::Stopped { trial, .. } | Record::NotReady { trial, .. } => {
                running.retain(|(running, _)| running != trial);
            }
            _ => continue,
        }
        most.push(running.iter().map(|(_, purpose)| *purpose).collect());
    }
    most
}

#[tokio::test]
async fn what_is_decided_does_not_hang_on_who_is_faster() {
    let (plan, memory) = (small_with_twin(), Memory::default());
    let first = run_patient(&plan, &[0, 5], Vec::new(), &memory).await.answer.unwrap();
    assert_eq!(first.status, Status::Certified, "{}", first.because);
    let second = run_patient(&plan, &[5, 0], Vec::new(), &memory).await.answer.unwrap();
    assert_eq!(first, second);
}

#[tokio::test]
async fn a_session_of_two_workers_resumed_after_any_record_gives_the_same_answer_and_pays_for_nothing_twice() {
    let (plan, memory) = (small_with_twin(), Memory::default());
    // Those that resume it are not as fast as those that began it.
    let patiences = |kept: &[Entry]| if kept.is_empty() { [3, 0] } else { [0, 2] };
    resumes_behind_every_record(async |kept| run_patient(&plan, &patiences(&kept), kept, &memory).await).await;
}

#[tokio::test]
async fn winner_and_defaults_are_proved_one_after_the_other_whatever_the_strategy() {
    for plan in [small(), small_with_twin()] {
        let strategy = plan.search.strategy;
        let Run { answer, entries, .. } = run_patient(&plan, &[0, 0], Vec::new(), &Memory::default()).await;
        assert_eq!(answer.unwrap().status, Status::Certified, "{strategy:?}");
        let seen = together(&entries);
        let at_once = |of: fn(Purpose) -> bool| {
            seen.iter().map(|running| running.iter().filter(|purpose| of(**purpose)).count()).max()
        };
        assert_eq!(at_once(Purpose::certifies), Some(1), "{strategy:?}: {seen:?}");
        // Only a search with a twin knows what to ask of a second engine while the first one answers.
        let searches = at_once(|purpose| purpose == Purpose::Search);
        assert!(searches <= Some(if strategy == StrategyKind::Bisect { 1 } else { 2 }), "{strategy:?}: {seen:?}");
    }
}
