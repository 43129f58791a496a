//! Which points the strategies come to, where some fail, and where engines keep nothing.

use super::*;

#[test]
fn points_that_are_known_not_to_start_are_never_launched() {
    let refused = |point: &Point| {
        let refused = Consequence::ValueRefused { flag: Some("b".into()) };
        (number(point, "b") == 1.0).then_some(refused)
    };
    for kind in StrategyKind::ALL {
        let engine = Fake { refuses: &refused, ..Fake::new(&hill) };
        let searched = search(&plan(kind, &[4, 3], 11), 3, &engine);
        let failed = searched.launched.iter().filter(|point| number(point, "b") == 1.0).count();
        assert_eq!(failed, 1, "{kind:?}: one failure is enough to know");
        assert!(searched.incumbent.is_some_and(|best| number(&best.point, "b") != 1.0), "{kind:?}");
    }
}

#[test]
fn a_search_without_a_baseline_goes_on() {
    let refused = |point: &Point| (number(point, "a") == 0.0).then_some(Consequence::PointOnly);
    for kind in StrategyKind::ALL {
        let engine = Fake { refuses: &refused, ..Fake::new(&hill) };
        let searched = search(&plan(kind, &[3, 2], 10), 3, &engine);
        assert_eq!(searched.baseline, None, "{kind:?}");
        assert!(searched.incumbent.is_some_and(|best| number(&best.point, "a") > 0.0), "{kind:?}");
    }
}

#[test]
fn every_strategy_ends_where_nothing_is_feasible() {
    for kind in StrategyKind::ALL {
        let plan = plan(kind, &[4, 3], 11);
        let searched = search(&plan, 3, &Fake::new(&|_| 1e-6));
        assert_eq!((searched.incumbent, searched.baseline), (None, None), "{kind:?}: no rate is kept");
        let engine = Fake { refuses: &|_| Some(Consequence::PointOnly), ..Fake::new(&hill) };
        let searched = search(&plan, 3, &engine);
        assert_eq!((searched.incumbent, searched.baseline), (None, None), "{kind:?}: no point starts");
        let engine = Fake { void: true, ..Fake::new(&hill) };
        let searched = search(&plan, 3, &engine);
        assert_eq!(searched.incumbent, None, "{kind:?}: no probe says anything");
        assert_eq!(searched.asked.len(), searched.points().len(), "{kind:?}: a point is not asked about for ever");
    }
}

#[test]
fn a_point_whose_engine_dies_keeps_what_it_had_kept() {
    let engine = Fake { dies_above: 9.5, ..Fake::new(&|_| 20.0) };
    let kept = search(&plan(StrategyKind::Bisect, &[1], 5), 3, &engine).baseline.unwrap();
    assert!((8.0..9.5).contains(&kept.0), "{kept}");
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
fn a_race_finds_what_points_keep_and_the_best_of_them() {
    let plan = plan(StrategyKind::Bisect, &[8, 4], 31);
    let searched = search(&plan, 2, &Fake::new(&hill));
    let best = searched.incumbent.unwrap();
    assert_eq!((number(&best.point, "a"), number(&best.point, "b")), (5.0, 2.0));
    assert!(best.rate.0 <= 20.0 && best.rate.0 > 20.0 / 1.06, "{}", best.rate);
    let keeps = hill(&plan.space.baseline());
    assert!(searched.baseline.is_some_and(|rate| rate.0 <= keeps && rate.0 > keeps / 1.06));
}
