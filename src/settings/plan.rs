//! The checked plan: everything a session needs to know, in types that cannot hold a mistake that the space file could make.
//!
//! A plan is made by [`super::parse`] alone. It serialises to canonical JSON, which is the identity of a journal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::engine_kind::EngineKind;
use super::secrets::{Secrets, in_words, redact_variable, redact_words};
use crate::engine::{Quantity, dialect};
use crate::space::{Parameter, Space, is_choice};
use crate::units::{Rate, Seconds};

/// The parameters that the twin has a term for.
const TERMS: [&str; 7] = [
    "max-num-seqs",
    "max-num-batched-tokens",
    "gpu-memory-utilization",
    "max-model-len",
    "kv-cache-memory-bytes",
    "enable-prefix-caching",
    "block-size",
];

/// The whole job of one space file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The promises, in the order of the file; at least one.
    pub slo: Vec<Limit>,
    /// How the engine is started and watched.
    pub engine: EnginePlan,
    /// What is asked of it.
    pub workload: WorkloadPlan,
    /// The parameters and their constraints.
    pub space: Space,
    pub probe: ProbePlan,
    /// How the space is searched.
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
        tuned.map(|p| p.name.as_str()).filter(|name| !TERMS.contains(name)).collect()
    }

    /// Those of them that are words or switches.
    pub fn unmodelled_choices(&self) -> impl Iterator<Item = &Parameter> {
        let without_term = self.without_term();
        let all = self.space.parameters.iter().filter(move |p| without_term.contains(&p.name.as_str()));
        all.filter(|p| is_choice(p))
    }

    /// The share of the memory, where it is among the parameters.
    pub fn memory_share(&self) -> Option<&Parameter> {
        self.space.parameter(dialect(self.engine.kind).flag(Quantity::MemoryShare)?)
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

/// How the engine is started and watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnginePlan {
    /// Which adapter speaks to it.
    pub kind: EngineKind,
    /// The program and its leading words, such as `vllm serve MODEL`; empty for the simulated engine means our own binary.
    pub command: Vec<String>,
    /// Arguments fixed for every trial.
    pub args: Vec<String>,
    /// Environment variables added to ours.
    pub env: BTreeMap<String, String>,
    /// A fixed port; without it a free one is taken for each launch.
    pub port: Option<u16>,
    /// How long a start may take.
    pub start_timeout: Duration,
    /// How long no token may arrive while requests wait, before the engine counts as hung.
    pub stall_timeout: Duration,
    /// How long after SIGTERM the engine may take before SIGKILL.
    pub stop_timeout: Duration,
    /// What a start is expected to take, for the forecast before the first one was measured.
    pub start_estimate: Duration,
    /// Whether a running engine may take other limits instead of being launched for each point.
    #[serde(default)]
    pub live: bool,
    /// The processes of a graph; none where the engine is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<GraphPlan>,
}

/// A frontend and its workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphPlan {
    pub workers: u32,
    /// Arguments of the frontend fixed for every trial.
    pub frontend_args: Vec<String>,
    /// The Python module of a worker.
    pub module: String,
}

/// What is asked of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadPlan {
    /// `/v1/completions` with token ids, or `/v1/chat/completions` with text.
    pub endpoint: Endpoint,
    /// Ask the engine to ignore the end-of-sequence token, so that every answer has exactly the drawn length.
    pub ignore_eos: bool,
    /// How requests arrive at a rate. Journals from before there was a choice hold none.
    #[serde(default)]
    pub arrivals: ArrivalProcess,
    pub kind: WorkloadKind,
}

impl WorkloadPlan {
    /// Whether prompts may share a prefix, or follow from answers.
    pub fn connects_requests(&self) -> bool {
        !matches!(&self.kind, WorkloadKind::Random(kind) if kind.shared_prefix_tokens == 0)
    }
}

/// The HTTP endpoint that carries the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Endpoint {
    /// `POST /v1/completions`, prompts as token ids: exact lengths without a tokenizer.
    Completions,
    /// `POST /v1/chat/completions`, prompts as words; the engine's usage tells the length.
    Chat,
}

/// The gaps between arrivals in an open loop, their mean being one over the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalProcess {
    #[default]
    Poisson,
    Gamma {
        /// Their shape: 1 is Poisson, lower is burstier.
        burstiness: f64,
    },
    Constant,
    /// Those of the trace's file.
    Recorded,
}

/// The kinds of traffic, each with its own settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadKind {
    /// Independent requests with drawn lengths.
    Random(RandomPlan),
    /// Conversations whose turns resend their history.
    Conversations(ConversationsPlan),
    /// First questions of recorded dialogues.
    Sharegpt(SharegptPlan),
    /// Requests from a file, one a line.
    Jsonl(JsonlPlan),
    /// Lengths, times and shared blocks of recorded traffic.
    Trace(TracePlan),
}

