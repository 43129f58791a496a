//! A trial: one point on one engine. What is asked of it, what runs, and what its probes showed.

use tracing::Span;
use tracing::field::display;

use super::cost::Before;
use super::session_twin::{FitProbe, TwinEngine};
use crate::journal::Purpose;
use crate::rig::{ProbeAsk, Warmed};
use crate::verdict::Verdict;
use autotune_plan::engine::live::{fewer_graphs, serves};
use autotune_plan::space::Point;
use autotune_records::units::Seconds;

/// What a probe of a trial shall do, by the trial's number, the probe's number in it, and the time that one answer takes.
pub type Asking = Box<dyn Fn(u32, u32, Seconds) -> ProbeAsk>;

pub struct Current {
    pub trial: u32,
    pub point: Point,
    /// With what the engine chose for parameters that were left to it.
    pub known_as: Point,
    pub purpose: Purpose,
    /// The trial whose launch started its process.
    pub on: u32,
    /// What its process was launched with, where it takes smaller limits.
    pub widest: Option<Point>,
    /// The tokens of its largest step that has a CUDA graph, where another launch may have fewer.
    pub graph: Option<i64>,
    /// Whether its engine runs; a trial that is answered from the journal has none.
    pub live: bool,
    pub probes: u32,
    pub answer_time: Seconds,
    /// As the twin sees it; `None` if it cannot.
    pub engine: Option<TwinEngine>,
    /// The probes that say something, with the latest word on them.
    pub told: Vec<ProbeResult>,
    pub span: Span,
    /// What the worker's engines had taken before it.
    pub busy_before: Seconds,
}

impl Current {
    /// Notes in its diagnostics what it took, by what the worker's engines have taken.
    pub fn note_cost(&self, busy: Seconds) {
        self.span.record("probes", self.probes).record("engine_time", display(busy - self.busy_before));
    }

    /// Whether its process serves what is wanted, without another launch.
    pub fn serves(&self, wanted: &TrialRequest) -> bool {
        let fits = |widest: &Point| serves(widest, self.graph, &wanted.point);
        !wanted.purpose.launches_plainly() && self.widest.as_ref().is_some_and(fits)
    }

    /// What to say where only the CUDA graphs of another launch keep its process from serving what is wanted. `most` is the largest graph of the
    /// first launch.
    pub fn lacks_graphs(&self, wanted: &TrialRequest, most: Option<i64>) -> Option<String> {
        let widest = self.widest.as_ref().filter(|_| !wanted.purpose.launches_plainly())?;
        fewer_graphs(widest, self.graph, most?, &wanted.point)
    }
}

/// A probe with its verdict, and what the twin needs to judge it again.
#[derive(Clone)]
pub struct ProbeResult {
    pub probe: u32,
    pub ask: ProbeAsk,
    pub verdict: Verdict,
    pub fit_probe: Option<FitProbe>,
}

#[derive(Clone, Debug)]
pub struct TrialRequest {
    pub purpose: Purpose,
    pub point: Point,
}

impl TrialRequest {
    pub fn of(purpose: Purpose, point: Point) -> Self {
        Self { purpose, point }
    }

    /// What has to be done before it can be probed by a worker with that trial, which is another one; `may_alter` says whether its process
    /// may take other limits.
    pub fn behind(&self, current: Option<&Current>, may_alter: bool) -> Before {
        let alters = may_alter && current.is_some_and(|current| current.serves(self));
        if alters { Before::Altering } else { Before::Launching }
    }
}

#[derive(Clone, Debug)]
pub struct Launch {
    pub trial: u32,
    pub wanted: TrialRequest,
    /// What the warm-up of an earlier launch showed.
    pub warmed: Option<Warmed>,
    /// Whether its engine may be one that alters its limits.
    pub live: bool,
}
