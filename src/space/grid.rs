//! Every point of a space in the order of its file, the last parameter changing fastest.

use super::{Point, Space, Value};

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
        let axes = space.parameters.iter().map(|p| (p.name.clone(), values(&p.name, &p.values)));
        Self::of(space.clone(), axes.collect())
    }

    /// Over some of the space's values.
    pub fn of(space: Space, axes: Vec<(String, Vec<Value>)>) -> Self {
        let size = axes.iter().fold(1_usize, |size, (_, values)| size.saturating_mul(values.len()));
        Self { space, axes, next: 0, size }
    }

    /// How many points are still to come, those that a constraint forbids included.
    pub fn left(&self) -> usize {
        self.size - self.next
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::{Constraint, Parameter};

    #[test]
    fn the_last_parameter_changes_fastest_what_is_held_stays_and_what_is_forbidden_is_left_out() {
        let ints = |values: &[i64]| values.iter().map(|v| Value::Int(*v)).collect::<Vec<_>>();
        let parameter = |name: &str, values| Parameter { name: name.into(), values: ints(values), default: None };
        let space = Space {
            parameters: vec![parameter("c", &[7, 8]), parameter("b", &[1, 2]), parameter("a", &[1, 2, 3])],
            constraints: vec![Constraint::parse("a >= b").unwrap()],
        };
        let held = Point::default().with("c", Value::Int(8));
        let told: Vec<String> = Grid::new(&space, &held).map(|p| p.to_string()).collect();
        let expected = ["1, b 1", "2, b 1", "3, b 1", "2, b 2", "3, b 2"].map(|ab| format!("a {ab}, c 8"));
        assert_eq!(told, expected);
        assert_eq!(Grid::new(&space, &held).left(), 6);
    }
}
