//! Tests of the fit on engines whose coefficients are known.

use super::super::fast::{Bounds, Sent};
use super::*;
use autotune_numerics::repeatable::uniform;
use autotune_records::units::Seconds;

/// Little polish: without optimization a replay takes long.
fn fit(probes: &[Probe]) -> Result<Fit, FitError> {
    super::fit(probes, Effort { hops: 0, polish: 3e5, ..Effort::FULL })
}

const ENGINE: StepCosts = StepCosts {
    base: 5e-3,
    per_decode: 3e-5,
    per_context_token: 2.5e-8,
    per_prefill_token: 2.5e-5,
    overhead: 2e-3,
    per_prefill_pair: 8e-10,
    per_prefill_square: 1e-10,
    mixed: 5e-4,
    above_16: 2e-4,
    above_64: 2e-4,
    above_128: 2e-4,
    per_256: 2e-4,
    fall: 0.2,
    overlap: 0.1,
    ahead: 0.95,
    delivery: 1e-3,
    per_delivery: 2e-5,
};

/// A probe of 25 s on that engine.
fn probe(costs: &StepCosts, rate: f64, seed: u64) -> Probe {
    let mut uniform = uniform(seed);
    let mut at = 0.0;
    let mut sent = Vec::new();
    while at < 25.0 {
        at -= uniform().ln() / rate;
        let prompt = 100 + (uniform().powi(3) * 4000.0) as u32;
        sent.push(Sent { at, prompt, output: 20 + (uniform() * 300.0) as u32, ..Sent::default() });
    }
    let bounds = Bounds { max_num_seqs: 256, max_num_batched_tokens: 4096, kv_tokens: None };
    Probe::replayed(costs, bounds, &sent)
}

#[test]
fn it_finds_an_engine_of_its_own_kind_again() {
    let fit = fit(&[probe(&ENGINE, 8.0, 3), probe(&ENGINE, 14.0, 4)]).unwrap();
    assert!(fit.residuals.tpot_sd < 0.02 && fit.residuals.ttft_sd < 0.1, "{:?}", fit.residuals);
    assert!((fit.costs.base / ENGINE.base).ln().abs() < 0.1, "{:?}", fit.costs);
    assert!((fit.costs.per_prefill_token / ENGINE.per_prefill_token).ln().abs() < 0.15, "{:?}", fit.costs);
    assert!(fit.costs.ahead > 0.7);
}

#[test]
fn failures_and_stalls_are_counted_and_do_not_move_the_fit() {
    let clean = probe(&ENGINE, 10.0, 5);
    let mut requests = clean.requests().to_vec();
    for r in requests.iter_mut().step_by(25) {
        r.last = r.last.map(|last| Seconds(last.0 + 30.0));
    }
    requests[7].failed = true;
    let spoiled = Probe::new(requests, clean.bounds());
    let (a, b) = (fit(&[clean]).unwrap(), fit(&[spoiled]).unwrap());
    assert!((a.costs.base / b.costs.base).ln().abs() < 0.1, "{:?} {:?}", a.costs, b.costs);
    assert_eq!(b.residuals.failures, 1);
    assert!(b.residuals.outliers >= 8, "{:?}", b.residuals);
}

#[test]
fn a_slower_probe_shows_as_drift() {
    let fit = fit(&[probe(&ENGINE, 10.0, 5), probe(&ENGINE.slower(1.2), 10.0, 6), probe(&ENGINE, 10.0, 7)]).unwrap();
    let speed: Vec<f64> = fit.residuals.probes.iter().map(|p| p.slower).collect();
    assert!(speed[1] / speed[0] > 1.1 && speed[1] / speed[2] > 1.1, "{speed:?}");
}

#[test]
fn the_speed_of_the_engine_from_run_to_run_is_found() {
    let speeds = [1.0, 1.02, 0.985, 1.01];
    let probes: Vec<Probe> = (0..).zip(speeds).map(|(i, speed)| probe(&ENGINE.slower(speed), 11.0, 20 + i)).collect();
    let (found, freedom) = fit(&probes).unwrap().run_to_run();
    let mean = speeds.iter().map(|s: &f64| s.ln()).sum::<f64>() / 4.0;
    let made = (speeds.iter().map(|s| (s.ln() - mean).powi(2)).sum::<f64>() / 3.0).sqrt();
    assert!(freedom == 3.0 && (found / made).ln().abs() < 0.35, "made {made}, found {found}");
}

#[test]
fn a_refit_is_no_worse() {
    let probes = [probe(&ENGINE, 8.0, 3), probe(&ENGINE, 14.0, 4)];
    let first = fit(&probes).unwrap();
    let costs = refit(&probes, &first, Effort::SESSION).unwrap();
    let loss = Loss::new(&probes, center(&probes), coefficients::prior_sd()).at(&coefficients::pack(&costs));
    assert!(loss < first.loss + 5.0, "{loss} {}", first.loss);
}

#[test]
fn too_few_answers_are_said_to_be_too_few() {
    let few = Probe::new(
        probe(&ENGINE, 8.0, 3).requests()[..20].to_vec(),
        Bounds { max_num_seqs: 1, max_num_batched_tokens: 1, kv_tokens: None },
    );
    assert_eq!(fit(&[few]), Err(FitError::TooFewAnswers { answers: 20 }));
}
