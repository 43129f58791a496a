//! The simulated rig: the twin in virtual time. A whole session takes milliseconds, and nothing in it is a measurement.

mod engine;
mod records;
mod shape;

use super::server::{BEGUN, BURST};
use super::telemetry::Telemetry;
use super::{CacheUse, EngineProcess, Failure, Measured, ProbeAsk, Ready, Rig, RigError, Spawned, Trial, Warmed};
use crate::verdict::Counter;
use autotune_load::{ClientHealth, RequestRecord, ToTheEnd, Watch};
use autotune_plan::engine::diagnosis::{Cause, Consequence, Diagnosis, request_refused};
use autotune_plan::engine::effective::Effective;
use autotune_plan::engine::live::{may_start_plainly, serves, widest};
use autotune_plan::settings::Plan;
use autotune_plan::space::{Point, Value};
use autotune_records::quantiles::median;
use autotune_records::units::{Rate, Seconds};
use autotune_twin::{EngineFlags, FlagError, Launch, Limits, MemoryFailure, Profile};
use autotune_workload::{self as workload, Demand, Material, Pace};

use engine::Served;
pub use engine::{Peaks, ServeObserver, SimulatedEngine, Traffic};
use records::Records;
pub use shape::prompt_shape;

/// What a launch takes in virtual time, warm-up included, where the profile does not say what a start takes.
const LAUNCH: Seconds = Seconds(0.5);
/// The time of a live change of limits, where a start takes time at all. On an H200 vLLM took 41 ms, on two cores of a CPU 38 ms. Shared prompts
/// are computed again besides.
const ALTERING: Seconds = Seconds(1.0);
const LAUNCH_NOISE: u64 = 1;
const BURST_NOISE: u64 = 2;
const PROBE_NOISE: u64 = 3;

/// An engine that exists in arithmetic alone.
pub struct SimulatedRig {
    plan: Plan,
    profile: Profile,
    shared_seed: u64,
    material: Material,
    misses: f64,
    first_start: Option<Seconds>,
    running: Option<Running>,
}

/// The engine that runs, and its process.
struct Running {
    engine: SimulatedEngine,
    /// The trial that it was started for, and the values it was launched with, where it takes other limits.
    live: Option<(u32, Point)>,
    /// Seconds since its launch.
    age: f64,
}

impl SimulatedRig {
    /// A rig that serves the plan's workload, made from that material, with that profile.
    pub fn new(plan: Plan, profile: Profile, shared_seed: u64, material: Material) -> Self {
        Self { plan, profile, shared_seed, material, misses: 0.0, first_start: None, running: None }
    }

    /// Lets the cache miss the resent answers of that share of the conversations.
    #[must_use]
    pub fn misses(self, misses: f64) -> Self {
        Self { misses, ..self }
    }

    /// Sets how long the first start takes before it warms up; the others take what the profile says.
    #[must_use]
    pub fn first_start(self, first_start: Option<Seconds>) -> Self {
        Self { first_start, ..self }
    }

    /// The profile's defaults with the fixed arguments of the plan and the values of that point.
    pub fn flags(&self, point: &Point) -> Result<EngineFlags, FlagError> {
        let mut flags = EngineFlags::from(self.profile.defaults);
        // Fixed arguments that the model does not know change every point alike; reports list them.
        flags.set_all(&self.plan.engine.args)?;
        for (name, value) in &point.0 {
            flags.set(name, &value.to_string())?;
        }
        Ok(flags)
    }

    /// The engine of a point, with the random deviation of this launch, or why it does not start.
    pub fn engine(&self, point: &Point, launch: Launch) -> Result<SimulatedEngine, Diagnosis> {
        let flags = self.flags(point).map_err(refused)?;
        if flags.max_num_batched_tokens < flags.max_num_seqs {
            let says = format!(
                "max-num-batched-tokens {} is smaller than max-num-seqs {}: the engine refuses it",
                flags.max_num_batched_tokens, flags.max_num_seqs
            );
            return Err(diagnosis(Cause::BadArgument, Consequence::PointOnly, says));
        }
        let limits = self.profile.limits_under(&flags).map_err(|failure| {
            let (cause, consequence) = match failure {
                MemoryFailure::OutOfMemory { .. } => (Cause::OutOfMemory, Consequence::MemoryBound),
                MemoryFailure::NoKvBlocks | MemoryFailure::KvTooSmallForOneRequest { .. } => {
                    (Cause::KvCacheTooSmall, Consequence::NeedsMoreMemory)
                }
            };
            diagnosis(cause, consequence, failure.to_string())
        })?;
        let (max_seqs_before_oom, Profile { costs, noise, .. }) =
            (self.profile.max_seqs_before_oom(&flags), &self.profile);
        let (kernels, misses) = (self.profile.kernels(), self.misses);
        Ok(SimulatedEngine {
            costs: *costs,
            kernels,
            flags,
            limits,
            max_seqs_before_oom,
            noise: *noise,
            launch,
            age: 0.0,
            misses,
        })
    }

