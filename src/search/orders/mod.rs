//! In which order points are tried.

mod grid;
mod quasi_random;
mod random;

use std::collections::VecDeque;

use super::Infeasible;
use crate::space::Point;
use crate::units::Rate;

pub use quasi_random::quasi_random;
pub use random::Random;

/// What became of the points so far.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Each point that was tried, in that order, the baseline first, with what it kept.
    pub tried: Vec<(Point, Option<Rate>)>,
    pub known: Infeasible,
}

impl Past {
    /// Whether the point is worth a launch: it was not tried and is not known to fail.
    pub fn is_open(&self, point: &Point) -> bool {
        self.tried.iter().all(|(tried, _)| tried != point) && !self.known.rules_out(point)
    }
}

/// An order of points. It is asked for the next one when the last one has ended.
pub trait Order: Send {
    /// The next open point; none when there are no more.
    fn next(&mut self, past: &Past) -> Option<Point>;

    /// At most how many are still to come.
    fn left(&self) -> usize;
}

/// The order of a list.
impl Order for VecDeque<Point> {
    fn next(&mut self, past: &Past) -> Option<Point> {
        while let Some(point) = self.pop_front() {
            if past.is_open(&point) {
                return Some(point);
            }
        }
        None
    }

    fn left(&self) -> usize {
        self.len()
    }
}
