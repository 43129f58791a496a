//! The simulated rig: the twin in virtual time. A whole session takes milliseconds, and nothing in it is a measurement.

use std::collections::HashMap;

use super::telemetry::Telemetry;
use super::{CacheUse, Failure, Measured, ProbeAsk, Ready, Rig, RigError, Spawned, Trial};
use crate::engine::diagnosis::{Cause, Consequence, Diagnosis};
use crate::engine::effective::Effective;
use crate::load::{ClientHealth, ErrorClass, Open, RequestRecord, Tick, ToTheEnd, Watch};
use crate::settings::Plan;
use crate::space::{Point, Value};
use crate::twin::{Limits, MemoryFailure, Profile, PromptShape, Scheduler};
use crate::units::{Rate, Seconds};
use crate::verdict::Counter;
use crate::workload::{self, Demand, Material, Pace, Planned, Prompt, Source};

/// What a launch costs in virtual time.
const LAUNCH: Seconds = Seconds(0.5);
/// How often, in virtual time, the watch looks at what is unanswered.
const LOOK_EVERY: f64 = 0.05;

/// An engine that exists in arithmetic alone.
pub struct SimulatedRig {
    plan: Plan,
    profile: Profile,
    shared_seed: u64,
    material: Material,
    running: Option<Limits>,
}

impl SimulatedRig {
    /// A rig that serves the plan's workload, made from that material, with that profile.
    pub fn new(plan: Plan, profile: Profile, shared_seed: u64, material: Material) -> Self {
        Self { plan, profile, shared_seed, material, running: None }
    }

    fn setting(&self, point: &Point, name: &str, default: f64) -> f64 {
        point.get(name).and_then(Value::number).unwrap_or(default)
    }

    /// What the engine would run with under that point.
    ///
    /// # Errors
    /// Why it would not start.
    pub fn limits(&self, point: &Point) -> Result<Limits, MemoryFailure> {
        let d = &self.profile.defaults;
        self.profile.limits(
            self.setting(point, "gpu-memory-utilization", d.gpu_memory_utilization),
            self.setting(point, "max-num-seqs", f64::from(d.max_num_seqs)) as u32,
            self.setting(point, "max-num-batched-tokens", f64::from(d.max_num_batched_tokens)) as u32,
        )
    }

