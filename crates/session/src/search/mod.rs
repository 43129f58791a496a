//! Ask and tell: which point at which rate is tried next.
//!
//! Pure: no clock, no I/O, no global randomness. A strategy that is told the same answers asks the same questions, which is what lets a
//! journal resume a session.

mod bayes;
mod curve;
mod feasible;
mod gaussian_process;
mod margins;
mod memory;
mod point_by_point;
mod rate;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::verdict::{LimitResult, Outcome, Verdict};
use autotune_plan::engine::diagnosis::Consequence;
use autotune_plan::settings::{Plan, StrategyKind};
use autotune_plan::space::{self, Point, Space};
use autotune_records::units::{Rate, Seconds};

pub use bayes::{Bayes, USUAL_LAUNCHES, usual_without_twin};
pub use curve::STEP;
pub use feasible::Infeasible;
pub use memory::HighestThatStarts;
pub use point_by_point::PointByPoint;
pub use rate::RateSearch;

/// A point and the highest rate that it is thought to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incumbent {
    pub point: Point,
    pub rate: Rate,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub point: Point,
    pub rate: Rate,
}

impl Query {
    pub fn new(point: Point, rate: Rate) -> Self {
        Self { point, rate }
    }
}

/// A measured rate with its latest verdict; a new fit may change that.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbedRate {
    pub rate: Rate,
    pub seen: Observation,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Tell {
    /// The probe was measured. These are all probes of its engine, the new one last: a new fit may have changed earlier verdicts.
    Probed(Vec<ProbedRate>),
    /// The engine did not start, or did not live.
    Failed(Consequence),
}

/// What a search needs of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Whether the rate was kept. What is unresolved was not: near the limit, doubt goes against the rate.
    pub kept: bool,
    /// log(p / limit) of the binding promise, where the probe ran to its end.
    pub margin: Option<f64>,
    pub limits: Vec<PromiseMargin>,
    /// Whether the queue grew over the window.
    pub saturated: bool,
    /// Whether the twin decided the binding promise; false if it explains too little of it. `None` if no twin was compared, or the count decides for
    /// another reason.
    pub by_twin: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PromiseMargin {
    /// log(p / limit) by whoever decides: in a long run by the pair, or as counted. `None` if the probe was cut.
    pub margin: Option<f64>,
    pub error: f64,
    /// Whether more requests broke it than the promise absorbs.
    pub broken: bool,
}

impl PromiseMargin {
    fn expected(margin: f64, error: f64) -> Self {
        Self { margin: Some(margin), error, broken: margin > 0.0 }
    }
}

impl Observation {
    /// Of a probe that shows this of each promise, without a queue that grows.
    fn expected(limits: Vec<PromiseMargin>) -> Self {
        let margin = limits.iter().filter_map(|l| l.margin).reduce(f64::max);
        Self { kept: !limits.iter().any(|l| l.broken), margin, limits, saturated: false, by_twin: None }
    }

    pub fn of(verdict: &Verdict) -> Self {
        let seen = |l: &LimitResult| PromiseMargin {
            margin: l.deciding_margin(),
            error: l.deciding_error().unwrap_or(f64::INFINITY),
            broken: l.broken(),
        };
        let binding = verdict.binding_limit().filter(|_| verdict.complete);
        Self {
            kept: verdict.outcome == Outcome::Pass,
            margin: verdict.margin(),
            limits: verdict.limits.iter().map(seen).collect(),
            saturated: verdict.saturated,
            by_twin: binding.and_then(|limit| limit.paired.as_ref()?.tells()),
        }
    }
}

/// What a model of the engine expects, where there is one.
pub trait Expectation {
    /// log(p / limit) in a long run for each promise in the plan's order; `None` if the model cannot tell.
    fn margins(&mut self, point: &Point, rate: Rate) -> Vec<Option<f64>>;

    /// Whether the model is believed. One that is not expects nothing.
    fn trust(&mut self, _believed: bool) {}

