//! The true limit of one point: the highest rate that keeps the promises over very many requests, noise, misses and follow-ups included.
//!
//! It is the limit of an engine whose launch has the median speed, long after that launch.

use serde::{Deserialize, Serialize};

use super::tally::{FAR, Tally};
use super::{Job, NoTruth};
use crate::rig::{Engine, SimulatedRig, Traffic};
use crate::settings::{ArrivalProcess, Limit, Metric, Plan};
use crate::space::Point;
use crate::twin::{Bounds, FastReplay, Launch, Sent, Unsteady};
use crate::units::{Rate, Seconds};
use crate::workload::{Demand, Outline, Pace, outline};

/// Lower rates count as zero, in requests per second.
const LEAST_RATE: f64 = 1e-3;
/// Rates above this are as good as any.
const MOST_RATE: f64 = 1e6;
/// The seed of the requests. No session draws this one.
const SEED: u64 = 77;
/// Requests of the runs that find about where the limit lies.
const SKETCH: u32 = 3_000;
/// Seconds since the launch: whatever ages has aged.
const LONG_AGO: f64 = 1e6;
/// How closely these find it, as a factor.
const SKETCHED: f64 = 1.06;
/// How closely the runs of the asked length bracket it.
const BRACKETED: f64 = 1.02;
/// A rate that is corrected by less than this is not run again.
const CORRECTED: f64 = 0.01;
/// A larger correction is not believed.
const MOST_CORRECTED: f64 = 0.05;
/// Runs of the full length that one limit may take.
const LONG_RUNS: u32 = 8;
/// A long run that a point did not survive is repeated this much lower.
const LOWER: f64 = 0.97;
/// The share of the sequences for which there is memory that may decode before blocks must tell whether they all fit.
const NEAR_DEATH: f64 = 0.8;
/// A request that waits this long is taken to be in a queue that only grows.
const ENDLESS: Seconds = Seconds(60.0);
/// The logarithm of a quantile rises with that of the rate by this factor at least.
const FLATTEST: f64 = 0.3;

/// A limit and what is known around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// The limit; 0 where no rate holds.
    pub rate: Rate,
    /// By how much the logarithm of the worst quantile over its limit rises with that of the rate.
    pub slope: f64,
    /// Requests of each run that it comes from.
    pub requests: u32,
}

/// The long-run traffic of a job, for each of its points.
pub struct LongRunTraffic<'a> {
    job: Job<'a>,
    /// The promises, and that queues end.
    slo: Vec<Limit>,
    /// The requests at one a second, where their times depend on no answer and their prompts share nothing.
    drawn: Option<Vec<Sent>>,
}

impl<'a> LongRunTraffic<'a> {
    /// For runs of at most so many requests.
    ///
    /// # Errors
    /// The promises or the traffic are such that there is no true limit.
    pub fn new(job: Job<'a>, requests: u32) -> Result<Self, NoTruth> {
        has_a_limit(job.plan)?;
        let draw = || {
            let traffic =
                outline(&job.plan.workload, job.material, pace(Rate(1.0)), requests as usize, |_| Seconds(0.0));
            let sent =
                |o: &Outline| Sent { at: o.due.0, prompt: o.prompt_tokens, output: o.output_tokens, ..Sent::default() };
            traffic.iter().map(sent).collect()
        };
        Ok(Self { job, slo: with_an_end(&job.plan.slo), drawn: (!job.plan.workload.connects_requests()).then(draw) })
    }

    /// The engine of a point under this traffic; none where it does not start.
    pub fn long(&'a self, point: &Point) -> Option<LongRunReplay<'a>> {
        let Job { plan, profile, material, quirks, .. } = self.job;
        let rig = SimulatedRig::new(plan.clone(), profile.clone(), 0, material.clone()).misses(quirks.misses);
        let engine = Engine { age: LONG_AGO, ..rig.engine(point, Launch::MEDIAN).ok()? };
        // What the fast replay does not know.
        let fits = |s: &Sent| u64::from(s.prompt) + u64::from(s.output) <= u64::from(engine.flags.max_model_len);
        let by_formula = engine.kernels.is_none() && engine.noise.is_none_or(|noise| noise.keeps_speed());
        let drawn = self.drawn.as_deref().filter(|drawn| by_formula && drawn.iter().all(fits));
        Some(LongRunReplay { traffic: self, engine, drawn })
    }
}

/// A point's engine under long traffic.
pub struct LongRunReplay<'a> {
    traffic: &'a LongRunTraffic<'a>,
    engine: Engine,
    drawn: Option<&'a [Sent]>,
}

