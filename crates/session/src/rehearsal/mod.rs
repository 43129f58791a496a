//! Rehearsals: whole sessions on a simulated engine in virtual time, with many seeds, before a GPU is booked.
//!
//! Nothing here is a measurement, and only the requests of a [`recorded`] session are written. The main job's code runs on another rig.

mod scope;
mod spending;
mod spread;
mod truth;

use std::path::Path;

use futures_util::FutureExt;
use serde::Serialize;

use crate::events::{Silent, Sink};
use crate::journal::{Conclusion, Cost, Entry, Gain, Header, Journal, PointResult, Record, Status};
use crate::rig::SimulatedRig;
use crate::search::MakeStrategy;
use crate::tune::{Folder, RunnerError, Session, TrialRunner};
use autotune_numerics::parallel;
use autotune_plan::settings::Plan;
use autotune_plan::space::Point;
use autotune_records::units::{Rate, Seconds};
use autotune_twin::Profile;
use autotune_workload::Material;

pub use scope::{ScopeError, not_simulated};
pub use spending::Spending;
pub use spread::Spread;
pub use truth::{NoTruth, Truth};

/// Requests of each replay that decides a true limit: with 20,000 limits near the knee still come out 4 % too low.
pub const TRUTH_REQUESTS: usize = 60_000;

/// What a simulated engine has that its profile does not say. Nothing, unless a benchmark wants more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Deviations {
    /// The share of conversations whose answers the cache does not find when they are sent again.
    pub misses: f64,
    /// What the first start takes, where the others find warm weights.
    pub first_start: Option<Seconds>,
}

#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The plan, its budget included.
    pub plan: &'a Plan,
    /// The engine that is simulated.
    pub profile: &'a Profile,
    /// What the workload is made from.
    pub material: &'a Material,
    /// What the engine has that its profile does not say.
    pub deviations: Deviations,
    /// How many engines run at the same time, each on a GPU of its own; at least 1.
    pub workers: usize,
    /// How the space is searched: [`crate::search::strategy`] is the plan's own way.
    pub strategy: MakeStrategy,
    /// Requests of each replay that decides a true limit; see [`TRUTH_REQUESTS`].
    pub truth_requests: usize,
    /// Called after each part: what it was, how many are done, how many there are.
    pub progress: &'a (dyn Fn(&str, usize, usize) + Sync),
    /// Hears the steps of every session.
    pub sink: &'a dyn Sink,
}

impl<'a> Job<'a> {
    /// One engine at a time, as its profile says it is, searched in the plan's own way. Nobody hears its steps.
    pub fn of(plan: &'a Plan, profile: &'a Profile, material: &'a Material, truth_requests: usize) -> Self {
        let (deviations, strategy) = (Deviations::default(), crate::search::strategy);
        Job {
            plan,
            profile,
            material,
            deviations,
            workers: 1,
            strategy,
            truth_requests,
            progress: &|_, _, _| (),
            sink: &Silent,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rehearsed {
    pub seed: u64,
    pub status: Status,
    pub because: String,
    /// What it would have cost.
    pub cost: Cost,
    /// How long it would have taken: with one worker as long as its engine ran.
    pub elapsed: Seconds,
    /// What its time went into.
    pub spending: Spending,
    pub baseline: Option<PointResult>,
    pub best: Option<PointResult>,
    /// The certified rate of the chosen point over that of the defaults, minus one; by estimates where not both were certified.
    pub gain: Option<f64>,
    /// The gain as it was stated, with its interval; `None` if the defaults were chosen.
    pub stated: Option<Gain>,
    pub gain_certified: bool,
    /// What the budget left out.
    pub left_out: Vec<String>,
}

/// How good the answers were, against the model's own truth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgainstTruth {
    /// Points of the grid that keep the constraints.
    pub points: usize,
    /// Those of them that do not start.
    pub not_starting: usize,
    pub requests: usize,
    /// The point with the highest true limit.
    pub best: Point,
    pub best_rate: Rate,
    /// The true limit of the defaults, where the space file gives them all.
    pub baseline_rate: Option<Rate>,
    /// The true limit of the chosen points over that of the best one.
    pub chosen: Option<Spread>,
    /// The share of sessions, 0 to 1, that chose a point within 3 % of the best one.
    pub within_3_percent: f64,
    /// How many certified rates there are, of chosen points and of defaults.
    pub certified: usize,
    /// The share of these, 0 to 1, that lie above the truth.
    pub above_truth: f64,
    /// The share of these, 0 to 1, that lie above it by more than 3 %.
    pub above_truth_by_3_percent: f64,
}

/// A point that sessions chose.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chosen {
    pub point: Point,
    /// How many sessions chose it.
    pub sessions: usize,
    /// Its true limit, where that was computed.
    pub true_rate: Option<Rate>,
}

/// The whole result, of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rehearsal {
    /// Always true: nothing in it was measured.
    pub simulation: bool,
    pub profile: String,
    /// Where the profile's numbers come from.
    pub source: String,
    /// Fixed arguments that the simulation leaves out of account.
    pub not_simulated: Vec<String>,
    pub budget: Seconds,
    /// How often sessions ended how.
    pub statuses: Vec<(Status, usize)>,
    pub launches: Option<Spread>,
    /// Engines that run at the same time.
    pub workers: usize,
    /// Seconds of the GPU that a session would take, summed over the workers.
    pub gpu_seconds: Option<Spread>,
    /// Seconds that it would last.
    pub elapsed_seconds: Option<Spread>,
    /// The gain over the defaults, where there is one to compare.
    pub gain: Option<Spread>,
    /// How many of these gains are between certified rates; the others are between estimates of the search.
    pub gains_certified: usize,
    /// The chosen points, the most frequent first.
    pub chosen: Vec<Chosen>,
    /// The answers against the truth of the model.
    pub truth: Option<AgainstTruth>,
    /// Why there is no truth beside them.
    pub no_truth: Option<String>,
    pub sessions: Vec<Rehearsed>,
}

