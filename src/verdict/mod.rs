//! The plain count: records of one probe -> violations, margins with their error, and pass, fail or unresolved.
//!
//! Pure. A promise "p99 at most L" is a violation rate: over long traffic at most 1 % of requests exceed L. Errors, refusals, truncated
//! streams and requests unanswered past their limit are violations. A count fails early, once there are more violations than
//! the planned length can absorb, and passes late, at full length alone. Its error comes from blocks of time: requests of one
//! burst are slow together, and counting them as independent would understate it many times over.

mod count;
mod error_bar;
mod saturation;
mod watch;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::load::RequestRecord;
use crate::settings::Limit;
use crate::units::{Rate, Seconds};

pub(crate) use count::quantile_of_sorted;
pub use saturation::Halves;
pub use watch::Counter;

/// What a probe showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The answer.
    pub outcome: Outcome,
    /// One sentence that says why.
    pub because: String,
    /// Each promise, in the order of the space file.
    pub limits: Vec<LimitResult>,
    /// The promise that is broken most, or nearest to it.
    pub binding: Option<String>,
    /// Arrivals in the window per second.
    pub offered: Rate,
    /// Whole answers to them that ended within the window, per second.
    pub achieved: Rate,
    /// Requests that count: those due in the window.
    pub counted: u64,
    /// Requests without a whole answer, by class.
    pub errors: BTreeMap<String, u64>,
    /// Whether the queue grew over the window.
    pub saturated: bool,
    /// Whether the probe ran to its full length.
    pub complete: bool,
    /// One-sided confidence that every promise holds at this rate, by the spread of blocks of time.
    pub confidence: f64,
}

/// The three answers, and the probe that says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every promise holds, at full length.
    Pass,
    /// A promise is broken.
    Fail,
    /// Too near to say.
    Unresolved,
    /// Our own client was too slow: the probe says nothing about the engine.
    Void,
}

/// One promise in one probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitResult {
    /// Such as `ttft_p99`.
    pub key: String,
    /// The limit.
    pub at_most: Seconds,
    /// The quantile.
    pub quantile: f64,
    /// Observations: requests, or gaps for `itl`.
    pub observations: u64,
    /// Those beyond the limit, or without an answer.
    pub violations: u64,
    /// The quantile as measured; none where it lies among requests without an answer, or where the probe was cut.
    pub measured: Option<Seconds>,
    /// log(measured / limit): negative is inside.
    pub margin: Option<f64>,
    /// The standard error of the margin.
    pub margin_error: Option<f64>,
}

impl Verdict {
    /// The margin of the binding promise, where the probe ran to its end.
    pub fn margin(&self) -> Option<f64> {
        let margins = self.limits.iter().map(|l| l.margin);
        margins.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
    }
}

/// The part of a probe that counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The end of the ramp.
    pub from: Seconds,
    /// The last arrival that counts.
    pub to: Seconds,
}

impl Window {
    /// Whether a request due then counts.
    pub fn holds(&self, due: Seconds) -> bool {
        due.0 >= self.from.0 && due.0 < self.to.0
    }

    /// Its length.
    pub fn length(&self) -> Seconds {
        self.to - self.from
    }
}

/// The client's own health in a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientHealth {
    /// The 99th percentile of actual minus intended send.
    pub lag_p99: Seconds,
    /// The largest of them.
    pub lag_max: Seconds,
}

impl ClientHealth {
    /// Of the records of a probe; zero where there are none.
    pub fn of(records: &[RequestRecord]) -> Self {
        let mut lags: Vec<f64> = records.iter().map(|r| (r.sent - r.due).0).collect();
        lags.sort_by(f64::total_cmp);
        let at = |q: f64| Seconds(quantile_of_sorted(&lags, q).unwrap_or(0.0));
        Self { lag_p99: at(0.99), lag_max: at(1.0) }
    }
}

/// Our own lag voids a probe when its p99 exceeds this share of the tightest limit that it adds to (TTFT or end to end) ...
const LAG_SHARE: f64 = 0.1;
/// ... but never below this many seconds, which every sound limit forgives.
const LAG_FLOOR: f64 = 0.005;

