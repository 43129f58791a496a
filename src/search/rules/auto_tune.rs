//! The rule of vLLM's `auto_tune.sh`: from the saturated throughput downwards in whole requests per second, until one passes.
//!
//! The script's only limit is on the 99th percentile of the end-to-end latency; here the plan's limits stand in its place.

use super::{ALL_AT_ONCE, Kept, RateRule, Step};
use crate::search::{Heard, Traffic};
use crate::units::Rate;

/// Requests of the saturating run, and of each after it.
const REQUESTS: (u32, u32) = (1_000, 100);

/// The rule.
#[derive(Clone, Copy, Debug)]
pub struct AutoTune;

impl RateRule for AutoTune {
    fn next(&self, heard: &[Heard]) -> Step {
        let Some(saturated) = heard.first() else {
            return Step::probe(Traffic::Requests { rate: ALL_AT_ONCE, count: REQUESTS.0 });
        };
        let rate = saturated.seen.throughput.0.floor() + 2.0 - heard.len() as f64;
        if rate < 1.0 || heard.iter().any(|run| run.seen.within()) {
            return Step::Settled;
        }
        Step::probe(Traffic::Requests { rate: Rate(rate), count: REQUESTS.1 })
    }

    /// The rate that passed; points are compared by the throughput that was measured at it. A point that passes when everything comes at
    /// once keeps what it then answers.
    fn kept(&self, heard: &[Heard]) -> Option<Kept> {
        let run = heard.last().filter(|run| run.seen.within())?;
        let throughput = run.seen.throughput;
        let rate = if heard.len() == 1 { throughput } else { run.traffic.rate() };
        Some(Kept { rate, worth: throughput.0 })
    }
}