/// Why there is no rehearsal.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// The space file asks for what the model does not know.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    #[error("the session with seed {seed} could not go on: {why}")]
    Session { seed: u64, why: RunnerError },
}

/// Rehearses the job with each of the seeds, and compares the answers with the truth of the model where that is computed in time.
pub fn rehearse(job: Job<'_>, seeds: &[u64]) -> Result<Rehearsal, RehearsalError> {
    let not_simulated = not_simulated(job.plan, job.profile)?;
    let sessions =
        parallel::map(seeds, |seed| session(&job, *seed), |done| (job.progress)("sessions", done, seeds.len()));
    let sessions = sessions.into_iter().collect::<Result<Vec<Rehearsed>, _>>()?;
    let (truth, no_truth) = match Truth::in_time(job) {
        Ok(truth) => (Some(truth), None),
        Err(why) => (None, Some(why.to_string())),
    };
    let spread = |value: fn(&Rehearsed) -> Option<f64>| Spread::of(sessions.iter().filter_map(value).collect());
    Ok(Rehearsal {
        simulation: true,
        profile: job.profile.name.clone(),
        source: job.profile.source.clone(),
        not_simulated,
        budget: job.plan.budget.gpu_time.into(),
        statuses: statuses(&sessions),
        launches: spread(|s| Some(f64::from(s.cost.launches))),
        workers: job.workers,
        gpu_seconds: spread(|s| Some(s.cost.engine_seconds.0)),
        elapsed_seconds: spread(|s| Some(s.elapsed.0)),
        gain: spread(|s| s.gain),
        gains_certified: sessions.iter().filter(|s| s.gain_certified).count(),
        chosen: chosen(&sessions, truth.as_ref()),
        truth: truth.as_ref().and_then(|truth| against(&sessions, truth, job.plan)),
        no_truth,
        sessions,
    })
}

/// Plays a session to its end.
fn play(
    job: &Job<'_>,
    seed: u64,
    folder: Option<Folder>,
    journal: Journal,
) -> Result<(Conclusion, Journal, Seconds), RehearsalError> {
    // Each worker finds cold weights at its first start.
    let rig = || {
        SimulatedRig::new(job.plan.clone(), job.profile.clone(), seed, job.material.clone())
            .misses(job.deviations.misses)
            .first_start(job.deviations.first_start)
    };
    let rigs = (0..job.workers.max(1)).map(|_| rig()).collect();
    let trial_runner = TrialRunner::new(rigs, job.plan, seed, job.sink, folder, journal);
    let mut session = Session::new(trial_runner, job.plan, job.sink).with_strategy(job.strategy);
    // The simulated rig waits for nothing: the session ends when it is first asked, and needs no runtime.
    let ended = session.run().now_or_never();
    let stuck = || Err(RunnerError::Machine("the simulated rig waits for something".into()));
    let conclusion = ended.unwrap_or_else(stuck).map_err(|why| RehearsalError::Session { seed, why })?;
    Ok((conclusion, session.trial_runner().journal().clone(), session.trial_runner().elapsed()))
}

