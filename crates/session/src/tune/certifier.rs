//! What fresh probes of one engine prove together: the limit in rate, and the rate that is safely below it.
//!
//! Pure. Each probe gives a margin and its error at its own rate. The twin's curve of the margin over the rate carries them to every rate near by.
//! A rate is certified if all probes together are sure of it. It lies below every rate that surely failed, and never above the highest that was
//! driven.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::predictor::Ceiling;
use crate::journal::COMMON_ERROR;
use crate::verdict::paired::FREEDOM_BEFOREHAND;
use crate::verdict::{Certainty, LimitResult, Verdict, broken_most};
use autotune_numerics::spread::combined;
use autotune_records::units::Rate;

/// The least standard deviation of log p99 between launches at one rate: p99s of two launches lay within 3 % on an H200.
const LAUNCH_SD: f64 = 0.015;
/// The standard error of the change of a margin between two rates, as a share of that change.
const SHIFT_ERROR: f64 = 0.3;
/// The slope of a margin over the logarithm of the rate where there is no twin.
const SLOPE: f64 = 1.2;
/// The slope without a twin of a promise that includes waiting, close below a rate that failed. A queue may form, of which lower rates tell little.
/// Its error is as large as the slope. With [`SLOPE`], 39 of 359 rates that the count certified were more than 3 % too high; with this, 2 of 367
/// (`docs/results.md`, speculation). Real vLLM behind Dynamo had a slope of 22 between 0.95 and 1.05 of a certified rate.
const SLOPE_OF_QUEUE: f64 = 6.0;
/// The least slope of a margin: a twin that sees no rise is too flat.
const LEAST_SLOPE: f64 = 0.3;
/// What takes the place of [`COMMON_ERROR`] where others may use the engine's machine, or where no twin tells how a margin rises. Real vLLM on two
/// shared cores had a median time per token between 3.6 and 5.2 ms from launch to launch (`profiles/vllm-cpu-small.toml`). The size is that with
/// which simulated sessions of both kinds have their limits in their 90 % interval (`docs/results.md`).
const LARGER_ERROR: f64 = 0.03;
/// The next rate below one that surely failed, as a factor. As long as nothing holds, each failed probe takes it once more. On real vLLM, five
/// probes of one proof came from 31.0 to 23.2 req/s by 7 % each time. The last was still above the limit.
const BELOW_FAILURE: f64 = 0.93;
/// The standard error of the logarithm of the rate from which on an engine collapses. It makes a 90 % interval around the ceiling times
/// e^[`CLEARANCE`]. In 14 sessions of `benches/search` on three engines whose KV cache fills, 25 of 27 true limits lay in it.
const CEILING_SD: f64 = 0.04;
/// How far the limit lies above a ceiling, in logarithms: a ceiling is the highest rate whose stress replay passes, divided by 1.08 (`STRESS_FACTOR`). A rate is 95 % sure
/// from 3.5 % below its ceiling on. At the ceiling itself, 5 of 16 rates of two such engines lay above their limit, 2 of them by more than 3 %.
const CLEARANCE: f64 = 0.03;
/// A rate is 95 % sure if its ceiling is at least this many times the rate.
pub const CEILING_OVER_SURE_RATE: f64 = 1.037;
/// Where a ceiling binds, a certified rate lies at most this far below its limit, rounding included. No probe brings it nearer.
const BELOW_CEILING: f64 = 0.075;
/// The distance of a certified rate from its limit, in standard errors: 1.645 for 95 %, the rest for few blocks and rounding.
const PRECISE_ERRORS: f64 = 2.0;
/// Probing ends once the certified rate lies within so many times the precision of the limit. With [`PRECISE_ERRORS`] here, the median certified
/// rate of `cargo bench --bench search` lay at 94.9 % of its limit.
const DONE_ERRORS: f64 = 1.7;
/// The resolution of rates, in their logarithm.
const RESOLUTION: f64 = 2e-4;
/// No rate is looked for below this share of the lowest that was driven.
const LOWEST_SHARE: f64 = 0.7;
/// The least and the largest factor from one rate to the next.
const STRIDE: (f64, f64) = (0.75, 1.3);

/// Steps of the margins that a report shows.
const REPORT_STEPS: i32 = 12;

/// A promise's margin by the logarithm of the rate, ascending, as a twin expects it.
pub type MarginCurve = Vec<(f64, f64)>;