    /// An engine that was launched with larger limits and has those of a point; its KV cache stays.
    fn narrowed(&self, launched: &SimulatedEngine, point: &Point) -> Result<SimulatedEngine, Diagnosis> {
        let flags = self.flags(point).map_err(refused)?;
        let EngineFlags { max_num_seqs, max_num_batched_tokens, .. } = flags;
        let limits = Limits { max_num_seqs, max_num_batched_tokens, ..launched.limits };
        Ok(SimulatedEngine { flags, limits, ..*launched })
    }

    /// Lets the engine that runs take the limits of a point, where it can and may.
    fn alter(&mut self, trial: Trial, point: &Point) -> Result<Option<Ready>, Diagnosis> {
        let Some(Running { engine, live: Some((on, widest)), age }) = &self.running else { return Ok(None) };
        let (Some(warmed), true) = (trial.warmed, trial.on == Some(*on) && serves(widest, None, point)) else {
            return Ok(None);
        };
        let engine = self.narrowed(engine, point)?;
        let process = EngineProcess { altered: true, widest: Some(widest.clone()), ..EngineProcess::default() };
        let took = self.profile.start.map_or(Seconds(0.0), |_| ALTERING);
        self.running = Some(Running { engine, live: Some((*on, widest.clone())), age: age + took.0 });
        Ok(Some(Ready { took, process, ..self.ready(&engine, warmed) }))
    }

    /// What an engine says that it runs.
    fn effective(SimulatedEngine { flags, limits, .. }: &SimulatedEngine) -> Effective {
        let mut effective = Effective { kv_cache_tokens: Some(limits.kv_tokens()), ..Effective::default() };
        effective.values.extend([
            ("gpu-memory-utilization".to_owned(), Value::Real(flags.gpu_memory_utilization)),
            ("max-num-seqs".to_owned(), Value::Int(i64::from(limits.max_num_seqs))),
            ("max-num-batched-tokens".to_owned(), Value::Int(i64::from(limits.max_num_batched_tokens))),
            ("max-model-len".to_owned(), Value::Int(i64::from(flags.max_model_len))),
            ("enable-prefix-caching".to_owned(), Value::Bool(flags.prefix_caching)),
        ]);
        effective
    }

    /// What an engine says of itself.
    fn ready(&self, engine: &SimulatedEngine, warmed: Warmed) -> Ready {
        Ready {
            took: Seconds(0.0),
            warm_up: None,
            effective: Self::effective(engine),
            model: format!("simulated {}", self.profile.name),
            gpus: Vec::new(),
            shared: self.profile.shared,
            warmed,
            host_memory: None,
            process: EngineProcess::default(),
            node: None,
        }
    }

    /// Serves the traffic in virtual time. An engine that runs out of memory returns its diagnosis.
    fn drive(
        &self,
        engine: &SimulatedEngine,
        pace: Pace,
        window_ends: Seconds,
        watch: &mut dyn Watch,
        seed: u64,
    ) -> Result<Driven, Failure> {
        let traffic = Traffic::new(&self.plan.workload, &self.material, pace);
        let mut records = Records::new(watch, window_ends);
        let Served { ended, complete, telemetry, .. } = engine.serve(traffic, &mut records, seed)?;
        Ok(Driven { records: records.all(), ended: Seconds(ended), complete, telemetry })
    }
}

struct Driven {
    records: Vec<RequestRecord>,
    ended: Seconds,
    complete: bool,
    telemetry: Telemetry,
}

/// When all of these requests had the few tokens of a short warm-up.
fn begun(records: &[RequestRecord]) -> Seconds {
    let begun = |r: &RequestRecord| {
        let (first, last) = (r.first?.0, r.last?.0);
        let tokens = f64::from(r.asked_out.max(1));
        Some(first + (last - first) * (f64::from(BEGUN) / tokens).min(1.0))
    };
    Seconds(records.iter().filter_map(begun).fold(0.0, f64::max))
}

fn diagnosis(cause: Cause, consequence: Consequence, says: String) -> Diagnosis {
    Diagnosis { cause, line: None, says, consequence }
}

/// An unknown flag fails at every point; a refused value fails at the points that have it.
fn refused(error: FlagError) -> Diagnosis {
    let consequence = match &error {
        FlagError::Unknown { .. } => Consequence::Abort,
        FlagError::Value { name, .. } => Consequence::ValueRefused { flag: Some(name.clone()) },
    };
    diagnosis(Cause::BadArgument, consequence, error.to_string())
}

