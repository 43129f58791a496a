//! What a session expects of a point before its launch: the margins by the fitted twin, and the price of a probe.
//!
//! Points that the twin cannot tell apart are replayed once. If the cap on sequences never held a request back, a larger cap changes nothing. If
//! the KV cache never filled, neither does a larger cache.

mod ceiling_bracket;
mod stress;

use std::cmp::Reverse;
use std::collections::HashMap;

use tracing::trace_span;

use self::ceiling_bracket::CeilingBracket;
pub use self::stress::{Ceiling, LOWEST, NEVER_FULL, StressResult, stress_replay};
use super::cost::{Before, Prices, search_window};
use super::session_twin::{
    AS_MEASURED, ENDLESS, SessionTwin, TrafficSource, TwinEngine, promises_waiting, served_in_blocks, think_time,
};
use super::trial::{Current, TrialRequest};
use crate::journal::Purpose;
use crate::rig::Peaks;
use crate::search::{Expectation, STEP};
use crate::verdict::QUEUE_GROWS;
use crate::verdict::paired::LongRunReplay;
use autotune_numerics::parallel;
use autotune_plan::engine::Quantity;
use autotune_plan::settings::{Limit, Metric, Plan};
use autotune_plan::space::Point;
use autotune_records::units::{Rate, Seconds};
use autotune_twin::{Bounds, FastReplay, Pressure, StepCosts};
use autotune_workload::Material;

/// The most steps from a first guess in which a limit is looked for: a factor of 40.
const MOST_STEPS: i32 = 64;

/// The slope of the log latency over the log rate where an engine collapses. Twins of one engine differ by 3 % of the rate, and the latency
/// there is uncertain by 0.2.
const RISE_OF_A_COLLAPSE: f64 = 0.2 / 0.03;
/// Ceilings are looked for beforehand for points whose margins all lie below this: the search rarely asks about others.
const PREPARED_BELOW: f64 = 0.2;
/// The factor between the rates that are tried when a larger KV cache is compared.
const FINER: f64 = 1.016;
/// No point is thought to keep more than so many times the rate of another.
const HIGHEST: f64 = 4.0;

/// What the predictor remembers between two questions of the search.
#[derive(Default)]
pub struct PredictionCache {
    /// What the engines of launched points say of themselves.
    launched: Vec<(Point, TwinEngine)>,
    /// The number of the fit that the rest is of.
    fits: u64,
    replayed: HashMap<(i64, u32, bool), Vec<Replayed>>,
    ceilings: Vec<CeilingBracket>,
    /// The latest stress replay: its engine, step times, rate and result. What answers resend is newer only where step times are, too.
    stressed: Option<(TwinEngine, StepCosts, Rate, StressResult)>,
    memory: FastReplay,
}

struct Replayed {
    bounds: Bounds,
    pressure: Pressure,
    margins: Vec<Option<f64>>,
}

impl Replayed {
    /// Whether an engine with these bounds would have served the same requests in the same way.
    fn is_the_same(&self, bounds: Bounds) -> bool {
        let kv = |b: Bounds| b.kv_tokens.unwrap_or(u64::MAX);
        let filled = self.pressure.kv_full > 0 || self.pressure.preemptions > 0;
        let same_seqs = self.bounds.max_num_seqs == bounds.max_num_seqs
            || (self.pressure.seqs_full == 0 && u64::from(bounds.max_num_seqs) >= self.pressure.most_running);
        same_seqs && (kv(self.bounds) == kv(bounds) || (!filled && kv(bounds) >= kv(self.bounds)))
    }
}

impl PredictionCache {
    pub fn learn(&mut self, point: &Point, engine: Option<TwinEngine>) {
        self.launched.extend(engine.map(|engine| (point.clone(), engine)));
    }

