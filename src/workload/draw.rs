//! Random draws: independent seeded streams by purpose, and token counts from their distributions.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal, Normal, Uniform};

use crate::settings::{LengthShape, Lengths};

/// What a stream of random numbers is for; streams of different purposes are independent, so that a longer prompt never
/// moves an arrival.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Arrivals = 1,
    Lengths = 2,
    Content = 3,
    Shared = 4,
    Population = 5,
}

/// A stream for one purpose and one item of it.
pub(super) fn stream(seed: u64, purpose: Purpose, item: u32) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream((purpose as u64) << 32 | u64::from(item));
    rng
}

/// A seed from a seed and a label's numbers (SplitMix64's finaliser, Steele, Lea and Flood 2014).
pub fn mix(seed: u64, parts: &[u64]) -> u64 {
    parts.iter().fold(seed, |acc, part| {
        let mut z = acc.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_add(part.wrapping_mul(0xbf58_476d_1ce4_e5b9));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// One token count.
pub(super) fn length(lengths: &Lengths, rng: &mut ChaCha8Rng) -> u32 {
    let hold = |tokens: f64| (tokens.round().clamp(0.0, f64::from(u32::MAX)) as u32).clamp(lengths.min, lengths.max);
    match lengths.shape {
        LengthShape::Fixed => lengths.min,
        LengthShape::Uniform => Uniform::new_inclusive(lengths.min, lengths.max).map_or(lengths.min, |d| d.sample(rng)),
        LengthShape::Normal { mean, sd } => hold(Normal::new(mean, sd).map_or(mean, |d| d.sample(rng))),
        LengthShape::Lognormal { median, sigma } => {
            hold(LogNormal::new(median.ln(), sigma).map_or(median, |d| d.sample(rng)))
        }
    }
}

/// The mean token count, what lies beyond `min` and `max` not considered.
pub(super) fn mean_length(lengths: &Lengths) -> f64 {
    let mean = match lengths.shape {
        LengthShape::Fixed => f64::from(lengths.min),
        LengthShape::Uniform => (f64::from(lengths.min) + f64::from(lengths.max)) / 2.0,
        LengthShape::Normal { mean, .. } => mean,
        LengthShape::Lognormal { median, sigma } => median * (sigma * sigma / 2.0).exp(),
    };
    mean.clamp(f64::from(lengths.min), f64::from(lengths.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_within_their_bounds_and_near_their_mean() {
        let mut rng = stream(3, Purpose::Lengths, 0);
        for shape in [
            LengthShape::Uniform,
            LengthShape::Normal { mean: 100.0, sd: 20.0 },
            LengthShape::Lognormal { median: 100.0, sigma: 0.3 },
        ] {
            let lengths = Lengths { shape, min: 50, max: 150 };
            let draws: Vec<u32> = (0..4000).map(|_| length(&lengths, &mut rng)).collect();
            assert!(draws.iter().all(|d| (50..=150).contains(d)));
            let mean = draws.iter().map(|d| f64::from(*d)).sum::<f64>() / 4000.0;
            assert!((mean - mean_length(&lengths)).abs() < 4.0, "{shape:?}: {mean}");
        }
    }

    #[test]
    fn mixed_seeds_differ_in_every_part() {
        assert_ne!(mix(1, &[2, 3]), mix(1, &[3, 2]));
        assert_ne!(mix(1, &[2]), mix(2, &[2]));
        assert_eq!(mix(9, &[1, 2]), mix(9, &[1, 2]));
    }
}
