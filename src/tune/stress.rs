//! Endurance: whether an engine keeps out of a state that it does not leave again.
//!
//! Near a full KV cache, or below a stair of the step time, an engine serves well for hours, until a burst fills its batch: then steps
//! take longer, sequences lose their blocks, prefixes are forgotten, and the same arrivals that went well before keep it there. No probe
//! of minutes shows that, and no mean. So the twin serves very many requests block by block, with the prefixes that they
//! really share and turns that follow its own answers, and the question is not how near a promise is, but whether one is broken by far.

use super::long_run::{Flight, Flights, pace};
use super::session::Session;
use super::session_twin::{AS_MEASURED, ENDLESS, Engine, promises_waiting};
use super::trial_runner::RunnerError;
use super::worker::Asking;
use crate::rig::{self, Rig, ServeObserver};
use crate::search::Strategy;
use crate::settings::{Metric, Plan, StrategyKind};
use crate::space::Point;
use crate::twin::StepCosts;
use crate::units::Rate;
use crate::verdict::{Awaited, Certainty, QUEUE_GROWS};
use crate::workload::{Material, Planned, mix};

/// Requests of a replay: block by block that takes a second at most, and what 10⁶ would show beside is part of [`STRESS_FACTOR`].
pub(super) const REQUESTS: u32 = if cfg!(test) { 2_000 } else { 30_000 };
/// The share of them at the start that says nothing: the engine was empty.
const WARMING: f64 = 0.02;
/// The label of the seed of the traffic.
const HOURS: u64 = 6;

/// A rate is certified where the twin endures one that is so many times as high. Two parts: 10⁶ requests meet rarer bursts than those of a
/// replay, which is worth 3 % of the rate (simulated engines with their true steps at and above limits by 10⁶ requests, `benches/search`:
/// a replay breaks down from 1.03 to 1.06 times the limit on); and twins fitted to other probes of an engine differ by about 5 %. With 1.06,
/// about one certified rate in thirty of that benchmark lay more than 3 % above its truth, with this one in fifty.
const STRESS_FACTOR: f64 = 1.08;
/// More requests at once are never sent to see what a large batch does.
const MOST_AT_ONCE: u32 = 1024;
/// Where a rate does not endure, lower ones are tried in such steps, down to this share of it ...
const LOWER: f64 = 0.9;
pub(super) const LOWEST: f64 = 0.3;
/// ... and the highest that does is found to this factor.
const FOUND: f64 = 1.01;

/// What very many requests made of an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StressResult {
    /// Whether no promise was broken by far.
    pub(super) endures: bool,
    /// The most sequences that ran at once.
    pub(super) running: u32,
}

/// Serves so many requests of the plan's workload at that rate, by an engine whose steps take as long as that.
pub(super) fn stress_replay(
    plan: &Plan,
    (material, shared_seed): (&Material, u64),
    engine: &Engine,
    costs: &StepCosts,
    (rate, requests): (Rate, u32),
) -> Option<StressResult> {
    let engine = engine.in_blocks(costs, material.resent)?;
    let seed = mix(shared_seed, &[HOURS]);
    let pace = pace(rate, seed, shared_seed);
    let traffic = rig::Traffic::new(&plan.workload, material, pace).first(requests);
    let mut breaches = CollapseCounter::of(plan, requests);
    let served = engine.serve(traffic, &mut breaches, seed).ok()?;
    let running = served.telemetry.peak_running.unwrap_or(0.0) as u32;
    Some(StressResult { endures: !breaches.by_far(breaches.counted), running })
}

