//! Which points the strategies come to.

use super::*;

#[test]
fn the_grid_is_every_admitted_point_once_in_its_order() {
    let mut plan = plan(StrategyKind::Grid, &[4, 3], 1);
    plan.space.constraints.push(Constraint::parse("a >= b").unwrap());
    let searched = search(&plan, 1, &Fake::new(&hill));
    let every: Vec<Point> = Grid::new(&plan.space, &Point::default()).collect();
    assert_eq!(every.len(), 9);
    assert_eq!(searched.points(), every, "the baseline is the first of them");
    assert_eq!(searched.launched, every[1..], "one engine for each");
    let best = searched.incumbent.unwrap();
    assert_eq!((number(&best.point, "a"), number(&best.point, "b")), (3.0, 2.0));
}

#[test]
fn random_points_repeat_with_the_seed_and_never_within_a_search() {
    let points = |candidates, seed| {
        let plan = plan(StrategyKind::Random, &[4, 3], candidates);
        search(&plan, seed, &Fake::new(&hill)).points()
    };
    assert_eq!(points(6, 1), points(6, 1));
    assert_ne!(points(6, 1), points(6, 2));
    assert_eq!(points(6, 1).len(), 1 + 6);
    let mut all = points(100, 3);
    assert_eq!(all.len(), 12, "as many as there are, the baseline among them");
    all.sort_by_key(|p| (number(p, "a") as i64, number(p, "b") as i64));
    all.dedup();
    assert_eq!(all.len(), 12, "none of them twice");
}

#[test]
fn every_point_is_as_likely_as_any_other_to_be_drawn_first() {
    let plan = plan(StrategyKind::Random, &[2, 3], 1);
    let mut drawn = [0; 6];
    for seed in 0..600 {
        let point = &search(&plan, seed, &Fake::new(&|_| 8.0)).points()[1];
        drawn[(number(point, "a") * 3.0 + number(point, "b")) as usize] += 1;
    }
    assert_eq!(drawn[0], 0, "the baseline is not drawn");
    assert!(drawn[1..].iter().all(|times| (80..160).contains(times)), "{drawn:?}");
}

#[test]
fn what_is_held_stays_in_every_strategy() {
    let held = Point::default().with("b", Value::Int(2));
    for kind in StrategyKind::ALL {
        let plan = plan(kind, &[6, 3], 4);
        let searched = search_holding(&plan, 5, &Fake::new(&hill), &held);
        let searched = &searched.points()[1..];
        assert!(!searched.is_empty() && searched.iter().all(|point| number(point, "b") == 2.0), "{kind:?}");
    }
}

#[test]
fn whole_searches_find_what_points_keep_and_the_best_of_them() {
    for kind in [StrategyKind::Random, StrategyKind::Grid, StrategyKind::Bisect] {
        let plan = plan(kind, &[8, 4], 31);
        let searched = search(&plan, 2, &Fake::new(&hill));
        let best = searched.incumbent.unwrap();
        assert_eq!((number(&best.point, "a"), number(&best.point, "b")), (5.0, 2.0), "{kind:?}");
        assert!(best.rate.0 <= 20.0 && best.rate.0 > 20.0 / 1.06, "{kind:?}: {}", best.rate);
        let keeps = hill(&plan.space.baseline());
        assert!(searched.baseline.is_some_and(|rate| rate.0 <= keeps && rate.0 > keeps / 1.06), "{kind:?}");
    }
}
