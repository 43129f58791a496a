//! What fresh probes of one cold engine prove together: the limit in rate, and the rate that is safely below it.
//!
//! Pure. Each probe tells a margin with its error at its own rate; along the slope of the margin in the rate they speak of every rate near
//! by. A rate is certified where all of them together are sure, and never above the highest that was driven.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::search::round;
use crate::units::Rate;
use crate::verdict::{Certainty, Verdict};

/// Two launches of an engine differ by about so much in a p99 (within 3 % on an H200): no number of probes of one launch is surer.
const OF_A_LAUNCH: f64 = 0.015;
/// How uncertain a slope is, as a share of itself.
const SLOPE_ERROR: f64 = 0.3;
/// A margin rises at least so fast with the logarithm of the rate, near its limit.
const LEAST_SLOPE: f64 = 0.7;
/// ... and is thought to rise so fast where no twin tells.
const SLOPE: f64 = 1.2;
/// What a probe that was cut, or whose queue grew, says: broken by about so much, give or take as much.
const BROKEN: f64 = 0.12;
/// What a certainty of 95 % costs in standard errors, with some tenths for small numbers of blocks and for roundness.
const AS_NEAR: f64 = 2.0;
/// Rates are looked through in such steps of their logarithm, down to the lowest that is looked at.
const FINE: f64 = 1e-3;
const DEEPEST: f64 = 0.7;
/// The next rate is at most so many times the last, and at least so many times.
const STRIDE: (f64, f64) = (0.75, 1.3);

/// One promise in one probe.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Evidence {
    log_rate: f64,
    margin: f64,
    error: f64,
    freedom: f64,
    slope: f64,
}

/// The evidence of one engine.
#[derive(Clone, Debug, Default)]
pub(super) struct Certifier {
    /// By promise.
    evidence: Vec<Vec<Evidence>>,
    /// Rates that were driven to their end.
    driven: Vec<f64>,
}

/// What is proved so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Proof {
    /// The highest rate that is certified.
    pub(super) rate: Rate,
    /// One-sided confidence that every promise holds there.
    pub(super) confidence: f64,
    /// The limit as best known.
    pub(super) limit: Rate,
    /// The standard error of its logarithm.
    pub(super) error: f64,
}

impl Certifier {
    /// Takes in a probe that was not void. `slopes` are those of each margin in the logarithm of the rate, where a twin tells.
    pub(super) fn hear(&mut self, rate: Rate, verdict: &Verdict, slopes: &[Option<f64>]) {
        self.evidence.resize(verdict.limits.len(), Vec::new());
        let whole = verdict.complete && !verdict.saturated;
        if whole {
            self.driven.push(rate.0);
        }
        for (l, limit) in verdict.limits.iter().enumerate() {
            let slope = slopes.get(l).copied().flatten().unwrap_or(SLOPE).max(LEAST_SLOPE);
            let seen = limit.deciding_margin().zip(limit.deciding_error()).filter(|_| whole || !limit.broken());
            let (margin, error) = match seen {
                Some(seen) => seen,
                None if limit.broken() || !whole => (BROKEN, BROKEN),
                None => continue,
            };
            let freedom = limit.deciding_freedom();
            self.evidence[l].push(Evidence { log_rate: rate.0.ln(), margin, error, freedom, slope });
        }
    }

    /// One-sided confidence that every promise holds at that rate.
    fn confidence(&self, log_rate: f64) -> f64 {
        self.evidence.iter().map(|of_a_promise| at(of_a_promise, log_rate)).fold(
            1.0,
            |least, (margin, error, freedom)| {
                let t = StudentsT::new(0.0, 1.0, freedom.max(1.0));
                f64::min(least, t.map_or(0.0, |t| t.cdf(-margin / error)))
            },
        )
    }

    /// The highest rate with that confidence, of those near the driven ones.
    fn highest(&self, confidence: f64) -> Option<f64> {
        let rates = || self.evidence.iter().flatten().map(|e| e.log_rate);
        let top = rates().reduce(f64::max)? + STRIDE.1.ln();
        let depth = top - (rates().reduce(f64::min)? + DEEPEST.ln());
        let steps = (depth / FINE) as usize;
        (0..=steps).map(|i| top - i as f64 * FINE).find(|log| self.confidence(*log) >= confidence)
    }

    /// What is proved; none where no rate near those driven is certain.
    pub(super) fn proof(&self) -> Option<Proof> {
        let limit = self.highest(0.5)?;
        let safe = self.highest(Certainty::CERTIFIED.0)?;
        let highest = self.driven.iter().copied().reduce(f64::max)?;
        let rate = down(Rate(safe.exp().min(highest)));
        let error = (limit - self.highest(0.84)?).max(1e-4);
        Some(Proof { rate, confidence: self.confidence(rate.0.ln()), limit: Rate(limit.exp()), error })
    }

    /// Whether the limit is known to that standard error, and the certified rate lies as near below it as that allows.
    pub(super) fn precise(&self, precision: f64) -> bool {
        self.proof().is_some_and(|p| p.error <= precision && p.rate.0 >= p.limit.0 * (1.0 - AS_NEAR * precision))
    }

    /// Where the next probe says most: just below the limit as best known.
    pub(super) fn next(&self, last: Rate) -> Rate {
        let limit = self.highest(0.5).map_or(last.0 * STRIDE.0, f64::exp);
        let safe = self.highest(Certainty::CERTIFIED.0).map_or(limit, f64::exp);
        round(Rate((limit * safe).sqrt().clamp(last.0 * STRIDE.0, last.0 * STRIDE.1)))
    }
}

