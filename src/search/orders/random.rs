//! Points drawn uniformly at random, none of them twice.

use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{Order, Past};
use crate::space::{Grid, Point, Space};

/// Draws that may be forbidden or known in a row, before what is open is counted instead.
const DRAWS: u32 = 1_000;
/// At most so many open points are counted: nearly all of a larger space is open to a draw, or else nearly all is forbidden.
const COUNTED: usize = 100_000;

pub struct Random {
    draws: Draws,
    left: usize,
}

impl Random {
    /// At most `wanted` points; the seed alone decides which.
    pub fn new(space: &Space, held: &Point, wanted: usize, seed: u64) -> Self {
        Self { draws: Draws::new(space, held, seed), left: wanted }
    }
}

impl Order for Random {
    fn next(&mut self, past: &Past) -> Option<Point> {
        self.left = self.left.checked_sub(1)?;
        let point = self.draws.open_point(past);
        if point.is_none() {
            self.left = 0;
        }
        point
    }

    fn left(&self) -> usize {
        self.left
    }
}

/// A source of random points of a space.
pub(super) struct Draws {
    pub(super) space: Space,
    pub(super) held: Point,
    pub(super) rng: ChaCha8Rng,
}

impl Draws {
    /// With the parameters in `held` at that value.
    pub(super) fn new(space: &Space, held: &Point, seed: u64) -> Self {
        Self { space: space.clone(), held: held.clone(), rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// One of the open points, each as likely as any other.
    pub(super) fn open_point(&mut self, past: &Past) -> Option<Point> {
        for _ in 0..DRAWS {
            let point = self.point();
            if self.space.admits(&point) && past.is_open(&point) {
                return Some(point);
            }
        }
        let open = Grid::new(&self.space, &self.held).filter(|point| past.is_open(point));
        let open: Vec<Point> = open.take(COUNTED).collect();
        (!open.is_empty()).then(|| open[self.rng.random_range(0..open.len())].clone())
    }

    fn point(&mut self) -> Point {
        let Self { space, held, rng } = self;
        let drawn = space.parameters.iter().map(|parameter| {
            let drawn = &parameter.values[rng.random_range(0..parameter.values.len())];
            (parameter.name.clone(), held.get(&parameter.name).unwrap_or(drawn).clone())
        });
        Point(drawn.collect())
    }
}