impl Rig for SimulatedRig {
    async fn launch(
        &mut self,
        trial: Trial,
        point: &Point,
        _spawned: &mut (dyn FnMut(&Spawned) + Send),
    ) -> Result<Ready, RigError> {
        let cold = self.first_start.filter(|_| (trial.number, trial.attempt) == (1, 1));
        let stated = cold.or(self.profile.start.map(|start| Seconds(start.seconds)));
        let mut starting = stated.unwrap_or(LAUNCH);
        let failed = |diagnosis, took| RigError::Engine(Box::new(Failure { diagnosis, took }));
        if let Some(ready) = self.alter(trial, point).map_err(|diagnosis| failed(diagnosis, Seconds(0.0)))? {
            return Ok(ready);
        }
        // The attempt is not part of the seed, so that a resumed session gets the same launch.
        let seed = |label| workload::mix(self.shared_seed, &[label, u64::from(trial.on.unwrap_or(trial.number))]);
        let launch = self.profile.noise.map_or(Launch::MEDIAN, |noise| noise.of_launch(seed(LAUNCH_NOISE)));
        let widest = trial.on.and_then(|on| Some((on, widest(&self.plan, None, point)?)));
        let mut process = EngineProcess::default();
        let mut wide = None;
        if let Some((on, widest)) = widest {
            match self.engine(&widest, launch) {
                Ok(engine) => {
                    let widest = Self::effective(&engine).complete(&self.plan.space, widest);
                    process.widest = Some(widest.clone());
                    wide = Some((engine, (on, widest)));
                }
                Err(diagnosis) if may_start_plainly(&diagnosis, &widest, point) => {
                    (process.live_unsupported_reason, starting) = (Some(diagnosis.says), starting + starting);
                }
                Err(diagnosis) => return Err(failed(diagnosis, starting)),
            }
        }
        let engine = match &wide {
            Some((engine, _)) => self.narrowed(engine, point),
            None => self.engine(point, launch),
        };
        let engine = engine.map_err(|diagnosis| failed(diagnosis, starting))?;
        let pace = Pace::new(Demand::AllAtOnce(BURST), Seconds(1e9), self.shared_seed);
        let burst = self
            .drive(&engine, pace, Seconds(0.0), &mut ToTheEnd, seed(BURST_NOISE))
            .map_err(|failure| failed(failure.diagnosis, starting + failure.took))?;
        let latencies = burst.records.iter().filter_map(|r| r.e2e()).map(|l| l.0);
        let answered = latencies.clone().count();
        let Some(answer_time) = median(latencies).map(Seconds) else {
            let tuned: Vec<&str> = self.plan.space.parameters.iter().map(|p| p.name.as_str()).collect();
            let says = "none of the first requests fits its context length";
            return Err(failed(
                request_refused(autotune_plan::engine::dialect(self.plan.engine.kind), says, &tuned),
                starting,
            ));
        };
        let is_short = trial.warmed.is_some() || self.plan.workload.ignore_eos;
        let warm_up = if is_short { begun(&burst.records) } else { burst.ended };
        let burst_rate = Rate(answered as f64 / burst.ended.0.max(1e-3));
        self.running = Some(Running { engine, live: wide.map(|(_, live)| live), age: burst.ended.0 });
        Ok(Ready {
            // Without a stated start time the engine is imaginary, and so is the time of its warm-up.
            took: stated.map_or(starting, |_| starting + warm_up),
            // An imaginary start has no parts.
            warm_up: stated.map(|_| warm_up),
            process,
            ..self.ready(&engine, trial.warmed.unwrap_or(Warmed { burst_rate, answer_time }))
        })
    }

    fn material(&self) -> &Material {
        &self.material
    }

    async fn probe(&mut self, ask: &ProbeAsk) -> Result<Measured, RigError> {
        let Some(engine) = self.running.as_ref().map(|running| SimulatedEngine { age: running.age, ..running.engine })
        else {
            return Err(RigError::Machine("a probe was asked of an engine that does not run".into()));
        };
        let mean_output = workload::mean_output_tokens(&self.plan.workload, &self.material);
        let mut watch =
            Counter::new(&self.plan.slo, ask.window, ask.rate, mean_output, ask.slack).awaiting(ask.awaited);
        // The content seed identifies trial and probe, and is the same in a resumed session.
        let seed = workload::mix(self.shared_seed, &[PROBE_NOISE, ask.content_seed]);
        let driven = self.drive(&engine, ask.pace(self.shared_seed), ask.window.to, &mut watch, seed);
        let Driven { records, ended, complete, telemetry } = driven.map_err(|failure| {
            self.running = None;
            RigError::Engine(Box::new(failure))
        })?;
        if let Some(running) = &mut self.running {
            running.age += ended.0;
        }
        let cache = CacheUse::of(&records, ask.window, &telemetry, true);
        Ok(Measured { records, ended, complete, telemetry, cache, client: ClientHealth::default(), took: ended })
    }

    async fn stop(&mut self) -> Result<Seconds, RigError> {
        self.running = None;
        Ok(Seconds(0.0))
    }

    async fn kill(&mut self) {
        self.running = None;
    }
}

#[cfg(test)]
mod tests;