    /// The engine of a point: that of the launched point which is most like it, with its own values. What the KV cache of a point holds
    /// that was never launched is taken from there. `None` before some engine told its bounds.
    pub fn engine(&self, point: &Point) -> Option<TwinEngine> {
        let differs = |other: &Point| {
            // Nothing changes the cache as much as the share of the memory.
            let weight = |name: &String| if Quantity::of(name) == Some(Quantity::MemoryShare) { 100 } else { 1 };
            point.0.iter().filter(|(name, value)| !other.has(name, value)).map(|(name, _)| weight(name)).sum::<u32>()
        };
        self.launched.iter().rev().min_by_key(|(other, _)| differs(other)).map(|(_, engine)| engine.at(point))
    }
}

/// What the search is told at one moment of the session.
pub struct Predictor<'a> {
    pub plan: &'a Plan,
    pub material: Material,
    pub seed: u64,
    pub session_twin: &'a mut SessionTwin,
    pub predictions: &'a mut PredictionCache,
    pub prices: Prices,
    pub running: Option<&'a Current>,
    /// Whether running engines can change their limits, as far as this session knows.
    pub alters: bool,
    /// Whether rare bursts may fill the KV cache.
    pub crowded: bool,
    /// Whether the search believes the twin.
    pub believed: bool,
}