impl LongRunReplay<'_> {
    /// The worst log(quantile / limit) over so many requests at that rate: above zero, a promise is broken. Infinite where the engine dies.
    pub fn margin(&self, rate: Rate, requests: u32) -> f64 {
        let by_sums = self.by_sums(rate, requests);
        by_sums.filter(|(_, exact)| *exact).map_or_else(|| self.by_blocks(rate, requests), |(margin, _)| margin)
    }

    /// The same, but for a few percent of the rate where the KV cache or the memory binds.
    fn rough_margin(&self, rate: Rate, requests: u32) -> f64 {
        self.by_sums(rate, requests).map_or_else(|| self.by_blocks(rate, requests), |(margin, _)| margin)
    }

    /// Whether a run at that rate takes a moment, since nothing in it depends on answers or blocks.
    pub fn is_fast(&self, rate: Rate) -> bool {
        self.by_sums(rate, SKETCH).is_some_and(|(_, exact)| exact)
    }

    fn by_blocks(&self, rate: Rate, requests: u32) -> f64 {
        let LongRunTraffic { job: Job { plan, material, .. }, slo, .. } = self.traffic;
        let traffic = Traffic::new(&plan.workload, material, pace(rate)).first(requests);
        let mut tally = Tally::new(slo, requests);
        match self.engine.serve(traffic, &mut tally, SEED) {
            Ok(_) => tally.margin(),
            Err(_) => f64::INFINITY,
        }
    }

    /// From event to event, where the traffic allows that, and whether blocks would say the same.
    fn by_sums(&self, rate: Rate, requests: u32) -> Option<(f64, bool)> {
        let Engine { costs, limits, noise, launch, max_seqs_before_oom, .. } = &self.engine;
        let drawn = self.drawn?;
        let requests = (requests as usize).min(drawn.len());
        let sent: Vec<Sent> = drawn[..requests].iter().map(|s| Sent { at: s.at / rate.0, ..*s }).collect();
        let mut answers = Vec::new();
        let mut unsteady = Unsteady::new(*noise, *launch, SEED);
        let takes = |seconds, _| unsteady.seconds(seconds, LONG_AGO);
        let pressure = FastReplay::default().run_as(costs, Bounds::from(*limits), &sent, &mut answers, takes);
        // Sequences in prefill run too, and are not among those that decode.
        let near_death = *max_seqs_before_oom < limits.max_num_seqs
            && pressure.most_decoding as f64 > NEAR_DEATH * f64::from(*max_seqs_before_oom);
        let exact = pressure.kv_full == 0 && pressure.preemptions == 0 && !near_death;
        if pressure.most_decoding > u64::from(*max_seqs_before_oom) {
            return Some((f64::INFINITY, exact));
        }
        let mut tally = Tally::new(&self.traffic.slo, requests as u32);
        for (id, (sent, answer)) in (0..).zip(sent.iter().zip(&answers)) {
            tally.answered(id, sent.at, *answer, sent.output);
        }
        Some((tally.margin(), exact))
    }

    /// The limit by bracketing it with runs of so many requests.
    pub fn coarse(&self, requests: u32) -> Capacity {
        let none = Capacity { rate: Rate(0.0), slope: FLATTEST, requests };
        let short = SKETCH.min(requests);
        let Some(about) = bracket(|rate| self.rough_margin(rate, short), Rate(1.0), 2.0, SKETCHED) else { return none };
        let found = bracket(|rate| self.rough_margin(rate, requests), about.middle(), SKETCHED, BRACKETED);
        found.map_or(none, |found| Capacity { rate: found.root(), slope: found.slope(), requests })
    }

    /// The same limit by runs of so many requests, beginning where a coarse one lies.
    pub fn fine(&self, coarse: Capacity, requests: u32) -> Capacity {
        let (mut rate, mut slope) = (coarse.rate.0, coarse.slope.max(FLATTEST));
        let (mut before, mut deadly): (Option<(f64, f64)>, f64) = (None, f64::INFINITY);
        for _ in 0..LONG_RUNS {
            if rate < LEAST_RATE {
                break;
            }
            let margin = self.margin(Rate(rate), requests);
            if margin >= FAR {
                deadly = rate;
                rate *= LOWER;
                continue;
            }
            if let Some((other, its)) = before
                && (margin - its) / (rate / other).ln() > FLATTEST
            {
                slope = (margin - its) / (rate / other).ln();
            }
            before = Some((rate, margin));
            let corrected = rate * (-margin / slope).clamp(-MOST_CORRECTED, MOST_CORRECTED).exp();
            let close = (corrected / rate).ln().abs() < CORRECTED;
            // What sets the limit may be a wall: memory, or a queue that only grows.
            rate = if corrected >= deadly { f64::sqrt(rate * deadly) } else { corrected };
            if close || corrected >= deadly {
                break;
            }
        }
        Capacity { rate: Rate(rate), slope, requests }
    }
}

