//! Counts what breaks one promise, and the quantile that was measured.

use super::{LimitResult, Window, error_bar};
use autotune_load::{ErrorClass, Open, RequestRecord};
use autotune_plan::settings::{Limit, Metric};
use autotune_records::units::Seconds;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Observation {
    Latency(f64),
    /// It has no whole answer: counts as infinite.
    Never,
    /// It was cut before it could say anything.
    Unknown,
}

/// A request's observations of a metric: one, or one for each gap.
pub(super) fn observe(record: &RequestRecord, limit: &Limit, ended: Seconds, each: &mut impl FnMut(Observation)) {
    let latency = |value: Option<Seconds>| value.map(|v| Observation::Latency(v.0));
    match (record.error, limit.metric) {
        (None, Metric::Ttft) => each(latency(record.ttft()).unwrap_or(Observation::Never)),
        (None, Metric::E2e) => each(latency(record.e2e()).unwrap_or(Observation::Never)),
        // A single token has no time per output token: it says nothing.
        (None, Metric::Tpot) => each(latency(record.tpot()).unwrap_or(Observation::Unknown)),
        (None, Metric::Itl) => record.gaps.iter().for_each(|gap| each(Observation::Latency(f64::from(*gap)))),
        (Some(ErrorClass::Cut), _) => each(cut(record, limit, ended)),
        // A failed request fails every promise once, and that of gaps once for every gap that should have come.
        (Some(_), Metric::Itl) => (1..record.asked_out.max(2)).for_each(|_| each(Observation::Never)),
        (Some(_), _) => each(Observation::Never),
    }
}

/// Whether an unanswered request has already broken the promise.
pub(super) fn certain(open: &Open, limit: &Limit, now: Seconds) -> bool {
    let at_most = limit.at_most.0;
    match (limit.metric, open.first) {
        (Metric::Ttft, Some(first)) => (first - open.due).0 > at_most,
        (Metric::Ttft, None) | (Metric::E2e, _) => (now - open.due).0 > at_most,
        (Metric::Tpot, Some(first)) => (now - first).0 > at_most * f64::from(open.asked_out.max(2) - 1),
        (Metric::Tpot, None) | (Metric::Itl, _) => false,
    }
}

/// A request that we cut: a violation if its limit had already passed, else unknown. Its TTFT counts if the first token came.
fn cut(record: &RequestRecord, limit: &Limit, ended: Seconds) -> Observation {
    let open = Open { due: record.due, first: record.first, asked_out: record.asked_out };
    match record.first.filter(|_| limit.metric == Metric::Ttft) {
        Some(first) => Observation::Latency((first - record.due).0),
        None if certain(&open, limit, ended) => Observation::Never,
        None => Observation::Unknown,
    }
}

/// One promise over the requests of the window. Its quantile is measured only if the probe ran to its full length (`complete`): one that was cut
/// shows violations alone.
pub(super) fn judge_limit(
    counted: &[&RequestRecord],
    limit: &Limit,
    window: Window,
    ended: Seconds,
    complete: bool,
) -> LimitResult {
    let mut blocks: Vec<Vec<f64>> = vec![Vec::new(); error_bar::BLOCKS];
    let (mut observations, mut violations) = (0, 0);
    for record in counted {
        let block = error_bar::block_of(record.due, window);
        observe(record, limit, ended, &mut |observation| {
            let value = match observation {
                Observation::Latency(latency) => latency,
                Observation::Never => f64::INFINITY,
                Observation::Unknown => return,
            };
            observations += 1;
            violations += u64::from(value > limit.at_most.0);
            blocks[block].push(value);
        });
    }
    let measured =
        if complete { error_bar::quantile(&blocks, None, limit.quantile).filter(|v| v.is_finite()) } else { None };
    let margin = measured.map(|measured| (measured.max(1e-6) / limit.at_most.0).ln());
    LimitResult {
        key: limit.key(),
        at_most: limit.at_most,
        quantile: limit.quantile,
        observations,
        violations,
        measured: measured.map(Seconds),
        margin,
        margin_error: margin.and_then(|_| error_bar::log_error(&blocks, limit.quantile, limit.metric)),
        paired: None,
    }
}
