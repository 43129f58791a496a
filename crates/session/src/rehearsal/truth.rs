//! The true limits of a model: for every point of a grid the highest rate that keeps the promises over very many requests.
//!
//! By replay of the steady engine: only for traffic whose times do not depend on the answers, and without what noise adds.

use super::Job;
use crate::rig::{SimulatedEngine, SimulatedRig, prompt_shape};
use crate::verdict::paired::latency;
use autotune_numerics::bisection::narrowed;
use autotune_numerics::overlap::most_at_once;
use autotune_numerics::parallel;
use autotune_plan::settings::{ArrivalProcess, Limit, Metric, Plan, WorkloadKind};
use autotune_plan::space::{Point, candidates};
use autotune_records::units::{Rate, Seconds};
use autotune_twin::{Arrival, EngineFlags, Launch, Scheduler, Speculation, replay_in};
use autotune_workload::{Demand, Pace, mean_output_tokens, source};

/// Limits are known within this factor.
const PRECISION: f64 = 1.002;
/// Replays that one limit takes, about.
const REPLAYS: f64 = 16.0;
/// Most tokens that are simulated on the way to a whole truth: some seconds on one core.
const MOST_TOKENS: f64 = 1.5e9;
/// Rates below this are no rate at all, in requests per second.
const LEAST_RATE: f64 = 1e-3;
/// Rates above this are as good as any.
const MOST_RATE: f64 = 1e6;
/// The seed of the requests; no session's seed is made so.
const SEED: u64 = 77;

/// Why the truth was not computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTruth {
    #[error(
        "the turns of conversations follow their answers, so a replay at fixed times does not tell the true limits"
    )]
    FollowUps,
    #[error("recorded arrivals have one rate only")]
    Recorded,
    #[error("a replay does not tell gaps between tokens, which a promise is about")]
    Gaps,
    #[error("the true limits of {points} points would take too long to compute")]
    TooLong { points: usize },
    #[error("the workload gives no requests")]
    NoRequests,
}

/// The true limits of every point of a grid.
#[derive(Clone, Debug)]
pub struct Truth {
    points: Vec<(Point, Option<Rate>)>,
    requests: usize,
}

impl Truth {
    /// The true limits, unless computing them takes more than some seconds.
    pub fn in_time(job: Job<'_>) -> Result<Self, NoTruth> {
        replayable(job.plan)?;
        let points = job.plan.space.size();
        let answer = mean_output_tokens(&job.plan.workload, job.material);
        let tokens = answer * job.truth_requests as f64 * points as f64 * REPLAYS;
        if tokens > MOST_TOKENS { Err(NoTruth::TooLong { points }) } else { Self::of(job) }
    }

    /// The true limits, however long that takes.
    pub fn of(job: Job<'_>) -> Result<Self, NoTruth> {
        let Job { plan, profile, material, .. } = job;
        replayable(plan)?;
        let rig = SimulatedRig::new(plan.clone(), profile.clone(), 0, material.clone());
        let drawn = draw(job);
        if drawn.is_empty() {
            return Err(NoTruth::NoRequests);
        }
        let points = candidates(&plan.space, &Point::default(), plan.space.size(), 0);
        let limit = |point: &Point| -> Option<Rate> {
            let engine = rig.engine(point, Launch::MEDIAN).ok()?;
            Some(Rate(highest(|rate| holds(&engine, &plan.slo, &drawn, rate))))
        };
        let limits = parallel::map(&points, limit, |done| (job.progress)("true limits", done, points.len()));
        let mut points: Vec<(Point, Option<Rate>)> = points.into_iter().zip(limits).collect();
        points.sort_by(|a, b| b.1.map_or(-1.0, |r| r.0).total_cmp(&a.1.map_or(-1.0, |r| r.0)));
        Ok(Self { points, requests: drawn.len() })
    }

    /// Every point that keeps the constraints with its limit, the best first; None for one that does not start.
    pub fn points(&self) -> &[(Point, Option<Rate>)] {
        &self.points
    }

    /// How many requests each replay has.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// The limit of that point; none for a point that does not start or is not in the grid.
    pub fn limit(&self, point: &Point) -> Option<Rate> {
        let same = |known: &Point| {
            known.0.len() == point.0.len() && known.0.iter().all(|(name, value)| point.has(name, value))
        };
        self.points.iter().find(|(known, _)| same(known))?.1
    }