fn pace(rate: Rate) -> Pace {
    Pace {
        demand: Demand::Open(rate),
        horizon: Seconds(f64::MAX),
        arrival_seed: SEED,
        content_seed: SEED,
        shared_seed: SEED,
        answer_time: Seconds(0.0),
    }
}

/// The promises, and where none of them is about waiting, that nobody waits as long as in a queue that only grows.
fn with_an_end(slo: &[Limit]) -> Vec<Limit> {
    let waits = |limit: &Limit| limit.metric.includes_waiting();
    let end = Limit { metric: Metric::Ttft, quantile: 0.99, at_most: ENDLESS };
    slo.iter().cloned().chain((!slo.iter().any(waits)).then_some(end)).collect()
}

fn has_a_limit(plan: &Plan) -> Result<(), NoTruth> {
    if plan.workload.arrivals == ArrivalProcess::Recorded {
        Err(NoTruth::Recorded)
    } else if plan.slo.iter().any(|limit| limit.metric == Metric::Itl) {
        Err(NoTruth::Gaps)
    } else {
        Ok(())
    }
}

/// A rate that holds and a higher one that does not, with their margins.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    low: (f64, f64),
    high: (f64, f64),
}

impl Bracket {
    fn middle(&self) -> Rate {
        Rate(f64::sqrt(self.low.0 * self.high.0))
    }

    /// Where a straight line between the two crosses zero, or the rate that holds where one of them says nothing.
    fn root(&self) -> Rate {
        let ((low, below), (high, above)) = (self.low, self.high);
        let share = if above >= FAR { 0.0 } else { below / (below - above) };
        Rate(low * (high / low).powf(share))
    }

    fn slope(&self) -> f64 {
        ((self.high.1.min(FAR) - self.low.1) / (self.high.0 / self.low.0).ln()).max(FLATTEST)
    }
}