impl<R: Rig> Session<'_, R> {
    /// Whether the search is one that asks the twin what points are worth: then it is shown large batches before that.
    pub(super) fn shows_batches(&self) -> bool {
        self.plan.search.strategy == StrategyKind::Bayes && self.plan.with_twin()
    }

    /// Shows the engine of the defaults, while it runs, a batch as large as hours of the workload would come to; whether that told something
    /// new. A stair of the step time that lies there decides which points are worth a launch, and who proves the defaults need not be shown
    /// it again.
    pub(super) async fn show_batches(
        &mut self,
        point: &Point,
        strategy: &mut dyn Strategy,
    ) -> Result<bool, RunnerError> {
        let Some(estimate) = strategy.estimate(point).filter(|_| self.shows_batches()) else { return Ok(false) };
        let before = self.trial_runner.largest_batch();
        if !self.stressed(point, estimate).await? {
            self.note("the defaults do not survive the batches that hours of this traffic come to");
            return Ok(false);
        }
        if self.trial_runner.largest_batch() <= before {
            return Ok(false);
        }
        self.trial_runner.fit_well();
        strategy.retell(self.heard(0));
        Ok(true)
    }

    /// Whether the defaults do not endure what they keep for minutes, and would with a larger KV cache.
    pub(super) fn lacks_cache(&mut self, point: &Point, estimate: Option<Rate>) -> bool {
        let Some((rate, costs)) = estimate.zip(self.trial_runner.steps_in_hindsight()) else { return false };
        self.predictor(0).lacks_cache(point, &costs, Rate(rate.0 * STRESS_FACTOR)).unwrap_or(false)
    }

    /// Shows the first worker's engine the [`Session::burst`] above that rate, if there is one to show; whether it survives.
    async fn stressed(&mut self, point: &Point, rate: Rate) -> Result<bool, RunnerError> {
        let Some(burst) = self.burst(0, point, rate) else { return Ok(true) };
        Ok(self.trial_runner.probe(0, burst, Certainty::SEARCH).await?.is_ok())
    }

    /// A batch as large as those that hours of the workload come to above that rate, where none was measured yet: what steps take there, and
    /// whether there is memory for them.
    pub(super) fn burst(&mut self, worker: usize, point: &Point, rate: Rate) -> Option<Asking> {
        let costs = self.trial_runner.steps_in_hindsight()?;
        let reach = self.predictor(worker).reach(point, &costs, Rate(rate.0 * STRESS_FACTOR))?;
        let count = reach.running.min(MOST_AT_ONCE);
        if f64::from(count) <= f64::from(self.trial_runner.largest_batch()) * AS_MEASURED {
            return None;
        }
        if !self.affords(self.prices().certify * 2.0, 0) {
            self.left_out(format!("what {count} requests at once do to the engine: the budget ended"));
            return None;
        }
        Some(self.at_once(count, Awaited::All))
    }

    /// The highest rate that stays clear of one that the engine does not endure, where that is below this one; nearly zero where no rate is
    /// found that does.
    pub(super) fn ceiling(&mut self, point: &Point, costs: &StepCosts, rate: Rate) -> Option<Rate> {
        let mut predictor = self.predictor(0);
        let mut endures =
            |rate: f64| predictor.reach(point, costs, Rate(rate * STRESS_FACTOR)).map(|reach| reach.endures);
        if endures(rate.0)? {
            return None;
        }
        let (mut low, mut high) = (rate.0 * LOWER, rate.0);
        while !endures(low)? {
            (low, high) = (low * LOWER, low);
            if low < rate.0 * LOWEST {
                return Some(Rate(f64::MIN_POSITIVE));
            }
        }
        while high / low > FOUND {
            let middle = f64::sqrt(low * high);
            if endures(middle)? { low = middle } else { high = middle }
        }
        Some(Rate(low))
    }
}

/// A promise with the latency that breaks it by far, the share of requests that may have such, and how many have.
struct Breach {
    metric: Metric,
    beyond: f64,
    share: f64,
    found: f64,
}

/// Counts the latencies that are far beyond their limits.
struct CollapseCounter {
    promises: Vec<Breach>,
    requests: u32,
    counted: f64,
    flights: Flights,
}

