//! The records of a journal, one for each step: version 1 of a public format.

use std::collections::BTreeMap;
use std::fmt;

use autotune_numerics::Z_95;
use serde::{Deserialize, Serialize};

use crate::rig::{CacheUse, Failure, ProbeAsk, Ready, Spawned, Telemetry};
use crate::verdict::Verdict;
use autotune_load::ClientHealth;
use autotune_plan::settings::Plan;
use autotune_plan::space::Point;
use autotune_records::units::{Rate, Seconds};
use autotune_twin::{Fit, SeenSteps};
use autotune_workload::Vocabulary;

/// The version of the journal's format.
pub const FORMAT: u32 = 1;
/// The version of the request files' format, see [`autotune_load::COLUMNS`].
pub const RECORDS_FORMAT: u32 = 2;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Seconds since the Unix epoch. Only people read it.
    pub at: f64,
    pub record: Record,
}

impl Entry {
    /// What a start showed, if it is the record of one.
    pub fn ready(&self) -> Option<&Ready> {
        if let Record::Ready { ready, .. } = &self.record { Some(ready) } else { None }
    }

    /// The words that an engine told, if it is the record of them.
    pub fn words(&self) -> Option<&Vocabulary> {
        if let Record::Words(words) = &self.record { Some(words) } else { None }
    }
}

/// A step of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "a journal has some hundred records, and probes are what most of it is")]
pub enum Record {
    /// The first line: the job that the journal belongs to.
    Header(Box<Header>),
    /// A launch is about to happen.
    Launching {
        /// The trial, from 1.
        trial: u32,
        /// The attempt at it, from 1.
        attempt: u32,
        purpose: Purpose,
        /// Its point; parameters that are absent are left to the engine.
        point: Point,
    },
    Spawned {
        trial: u32,
        spawned: Spawned,
    },
    Ready {
        trial: u32,
        attempt: u32,
        ready: Box<Ready>,
    },
    /// The words that prompts are made of, as the first engine told them. All later traffic uses them.
    Words(Box<Vocabulary>),
    /// The engine did not become ready.
    NotReady {
        trial: u32,
        attempt: u32,
        failure: Failure,
    },
    Probed {
        trial: u32,
        /// The probe in it, from 1.
        probe: u32,
        ask: ProbeAsk,
        verdict: Box<Verdict>,
        /// What the engine's counters showed.
        telemetry: Telemetry,
        /// What the prefix cache held, against what the workload means.
        #[serde(default)]
        cache: CacheUse,
        /// The engine's steps as the client saw them; empty if answers did not come token by token.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<SeenSteps>,
        client: ClientHealth,
        /// Time of the engine it took.
        took: Seconds,
        /// The file with every request, from the journal's folder.
        requests: String,
        /// The SHA-256 of that file; none in journals of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        requests_sha256: Option<String>,
    },
    /// The twin was fitted to the probes so far, this one the last.
    Fitted {
        trial: u32,
        probe: u32,
        fit: Box<Fit>,
        /// The verdicts of the trial's probes so far under the new fit, by their number.
        verdicts: BTreeMap<u32, Verdict>,
    },
    /// The engine failed in a probe.
    Broken {
        trial: u32,
        probe: u32,
        ask: ProbeAsk,
        failure: Failure,
    },
    /// The engine was stopped and the machine is clean.
    Stopped {
        trial: u32,
        took: Seconds,
    },
    /// The run was asked to stop before its end.
    Interrupted,
    Resumed {
        gpu_time: Seconds,
    },
    Concluded(Box<Conclusion>),
}

/// The job that a journal belongs to: a run with another one is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub format: u32,
    pub records_format: u32,
    /// The version of the program.
    pub autotune: String,
    pub space_file: String,
    /// The seed of every draw.
    pub seed: u64,
    /// The plan, without secrets.
    pub plan: Plan,
    #[serde(default)]
    pub workload_digest: Option<u64>,
    /// How many engines ran at the same time.
    #[serde(default = "alone")]
    pub workers: usize,
}

/// The only worker, which journals do not mention that were begun before there could be more.
fn alone() -> usize {
    1
}

/// What a trial is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    Baseline,
    Memory,
    /// A candidate of the search.
    Search,
    /// The winner on fresh traffic, launched with exactly its arguments.
    Certify,
    /// The certification of the winner by a process that runs already: it is the defaults, or what that process was launched with.
    #[serde(alias = "certify-defaults")]
    CertifyRunning,
    /// The baseline beside it, on the same fresh traffic.
    CertifyBaseline,
}

impl Purpose {
    /// Whether it certifies, on traffic that no fit has seen.
    pub fn certifies(self) -> bool {
        matches!(self, Self::Certify | Self::CertifyRunning | Self::CertifyBaseline)
    }

    /// Whether its engine must be launched with exactly the arguments that will be deployed, since nobody has seen them start.
    pub fn launches_plainly(self) -> bool {
        self == Self::Certify
    }

    /// As a person says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Memory => "memory",
            Self::Search => "search",
            Self::Certify => "certify",
            Self::CertifyRunning => "certify running",
            Self::CertifyBaseline => "certify baseline",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The best point was certified on fresh traffic.
    Certified,
    /// A best point was found, but it was not certified: the budget is too small, or no rate held on fresh traffic.
    Uncertified,
    /// No point keeps the promises at any useful rate.
    NotReachable,
    NeverStarted,
    /// Stopped before the end; resumable.
    Interrupted,
}