impl WorkloadKind {
    /// The file that it reads, as the space file names it; none where it draws all by itself.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Random(_) | Self::Conversations(_) => None,
            Self::Sharegpt(kind) => Some(&kind.file),
            Self::Jsonl(kind) => Some(&kind.file),
            Self::Trace(kind) => Some(&kind.file),
        }
    }
}

/// Independent requests with drawn lengths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RandomPlan {
    /// Tokens of a prompt, without the shared prefix.
    pub input_tokens: Lengths,
    pub output_tokens: Lengths,
    /// Tokens that prompts of the same prefix begin with; 0 for none.
    pub shared_prefix_tokens: u32,
    /// How many different shared prefixes there are.
    pub shared_prefixes: u32,
}

/// Conversations whose turns resend their history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConversationsPlan {
    /// How many different documents conversations start from.
    pub starters: u32,
    pub starter_tokens: Lengths,
    pub turns: u32,
    /// Tokens of what the user adds in each turn.
    pub question_tokens: Lengths,
    pub output_tokens: Lengths,
    /// Time between an answer's last token and the next turn.
    pub think_time: Duration,
}

/// Recorded dialogues in the form of the ShareGPT collection: their first questions, or all of their turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharegptPlan {
    /// The file, as the space file spells it: relative to the space file's folder.
    pub file: PathBuf,
    /// Tokens of an answer; without it those of the recorded answers.
    pub output_tokens: Option<Lengths>,
    /// The most turns of a dialogue that are asked.
    pub turns: u32,
    /// From an answer to the next turn.
    pub think_time: Duration,
}

/// Requests from a file, one JSON object a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JsonlPlan {
    /// The file, as the space file spells it: relative to the space file's folder.
    pub file: PathBuf,
    /// Tokens of an answer, for lines that do not say.
    pub output_tokens: Option<Lengths>,
}

/// Lengths, times and shared blocks of recorded traffic, without its texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracePlan {
    /// The file, as the space file spells it: relative to the space file's folder.
    pub file: PathBuf,
    /// Tokens that one hash id stands for.
    pub block_tokens: u32,
    /// What one unit of a timestamp is.
    pub time_unit: Duration,
}

/// A distribution of token counts. Draws are rounded and held within `min` and `max`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    pub shape: LengthShape,
    /// The smallest count, at least 1.
    pub min: u32,
    pub max: u32,
}

/// The shape of a distribution of token counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LengthShape {
    /// Always `min` (which equals `max`).
    Fixed,
    /// Uniform between `min` and `max`.
    Uniform,
    Normal {
        mean: f64,
        sd: f64,
    },
    Lognormal {
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// Bins, uniform inside; `min` is the first edge and `max` the last.
    Histogram {
        /// Where bins begin, ascending, and where the last one ends, itself included.
        edges: Vec<u32>,
        /// The weight of each bin.
        counts: Vec<u32>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbePlan {
    /// Traffic at the probe's rate before anything counts.
    pub ramp: Duration,
    /// The time whose arrivals count.
    pub window: Duration,
    /// The window of a certifying probe.
    pub certify_window: Duration,
    /// Whether a twin of the engine is fitted to the probes and takes the luck of their arrivals out of the verdicts.
    #[serde(default = "yes")]
    pub twin: bool,
    /// Tokens that a step must give in the mean at a point that drafts tokens otherwise than the baseline, or its trial ends.
    #[serde(default = "least_acceptance_length")]
    pub acceptance_length: f64,
}

/// The default of [`ProbePlan::acceptance_length`], for journals of earlier versions.
pub(crate) fn least_acceptance_length() -> f64 {
    1.1
}

fn yes() -> bool {
    true
}

/// How the space is searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchPlan {
    pub strategy: StrategyKind,
    /// The bracket of a rate is closed when its ends differ by less than this fraction.
    pub precision: f64,
    /// A candidate must promise at least this fraction more than the incumbent.
    pub min_gain: f64,
    /// At most this many candidates are raced.
    pub candidates: u32,
    /// The first rate tried at the baseline; without it the warm-up's throughput tells.
    pub first_rate: Option<Rate>,
    /// The seed of every draw, unless `--seed` says otherwise.
    pub seed: u64,
}

/// The strategies that propose points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StrategyKind {
    /// A model of the margins, the fitted twin and a Gaussian process for what it gets wrong: the largest expected gain per second.
    Bayes,
    /// Quasi-random points, each raced at the incumbent's rate and bisected where it wins.
    Bisect,
}

impl StrategyKind {
    /// Every strategy, in the order of the documentation.
    pub const ALL: [Self; 2] = [Self::Bayes, Self::Bisect];

    /// The word of the space file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bayes => "bayes",
            Self::Bisect => "bisect",
        }
    }
}

/// What the search may cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Seconds that engines may be up, starts and stops included.
    pub gpu_time: Duration,
}
