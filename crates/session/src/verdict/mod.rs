//! The plain count: records of one probe -> violations, margins with their error, and pass, fail or unresolved.
//!
//! Pure. A promise "p99 at most L" is a violation rate: over long traffic at most 1 % of requests exceed L. Errors, refusals, truncated
//! streams and requests unanswered past their limit are violations. A count fails early, once there are more violations than
//! the planned length can absorb, and passes late, at full length alone. Its error comes from blocks of time: requests of one
//! burst are slow together, and counting them as independent would understate it many times over.
//!
//! Where a twin of the engine is fitted, a second judge takes the luck of the arrivals out of it: `paired` estimates, [`weigh()`] decides.

mod count;
mod error_bar;
#[cfg(test)]
pub mod fixtures;
pub mod paired;
mod saturation;
mod watch;
mod weigh;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use autotune_load::{ClientHealth, RequestRecord};
use autotune_plan::settings::{Limit, Metric};
use autotune_records::quantiles::median;
use autotune_records::units::{Rate, Seconds};

use error_bar::{FLOOR, FREEDOM, confidence};
use paired::{Judge, Paired};
use saturation::Halves;

pub use watch::{Awaited, Counter, Slack};
pub use weigh::{Counted, weigh};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub outcome: Outcome,
    pub because: String,
    pub limits: Vec<LimitResult>,
    /// The promise that is broken most, or nearest to it.
    pub binding: Option<String>,
    pub offered: Rate,
    /// Whole answers to them that ended within the window, per second.
    pub achieved: Rate,
    /// The rate at which first tokens came, where the queue before them grew clearly over the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Rate>,
    /// Requests that count: those due in the window.
    pub counted: u64,
    /// Requests without a whole answer, by class.
    pub errors: BTreeMap<String, u64>,
    /// Whether the queue grew over the window.
    pub saturated: bool,
    pub complete: bool,
    /// One-sided confidence that every promise holds at this rate, by the judge of each.
    pub confidence: f64,
    /// What the plain count says, where a pair decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_count: Option<Counted>,
}

/// The three answers, and the probe that says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every promise holds, at full length.
    Pass,
    Fail,
    Unresolved,
    /// Our own client was too slow: the probe says nothing about the engine.
    Void,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitResult {
    /// Such as `ttft_p99`.
    pub key: String,
    pub at_most: Seconds,
    pub quantile: f64,
    /// Observations: requests, or gaps for `itl`.
    pub observations: u64,
    /// Those beyond the limit, or without an answer.
    pub violations: u64,
    /// The quantile as measured; `None` if it lies among requests without an answer, or where the probe was cut.
    pub measured: Option<Seconds>,
    /// log(measured / limit): negative is inside.
    pub margin: Option<f64>,
    pub margin_error: Option<f64>,
    /// What the twin says of it in a long run, if a twin is fitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paired: Option<Paired>,
}

impl LimitResult {
    /// Whether the time that a request waits for its first token is a part of what is promised.
    pub fn includes_waiting(&self) -> bool {
        let metric = self.key.split('_').next();
        Metric::ALL.into_iter().any(|m| Some(m.name()) == metric && m.includes_waiting())
    }

    pub fn decided_by_pair(&self) -> Option<&Paired> {
        self.paired.as_ref().filter(|p| p.judge == Judge::Paired)
    }

    /// The margin that decides: in a long run by the paired estimate, or the measured one.
    pub fn deciding_margin(&self) -> Option<f64> {
        self.decided_by_pair().map_or(self.margin, |p| Some(p.margin))
    }