/// One promise in one probe.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Evidence {
    log_rate: f64,
    margin: f64,
    error: f64,
    freedom: f64,
}

/// A rate that surely failed, and the place of the promise that broke there, where it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Failure {
    log_rate: f64,
    promise: Option<usize>,
}

#[derive(Clone, Debug, Default)]
pub struct Certifier {
    evidence: Vec<Vec<Evidence>>,
    /// By promise; empty where no twin tells.
    curves: Vec<MarginCurve>,
    /// Whether a promise includes waiting, by promise.
    waits: Vec<bool>,
    /// Log rates that were driven to their end, and those that surely failed: cut, saturated, or with a promise that was broken beyond measure.
    driven: Vec<f64>,
    failed: Vec<Failure>,
    /// The highest log rate that passes the stress replay, where that is near.
    ceiling: Option<f64>,
    /// Whether others may use the engine's machine.
    pub shared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proof {
    pub rate: Rate,
    /// One-sided confidence that every promise holds there, and that the engine does not collapse.
    pub confidence: f64,
    /// The limit as best known.
    pub limit: Rate,
    /// The standard error of its logarithm. Where the limit is only known to lie no lower, it reaches down to the certified rate.
    pub error: f64,
}

impl Certifier {
    /// Adds a probe that was not void. `curves` are what a twin expects around its rate, by promise.
    pub fn add_probe(&mut self, rate: Rate, verdict: &Verdict, curves: Vec<MarginCurve>) {
        self.evidence.resize(verdict.limits.len(), Vec::new());
        self.curves = curves;
        self.waits = verdict.limits.iter().map(LimitResult::includes_waiting).collect();
        let log_rate = rate.0.ln();
        if !verdict.complete || verdict.saturated {
            self.failed.push(Failure { log_rate, promise: broken_most(&verdict.limits) });
            return;
        }
        self.driven.push(log_rate);
        for (l, limit) in verdict.limits.iter().enumerate() {
            match limit.deciding_margin().zip(limit.deciding_error()) {
                Some((margin, error)) => {
                    let freedom = limit.deciding_freedom();
                    self.evidence[l].push(Evidence { log_rate, margin, error, freedom });
                }
                None if limit.broken() => self.failed.push(Failure { log_rate, promise: Some(l) }),
                None => {}
            }
        }
    }

    /// Whether a probe at that rate or below was cut, saturated, or broke a promise beyond measure.
    pub fn failed_at(&self, rate: Rate) -> bool {
        self.failed.iter().any(|failed| failed.log_rate <= rate.0.ln())
    }

    /// Sets the ceiling of the stress replay; `Above` removes it.
    pub fn bound(&mut self, ceiling: Ceiling) {
        self.ceiling = match ceiling {
            Ceiling::Above => None,
            Ceiling::At(rate) => Some(rate.0.ln()),
            Ceiling::BelowAll => Some(f64::NEG_INFINITY),
        };
    }

    /// One-sided confidence that every promise holds at that rate, and that the engine does not collapse there.
    fn confidence(&self, log_rate: f64) -> f64 {
        // A promise of which nothing was seen is not kept.
        let unseen = self.evidence.iter().any(Vec::is_empty);
        if unseen || self.driven.is_empty() || self.failed.iter().any(|failed| log_rate >= failed.log_rate) {
            return 0.0;
        }
        let beyond = self.ceiling.map(|ceiling| (ceiling + CLEARANCE - log_rate) / CEILING_SD);
        let passes = beyond.zip(Normal::new(0.0, 1.0).ok()).map_or(1.0, |(beyond, normal)| normal.cdf(beyond));
        (0..self.evidence.len()).fold(passes, |least, l| {
            let (margin, error, freedom) = self.at(l, log_rate);
            let t = StudentsT::new(0.0, 1.0, freedom.max(1.0));
            f64::min(least, t.map_or(0.0, |t| t.cdf(-margin / error)))
        })
    }

