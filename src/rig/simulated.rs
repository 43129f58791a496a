//! The simulated rig: the twin in virtual time. A whole session takes milliseconds, and nothing in it is a measurement.

use std::collections::HashMap;

use super::telemetry::Telemetry;
use super::{CacheUse, Failure, Measured, ProbeAsk, Ready, Rig, RigError, Spawned, Trial};
use crate::engine::diagnosis::{Cause, Consequence, Diagnosis};
use crate::engine::effective::Effective;
use crate::load::{ClientHealth, ErrorClass, Open, RequestRecord, Tick, ToTheEnd, Watch};
use crate::order::median;
use crate::settings::Plan;
use crate::space::{Point, Value};
use crate::twin::{EngineFlags, FlagError, Limits, MemoryFailure, Profile, PromptShape, Scheduler, Unsteady};
use crate::units::{Rate, Seconds};
use crate::verdict::Counter;
use crate::workload::{self, Demand, Material, Pace, Planned, Prompt, Source};

/// What a launch takes in virtual time, warm-up included, where the profile does not say what a start takes.
const LAUNCH: Seconds = Seconds(0.5);
/// How often, in virtual time, the watch looks at what is unanswered.
const LOOK_EVERY: f64 = 0.05;
/// Requests in the burst of the warm-up.
const BURST: u32 = 16;
/// Labels of independent seeds.
const LAUNCH_NOISE: u64 = 1;
const BURST_NOISE: u64 = 2;
const PROBE_NOISE: u64 = 3;

/// An engine that exists in arithmetic alone.
pub struct SimulatedRig {
    plan: Plan,
    profile: Profile,
    shared_seed: u64,
    material: Material,
    running: Option<Running>,
}

/// The engine of a launch.
#[derive(Clone, Copy, Debug)]
struct Running {
    flags: EngineFlags,
    limits: Limits,
    /// Sequences that may run at once before the memory is exhausted.
    borne: u32,
    /// The factor of this launch on the duration of every step.
    factor: f64,
}

impl SimulatedRig {
    /// A rig that serves the plan's workload, made from that material, with that profile.
    pub fn new(plan: Plan, profile: Profile, shared_seed: u64, material: Material) -> Self {
        Self { plan, profile, shared_seed, material, running: None }
    }

    /// The profile's defaults with the fixed arguments of the plan and the values of that point.
    ///
    /// # Errors
    /// The point has a parameter that the model does not know, or a value is refused.
    pub fn flags(&self, point: &Point) -> Result<EngineFlags, FlagError> {
        let mut flags = EngineFlags::from(self.profile.defaults);
        // What the model does not know of the fixed arguments is the same for every point; whoever shows results says it.
        flags.set_all(&self.plan.engine.args)?;
        for (name, value) in &point.0 {
            flags.set(name, &value.to_string())?;
        }
        Ok(flags)
    }

    /// What the engine would run with under that point; None where it would not start.
    pub fn limits(&self, point: &Point) -> Option<Limits> {
        self.engine(point, 1.0).ok().map(|engine| engine.limits)
    }

    /// The engine of a point, as fast as that factor says, or why it does not start.
    fn engine(&self, point: &Point, factor: f64) -> Result<Running, Diagnosis> {
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
        Ok(Running { flags, limits, borne: self.profile.sequences_borne(&flags), factor })
    }

    fn pace(
        &self,
        demand: Demand,
        horizon: Seconds,
        arrival_seed: u64,
        content_seed: u64,
        answer_time: Seconds,
    ) -> Pace {
        Pace { demand, horizon, arrival_seed, content_seed, shared_seed: self.shared_seed, answer_time }
    }

    /// An engine with an empty cache in which what the workload shares on purpose is then warm.
    fn warmed(&self, engine: &Running) -> Scheduler {
        let mut scheduler = Scheduler::new(self.profile.costs, engine.limits);
        let shared = workload::shared_prompts(&self.plan.workload, &self.material, self.shared_seed);
        for (prompt, id) in shared.iter().zip((0..=u64::MAX).rev()) {
            scheduler.admit(id, shape(prompt, engine), 1);
            while scheduler.step().is_some() {}
        }
        scheduler
    }

