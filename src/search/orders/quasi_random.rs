//! Quasi-random points behind the baseline with what is held.

use std::collections::VecDeque;

use crate::space::{self, Point, Space};

/// At most `wanted` points; the first is the baseline with what is held, the others are those of a scrambled Sobol sequence.
pub fn quasi_random(space: &Space, held: &Point, baseline: &Point, wanted: usize, seed: u64) -> VecDeque<Point> {
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
