//! A simulated engine that runs: what bounds it, how unsteady it is, and how it serves a stream of requests in virtual time.

use std::collections::HashMap;

use super::shape::{prompt_shape, sketched_shape};
use crate::rig::{FIRST_SAMPLE, Failure, SAMPLE_EVERY, Telemetry};
use autotune_plan::engine::diagnosis::{Cause, Consequence, Diagnosis};
use autotune_plan::engine::telemetry::EngineSample;
use autotune_plan::settings::{Endpoint, WorkloadKind, WorkloadPlan};
use autotune_records::units::Seconds;
use autotune_twin::{
    EngineFlags, Kernels, Launch, Limits, Noise, PromptShape, Scheduler, Speculation, StepCosts, Unsteady,
};
use autotune_workload::{self as workload, Material, Pace, Planned, Prompt, Source};

/// The seed label of the block hashes of resent answers.
const ANSWERS: u64 = 4;
/// The seed label of the conversations whose resent answers miss the cache.
const MISSES: u64 = 5;
/// The seed label of the draft tokens that are accepted.
const DRAFTS: u64 = 6;

#[derive(Clone, Copy, Debug)]
pub struct SimulatedEngine {
    pub costs: StepCosts,
    /// Measured kernel times, added to the costs; `None` for an engine of the costs alone.
    pub kernels: Option<&'static Kernels>,
    pub flags: EngineFlags,
    pub limits: Limits,
    /// Sequences that may run at once before the memory is exhausted.
    pub max_seqs_before_oom: u32,
    pub noise: Option<Noise>,
    pub launch: Launch,
    /// Seconds since the launch when the traffic begins.
    pub age: f64,
    /// The share of conversations whose answers the cache does not find when they are sent again.
    pub misses: f64,
}

/// The requests that an engine is to serve, and the blocks that their prompts have.
pub struct Traffic {
    source: Box<dyn Source>,
    shared: Vec<Prompt>,
    sketched: bool,
    /// Whether prompts may share a prefix: otherwise the prefix cache never hits.
    shares: bool,
    /// Requests that are still to come, at most.
    left: u32,
    turns: u32,
    /// What a conversation leaves in the cache: its blocks up to the last answer, for its next turn.
    kept: HashMap<u32, Vec<u64>>,
    /// Whether later prompts hold the engine's own answers.
    resends_answers: bool,
    /// Whether later prompts contain earlier answers.
    resends_words: bool,
}

impl Traffic {
    /// The traffic of a plan at a pace, without words where no engine told any.
    pub fn new(plan: &WorkloadPlan, material: &Material, pace: Pace) -> Self {
        let Some(source) = workload::sketched(plan, material, pace) else { return Self::worded(plan, material, pace) };
        let shared = workload::sketched_shared_prompts(plan, material, pace.shared_seed);
        Self {
            sketched: true,
            shares: plan.connects_requests(),
            resends_words: false,
            ..Self::of(plan, source, shared)
        }
    }

    /// Traffic with all its words.
    pub fn worded(plan: &WorkloadPlan, material: &Material, pace: Pace) -> Self {
        let shared = workload::shared_prompts(plan, material, pace.shared_seed);
        Self::of(plan, workload::source(plan, material, pace), shared)
    }

    fn of(plan: &WorkloadPlan, source: Box<dyn Source>, shared: Vec<Prompt>) -> Self {
        let turns = if let WorkloadKind::Conversations(kind) = &plan.kind { kind.turns } else { 0 };
        let resends_answers = turns > 0 && plan.endpoint == Endpoint::Chat;
        Self {
            source,
            shared,
            sketched: false,
            shares: true,
            left: u32::MAX,
            turns,
            kept: HashMap::new(),
            resends_answers,
            resends_words: resends_answers,
        }
    }

    /// The first so many requests of it.
    pub fn first(self, requests: u32) -> Self {
        Self { left: requests, ..self }
    }

    fn next_due(&self) -> Option<Seconds> {
        self.source.next_due().filter(|_| self.left > 0)
    }

    fn take(&mut self) -> Option<Planned> {
        self.left -= 1;
        self.source.take()
    }

    fn shape(&self, prompt: &Prompt, engine: &SimulatedEngine) -> PromptShape {
        let of = if self.sketched { sketched_shape } else { prompt_shape };
        of(prompt, engine.limits.block_size, engine.flags.prefix_caching && self.shares)
    }