impl Predictor<'_> {
    /// The stress replay of an engine at a rate, with these step times. `None` if the size of its KV cache is not known.
    pub fn stress_replay_of(&mut self, engine: &TwinEngine, costs: &StepCosts, rate: Rate) -> Option<StressResult> {
        if let Some((of, with, at, known)) = self.predictions.stressed
            && (of, with, at) == (*engine, *costs, rate)
        {
            return Some(known);
        }
        let by_sums = self.stress_by_sums(engine, costs, rate);
        let source = TrafficSource { plan: self.plan, material: &self.material, seed: self.seed };
        let in_blocks = || stress_replay(source, engine, costs, rate, self.session_twin.sample_sizes.stress);
        let result = by_sums.or_else(in_blocks)?;
        self.predictions.stressed = Some((*engine, *costs, rate, result));
        Some(result)
    }

    /// Whether that stress replay passes. The latest one answers where it passed at a higher rate, or failed at a lower one.
    pub fn passes_stress(&mut self, engine: &TwinEngine, costs: &StepCosts, rate: Rate) -> Option<bool> {
        if let Some((of, with, at, known)) = self.predictions.stressed
            && (of, with, known.passes) == (*engine, *costs, rate.0 < at.0)
        {
            return Some(known.passes);
        }
        Some(self.stress_replay_of(engine, costs, rate)?.passes)
    }

    /// A stress replay by sums, which take a tenth of the time of one by blocks. `None` if the KV cache fills, or if something connects requests.
    fn stress_by_sums(&mut self, engine: &TwinEngine, costs: &StepCosts, rate: Rate) -> Option<StressResult> {
        let requests = self.session_twin.sample_sizes.stress.requests as usize;
        let apart = !self.plan.workload.connects_requests();
        let (long, pressure) = apart.then(|| self.by_sums(engine, costs, rate, requests))?;
        if pressure.kv_full > 0 || pressure.preemptions > 0 {
            return None;
        }
        let passes = self.margins_of(&long).into_iter().flatten().all(|margin| margin <= QUEUE_GROWS);
        let peaks = Peaks { places: pressure.most_running as u32, ..Peaks::default() };
        Some(StressResult { passes, peaks })
    }

    /// So many requests of a long run by sums alone.
    fn by_sums(
        &mut self,
        engine: &TwinEngine,
        costs: &StepCosts,
        rate: Rate,
        requests: usize,
    ) -> (LongRunReplay, Pressure) {
        let source = TrafficSource { plan: self.plan, material: &self.material, seed: self.seed };
        let outlines = self.session_twin.long_run.of(source, requests);
        let sent = engine.sent(outlines, rate, think_time(self.plan), self.material.documents_apart());
        LongRunReplay::by_sums(costs, engine.bounds, &sent, &mut self.predictions.memory)
    }

    /// By how much the latency nearest to its limit is lower on another engine, in logarithms. A long run sends both the same requests, block by
    /// block. `None` if the twin does not know one of the promises.
    pub fn relief(&mut self, engines: [&TwinEngine; 2], costs: &StepCosts, rate: Rate) -> Option<f64> {
        let source = TrafficSource { plan: self.plan, material: &self.material, seed: self.seed };
        let requests = self.session_twin.sample_sizes.long_run_in_blocks;
        let worst = |engine: &TwinEngine| {
            let served = served_in_blocks(engine, costs, source, (rate, requests))?;
            self.worst_of_all(&LongRunReplay::served(&served))
        };
        let [own, other] = engines.map(worst);
        Some(own? - other?).filter(|relief| relief.is_finite())
    }

    /// The one of these points that keeps the highest rate with a KV cache so many times as large, and that rate. It is found by small steps from
    /// `from`, about the rate that the first point is thought to keep. `None` if the twin does not know one of the promises, or that rate is far off.
    pub fn best_with_cache(
        &mut self,
        points: &[Point],
        costs: &StepCosts,
        from: Rate,
        times: u64,
    ) -> Option<(Point, Rate)> {
        let requests = self.session_twin.sample_sizes.search;
        let mut keeps = |point: &Point, rate: Rate| {
            let engine = self.predictions.engine(point)?.with_cache(times);
            let (long, _) = self.by_sums(&engine, costs, rate, requests);
            Some(self.worst_of_all(&long)? <= 0.0)
        };
        let (mut best, mut rate) = (points.first()?, from);
        while !keeps(best, rate)? {
            rate = rate * (1.0 / FINER);
            if rate < from * LOWEST {
                return None;
            }
        }
        for point in points {
            while keeps(point, rate * FINER)? {
                (best, rate) = (point, rate * FINER);
                if rate > from * HIGHEST {
                    return None;
                }
            }
        }
        Some((best.clone(), rate))
    }

    /// The highest rate, by steps from that one, at which the promises hold, and a step above which no queue grows. Promises about waiting do not
    /// count, unless there are no others. A burst shows what steps take, and little of how long the requests of an open loop wait. By all promises,
    /// the first rate of `results/h200-70b-search-sixth` was a third of the limit. That of six 70B sessions is 0.62 to 0.83 of it, and was 0.62 to
    /// 0.77 with stress replays. `None` if the twin does not know one of the promises, or no useful rate holds.
    pub fn limit_after_burst(&mut self, point: &Point, from: Rate) -> Option<Rate> {
        let slo = &self.plan.slo;
        let all_wait = slo.iter().all(|limit| limit.metric.includes_waiting());
        let counts = |place: usize| all_wait || !slo[place].metric.includes_waiting();
        let mut hold = |step: i32| {
            let mut margins =
                |step| self.replay(point, from * STEP.powi(step))?.into_iter().collect::<Option<Vec<f64>>>();
            let holds = margins(step)?.into_iter().enumerate().all(|(l, margin)| margin <= 0.0 || !counts(l));
            Some(holds && margins(step + 1)?.into_iter().all(|margin| margin <= QUEUE_GROWS))
        };
        let mut step = 0;
        let up = hold(step)?;
        while hold(step)? == up {
            step += if up { 1 } else { -1 };
            if step.abs() > MOST_STEPS {
                return None;
            }
        }
        Some(from * STEP.powi(if up { step - 1 } else { step }))
    }

    /// How far a rate lies above the highest whose stress replay a point passes, in logarithms, with the fit of the moment.
    fn beyond_ceiling(&mut self, point: &Point, rate: Rate) -> Option<f64> {
        let costs = self.session_twin.known().map(|(costs, _)| *costs)?;
        let engine = self.predictions.engine(point)?;
        let mut known = CeilingBracket::of(&engine, &self.predictions.ceilings);
        let size = self.session_twin.sample_sizes.stress_in_search;
        let source = TrafficSource { plan: self.plan, material: &self.material, seed: self.seed };
        let beyond = known.beyond(rate, |rate| stress_replay(source, &engine, &costs, rate, size));
        known.keep(&mut self.predictions.ceilings);
        beyond
    }

    /// Finds the ceilings of points near a rate, in three rounds, each side by side. What one round finds answers for the next, or is a guess for it.
    /// First comes the largest cap with its largest budget, since these may hold nothing back. Then come the other budgets of this cap, and the largest
    /// one of each other cap, then all others.
    fn find_ceilings(&mut self, points: &[Point], from: Rate) -> Option<()> {
        let costs = self.session_twin.known().map(|(costs, _)| *costs)?;
        let mut engines = Vec::new();
        for point in points {
            if self.replay(point, from)?.into_iter().flatten().all(|margin| margin < PREPARED_BELOW) {
                engines.push(self.predictions.engine(point)?);
            }
        }
        let kind = |engine: &TwinEngine| (engine.bounds, engine.reuses());
        engines.sort_by_key(|engine| Reverse(kind(engine)));
        engines.dedup_by_key(|engine| kind(engine));
        let size = self.session_twin.sample_sizes.stress_in_search;
        let source = TrafficSource { plan: self.plan, material: &self.material, seed: self.seed };
        let mut rounds = [Vec::new(), Vec::new(), Vec::new()];
        for (nth, of_a_cap) in engines.chunk_by(|a, b| a.bounds.max_num_seqs == b.bounds.max_num_seqs).enumerate() {
            for (place, engine) in of_a_cap.iter().enumerate() {
                rounds[nth.min(1) + place.min(1)].push(*engine);
            }
        }
        for engines in rounds {
            let known = &self.predictions.ceilings;
            let find = |engine: &TwinEngine| {
                let try_it = |rate| stress_replay(source, engine, &costs, rate, size);
                CeilingBracket::of(engine, known).searched_upwards(from, try_it)
            };
            let found = parallel::map(&engines, find, |_| ());
            found.into_iter().for_each(|known| known.keep(&mut self.predictions.ceilings));
        }
        Some(())
    }

    /// The margin of the promise that is nearest to being broken; `None` if the twin does not know one of the promises.
    fn worst_of_all(&self, long: &LongRunReplay) -> Option<f64> {
        self.margins_of(long).into_iter().try_fold(f64::NEG_INFINITY, |worst, margin| Some(worst.max(margin?)))
    }

    fn margins_of(&self, long: &LongRunReplay) -> Vec<Option<f64>> {
        // Where no promise is about waiting, a queue that grows without end breaks them all.
        let endless = if promises_waiting(self.plan) { None } else { long.log_of(Metric::Ttft, ENDLESS.0) };
        let queue = endless.map_or(f64::NEG_INFINITY, |log| log - ENDLESS.1.ln());
        let margin = |l: &Limit| Some((long.log_of(l.metric, l.quantile)? - l.at_most.0.ln()).max(queue));
        self.plan.slo.iter().map(margin).collect()
    }
}

