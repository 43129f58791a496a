//! The checked plan: everything a session needs to know, in types that cannot hold a mistake that the space file could make.
//!
//! A plan is made by [`super::parse`] alone. It serialises to canonical JSON, which is the identity of a journal.

use serde::{Deserialize, Serialize};

use super::engine::EnginePlan;
use super::search::{Budget, ProbePlan, SearchPlan};
use super::secrets::{Secrets, in_words, redact_variable, redact_words};
use super::workload::WorkloadPlan;
use crate::engine::{Quantity, dialect};
use crate::space::{Parameter, Space, is_choice};
use autotune_records::units::Seconds;
use autotune_twin::EngineFlags;

/// What the twin has a term for beside [`EngineFlags::FITTED`]: each engine tells the size of its blocks.
const BLOCK_SIZE: &str = "block-size";

/// The whole job of one space file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The promises, in the order of the file; at least one.
    pub slo: Vec<Limit>,
    /// How the engine is started and watched.
    pub engine: EnginePlan,
    pub workload: WorkloadPlan,
    /// The parameters and their constraints.
    pub space: Space,
    pub probe: ProbePlan,
    pub search: SearchPlan,
    /// What the search may cost.
    pub budget: Budget,
}

impl Plan {
    /// Whether a twin is fitted to the probes. It would take what a parameter without a term does for a change of the engine's steps.
    pub fn with_twin(&self) -> bool {
        self.probe.twin && dialect(self.engine.kind).is_modelled() && self.without_term().is_empty()
    }

    /// The parameters that the twin has no term for: the Gaussian process alone learns what they do.
    pub fn without_term(&self) -> Vec<&str> {
        let tuned = self.space.parameters.iter().filter(|p| p.values.len() > 1);
        let has_term = |name: &str| EngineFlags::FITTED.contains(&name) || name == BLOCK_SIZE;
        tuned.map(|p| p.name.as_str()).filter(|name| !has_term(name)).collect()
    }

    /// Those of them that are words or switches.
    pub fn unmodelled_choices(&self) -> impl Iterator<Item = &Parameter> {
        let without_term = self.without_term();
        let all = self.space.parameters.iter().filter(move |p| without_term.contains(&p.name.as_str()));
        all.filter(|p| is_choice(p))
    }

    pub fn memory_share(&self) -> Option<&Parameter> {
        self.space.parameter(dialect(self.engine.kind).flag(Quantity::MemoryShare)?)
    }

    /// The share of the memory, where it has values to choose from.
    pub fn tuned_memory(&self) -> Option<&Parameter> {
        self.memory_share().filter(|share| share.values.len() > 1)
    }
}

impl Secrets {
    /// Those that a plan holds in `engine.env`, `engine.args` and `engine.command`.
    pub fn of(plan: &Plan) -> Self {
        let words = [&plan.engine.command, &plan.engine.args].into_iter().flat_map(|words| {
            let places = in_words(words);
            places.into_iter().filter_map(|(at, range)| Some(words.get(at)?.get(range)?.to_owned())).collect::<Vec<_>>()
        });
        let variables = plan.engine.env.iter().map(|(name, value)| (name.clone(), value.clone()));
        Self::new(words).and(Self::of_variables(variables))
    }
}

/// The plan as it may be written down.
pub fn redact_plan(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.engine.command = redact_words(&plan.engine.command);
    plan.engine.args = redact_words(&plan.engine.args);
    for (name, value) in &mut plan.engine.env {
        *value = redact_variable(name, value);
    }
    plan
}

/// One promise: the quantile of a latency metric stays at or below a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    pub metric: Metric,
    /// The quantile in (0, 1), such as 0.99.
    pub quantile: f64,
    /// The largest latency that keeps the promise.
    pub at_most: Seconds,
}

impl Limit {
    /// The key as the space file spells it, such as `ttft_p99`.
    pub fn key(&self) -> String {
        let percent = format!("{}", (self.quantile * 100.0 * 1e6).round() / 1e6);
        format!("{}_p{}", self.metric.name(), percent.replace('.', "_"))
    }
}

/// A latency that can be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Time to first token: from the intended send to the first token.
    Ttft,
    /// Time per output token: (last token - first token) / (tokens - 1), per request.
    Tpot,
    /// Inter-token latency: every gap between two arrivals of tokens.
    Itl,
    /// End to end: from the intended send to the last token.
    E2e,
}

impl Metric {
    /// Every metric, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Ttft, Self::Tpot, Self::Itl, Self::E2e];

    /// The name in space files and outcomes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::Itl => "itl",
            Self::E2e => "e2e",
        }
    }

    /// Whether the time that a request waits for its first token is a part of it.
    pub fn includes_waiting(self) -> bool {
        matches!(self, Self::Ttft | Self::E2e)
    }
}
