//! Ask and tell: which point at which rate is tried next.
//!
//! Pure: no clock, no I/O, no global randomness. A strategy that is told the same answers asks the same questions, which is what lets a
//! journal resume a session.

mod feasible;
mod memory;
mod race;
mod rate;

use serde::{Deserialize, Serialize};

use crate::engine::diagnosis::Consequence;
use crate::settings::{Plan, StrategyKind};
use crate::space::Point;
use crate::units::Rate;
use crate::verdict::{Outcome, Verdict};

pub use feasible::Infeasible;
pub use memory::HighestThatStarts;
pub use race::Race;
pub use rate::{NextRate, RateSearch, round};

/// A point and the highest rate that it was seen to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incumbent {
    /// The point.
    pub point: Point,
    /// The rate.
    pub rate: Rate,
}

/// What a strategy wants to know next.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Probe this point at this rate.
    Probe(Point, Rate),
    /// Nothing more is worth its cost.
    Done,
}

/// What became of the last question.
#[derive(Clone, Debug, PartialEq)]
pub enum Tell {
    /// It was probed.
    Probed(Rate, Observation),
    /// The engine did not start, or did not live.
    Failed(Consequence),
}

/// What a search needs of a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Whether the rate was kept. What is unresolved was not: near the limit, doubt goes against the rate.
    pub kept: bool,
    /// log(measured / limit) of the binding promise, where the probe ran to its end.
    pub margin: Option<f64>,
}

impl From<&Verdict> for Observation {
    fn from(verdict: &Verdict) -> Self {
        Self { kept: verdict.outcome == Outcome::Pass, margin: verdict.margin() }
    }
}

/// A strategy, told what it asked for in the order in which it asked.
pub trait Strategy: Send {
    /// What it wants to know.
    fn ask(&mut self) -> Ask;

    /// What became of it.
    fn tell(&mut self, point: &Point, tell: &Tell);

    /// The best so far.
    fn incumbent(&self) -> Option<&Incumbent>;

    /// At most how many points may still be launched, for forecasts.
    fn points_left(&self) -> usize;
}

/// The plan's strategy. `held` are values that were settled before; `tried` is not raced again.
pub fn strategy(
    plan: &Plan,
    seed: u64,
    held: &Point,
    tried: &Point,
    incumbent: Option<Incumbent>,
    first_rate: Rate,
) -> Box<dyn Strategy> {
    match plan.search.strategy {
        StrategyKind::Race => Box::new(Race::new(plan, seed, held, tried, incumbent, first_rate)),
    }
}