    /// The margin of a promise at a rate by all that was seen of it on this launch, its error, and the freedom of that.
    fn pooled(&self, l: usize, log_rate: f64) -> (f64, f64, f64) {
        let (mut weights, mut sum, mut terms) = (0.0, 0.0, Vec::new());
        for e in &self.evidence[l] {
            // A promise that is kept says little of a queue at a higher rate; one that is broken stays broken there.
            let (shift, doubt) = if e.margin < 0.0 && self.may_queue(l, e.log_rate, log_rate) {
                (SLOPE_OF_QUEUE * (log_rate - e.log_rate), 1.0)
            } else {
                (self.margin_shift(l, e.log_rate, log_rate), SHIFT_ERROR)
            };
            let (error, of_it) = combined(&[(e.error, e.freedom), (doubt * shift, FREEDOM_BEFOREHAND)]);
            let weight = error.powi(-2);
            weights += weight;
            sum += weight * (e.margin + shift);
            terms.push((weight * error, of_it));
        }
        // A mean of terms, each weighed by its error: what weighs little adds little freedom.
        let (error, freedom) = combined(&terms);
        (sum / weights, error / weights, freedom)
    }

    /// The margin of a promise at a rate for a future launch, its error, and the freedom of that. The error includes those of launches and the twin.
    fn at(&self, l: usize, log_rate: f64) -> (f64, f64, f64) {
        let (margin, error, freedom) = self.pooled(l, log_rate);
        let of_launch = self.cautious_shift(l, log_rate, log_rate + self.common_error()).max(LAUNCH_SD);
        let (error, freedom) = combined(&[(error, freedom), (of_launch, FREEDOM_BEFOREHAND)]);
        (margin, error, freedom)
    }

    /// What no number of probes of one launch tells, as a share of the rate.
    fn common_error(&self) -> f64 {
        let is_told = (0..self.evidence.len()).all(|l| self.curve(l).is_some());
        if self.shared || !is_told { LARGER_ERROR } else { COMMON_ERROR }
    }

    /// The place of the promise that breaks first as the rate rises. Where a failed rate bounds the limit, it is the one that broke, else the one
    /// with the largest margin at the limit. None before a probe.
    pub fn breaks_first(&self, limit: Rate) -> Option<usize> {
        let bounds = |failed: &&Failure| failed.log_rate <= limit.0.ln() + 2.0 * RESOLUTION;
        if let Some(broken) = self.failed.iter().filter(bounds).find_map(|failed| failed.promise) {
            return Some(broken);
        }
        let seen = (0..self.evidence.len()).filter(|l| !self.evidence[*l].is_empty());
        let margins = seen.map(|l| (l, self.at(l, limit.0.ln()).0));
        margins.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(l, _)| l)
    }

    /// Each promise's margin over the rates near those that were driven, as (rate, margin, standard error); none of a promise that was not seen.
    pub fn margins(&self) -> Vec<Vec<(Rate, f64, f64)>> {
        let Some((lowest, highest)) = self.ends() else { return vec![Vec::new(); self.evidence.len()] };
        let (from, to) = (lowest + STRIDE.0.ln(), highest + STRIDE.1.ln());
        let rates = (0..=REPORT_STEPS).map(|i| from + (to - from) * f64::from(i) / f64::from(REPORT_STEPS));
        let of = |l: usize| {
            let seen = !self.evidence[l].is_empty();
            let at = |log_rate: f64| {
                let (margin, error, _) = self.at(l, log_rate);
                (Rate(log_rate.exp()), margin, error)
            };
            let known = rates.clone().filter(|_| seen).map(at);
            known.filter(|(_, margin, error)| margin.is_finite() && error.is_finite()).collect()
        };
        (0..self.evidence.len()).map(of).collect()
    }

    fn margin_shift(&self, l: usize, from: f64, to: f64) -> f64 {
        let least = LEAST_SLOPE * (to - from);
        match self.curve(l) {
            Some(curve) => {
                let shift = along(curve, to) - along(curve, from);
                if to >= from { shift.max(least) } else { shift.min(least) }
            }
            None => SLOPE * (to - from),
        }
    }

    /// The twin's curve of a promise's margin over the rate, where there is one.
    fn curve(&self, l: usize) -> Option<&MarginCurve> {
        self.curves.get(l).filter(|curve| curve.len() > 1)
    }

    /// The shift of a margin between two rates, with the steep slope where a queue may form.
    fn cautious_shift(&self, l: usize, from: f64, to: f64) -> f64 {
        if self.may_queue(l, from, to) { SLOPE_OF_QUEUE * (to - from) } else { self.margin_shift(l, from, to) }
    }

    /// Whether a queue may form between two rates, unseen. The promise includes waiting, a rate not far above failed, and no twin tells how the
    /// margin rises towards it.
    fn may_queue(&self, l: usize, from: f64, to: f64) -> bool {
        let waits = self.waits.get(l).copied().unwrap_or(false);
        let fails_near = self.failed.iter().any(|failed| failed.log_rate < to + STRIDE.1.ln());
        to > from && waits && fails_near && self.curve(l).is_none()
    }

