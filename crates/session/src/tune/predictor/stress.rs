//! Stress replay: whether a burst drives an engine into a state that it does not leave again.
//!
//! Near a full KV cache, or below a stair of the step time, an engine serves well until a burst fills its batch. Then steps take longer,
//! sequences lose their blocks, and the same arrivals keep it there. No probe of minutes shows that. So the twin serves very many requests
//! block by block. It tells whether a promise is broken by far, not how near one is to its limit.

use tracing::debug_span;

use super::super::sample_sizes::Stress;
use super::super::seeds::SeedLabel;
use super::super::session_twin::{ENDLESS, Flights, TrafficSource, TwinEngine, promises_waiting};
use crate::rig::{Peaks, ServeObserver};
use crate::verdict::QUEUE_GROWS;
use crate::verdict::paired::{Flight, latency};
use autotune_numerics::parallel;
use autotune_plan::settings::{Metric, Plan};
use autotune_records::units::Rate;
use autotune_twin::StepCosts;
use autotune_workload::Planned;

/// Streams that are served first.
const SIDE_BY_SIDE: u64 = 2;
/// The share of the requests at the start of a stream that says nothing: the engine was empty.
const WARMING: f64 = 0.02;

/// The highest rate whose stress replay passes, of those up to the rate that was asked about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ceiling {
    /// The replay passes at the rate that was asked about.
    Above,
    /// The replay passes up to about this rate.
    At(Rate),
    /// The replay fails down to [`LOWEST`] of the rate that was asked about.
    BelowAll,
}

impl Ceiling {
    /// What it means for a certificate, where rates up to `highest` were asked about.
    pub fn says(self, highest: Rate) -> Option<String> {
        match self {
            Self::Above => None,
            Self::At(ceiling) => Some(format!(
                "capped below {ceiling}: in simulation, latency does not recover from bursts at higher rates"
            )),
            Self::BelowAll => Some(format!(
                "nothing is certified: in simulation, latency does not recover from bursts at any rate down to {}",
                highest * LOWEST
            )),
        }
    }
}

/// A ceiling is looked for down to this share of a rate.
pub const LOWEST: f64 = 0.3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StressResult {
    /// Whether no promise was broken by far.
    pub passes: bool,
    pub peaks: Peaks,
}

/// A KV cache that was never this full in minutes does not fill in a long run either, unless a stress replay shows a collapse.
pub const NEVER_FULL: f64 = 0.6;

/// Serves the plan's workload at that rate by an engine with those step times. Where the KV cache fills or some latency is far beyond its
/// limit, it serves all streams: bursts that end an engine are rare. With a small cache 300,000 requests collapse at rates 3 to 15 % lower than
/// 20,000 do (`benches/search/truths.json`).
///
/// A promise counts over all streams together. An engine that recovers from a burst breaks it for few of so many requests. One that does not
/// recover breaks it for the rest of its stream, and half of one stream is never allowed.
pub fn stress_replay(
    source: TrafficSource,
    engine: &TwinEngine,
    costs: &StepCosts,
    rate: Rate,
    Stress { requests, streams }: Stress,
) -> Option<StressResult> {
    let engine = engine.in_blocks(costs, source.material.resent)?;
    let _span = debug_span!("stress_replay", %rate, requests).entered();
    let counter = || CollapseCounter::of(source.plan, requests, streams);
    let stream = |number: u64| {
        let mut breaches = counter();
        let parts: &[u64] = if number == 0 { &[] } else { &[number] };
        let seed = SeedLabel::StressReplay.of(source.seed, parts);
        let peaks = source.serve(&engine, (rate, requests), seed, &mut breaches)?;
        Some((breaches, peaks))
    };
    let (mut together, mut peaks, mut calm) = (counter(), Peaks::default(), true);
    let first = streams.min(SIDE_BY_SIDE);
    for numbers in [0..first, first..streams] {
        for served in parallel::map(&numbers.collect::<Vec<_>>(), |number| stream(*number), |_| ()) {
            let (breaches, own) = served?;
            calm &= own.kv_usage < NEVER_FULL && breaches.promises.iter().all(|p| p.found == 0.0);
            peaks.see(own);
            together.add(&breaches);
        }
        if calm || together.by_far() {
            break;
        }
    }
    Some(StressResult { passes: !together.by_far(), peaks })
}

/// A promise with the latency that breaks it by far, the share of requests that may have such, and how many have.
struct Breach {
    metric: Metric,
    beyond: f64,
    share: f64,
    found: f64,
}

struct CollapseCounter {
    promises: Vec<Breach>,
    /// The requests of a stream.
    requests: u32,
    /// The requests of all streams that count.
    all: f64,
    flights: Flights,
}