/// The journal of a session on one engine, each record with the time at which that engine would come to it. The folder keeps each request of its
/// probes.
///
/// # Errors
/// The session cannot go on, or the folder cannot be written.
pub fn recorded(job: &Job<'_>, header: Header, begun: f64, folder: &Path) -> Result<Journal, RehearsalError> {
    let (seed, folder) = (header.seed, Folder { writer: None, path: folder.to_owned() });
    let first = Entry { at: begun, record: Record::Header(Box::new(header)) };
    let journal = Journal { entries: vec![first], ..Journal::default() };
    let (_, mut journal, _) = play(job, seed, Some(folder), journal)?;
    let spent = |records: usize| Cost::of(&journal.entries[..records]).engine_seconds.0;
    let times: Vec<f64> = (1..=journal.entries.len()).map(|records| begun + spent(records)).collect();
    journal.entries.iter_mut().zip(times).for_each(|(entry, at)| entry.at = at);
    Ok(journal)
}

/// One whole session.
///
/// # Errors
/// It cannot go on.
pub fn session(job: &Job<'_>, seed: u64) -> Result<Rehearsed, RehearsalError> {
    let (conclusion, journal, elapsed) = play(job, seed, None, Journal::default())?;
    let (cost, spending) = (Cost::of(&journal.entries), Spending::of(&journal.entries));
    let (gain, gain_certified) = gain(&conclusion).map_or((None, false), |(gain, certified)| (Some(gain), certified));
    let Conclusion { status, because, baseline, best, left_out, .. } = conclusion;
    let stated = best.as_ref().zip(baseline.as_ref()).and_then(|(best, baseline)| Gain::of(best, baseline));
    Ok(Rehearsed {
        seed,
        status,
        because,
        cost,
        elapsed,
        spending,
        baseline,
        best,
        gain,
        stated,
        gain_certified,
        left_out,
    })
}

/// The gain, and whether both points are certified.
fn gain(conclusion: &Conclusion) -> Option<(f64, bool)> {
    let (baseline, best) = (conclusion.baseline.as_ref()?, conclusion.best.as_ref()?);
    let certified = baseline.certified_rate.zip(best.certified_rate);
    let (before, after) = certified.or_else(|| baseline.estimated_rate.zip(best.estimated_rate))?;
    Some((after.0 / before.0 - 1.0, certified.is_some()))
}

fn statuses(sessions: &[Rehearsed]) -> Vec<(Status, usize)> {
    [Status::Certified, Status::Uncertified, Status::NotReachable, Status::NeverStarted, Status::Interrupted]
        .into_iter()
        .map(|status| (status, sessions.iter().filter(|s| s.status == status).count()))
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn chosen(sessions: &[Rehearsed], truth: Option<&Truth>) -> Vec<Chosen> {
    let mut chosen: Vec<Chosen> = Vec::new();
    for best in sessions.iter().filter_map(|s| s.best.as_ref()) {
        match chosen.iter_mut().find(|c| c.point == best.point) {
            Some(known) => known.sessions += 1,
            None => {
                let true_rate = truth.and_then(|t| t.limit(&best.point));
                chosen.push(Chosen { point: best.point.clone(), sessions: 1, true_rate });
            }
        }
    }
    chosen.sort_by_key(|c| std::cmp::Reverse(c.sessions));
    chosen
}

fn against(sessions: &[Rehearsed], truth: &Truth, plan: &Plan) -> Option<AgainstTruth> {
    let (best, best_rate) = truth.best()?;
    let chosen: Vec<f64> = sessions
        .iter()
        .filter_map(|s| s.best.as_ref())
        .filter_map(|best| Some(truth.limit(&best.point)?.0 / best_rate.0))
        .collect();
    let placed = sessions.iter().flat_map(|s| {
        let both = s.baseline.as_ref().zip(s.best.as_ref()).is_none_or(|(baseline, best)| baseline.point != best.point);
        s.best.iter().chain(s.baseline.iter().filter(move |_| both))
    });
    let over: Vec<f64> =
        placed.filter_map(|placed| Some(placed.certified_rate?.0 / truth.limit(&placed.point)?.0)).collect();
    let share = |values: &[f64], holds: fn(f64) -> bool, of: usize| {
        values.iter().filter(|v| holds(**v)).count() as f64 / of.max(1) as f64
    };
    Some(AgainstTruth {
        points: truth.points().len(),
        not_starting: truth.points().iter().filter(|(_, limit)| limit.is_none()).count(),
        requests: truth.requests(),
        best: best.clone(),
        best_rate,
        baseline_rate: truth.limit(&plan.space.baseline()),
        within_3_percent: share(&chosen, |quality| quality >= 0.97, sessions.len()),
        certified: over.len(),
        above_truth: share(&over, |ratio| ratio > 1.0, over.len()),
        above_truth_by_3_percent: share(&over, |ratio| ratio > 1.03, over.len()),
        chosen: Spread::of(chosen),
    })
}

#[cfg(test)]
mod tests;
