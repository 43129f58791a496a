//! Whole sessions of every arm on every surface, and what each was worth.

use std::ops::RangeInclusive;
use std::time::Instant;

use autotune::journal::{Gain, PointResult, Status};
use autotune::parallel;
use autotune::progress::{Plain, Silent, Sink};
use autotune::rehearsal::{Job, Rehearsed, Spending, session};
use autotune::space::Point;
use autotune::workload::Material;
use serde::Serialize;

use crate::arms::Arm;
use crate::surfaces::{Kind, Surface};
use crate::truths::Truths;

/// A session as it ended, with the time that it took us.
pub struct Run<'a> {
    pub surface: &'a Surface,
    pub arm: Arm,
    pub rehearsed: Rehearsed,
    pub millis: f64,
}

/// One session against the truth.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub surface: &'static str,
    pub kind: Kind,
    pub arm: &'static str,
    pub seed: u64,
    pub status: Status,
    pub because: String,
    pub chosen: Option<String>,
    /// The true limit of the chosen point over that of the best one. Where nothing is feasible, 1 for saying so.
    pub quality: f64,
    /// Of the chosen point.
    pub best: Option<CertifiedRate>,
    /// And of the defaults', where these are another point.
    pub baseline: Option<CertifiedRate>,
    /// The gain over the defaults as it was stated.
    pub gain: Option<Gained>,
    pub launches: u32,
    pub probes: u32,
    pub gpu_minutes: f64,
    /// From its begin to its end, however many engines ran meanwhile.
    pub minutes: f64,
    /// What that went into.
    pub spending: Spending,
    /// What the session took us.
    pub millis: f64,
}

/// A certified rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CertifiedRate {
    /// Over the true limit of its point.
    pub of_truth: f64,
    pub confidence: f64,
    /// The stated limit over the true one, and the standard error of its logarithm.
    pub limit: Option<(f64, f64)>,
}

/// A stated gain over the defaults with its interval, which is to hold the true one with 90 %; shares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gained {
    pub stated: Gain,
    pub truth: f64,
}

/// Every session, the arms of a surface one after the other.
pub fn run<'a>(surfaces: &[&'a Surface], arms: &[Arm], seeds: RangeInclusive<u64>, steps: bool) -> Vec<Run<'a>> {
    let tasks: Vec<(&Surface, Arm, u64)> = surfaces
        .iter()
        .flat_map(|surface| arms.iter().map(move |arm| (*surface, *arm)))
        .flat_map(|(surface, arm)| seeds.clone().map(move |seed| (surface, arm, seed)))
        .collect();
    let one = |(surface, arm, seed): &(&'a Surface, Arm, u64)| {
        let (plan, material, plain) = (surface.plan(arm), Material::default(), Plain::new(true));
        let of = Job::of(&plan, &surface.profile, &material, 0);
        let (deviations, strategy) = (surface.deviations, arm.make());
        let sink: &dyn Sink = if steps { &plain } else { &Silent };
        let job = Job { deviations, workers: arm.workers, strategy, sink, ..of };
        let begun = Instant::now();
        let rehearsed = session(&job, *seed).unwrap_or_else(|e| panic!("{} with {}: {e}", surface.name, arm.name));
        Run { surface, arm: *arm, rehearsed, millis: begun.elapsed().as_secs_f64() * 1e3 }
    };
    let begun = Instant::now();
    parallel::map(&tasks, one, |done| {
        if done.is_multiple_of(200) || done == tasks.len() {
            eprintln!("{done} of {} sessions in {:.0} s", tasks.len(), begun.elapsed().as_secs_f64());
        }
    })
}

/// The points whose truth counts: the chosen ones and the certified ones.
pub fn points<'a>(runs: &[Run<'a>]) -> Vec<(&'a str, Point)> {
    let mut points: Vec<(&str, Point)> = Vec::new();
    for run in runs {
        for placed in run.rehearsed.best.iter().chain(&run.rehearsed.baseline) {
            if !points.iter().any(|(name, point)| *name == run.surface.name && *point == placed.point) {
                points.push((run.surface.name, placed.point.clone()));
            }
        }
    }
    points
}

pub fn row(run: &Run<'_>, truths: &Truths) -> Row {
    let Run { surface, arm, rehearsed, millis } = run;
    let best_rate = truths.best(surface.name).map(|(_, rate)| rate);
    let quality = |point: &Point| best_rate.map_or(0.0, |best| truths.rate(surface.name, point) / best);
    let certified = |placed: &PointResult| {
        let truth = truths.rate(surface.name, &placed.point);
        let of_truth = placed.certified_rate?.0 / truth;
        let limit = placed.limit.zip(placed.limit_error).map(|(limit, error)| (limit.0 / truth, error));
        Some(CertifiedRate { of_truth: of_truth.min(9.99), confidence: placed.confidence.unwrap_or(0.0), limit })
    };
    let Rehearsed { seed, status, because, cost, elapsed, spending, baseline, best, stated, .. } = rehearsed;
    let other = baseline.as_ref().filter(|b| best.as_ref().is_none_or(|best| best.point != b.point));
    Row {
        surface: surface.name,
        kind: surface.kind,
        arm: arm.name,
        seed: *seed,
        status: *status,
        because: because.clone(),
        chosen: best.as_ref().map(|best| best.point.to_string()),
        quality: match (best_rate, best) {
            (None, _) => f64::from(u8::from(*status == Status::NotReachable)),
            (Some(_), Some(best)) => quality(&best.point),
            (Some(_), None) => 0.0,
        },
        best: best.as_ref().and_then(certified),
        baseline: other.and_then(certified),
        gain: stated.zip(best.as_ref().zip(baseline.as_ref())).map(|(stated, (best, baseline))| {
            let truth = |placed: &PointResult| truths.rate(surface.name, &placed.point);
            Gained { stated, truth: truth(best) / truth(baseline) - 1.0 }
        }),
        launches: cost.launches,
        probes: cost.probes,
        gpu_minutes: cost.engine_seconds.0 / 60.0,
        minutes: elapsed.0 / 60.0,
        spending: *spending,
        millis: *millis,
    }
}
