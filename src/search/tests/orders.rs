//! Which points the strategies come to.

use super::*;

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
fn a_race_finds_what_points_keep_and_the_best_of_them() {
    let plan = plan(StrategyKind::Bisect, &[8, 4], 31);
    let searched = search(&plan, 2, &Fake::new(&hill));
    let best = searched.incumbent.unwrap();
    assert_eq!((number(&best.point, "a"), number(&best.point, "b")), (5.0, 2.0));
    assert!(best.rate.0 <= 20.0 && best.rate.0 > 20.0 / 1.06, "{}", best.rate);
    let keeps = hill(&plan.space.baseline());
    assert!(searched.baseline.is_some_and(|rate| rate.0 <= keeps && rate.0 > keeps / 1.06));
}