    /// The lowest and the highest log rate that was driven to its end.
    fn ends(&self) -> Option<(f64, f64)> {
        let driven = || self.driven.iter().copied();
        driven().reduce(f64::min).zip(driven().reduce(f64::max))
    }

    /// The highest rate with that confidence, of those near the driven ones. The confidence falls as the rate rises.
    fn highest(&self, confidence: f64) -> Option<f64> {
        let (lowest, highest) = self.ends()?;
        let (mut low, mut high) = (lowest + LOWEST_SHARE.ln(), highest + STRIDE.1.ln());
        if self.confidence(low) < confidence {
            return None;
        }
        while high - low > RESOLUTION {
            let middle = 0.5 * (low + high);
            if self.confidence(middle) >= confidence { low = middle } else { high = middle }
        }
        Some(low)
    }

    /// Whether every rate that is looked at may still hold, so that the limit is only known to lie no lower.
    fn is_beyond(&self) -> bool {
        self.ends().is_some_and(|(_, highest)| self.confidence(highest + STRIDE.1.ln()) >= 0.5)
    }

    /// What is proved; `None` if no rate near those driven is certain.
    pub fn proof(&self) -> Option<Proof> {
        let (safe, (_, highest)) = (self.highest(Certainty::CERTIFIED.0)?, self.ends()?);
        let rate = Rate(safe.min(highest).exp()).rounded_down();
        let limit = self.highest(0.5)?;
        // Where a rate that failed bounds it, the limit has at least the common error.
        let known = (limit - self.highest(0.84)?).max(self.common_error());
        let error = if self.is_beyond() { known.max(limit - rate.0.ln()) } else { known };
        Some(Proof { rate, confidence: self.confidence(rate.0.ln()), limit: Rate(limit.exp()), error })
    }

    /// Whether the certified rate lies as near below the limit as a limit known to that standard error allows.
    pub fn precise(&self, precision: f64) -> bool {
        self.is_within(self.as_near(PRECISE_ERRORS, precision))
    }

    /// So many times the precision as a share, or what a ceiling allows where that is more.
    fn as_near(&self, times: f64, precision: f64) -> f64 {
        f64::max(times * precision, if self.ceiling.is_some() { BELOW_CEILING } else { 0.0 })
    }

    /// Whether the certified rate lies no further below the limit than that share.
    fn is_within(&self, share: f64) -> bool {
        !self.is_beyond() && self.proof().is_some_and(|p| p.rate.0 >= p.limit.0 * (1.0 - share))
    }

    /// What is said of a point whose certified rate is less near to its limit than was asked for; that as a share.
    pub fn imprecise(&self, what: &str, asked: f64, proof: &Proof, ended: &str) -> String {
        let below = (1.0 - proof.rate.0 / proof.limit.0) * 100.0;
        let least = if self.is_beyond() { "at least " } else { "" };
        let asked = asked * 100.0;
        format!(
            "{what} to +-{asked} %: the certified rate lies {least}{below:.1} % below the estimated limit ({ended})"
        )
    }

    /// Whether probing ends. The certified rate is near enough to the limit, or another probe is expected to raise it by less than the share
    /// `worth`. If a margin is flat in the rate, no number of probes reaches the precision.
    pub fn done(&self, precision: f64, worth: f64) -> bool {
        self.is_within(self.as_near(DONE_ERRORS, precision)) || self.gain_of_another().is_some_and(|gain| gain < worth)
    }

    /// The share by which another probe with the expected margin and the mean error raises the certified rate. None before there is one.
    fn gain_of_another(&self) -> Option<f64> {
        let now = self.proof()?.rate;
        let mut more = self.clone();
        let log_rate = self.next(now).0.ln();
        for (l, evidence) in more.evidence.iter_mut().enumerate() {
            let mean = |of: fn(&Evidence) -> f64| evidence.iter().map(of).sum::<f64>() / evidence.len() as f64;
            let (error, freedom) = (mean(|e| e.error.powi(2)).sqrt(), mean(|e| e.freedom));
            let (margin, ..) = self.pooled(l, log_rate);
            evidence.push(Evidence { log_rate, margin, error, freedom });
        }
        more.driven.push(log_rate);
        Some(more.proof()?.rate.0 / now.0 - 1.0)
    }

