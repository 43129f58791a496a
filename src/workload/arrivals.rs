//! Poisson arrivals on an open-loop clock.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};

use super::draw::{Purpose, stream};
use crate::units::{Rate, Seconds};

/// Times of a Poisson process. The gaps at unit rate depend on the seed alone and are divided by the rate, so that two rates
/// see the same bursts at another speed: common random numbers for comparisons.
pub(super) struct Poisson {
    rng: ChaCha8Rng,
    rate: Rate,
    unit_time: f64,
}

impl Poisson {
    pub(super) fn new(rate: Rate, seed: u64) -> Self {
        Self { rng: stream(seed, Purpose::Arrivals, 0), rate, unit_time: 0.0 }
    }
}

impl Iterator for Poisson {
    type Item = Seconds;

    fn next(&mut self) -> Option<Seconds> {
        let gap: f64 = Exp1.sample(&mut self.rng);
        self.unit_time += gap;
        Some(Seconds(self.unit_time / self.rate.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_rates_share_their_luck() {
        let times: Vec<Seconds> = Poisson::new(Rate(5.0), 1).take(20_000).collect();
        let rate = 20_000.0 / times[19_999].0;
        assert!((rate - 5.0).abs() < 0.15, "{rate}");
        let doubled: Vec<Seconds> = Poisson::new(Rate(10.0), 1).take(100).collect();
        assert!(times.iter().zip(&doubled).all(|(a, b)| (a.0 - 2.0 * b.0).abs() < 1e-9));
    }

    #[test]
    fn gaps_are_exponential_not_renormalised() {
        // The count in a fixed time must vary as a Poisson count does: variance equal to the mean.
        let counts: Vec<f64> =
            (0..400).map(|seed| Poisson::new(Rate(10.0), seed).take_while(|t| t.0 < 10.0).count() as f64).collect();
        let mean = counts.iter().sum::<f64>() / 400.0;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 399.0;
        assert!((mean - 100.0).abs() < 3.0 && (70.0..140.0).contains(&variance), "mean {mean}, variance {variance}");
    }
}
