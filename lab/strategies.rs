//! Control arms of the search: orders of points, each with a whole search of its rate. The program has none of them.
//!
//! `benches/search` compares them with the program's own; `tests/cli/lab.rs` tests them.

use autotune::search::{History, Order, PointByPoint, Strategy};
use autotune::settings::Plan;
use autotune::space::{Point, Space};
use autotune::units::Rate;
use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

mod grid;

pub use grid::Grid;

/// Draws that may be forbidden or known in a row, before what is open is counted instead.
const DRAWS: u32 = 1_000;
/// At most so many open points are counted: nearly all of a larger space is open to a draw, or else nearly all is forbidden.
const COUNTED: usize = 100_000;

/// As many points as the plan has candidates, drawn uniformly at random, none of them twice.
pub fn random(plan: &Plan, seed: u64, baseline: &Point, first_rate: Rate) -> Box<dyn Strategy> {
    let (space, left) = (plan.space.clone(), plan.search.candidates as usize);
    let order = move |held: &Point| Random {
        space: space.clone(),
        held: held.clone(),
        rng: ChaCha8Rng::seed_from_u64(seed),
        left,
    };
    Box::new(PointByPoint::new(plan, baseline, first_rate, None, order))
}

/// Every admitted point, in the order of the grid.
pub fn grid(plan: &Plan, _seed: u64, baseline: &Point, first_rate: Rate) -> Box<dyn Strategy> {
    let space = plan.space.clone();
    Box::new(PointByPoint::new(plan, baseline, first_rate, None, move |held| Every(Grid::new(&space, held))))
}

struct Every(Grid);

impl Order for Every {
    fn next(&mut self, history: &History) -> Option<Point> {
        self.0.find(|point| history.is_open(point))
    }

    fn left(&self) -> usize {
        self.0.left()
    }
}

struct Random {
    space: Space,
    held: Point,
    rng: ChaCha8Rng,
    left: usize,
}

impl Order for Random {
    fn next(&mut self, history: &History) -> Option<Point> {
        self.left = self.left.checked_sub(1)?;
        let point = self.open_point(history);
        if point.is_none() {
            self.left = 0;
        }
        point
    }

    fn left(&self) -> usize {
        self.left
    }
}

impl Random {
    /// One of the open points, each as likely as any other.
    fn open_point(&mut self, history: &History) -> Option<Point> {
        for _ in 0..DRAWS {
            let point = self.point();
            if self.space.admits(&point) && history.is_open(&point) {
                return Some(point);
            }
        }
        let open = Grid::new(&self.space, &self.held).filter(|point| history.is_open(point));
        let open: Vec<Point> = open.take(COUNTED).collect();
        (!open.is_empty()).then(|| open[self.rng.random_range(0..open.len())].clone())
    }

    fn point(&mut self) -> Point {
        let Self { space, held, rng, .. } = self;
        let drawn = space.parameters.iter().map(|parameter| {
            let drawn = &parameter.values[rng.random_range(0..parameter.values.len())];
            (parameter.name.clone(), held.get(&parameter.name).unwrap_or(drawn).clone())
        });
        Point(drawn.collect())
    }
}