    /// What decides beside its limit: `ttft_p99 182 ms of 150 ms`. What was measured is there, too, where the two lie on different sides of the
    /// limit. Of a probe that was cut, only what is broken is known.
    pub fn beside_its_limit(&self) -> String {
        let above = |latency: Seconds| latency > self.at_most;
        let long = self.decided_by_pair().map(|paired| paired.estimate);
        match (long.or(self.measured), self.measured) {
            (Some(there), Some(measured)) if above(there) != above(measured) => {
                format!("{} {there} in a long run ({measured} measured) of {}", self.key, self.at_most)
            }
            (Some(there), _) => format!("{} {there} of {}", self.key, self.at_most),
            (None, _) if self.broken() => format!("{} above {}", self.key, self.at_most),
            (None, _) => format!("{} not measured", self.key),
        }
    }

    /// The standard error of that margin. It is at least the margin where the count decides and the twin, however little it explains, sees a
    /// queue grow in a long run.
    pub fn deciding_error(&self) -> Option<f64> {
        let grows = |p: &&Paired| (p.long.0 / self.at_most.0).ln() > QUEUE_GROWS;
        let doubt = self.paired.as_ref().filter(grows).and(self.margin).map_or(0.0, f64::abs);
        self.decided_by_pair().map_or(self.margin_error.map(|error| error.max(doubt)), |p| Some(p.error))
    }

    pub fn deciding_freedom(&self) -> f64 {
        self.decided_by_pair().map_or(FREEDOM, |p| p.freedom)
    }

    /// Whether more observations broke it than it absorbs.
    pub fn broken(&self) -> bool {
        self.violations as f64 > allowance(self.observations, self.quantile)
    }

    /// One-sided confidence that the promise holds, by whoever decides.
    pub fn confidence(&self) -> f64 {
        let counted = |(margin, error): (f64, f64)| confidence(margin, error.max(FLOOR), FREEDOM);
        let by_count = || self.margin.zip(self.deciding_error()).map_or(0.0, counted);
        self.decided_by_pair().map_or_else(by_count, |paired| paired.confidence)
    }
}

impl Verdict {
    /// The margin of the binding promise, where the probe ran to its end: in a long run where the paired estimate decides.
    pub fn margin(&self) -> Option<f64> {
        let margins = self.limits.iter().map(LimitResult::deciding_margin);
        margins.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
    }

