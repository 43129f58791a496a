//! Verdicts and fits of tests.

use super::paired::{Judge, Paired};
use super::{LimitResult, Outcome, Verdict};
use autotune_records::units::{Rate, Seconds};
use autotune_twin::{Drift, Fit, Residuals, StepCosts};

/// A limit of 0.1 s, and what a pair says of it.
pub fn paired(key: &str, margin: f64, error: f64, confidence: f64, judge: Judge) -> Paired {
    let time = Seconds(0.1);
    Paired {
        key: key.to_owned(),
        at_most: time,
        requests: 400,
        measured: time,
        replayed: time,
        long: time,
        estimate: Seconds(0.1 * margin.exp()),
        error,
        freedom: 9.0,
        direct_error: 0.2,
        explained: 0.9,
        margin,
        confidence,
        judge,
        because: String::new(),
    }
}

/// A fit that found these costs, to probes whose steps took longer than the fit's by these logarithms.
pub fn fit(costs: StepCosts, slower: &[f64]) -> Fit {
    let drift = |log: &f64| Drift { slower: log.exp() };
    let residuals = Residuals {
        answers: 1000,
        failures: 0,
        outliers: 0,
        ttft_sd: 0.05,
        tpot_sd: 0.01,
        ttft_correlation: 1.0,
        tpot_correlation: 1.0,
        probes: slower.iter().map(drift).collect(),
    };
    Fit { costs, coefficients: Vec::new(), open: Vec::new(), residuals, loss: 0.0, replays: 0 }
}

/// The same limit, broken by the plain count.
pub fn counted(key: &str) -> LimitResult {
    LimitResult {
        key: key.to_owned(),
        at_most: Seconds(0.1),
        quantile: 0.99,
        observations: 400,
        violations: 9,
        measured: Some(Seconds(0.12)),
        margin: Some(0.18),
        margin_error: Some(0.2),
        paired: None,
    }
}

pub fn verdict(outcome: Outcome, limits: Vec<LimitResult>, complete: bool) -> Verdict {
    Verdict {
        outcome,
        because: "9 of 400 requests broke it".to_owned(),
        binding: limits.first().map(|limit| limit.key.clone()),
        limits,
        offered: Rate(10.0),
        achieved: Rate(10.0),
        served: None,
        counted: 400,
        errors: std::collections::BTreeMap::new(),
        saturated: false,
        complete,
        confidence: 0.2,
        by_count: None,
    }
}
