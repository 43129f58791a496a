//! The true limit of one point: the highest rate that keeps the promises over very many requests, noise, misses and follow-ups included.
//!
//! It is the limit of an engine whose launch has the median speed, long after that launch.

use autotune::rehearsal::{Job, NoTruth};
use autotune::rig::{SimulatedEngine, SimulatedRig, Traffic};
use autotune::settings::{ArrivalProcess, Limit, Metric, Plan};
use autotune::space::Point;
use autotune::twin::{Bounds, FastReplay, Launch, Sent, Unsteady};
use autotune::units::{Rate, Seconds};
use autotune::workload::{Demand, Outline, Pace, outline};
use serde::{Deserialize, Serialize};

mod tally;

use tally::{FAR, Tally};

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
/// The first stride from a coarse limit to a fine one.
const REFINED: f64 = 1.03;
/// The share of the sequences for which there is memory that may decode before blocks must tell whether they all fit.
const NEARLY_OUT_OF_MEMORY: f64 = 0.8;
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

impl Capacity {
    /// Where runs of so many requests bracket a limit; 0 where no rate holds.
    fn of(found: Option<Bracket>, requests: u32) -> Self {
        let (rate, slope) = found.map_or((Rate(0.0), FLATTEST), |found| (found.root(), found.slope()));
        Self { rate, slope, requests }
    }
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
        let Job { plan, profile, material, deviations, .. } = self.job;
        let rig = SimulatedRig::new(plan.clone(), profile.clone(), 0, material.clone()).misses(deviations.misses);
        let engine = SimulatedEngine { age: LONG_AGO, ..rig.engine(point, Launch::MEDIAN).ok()? };
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
    engine: SimulatedEngine,
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

    /// The same by a replay of every block.
    pub fn by_blocks(&self, rate: Rate, requests: u32) -> f64 {
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
        let SimulatedEngine { costs, limits, noise, launch, max_seqs_before_oom, .. } = &self.engine;
        let drawn = self.drawn?;
        let requests = (requests as usize).min(drawn.len());
        let sent: Vec<Sent> = drawn[..requests].iter().map(|s| Sent { at: s.at / rate.0, ..*s }).collect();
        let mut answers = Vec::new();
        let mut unsteady = Unsteady::new(*noise, *launch, SEED);
        let takes = |seconds, _| unsteady.seconds(seconds, LONG_AGO);
        let pressure = FastReplay::default().run_as(costs, Bounds::from(*limits), &sent, &mut answers, takes);
        // Sequences in prefill run too, and are not among those that decode.
        let nearly_out_of_memory = *max_seqs_before_oom < limits.max_num_seqs
            && pressure.most_decoding as f64 > NEARLY_OUT_OF_MEMORY * f64::from(*max_seqs_before_oom);
        let exact = pressure.kv_full == 0 && pressure.preemptions == 0 && !nearly_out_of_memory;
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
        let short = SKETCH.min(requests);
        let Some(about) = bracket(|rate| self.rough_margin(rate, short), Rate(1.0), 2.0, SKETCHED) else {
            return Capacity::of(None, requests);
        };
        let margin = |rate| self.rough_margin(rate, requests);
        Capacity::of(bracket(margin, about.middle(), SKETCHED, BRACKETED), requests)
    }

    /// The same limit by runs of so many requests, beginning where a coarse one lies.
    pub fn fine(&self, coarse: Capacity, requests: u32) -> Capacity {
        let margin = |rate| self.margin(rate, requests);
        Capacity::of(bracket(margin, coarse.rate, REFINED, BRACKETED), requests)
    }
}

fn pace(rate: Rate) -> Pace {
    Pace::new(Demand::Open(rate), Seconds(f64::MAX), SEED)
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
pub struct Bracket {
    low: (f64, f64),
    high: (f64, f64),
}

impl Bracket {
    fn middle(&self) -> Rate {
        Rate(f64::sqrt(self.low.0 * self.high.0))
    }

    /// Where a straight line between the two crosses zero, or the rate that holds where one of them says nothing.
    pub fn root(&self) -> Rate {
        let ((low, below), (high, above)) = (self.low, self.high);
        let share = if above >= FAR { 0.0 } else { below / (below - above) };
        Rate(low * (high / low).powf(share))
    }

    /// How steeply the margin rises between the two, by the logarithm of the rate.
    pub fn slope(&self) -> f64 {
        ((self.high.1.min(FAR) - self.low.1) / (self.high.0 / self.low.0).ln()).max(FLATTEST)
    }
}

/// Brackets the highest rate that holds within a factor, from a first guess and the factor of the first strides. None where no rate holds.
pub fn bracket(margin: impl Fn(Rate) -> f64, guess: Rate, stride: f64, within: f64) -> Option<Bracket> {
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
