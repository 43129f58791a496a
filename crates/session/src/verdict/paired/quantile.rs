//! A quantile of few values, smoothly: the estimator of Harrell and Davis (Biometrika 69, 1982).
//!
//! The p99 of 500 requests is one of them; which one, is luck. Weighing its neighbours by the distribution of that order statistic
//! removes a part of the luck. The measured and the replayed latencies that are compared are weighed alike.

use statrs::function::beta::beta_reg;

/// Weights this many standard deviations from the quantile are nothing.
const REACH: f64 = 8.0;

/// The logarithm of the quantile of these latencies, which must be sorted; `None` if there are none.
pub(super) fn log_quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let n = sorted.len() as f64;
    if sorted.is_empty() {
        return None;
    }
    let (a, b) = ((n + 1.0) * q, (n + 1.0) * (1.0 - q));
    let reach = REACH * (q * (1.0 - q) / (n + 2.0)).sqrt();
    let first = (((q - reach) * n).floor().max(0.0)) as usize;
    let last = (((q + reach) * n).ceil()).min(n) as usize;
    let below = |i: usize| if i == 0 { 0.0 } else { beta_reg(a, b, (i as f64 / n).min(1.0)) };
    let (mut sum, mut weights, mut before) = (0.0, 0.0, below(first));
    for (i, value) in sorted.iter().enumerate().take(last).skip(first) {
        let here = below(i + 1);
        sum += (here - before) * value.max(1e-9).ln();
        weights += here - before;
        before = here;
    }
    (weights > 0.0).then(|| sum / weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_the_plain_quantile_of_many_and_varies_less_with_few() {
        let many: Vec<f64> = (1..=20_000).map(|i| (f64::from(i) / 20_000.0 * 3.0).exp()).collect();
        assert!((log_quantile(&many, 0.99).unwrap() - 2.97).abs() < 1e-3);
        assert_eq!(log_quantile(&[], 0.99), None);
        assert!((log_quantile(&[2.0], 0.99).unwrap() - 2.0_f64.ln()).abs() < 1e-9);
    }
}
