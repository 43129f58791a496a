//! How the launches of an engine differ, and what that says of the one that certifies.
//!
//! A certified rate is for launches to come. On a machine of one's own these are alike within 2 %, on a shared one they are not: the launch
//! that certifies may have been a lucky one, which the launches of the search tell. Where launches differ, every probe that certifies gets
//! one of its own.

use std::collections::BTreeMap;

/// Launches whose speeds differ by less than this, as a standard deviation of their logarithm, are as alike as the probes of one: what is left
/// is what a twin gets wrong from point to point.
const ALIKE: f64 = 0.03;

/// How much slower than the launches that certify others may be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Launches {
    /// By how much the logarithm of a step's duration is larger in a typical launch; never negative, since a slow launch has proved nothing
    /// of a faster one.
    pub(super) slower: f64,
    /// The standard error of that.
    pub(super) error: f64,
    /// The degrees of freedom of that error.
    pub(super) freedom: f64,
}

impl Launches {
    /// By the trials of probes with the logarithm of their steps' duration over what the fit to all of them says, and which of them
    /// certify. Nothing where launches are alike, or where there is but one.
    pub(super) fn of(probes: impl IntoIterator<Item = (u32, f64)>, certifies: impl Fn(u32) -> bool) -> Self {
        let mut by_trial: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for (trial, slower) in probes {
            by_trial.entry(trial).or_default().push(slower);
        }
        let launches: Vec<(bool, f64)> = by_trial.iter().map(|(trial, all)| (certifies(*trial), mean(all))).collect();
        let all: Vec<f64> = launches.iter().map(|(_, slower)| *slower).collect();
        let certifying: Vec<f64> = launches.iter().filter(|l| l.0).map(|l| l.1).collect();
        let n = all.len() as f64;
        if all.len() < 2 {
            return Self::default();
        }
        let typical = mean(&all);
        let variance = all.iter().map(|slower| (slower - typical).powi(2)).sum::<f64>() / (n - 1.0);
        if variance < ALIKE.powi(2) {
            return Self::default();
        }
        let slower = if certifying.is_empty() { 0.0 } else { (typical - mean(&certifying)).max(0.0) };
        Self { slower, error: (variance / n).sqrt(), freedom: n - 1.0 }
    }

    /// The same once another one is known that is like the others.
    pub(super) fn with_another(self) -> Self {
        let n = self.freedom + 1.0;
        Self { error: self.error * (n / (n + 1.0)).sqrt(), freedom: self.freedom + 1.0, ..self }
    }

    /// Whether they differ by more than the probes of one do.
    pub(super) fn differ(&self) -> bool {
        self.error > 0.0
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alike_launches_say_nothing_and_a_lucky_one_is_seen_through() {
        let alike = [(1, 0.01), (1, -0.02), (2, 0.015), (3, -0.01)];
        assert_eq!(Launches::of(alike, |t| t == 3), Launches::default());
        assert_eq!(Launches::of([(3, 0.2)], |t| t == 3), Launches::default());
        let differ = [(1, 0.1), (1, 0.14), (2, 0.0), (3, -0.12)];
        let lucky = Launches::of(differ, |t| t == 3);
        assert!((lucky.slower - 0.12).abs() < 1e-9 && lucky.freedom == 2.0, "{lucky:?}");
        assert!((0.05..0.1).contains(&lucky.error), "{lucky:?}");
        assert_eq!(Launches::of(differ, |t| t == 1).slower, 0.0);
        let more = lucky.with_another();
        assert!(more.error < lucky.error && more.freedom == 3.0 && more.slower == lucky.slower, "{more:?}");
        assert!(!Launches::default().with_another().differ());
    }
}
