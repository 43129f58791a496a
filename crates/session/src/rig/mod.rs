//! Rigs: launch a point, probe it at a rate, stop it.
//!
//! A session runs unchanged on each of them: `real` (engine, supervise and load), `simulated` (the twin in virtual time), and `remote` (the
//! rig of another process, which `lent` lends by `protocol`).

mod address;
mod cache;
mod condition;
mod either;
mod lent;
mod live;
mod protocol;
mod real;
mod remote;
mod server;
mod simulated;
mod speculation;
mod telemetry;
mod worker;

use std::future::Future;

use serde::{Deserialize, Serialize};

use crate::supervise::Group;
use crate::verdict::{Awaited, Slack, Window};
use autotune_load::{ClientHealth, RequestRecord};
use autotune_plan::engine::diagnosis::Diagnosis;
use autotune_plan::engine::effective::Effective;
use autotune_plan::space::Point;
use autotune_records::units::{Rate, Seconds};
use autotune_workload::{Demand, Material, Pace};

pub use address::Address;
pub use cache::{CacheUse, ShareSource};
pub use condition::{Condition, Quantity};
pub use either::EitherRig;
pub use lent::{Lent, Terms};
pub use protocol::foreign;
pub use protocol::{Greeting, JobMark, SAME_TOKEN, SILENCE};
pub use real::{RealRig, Workplace};
pub use remote::RemoteRig;
pub use server::{FIRST_SAMPLE, SAMPLE_EVERY};
pub use server::{NoAnswer, Server, Warmed};
pub use simulated::{Peaks, ServeObserver, SimulatedEngine, SimulatedRig, Traffic, prompt_shape};
pub use telemetry::Telemetry;
pub use worker::{WORKER_AWAY, Worker, WorkerError};

/// One engine at a time: launched, probed any number of times, stopped.
pub trait Rig: Send {
    /// Starts an engine with the point's arguments, waits until it serves, warms it, and says what it runs. `spawned` is called as soon
    /// as there is a process, before anything is waited for.
    fn launch(
        &mut self,
        trial: Trial,
        point: &Point,
        spawned: &mut (dyn FnMut(&Spawned) + Send),
    ) -> impl Future<Output = Result<Ready, RigError>> + Send;

    /// The material of its traffic, with the vocabulary of the engine once one runs.
    fn material(&self) -> &Material;

    /// Drives one probe against the running engine.
    fn probe(&mut self, ask: &ProbeAsk) -> impl Future<Output = Result<Measured, RigError>> + Send;

    /// Stops the engine, if one runs, and returns when the machine is clean.
    fn stop(&mut self) -> impl Future<Output = Result<Seconds, RigError>> + Send;

    /// Ends everything at once, for a second interrupt.
    fn kill(&mut self) -> impl Future<Output = ()> + Send;
}

/// Which launch this is: its trial, and the attempt at it, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub number: u32,
    pub attempt: u32,
    /// What the warm-up of an earlier launch showed, where there was one: then this one needs no whole answers.
    #[serde(default)]
    pub warmed: Option<Warmed>,
    /// The trial whose process this one may use: its own, or an earlier one whose engine can take this point's limits. None for a plain launch.
    #[serde(default)]
    pub on: Option<u32>,
}

/// A process that was just started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spawned {
    pub group: Group,
    pub scratch: std::path::PathBuf,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// From the start of the process to the end of the warm-up.
    pub took: Seconds,
    /// What it says it runs.
    pub effective: Effective,
    pub model: String,
    pub gpus: Vec<String>,
    /// Whether it shares its processors with other programs: it has no GPU, and is not simulated.
    #[serde(default)]
    pub shared: bool,
    /// How much of that the warm-up was; none in journals of earlier versions.
    #[serde(default)]
    pub warm_up: Option<Seconds>,
    /// What the warm-up showed, or that of the first launch where this one's was short.
    #[serde(flatten)]
    pub warmed: Warmed,
    /// Bytes of host memory that its processes held at most, summed; `None` if that is not known.
    #[serde(default)]
    pub host_memory: Option<u64>,
    /// What the trial runs on.
    #[serde(default)]
    pub process: EngineProcess,
    /// Where in a cluster that is.
    #[serde(default)]
    pub node: Option<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Node {
    pub name: String,
    /// Its label `nvidia.com/gpu.product`; `None` if nobody could read it.
    #[serde(default)]
    pub gpu_product: Option<String>,
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let product = self.gpu_product.as_ref().map_or(String::new(), |product| format!(" ({product})"));
        write!(f, "node {}{product}", self.name)
    }
}

