//! Where the limit of a point lies: the probability that every promise holds, as it falls with the rate.

use super::Expectation;
use super::margins::Margins;
use autotune_plan::space::Point;
use autotune_records::units::Rate;

/// The ratio of neighbouring rates at which the model is asked.
pub const STEP: f64 = 1.06;
/// Most steps up and down from where a curve begins.
const UP: i32 = 24;
pub const DOWN: i32 = 72;
/// Beyond these probabilities a curve has ended.
const SURE: f64 = 0.985;
const LOST: f64 = 0.015;

/// The belief about a point's limit: knots of log rate and the probability that every promise holds there.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Ascending log rates; probabilities never rise.
    knots: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Root {
    pub rate: Rate,
    /// The standard error of its logarithm.
    pub error: f64,
}

/// A rate of the ladder: so many steps above its first.
pub fn rate_at(ladder: Rate, step: i32) -> Rate {
    Rate(ladder.0 * STEP.powi(step))
}

/// The step of the ladder at a rate, or next below it.
pub fn step_below(ladder: Rate, rate: Rate) -> i32 {
    ((rate.0 / ladder.0).ln() / STEP.ln()).floor() as i32
}

impl Curve {
    /// Upwards from `from`, which is enough to tell what a point may gain on an incumbent, and at most so many steps down: [`DOWN`] of them lead to
    /// the lowest rate that is any use. Knots lie on one ladder for all points, so that a twin is asked at the same rates for
    /// each of them.
    pub fn walk(
        (from, down): (Rate, i32),
        ladder: Rate,
        margins: &Margins,
        point: &Point,
        engine: &mut dyn Expectation,
    ) -> Self {
        let begin = step_below(ladder, from);
        let mut at = |k: i32| {
            let rate = rate_at(ladder, k);
            (rate.0.ln(), margins.holds(point, rate, engine))
        };
        let mut knots = vec![at(begin)];
        let mut k = begin;
        while knots[knots.len() - 1].1 > LOST && k < begin + UP {
            k += 1;
            knots.push(at(k));
        }
        let mut k = begin;
        while knots[0].1 < SURE && k > begin - down {
            k -= 1;
            knots.insert(0, at(k));
        }
        // A higher rate never holds better.
        let mut least = 1.0_f64;
        for (_, holds) in &mut knots {
            least = least.min(*holds);
            *holds = least;
        }
        Self { knots }
    }

    /// The probability that the promises hold at that rate.
    pub fn holds(&self, log_rate: f64) -> f64 {
        let after = self.knots.partition_point(|(log, _)| *log < log_rate);
        match (after.checked_sub(1).and_then(|i| self.knots.get(i)), self.knots.get(after)) {
            (Some((a, at_a)), Some((b, at_b))) => at_a + (at_b - at_a) * (log_rate - a) / (b - a),
            (None, Some((_, first))) => *first,
            (Some((_, last)), None) => *last,
            (None, None) => 0.0,
        }
    }

    /// The log rate at which the probability falls below `p`; `None` if it never is that high, and the last knot's rate if it never falls that low.
    fn falls_to(&self, p: f64) -> Option<f64> {
        let after = self.knots.iter().position(|(_, holds)| *holds < p).unwrap_or(self.knots.len());
        let (a, at_a) = *self.knots.get(after.checked_sub(1)?)?;
        let Some((b, at_b)) = self.knots.get(after) else { return Some(a) };
        Some(a + (b - a) * (at_a - p) / (at_a - at_b).max(1e-9))
    }

    /// The limit; `None` if even the lowest rate more probably breaks a promise than not.
    pub fn root(&self) -> Option<Root> {
        let middle = self.falls_to(0.5)?;
        // One standard deviation on each side, if the limit is lognormal.
        let low = self.falls_to(0.84).unwrap_or(self.knots[0].0);
        let high = self.falls_to(0.16)?;
        Some(Root { rate: Rate(middle.exp()), error: 0.5 * (high - low) })
    }

    /// The expected gain in rate above that of an incumbent, as a share of it: the integral of the probability to hold.
    pub fn gain(&self, incumbent: Rate) -> f64 {
        let (begin, end) = (incumbent.0.ln(), self.knots.last().map_or(0.0, |(log, _)| *log));
        let steps = if end > begin { ((end - begin) / 0.01).ceil() as usize } else { 0 };
        let width = (end - begin) / steps.max(1) as f64;
        let slice = |i: usize| {
            let (a, b) = (begin + i as f64 * width, begin + (i + 1) as f64 * width);
            (b.exp() - a.exp()) * 0.5 * (self.holds(a) + self.holds(b))
        };
        (0..steps).map(slice).sum::<f64>() / incumbent.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit is lognormal around 10 with a spread of 5 %.
    fn curve() -> Curve {
        use statrs::distribution::{ContinuousCDF, Normal};
        let normal = Normal::new(10_f64.ln(), 0.05).unwrap();
        Curve {
            knots: (-30..=30).map(|k| 10_f64.ln() + f64::from(k) * 0.01).map(|l| (l, 1.0 - normal.cdf(l))).collect(),
        }
    }

    #[test]
    fn the_root_is_the_median_with_its_error() {
        let root = curve().root().unwrap();
        assert!((root.rate.0 - 10.0).abs() < 0.02 && (root.error - 0.05).abs() < 0.002, "{root:?}");
    }

    #[test]
    fn the_gain_over_an_equal_incumbent_is_that_of_a_normal() {
        // E[max(0, x)] of a normal is its spread over the root of two pi.
        assert!((curve().gain(Rate(10.0)) - 0.05 * 0.3989).abs() < 0.002, "{}", curve().gain(Rate(10.0)));
        assert!(curve().gain(Rate(13.0)) < 1e-4);
        assert!((curve().gain(Rate(8.0)) - 0.25).abs() < 0.01);
    }

    #[test]
    fn a_point_that_holds_nowhere_has_no_root() {
        assert_eq!(Curve { knots: vec![(0.0, 0.3), (1.0, 0.1)] }.root(), None);
    }
}