/// How sure a verdict must be before it is pass or fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Certainty(pub f64);

/// Judges the records of a probe that ended (`complete`) or was cut at `ended`.
pub fn judge(
    records: &[RequestRecord],
    limits: &[Limit],
    window: Window,
    ended: Seconds,
    complete: bool,
    certainty: Certainty,
) -> Verdict {
    let counted: Vec<&RequestRecord> = records.iter().filter(|r| window.holds(r.due)).collect();
    let results: Vec<LimitResult> = limits.iter().map(|l| count::limit(&counted, l, window, ended, complete)).collect();
    let halves = Halves::of(&counted, window);
    let saturated = halves.saturated();
    let confidence = results
        .iter()
        .map(|r| match (r.margin, r.margin_error) {
            (Some(margin), Some(error)) => error_bar::confidence(margin, error),
            _ => 0.0,
        })
        .fold(1.0, f64::min);
    let broken = results.iter().filter(|r| r.violations as f64 > allowance(r.observations, r.quantile));
    let worst = broken.max_by(|a, b| excess(a).total_cmp(&excess(b)));
    let health = ClientHealth::of(records);
    let lag_limit = lag_limit(limits);
    let (outcome, because) = if health.lag_p99.0 > lag_limit.0 {
        (Outcome::Void, format!("our own sends lagged {} (p99), more than {lag_limit}", health.lag_p99))
    } else if counted.is_empty() {
        (Outcome::Unresolved, "no request fell into the window".to_owned())
    } else if let Some(worst) = worst {
        let because = format!("{} of {} requests broke {}", worst.violations, worst.observations, promise(worst));
        // Cut early means certain; at full length the distance to the limit must exceed what blocks of time differ by.
        let sure = !complete || saturated || confidence <= 1.0 - certainty.0;
        (if sure { Outcome::Fail } else { Outcome::Unresolved }, because)
    } else if saturated {
        (Outcome::Fail, halves.sentence())
    } else if !complete {
        (Outcome::Unresolved, "the probe ended before its full length".to_owned())
    } else if confidence >= certainty.0 {
        (Outcome::Pass, format!("every promise held over {} requests", counted.len()))
    } else {
        (Outcome::Unresolved, format!("inside the limits, but only {:.0} % sure", confidence * 100.0))
    };
    Verdict {
        outcome,
        because,
        binding: binding(&results),
        offered: Rate(counted.len() as f64 / window.length().0),
        achieved: Rate(halves.answered_in_window as f64 / window.length().0),
        counted: counted.len() as u64,
        errors: errors(&counted),
        saturated,
        complete,
        confidence,
        limits: results,
    }
}

/// The violations that `observations` can absorb with the promise still kept.
pub(crate) fn allowance(observations: u64, quantile: f64) -> f64 {
    ((1.0 - quantile) * observations as f64 + 1e-9).floor()
}

fn lag_limit(limits: &[Limit]) -> Seconds {
    use crate::settings::Metric;
    let tightest = limits.iter().filter(|l| matches!(l.metric, Metric::Ttft | Metric::E2e)).map(|l| l.at_most.0);
    Seconds(tightest.reduce(f64::min).map_or(0.02, |limit| (limit * LAG_SHARE).max(LAG_FLOOR)))
}

fn excess(result: &LimitResult) -> f64 {
    result.violations as f64 / (result.observations as f64 * (1.0 - result.quantile)).max(1e-9)
}

fn promise(result: &LimitResult) -> String {
    format!("{} <= {}", result.key, result.at_most)
}

fn binding(results: &[LimitResult]) -> Option<String> {
    let by_margin = |r: &LimitResult| r.margin.unwrap_or(f64::INFINITY);
    results
        .iter()
        .max_by(|a, b| by_margin(a).total_cmp(&by_margin(b)).then(excess(a).total_cmp(&excess(b))))
        .map(|r| r.key.clone())
}

fn errors(counted: &[&RequestRecord]) -> BTreeMap<String, u64> {
    let mut errors = BTreeMap::new();
    for class in counted.iter().filter_map(|r| r.error) {
        *errors.entry(class.name().to_owned()).or_insert(0) += 1;
    }
    errors
}

#[cfg(test)]
mod tests;
