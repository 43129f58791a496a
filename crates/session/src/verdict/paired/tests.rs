//! Tests of the paired estimate on engines that are the twin, or another one.

use super::*;
use crate::verdict::{Window, fixtures};
use autotune_load::read_records;
use autotune_numerics::repeatable::uniform;
use autotune_plan::settings::Metric;
use autotune_twin::{Bounds, Effort, Fit, NO_COSTS, Observed, Probe, Sent, StepCosts};

const TWIN: StepCosts = StepCosts {
    base: 5e-3,
    per_decode: 3e-5,
    per_context_token: 2.5e-8,
    per_prefill_token: 2.5e-5,
    overhead: 3e-3,
    ..NO_COSTS
};
const BOUNDS: Bounds = Bounds { max_num_seqs: 256, max_num_batched_tokens: 8192, kv_tokens: Some(900_000) };

fn traffic(rate: f64, seconds: f64, seed: u64) -> Vec<Sent> {
    let mut uniform = uniform(seed);
    let mut at = 0.0;
    let mut sent = Vec::new();
    while at < seconds {
        at -= uniform().ln() / rate;
        let prompt = 100 + (uniform().powi(4) * 6000.0) as u32;
        sent.push(Sent { at, prompt, output: 20 + (uniform() * 400.0) as u32, ..Sent::default() });
    }
    sent
}

fn probe(engine: &StepCosts, rate: f64, seed: u64, bounds: Bounds) -> Probe {
    let sent = traffic(rate, 40.0, seed);
    Probe::replayed(engine, bounds, &sent)
}

fn twin() -> Fit {
    fixtures::fit(TWIN, &[])
}

/// A twin that no other probe checks.
fn alone(fit: &Fit) -> CheckedTwin<'_> {
    CheckedTwin { fit, others: &[], shared: true }
}

fn limits() -> Vec<Limit> {
    let limit = |metric, at_most| Limit { metric, quantile: 0.99, at_most: Seconds(at_most) };
    vec![limit(Metric::Ttft, 0.5), limit(Metric::Tpot, 0.02), limit(Metric::Itl, 0.1)]
}

const SHARED: (f64, f64) = (FLOOR, FREEDOM_BEFOREHAND);
const WINDOW: Window = Window { from: Seconds(10.0), to: Seconds(40.0) };

#[test]
fn a_twin_that_is_the_engine_leaves_no_luck() {
    let long = LongRunReplay::replay(&TWIN, BOUNDS, traffic(12.0, 3000.0, 99));
    let engine = TWIN.slower(1.03);
    let truth = LongRunReplay::replay(&engine, BOUNDS, traffic(12.0, 3000.0, 98));
    for seed in 1..6 {
        let estimates = estimate(&probe(&engine, 12.0, seed, BOUNDS), WINDOW, alone(&twin()), &long, &limits());
        assert_eq!(estimates.len(), 2, "gaps are no business of the twin");
        for (paired, metric) in estimates.iter().zip([Metric::Ttft, Metric::Tpot]) {
            let (log, _) = truth.log_quantile(metric, 0.99).unwrap();
            assert!((paired.estimate.0.ln() - log).abs() < 0.12, "{paired:?}");
            assert!(paired.explained > 0.8 && paired.judge == Judge::Paired, "{paired:?}");
        }
    }
}

#[test]
fn a_failure_or_a_full_cache_leaves_the_decision_to_the_plain_count() {
    let long = LongRunReplay::replay(&TWIN, BOUNDS, traffic(12.0, 2000.0, 99));
    let clean = probe(&TWIN, 12.0, 3, BOUNDS);
    let mut requests = clean.requests().to_vec();
    requests[200].failed = true;
    let failed = Probe::new(requests, BOUNDS);
    let result = estimate(&failed, WINDOW, alone(&twin()), &long, &limits());
    let because = "1 requests have no whole answer, which no arrival explains";
    assert!(result.iter().all(|p| p.judge == Judge::PlainCount && p.because == because), "{result:?}");
    // A small cache alone is replayed block by block; one that loses shared prefixes is not.
    let small = Bounds { kv_tokens: Some(20_000), ..BOUNDS };
    let judged = |cached: u32| {
        let full = probe(&TWIN, 12.0, 3, small);
        let requests = full.requests().iter().map(|r| Observed { cached, ..*r }).collect();
        let long =
            LongRunReplay::replay(&TWIN, small, traffic(12.0, 600.0, 99).into_iter().map(|s| Sent { cached, ..s }));
        estimate(&Probe::new(requests, small), WINDOW, alone(&twin()), &long, &limits())
    };
    assert!(judged(0).iter().all(|p| !p.because.contains("KV cache")));
    let lost = "the KV cache fills, and the replay does not know which shared prefixes it then loses";
    assert!(judged(90).iter().all(|p| p.because == lost));
}