/// Brackets the highest rate that holds within a factor, from a first guess and the factor of the first strides. None where no rate holds.
fn bracket(margin: impl Fn(Rate) -> f64, guess: Rate, stride: f64, within: f64) -> Option<Bracket> {
    let at = |rate: f64| (rate, margin(Rate(rate)));
    let first = at(guess.0);
    let (mut low, mut high, mut stride) = (first, first, stride);
    while low.1 > 0.0 {
        high = low;
        low = at(low.0 / stride);
        if low.0 < LEAST_RATE {
            return None;
        }
        stride *= stride.min(2.0);
    }
    while high.1 <= 0.0 {
        low = high;
        high = at(high.0 * stride);
        if high.0 > MOST_RATE {
            return Some(Bracket { low: high, high });
        }
        stride *= stride.min(2.0);
    }
    while high.0 / low.0 > within {
        let middle = at(f64::sqrt(low.0 * high.0));
        if middle.1 <= 0.0 { low = middle } else { high = middle }
    }
    Some(Bracket { low, high })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;
    use crate::rehearsal::{Quirks, Truth};
    use crate::settings::parse;
    use crate::twin::{Noise, Profile};
    use crate::workload::Material;

    #[test]
    fn a_bracket_holds_the_limit_from_any_guess() {
        for (limit, guess) in [(0.03, 1.0), (1.1, 1.0), (77.0, 80.0), (77.0, 3.0)] {
            let found = bracket(|rate| 3.0 * (rate.0 / limit).ln(), Rate(guess), 1.06, 1.02).unwrap();
            assert!((found.root().0 / limit - 1.0).abs() < 1e-9 && (found.slope() - 3.0).abs() < 1e-6, "{found:?}");
        }
        assert!(bracket(|_| 1.0, Rate(1.0), 2.0, 1.02).is_none());
    }

    fn plan() -> Plan {
        parse("quickstart.toml", include_str!("../../search-spaces/quickstart.toml")).unwrap()
    }

    fn job<'a>(plan: &'a Plan, profile: &'a Profile, material: &'a Material, quirks: Quirks) -> Job<'a> {
        Job {
            plan,
            profile,
            material,
            quirks,
            workers: 1,
            strategy: crate::search::strategy,
            truth_requests: 20_000,
            progress: &|_, _, _| (),
            sink: &Silent,
        }
    }

    #[test]
    fn without_noise_it_is_the_limit_that_replays_find() {
        let mut plan = plan();
        let [seqs, tokens] = [16, 256].map(crate::space::Value::Int);
        let keep = plan.space.baseline().with("gpu-memory-utilization", crate::space::Value::Real(0.94));
        let keep = keep.with("max-num-seqs", seqs).with("max-num-batched-tokens", tokens);
        plan.space.parameters.iter_mut().for_each(|p| p.values.retain(|v| keep.0[&p.name].same(v)));
        let (profile, material) = (Profile::quickstart(), Material::default());
        let job = job(&plan, &profile, &material, Quirks::default());
        let replayed = Truth::of(job).unwrap().limit(&keep).unwrap().0;
        let long_run = LongRunTraffic::new(job, 20_000).unwrap();
        let long = long_run.long(&keep).unwrap();
        let fine = long.fine(long.coarse(20_000), 20_000);
        assert!((fine.rate.0 / replayed - 1.0).abs() < 0.01, "{fine:?} against {replayed}");
    }

    #[test]
    fn the_fast_way_says_what_the_blocks_say() {
        let (plan, material) = (plan(), Material::default());
        let noise = Noise { step_to_step: 0.05, ..Noise::default() };
        let profile = Profile { noise: Some(noise), ..Profile::quickstart() };
        let long_run = LongRunTraffic::new(job(&plan, &profile, &material, Quirks::default()), 3_000).unwrap();
        let fast = long_run.long(&plan.space.baseline()).unwrap();
        let slow = LongRunReplay { drawn: None, ..long_run.long(&plan.space.baseline()).unwrap() };
        for rate in [20.0, 40.0] {
            let (fast, slow) = (fast.margin(Rate(rate), 3_000), slow.margin(Rate(rate), 3_000));
            assert!((fast - slow).abs() < 1e-6, "{fast} against {slow} at {rate}");
        }
    }

    #[test]
    fn noise_and_age_lower_a_limit_and_what_does_not_start_has_none() {
        let (plan, steady, material) = (plan(), Profile::quickstart(), Material::default());
        let stalls = Noise { stall_chance: 2e-3, stall_seconds: 0.1, ..Noise::default() };
        let noisy = Profile { noise: Some(stalls), ..steady.clone() };
        let aged = Noise { ageing: 0.1, ageing_seconds: 60.0, ..Noise::default() };
        let aged = Profile { noise: Some(aged), ..steady.clone() };
        let limit = |profile: &Profile| {
            let long_run = LongRunTraffic::new(job(&plan, profile, &material, Quirks::default()), 3_000).unwrap();
            long_run.long(&plan.space.baseline()).unwrap().coarse(3_000).rate.0
        };
        let plain = limit(&steady);
        assert!(limit(&noisy) < plain && limit(&aged) < 0.95 * plain);
        let none = plan.space.baseline().with("gpu-memory-utilization", crate::space::Value::Real(0.98));
        assert!(
            LongRunTraffic::new(job(&plan, &steady, &material, Quirks::default()), 1).unwrap().long(&none).is_none()
        );
    }
}
