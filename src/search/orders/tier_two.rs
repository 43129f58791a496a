//! The candidates of SGLang's `auto_benchmark` at its default, the second tier.

use std::collections::VecDeque;

use crate::space::{Grid, Point, Space};

/// Candidates in all, the baseline included (`DEFAULT_MAX_CANDIDATES`).
const CANDIDATES: usize = 8;
/// Parameters that are looked at, and values of each.
const LOOKED_AT: (usize, usize) = (8, 3);
/// Parameters that are varied together; the others are varied one at a time.
const TOGETHER: usize = 3;

/// The baseline with what is held, then the product of the first values of the first three free parameters, then the other parameters one
/// at a time.
pub fn tier_two(space: &Space, held: &Point, baseline: &Point) -> VecDeque<Point> {
    let raised = baseline.holding(held);
    let free = space.parameters.iter().filter(|p| p.values.len() > 1 && held.get(&p.name).is_none());
    let first = |values: &[_]| values.iter().take(LOOKED_AT.1).cloned().collect::<Vec<_>>();
    let mut together: Vec<_> = free.take(LOOKED_AT.0).map(|p| (p.name.clone(), first(&p.values))).collect();
    let alone = together.split_off(TOGETHER.min(together.len()));
    // Constraints concern whole points, so they are asked once the rest is filled in.
    let product = Grid::of(Space::default(), together).map(|varied| raised.holding(&varied));
    let alone = alone.iter().flat_map(|(name, values)| values.iter().map(|value| raised.with(name, value.clone())));
    let mut points = VecDeque::new();
    for point in std::iter::once(raised.clone()).chain(product).chain(alone) {
        if points.len() < CANDIDATES && space.admits(&point) && !points.contains(&point) {
            points.push_back(point);
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::{Constraint, Parameter, Value};

    #[test]
    fn the_defaults_come_first_then_the_first_three_parameters_together_then_the_rest_one_by_one() {
        let parameter = |name: &str, values: std::ops::RangeInclusive<i64>| Parameter {
            name: name.into(),
            values: values.map(Value::Int).collect(),
            default: None,
        };
        let mut space = Space {
            parameters: vec![
                parameter("m", 1..=9),
                parameter("a", 1..=2),
                parameter("b", 1..=5),
                parameter("c", 1..=1),
            ],
            constraints: Vec::new(),
        };
        let baseline = space.parameters.iter().fold(Point::default(), |p, q| p.with(&q.name, q.values[0].clone()));
        let baseline = baseline.with("b", Value::Int(5));
        let held = Point::default().with("m", Value::Int(9));
        let told = |space: &Space| {
            let number = |p: &Point, name: &str| p.get(name).and_then(Value::number).unwrap();
            let points = tier_two(space, &held, &baseline);
            assert!(points.iter().all(|p| number(p, "m") == 9.0 && number(p, "c") == 1.0), "{points:?}");
            points.iter().map(|p| (number(p, "a"), number(p, "b"))).collect::<Vec<_>>()
        };
        let all = [(1.0, 5.0), (1.0, 1.0), (1.0, 2.0), (1.0, 3.0), (2.0, 1.0), (2.0, 2.0), (2.0, 3.0)];
        assert_eq!(told(&space), all);
        space.constraints.push(Constraint::parse("b >= a").unwrap());
        assert_eq!(told(&space), [&all[..4], &all[5..]].concat());
        for name in ["d", "e"] {
            space.parameters.push(parameter(name, 1..=2));
        }
        assert_eq!(tier_two(&space, &held, &baseline).len(), CANDIDATES);
    }
}