#[test]
fn a_twin_of_another_engine_explains_little_and_says_so() {
    let long = LongRunReplay::replay(&TWIN, BOUNDS, traffic(12.0, 2000.0, 99));
    // The latencies of other arrivals: as good as noise.
    let (probe, other) = (probe(&TWIN, 12.0, 3, BOUNDS), probe(&TWIN, 12.0, 4, BOUNDS));
    let swap = |(a, b): (&Observed, &Observed)| {
        let first = Seconds(a.due.0 + b.ttft().unwrap_or(0.1));
        let last = Seconds(first.0 + b.tpot().unwrap_or(0.01) * f64::from(a.tokens_out - 1));
        Observed { first: Some(first), last: Some(last), ..*a }
    };
    let mixed = Probe::new(probe.requests().iter().zip(other.requests()).map(swap).collect(), BOUNDS);
    let result = estimate(&mixed, WINDOW, alone(&twin()), &long, &limits());
    let little = |p: &Paired| p.judge == Judge::PlainCount && p.because.starts_with("the twin explains only ");
    assert!(result.iter().all(little), "{result:?}");
}

#[test]
fn the_way_to_a_long_run_is_known_as_well_as_blocks_of_time_agree_on_its_slope() {
    // Blocks whose measured logarithms are `slope` times the replayed ones, with noise that the slope knows nothing of.
    let error = |spread: f64, slope: f64, noise: f64| {
        let sign = [1.0, -1.0, -1.0, 1.0];
        let block = |i: usize| {
            let log = spread * i as f64;
            [slope * log + noise * sign[i % 4], log]
        };
        slope_error(&[(0..8).map(block).collect::<Vec<_>>()], SHARED).0
    };
    // sd(e) / (sd(x) √n) with n − 2 degrees of freedom: Σe² = 8 noise², Σx² = 42 spread².
    let expected = 0.05 * (8.0 / 6.0 / 42.0_f64).sqrt() / 0.1;
    assert!((error(0.1, 1.0, 0.05) - expected).abs() < 1e-6, "{} for {expected}", error(0.1, 1.0, 0.05));
    assert!((error(0.1, 1.5, 0.0) - 0.5).abs() < 1e-6, "a slope that is not one is an error, however sure");
    assert!(error(0.1, 1.0, 0.0) < 1e-6 && error(0.01, 1.0, 0.05) > 5.0 * error(0.1, 1.0, 0.05));
    assert_eq!((error(0.0, 1.0, 0.05), error(0.001, 1.0, 0.5)), (1.0, 1.0), "where nothing varies, nothing is known");
    assert_eq!(slope_error(&[], SHARED), (1.0, FREEDOM_BEFOREHAND));
}

#[test]
fn other_probes_tell_more_of_the_way_and_each_has_an_error_of_its_own() {
    // Four blocks each; what is measured lies 5 % above and below what is replayed.
    let probe = |at: f64| (0..4).map(move |i| f64::from(i) * 0.01 + at).zip([0.05, -0.05, -0.05, 0.05]);
    let blocks = |at: f64| probe(at).map(|(log, noise)| [log + noise, log]).collect::<Vec<_>>();
    assert_eq!(slope_error(&[blocks(0.0)], SHARED).0, 1.0, "blocks that are alike say nothing of a slope");
    let apart = slope_error(&[blocks(0.0), blocks(0.5)], SHARED).0;
    // Σe² = 8·0.05² with six degrees of freedom; Σx² = 8·0.25² + 2·0.0005; each probe's Σx is 4·0.25 times its shared error of 2 %.
    let squares = 8.0 * 0.0625 + 0.001;
    let expected = (0.02_f64 / 6.0 / squares + 2.0 * (0.02 / squares).powi(2)).sqrt();
    assert!((apart - expected).abs() < 1e-6, "{apart} for {expected}");
    let together = slope_error(&[[blocks(0.0), blocks(0.5)].concat()], SHARED).0;
    assert!(together < 0.9 * apart, "one probe shares its error: {together} and {apart}");
}

