//! The order in which points are tried, and the order of the race.

use std::collections::VecDeque;

use super::Infeasible;
use crate::space::{self, Point, Space};
use crate::units::Rate;

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

/// At most `wanted` points; the first is the baseline with what is held, the others are those of a scrambled Sobol sequence.
pub(super) fn quasi_random(space: &Space, held: &Point, baseline: &Point, wanted: usize, seed: u64) -> VecDeque<Point> {
    let mut points = VecDeque::new();
    let raised = baseline.holding(held);
    if space.admits(&raised) && raised != *baseline {
        points.push_back(raised);
    }
    for point in space::candidates(space, held, wanted + 1, seed) {
        if point != *baseline && !points.contains(&point) {
            points.push_back(point);
        }
    }
    points.truncate(wanted);
    points
}