/// A point and the rates at which it keeps the promises.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// The point, completed by what the engine says it runs.
    pub point: Point,
    /// The search's estimate: the highest rate that was kept and closed from above.
    pub estimated_rate: Option<Rate>,
    /// The rate at which fresh traffic kept every promise, with an empty prefix cache at its start.
    pub certified_rate: Option<Rate>,
    /// One-sided confidence in that, by the spread of blocks of time.
    pub confidence: Option<f64>,
    /// The promise that breaks first as the rate rises.
    pub binding: Option<String>,
    /// The limit in rate as certification knows it best; the certified rate lies below it.
    #[serde(default)]
    pub limit: Option<Rate>,
    /// The standard error of the logarithm of that limit.
    #[serde(default)]
    pub limit_error: Option<f64>,
    /// The measurement of the certifying probe nearest to the certified rate.
    #[serde(default)]
    pub seen: Option<MeasuredAtRate>,
    /// What certification expects of each promise at rates near those that were driven; none in journals of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<ExpectedQuantile>,
}

/// The quantile of one promise over the rate, as all certifying probes and the twin together have it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectedQuantile {
    pub key: String,
    /// A rate, log(quantile / limit) there, and the standard error of that.
    pub margins: Vec<(Rate, f64, f64)>,
}

impl PointResult {
    /// A point of which nothing is known yet.
    pub fn new(point: Point) -> Self {
        Self { point, ..Self::default() }
    }
}

/// What one probe measured in its window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredAtRate {
    /// Requests per second that were offered.
    pub rate: Rate,
    pub requests: u64,
    /// The quantile of each promise, by its key; `None` if it lies among requests without an answer.
    pub measured: BTreeMap<String, Option<Seconds>>,
}

impl MeasuredAtRate {
    pub fn of(rate: Rate, verdict: &Verdict) -> Self {
        let measured = verdict.limits.iter().map(|l| (l.key.clone(), l.measured)).collect();
        Self { rate, requests: verdict.counted, measured }
    }
}

/// How much higher the certified rate of the best point is than that of the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// The ratio of the certified rates, minus one.
    pub gain: f64,
    /// The lower end of the 90 % interval: that of the ratio of the two limits, minus one, and no higher than the gain.
    pub from: f64,
    /// Its upper end, no lower than the gain.
    pub to: f64,
}

/// The part of a limit's standard error, as a share of the rate, that no number of probes of one launch lowers. Other launches differ, and the
/// twin is a little wrong. Without it, 69 % of the 90 % intervals held the truth in 500 sessions on kernel engines (commit 56fc364:
/// `cargo bench --bench search -- --coarse --arms bayes --seeds 51..70`). With 0.025, 97 % did in 320 later ones whose speed stays. With
/// this, 28 of 30 did on H200s (`docs/results.md`).
pub const COMMON_ERROR: f64 = 0.018;

impl Gain {
    /// Of two points; `None` unless both are certified and differ. The interval is that of the ratio of their limits, since the rate of the less
    /// precise proof lies further below its limit. It always holds the gain. Six gains of six that were driven on H200s lie in it; in an interval
    /// around the gain, four do (`docs/results.md`).
    ///
    /// The errors of the limits count without [`COMMON_ERROR`], but at least half of the two together stays. Where others use the machine, more is
    /// in them, and stays too.
    pub fn of(best: &PointResult, baseline: &PointResult) -> Option<Self> {
        if best.point == baseline.point {
            return None;
        }
        let gain = (best.certified_rate?.0 / baseline.certified_rate?.0).ln();
        let of_limits = (best.limit?.0 / baseline.limit?.0).ln();
        let variance = best.limit_error?.powi(2) + baseline.limit_error?.powi(2);
        let error = (variance - 2.0 * COMMON_ERROR.powi(2)).max(variance / 4.0).max(1e-12).sqrt();
        let [from, to] = [(of_limits - Z_95 * error).min(gain), (of_limits + Z_95 * error).max(gain)];
        Some(Self { gain: gain.exp_m1(), from: from.exp_m1(), to: to.exp_m1() })
    }
}

/// The reason in a line of [`Conclusion::left_out`] where the budget had no room for something.
pub const BUDGET_TOO_SMALL: &str = "the budget is too small";
/// The same in outcomes of earlier versions.
const BUDGET_ENDED: &str = "the budget ended";

/// Whether the budget is the reason of such a line.
pub fn names_budget(line: &str) -> bool {
    [BUDGET_TOO_SMALL, BUDGET_ENDED].iter().any(|why| line.contains(why))
}

/// The part of such a line before its reason, where that ends the line; `None` if the reason is not the budget.
pub fn without_budget(line: &str) -> Option<&str> {
    [BUDGET_TOO_SMALL, BUDGET_ENDED].iter().find_map(|why| line.strip_suffix(why)?.strip_suffix(": "))
}

/// How a line begins if no candidate was tried.
pub const NO_CANDIDATE: &str = "all candidates";
/// How a line begins if the defaults are not certified, or not to the precision.
pub const PROOF_OF_DEFAULTS: &str = "the certification of the defaults";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    pub status: Status,
    pub because: String,
    pub baseline: Option<PointResult>,
    /// The answer; the baseline itself where nothing beats it.
    pub best: Option<PointResult>,
    pub left_out: Vec<String>,
    /// The engine time that is expected to be enough for what was left out for want of a budget.
    #[serde(default)]
    pub enough_budget: Option<Seconds>,
    /// What was forecast before the first launch.
    #[serde(default)]
    pub forecast: Option<Cost>,
}

/// What a session took, or is expected to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub launches: u32,
    pub probes: u32,
    /// Seconds that engines were up.
    pub engine_seconds: Seconds,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: u32, es| if n == 1 { "" } else { es };
        let Self { launches, probes, engine_seconds } = *self;
        let (es, s) = (plural(launches, "es"), plural(probes, "s"));
        write!(f, "{launches} launch{es}, {probes} probe{s}, {engine_seconds} of engine time")
    }
}
