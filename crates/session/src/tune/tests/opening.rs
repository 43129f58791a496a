//! Sessions that open with a burst: what it is worth, and what becomes of it.

use super::*;
use crate::rig::ProbeAsk;
use crate::tune::session_twin::AS_MEASURED;

fn asked(entries: &[Entry]) -> Vec<ProbeAsk> {
    entries
        .iter()
        .filter_map(|e| match &e.record {
            Record::Probed { ask, .. } => Some(*ask),
            _ => None,
        })
        .collect()
}

/// The rate of the warm-up's burst at the first launch.
fn warm_up(entries: &[Entry]) -> f64 {
    entries.iter().find_map(Entry::ready).unwrap().warmed.burst_rate.0
}

#[tokio::test]
async fn a_burst_tells_where_to_begin() {
    let plan = plan(&[("[search]", "[search]\ncandidates = 1")]);
    let (answer, entries, _) = run(&plan, 2).await;
    let asked = asked(&entries);
    assert!(asked[0].is_burst());
    let limit = answer.baseline.unwrap().estimated_rate.unwrap().0;
    let first = asked[1].rate.0;
    assert!((first / limit).ln().abs() < 0.25, "{first} and {limit}");
    assert!((first / warm_up(&entries)).ln().abs() > 0.01, "it was the warm-up that told");
    // Its batches are larger than those of the probes to come, and it stays in the fits.
    let fits = entries.iter().filter_map(|e| match &e.record {
        Record::Fitted { fit, .. } => Some(fit.residuals.probes.len()),
        _ => None,
    });
    let fits: Vec<usize> = fits.take(3).collect();
    assert_eq!(fits, [1, 2, 3]);
    // About as many requests at once as before would come to the same batches.
    let bursts: Vec<u32> = asked.iter().filter_map(ProbeAsk::whole_burst).collect();
    assert!(
        bursts[0] > 100 && bursts.is_sorted_by(|before, after| f64::from(*before) * AS_MEASURED < f64::from(*after)),
        "{bursts:?}"
    );
}

#[tokio::test]
async fn a_first_rate_that_is_given_and_a_search_without_a_twin_open_without_one() {
    let given = plan(&[("[search]", "[search]\nfirst_rate = 20.0\ncandidates = 1")]);
    assert_eq!(asked(&run(&given, 2).await.1)[0].rate.0, 20.0);
    let (_, entries, _) = run(&small(), 2).await;
    assert!((asked(&entries)[0].rate.0 / warm_up(&entries) - 1.0).abs() < 0.01);
    // Only the first launch waits for whole answers.
    let ready: Vec<_> = entries.iter().filter_map(Entry::ready).collect();
    assert!(ready.len() > 2 && ready.iter().all(|later| later.warmed == ready[0].warmed));
}
