//! Random draws: independent seeded streams by purpose, and token counts from their distributions.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal, Normal, Uniform};
use statrs::distribution::ContinuousCDF as _;

use autotune_plan::settings::{LengthShape, Lengths};

/// What a stream of random numbers is for; streams of different purposes are independent, so that a longer prompt never
/// moves an arrival.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Arrivals = 1,
    Lengths = 2,
    Content = 3,
    Shared = 4,
    Population = 5,
    Order = 6,
}

pub(super) fn stream(seed: u64, purpose: Purpose, item: u32) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream((purpose as u64) << 32 | u64::from(item));
    rng
}

pub(super) fn length(lengths: &Lengths, rng: &mut ChaCha8Rng) -> u32 {
    match &lengths.shape {
        LengthShape::Fixed => lengths.min,
        LengthShape::Uniform => uniform(lengths.min, lengths.max, rng),
        LengthShape::Normal { mean, sd } => held(lengths, Normal::new(*mean, *sd).map_or(*mean, |d| d.sample(rng))),
        LengthShape::Lognormal { median, sigma } => {
            held(lengths, LogNormal::new(median.ln(), *sigma).map_or(*median, |d| d.sample(rng)))
        }
        LengthShape::Histogram { edges, counts } => {
            let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
            let mut ball = rng.random_range(0..total.max(1));
            for (low, high, count) in bins(edges, counts) {
                match ball.checked_sub(u64::from(count)) {
                    Some(rest) => ball = rest,
                    None => return uniform(low, high, rng),
                }
            }
            lengths.max
        }
    }
}

/// The token count below which that share of all draws lies, 0 to 1.
pub(super) fn length_at(lengths: &Lengths, share: f64) -> u32 {
    let normal =
        |mean: f64, sd: f64| statrs::distribution::Normal::new(mean, sd).map_or(mean, |d| d.inverse_cdf(share));
    let between = |low: u32, high: u32, share: f64| f64::from(low) + (share * (f64::from(high - low) + 1.0)).floor();
    let tokens = match &lengths.shape {
        LengthShape::Fixed => f64::from(lengths.min),
        LengthShape::Uniform => between(lengths.min, lengths.max, share),
        LengthShape::Normal { mean, sd } => normal(*mean, *sd),
        LengthShape::Lognormal { median, sigma } => normal(median.ln(), *sigma).exp(),
        LengthShape::Histogram { edges, counts } => {
            let mut left = share * counts.iter().map(|count| f64::from(*count)).sum::<f64>();
            let found = bins(edges, counts).find_map(|(low, high, count)| {
                let of_bin = left / f64::from(count);
                left -= f64::from(count);
                (of_bin < 1.0).then(|| between(low, high, of_bin))
            });
            found.unwrap_or(f64::from(lengths.max))
        }
    };
    held(lengths, tokens)
}

/// Whole tokens within the bounds.
fn held(lengths: &Lengths, tokens: f64) -> u32 {
    (tokens.round().clamp(0.0, f64::from(u32::MAX)) as u32).clamp(lengths.min, lengths.max)
}

fn uniform(low: u32, high: u32, rng: &mut ChaCha8Rng) -> u32 {
    Uniform::new_inclusive(low, high).map_or(low, |d| d.sample(rng))
}

/// The smallest and the largest count of each bin, and its weight. The last bin holds its upper edge.
fn bins<'a>(edges: &'a [u32], counts: &'a [u32]) -> impl Iterator<Item = (u32, u32, u32)> + 'a {
    let last = counts.len().saturating_sub(1);
    let bounds = edges.array_windows().enumerate();
    bounds
        .zip(counts)
        .map(move |((bin, [low, high]), count)| (*low, if bin == last { *high } else { high - 1 }, *count))
}

/// So many parts: the mean of a distribution is known to a thousandth.
const PARTS: u32 = 256;

/// The mean token count: that of the middles of equal parts of the distribution.
pub(super) fn mean_length(lengths: &Lengths) -> f64 {
    let middle = |part: u32| f64::from(length_at(lengths, (f64::from(part) + 0.5) / f64::from(PARTS)));
    (0..PARTS).map(middle).sum::<f64>() / f64::from(PARTS)
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
            let lengths = Lengths { shape: shape.clone(), min: 50, max: 150 };
            let draws: Vec<u32> = (0..4000).map(|_| length(&lengths, &mut rng)).collect();
            assert!(draws.iter().all(|d| (50..=150).contains(d)));
            let mean = draws.iter().map(|d| f64::from(*d)).sum::<f64>() / 4000.0;
            assert!((mean - mean_length(&lengths)).abs() < 4.0, "{shape:?}: {mean}");
        }
    }

    #[test]
    fn evenly_spread_shares_are_distributed_as_draws_are() {
        let mut rng = stream(5, Purpose::Lengths, 0);
        for shape in [
            LengthShape::Uniform,
            LengthShape::Normal { mean: 100.0, sd: 20.0 },
            LengthShape::Lognormal { median: 100.0, sigma: 0.3 },
            LengthShape::Histogram { edges: vec![50, 60, 120, 150], counts: vec![3, 0, 1] },
        ] {
            let lengths = Lengths { shape: shape.clone(), min: 50, max: 150 };
            let mut draws: Vec<u32> = (0..20_000).map(|_| length(&lengths, &mut rng)).collect();
            draws.sort_unstable();
            for tenth in 0..10 {
                let share = 0.05 + f64::from(tenth) / 10.0;
                let (drawn, at) = (draws[(share * 20_000.0) as usize], length_at(&lengths, share));
                assert!(drawn.abs_diff(at) <= 2, "{shape:?} at {share}: {at}, drawn {drawn}");
            }
        }
        let fixed = Lengths { shape: LengthShape::Fixed, min: 7, max: 7 };
        assert_eq!([0.0, 0.999].map(|share| length_at(&fixed, share)), [7, 7]);
    }

    #[test]
    fn a_histogram_draws_its_bins_by_weight_and_uniformly_inside() {
        let shape = LengthShape::Histogram { edges: vec![1, 11, 50, 52], counts: vec![3, 0, 1] };
        let lengths = Lengths { shape, min: 1, max: 52 };
        let mut rng = stream(4, Purpose::Lengths, 0);
        let draws: Vec<u32> = (0..40_000).map(|_| length(&lengths, &mut rng)).collect();
        let share = |bin: std::ops::RangeInclusive<u32>| {
            draws.iter().filter(|draw| bin.contains(draw)).count() as f64 / draws.len() as f64
        };
        assert!((share(1..=10) - 0.75).abs() < 0.01 && (share(50..=52) - 0.25).abs() < 0.01);
        assert_eq!(share(11..=49), 0.0);
        assert!((share(1..=1) - 0.075).abs() < 0.01 && (share(52..=52) - 0.0833).abs() < 0.01);
        let mean = draws.iter().map(|d| f64::from(*d)).sum::<f64>() / 40_000.0;
        assert!((mean - mean_length(&lengths)).abs() < 0.3 && (mean_length(&lengths) - 16.875).abs() < 1e-9, "{mean}");
    }
}
