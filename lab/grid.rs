//! Every point of a space in the order of its file, the last parameter changing fastest.

use autotune::space::{Point, Space, Value};

/// The admitted points, made as they are asked for.
#[derive(Clone, Debug)]
pub struct Grid {
    space: Space,
    axes: Vec<(String, Vec<Value>)>,
    next: usize,
    size: usize,
}

impl Grid {
    /// Over the space, with the parameters in `held` at that value.
    pub fn new(space: &Space, held: &Point) -> Self {
        let values =
            |name: &str, all: &[Value]| held.get(name).map_or_else(|| all.to_vec(), |value| vec![value.clone()]);
        let axes: Vec<(String, Vec<Value>)> =
            space.parameters.iter().map(|p| (p.name.clone(), values(&p.name, &p.values))).collect();
        let size = axes.iter().fold(1_usize, |size, (_, values)| size.saturating_mul(values.len()));
        Self { space: space.clone(), axes, next: 0, size }
    }

    fn point(&self, mut index: usize) -> Point {
        let mut point = Point::default();
        for (name, values) in self.axes.iter().rev() {
            point = point.with(name, values[index % values.len()].clone());
            index /= values.len();
        }
        point
    }
}

impl Iterator for Grid {
    type Item = Point;

    fn next(&mut self) -> Option<Point> {
        while self.next < self.size {
            let point = self.point(self.next);
            self.next += 1;
            if self.space.admits(&point) {
                return Some(point);
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.size - self.next))
    }
}