    /// Serves the source's requests in virtual time; an engine that dies of its memory is told by its diagnosis.
    fn drive(
        &self,
        engine: &Running,
        mut source: Box<dyn Source>,
        window_ends: Seconds,
        watch: &mut dyn Watch,
        noise_seed: u64,
    ) -> Result<Driven, Failure> {
        let overhead = self.profile.costs.overhead;
        let mut unsteady = Unsteady::new(self.profile.noise, engine.factor, noise_seed);
        let mut scheduler = self.warmed(engine);
        let before = scheduler.counters();
        let mut flights: HashMap<u64, RequestRecord> = HashMap::new();
        let mut records = Vec::new();
        let (mut now, mut last, mut looked) = (0.0, 0.0, 0.0);
        let complete = loop {
            let composed = self.profile.costs.composed_at(now, last);
            while source.next_due().is_some_and(|due| due.0 + overhead <= composed) {
                let Some(planned) = source.take() else { break };
                let shape = shape(&planned.prompt, engine);
                let mut record = sent(&planned, shape.tokens);
                let fits =
                    u64::from(shape.tokens) + u64::from(planned.output_tokens) <= u64::from(engine.flags.max_model_len);
                if fits && scheduler.admit(u64::from(planned.id), shape, planned.output_tokens) {
                    flights.insert(u64::from(planned.id), record);
                } else {
                    (record.error, record.tokens_out) = (Some(ErrorClass::Status), None);
                    source.answered(record.id, Seconds(now), None);
                    watch.ended(&record);
                    records.push(record);
                }
            }
            let Some(step) = scheduler.step() else {
                let Some(next) = source.next_due() else { break true };
                now = now.max(next.0 + overhead);
                last = 0.0;
                continue;
            };
            last = unsteady.seconds(step.seconds);
            now += last;
            let emitted = step.emitted.len() as u64;
            let batch = scheduler.counters().running + step.finished.len() as u32;
            if batch > engine.borne {
                let says = format!(
                    "out of memory under load: {batch} sequences ran, and there is memory for {}",
                    engine.borne
                );
                let diagnosis = diagnosis(Cause::OutOfMemory, Consequence::MemoryBound, says);
                return Err(Failure { diagnosis, took: Seconds(now) });
            }
            for id in &step.emitted {
                if let Some(record) = flights.get_mut(id) {
                    let arrives = match record.last {
                        None => now + self.profile.costs.first_delivery(emitted),
                        Some(last) => (now + self.profile.costs.last_delivery(emitted)).max(last.0),
                    };
                    if let Some(last) = record.last {
                        record.gaps.push((arrives - last.0) as f32);
                    }
                    record.first.get_or_insert(Seconds(arrives));
                    record.last = Some(Seconds(arrives));
                }
            }
            for id in &step.finished {
                if let Some(mut record) = flights.remove(id) {
                    record.error = None;
                    record.tokens_cached = scheduler.cached_tokens(*id);
                    source.answered(record.id, Seconds(now), Some(&answer(record.asked_out)));
                    watch.ended(&record);
                    records.push(record);
                }
            }
            if now - looked >= LOOK_EVERY {
                looked = now;
                let mut open = flights.values().map(|r| Open { due: r.due, first: r.first, asked_out: r.asked_out });
                match watch.tick(Seconds(now), &mut open) {
                    Tick::Decided => break false,
                    Tick::Settled if now >= window_ends.0 && source.next_due().is_none() => break true,
                    Tick::Settled | Tick::Continue => {}
                }
            }
        };
        records.extend(flights.into_values().map(|mut r| {
            (r.last, r.tokens_out) = (None, None);
            r
        }));
        records.sort_by(|a, b| a.due.0.total_cmp(&b.due.0));
        let counters = scheduler.counters();
        let queries = counters.prefix_queries - before.prefix_queries;
        let hit_rate = (counters.prefix_hits - before.prefix_hits) as f64 / queries.max(1) as f64;
        let telemetry = Telemetry {
            preemptions: Some((counters.preemptions - before.preemptions) as f64),
            prefix_hit_rate: (queries > 0).then_some(hit_rate),
            ..Telemetry::default()
        };
        Ok(Driven { records, ended: Seconds(now), complete, telemetry })
    }
}

struct Driven {
    records: Vec<RequestRecord>,
    ended: Seconds,
    complete: bool,
    telemetry: Telemetry,
}

fn diagnosis(cause: Cause, consequence: Consequence, says: String) -> Diagnosis {
    Diagnosis { cause, line: None, says, consequence }
}

/// A flag that the model does not know fails at every point; a value that is refused fails where it stands.
fn refused(error: FlagError) -> Diagnosis {
    let consequence = match &error {
        FlagError::Unknown { .. } => Consequence::Abort,
        FlagError::Value { name, .. } => Consequence::ValueRefused { flag: Some(name.clone()) },
    };
    diagnosis(Cause::BadArgument, consequence, error.to_string())
}

/// An answer of that many words, each of them a token here.
fn answer(tokens: u32) -> String {
    vec!["word"; tokens as usize].join(" ")
}

/// A request on its way; until it ends, it counts as cut.
fn sent(planned: &Planned, prompt_tokens: u32) -> RequestRecord {
    RequestRecord {
        id: planned.id,
        due: planned.due,
        sent: planned.due,
        first: None,
        last: None,
        tokens_in: Some(prompt_tokens),
        tokens_cached: None,
        tokens_out: Some(planned.output_tokens),
        asked_out: planned.output_tokens,
        asked_in: planned.prompt_tokens,
        shared_in: planned.shared_tokens,
        error: Some(ErrorClass::Cut),
        turn: planned.turn.map(|t| (t.conversation, t.turn)),
        why: None,
        gaps: Vec::new(),
    }
}