/// Under which replays of an engine at a rate are kept: the rate to a millionth in its logarithm, and what each replay depends on.
fn key(engine: &TwinEngine, rate: Rate) -> (i64, u32, bool) {
    ((rate.0.ln() * 1e6).round() as i64, engine.bounds.max_num_batched_tokens, engine.reuses())
}

impl Predictor<'_> {
    /// What the twin makes of a point at a rate; `None` if there is no twin.
    fn replay(&mut self, point: &Point, rate: Rate) -> Option<Vec<Option<f64>>> {
        let known = self.session_twin.known().filter(|_| self.believed);
        let (costs, fits) = known.map(|(costs, fits)| (*costs, fits))?;
        if self.predictions.fits != fits {
            self.predictions.fits = fits;
            self.predictions.replayed.clear();
            self.predictions.ceilings.iter_mut().for_each(CeilingBracket::refitted);
        }
        let engine = self.predictions.engine(point)?;
        let replayed = &self.predictions.replayed;
        let bounds = engine.bounds;
        let key = key(&engine, rate);
        if let Some(same) = replayed.get(&key).and_then(|known| known.iter().find(|r| r.is_the_same(bounds))) {
            return Some(same.margins.clone());
        }
        let requests = self.session_twin.sample_sizes.search;
        let _span = trace_span!("search_replay", %point, %rate, requests).entered();
        let (long, pressure) = self.by_sums(&engine, &costs, rate, requests);
        let margins = self.margins_of(&long);
        let known = self.predictions.replayed.entry(key).or_default();
        known.push(Replayed { bounds, pressure, margins: margins.clone() });
        Some(margins)
    }
}

