//! What is searched: engines, traffic and promises, each with a name.

mod formula;
mod kernels;

use autotune::rehearsal::Deviations;
use autotune::settings::{Plan, parse};
use autotune::twin::Profile;

use serde::Serialize;

use crate::arms::Arm;

/// What a surface puts to the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// Measured kernels, requests of one turn.
    SingleTurn,
    /// Measured kernels, conversations.
    MultiTurn,
    /// Conversations of which half find nothing of their answers in the cache.
    Misses,
    /// A KV cache that is too small.
    Starvation,
    /// A speed that wanders, stalls or falls.
    Drift,
    /// Steps of the twin's own formula.
    Formula,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::SingleTurn, Self::MultiTurn, Self::Misses, Self::Starvation, Self::Drift, Self::Formula];

    pub fn name(self) -> &'static str {
        match self {
            Self::SingleTurn => "single-turn",
            Self::MultiTurn => "multi-turn",
            Self::Misses => "misses",
            Self::Starvation => "starvation",
            Self::Drift => "drift",
            Self::Formula => "formula",
        }
    }
}

/// A job whose true answer is known.
pub struct Surface {
    pub name: &'static str,
    /// What it puts to the test.
    pub kind: Kind,
    /// Its space file, but for the strategy.
    space: Space,
    pub profile: Profile,
    /// What that has beyond its profile.
    pub deviations: Deviations,
}

/// The parts of a space file that surfaces differ in.
struct Space {
    slo: String,
    workload: String,
    parameters: String,
    probe: String,
}

impl Surface {
    /// Its plan for an arm.
    ///
    /// # Panics
    /// Where the strategy is none that this build knows, or the surface is no valid space file.
    pub fn plan(&self, arm: &Arm) -> Plan {
        self.try_plan(arm).unwrap_or_else(|problems| panic!("{}: {problems}", self.name))
    }

    /// The same, or why it is refused.
    pub fn try_plan(&self, arm: &Arm) -> Result<Plan, String> {
        let Space { slo, workload, parameters, probe } = &self.space;
        let (strategy, twin) = (arm.strategy, arm.twin);
        let text = format!(
            "[slo]\n{slo}\n[engine]\nkind = \"simulated\"\nstart_estimate = \"60s\"\nlive = true\n[workload]\n{workload}\n\
             [parameters]\n{parameters}\n[search]\nstrategy = \"{strategy}\"\nprecision = \"3%\"\ncandidates = 24\n\
             constraints = [\"max-num-batched-tokens >= max-num-seqs\"]\n\
             [probe]\n{probe}\ntwin = {twin}\n[budget]\ngpu_time = \"24h\"\n"
        );
        parse(self.name, &text).map_err(|problems| problems.to_string())
    }
}

pub fn surfaces() -> Vec<Surface> {
    let mut all = kernels::surfaces();
    all.extend(formula::surfaces());
    all
}

pub const QUICK_SURFACES: &[&str] = &["h200-8b-single", "h200-70b-turns"];
