//! How the rate of one point is found: what is sent next, and what the answers are taken to mean.

mod auto_benchmark;
mod auto_tune;
mod bisect;
mod vllm_sla;

use super::{Heard, Traffic};
use crate::units::Rate;

pub use auto_benchmark::AutoBenchmark;
pub use auto_tune::AutoTune;
pub use bisect::Bisect;
pub use vllm_sla::VllmSla;

/// A rate at which requests come all at once, for any engine that answers a tenth of that: the benchmarks' `--request-rate inf`. At 10,000
/// requests per second our own sends lag on a busy machine, which voids the run.
pub const ALL_AT_ONCE: Rate = Rate(1e3);

/// What a point kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// The highest rate that it is thought to keep.
    pub rate: Rate,
    /// What points are compared by.
    pub worth: f64,
}

impl Kept {
    /// A rate that is what points are compared by.
    pub fn rate(rate: Rate) -> Self {
        Self { rate, worth: rate.0 }
    }
}

/// The next step at a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// This is sent.
    Try {
        /// The traffic.
        traffic: Traffic,
        /// Whether to an engine that is launched for it.
        relaunch: bool,
    },
    /// Nothing more: what is kept by now stays.
    Settled,
}

impl Step {
    /// To the running engine.
    fn probe(traffic: Traffic) -> Self {
        Self::Try { traffic, relaunch: false }
    }
}

/// A rule for the rate of one point. It sees all probes of that point in their order, and remembers nothing besides.
pub trait RateRule: Send {
    /// The next step.
    fn next(&self, heard: &[Heard]) -> Step;

    /// What the point keeps by now.
    fn kept(&self, heard: &[Heard]) -> Option<Kept>;
}