    /// The shape of a request. Where a conversation sends its answers again, the cache has them under names of their own, unless it is one
    /// whose answers miss.
    fn shape_of(&mut self, planned: &Planned, engine: &SimulatedEngine) -> PromptShape {
        let mut shape = self.shape(&planned.prompt, engine);
        let Some(turn) = planned.turn.filter(|_| self.resends_answers && !shape.blocks.is_empty()) else {
            return shape;
        };
        let known = self.kept.remove(&turn.conversation).unwrap_or_default();
        shape.blocks.iter_mut().zip(known).for_each(|(block, known)| *block = known);
        if turn.turn + 1 < self.turns {
            let conversation = u64::from(turn.conversation);
            if share(workload::mix(MISSES, &[conversation])) >= engine.misses {
                // The key and the value of the last token are never computed.
                let full = (shape.tokens + planned.output_tokens - 1) / engine.limits.block_size;
                let answer = (shape.blocks.len() as u64..u64::from(full))
                    .map(|block| workload::mix(ANSWERS, &[conversation, u64::from(turn.turn), block]));
                shape.blocks.extend(answer);
            }
            self.kept.insert(turn.conversation, shape.blocks.clone());
        }
        shape
    }
}

/// A number as one from 0 to 1.
fn share(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

/// Observes what a simulated engine serves; times are seconds from the start of the traffic.
pub trait ServeObserver {
    /// Whether it hears of tokens between the first and the last of a request.
    const EVERY_TOKEN: bool;

    /// A request is sent, with a prompt of so many tokens.
    fn sent(&mut self, planned: &Planned, tokens: u32);
    fn refused(&mut self, _id: u32, _now: f64) {}
    /// A token of it arrived: the first of its answer at `first`, any other at `later`. Some of those in between are left out where not
    /// every token is wanted.
    fn token(&mut self, id: u32, first: f64, later: f64);
    /// Its last token arrived. Returns the length of its answer.
    fn finished(&mut self, id: u32, cached: Option<u32>) -> u32;
    /// A step ended. Whether it goes on; where not, whether all was seen that was to be seen.
    fn go_on(&mut self, _now: f64, _more_is_due: bool) -> Result<(), bool> {
        Ok(())
    }
}

pub struct Served {
    pub ended: f64,
    /// Whether the observer saw everything that it needs.
    pub complete: bool,
    pub peaks: Peaks,
    /// Of gauges that are read as often as those of a real engine; empty where not every token is wanted.
    pub telemetry: Telemetry,
}

impl SimulatedEngine {
    /// An engine with an empty cache in which what the workload shares on purpose is then warm.
    fn warmed(&self, traffic: &Traffic, seed: u64) -> Scheduler {
        let speculation = (self.flags.draft_tokens > 0)
            .then(|| Speculation::new(self.flags.draft_tokens, self.flags.acceptance, workload::mix(seed, &[DRAFTS])));
        let mut scheduler = Scheduler::new(self.costs, self.limits).on(self.kernels).speculating(speculation);
        for (prompt, id) in traffic.shared.iter().zip((0..=u64::MAX).rev()) {
            scheduler.admit(id, traffic.shape(prompt, self), 1);
            while scheduler.step().is_some() {}
        }
        scheduler
    }

    /// Serves the traffic in virtual time. An engine that runs out of memory returns its diagnosis.
    pub fn serve<B: ServeObserver>(
        &self,
        mut traffic: Traffic,
        observer: &mut B,
        seed: u64,
    ) -> Result<Served, Failure> {
        let costs = &self.costs;
        let overhead = costs.overhead;
        let mut unsteady = Unsteady::new(self.noise, self.launch, seed);
        let mut scheduler = self.warmed(&traffic, seed).sparing(!B::EVERY_TOKEN);
        let mut gauges = Gauges::of(&scheduler, B::EVERY_TOKEN);
        let mut peaks = Peaks::default();
        let (mut now, mut last, mut just_ended) = (0.0, 0.0, 0);
        let complete = loop {
            let composed = costs.composed_at(now, last);
            while traffic.next_due().is_some_and(|due| due.0 + overhead <= composed) {
                let Some(planned) = traffic.take() else { break };
                let shape = traffic.shape_of(&planned, self);
                let tokens = shape.tokens;
                observer.sent(&planned, tokens);
                let fits = u64::from(tokens) + u64::from(planned.output_tokens) <= u64::from(self.flags.max_model_len);
                if !(fits && scheduler.admit(u64::from(planned.id), shape, planned.output_tokens)) {
                    traffic.source.answered(planned.id, Seconds(now), None);
                    observer.refused(planned.id, now);
                }
            }
            let Some(step) = scheduler.step() else {
                let Some(next) = traffic.next_due() else { break true };
                now = now.max(next.0 + overhead);
                gauges.read_until(now, &scheduler);
                (last, just_ended) = (0.0, 0);
                continue;
            };
            last = unsteady.seconds(step.seconds, self.age + now);
            now += last;
            let counters = scheduler.counters();
            let batch = counters.running + step.finished.len() as u32;
            if batch > self.max_seqs_before_oom {
                return Err(died(batch, self.max_seqs_before_oom, now));
            }
            peaks.see(Peaks { places: batch + just_ended, step_tokens: step.scheduled, kv_usage: counters.kv_usage });
            just_ended = if costs.lingers() { step.finished.len() as u32 } else { 0 };
            gauges.read_until(now, &scheduler);
            let (first, later) = (now + costs.first_delivery(step.tokens), now + costs.last_delivery(step.tokens));
            step.emitted.into_iter().for_each(|id| observer.token(id as u32, first, later));
            for id in step.finished {
                let tokens = observer.finished(id as u32, scheduler.cached_tokens(id));
                let words = if traffic.resends_words { answer(tokens) } else { String::new() };
                traffic.source.answered(id as u32, Seconds(now), Some(&words));
            }
            if let Err(complete) = observer.go_on(now, traffic.next_due().is_some()) {
                break complete;
            }
        };
        Ok(Served { ended: now, complete, peaks, telemetry: gauges.end(now, &scheduler) })
    }
}

/// The most that was seen in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peaks {
    /// Places that sequences took: those of a step, and those that ended in the step before where they still held theirs.
    pub places: u32,
    /// Tokens of a step, those of prompts included.
    pub step_tokens: u64,
    pub kv_usage: f64,
}

