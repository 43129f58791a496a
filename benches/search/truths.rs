//! The true limits of the surfaces, kept in a file, since they take longer than everything else.

use std::collections::BTreeMap;
use std::path::PathBuf;

use autotune::parallel;
use autotune::rehearsal::Job;
use autotune::settings::Plan;
use autotune::space::{Point, candidates};
use autotune::twin::Profile;
use autotune::units::Rate;
use autotune::workload::{Material, mean_output_tokens};
use autotune_numerics::seeds::{FNV_OFFSET, fnv};
use serde::{Deserialize, Serialize};

use crate::arms::{ARMS, Arm};
use crate::capacity::{Capacity, LongRunTraffic};
use crate::surfaces::Surface;

/// Requests of the runs that rank all points, and of those behind a limit that counts, where a run takes a moment.
const COARSE: u32 = 50_000;
const FINE: u32 = 1_000_000;
/// Counts changes of how limits are computed.
const METHOD: u32 = 4;
/// A point whose coarse limit is this near the best one's gets a fine one.
const NEAR: f64 = 0.85;
/// The same three where every run takes its time; other points get their fine limits when a session chooses them.
const SLOW_COARSE: u32 = 20_000;
const SLOW_FINE: u32 = 300_000;
const SLOW_NEAR: f64 = 0.94;
/// Answers of fewer tokens make no run slow.
const SHORT_ANSWER: f64 = 100.0;
/// Fine limits that are computed between two writes of the file.
const TOGETHER: usize = 8;

/// Surfaces by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Truths(BTreeMap<String, Known>);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Known {
    /// Of everything but the grid that the limits depend on.
    digest: String,
    /// By point; none for one that does not start.
    points: BTreeMap<String, Option<Capacity>>,
}

fn path() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "benches", "search", "truths.json"].iter().collect()
}

impl Truths {
    /// Those of the file whose surfaces are still the same.
    pub fn kept(surfaces: &[Surface]) -> Self {
        let text = std::fs::read_to_string(path()).unwrap_or_default();
        let mut kept: Self = serde_json::from_str(&text).unwrap_or_default();
        kept.0.retain(|name, known| surfaces.iter().any(|s| s.name == name && digest(s) == known.digest));
        kept
    }

    /// Writes them to the file.
    pub fn keep(&self) {
        std::fs::write(path(), serde_json::to_string_pretty(self).unwrap() + "\n").unwrap();
    }

    /// The limit of a point in requests per second; 0 for one that does not start.
    pub fn rate(&self, surface: &str, point: &Point) -> f64 {
        let known = self.0.get(surface).and_then(|known| known.points.get(&point.to_string()));
        known.copied().flatten().map_or(0.0, |capacity| capacity.rate.0)
    }

    /// The best point of a surface with its limit; none where no rate holds anywhere.
    pub fn best(&self, surface: &str) -> Option<(&str, f64)> {
        let points = &self.0.get(surface)?.points;
        let rates = points.iter().filter_map(|(point, capacity)| Some((point.as_str(), (*capacity)?)));
        let best = rates.filter(|(_, c)| c.rate.0 > 0.0).max_by(|a, b| a.1.rate.0.total_cmp(&b.1.rate.0));
        best.map(|(point, capacity)| (point, capacity.rate.0))
    }

    /// How many points a surface has, and how many limits lie within 3 % of the best.
    pub fn count(&self, surface: &str) -> (usize, usize) {
        let best = self.best(surface).map_or(f64::INFINITY, |(_, rate)| rate);
        let points = self.0.get(surface).map(|known| &known.points);
        let near = |c: &&Option<Capacity>| c.is_some_and(|c| c.rate.0 >= 0.97 * best);
        points.map_or((0, 0), |points| (points.len(), points.values().filter(near).count()))
    }

    /// How many limits come from the full number of requests.
    pub fn fine(&self, surface: &str) -> usize {
        let fine = |c: &&Option<Capacity>| c.is_some_and(|c| c.requests >= SLOW_FINE);
        self.0.get(surface).map_or(0, |known| known.points.values().filter(fine).count())
    }

    /// Computes the missing limits. Every point gets a coarse one; those near the best, the defaults and those asked for get a fine
    /// one.
    pub fn complete(&mut self, surfaces: &[&Surface], asked: &[(&str, Point)], long: bool) {
        for surface in surfaces {
            let known = self.0.entry(surface.name.to_owned()).or_default();
            known.digest = digest(surface);
            let plan = surface.plan(&known_arm(surface));
            let grid = candidates(&plan.space, &Point::default(), plan.space.size(), 0);
            known.points.retain(|key, _| grid.iter().any(|point| point.to_string() == *key));
            let material = Material::default();
            let job = job(surface, &plan, &material);
            self.rank(surface.name, job, &grid);
            if long {
                let asked = asked.iter().filter(|(name, _)| *name == surface.name).map(|(_, point)| point.clone());
                let asked: Vec<Point> = asked.chain([plan.space.baseline()]).collect();
                self.refine(surface.name, job, &grid, &asked);
            }
        }
    }