/// The process that a trial runs on; by default one that was launched plainly.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineProcess {
    /// Whether it ran already, and took the limits of the trial's point.
    pub altered: bool,
    /// The values that it was launched with, where it takes any smaller limits while it runs.
    pub widest: Option<Point>,
    /// The tokens of its largest step that has a CUDA graph, where another launch may have fewer ([`live::largest_graph`](autotune_plan::engine::live::largest_graph)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<i64>,
    /// Why it cannot, where that was tried.
    #[serde(alias = "stays")]
    pub live_unsupported_reason: Option<String>,
}

impl Ready {
    /// From the start of the process until it served: [`Ready::took`] without the warm-up.
    pub fn starting(&self) -> Seconds {
        let burst = Seconds(f64::from(server::BURST) / self.warmed.burst_rate.0.max(1e-3));
        Seconds((self.took.0 - self.warm_up.unwrap_or(burst).0).max(0.0))
    }
}

/// What a probe shall do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeAsk {
    pub rate: Rate,
    /// The part that counts; the ramp lies before it.
    pub window: Window,
    pub arrival_seed: u64,
    pub content_seed: u64,
    /// What one answer is expected to take.
    pub answer_time: Seconds,
    /// Tokens of an answer that is sent back over those that it had when it was made, 0 to 1.
    #[serde(default = "whole")]
    pub growth: f64,
    /// How many violations it bears before it is cut.
    #[serde(default)]
    pub slack: Slack,
    /// The answers that it waits for after the last request.
    #[serde(default)]
    pub awaited: Awaited,
}

/// The growth where a journal of an earlier version has none. Such a journal can be read. It cannot be resumed where the answers of its
/// conversations came back shorter.
fn whole() -> f64 {
    1.0
}

impl ProbeAsk {
    /// Whether its requests come all at once: then it is no measurement at a rate, and nothing cuts it.
    pub fn is_burst(&self) -> bool {
        self.slack.is_unbounded()
    }

    /// The pace of its traffic, whose prefixes and starters that seed decides.
    pub fn pace(&self, shared_seed: u64) -> Pace {
        Pace {
            demand: Demand::Open(self.rate),
            horizon: self.window.to,
            arrival_seed: self.arrival_seed,
            content_seed: self.content_seed,
            shared_seed,
            answer_time: self.answer_time,
            growth: self.growth,
            first_place: None,
        }
    }

    /// How many requests come all at once, where every answer is awaited to its end.
    pub fn whole_burst(&self) -> Option<u32> {
        let whole = self.is_burst() && self.awaited == Awaited::All;
        whole.then(|| (self.window.length().0 * self.rate.0).round() as u32)
    }

    /// At that rate. Callers set window and seeds; the worker of a session sets `answer_time` and `growth`.
    pub(crate) fn at(rate: Rate) -> Self {
        let (from, to) = (Seconds(0.0), Seconds(1.0));
        Self {
            rate,
            window: Window { from, to },
            arrival_seed: 1,
            content_seed: 2,
            answer_time: Seconds(0.5),
            growth: 1.0,
            slack: Slack::default(),
            awaited: Awaited::All,
        }
    }
}

/// Requests of a burst are sent at this rate, which is at once for any engine that answers a tenth of it. At 10,000 requests per second our own
/// sends lag on a busy machine, which voids the run.
pub const BURST_RATE: Rate = Rate(1e3);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    #[serde(with = "protocol::as_file")]
    pub records: Vec<RequestRecord>,
    /// When the last answer came or the probe was cut, from the start of its traffic.
    pub ended: Seconds,
    /// Whether it ran to its full length.
    pub complete: bool,
    /// What the engine's counters showed meanwhile.
    pub telemetry: Telemetry,
    /// What the prefix cache held.
    pub cache: CacheUse,
    /// How well our own client kept up.
    pub client: ClientHealth,
    /// Time of the engine it took, preparations included.
    pub took: Seconds,
}

/// Why a rig gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    #[error("{}", .0.diagnosis.says)]
    Engine(Box<Failure>),
    /// The machine or our own part failed; the session cannot go on.
    #[error("{0}")]
    Machine(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub diagnosis: Diagnosis,
    /// Time of the engine it took.
    pub took: Seconds,
}
