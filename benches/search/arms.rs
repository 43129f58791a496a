//! What is compared: strategies, with or without the twin beside them.

use autotune::search::{self, MakeStrategy};

use crate::lab;

/// A strategy as it is run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    pub name: &'static str,
    /// The word in `[search]`.
    pub strategy: &'static str,
    /// Whether the twin weighs its probes.
    pub twin: bool,
    /// Engines that run at the same time, each on a GPU of its own.
    pub workers: usize,
}

impl Arm {
    /// Its strategy: that of its plan, or one of the lab.
    pub fn make(&self) -> MakeStrategy {
        match self.name {
            "random" => lab::random,
            _ => search::strategy,
        }
    }
}

/// Those of the lab have no word of their own in `[search]`.
const fn control(name: &'static str) -> Arm {
    Arm { name, strategy: "bisect", twin: false, workers: 1 }
}

const fn reference(name: &'static str, workers: usize) -> Arm {
    Arm { name, strategy: REFERENCE, twin: true, workers }
}

/// The arm whose minutes are shown, and that a quick run holds to its bars.
pub const REFERENCE: &str = "bayes";

/// Every arm. One that this build does not know is left out, and so are those of several workers unless they are asked for.
pub const ARMS: &[Arm] = &[
    reference(REFERENCE, 1),
    reference("bayes-on-2", 2),
    reference("bayes-on-4", 4),
    control("bisect"),
    control("random"),
];

pub const QUICK_ARMS: &[&str] = &[REFERENCE];
