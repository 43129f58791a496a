//! The published rules ask as published: their rates one by one, on an engine that repeats exactly.

use super::*;

/// Rates and requests.
fn of(count: u32, rates: &[f64]) -> Vec<(f64, u32)> {
    rates.iter().map(|rate| (*rate, count)).collect()
}

/// A search of one parameter whose values keep these rates.
fn published(kind: StrategyKind, keeps: &[f64]) -> (Searched, Vec<Point>) {
    let plan = plan(kind, &[keeps.len() as i64], 1);
    let keeps = |point: &Point| keeps[number(point, "a") as usize];
    let searched = search(&plan, 1, &Fake::new(&keeps));
    (searched, Grid::new(&plan.space, &Point::default()).collect())
}

#[test]
fn auto_tune_descends_from_the_saturated_throughput_to_the_highest_whole_rate_that_passes() {
    let (searched, points) = published(StrategyKind::AutoTuneSh, &[8.7, 4.0]);
    // 8.7 and 4 requests per second are kept, 10.875 and 5 are answered when all come at once.
    let expected = [of(1000, &[1e3]), of(100, &[11.0, 10.0, 9.0, 8.0])].concat();
    assert_eq!(searched.rates(&points[0]), expected);
    assert_eq!(searched.rates(&points[1]), [of(1000, &[1e3]), of(100, &[6.0, 5.0, 4.0])].concat());
    assert_eq!(searched.incumbent, Some(Incumbent { point: points[0].clone(), rate: Rate(8.0) }));
    assert_eq!(searched.launched, points[1..], "an engine for each point, not for each run");
}

#[test]
fn auto_tune_takes_the_throughput_of_a_point_that_bears_everything_at_once() {
    let (searched, points) = published(StrategyKind::AutoTuneSh, &[2e4]);
    assert_eq!(searched.rates(&points[0]), of(1000, &[1e3]));
    assert_eq!(searched.baseline, Some(Rate(1e3)));
}

#[test]
fn auto_tune_ends_at_one_request_per_second() {
    let (searched, points) = published(StrategyKind::AutoTuneSh, &[0.9]);
    assert_eq!(searched.rates(&points[0]), [of(1000, &[1e3]), of(100, &[2.0, 1.0])].concat());
    assert_eq!(searched.incumbent, None);
}

#[test]
fn auto_benchmark_asks_at_the_incumbents_rate_then_halves_and_launches_every_time() {
    let (searched, points) = published(StrategyKind::AutoBenchmark, &[9.0, 8.0, 12.5]);
    // Between 2 and 16, the first rate being 8.
    assert_eq!(searched.rates(&points[0]), of(300, &[9.0, 12.5, 10.75, 9.875, 9.4375]));
    assert_eq!(searched.rates(&points[1]), of(300, &[9.0]), "it fails at the incumbent's rate");
    assert_eq!(searched.rates(&points[2]), of(300, &[9.0, 12.5, 14.25, 13.375, 12.9375, 12.7188]));
    assert_eq!(searched.incumbent, Some(Incumbent { point: points[2].clone(), rate: Rate(12.5) }));
    assert_eq!(searched.launched.len(), searched.asked.len(), "an engine for every probe");
}

#[test]
fn auto_benchmark_tries_eight_points_and_stops_where_bounds_are_near() {
    let (searched, points) = published(StrategyKind::AutoBenchmark, &[15.99; 4]);
    assert_eq!(searched.rates(&points[0]), of(300, &[9.0, 12.5, 14.25, 15.125, 15.5625]));
    assert_eq!(searched.rates(&points[1]), of(300, &[15.5625, 15.7813, 15.8907, 15.9454]));
    // The bounds are within a tenth of each other: nothing above the incumbent's rate is asked any more.
    assert_eq!(searched.rates(&points[2]), of(300, &[15.9454]));
    assert_eq!(searched.points(), points[..3], "three values of each parameter");
    let plan = plan(StrategyKind::AutoBenchmark, &[4, 4, 4, 4], 1);
    assert_eq!(search(&plan, 1, &Fake::new(&|_| 8.0)).points().len(), 8);
}

#[test]
fn the_former_sla_search_doubles_then_bisects_whole_rates_with_three_runs_of_each() {
    let (searched, points) = published(StrategyKind::VllmSla, &[11.5, 10.0, 0.9]);
    let thrice = |rates: &[f64]| of(1000, &rates.iter().flat_map(|rate| [*rate; 3]).collect::<Vec<_>>());
    // From 14.375 answered per second downwards, ...
    assert_eq!(searched.rates(&points[0]), thrice(&[1e3, 15.0, 7.0, 11.0, 13.0, 12.0]));
    assert_eq!(searched.rates(&points[1]), thrice(&[1e3, 13.0, 6.0, 9.0, 11.0, 10.0]));
    // ... and where one request per second is too much, nothing is kept.
    assert_eq!(searched.rates(&points[2]), thrice(&[1e3, 2.0, 1.0]));
    assert_eq!(searched.incumbent, Some(Incumbent { point: points[0].clone(), rate: Rate(11.0) }));
}

#[test]
fn the_former_sla_search_doubles_while_what_is_answered_at_once_is_kept() {
    let plan = plan(StrategyKind::VllmSla, &[1], 1);
    let engine = Fake { saturated: 0.4, ..Fake::new(&|_| 11.0) };
    let searched = search(&plan, 1, &engine);
    let rates: Vec<f64> = searched.rates(&plan.space.baseline()).iter().step_by(3).map(|(rate, _)| *rate).collect();
    assert_eq!(rates, [1e3, 5.0, 10.0, 20.0, 15.0, 12.0, 11.0]);
    assert_eq!(searched.baseline, Some(Rate(11.0)));
}

#[test]
fn the_former_sla_search_bears_a_run_outside_the_limit_where_the_mean_is_inside() {
    let run = |factor: f64| {
        let seen = Seen { margin: None, error: 0.0, measured: Some(factor.ln()), broken: factor > 1.0 };
        let seen = Observation { limits: vec![seen], ..Fake::new(&|_| 1.0).shows(&Point::default(), 1.0) };
        Heard { traffic: Traffic::Requests { rate: Rate(1.0), count: 1000 }, seen }
    };
    let kept = |runs: [f64; 3]| {
        let all_at_once = [9.0, 9.0, 9.0].map(run);
        rules::RateRule::kept(&rules::VllmSla, &[all_at_once, runs.map(run)].concat()).map(|kept| kept.rate)
    };
    assert_eq!(kept([1.3, 0.8, 0.8]), Some(Rate(1.0)));
    assert_eq!(kept([1.3, 0.9, 0.9]), None);
    assert_eq!(kept([0.1, 0.1, f64::INFINITY]), None);
}
