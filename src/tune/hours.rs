//! Hours of a workload through the twin: what the luck of the arrivals leaves.
//!
//! Where requests do not wait for answers, they are drawn once for a session and stretched to each rate. Turns of a conversation follow the
//! answers of the twin itself, block by block, with what the cache really holds of them: an engine that falls behind is asked later.

use super::pairing::Engine;
use crate::order::median;
use crate::rig::{Books, ProbeAsk, Traffic};
use crate::settings::{Plan, WorkloadKind};
use crate::twin::{Answered, Observed, Probe, StepCosts};
use crate::units::{Rate, Seconds};
use crate::verdict::Window;
use crate::verdict::paired::{Long, SLOWER};
use crate::workload::{Demand, Material, Outline, Pace, Planned, Vocabulary, mix, outline};

/// Requests of the long run: fewer mislead near the knee, as fewer measured ones do ...
const LONG: usize = if cfg!(test) { 3_000 } else { 100_000 };
/// ... but block by block so many take a second, while an engine waits.
const SERVED: u32 = if cfg!(test) { 3_000 } else { 30_000 };
/// The label of the seed of the long traffic.
const HOURS: u64 = 5;

/// Hours of the workload, drawn once for the arrivals of a session and stretched to each rate where times do not follow from answers.
#[derive(Default)]
pub(super) struct Hours {
    /// What the traffic was drawn for.
    drawn_for: Option<(u64, u64, Vocabulary)>,
    at_one_per_second: Vec<Outline>,
}

impl Hours {
    /// As a twin with those costs serves them at the rate of `ask`, and how many requests were sent.
    pub(super) fn through(
        &mut self,
        engine: &Engine,
        costs: &StepCosts,
        plan: &Plan,
        (material, shared_seed): (&Material, u64),
        (ask, answers): (&ProbeAsk, AnswerPace),
    ) -> (Long, usize) {
        let turns = || {
            let serve = |costs: &StepCosts| served(engine, costs, plan, (material, shared_seed), ask);
            Some((serve(costs)?, serve(&costs.slower(SLOWER))?))
        };
        let follows_answers = matches!(plan.workload.kind, WorkloadKind::Conversations(_));
        if let Some((as_it_is, slower)) = follows_answers.then(turns).flatten() {
            return (Long::served(&as_it_is, &slower), as_it_is.len());
        }
        let traffic = self.of(plan, material, ask, shared_seed, answers, LONG);
        (Long::replay(costs, engine.bounds(), traffic.iter().map(|o| engine.sent(o))), traffic.len())
    }

    /// At the rate of `ask`. Turns of conversations follow answers that come at that pace.
    pub(super) fn of(
        &mut self,
        plan: &Plan,
        material: &Material,
        ask: &ProbeAsk,
        shared_seed: u64,
        answers: AnswerPace,
        requests: usize,
    ) -> Vec<Outline> {
        let seed = mix(shared_seed, &[HOURS]);
        let pace = |rate| pace(rate, seed, shared_seed, ask.answer_time);
        if matches!(plan.workload.kind, WorkloadKind::Conversations(_)) {
            let answer = |planned: &Planned| answers.of_tokens(planned.output_tokens);
            return outline(&plan.workload, material, pace(ask.rate), requests, answer);
        }
        let drawn_for = Some((seed, shared_seed, material.vocabulary.clone()));
        if self.drawn_for != drawn_for {
            self.at_one_per_second = outline(&plan.workload, material, pace(Rate(1.0)), LONG, |_| Seconds(0.0));
            self.drawn_for = drawn_for;
        }
        let stretched = |o: &Outline| Outline { due: Seconds(o.due.0 / ask.rate.0), ..*o };
        self.at_one_per_second.iter().take(requests).map(stretched).collect()
    }
}

/// How fast answers come: seconds to the first token, and for each further one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AnswerPace {
    first: f64,
    each: f64,
}

impl AnswerPace {
    /// The medians of a window.
    pub(super) fn of(probe: &Probe, window: Window) -> Self {
        let counted = || probe.requests().iter().filter(|r| window.holds(r.due));
        let first = median(counted().filter_map(Observed::ttft)).unwrap_or(0.0);
        let each = median(counted().filter_map(Observed::tpot)).unwrap_or(0.0);
        Self { first, each }
    }

    fn of_tokens(&self, tokens: u32) -> Seconds {
        Seconds(self.first + self.each * f64::from(tokens.saturating_sub(1)))
    }
}

/// A request of a long run: when it was due, its first and last token, infinite where they never came, and the tokens of its answer.
pub(super) type Flight = (f64, Answered, u32);

/// Notes the requests of a long run, by their number.
#[derive(Default)]
pub(super) struct Flights(pub(super) Vec<Flight>);

impl Books for Flights {
    const EVERY_TOKEN: bool = false;

    fn sent(&mut self, planned: &Planned, _tokens: u32) {
        let never = Answered { first: f64::INFINITY, last: f64::INFINITY };
        self.0.push((planned.due.0, never, planned.output_tokens));
    }

    fn refused(&mut self, _id: u32, _now: f64) {}

    fn token(&mut self, id: u32, first: f64, later: f64) {
        let (_, answer, _) = &mut self.0[id as usize];
        if answer.first.is_infinite() {
            answer.first = first;
        }
        answer.last = later.max(answer.first);
    }

    fn finished(&mut self, id: u32, _cached: Option<u32>) -> u32 {
        self.0[id as usize].2
    }

    fn go_on(&mut self, _now: f64, _more_is_due: bool) -> Result<(), bool> {
        Ok(())
    }
}

/// An open demand without end, all of it drawn by one seed.
pub(super) fn pace(rate: Rate, seed: u64, shared_seed: u64, answer_time: Seconds) -> Pace {
    Pace {
        demand: Demand::Open(rate),
        horizon: Seconds(f64::MAX),
        arrival_seed: seed,
        content_seed: seed,
        shared_seed,
        answer_time,
    }
}

/// Serves the workload block by block; nothing where the size of the KV cache is not known.
fn served(
    engine: &Engine,
    costs: &StepCosts,
    plan: &Plan,
    (material, shared_seed): (&Material, u64),
    ask: &ProbeAsk,
) -> Option<Vec<Flight>> {
    let seed = mix(shared_seed, &[HOURS]);
    let pace = pace(ask.rate, seed, shared_seed, ask.answer_time);
    let mut flights = Flights::default();
    let traffic = Traffic::new(&plan.workload, material, pace).first(SERVED);
    engine.in_blocks(costs)?.serve(traffic, &mut flights, seed).ok()?;
    Some(flights.0)
}