impl Peaks {
    /// Takes the larger of each.
    pub fn see(&mut self, other: Self) {
        self.places = self.places.max(other.places);
        self.step_tokens = self.step_tokens.max(other.step_tokens);
        self.kv_usage = self.kv_usage.max(other.kv_usage);
    }
}

/// The engine's metrics, read now and then, as a tuner reads those of a real one.
struct Gauges {
    /// When the next reading is due; infinite where nobody reads.
    next: f64,
    samples: Vec<(Seconds, EngineSample)>,
}

impl Gauges {
    fn of(scheduler: &Scheduler, read: bool) -> Self {
        let mut gauges = Self { next: f64::INFINITY, samples: Vec::new() };
        if read {
            gauges.read(0.0, scheduler);
            gauges.next = FIRST_SAMPLE.as_secs_f64();
        }
        gauges
    }

    fn read(&mut self, at: f64, scheduler: &Scheduler) {
        let counters = scheduler.counters();
        let sample = EngineSample {
            running: Some(f64::from(counters.running)),
            waiting: Some(f64::from(counters.waiting)),
            kv_usage: Some(counters.kv_usage),
            preemptions: Some(counters.preemptions as f64),
            prefix_queries: Some(counters.prefix_queries as f64),
            prefix_hits: Some(counters.prefix_hits as f64),
            ..EngineSample::default()
        };
        self.samples.push((Seconds(at), sample));
    }

    /// Takes the readings that are due by then.
    fn read_until(&mut self, now: f64, scheduler: &Scheduler) {
        while self.next <= now {
            self.read(self.next, scheduler);
            self.next += SAMPLE_EVERY.as_secs_f64();
        }
    }

    fn end(mut self, now: f64, scheduler: &Scheduler) -> Telemetry {
        if self.next.is_finite() {
            self.read(now, scheduler);
        }
        Telemetry::of(&self.samples)
    }
}

fn died(batch: u32, max_seqs_before_oom: u32, now: f64) -> Failure {
    let says =
        format!("out of memory under load: {batch} sequences ran, and there is memory for {max_seqs_before_oom}");
    let diagnosis = Diagnosis { cause: Cause::OutOfMemory, line: None, says, consequence: Consequence::MemoryBound };
    Failure { diagnosis, took: Seconds(now) }
}

/// An answer of that many words; each is one token.
fn answer(tokens: u32) -> String {
    vec!["word"; tokens as usize].join(" ")
}