#[test]
fn a_calm_probe_beside_a_busy_one_is_surer_of_hours_of_traffic() {
    let engine = TWIN.slower(1.02);
    let long = LongRunReplay::replay(&TWIN, BOUNDS, traffic(14.0, 3000.0, 99));
    let [calm, busy, busier] = [(9.0, 3), (13.0, 4), (14.0, 5)].map(|(rate, seed)| probe(&engine, rate, seed, BOUNDS));
    let error = |others: &[(&Probe, Window)]| {
        let fit = twin();
        estimate(&calm, WINDOW, CheckedTwin { fit: &fit, others, shared: true }, &long, &limits())[1].error
    };
    let alone = error(&[]);
    let both = error(&[(&busy, WINDOW), (&busier, WINDOW)]);
    assert!(both < alone, "{both} for {alone}");
    let mut requests = busy.requests().to_vec();
    requests[200].failed = true;
    assert_eq!(error(&[(&Probe::new(requests, BOUNDS), WINDOW)]), alone, "one with a failure is no check");
}

#[test]
fn the_spread_of_speed_of_three_probes_is_weighed_with_that_of_other_sessions_on_a_gpu_of_its_own() {
    let spread = |slower: &[f64], shared| {
        let (spread, freedom) = CheckedTwin { shared, ..alone(&fixtures::fit(TWIN, slower)) }.spread_of_speed();
        ((spread * 1e4).round() / 1e4, freedom)
    };
    let three = [-0.02, 0.0, 0.02];
    assert_eq!(spread(&three, true), (0.02, 2.0));
    // (2·0.02² + 2.5·0.0075²) / 4.5.
    assert_eq!(spread(&three, false), (0.0145, 4.5));
    // F of 2 and 2.5 degrees of freedom is below (0.05^−0.8 − 1)·1.25 = 12.5 in 95 %: a spread of 0.0265.
    assert_eq!((spread(&[-0.026, 0.0, 0.026], false).1, spread(&[-0.027, 0.0, 0.027], false)), (4.5, (0.027, 2.0)));
    assert_eq!((spread(&[0.01], false), spread(&[0.01], true)), ((0.0075, 2.5), (0.0, 0.0)));
}

/// A probe of the records of a real engine.
fn recorded(csv: &str) -> Probe {
    let bounds = Bounds { max_num_seqs: 1024, max_num_batched_tokens: 8192, kv_tokens: Some(919_824) };
    Probe::new(read_records(csv.as_bytes()).unwrap().iter().map(Observed::from).collect(), bounds)
}

#[test]
fn on_a_real_engine_the_pair_spreads_far_less_than_the_measurement() {
    let [a, b, c, d, e] = [
        include_str!("../../../../../tests/data/h200/def_r15.16_d40_s11.csv"),
        include_str!("../../../../../tests/data/h200/def_r15.16_d40_s12.csv"),
        include_str!("../../../../../tests/data/h200/def_r15.16_d40_s14.csv"),
        include_str!("../../../../../tests/data/h200/def_r15.16_d40_s16.csv"),
        include_str!("../../../../../tests/data/h200/def_r17.43_d40_s23.csv"),
    ]
    .map(recorded);
    let fit = autotune_twin::fit(&[a, b], Effort { hops: 0, polish: 3e5, ..Effort::FULL }).unwrap();
    assert!(fit.costs.ahead > 0.7, "this engine schedules asynchronously");
    let long = LongRunReplay::replay(&fit.costs, BOUNDS, traffic(12.0, 500.0, 1));
    // Each probe has its own luck, whatever its rate: what is left of it is the difference of measured and replayed.
    let left = |probe: &Probe| {
        let each = estimate(probe, WINDOW, alone(&fit), &long, &limits());
        each.iter().map(|p| ((p.estimate.0 / p.long.0).ln(), p.measured.0.ln())).collect::<Vec<_>>()
    };
    let all: Vec<Vec<(f64, f64)>> = [&c, &d, &e].map(left).to_vec();
    for m in 0..2 {
        // Half of the standard deviation is a quarter of the squares.
        let spread = |of: fn(&(f64, f64)) -> f64| squares(&all.iter().map(|p| of(&p[m])).collect::<Vec<f64>>());
        assert!(spread(|p| p.0) < 0.25 * spread(|p| p.1), "{all:?}");
    }
}
