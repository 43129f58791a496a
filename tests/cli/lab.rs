//! The control arms of the lab.

#[path = "../../lab/strategies.rs"]
mod strategies;

use autotune::search::{Ask, Heard, MakeStrategy, Observation, Query, Tell};
use autotune::settings::{Plan, parse};
use autotune::space::{Constraint, Parameter, Point, Space, Value};
use autotune::units::Rate;

use strategies::{Grid, grid, random};

/// Nothing is expected of an engine that is a function.
struct Nothing;

impl autotune::search::Expectation for Nothing {
    fn margins(&mut self, _: &Point, _: Rate) -> Vec<Option<f64>> {
        Vec::new()
    }

    fn runs(&self, _: &Point) -> bool {
        true
    }

    fn price(&self, _: &Point, _: Rate) -> autotune::units::Seconds {
        autotune::units::Seconds(1.0)
    }
}

fn plan(candidates: u32) -> Plan {
    let mut plan = parse("quickstart.toml", include_str!("../../search-spaces/quickstart.toml")).unwrap();
    let parameter = |(name, values): (&str, i64)| Parameter {
        name: name.into(),
        values: (0..values).map(Value::Int).collect(),
        default: Some(Value::Int(0)),
    };
    plan.space = Space { parameters: [("a", 4), ("b", 3)].map(parameter).to_vec(), constraints: Vec::new() };
    plan.search.candidates = candidates;
    plan
}

/// The points of a search in their order, and the best of them. A point keeps 8 req/s and half of one more for each of `a`.
fn searched(make: MakeStrategy, plan: &Plan, seed: u64) -> (Vec<String>, String) {
    let mut strategy = make(plan, seed, &plan.space.baseline(), Rate(8.0));
    let (mut points, mut heard, mut opened) = (Vec::new(), Vec::new(), false);
    loop {
        let Ask::Probe(query) = strategy.ask(&mut Nothing, &[]) else {
            if opened {
                return (points, strategy.incumbent().unwrap().point.to_string());
            }
            strategy.open(&Point::default());
            opened = true;
            continue;
        };
        let Query { point, rate, .. } = &query;
        if points.last() != Some(&point.to_string()) {
            heard.clear();
            points.push(point.to_string());
        }
        let keeps = 8.0 + 0.5 * point.get("a").and_then(Value::number).unwrap();
        let margin = (rate.0 / keeps).ln();
        let seen = Observation { kept: margin <= 0.0, margin: Some(margin), limits: Vec::new(), saturated: false };
        heard.push(Heard { rate: *rate, seen });
        strategy.tell(&query, &Tell::Probed(heard.clone()));
    }
}

#[test]
fn the_grid_is_every_admitted_point_once_in_its_order() {
    let mut plan = plan(1);
    plan.space.constraints.push(Constraint::parse("a >= b").unwrap());
    let every: Vec<String> = Grid::new(&plan.space, &Point::default()).map(|point| point.to_string()).collect();
    let (points, best) = searched(grid, &plan, 1);
    assert_eq!((points, every.len()), (every, 9), "the baseline is the first of them");
    assert!(best.contains("a 3"), "{best}");
}

#[test]
fn random_points_repeat_with_the_seed_and_never_within_a_search() {
    let points = |candidates, seed| searched(random, &plan(candidates), seed).0;
    assert_eq!(points(6, 1), points(6, 1));
    assert_ne!(points(6, 1), points(6, 2));
    assert_eq!(points(6, 1).len(), 1 + 6);
    let mut all = points(100, 3);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 12, "as many as there are, the baseline among them, none of them twice");
}

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
