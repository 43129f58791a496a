//! Points and the unit cube: a quasi-random order over the points that no constraint forbids.

use super::{Parameter, Point, Space, Value};

/// Most draws tried per wanted candidate; a space that is mostly forbidden gives fewer candidates, never an endless loop.
const DRAWS_PER_CANDIDATE: u32 = 64;
/// `sobol_burley` has 2^16 points to a sequence.
const SOBOL_POINTS: u32 = 1 << 16;

/// The value of a parameter at a coordinate in [0, 1): its values share the interval equally.
pub fn snap(parameter: &Parameter, coordinate: f64) -> Value {
    let last = parameter.values.len() - 1;
    let index = ((coordinate * parameter.values.len() as f64) as usize).min(last);
    parameter.values[index].clone()
}

/// Numbers whose largest is at least so many times the smallest are sizes: what matters of them is their ratio.
const SIZE: f64 = 8.0;

/// The coordinate of a value among those of its parameter. Numbers lie in [0, 1] by their distance, or by their ratio where they are sizes.
/// Words and switches have their index. A value that is absent lies in the middle.
pub fn coordinate(parameter: &Parameter, value: Option<&Value>) -> f64 {
    let Some(value) = value else { return 0.5 };
    let ends = parameter.values.first().and_then(Value::number).zip(parameter.values.last().and_then(Value::number));
    match (value.number(), ends) {
        (Some(x), Some((low, high))) if low > 0.0 && high >= SIZE * low => (x.max(1e-9) / low).ln() / (high / low).ln(),
        (Some(x), Some((low, high))) if high > low => (x - low) / (high - low),
        (Some(_), Some(_)) => 0.0,
        _ => parameter.values.iter().position(|v| v.same(value)).map_or(-1.0, |i| i as f64),
    }
}

/// Whether the parameter's values are told apart by being equal or not.
pub fn is_choice(parameter: &Parameter) -> bool {
    parameter.values.iter().any(|value| value.number().is_none())
}

/// Up to `wanted` different admitted points in the order of an Owen-scrambled Sobol sequence.
///
/// Parameters in `held` keep that value. The order depends on the seed alone.
pub fn candidates(space: &Space, held: &Point, wanted: usize, seed: u64) -> Vec<Point> {
    let mut found: Vec<Point> = Vec::new();
    let draws = (wanted as u32).saturating_mul(DRAWS_PER_CANDIDATE).clamp(256, SOBOL_POINTS);
    for index in 0..draws {
        if found.len() == wanted {
            break;
        }
        let point = Point(
            space
                .parameters
                .iter()
                .enumerate()
                .map(|(dimension, parameter)| {
                    let coordinate = f64::from(sobol_burley::sample(index, dimension as u32, seed as u32));
                    let value = held.get(&parameter.name).cloned().unwrap_or_else(|| snap(parameter, coordinate));
                    (parameter.name.clone(), value)
                })
                .collect(),
        );
        let point = space.settled(point);
        if space.admits(&point) && !found.contains(&point) {
            found.push(point);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Constraint;

    fn space() -> Space {
        let ints = |values: &[i64]| values.iter().map(|v| Value::Int(*v)).collect::<Vec<_>>();
        Space {
            parameters: vec![
                Parameter { name: "max-num-seqs".into(), values: ints(&[4, 8, 16, 32]), default: None, when: None },
                Parameter {
                    name: "max-num-batched-tokens".into(),
                    values: ints(&[8, 64, 512]),
                    default: None,
                    when: None,
                },
            ],
            constraints: vec![Constraint::parse("max-num-batched-tokens >= max-num-seqs").unwrap()],
        }
    }

    #[test]
    fn a_small_space_is_enumerated_once_without_its_forbidden_points() {
        let all = candidates(&space(), &Point::default(), 100, 7);
        assert_eq!(all.len(), 12 - 2, "two of twelve break the constraint");
        assert_eq!(all, candidates(&space(), &Point::default(), 100, 7), "the seed alone decides");
        assert_ne!(all, candidates(&space(), &Point::default(), 100, 8));
    }

    #[test]
    fn sizes_are_told_apart_by_their_ratio_shares_by_their_distance_and_words_not_at_all() {
        let parameter = |values: Vec<Value>| Parameter { name: "x".into(), values, default: None, when: None };
        let sizes = parameter([32, 64, 1024].map(Value::Int).to_vec());
        assert!((coordinate(&sizes, Some(&Value::Int(64))) - 0.2).abs() < 1e-9);
        let shares = parameter([0.8, 0.9, 1.0].map(Value::Real).to_vec());
        assert!((coordinate(&shares, Some(&Value::Real(0.9))) - 0.5).abs() < 1e-9);
        let words = parameter(["a", "b"].map(|w| Value::Text(w.into())).to_vec());
        assert_eq!(coordinate(&words, Some(&Value::Text("b".into()))), 1.0);
        assert!(is_choice(&words) && !is_choice(&sizes));
    }

    #[test]
    fn held_parameters_stay() {
        let held = Point::default().with("max-num-seqs", Value::Int(16));
        let all = candidates(&space(), &held, 100, 7);
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|p| p.get("max-num-seqs") == Some(&Value::Int(16))));
    }

    #[test]
    fn every_coordinate_snaps_to_a_value() {
        let space = space();
        assert_eq!(snap(&space.parameters[0], 0.0), Value::Int(4));
        assert_eq!(snap(&space.parameters[0], 0.999_999_9), Value::Int(32));
        assert_eq!(snap(&space.parameters[0], 1.0), Value::Int(32));
    }
}
