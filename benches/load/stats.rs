//! Medians, quantiles, and the client's stamps beside the server's.

use std::collections::BTreeMap;

use autotune::load::RequestRecord;
use autotune::quantiles;

use crate::process::Note;

pub fn quantile(values: &[f64], q: f64) -> f64 {
    quantiles::quantile(values.iter().copied(), q).unwrap_or(f64::NAN)
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The number of requests without their whole answer, said aloud where there are any.
pub fn failures(records: &[RequestRecord]) -> usize {
    let mut classes = BTreeMap::<&str, usize>::new();
    for error in records.iter().filter_map(|r| r.error) {
        *classes.entry(error.name()).or_default() += 1;
    }
    if !classes.is_empty() {
        eprintln!("failed requests: {classes:?}");
    }
    classes.values().sum()
}

pub const TRUTH_HEAD: &str =
    "  client minus server, ms          TTFT p50     p99   TPOT p50     p99    ITL p50     p99   arrivals";

/// One line: paired differences of TTFT and TPOT, and differences of the pooled gaps' quantiles.
pub fn truth(name: &str, records: &[RequestRecord], notes: &BTreeMap<u64, Note>) -> String {
    let (mut ttft, mut tpot) = (Vec::new(), Vec::new());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for record in records.iter().filter(|r| r.complete()) {
        let Some(note) = notes.get(&u64::from(record.id)) else { continue };
        ttft.push((record.first.unwrap() - record.sent).millis() - note.ttft);
        if let Some(client) = record.tpot() {
            tpot.push(client.millis() - note.gaps.iter().sum::<f64>() / note.gaps.len() as f64);
        }
        ours.extend(record.gaps.iter().map(|g| f64::from(*g) * 1e3));
        theirs.extend(note.gaps.iter().copied().filter(|g| *g > 0.0));
    }
    let itl = |q: f64| quantile(&ours, q) - quantile(&theirs, q);
    format!(
        "  {name:30} {:10.3} {:7.3} {:10.3} {:7.3} {:10.3} {:7.3}   {} of {}",
        median(&ttft),
        quantile(&ttft, 0.99),
        median(&tpot),
        quantile(&tpot, 0.99),
        itl(0.5),
        itl(0.99),
        ours.len() + records.len(),
        theirs.len() + records.len(),
    )
}