    pub fn binding_limit(&self) -> Option<&LimitResult> {
        self.limits.iter().find(|limit| Some(&limit.key) == self.binding.as_ref())
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
    pub fn holds(&self, due: Seconds) -> bool {
        due.0 >= self.from.0 && due.0 < self.to.0
    }

    pub fn length(&self) -> Seconds {
        self.to - self.from
    }
}

/// A quantile of a long run that exceeds the limit by so much in its logarithm is no slower engine, but a queue that grows.
pub const QUEUE_GROWS: f64 = 0.7;
/// Our own delays void a probe when their p99 exceeds this share of the tightest limit that they add to ...
const DELAY_SHARE: f64 = 0.1;
/// ... but never below this many seconds, which every sound limit forgives.
const DELAY_FLOOR: f64 = 0.005;

/// How sure a verdict must be before it is pass or fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Certainty(pub f64);

impl Certainty {
    /// That of a search: it follows the best guess, since a demand for certainty would favour whichever point has the steeper margin.
    pub const SEARCH: Self = Self(0.5);
    pub const CERTIFIED: Self = Self(0.95);
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Course {
    pub window: Window,
    /// When the last answer came or the probe was cut.
    pub ended: Seconds,
    /// Whether it ran to its full length.
    pub complete: bool,
    /// Whether requests came at a steady rate, whatever the answers did: only then does a growing number in flight accuse the server.
    pub steady: bool,
}

pub fn judge(
    records: &[RequestRecord],
    limits: &[Limit],
    course: Course,
    client: &ClientHealth,
    certainty: Certainty,
) -> Verdict {
    let Course { window, ended, complete, steady } = course;
    let counted: Vec<&RequestRecord> = records.iter().filter(|r| window.holds(r.due)).collect();
    let results: Vec<LimitResult> =
        limits.iter().map(|l| count::judge_limit(&counted, l, window, ended, complete)).collect();
    let halves = Halves::of(records, &counted, window, steady);
    let saturated = halves.saturated();
    let confidence = results.iter().map(LimitResult::confidence).fold(1.0, f64::min);
    let worst = broken_most(&results).map(|l| &results[l]);
    let (outcome, because) = if let Some(why) = own_fault(client, limits, &counted) {
        (Outcome::Void, why)
    } else if counted.is_empty() {
        (Outcome::Unresolved, "no request fell into the window".to_owned())
    } else if let Some(worst) = worst {
        let LimitResult { key, at_most, violations, observations, .. } = worst;
        let because = format!("{violations} of {observations} requests broke {key} <= {at_most}");
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
        (Outcome::Unresolved, format!("inside the limits, but only {:.0} % sure", (confidence * 100.0).floor()))
    };
    let mut errors = BTreeMap::new();
    for class in counted.iter().filter_map(|r| r.error) {
        *errors.entry(class.name().to_owned()).or_insert(0) += 1;
    }
    let offered = Rate(counted.len() as f64 / window.length().0);
    Verdict {
        outcome,
        because,
        binding: binding(&results),
        offered,
        served: halves.served_share().map(|share| Rate(offered.0 * share)),
        achieved: Rate(halves.answered_in_window as f64 / window.length().0),
        counted: counted.len() as u64,
        errors,
        saturated,
        complete,
        confidence,
        by_count: None,
        limits: results,
    }
}

/// The violations that `observations` can absorb with the promise still kept.
pub fn allowance(observations: u64, quantile: f64) -> f64 {
    ((1.0 - quantile) * observations as f64 + 1e-9).floor()
}

/// What our own client did that could be taken for the engine's slowness. A late send adds to whatever counts from the intended
/// send. A late read adds to everything, but to a time per output token only once for all its tokens.
fn own_fault(client: &ClientHealth, limits: &[Limit], counted: &[&RequestRecord]) -> Option<String> {
    let gaps = median(counted.iter().map(|r| f64::from(r.asked_out))).map_or(1.0, |tokens| tokens.max(2.0) - 1.0);
    let tolerated = |adds: fn(Metric) -> bool| {
        let spans = limits.iter().filter(|l| adds(l.metric)).map(|l| match l.metric {
            Metric::Tpot => l.at_most.0 * gaps,
            _ => l.at_most.0,
        });
        Seconds((spans.reduce(f64::min).unwrap_or(0.2) * DELAY_SHARE).max(DELAY_FLOOR))
    };
    let sends = tolerated(Metric::includes_waiting);
    let reads = tolerated(|_| true);
    let starved = match client.starved {
        Seconds(0.0) => String::new(),
        starved => format!("; autotune's threads waited {starved} for a core"),
    };
    if client.lag_p99.0 > sends.0 {
        Some(format!("this client sent late by {} (p99), more than {sends}{starved}", client.lag_p99))
    } else {
        let late = client.backlog_p99.filter(|late| late.0 > reads.0)?;
        Some(format!("this client read answers late by {late} (p99), more than {reads}{starved}"))
    }
}

/// The place of the promise that is broken by the most violations for those allowed.
pub fn broken_most(results: &[LimitResult]) -> Option<usize> {
    let broken = results.iter().enumerate().filter(|(_, result)| result.broken());
    broken.max_by(|(_, a), (_, b)| excess(a).total_cmp(&excess(b))).map(|(l, _)| l)
}

fn excess(result: &LimitResult) -> f64 {
    result.violations as f64 / (result.observations as f64 * (1.0 - result.quantile)).max(1e-9)
}

fn binding(results: &[LimitResult]) -> Option<String> {
    let by_margin = |r: &LimitResult| r.deciding_margin().unwrap_or(f64::INFINITY);
    results
        .iter()
        .max_by(|a, b| by_margin(a).total_cmp(&by_margin(b)).then(excess(a).total_cmp(&excess(b))))
        .map(|r| r.key.clone())
}

#[cfg(test)]
mod tests;
