//! The rule of SGLang's `auto_benchmark`: the incumbent's rate first, then a few halvings between two bounds, an engine for every probe.
//!
//! Its limits are on means; here the plan's limits stand in their place.

use super::{Kept, RateRule, Step};
use crate::search::{Heard, Traffic};
use crate::units::Rate;

/// The bounds by the first rate; its users write them down.
const BOUNDS: (f64, f64) = (0.25, 2.0);
/// Bounds so near are near enough, in requests per second.
const TOLERANCE: f64 = 0.1;
/// Halvings at most (`MAX_BINARY_SEARCH_ROUNDS`).
const ROUNDS: usize = 5;
/// Requests of a probe.
const REQUESTS: u32 = 300;
/// Rates have so many parts to a request per second.
const PARTS: f64 = 1e4;

/// The rule.
#[derive(Clone, Copy, Debug)]
pub struct AutoBenchmark {
    bounds: (f64, f64),
    incumbent: Option<Rate>,
}

impl AutoBenchmark {
    /// With bounds by the first rate, against the incumbent's.
    pub fn new(first_rate: Rate, incumbent: Option<Rate>) -> Self {
        let bounds = (first_rate.0 * BOUNDS.0, first_rate.0 * BOUNDS.1);
        // An incumbent outside the bounds is not asked about.
        let incumbent = incumbent.filter(|rate| bounds.0 < rate.0 && rate.0 <= bounds.1);
        Self { bounds, incumbent }
    }
}

impl RateRule for AutoBenchmark {
    fn next(&self, heard: &[Heard]) -> Step {
        let launch = |rate| Step::Try { traffic: Traffic::Requests { rate, count: REQUESTS }, relaunch: true };
        let mut passes = heard.iter().map(|probe| probe.seen.within());
        let (mut lower, mut upper) = self.bounds;
        if let Some(rate) = self.incumbent {
            match passes.next() {
                None => return launch(rate),
                Some(false) => return Step::Settled,
                Some(true) => lower = rate.0,
            }
        }
        for _ in 0..ROUNDS {
            let middle = ((lower + upper) / 2.0 * PARTS).round() / PARTS;
            if upper - lower <= TOLERANCE || middle <= lower || middle >= upper {
                break;
            }
            match passes.next() {
                None => return launch(Rate(middle)),
                Some(true) => lower = middle,
                Some(false) => upper = middle,
            }
        }
        Step::Settled
    }

    fn kept(&self, heard: &[Heard]) -> Option<Kept> {
        // What passed is the lower bound from then on, so the last is the highest.
        heard.iter().rev().find(|probe| probe.seen.within()).map(|probe| Kept::rate(probe.traffic.rate()))
    }
}