    /// The point with the highest limit; `None` if no rate holds anywhere.
    pub fn best(&self) -> Option<(&Point, Rate)> {
        let (point, limit) = self.points.first()?;
        Some((point, (*limit).filter(|rate| rate.0 > 0.0)?))
    }
}

fn replayable(plan: &Plan) -> Result<(), NoTruth> {
    if matches!(plan.workload.kind, WorkloadKind::Conversations(_)) {
        Err(NoTruth::FollowUps)
    } else if plan.workload.arrivals == ArrivalProcess::Recorded {
        Err(NoTruth::Recorded)
    } else if plan.slo.iter().any(|limit| limit.metric == Metric::Itl) {
        Err(NoTruth::Gaps)
    } else {
        Ok(())
    }
}

/// The same requests for every point, at one request per second.
fn draw(job: Job<'_>) -> Vec<Arrival> {
    let pace = Pace { arrival_seed: SEED, ..Pace::new(Demand::Open(Rate(1.0)), Seconds(f64::MAX), 0) };
    let mut source = source(&job.plan.workload, job.material, pace);
    std::iter::from_fn(|| source.take())
        .take(job.truth_requests)
        .map(|planned| {
            // Prompts that share nothing on purpose need no hashes, which only cost memory.
            let prompt = prompt_shape(&planned.prompt, job.profile.memory.block_size, planned.shared_tokens > 0);
            Arrival { due_s: planned.due.0, prompt, output_tokens: planned.output_tokens }
        })
        .collect()
}

/// Whether every promise holds over all requests at that rate, and the memory does.
fn holds(engine: &SimulatedEngine, slo: &[Limit], requests: &[Arrival], rate: f64) -> bool {
    let EngineFlags { draft_tokens, acceptance, max_model_len, prefix_caching, .. } = engine.flags;
    let fits = |a: &&Arrival| a.prompt.tokens + a.output_tokens <= max_model_len;
    let arrivals = requests.iter().filter(fits).map(|a| {
        let mut arrival = Arrival { due_s: a.due_s / rate, ..a.clone() };
        if !prefix_caching {
            arrival.prompt.blocks.clear();
        }
        arrival
    });
    let drafts = (draft_tokens > 0).then(|| Speculation::new(draft_tokens, acceptance, SEED));
    let idle = Scheduler::new(engine.costs, engine.limits).on(engine.kernels).sparing(true);
    let done = replay_in(&mut idle.speculating(drafts), &engine.costs, arrivals);
    let flights = || done.iter().zip(requests.iter().filter(fits)).map(|(answer, a)| (*answer, a.output_tokens));
    // A request that the engine refuses breaks every promise.
    let refused = requests.len() - done.len();
    let kept = slo.iter().all(|limit| {
        let breaks = |flight| latency(limit.metric, flight).is_some_and(|latency| latency > limit.at_most.0);
        let broken = flights().filter(|flight| flight.0.last.is_infinite() || breaks(*flight)).count();
        (refused + broken) as f64 <= (1.0 - limit.quantile) * requests.len() as f64 + 1e-6
    });
    // At least as many requests are unanswered at once as run.
    let most = || most_at_once(done.iter().map(|r| (r.at, r.last)));
    kept && (engine.max_seqs_before_oom >= engine.limits.max_num_seqs || most() <= engine.max_seqs_before_oom)
}

/// The highest rate at which something holds that holds below some rate and not above it; 0 where it never does.
fn highest(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while high < MOST_RATE && holds(high) {
        (low, high) = (high, high * 2.0);
    }
    if low == 0.0 {
        low = high / 2.0;
        while !holds(low) {
            (low, high) = (low / 2.0, low);
            if low < LEAST_RATE {
                return 0.0;
            }
        }
    }
    narrowed((low, high), PRECISION, |middle| Some(holds(middle))).map_or(low, |(low, _)| low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_is_found_above_and_below_the_first_guess_or_not_at_all() {
        for limit in [0.03, 0.9, 1.1, 77.0] {
            let found = highest(|rate| rate <= limit);
            assert!(found <= limit && found > limit / (PRECISION * PRECISION), "{found} for {limit}");
        }
        assert_eq!(highest(|_| false), 0.0);
    }
}