impl CollapseCounter {
    fn of(plan: &Plan, requests: u32) -> Self {
        let breach = |metric, quantile: f64, beyond| Breach { metric, beyond, share: 1.0 - quantile, found: 0.0 };
        let mut promises: Vec<Breach> =
            plan.slo.iter().map(|l| breach(l.metric, l.quantile, l.at_most.0 * QUEUE_GROWS.exp())).collect();
        if !promises_waiting(plan) {
            promises.push(breach(Metric::Ttft, ENDLESS.0, ENDLESS.1));
        }
        Self { promises, requests, counted: 0.0, flights: Flights::default() }
    }

    /// Whether a promise is broken by far when so many requests count.
    fn by_far(&self, among: f64) -> bool {
        self.promises.iter().any(|p| p.found > p.share * among)
    }

    fn count(&mut self, id: u32, (due, answer, output): Flight) {
        if f64::from(id) < WARMING * f64::from(self.requests) {
            return;
        }
        self.counted += 1.0;
        for promise in &mut self.promises {
            let latency = match promise.metric {
                Metric::Ttft => Some(answer.first - due),
                Metric::E2e => Some(answer.last - due),
                Metric::Tpot => answer.tpot(output),
                Metric::Itl => None,
            };
            promise.found += f64::from(u8::from(latency.is_some_and(|latency| latency > promise.beyond)));
        }
    }
}

impl ServeObserver for CollapseCounter {
    const EVERY_TOKEN: bool = false;

    fn sent(&mut self, planned: &Planned, tokens: u32) {
        self.flights.sent(planned, tokens);
    }

    fn refused(&mut self, _id: u32, _now: f64) {}

    fn token(&mut self, id: u32, first: f64, later: f64) {
        self.flights.token(id, first, later);
    }

    fn finished(&mut self, id: u32, _cached: Option<u32>) -> u32 {
        let flight = self.flights.0[id as usize];
        self.count(id, flight);
        flight.2
    }

    fn go_on(&mut self, _now: f64, _more_is_due: bool) -> Result<(), bool> {
        if self.by_far(f64::from(self.requests)) { Err(false) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::effective::Effective;
    use crate::rig::{EngineProcess, Ready, Warmed};
    use crate::settings::parse;
    use crate::space::Value;
    use crate::twin::Profile;
    use crate::units::Seconds;

    /// The quickstart's workload on an engine with a cache of so many tokens, at a rate.
    fn reach(kv_tokens: u64, rate: f64) -> StressResult {
        let plan = parse("quickstart.toml", include_str!("../../search-spaces/quickstart.toml")).unwrap();
        let mut effective = Effective { kv_cache_tokens: Some(kv_tokens), ..Effective::default() };
        let limits = [("max-num-seqs", 64), ("max-num-batched-tokens", 2048)];
        effective.values.extend(limits.map(|(name, value)| (name.to_owned(), Value::Int(value))));
        let ready = Ready {
            took: Seconds(1.0),
            effective,
            model: String::new(),
            gpus: Vec::new(),
            shared: false,
            warm_up: None,
            warmed: Warmed { burst_rate: Rate(1.0), answer_time: Seconds(1.0) },
            host_memory: None,
            process: EngineProcess::default(),
            node: None,
        };
        let engine = Engine::of(&plan, &plan.space.baseline(), &ready).unwrap();
        stress_replay(&plan, (&Material::default(), 7), &engine, &Profile::quickstart().costs, (Rate(rate), REQUESTS))
            .unwrap()
    }

    #[test]
    fn a_small_cache_endures_less_and_a_low_rate_is_endured_by_any() {
        let (calm, busy) = (reach(100_000, 10.0), reach(100_000, 40.0));
        assert!(calm.endures && busy.running > calm.running, "{calm:?} {busy:?}");
        assert!(reach(1_600, 10.0).endures);
        assert!(!reach(100_000, 400.0).endures, "no engine answers so many");
        let lasts = |kv: u64| (1..40).map(|i| f64::from(i) * 4.0).find(|rate| !reach(kv, *rate).endures);
        assert!(lasts(1_600) < lasts(100_000), "{:?} {:?}", lasts(1_600), lasts(100_000));
    }
}
