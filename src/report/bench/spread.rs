//! How one latency spreads over requests or gaps.

use serde::{Deserialize, Serialize};

use crate::quantiles::quantile_of_sorted;
use crate::units::Seconds;

/// Mean, deviation and quantiles of at least one observation, in seconds. A quantile is an observation (the smallest that so many do not
/// exceed), not a point between two. So the report and the verdict say the same number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many were observed: requests, or gaps for the inter-token latency.
    pub observations: u64,
    pub mean: Seconds,
    /// The standard deviation of these observations (divided by their number).
    pub std: Seconds,
    /// Half of them are at most this.
    pub median: Seconds,
    pub p90: Seconds,
    pub p95: Seconds,
    pub p99: Seconds,
}

pub type OfSpread = fn(&Spread) -> Seconds;

/// The quantiles that tables show.
pub const QUANTILES: [(&str, OfSpread); 3] = [("p50", |s| s.median), ("p95", |s| s.p95), ("p99", |s| s.p99)];

impl Spread {
    /// Of observations in seconds; none of none.
    pub fn of(observations: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = observations.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / n;
        let variance = sorted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let at = |q| quantile_of_sorted(&sorted, q).map(Seconds);
        Some(Self {
            observations: sorted.len() as u64,
            median: at(0.5)?,
            p90: at(0.9)?,
            p95: at(0.95)?,
            p99: at(0.99)?,
            mean: Seconds(mean),
            std: Seconds(variance.sqrt()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_observations_and_nothing_is_not_zero() {
        let spread = Spread::of((1..=100).rev().map(f64::from)).unwrap();
        assert_eq!(
            (spread.median, spread.p90, spread.p95, spread.p99),
            (Seconds(50.0), Seconds(90.0), Seconds(95.0), Seconds(99.0))
        );
        assert_eq!((spread.observations, spread.mean), (100, Seconds(50.5)));
        assert!((spread.std.0 - 28.866).abs() < 1e-3);
        assert_eq!(Spread::of([]), None);
    }
}