    /// The next rate: halfway between the estimated limit and the certified rate, and below every failure.
    pub fn next(&self, last: Rate) -> Rate {
        let lowest_failure = self.failed.iter().map(|failed| failed.log_rate).fold(f64::INFINITY, f64::min);
        let wanted = match (self.highest(0.5), self.highest(Certainty::CERTIFIED.0)) {
            (Some(limit), Some(safe)) => 0.5 * (limit + safe),
            // Nothing is certain near there: further down it may be.
            (Some(limit), None) => limit + BELOW_FAILURE.ln(),
            // Nothing holds yet: the more probes failed, the further off the limit may be.
            (None, _) => {
                let failed = self.failed.chunk_by(|a, b| a.log_rate == b.log_rate).count();
                last.0.ln() + failed.max(1) as f64 * BELOW_FAILURE.ln()
            }
        };
        let below = lowest_failure + BELOW_FAILURE.ln();
        let bounded = wanted.clamp(last.0.ln() + STRIDE.0.ln(), last.0.ln() + STRIDE.1.ln()).min(below);
        Rate(bounded.exp()).rounded()
    }
}

/// The margin at a rate by straight lines between those of a curve, and beyond its ends.
fn along(curve: &[(f64, f64)], log_rate: f64) -> f64 {
    let after = curve.partition_point(|(log, _)| *log < log_rate).clamp(1, curve.len() - 1);
    let ((a, at_a), (b, at_b)) = (curve[after - 1], curve[after]);
    at_a + (at_b - at_a) * (log_rate - a) / (b - a)
}

