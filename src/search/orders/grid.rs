//! Every admitted point, in the order of the grid.

use super::{Order, Past};
use crate::space::{Grid, Point};

impl Order for Grid {
    fn next(&mut self, past: &Past) -> Option<Point> {
        self.find(|point| past.is_open(point))
    }

    fn left(&self) -> usize {
        Grid::left(self)
    }
}
