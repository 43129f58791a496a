//! Control arms of the search: orders of points, each with a whole search of its rate. The program has none of them.
//!
//! `benches/search` compares them with the program's own; `tests/cli/lab.rs` tests them.

use autotune::search::{PointByPoint, Strategy};
use autotune::settings::Plan;
use autotune::space::Point;
use autotune::units::Rate;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

mod grid;

pub use grid::Grid;

/// Of a larger space, only so many points at the beginning of its grid are drawn from.
const LISTED: usize = 1_000_000;

/// As many points as the plan has candidates, drawn uniformly at random, none of them twice. One that is known to fail is not replaced.
pub fn random(plan: &Plan, seed: u64, baseline: &Point, first_rate: Rate) -> Box<dyn Strategy> {
    let (space, defaults, wanted) = (plan.space.clone(), baseline.clone(), plan.search.candidates as usize);
    let order = move |held: &Point| {
        let mut points: Vec<Point> = Grid::new(&space, held).filter(|p| *p != defaults).take(LISTED).collect();
        points.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        points.truncate(wanted);
        points.into_iter()
    };
    Box::new(PointByPoint::new(plan, baseline, first_rate, None, order))
}

/// Every admitted point, in the order of the grid.
pub fn grid(plan: &Plan, _seed: u64, baseline: &Point, first_rate: Rate) -> Box<dyn Strategy> {
    let space = plan.space.clone();
    Box::new(PointByPoint::new(plan, baseline, first_rate, None, move |held| Grid::new(&space, held)))
}