    fn drive(
        &self,
        limits: Limits,
        mut source: Box<dyn Source>,
        window_ends: Seconds,
        watch: &mut dyn Watch,
    ) -> Driven {
        let overhead = self.profile.costs.overhead;
        let mut scheduler = Scheduler::new(self.profile.costs, limits);
        let mut flights: HashMap<u64, RequestRecord> = HashMap::new();
        let mut records = Vec::new();
        let (mut now, mut last, mut looked) = (0.0, 0.0, 0.0);
        let complete = loop {
            let composed = self.profile.costs.composed_at(now, last);
            while source.next_due().is_some_and(|due| due.0 + overhead <= composed) {
                let Some(planned) = source.take() else { break };
                let shape = shape(&planned.prompt, limits.block_size);
                scheduler.admit(u64::from(planned.id), shape, planned.output_tokens);
                flights.insert(u64::from(planned.id), sent(&planned));
            }
            let Some(step) = scheduler.step() else {
                let Some(next) = source.next_due() else { break true };
                now = now.max(next.0 + overhead);
                last = 0.0;
                continue;
            };
            now += step.seconds;
            last = step.seconds;
            let emitted = step.emitted.len() as u64;
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
                    source.answered(record.id, Seconds(now), Some("simulated"));
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
        let hit_rate = counters.prefix_hits as f64 / counters.prefix_queries.max(1) as f64;
        let telemetry = Telemetry {
            preemptions: Some(counters.preemptions as f64),
            prefix_hit_rate: (counters.prefix_queries > 0).then_some(hit_rate),
            ..Telemetry::default()
        };
        Driven { records, ended: Seconds(now), complete, telemetry }
    }
}

struct Driven {
    records: Vec<RequestRecord>,
    ended: Seconds,
    complete: bool,
    telemetry: Telemetry,
}

/// A request on its way; until it ends, it counts as cut.
fn sent(planned: &Planned) -> RequestRecord {
    RequestRecord {
        id: planned.id,
        due: planned.due,
        sent: planned.due,
        first: None,
        last: None,
        tokens_in: Some(tokens(&planned.prompt)),
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

fn tokens(prompt: &Prompt) -> u32 {
    match prompt {
        Prompt::Tokens(ids) => ids.len() as u32,
        Prompt::Text(text) => (text.split_ascii_whitespace().count() as u32).max(1),
        Prompt::Messages(messages) => {
            messages.iter().map(|m| m.content.split_ascii_whitespace().count() as u32 + 4).sum()
        }
    }
}

/// The prompt's length and the chained hashes of its full blocks.
fn shape(prompt: &Prompt, block_size: u32) -> PromptShape {
    let blocks = match prompt {
        Prompt::Tokens(ids) => ids
            .chunks_exact(block_size as usize)
            .scan(0, |hash, block| {
                *hash = workload::mix(*hash, &block.iter().map(|id| u64::from(*id)).collect::<Vec<_>>());
                Some(*hash)
            })
            .collect(),
        Prompt::Text(_) | Prompt::Messages(_) => Vec::new(),
    };
    PromptShape { tokens: tokens(prompt), blocks }
}

impl Rig for SimulatedRig {
    async fn launch(
        &mut self,
        _trial: Trial,
        point: &Point,
        _spawned: &mut (dyn FnMut(&Spawned) + Send),
    ) -> Result<Ready, RigError> {
        let limits = self.limits(point).map_err(|failure| {
            let (cause, consequence) = match failure {
                MemoryFailure::OutOfMemory { .. } => (Cause::OutOfMemory, Consequence::MemoryBound),
                MemoryFailure::NoKvBlocks | MemoryFailure::KvTooSmallForOneRequest { .. } => {
                    (Cause::KvCacheTooSmall, Consequence::NeedsMoreMemory)
                }
            };
            let diagnosis = Diagnosis { cause, line: None, says: failure.to_string(), consequence };
            RigError::Engine(Box::new(Failure { diagnosis, took: LAUNCH }))
        })?;
        let pace = Pace {
            demand: Demand::AllAtOnce(16),
            horizon: Seconds(1e9),
            arrival_seed: self.shared_seed,
            content_seed: self.shared_seed,
            shared_seed: self.shared_seed,
            answer_time: Seconds(0.0),
        };
        let burst = workload::source(&self.plan.workload, &self.material, pace);
        let burst = self.drive(limits, burst, Seconds(0.0), &mut ToTheEnd);
        let mut latencies: Vec<f64> = burst.records.iter().filter_map(|r| r.e2e()).map(|l| l.0).collect();
        latencies.sort_by(f64::total_cmp);
        let median = latencies.get(latencies.len() / 2).copied().unwrap_or(1.0);
        self.running = Some(limits);
        let d = &self.profile.defaults;
        let number = |value: f64, name: &str| Value::Real(self.setting(point, name, value));
        let mut effective = Effective { kv_cache_tokens: Some(limits.kv_tokens()), ..Effective::default() };
        effective.values.extend([
            ("gpu-memory-utilization".to_owned(), number(d.gpu_memory_utilization, "gpu-memory-utilization")),
            ("max-num-seqs".to_owned(), Value::Int(i64::from(limits.max_num_seqs))),
            ("max-num-batched-tokens".to_owned(), Value::Int(i64::from(limits.max_num_batched_tokens))),
        ]);
        Ok(Ready {
            took: LAUNCH,
            effective,
            model: format!("simulated {}", self.profile.name),
            gpus: Vec::new(),
            burst_rate: Rate(latencies.len() as f64 / burst.ended.0.max(1e-3)),
            answer_time: Seconds(median),
        })
    }

    async fn probe(&mut self, ask: &ProbeAsk) -> Result<Measured, RigError> {
        let limits =
            self.running.ok_or_else(|| RigError::Machine("a probe was asked of an engine that does not run".into()))?;
        let pace = Pace {
            demand: Demand::Open(ask.rate),
            horizon: ask.window.to,
            arrival_seed: ask.arrival_seed,
            content_seed: ask.content_seed,
            shared_seed: self.shared_seed,
            answer_time: ask.answer_time,
        };
        let mean_output = workload::mean_output_tokens(&self.plan.workload, &self.material);
        let mut watch = Counter::new(&self.plan.slo, ask.window, ask.rate, mean_output);
        let source = workload::source(&self.plan.workload, &self.material, pace);
        let driven = self.drive(limits, source, ask.window.to, &mut watch);
        let Driven { records, ended, complete, telemetry } = driven;
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