/// The margin of a promise at a rate by all that was seen of it, its error, and the freedom of that.
fn at(evidence: &[Evidence], log_rate: f64) -> (f64, f64, f64) {
    let (mut weights, mut sum, mut freedom) = (0.0, 0.0, 0.0);
    for e in evidence {
        let way = e.slope * (log_rate - e.log_rate);
        let weight = 1.0 / (e.error.powi(2) + (SLOPE_ERROR * way).powi(2));
        weights += weight;
        sum += weight * (e.margin + way);
        freedom += e.freedom;
    }
    if weights == 0.0 { (0.0, 1.0, 1.0) } else { (sum / weights, (1.0_f64 / weights).sqrt().max(OF_A_LAUNCH), freedom) }
}

/// Three significant digits, never rounded up.
fn down(rate: Rate) -> Rate {
    let scale = 10f64.powi(2 - rate.0.max(1e-9).log10().floor() as i32);
    Rate((rate.0 * scale + 1e-6).floor() / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Seconds;
    use crate::verdict::paired::{Judge, Paired};
    use crate::verdict::{LimitResult, Outcome};

    /// A probe of one promise, as the pair sees it; without a margin it was cut.
    fn verdict(margin: Option<f64>, error: f64) -> Verdict {
        let time = Seconds(0.1);
        let paired = margin.map(|margin| Paired {
            key: "tpot_p99".into(),
            at_most: time,
            requests: 500,
            measured: time,
            replayed: time,
            long: time,
            estimate: time,
            error,
            freedom: 9.0,
            direct_error: 0.2,
            explained: 0.9,
            margin,
            confidence: 0.5,
            windows_that_hold: None,
            judge: Judge::Paired,
            because: String::new(),
        });
        let limit = LimitResult {
            key: "tpot_p99".into(),
            at_most: time,
            quantile: 0.99,
            observations: 500,
            violations: if margin.is_none() { 50 } else { 3 },
            measured: margin.map(|_| time),
            margin,
            margin_error: margin.map(|_| 0.2),
            paired,
        };
        Verdict {
            outcome: Outcome::Unresolved,
            because: String::new(),
            limits: vec![limit],
            binding: Some("tpot_p99".into()),
            offered: Rate(10.0),
            achieved: Rate(10.0),
            counted: 500,
            errors: std::collections::BTreeMap::new(),
            saturated: false,
            complete: margin.is_some(),
            confidence: 0.5,
            by_count: None,
        }
    }

    /// Drives an engine with that limit and slope until it is known; returns what is proved and the rates that were driven.
    fn certify(limit: f64, from: f64, error: f64, precision: f64) -> (Option<Proof>, Vec<f64>) {
        let (mut certifier, mut rate, mut driven) = (Certifier::default(), Rate(from), Vec::new());
        for _ in 0..8 {
            let margin = 2.0 * (rate.0 / limit).ln();
            driven.push(rate.0);
            certifier.hear(rate, &verdict((margin < 0.4).then_some(margin), error), &[Some(2.0)]);
            if certifier.precise(precision) {
                break;
            }
            rate = certifier.next(rate);
        }
        (certifier.proof(), driven)
    }

    #[test]
    fn one_good_probe_near_the_limit_is_enough() {
        let (proof, driven) = certify(10.0, 9.9, 0.02, 0.03);
        let proof = proof.unwrap();
        assert_eq!(driven.len(), 1);
        assert!((0.96..0.99).contains(&(proof.rate.0 / 10.0)), "{proof:?}");
        assert!((proof.limit.0 - 10.0).abs() < 0.05 && proof.confidence >= 0.95 && proof.error < 0.015);
    }

    #[test]
    fn an_estimate_that_was_too_high_or_too_low_is_moved_to_the_limit() {
        for from in [7.0, 13.5] {
            let (proof, driven) = certify(10.0, from, 0.03, 0.04);
            let rate = proof.unwrap().rate.0 / 10.0;
            assert!((0.94..1.0).contains(&rate) && driven.len() <= 5, "from {from}: {rate} after {driven:?}");
        }
    }

    #[test]
    fn more_probes_make_it_surer_and_a_relaunch_leaves_its_doubt() {
        let proof = |probes: usize| {
            let mut certifier = Certifier::default();
            (0..probes).for_each(|_| certifier.hear(Rate(9.8), &verdict(Some(-0.04), 0.06), &[Some(2.0)]));
            certifier.proof().unwrap()
        };
        assert!(proof(3).rate.0 > proof(1).rate.0);
        assert!(proof(40).error >= OF_A_LAUNCH / 2.0 * 0.9);
    }

    #[test]
    fn nothing_is_certified_above_what_was_driven_or_from_probes_that_were_cut() {
        let mut certifier = Certifier::default();
        certifier.hear(Rate(5.0), &verdict(Some(-0.5), 0.02), &[Some(2.0)]);
        assert_eq!(certifier.proof().unwrap().rate, Rate(5.0));
        assert!(!certifier.precise(0.05) && certifier.next(Rate(5.0)).0 > 5.5);
        let mut cut = Certifier::default();
        cut.hear(Rate(5.0), &verdict(None, 0.0), &[Some(2.0)]);
        assert!(cut.proof().is_none() && cut.next(Rate(5.0)).0 < 5.0);
    }

    #[test]
    fn rates_are_rounded_down() {
        assert_eq!([down(Rate(12.39)), down(Rate(0.5678)), down(Rate(84.6))], [Rate(12.3), Rate(0.567), Rate(84.6)]);
    }
}
