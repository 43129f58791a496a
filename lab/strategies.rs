//! The control arm of the search, which the program has not: points at random. Their rates are searched as those of `bisect`.
//!
//! `benches/search` and `examples/random_search.rs` use it; `tests/cli/lab.rs` tests it.

use autotune::search::{PointByPoint, Strategy};
use autotune::settings::Plan;
use autotune::space::{Point, candidates};
use autotune::units::Rate;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Of a larger space, only so many quasi-random points are drawn from.
const LISTED: usize = 1_000;

/// As many points as the plan has candidates, drawn at random, none of them twice. One that is known to fail is not replaced.
pub fn random(plan: &Plan, seed: u64, baseline: &Point, first_rate: Rate) -> Box<dyn Strategy> {
    let (space, defaults, wanted) = (plan.space.clone(), baseline.clone(), plan.search.candidates as usize);
    let order = move |held: &Point| {
        let mut points = candidates(&space, held, space.size().min(LISTED), seed);
        points.retain(|point| *point != defaults);
        points.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        points.truncate(wanted);
        points
    };
    Box::new(PointByPoint::new(plan, baseline, first_rate, order))
}
