//! Long-run replay: simulates 100,000 requests (300,000 of conversations) to estimate the p99 that a short probe can only sample.
//!
//! The requests are drawn once for a session and stretched to each rate. Turns of a conversation follow the answers of the simulation. What
//! later turns resend is what the engine was seen to get.

use tracing::debug_span;
use tracing::field::Empty;

use super::super::sample_sizes::SampleSizes;
use super::super::seeds::SeedLabel;
use super::engine::TwinEngine;
use crate::rig::{self, ServeObserver, Traffic};
use crate::verdict::paired::{Flight, LongRunReplay};
use autotune_numerics::parallel;
use autotune_plan::settings::{Plan, WorkloadKind};
use autotune_records::units::{Rate, Seconds};
use autotune_twin::{Answered, FastReplay, StepCosts};
use autotune_workload::{Demand, Material, Outline, Pace, Planned, Resent, Vocabulary, outline};

/// What the traffic of replays is drawn from.
#[derive(Clone, Copy)]
pub struct TrafficSource<'a> {
    pub plan: &'a Plan,
    pub material: &'a Material,
    pub seed: u64,
}

impl TrafficSource<'_> {
    /// An open demand without end at a rate, all of it drawn by one seed; conversations begin with their first turn.
    fn pace(&self, rate: Rate, seed: u64) -> Pace {
        Pace { arrival_seed: seed, content_seed: seed, ..Pace::new(Demand::Open(rate), Seconds(f64::MAX), self.seed) }
    }

    /// Lets an engine serve so many requests at a rate block by block, in the order in which conversations begin.
    pub fn serve<O: ServeObserver>(
        &self,
        engine: &rig::SimulatedEngine,
        (rate, requests): (Rate, u32),
        seed: u64,
        observer: &mut O,
    ) -> Option<rig::Peaks> {
        let traffic = Traffic::new(&self.plan.workload, self.material, self.pace(rate, seed)).first(requests);
        engine.serve(traffic, observer, seed).ok().map(|served| served.peaks)
    }
}

/// Requests of the workload, drawn once for a session and stretched to each rate.
#[derive(Default)]
pub struct LongRunTraffic {
    sample_sizes: SampleSizes,
    /// By which seed, in which words, and with what resent.
    drawn_for: Option<(u64, Vocabulary, Option<Resent>)>,
    at_one_per_second: Vec<Outline>,
}

impl LongRunTraffic {
    pub fn new(sample_sizes: SampleSizes) -> Self {
        Self { sample_sizes, drawn_for: None, at_one_per_second: Vec::new() }
    }

    fn requests(&self, plan: &Plan) -> usize {
        let SampleSizes { long_run, long_run_of_conversations, .. } = self.sample_sizes;
        if think_time(plan).is_some() { long_run_of_conversations } else { long_run }
    }

    /// As a twin with those costs serves them at a rate, and how many requests were sent.
    pub fn through(
        &mut self,
        engine: &TwinEngine,
        costs: &StepCosts,
        source: TrafficSource,
        rate: Rate,
    ) -> (LongRunReplay, usize) {
        let in_blocks = self.sample_sizes.long_run_in_blocks;
        let serve = || served_in_blocks(engine, costs, source, (rate, in_blocks));
        let (think, apart) = (think_time(source.plan), source.material.documents_apart());
        let wanted = self.requests(source.plan);
        let span = debug_span!("long_run_replay", %rate, requests = Empty).entered();
        let mut by_sums =
            || LongRunReplay::replay(costs, engine.bounds, engine.sent(self.of(source, wanted), rate, think, apart));
        // While people think, the cache may lose what they will resend.
        let (long, blocks) = if think.is_some_and(|time| time.0 > 0.0) {
            parallel::join(by_sums, serve)
        } else {
            let long = by_sums();
            let blocks = (think.is_some() && long.out_of_scope).then(serve).flatten();
            (long, blocks)
        };
        let traffic = self.of(source, wanted);
        let requests = traffic.len();
        span.record("requests", requests);
        let Some(blocks) = blocks else { return (long, requests) };
        if long.out_of_scope {
            // The cache fills, and only blocks know what it loses.
            return (LongRunReplay::served(&blocks), blocks.len());
        }
        let part = engine.sent(&traffic[..blocks.len().min(requests)], rate, think, apart);
        let (sums, _) = LongRunReplay::by_sums(costs, engine.bounds, &part, &mut FastReplay::default());
        (long.corrected(LongRunReplay::served(&blocks), sums), requests)
    }

    /// So many requests at one a second, in the order in which conversations begin.
    pub fn of(&mut self, source: TrafficSource, requests: usize) -> &[Outline] {
        let TrafficSource { plan, material, seed } = source;
        let drawn_for = Some((seed, material.vocabulary.clone(), material.resent));
        if self.drawn_for != drawn_for {
            let pace = source.pace(Rate(1.0), SeedLabel::LongRun.of(seed, &[]));
            self.at_one_per_second = outline(&plan.workload, material, pace, self.requests(plan), |_| Seconds(0.0));
            self.drawn_for = drawn_for;
        }
        &self.at_one_per_second[..requests.min(self.at_one_per_second.len())]
    }
}

/// The time between an answer and the next turn, where requests follow answers.
pub fn think_time(plan: &Plan) -> Option<Seconds> {
    match &plan.workload.kind {
        WorkloadKind::Conversations(kind) => Some(kind.think_time.into()),
        _ => None,
    }
}

#[derive(Default)]
pub struct Flights(pub Vec<Flight>);

impl ServeObserver for Flights {
    const EVERY_TOKEN: bool = false;

    fn sent(&mut self, planned: &Planned, _tokens: u32) {
        let never = Answered { at: planned.due.0, first: f64::INFINITY, last: f64::INFINITY };
        self.0.push((never, planned.output_tokens));
    }

    fn token(&mut self, id: u32, first: f64, later: f64) {
        let (answer, _) = &mut self.0[id as usize];
        if answer.first.is_infinite() {
            answer.first = first;
        }
        answer.last = later.max(answer.first);
    }

    fn finished(&mut self, id: u32, _cached: Option<u32>) -> u32 {
        self.0[id as usize].1
    }
}

/// Serves the workload block by block; nothing where the size of the KV cache is not known.
pub fn served_in_blocks(
    engine: &TwinEngine,
    costs: &StepCosts,
    source: TrafficSource,
    length: (Rate, u32),
) -> Option<Vec<Flight>> {
    let mut flights = Flights::default();
    let engine = engine.in_blocks(costs, source.material.resent)?;
    source.serve(&engine, length, SeedLabel::LongRun.of(source.seed, &[]), &mut flights)?;
    Some(flights.0)
}