/// The tokens of a prompt as numbers: ids as they are, words by their hash, four for the template around each message.
fn tokens(prompt: &Prompt) -> Vec<u64> {
    let words = |text: &str| -> Vec<u64> { text.split_ascii_whitespace().map(hash_word).collect() };
    match prompt {
        Prompt::Tokens(ids) => ids.iter().map(|id| u64::from(*id)).collect(),
        Prompt::Text(text) => words(text),
        Prompt::Messages(messages) => {
            let template = |role: &str| [0_u64, 1, 2, 3].map(|part| hash_word(role) ^ part);
            messages.iter().flat_map(|m| template(m.role).into_iter().chain(words(&m.content))).collect()
        }
    }
}

/// FNV-1a.
fn hash_word(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The prompt's length and, where prefixes are cached, the chained hashes of its full blocks.
pub fn prompt_shape(prompt: &Prompt, block_size: u32, prefix_caching: bool) -> PromptShape {
    let tokens = tokens(prompt);
    let chained = tokens.chunks_exact(block_size as usize).scan(0, |hash, block| {
        *hash = workload::mix(*hash, block);
        Some(*hash)
    });
    let blocks = if prefix_caching { chained.collect() } else { Vec::new() };
    PromptShape { tokens: (tokens.len() as u32).max(1), blocks }
}

fn shape(prompt: &Prompt, engine: &Running) -> PromptShape {
    prompt_shape(prompt, engine.limits.block_size, engine.flags.prefix_caching)
}

impl Rig for SimulatedRig {
    async fn launch(
        &mut self,
        trial: Trial,
        point: &Point,
        _spawned: &mut (dyn FnMut(&Spawned) + Send),
    ) -> Result<Ready, RigError> {
        let starting = self.profile.start.map_or(LAUNCH, |start| Seconds(start.seconds));
        let failed = |diagnosis, took| RigError::Engine(Box::new(Failure { diagnosis, took }));
        // The attempt is no part of the seed: a resumed session finds the launch that it would have had.
        let seed = |label| workload::mix(self.shared_seed, &[label, u64::from(trial.number)]);
        let factor = self.profile.noise.map_or(1.0, |noise| noise.of_launch(seed(LAUNCH_NOISE)));
        let engine = self.engine(point, factor).map_err(|diagnosis| failed(diagnosis, starting))?;
        let pace = self.pace(Demand::AllAtOnce(BURST), Seconds(1e9), self.shared_seed, self.shared_seed, Seconds(0.0));
        let burst = workload::source(&self.plan.workload, &self.material, pace);
        let burst = self
            .drive(&engine, burst, Seconds(0.0), &mut ToTheEnd, seed(BURST_NOISE))
            .map_err(|failure| failed(failure.diagnosis, starting + failure.took))?;
        let latencies = burst.records.iter().filter_map(|r| r.e2e()).map(|l| l.0);
        let answered = latencies.clone().count();
        let Some(answer_time) = median(latencies) else {
            let says = "none of its first completions was answered; is the workload longer than max-model-len?";
            return Err(failed(diagnosis(Cause::Timeout, Consequence::Retry, says.to_owned()), starting));
        };
        self.running = Some(engine);
        let Running { flags, limits, .. } = engine;
        let mut effective = Effective { kv_cache_tokens: Some(limits.kv_tokens()), ..Effective::default() };
        effective.values.extend([
            ("gpu-memory-utilization".to_owned(), Value::Real(flags.gpu_memory_utilization)),
            ("max-num-seqs".to_owned(), Value::Int(i64::from(limits.max_num_seqs))),
            ("max-num-batched-tokens".to_owned(), Value::Int(i64::from(limits.max_num_batched_tokens))),
            ("max-model-len".to_owned(), Value::Int(i64::from(flags.max_model_len))),
            ("enable-prefix-caching".to_owned(), Value::Bool(flags.prefix_caching)),
        ]);
        Ok(Ready {
            // Without a stated start time the engine is imaginary, and so is the time of its warm-up.
            took: self.profile.start.map_or(LAUNCH, |_| starting + burst.ended),
            effective,
            model: format!("simulated {}", self.profile.name),
            gpus: Vec::new(),
            burst_rate: Rate(answered as f64 / burst.ended.0.max(1e-3)),
            answer_time: Seconds(answer_time),
        })
    }

    fn material(&self) -> &Material {
        &self.material
    }

    async fn probe(&mut self, ask: &ProbeAsk) -> Result<Measured, RigError> {
        let engine =
            self.running.ok_or_else(|| RigError::Machine("a probe was asked of an engine that does not run".into()))?;
        let demand = Demand::Open(ask.rate);
        let pace = self.pace(demand, ask.window.to, ask.arrival_seed, ask.content_seed, ask.answer_time);
        let mean_output = workload::mean_output_tokens(&self.plan.workload, &self.material);
        let mut watch = Counter::new(&self.plan.slo, ask.window, ask.rate, mean_output, ask.slack);
        let source = workload::source(&self.plan.workload, &self.material, pace);
        // The content's seed tells trial and probe, and a resumed session asks with the same.
        let seed = workload::mix(self.shared_seed, &[PROBE_NOISE, ask.content_seed]);
        let driven = self.drive(&engine, source, ask.window.to, &mut watch, seed);
        let Driven { records, ended, complete, telemetry } = driven.map_err(|failure| {
            self.running = None;
            RigError::Engine(Box::new(failure))
        })?;
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