impl Expectation for Predictor<'_> {
    fn margins(&mut self, point: &Point, rate: Rate) -> Vec<Option<f64>> {
        self.replay(point, rate).unwrap_or_default()
    }

    fn trust(&mut self, believed: bool) {
        self.believed = believed;
    }

    /// With fewer requests than a certification, since all points see the same ones. The replay is at [`STEP`] (1.06) times the rate, the next one of
    /// the search's ladder, so that it is of use again. Certification uses 1.08.
    fn collapse(&mut self, point: &Point, rate: Rate) -> Option<f64> {
        let higher = rate * STEP;
        let margins = self.replay(point, higher)?;
        let beyond = margins.into_iter().flatten().reduce(f64::max).map(|worst| worst - QUEUE_GROWS)?;
        if beyond > 0.0 || !self.crowded || !self.plan.workload.connects_requests() {
            return Some(beyond);
        }
        // Sums do not know which shared prefixes a full cache loses.
        Some(beyond.max(RISE_OF_A_COLLAPSE * self.beyond_ceiling(point, higher)?))
    }

    fn prepare(&mut self, points: &[Point], from: Rate) {
        if self.crowded && self.plan.workload.connects_requests() {
            self.find_ceilings(points, from * STEP);
        }
    }

    fn serve_alike(&mut self, one: &Point, other: &Point, rate: Rate) -> bool {
        // The twin does not know what other parameters do.
        let differs = |a: &Point, b: &Point| a.0.iter().any(|(name, v)| name != "max-num-seqs" && !b.has(name, v));
        let [Some(one_engine), Some(other_engine)] = [one, other].map(|point| self.predictions.engine(point)) else {
            return false;
        };
        if differs(one, other)
            || differs(other, one)
            || key(&one_engine, rate) != key(&other_engine, rate)
            || self.replay(one, rate).is_none()
        {
            return false;
        }
        let both = |r: &Replayed| r.is_the_same(one_engine.bounds) && r.is_the_same(other_engine.bounds);
        if !self.predictions.replayed.get(&key(&one_engine, rate)).is_some_and(|known| known.iter().any(both)) {
            return false;
        }
        // A cap that never binds in minutes may bind in rare bursts. The session has sent as many requests at once as these come to, unless its engines
        // held some of them back.
        let largest = f64::from(self.session_twin.largest) * AS_MEASURED;
        let lies_above = |engine: &TwinEngine| f64::from(engine.bounds.max_num_seqs) > largest;
        let is_measured = self.predictions.launched.iter().any(|(_, engine)| lies_above(engine));
        let bursts = self.crowded && self.plan.workload.connects_requests();
        !bursts || is_measured && lies_above(&one_engine) && lies_above(&other_engine)
    }

    fn runs(&self, point: &Point) -> bool {
        self.running.is_some_and(|current| current.known_as == *point)
    }

    fn price(&self, point: &Point, rate: Rate) -> Seconds {
        let another = || TrialRequest::of(Purpose::Search, point.clone()).behind(self.running, self.alters);
        let before = if self.runs(point) { Before::Nothing } else { another() };
        self.prices.probe(search_window(self.plan, rate).to, before)
    }

    fn surcharge(&self, point: &Point, rate: Rate) -> f64 {
        let altered = self.prices.probe(search_window(self.plan, rate).to, Before::Altering);
        if self.prices.alters { (self.price(point, rate).0 / altered.0).max(1.0) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample_sizes::SampleSizes;
    use super::*;
    use crate::quickstart::quickstart;
    use crate::verdict::fixtures;
    use autotune_plan::space::Value;
    use autotune_twin::Profile;

    /// An engine of the quickstart with so many places and so many tokens in its KV cache.
    fn engine(max_num_seqs: u32, kv_tokens: u64) -> TwinEngine {
        TwinEngine::bare(Bounds { max_num_seqs, max_num_batched_tokens: 2048, kv_tokens: Some(kv_tokens) })
    }

    fn point(seqs: u32) -> Point {
        Point::default().with("max-num-seqs", Value::Int(seqs.into()))
    }

    /// What a predictor says that knows the steps of the quickstart's engine, and that it has 64 places and 900 tokens.
    fn asked<T>(plan: &Plan, ask: impl FnOnce(&mut Predictor) -> T) -> T {
        let (mut session_twin, mut predictions) = (SessionTwin::new(SampleSizes::SMALL), PredictionCache::default());
        session_twin.adopt(fixtures::fit(Profile::quickstart().costs, &[0.0]));
        predictions.learn(&point(64), Some(engine(64, 900)));
        ask(&mut Predictor {
            plan,
            material: Material::default(),
            seed: 1,
            session_twin: &mut session_twin,
            predictions: &mut predictions,
            prices: Prices::new(plan, &[]),
            running: None,
            alters: false,
            crowded: true,
            believed: true,
        })
    }

    #[test]
    fn a_larger_cache_relieves_an_engine_whose_cache_fills_and_shows_which_point_is_best_with_it() {
        let costs = Profile::quickstart().costs;
        asked(&quickstart(&[]), |predictor| {
            let mut relief = |kv_tokens| {
                predictor.relief([&engine(64, kv_tokens), &engine(64, 4 * kv_tokens)], &costs, Rate(60.0)).unwrap()
            };
            assert_eq!(relief(100_000), 0.0);
            assert!(relief(1_600) > 0.1);
            let mut best = |seqs: &[u32], times| {
                let points: Vec<Point> = seqs.iter().map(|seqs| point(*seqs)).collect();
                predictor.best_with_cache(&points, &costs, Rate(40.0), times).unwrap()
            };
            let (few, many) = (best(&[4], 4), best(&[4, 64], 4));
            assert!(few.0 == point(4) && many.0 == point(64) && many.1 > few.1, "{few:?} {many:?}");
            assert!(best(&[64], 1).1 < best(&[64], 4).1);
        });
    }

    #[test]
    fn the_latest_stress_replay_answers_for_lower_rates_if_it_passed_and_for_higher_ones_if_not() {
        let (costs, engine) = (Profile::quickstart().costs, engine(64, 100_000));
        asked(&quickstart(&[]), |predictor| {
            // The answer, and the rate of the replay that gave it.
            let mut asks = |rate: f64| {
                let passes = predictor.passes_stress(&engine, &costs, Rate(rate)).unwrap();
                (passes, predictor.predictions.stressed.unwrap().2.0)
            };
            assert_eq!([asks(10.0), asks(5.0), asks(20.0)], [(true, 10.0), (true, 10.0), (true, 20.0)]);
            assert_eq!([asks(400.0), asks(500.0), asks(5.0)], [(false, 400.0), (false, 400.0), (true, 5.0)]);
            let mut places = |rate: f64| predictor.stress_replay_of(&engine, &costs, Rate(rate)).unwrap().peaks.places;
            let [low, high, again] = [5.0, 20.0, 5.0].map(&mut places);
            assert!(low < high && low == again, "the batches are those of the rate itself");
            let slower = StepCosts { base: 2.0 * costs.base, ..costs };
            assert_eq!(predictor.passes_stress(&engine, &slower, Rate(1.0)), Some(true));
            assert_eq!(predictor.predictions.stressed.unwrap().1, slower, "other steps, another replay");
        });
    }

    #[test]
    fn a_twin_that_is_not_believed_expects_nothing() {
        asked(&quickstart(&[]), |predictor| {
            assert_eq!(predictor.margins(&point(64), Rate(20.0)).len(), 2);
            predictor.trust(false);
            assert!(predictor.margins(&point(64), Rate(20.0)).is_empty());
            assert_eq!(predictor.collapse(&point(64), Rate(20.0)), None);
        });
    }

    #[test]
    fn a_launch_costs_more_than_a_change_of_limits_where_engines_take_one() {
        asked(&quickstart(&[]), |predictor| {
            assert_eq!(predictor.surcharge(&point(64), Rate(20.0)), 1.0);
            predictor.prices.alters = true;
            predictor.prices.launch = Seconds(60.0);
            assert!(predictor.surcharge(&point(64), Rate(20.0)) > 2.0, "no engine runs that could take its limits");
        });
    }

    #[test]
    fn two_caps_serve_alike_where_neither_binds() {
        asked(&quickstart(&[]), |predictor| {
            predictor.predictions.learn(&point(64), Some(engine(64, 100_000)));
            let mut alike = |one, other| predictor.serve_alike(&point(one), &point(other), Rate(20.0));
            assert!(alike(64, 256) && alike(256, 64));
            assert!(!alike(64, 2) && !alike(2, 64), "two places are too few");
            let with = |name: &str| point(64).with(name, Value::Int(7));
            let mut differ = |one: &Point, other: &Point| !predictor.serve_alike(one, other, Rate(20.0));
            assert!(differ(&point(256), &with("block-size")) && differ(&with("block-size"), &point(256)));
        });
        // Where requests share a prefix, a burst of 60 was measured, and a cap of 64 is near to that.
        let shares = quickstart(&[("kind = \"random\"", "kind = \"random\"\nshared_prefix_tokens = 16")]);
        asked(&shares, |predictor| {
            predictor.session_twin.largest = 60;
            let alike = |predictor: &mut Predictor, cap: u32| {
                predictor.predictions.learn(&point(cap), Some(engine(cap, 100_000)));
                [64, 128].map(|one| predictor.serve_alike(&point(one), &point(256), Rate(20.0)))
            };
            assert_eq!(alike(predictor, 64), [false, false], "the engine held back what was more");
            assert_eq!(alike(predictor, 80), [false, true]);
        });
    }

    #[test]
    fn ceilings_are_prepared_once_for_each_engine_that_keeps_the_promises() {
        let shares = quickstart(&[("kind = \"random\"", "kind = \"random\"\nshared_prefix_tokens = 16")]);
        let small = |seqs: u32| point(seqs).with("max-num-batched-tokens", Value::Int(256));
        let points = [point(8), point(64), point(256), point(64), small(64), small(256), small(64)];
        let prepared = |from: f64, crowded| {
            asked(&shares, |predictor| {
                predictor.predictions.learn(&point(64), Some(engine(64, 1_600)));
                predictor.crowded = crowded;
                predictor.prepare(&points, Rate(from));
                let (known, later) = (predictor.predictions.ceilings.len(), points.each_ref());
                (known, later.map(|point| predictor.collapse(point, Rate(from))))
            })
        };
        let unprepared = asked(&shares, |predictor| {
            predictor.predictions.learn(&point(64), Some(engine(64, 1_600)));
            points.each_ref().map(|point| predictor.collapse(point, Rate(40.0)))
        });
        assert_eq!(prepared(40.0, true), (5, unprepared));
        assert_eq!((prepared(40.0, false).0, prepared(90.0, true).0), (0, 0), "never full, and far beyond a promise");
    }

    #[test]
    fn after_a_burst_a_promise_about_waiting_does_not_set_the_first_rate_unless_all_are_or_a_queue_grows() {
        let limit = |plan: &Plan| {
            asked(plan, |predictor| {
                predictor.predictions.learn(&point(32), Some(engine(32, 100_000)));
                predictor.limit_after_burst(&point(32), Rate(20.0)).map(|rate| rate.0)
            })
        };
        let with_ttft = |times: f64| {
            let mut plan = quickstart(&[]);
            let waits = plan.slo.iter_mut().filter(|limit| limit.metric.includes_waiting());
            waits.for_each(|limit| limit.at_most = limit.at_most * times);
            plan
        };
        let (as_it_is, tight) = (limit(&with_ttft(1.0)).unwrap(), limit(&with_ttft(0.7)).unwrap());
        assert_eq!(as_it_is, tight, "TTFT does not bound it");
        let only = |mut plan: Plan| {
            plan.slo.retain(|limit| limit.metric.includes_waiting());
            limit(&plan)
        };
        assert!(only(with_ttft(0.3)) < only(with_ttft(1.0)), "nothing else bounds it");
        assert!(limit(&with_ttft(0.05)).is_none_or(|rate| rate < as_it_is), "a queue is a queue");
    }
}
