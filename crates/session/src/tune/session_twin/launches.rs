//! How much the launches of an engine differ in speed, and what that adds to the error of a certified rate.
//!
//! A certified rate is for launches to come. On a GPU of their own they agree within 2 %. On shared cores a prior of 10 % holds until enough
//! launches agree: the certifying launch may be a fast one. If the error by launches is larger than that by windows, the next certifying probe
//! has its own launch, if the budget holds it.

use std::collections::BTreeMap;

use autotune_numerics::spread::{mean, squares};

/// Launches are alike if the standard deviation of the logarithm of their speeds is below this. The rest is the error of the twin from point to
/// point.
const ALIKE: f64 = 0.03;
/// The prior of that standard deviation where the machine may be shared. Real vLLM on two shared cores had a median time per token between 3.6 and
/// 5.2 ms from launch to launch (`profiles/vllm-cpu-small.toml`).
const SHARED: f64 = 0.1;
/// The weight of [`SHARED`], in launches: the variance of few launches can be small by chance. Without it, 8 % of the rates of `cpu-noisy` in
/// `cargo bench --bench search` (70 seeds) lay more than 3 % too high. With it, 1.4 %.
const FORESEEN: f64 = 1.0;

/// How much slower a typical launch is than the certifying ones, with its error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Launches {
    /// How much larger the logarithm of a step's duration is in a typical launch. Never negative: a slow launch proves nothing of a faster one.
    pub slower: f64,
    pub error: f64,
    pub freedom: f64,
    pub count: f64,
}

impl Launches {
    /// Of the trials of probes, each with the logarithm of its steps' duration over that of the fit. `certifies` says which trials certify,
    /// `shared` whether others may use the machine. Nothing where launches of a machine of one's own are alike, or where there is but one.
    pub fn of(probes: impl IntoIterator<Item = (u32, f64)>, certifies: impl Fn(u32) -> bool, shared: bool) -> Self {
        let mut by_trial: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for (trial, slower) in probes {
            by_trial.entry(trial).or_default().push(slower);
        }
        let launches: Vec<(bool, f64)> = by_trial.iter().map(|(trial, all)| (certifies(*trial), mean(all))).collect();
        let all: Vec<f64> = launches.iter().map(|(_, slower)| *slower).collect();
        let certifying: Vec<f64> = launches.iter().filter(|l| l.0).map(|l| l.1).collect();
        if all.len() < 2 {
            return Self::default();
        }
        let (count, typical) = (all.len() as f64, mean(&all));
        let squares = squares(&all);
        if !shared && squares < ALIKE.powi(2) * (count - 1.0) {
            return Self::default();
        }
        let foreseen = if shared { FORESEEN } else { 0.0 };
        let freedom = count - 1.0 + foreseen;
        let variance = (squares + foreseen * SHARED.powi(2)) / freedom;
        let slower = if certifying.is_empty() { 0.0 } else { (typical - mean(&certifying)).max(0.0) };
        Self { slower, error: (variance / count).sqrt(), freedom, count }
    }

    /// As if another launch like these were known.
    pub fn with_another(self) -> Self {
        let count = self.count + 1.0;
        Self { error: self.error * (self.count / count).sqrt(), freedom: self.freedom + 1.0, count, ..self }
    }

    /// Whether they differ by more than the probes of one do.
    pub fn differ(&self) -> bool {
        self.error > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alike_launches_say_nothing_and_a_lucky_one_is_seen_through() {
        let alike = [(1, 0.01), (1, -0.02), (2, 0.015), (3, -0.01)];
        assert_eq!(Launches::of(alike, |t| t == 3, false), Launches::default());
        assert_eq!(Launches::of([(3, 0.2)], |t| t == 3, true), Launches::default());
        let differ = [(1, 0.1), (1, 0.14), (2, 0.0), (3, -0.12)];
        let lucky = Launches::of(differ, |t| t == 3, false);
        assert!((lucky.slower - 0.12).abs() < 1e-9 && lucky.freedom == 2.0, "{lucky:?}");
        assert!((0.05..0.1).contains(&lucky.error), "{lucky:?}");
        assert_eq!(Launches::of(differ, |t| t == 1, false).slower, 0.0);
        let more = lucky.with_another();
        assert!(more.error < lucky.error && more.freedom == 3.0 && more.slower == lucky.slower, "{more:?}");
        assert!(!Launches::default().with_another().differ());
    }

    #[test]
    fn launches_of_a_shared_machine_are_thought_to_differ_until_many_were_alike() {
        let two = [(1, 0.01), (2, -0.01)];
        assert!(!Launches::of(two, |t| t == 2, false).differ());
        let doubtful = Launches::of(two, |t| t == 2, true);
        assert!((0.04..0.06).contains(&doubtful.error) && doubtful.freedom == 2.0, "{doubtful:?}");
        let many = Launches::of((1..=9).map(|trial| (trial, 0.01 * f64::from(trial % 2))), |t| t > 1, true);
        assert!(many.error < 0.015 && many.freedom == 9.0, "{many:?}");
        let wide = [(1, 0.2), (2, -0.2)];
        assert!(Launches::of(wide, |t| t == 2, true).error > 2.0 * doubtful.error);
    }
}
