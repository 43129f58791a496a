//! Sessions on engines that take the limits of other points while they run.

use super::*;
use crate::journal::{Cost, Purpose};
use crate::rig::Process;

/// The plan with an engine that alters its limits.
pub(super) fn alive(plan: Plan) -> Plan {
    let mut plan = plan;
    plan.engine.live = true;
    plan
}

/// What each start was for, and on what its trial ran.
fn starts(entries: &[Entry]) -> Vec<(Purpose, Process)> {
    let mut purpose = Purpose::Baseline;
    let start = |entry: &Entry| match &entry.record {
        Record::Launching { purpose: wanted, .. } => {
            purpose = *wanted;
            None
        }
        Record::Ready { ready, .. } => Some((purpose, ready.process.clone())),
        _ => None,
    };
    entries.iter().filter_map(start).collect()
}

#[tokio::test]
async fn one_launch_serves_the_search_and_each_proof_has_its_own() {
    let mut plan = alive(small());
    // Whoever is cut pays for a launch once more: the budget must not end for that.
    plan.budget.gpu_time *= 2;
    let memory = Memory::default();
    let Run { answer, entries, probes } = run_again(&plan, 3, Vec::new(), Uneventful, &memory).await;
    let answer = answer.unwrap();
    let starts = starts(&entries);
    let shares = |purpose: Purpose| purpose == Purpose::Search;
    assert!(starts.iter().filter(|(purpose, _)| shares(*purpose)).count() > 3, "{starts:?}");
    for (purpose, process) in &starts[1..] {
        assert!(!purpose.certifies() || *process == Process::default(), "{purpose:?} {process:?}");
    }
    // What the memory holds is known at the launch: the first point with another share is launched, and the others run on that.
    let launched = starts.iter().filter(|(purpose, process)| shares(*purpose) && !process.altered).count();
    assert!(launched <= 1, "{starts:?}");
    let counted = starts.iter().filter(|(_, process)| !process.altered).count() as u32;
    let failed = entries.iter().filter(|e| matches!(e.record, Record::NotReady { .. })).count() as u32;
    assert_eq!(Cost::of(&entries).launches, counted + failed);
    resumes_behind_every_record(&plan, 3, &memory, (&answer, &entries, probes)).await;
}