    /// How far stress replays at a slightly higher rate break a promise, as the logarithm of a latency. Negative where they do not break it: then
    /// the rate can be certified. `None` if the model cannot tell.
    fn collapse(&mut self, _point: &Point, _rate: Rate) -> Option<f64> {
        None
    }

    /// Prepares answers about points, from that rate upwards. What takes long can be worked out for all of them side by side.
    fn prepare(&mut self, _points: &[Point], _from: Rate) {}

    /// Whether both points serve every request in the same way up to that rate, since they differ in a limit that never binds. False if the model
    /// cannot tell.
    fn serve_alike(&mut self, _one: &Point, _other: &Point, _rate: Rate) -> bool {
        false
    }

    /// Whether the engine that runs now is that of the point.
    fn runs(&self, point: &Point) -> bool;

    /// What a probe of the point at that rate costs, what has to be done to its engine before included.
    fn price(&self, point: &Point, rate: Rate) -> Seconds;

    /// How many times as much a probe of the point costs as one of a point whose limits the running engine takes. 1 where no engine takes other
    /// limits.
    fn surcharge(&self, _point: &Point, _rate: Rate) -> f64 {
        1.0
    }
}

/// A strategy, told what it asked for in the order in which it asked; several engines are asked before it is told anything. Until
/// [`Strategy::open`] it asks about the baseline, which the session launches, and then about the whole space.
pub trait Strategy: Send {
    /// Opens the space. Parameters in `held` keep that value from here on.
    fn open(&mut self, held: &Point);

    /// The next question to an engine, while other engines are asked what is in flight; `None` if nothing more is worth its cost. Asking twice
    /// without a reply in between gives the same question. A strategy that knows no other engines has no question while one is in flight.
    fn ask(&mut self, engine: &mut dyn Expectation, in_flight: &[Query]) -> Option<Query>;

    fn tell(&mut self, query: &Query, tell: &Tell);

    /// The new verdicts of the last engine's probes, if they changed since they were told.
    fn retell(&mut self, _probed: Vec<ProbedRate>) {}

    fn incumbent(&self) -> Option<Incumbent>;

    /// The rate that a point is thought to keep, where it was probed.
    fn estimate(&self, point: &Point) -> Option<Rate>;

    /// How far the limit of one point exceeds that of another: the logarithm of their ratio and its standard error, by all probes. `None` if that
    /// is not known.
    fn advantage(&self, _of: &Point, _over: &Point) -> Option<(f64, f64)> {
        None
    }

    /// At most how many points may still be launched.
    fn points_left(&self) -> usize;

    /// How many of them are expected to be, for forecasts.
    fn points_expected(&self) -> usize {
        self.points_left()
    }
}

/// Makes a strategy for a plan and a seed. The point is that of the running engine, the rate a first guess of what it keeps.
pub type MakeStrategy = fn(&Plan, u64, &Point, Rate) -> Box<dyn Strategy>;

/// The plan's strategy: the [`MakeStrategy`] of every session that brings no other.
pub fn strategy(plan: &Plan, seed: u64, baseline: &Point, first_rate: Rate) -> Box<dyn Strategy> {
    match plan.search.strategy {
        StrategyKind::Bayes => Box::new(Bayes::new(plan, seed, baseline, first_rate)),
        StrategyKind::Bisect => Box::new(PointByPoint::quasi_random(plan, seed, baseline, first_rate)),
    }
}

/// Different admitted points: the baseline with the values that are held, and up to `wanted` of a scrambled Sobol sequence.
fn candidate_points(space: &Space, held: &Point, baseline: &Point, wanted: usize, seed: u64) -> Vec<Point> {
    let mut points = space::candidates(space, held, wanted, seed);
    let raised = space.settled(baseline.holding(held));
    points.retain(|point| *point != raised);
    if space.admits(&raised) {
        points.insert(0, raised);
    }
    points
}