    /// A coarse limit for every point that has none.
    fn rank(&mut self, surface: &str, job: Job<'_>, grid: &[Point]) {
        let known = &self.0[surface].points;
        let missing: Vec<Point> =
            grid.iter().filter(|point| !known.contains_key(&point.to_string())).cloned().collect();
        if missing.is_empty() {
            return;
        }
        let traffic = LongRunTraffic::new(job, COARSE).unwrap();
        let coarse = |point: &Point| {
            let long = traffic.long(point)?;
            Some(long.coarse(if long.is_fast(Rate(1e-3)) { COARSE } else { SLOW_COARSE }))
        };
        let limits = parallel::map(&missing, coarse, |done| tell(surface, "coarse", done, missing.len()));
        self.learn(surface, missing.iter().zip(limits));
    }

    /// A fine limit for the points that count and have none.
    fn refine(&mut self, surface: &str, job: Job<'_>, grid: &[Point], asked: &[Point]) {
        let traffic = LongRunTraffic::new(job, FINE).unwrap();
        let short = mean_output_tokens(&job.plan.workload, job.material) < SHORT_ANSWER;
        let near = if short { NEAR } else { SLOW_NEAR };
        loop {
            // Fine limits are often lower: then others are near the best.
            let best = self.best(surface).map_or(f64::INFINITY, |(_, rate)| rate);
            let known = &self.0[surface].points;
            let rough = grid.iter().filter_map(|point| Some((point.clone(), known[&point.to_string()]?)));
            let is_near = |(point, coarse): &(Point, Capacity)| {
                let share = coarse.rate.0 / best;
                let fast = || traffic.long(point).is_some_and(|long| long.is_fast(coarse.rate));
                let is_asked = asked.iter().any(|other| other.to_string() == point.to_string());
                share >= near || is_asked || (share >= NEAR && fast())
            };
            let rough: Vec<(Point, Capacity)> =
                rough.filter(|(_, c)| c.rate.0 > 0.0 && c.requests < SLOW_FINE).filter(is_near).collect();
            if rough.is_empty() {
                return;
            }
            self.refine_these(surface, &traffic, &rough);
        }
    }

    fn refine_these(&mut self, surface: &str, traffic: &LongRunTraffic<'_>, rough: &[(Point, Capacity)]) {
        for (part, points) in rough.chunks(TOGETHER).enumerate() {
            let fine = |(point, coarse): &(Point, Capacity)| {
                let long = traffic.long(point)?;
                Some(long.fine(*coarse, if long.is_fast(coarse.rate) { FINE } else { SLOW_FINE }))
            };
            let limits = parallel::map(points, fine, |done| tell(surface, "fine", part * TOGETHER + done, rough.len()));
            self.learn(surface, points.iter().map(|(point, _)| point).zip(limits));
        }
    }

    fn learn<'a>(&mut self, surface: &str, limits: impl Iterator<Item = (&'a Point, Option<Capacity>)>) {
        let known = self.0.entry(surface.to_owned()).or_default();
        known.points.extend(limits.map(|(point, limit)| (point.to_string(), limit)));
        self.keep();
    }
}

/// An arm that this build knows: limits depend on none.
pub fn known_arm(surface: &Surface) -> Arm {
    *ARMS.iter().find(|arm| surface.try_plan(arm).is_ok()).unwrap()
}

fn job<'a>(surface: &'a Surface, plan: &'a Plan, material: &'a Material) -> Job<'a> {
    Job { deviations: surface.deviations, ..Job::of(plan, &surface.profile, material, COARSE as usize) }
}

fn tell(surface: &str, what: &str, done: usize, of: usize) {
    if done == of || done.is_multiple_of(10) {
        eprintln!("{surface}: {done} of {of} {what} limits");
    }
}

/// FNV-1a of all that limits depend on, the grid apart: whose the machine is says nothing of them.
fn digest(surface: &Surface) -> String {
    let plan = surface.plan(&known_arm(surface));
    let profile = Profile { shared: false, ..surface.profile.clone() };
    let all = (&plan.slo, &plan.workload, &plan.engine.args, &profile, &surface.deviations.misses, FINE, METHOD);
    let hash = fnv(FNV_OFFSET, &serde_json::to_vec(&all).unwrap());
    format!("{hash:016x}")
}