/// What is said of a point of which nothing is proved, down to that rate.
pub fn unproved(what: &str, rate: Rate, ended: &str) -> String {
    format!("{what}: no rate down to {rate} held on fresh traffic ({ended})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::certify::TRIES;
    use crate::verdict::Outcome;
    use crate::verdict::fixtures::{self, counted, paired};
    use crate::verdict::paired::Judge;

    /// A probe of one promise, as the pair sees it; without a margin it was cut.
    fn verdict(margin: Option<f64>, error: f64) -> Verdict {
        let limit = LimitResult {
            violations: if margin.is_none() { 50 } else { 3 },
            margin,
            paired: margin.map(|margin| paired("tpot_p99", margin, error, 0.5, Judge::Paired)),
            ..counted("tpot_p99")
        };
        fixtures::verdict(Outcome::Unresolved, vec![limit], margin.is_some())
    }

    /// A promise as the count sees it.
    fn by_count(key: &str, margin: f64, error: f64) -> LimitResult {
        LimitResult { margin: Some(margin), margin_error: Some(error), ..counted(key) }
    }

    /// A margin that rises twice as fast as the logarithm of the rate.
    fn steep() -> Vec<MarginCurve> {
        vec![vec![(0.0, 0.0), (5.0, 10.0)]]
    }

    impl Certifier {
        /// The same after another probe, with a twin whose curve is steep.
        fn after(mut self, rate: f64, margin: impl Into<Option<f64>>, error: f64) -> Self {
            self.add_probe(Rate(rate), &verdict(margin.into(), error), steep());
            self
        }

        /// The same after a probe that was counted, without a twin; whether it was seen to its end.
        fn counted(mut self, rate: f64, limit: LimitResult, complete: bool) -> Self {
            let outcome = if complete { Outcome::Pass } else { Outcome::Fail };
            self.add_probe(Rate(rate), &fixtures::verdict(outcome, vec![limit], complete), Vec::new());
            self
        }
    }

    /// After so many equal probes.
    fn repeated(probes: usize, rate: f64, margin: f64, error: f64) -> Certifier {
        (0..probes).fold(Certifier::default(), |certifier, _| certifier.after(rate, margin, error))
    }

    /// Drives an engine with that limit and slope until it is known; returns what is proved and the rates that were driven.
    fn certify(limit: f64, from: f64, error: f64, precision: f64) -> (Option<Proof>, Vec<f64>) {
        let (mut certifier, mut rate, mut driven) = (Certifier::default(), Rate(from), Vec::new());
        for _ in 0..8 {
            let margin = 2.0 * (rate.0 / limit).ln();
            driven.push(rate.0);
            certifier = certifier.after(rate.0, (margin < 0.4).then_some(margin), error);
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
        assert!((0.93..0.97).contains(&(proof.rate.0 / 10.0)), "{proof:?}");
        assert!((proof.limit.0 - 10.0).abs() < 0.05 && proof.confidence >= 0.95);
        assert!((COMMON_ERROR..0.035).contains(&proof.error), "{proof:?}");
    }

    #[test]
    fn the_margins_that_a_report_shows_cross_the_limit_where_it_is() {
        assert_eq!(Certifier::default().margins(), Vec::<Vec<_>>::new());
        let certifier = repeated(1, 9.0, 2.0 * 0.9_f64.ln(), 0.02);
        let margins = certifier.margins().remove(0);
        assert_eq!(margins.len(), 13);
        // The limit is at 10.
        assert!(margins.iter().all(|(rate, margin, _)| (*margin < 0.0) == (rate.0 < 10.0)), "{margins:?}");
        // The further from what was driven, the less is known.
        assert!(margins[12].2 > margins[6].2 && margins.is_sorted_by_key(|(rate, ..)| rate.0), "{margins:?}");
        assert_eq!(certifier.after(20.0, None, 0.02).margins()[0].len(), 13, "a probe that was cut tells no margin");
    }

    #[test]
    fn the_promise_that_breaks_first_is_the_one_whose_margin_is_largest_at_the_limit() {
        let mut certifier = Certifier::default();
        assert_eq!(certifier.breaks_first(Rate(10.0)), None);
        let mut both = verdict(Some(-0.2), 0.02);
        both.limits.extend(verdict(Some(-0.1), 0.02).limits);
        // The first is further from its limit at the rate that was driven, and rises ten times as fast.
        let both_curves = || vec![vec![(0.0, 0.0), (5.0, 10.0)], vec![(0.0, 0.0), (5.0, 1.0)]];
        certifier.add_probe(Rate(9.0), &both, both_curves());
        let limit = certifier.proof().unwrap().limit;
        assert!((limit.0 - 9.95).abs() < 0.1, "{limit:?}");
        assert_eq!((certifier.breaks_first(Rate(9.0)), certifier.breaks_first(limit)), (Some(1), Some(0)));
        let mut cut = verdict(Some(0.0), 0.02);
        cut.limits[0].violations = 0;
        cut.limits.extend(verdict(None, 0.02).limits);
        cut.complete = false;
        certifier.add_probe(Rate(9.5), &cut, both_curves());
        let limit = certifier.proof().unwrap().limit;
        let broke_at_the_failed_rate = (limit.0 < 9.51, certifier.breaks_first(limit));
        assert_eq!(broke_at_the_failed_rate, (true, Some(1)));
    }

    #[test]
    fn probing_goes_on_until_it_is_nearer_than_what_is_precise() {
        let certifier = repeated(1, 9.9, 2.0 * 0.99_f64.ln(), 0.05);
        let proof = certifier.proof().unwrap();
        // A precision of which the certified rate lies 1.85 times as far below the limit.
        let between = (1.0 - proof.rate.0 / proof.limit.0) / 1.85;
        assert!(certifier.precise(between) && !certifier.done(between, 0.0), "{proof:?}");
        assert!(certifier.done(between * 1.85 / DONE_ERRORS + 1e-9, 0.0) && certifier.done(between, 1.0), "{proof:?}");
    }

    #[test]
    fn an_estimate_that_was_too_high_or_too_low_is_moved_to_the_limit() {
        for (limit, from, precision, least, most) in
            [(10.0, 7.0, 0.04, 0.94, 5), (10.0, 13.5, 0.04, 0.94, 5), (19.0, 31.0, 0.05, 0.9, TRIES as usize)]
        {
            let (proof, driven) = certify(limit, from, 0.03, precision);
            let rate = proof.unwrap().rate.0 / limit;
            assert!((least..1.0).contains(&rate) && driven.len() <= most, "from {from}: {rate} after {driven:?}");
        }
    }

    #[test]
    fn more_probes_make_it_surer_and_a_relaunch_leaves_its_doubt() {
        let proof = |probes: usize| repeated(probes, 9.8, -0.04, 0.06).proof().unwrap();
        assert!(proof(3).rate.0 > proof(1).rate.0);
        assert!(proof(40).rate.0 < 0.97 * proof(40).limit.0, "{:?}", proof(40));
    }

    #[test]
    fn one_probe_of_a_70b_engine_proves_nine_tenths_of_its_limit() {
        // TPOT p99 of t002-p02 of results/h200-70b: 1.87 req/s arrived; the curve by its report, 47.9 ms at 1.416 req/s.
        let proof = |freedom: f64| {
            let mut verdict = verdict(Some(-0.0145), 0.0361);
            verdict.limits[0].paired.as_mut().unwrap().freedom = freedom;
            let mut certifier = Certifier::default();
            let curve = vec![(1.0_f64.ln(), 0.755 * 1.0_f64.ln()), (2.5_f64.ln(), 0.755 * 2.5_f64.ln())];
            certifier.add_probe(Rate(1.87), &verdict, vec![curve]);
            let proof = certifier.proof().unwrap();
            proof.rate.0 / proof.limit.0
        };
        assert!((0.9..0.95).contains(&proof(59.3)), "{}", proof(59.3));
        assert!(proof(3.0) < proof(59.3) - 0.01, "an error that nobody knows well certifies less: {}", proof(3.0));
    }

    #[test]
    fn without_a_twin_what_was_seen_below_tells_little_of_a_rate_near_a_failure() {
        let confidence = |key: &str, fails: Option<f64>| {
            // The rate in question has a margin of little more than nothing; 15 % below it there is room.
            let kept = Certifier::default().counted(38.0, by_count(key, -0.03, 0.16), true);
            let kept = kept.counted(33.0, by_count(key, -0.7, 0.16), true);
            let all = fails.into_iter().fold(kept, |all, rate| all.counted(rate, by_count(key, 0.0, 1.0), false));
            all.confidence(38.0_f64.ln())
        };
        assert!(confidence("ttft_p99", None) > 0.9 && confidence("tpot_p99", Some(40.0)) > 0.9);
        let (far, none) = (confidence("ttft_p99", Some(60.0)), confidence("ttft_p99", None));
        assert_eq!(far, none, "that far above, no queue is near");
        assert!(confidence("ttft_p99", Some(40.0)) < 0.75, "{}", confidence("ttft_p99", Some(40.0)));
    }

    #[test]
    fn a_promise_that_was_broken_at_a_lower_rate_counts_against_a_higher_one() {
        let seen = Certifier::default().counted(33.0, by_count("ttft_p99", 0.3, 0.16), true);
        let seen = seen.counted(38.0, by_count("ttft_p99", -0.7, 0.16), true);
        let kept = seen.confidence(38.0_f64.ln());
        let failed = seen.counted(42.0, by_count("ttft_p99", 0.0, 0.16), false);
        assert!(failed.confidence(38.0_f64.ln()) <= kept + 0.01 && kept < 0.95, "{kept}");
    }

    #[test]
    fn a_rate_with_much_room_is_not_precise_however_little_is_asked() {
        let (proof, driven) = certify(10.0, 4.0, 0.02, 0.4);
        assert!(driven.len() > 2 && proof.unwrap().rate.0 > 8.0, "{proof:?} after {driven:?}");
        let certifier = repeated(1, 4.0, -1.8, 0.02);
        let proof = certifier.proof().unwrap();
        assert!(proof.rate.0 == 4.0 && proof.error > 0.25 && !certifier.done(0.4, 0.0), "{proof:?}");
    }

    #[test]
    fn a_limit_at_a_rate_that_failed_has_the_common_error_at_least() {
        let proof = repeated(1, 10.0, -0.6, 0.02).after(10.5, None, 0.02).proof().unwrap();
        assert!(proof.limit.0 > 10.4 && proof.error >= COMMON_ERROR, "{proof:?}");
    }

    #[test]
    fn where_a_margin_is_flat_in_the_rate_no_probe_after_the_third_is_worth_its_minutes() {
        let flat = vec![vec![(0.0, 0.0), (5.0, 1.6)]];
        let after = |probes: usize| {
            let mut certifier = Certifier::default();
            (0..probes).for_each(|_| certifier.add_probe(Rate(9.8), &verdict(Some(-0.01), 0.02), flat.clone()));
            certifier
        };
        assert!(!after(1).done(0.03, 0.01) && after(3).done(0.03, 0.01) && !after(3).precise(0.03));
        assert!(!repeated(1, 5.0, -0.5, 0.02).done(0.03, 0.01), "a higher rate was not driven yet");
    }

    #[test]
    fn nothing_is_certified_above_what_was_driven_or_from_probes_that_were_cut() {
        let certifier = repeated(1, 5.0, -0.5, 0.02);
        assert_eq!(certifier.proof().unwrap().rate, Rate(5.0));
        assert!(!certifier.precise(0.05) && certifier.next(Rate(5.0)).0 > 5.5);
        let cut = Certifier::default().after(5.0, None, 0.0);
        assert!(cut.proof().is_none() && cut.next(Rate(5.0)).0 < 5.0);
        // Nor from a window without a request.
        let empty = LimitResult { margin: None, margin_error: None, violations: 3, ..counted("tpot_p99") };
        assert_eq!(Certifier::default().counted(1.0, empty, true).proof(), None);
    }

    #[test]
    fn the_shift_from_rate_to_rate_is_that_of_the_twin() {
        // Flat up to 10 requests per second, where a queue begins to grow.
        let cliff = vec![vec![(9f64.ln(), -0.1), (10f64.ln(), -0.1), (10.2f64.ln(), 0.4)]];
        let mut certifier = Certifier::default();
        certifier.add_probe(Rate(9.5), &verdict(Some(-0.1), 0.03), cliff);
        let proof = certifier.proof().unwrap();
        assert!((10.0..10.1).contains(&proof.limit.0) && proof.rate.0 == 9.5, "{proof:?}");
    }

    #[test]
    fn where_nothing_is_certain_the_next_rate_is_lower_and_a_ceiling_lowers_it_too() {
        // As likely as not, and nobody knows: the same again would say the same.
        let certifier = repeated(1, 10.0, 0.0, 1.9);
        assert!(certifier.proof().is_none() && certifier.next(Rate(10.0)).0 < 9.5);
        let mut certifier = repeated(1, 10.0, -0.4, 0.02);
        let unbound = certifier.next(Rate(10.0));
        certifier.bound(Ceiling::At(Rate(10.4)));
        assert!(unbound.0 > 11.0 && certifier.next(Rate(10.0)).0 <= 10.5, "{unbound}");
    }

    #[test]
    fn a_certified_rate_lies_as_far_below_its_ceiling_as_that_is_unknown() {
        let mut certifier = repeated(4, 9.9, -0.2, 0.02);
        assert_eq!(certifier.proof().unwrap().rate, Rate(9.9));
        let ceiling = Ceiling::At(Rate(9.01));
        certifier.bound(ceiling);
        let says = "capped below 9.01 req/s: in simulation, latency does not recover from bursts at higher rates";
        assert_eq!(ceiling.says(Rate(9.9)).as_deref(), Some(says));
        let proof = certifier.proof().unwrap();
        // 3 % - 1.645 * 4 % from the ceiling.
        assert_eq!(proof.rate, Rate(8.69));
        assert!((0.95..0.96).contains(&proof.confidence), "{proof:?}");
        assert!(((proof.limit.0 / 9.01).ln() - CLEARANCE).abs() < 0.001, "{proof:?}");
        assert!((proof.error - CEILING_SD).abs() < 0.001, "{proof:?}");
        assert!(certifier.precise(0.01) && certifier.done(0.01, 0.0), "no probe moves a ceiling");
        let log_clear = CEILING_SD * autotune_numerics::Z_95 - CLEARANCE;
        assert!((0.0..0.001).contains(&(CEILING_OVER_SURE_RATE.ln() - log_clear)), "{log_clear}");
        certifier.bound(Ceiling::BelowAll);
        assert_eq!(certifier.proof(), None, "far below what was driven nothing is proved");
        let says = "the best point: no rate down to 9.00 req/s held on fresh traffic (3 probes)";
        assert_eq!(unproved("the best point", Rate(9.0), "3 probes"), says);
        let far = Proof { rate: Rate(8.0), confidence: 0.95, limit: Rate(10.0), error: 0.1 };
        let says = "the best point to +-4 %: the certified rate lies 20.0 % below the estimated limit (3 probes)";
        assert_eq!(certifier.imprecise("the best point", 0.04, &far, "3 probes"), says);
        certifier.bound(Ceiling::Above);
        assert_eq!(certifier.proof().unwrap().rate, Rate(9.9));
    }

    #[test]
    fn a_machine_that_others_use_lowers_what_is_certified_and_not_the_limit() {
        let proof = |shared: bool| Certifier { shared, ..repeated(4, 9.8, -0.04, 0.02) }.proof().unwrap();
        let (alone, shared) = (proof(false), proof(true));
        assert!((0.95..0.99).contains(&(shared.rate.0 / alone.rate.0)), "{shared:?} {alone:?}");
        assert_eq!(shared.limit, alone.limit);
    }
}