impl CollapseCounter {
    fn of(plan: &Plan, requests: u32, streams: u64) -> Self {
        let all = f64::from(requests) * streams as f64 * (1.0 - WARMING);
        let most = 0.5 / streams as f64;
        let breach =
            |metric, quantile: f64, beyond| Breach { metric, beyond, share: (1.0 - quantile).min(most), found: 0.0 };
        let mut promises: Vec<Breach> =
            plan.slo.iter().map(|l| breach(l.metric, l.quantile, l.at_most.0 * QUEUE_GROWS.exp())).collect();
        if !promises_waiting(plan) {
            promises.push(breach(Metric::Ttft, ENDLESS.0, ENDLESS.1));
        }
        Self { promises, requests, all, flights: Flights::default() }
    }

    /// Whether a promise is broken by far over all streams.
    fn by_far(&self) -> bool {
        self.promises.iter().any(|p| p.found > p.share * self.all)
    }

    fn add(&mut self, stream: &Self) {
        for (promise, theirs) in self.promises.iter_mut().zip(&stream.promises) {
            promise.found += theirs.found;
        }
    }

    fn count(&mut self, id: u32, flight: Flight) {
        if f64::from(id) < WARMING * f64::from(self.requests) {
            return;
        }
        for promise in &mut self.promises {
            let is_far = latency(promise.metric, flight).is_some_and(|latency| latency > promise.beyond);
            promise.found += f64::from(u8::from(is_far));
        }
    }
}

impl ServeObserver for CollapseCounter {
    const EVERY_TOKEN: bool = false;

    fn sent(&mut self, planned: &Planned, tokens: u32) {
        self.flights.sent(planned, tokens);
    }

    fn token(&mut self, id: u32, first: f64, later: f64) {
        self.flights.token(id, first, later);
    }

    fn finished(&mut self, id: u32, _cached: Option<u32>) -> u32 {
        let flight = self.flights.0[id as usize];
        self.count(id, flight);
        flight.1
    }

    fn go_on(&mut self, _now: f64, _more_is_due: bool) -> Result<(), bool> {
        if self.by_far() { Err(false) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::sample_sizes::SampleSizes;
    use super::*;
    use crate::quickstart::quickstart;
    use autotune_twin::{Bounds, Profile};
    use autotune_workload::Material;

    /// The quickstart's workload on an engine with a cache of so many tokens, at a rate.
    fn reach(kv_tokens: u64, rate: f64) -> StressResult {
        reach_with(SampleSizes::SMALL.stress, kv_tokens, rate)
    }

    fn reach_with(stress: Stress, kv_tokens: u64, rate: f64) -> StressResult {
        let plan = quickstart(&[]);
        let material = Material::default();
        let source = TrafficSource { plan: &plan, material: &material, seed: 7 };
        let engine =
            TwinEngine::bare(Bounds { max_num_seqs: 64, max_num_batched_tokens: 2048, kv_tokens: Some(kv_tokens) });
        stress_replay(source, &engine, &Profile::quickstart().costs, Rate(rate), stress).unwrap()
    }

    #[test]
    fn streams_count_together_and_half_of_one_is_never_allowed() {
        let mut plan = quickstart(&[]);
        let by_far = |plan: &Plan, found: f64, streams: u64| {
            let mut together = CollapseCounter::of(plan, 100, streams);
            let mut stream = CollapseCounter::of(plan, 100, streams);
            stream.promises[0].found = found;
            together.add(&stream);
            together.by_far()
        };
        assert!(by_far(&plan, 2.0, 1) && !by_far(&plan, 2.0, 8), "p99 allows one in a hundred of all");
        assert!(by_far(&plan, 8.0, 8));
        plan.slo[0].quantile = 0.9;
        assert!(by_far(&plan, 11.0, 1) && !by_far(&plan, 11.0, 8));
        assert!(by_far(&plan, 50.0, 8), "p90 would allow 80 requests of 800");
    }

    #[test]
    fn a_small_cache_passes_at_lower_rates_and_any_at_a_low_one() {
        let (calm, busy) = (reach(100_000, 10.0), reach(100_000, 40.0));
        assert!(calm.passes && busy.peaks.places > calm.peaks.places, "{calm:?} {busy:?}");
        assert!(reach(1_600, 10.0).passes);
        let streams = |streams| reach_with(Stress { requests: 500, streams }, 2_400, 50.0).peaks.places;
        assert!(
            streams(1) <= streams(2) && streams(2) < streams(9),
            "bursts are rare: {} of two, {} of nine",
            streams(2),
            streams(9)
        );
        assert!(!reach(100_000, 400.0).passes, "no engine answers so many");
        let lasts = |kv: u64| (1..40).map(|i| f64::from(i) * 4.0).find(|rate| !reach(kv, *rate).passes);
        assert!(lasts(1_600) < lasts(100_000), "{:?} {:?}", lasts(1_600), lasts(100_000));
    }
}
