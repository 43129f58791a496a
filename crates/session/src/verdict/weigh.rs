//! The two judges together: what the plain count is certain of stands; otherwise the paired estimate decides where its word counts.

use serde::{Deserialize, Serialize};

use super::paired::Paired;
use super::{Certainty, LimitResult, Outcome, Verdict, binding};

/// What the plain count said of a probe that a pair has decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    pub outcome: Outcome,
    pub because: String,
    pub confidence: f64,
    pub binding: Option<String>,
}

impl Verdict {
    /// Whether a pair may decide: void probes, those that were cut since they had failed for certain, and saturated ones stay what they are.
    /// A queue that grew while every promise about waiting held may be the luck of the arrivals, which a pair can tell.
    pub fn open_to_pairs(&self) -> bool {
        let harmless = self.limits.iter().all(|l| !l.broken()) && self.limits.iter().any(LimitResult::includes_waiting);
        self.outcome != Outcome::Void && (!self.saturated || harmless) && self.complete && self.counted > 0
    }

    fn into_counted(mut self) -> Self {
        if let Some(counted) = self.by_count.take() {
            (self.outcome, self.because) = (counted.outcome, counted.because);
            (self.confidence, self.binding) = (counted.confidence, counted.binding);
        }
        self.limits.iter_mut().for_each(|l| l.paired = None);
        self
    }
}

/// The verdict with what the twin makes of each promise, in the place of what an earlier twin made of it. Requests without a whole answer
/// have left the word to the plain count already.
pub fn weigh(verdict: Verdict, paired: Vec<Paired>, certainty: Certainty) -> Verdict {
    let mut verdict = verdict.into_counted();
    for estimate in paired {
        if let Some(limit) = verdict.limits.iter_mut().find(|l| l.key == estimate.key) {
            limit.paired = Some(estimate);
        }
    }
    if !verdict.open_to_pairs() || verdict.limits.iter().all(|l| l.decided_by_pair().is_none()) {
        return verdict;
    }
    let Verdict { outcome, because, confidence, binding: bound, .. } = verdict.clone();
    verdict.by_count = Some(Counted { outcome, because, confidence, binding: bound });
    verdict.saturated = false;
    verdict.confidence = verdict.limits.iter().map(LimitResult::confidence).fold(1.0, f64::min);
    verdict.binding = binding(&verdict.limits);
    let percent = |share: f64| (share * 100.0).floor();
    let (sure, breaks) = (percent(verdict.confidence), percent(1.0 - verdict.confidence));
    (verdict.outcome, verdict.because) = if verdict.confidence >= certainty.0 {
        (Outcome::Pass, format!("in a long run of this traffic every promise holds, {sure:.0} % sure"))
    } else if verdict.confidence <= 1.0 - certainty.0 {
        (Outcome::Fail, format!("in a long run of this traffic a promise breaks, {breaks:.0} % sure"))
    } else {
        (
            Outcome::Unresolved,
            format!("too near to say: {sure:.0} % sure that every promise holds in a long run of this traffic"),
        )
    };
    verdict
}

#[cfg(test)]
mod tests {
    use super::super::{fixtures, paired::Judge};
    use super::*;

    fn estimate(key: &str, margin: f64, confidence: f64, judge: Judge) -> Paired {
        fixtures::paired(key, margin, 0.04, confidence, judge)
    }

    fn verdict(outcome: Outcome, complete: bool) -> Verdict {
        fixtures::verdict(outcome, ["ttft_p99", "tpot_p99"].map(fixtures::counted).to_vec(), complete)
    }

    fn both_pass() -> Vec<Paired> {
        ["ttft_p99", "tpot_p99"].map(|key| estimate(key, -0.3, 0.999, Judge::Paired)).to_vec()
    }

    #[test]
    fn a_probe_with_bad_luck_passes_by_its_pair_and_one_with_good_luck_fails() {
        let both = |ttft: f64, tpot: f64| {
            vec![
                estimate("ttft_p99", -0.1, ttft, Judge::Paired),
                estimate("tpot_p99", if tpot < 0.5 { 0.1 } else { -0.05 }, tpot, Judge::Paired),
            ]
        };
        let unlucky = weigh(verdict(Outcome::Fail, true), both(0.99, 0.97), Certainty(0.95));
        assert_eq!((unlucky.outcome, unlucky.binding.as_deref()), (Outcome::Pass, Some("tpot_p99")));
        assert!(
            (unlucky.margin().unwrap() + 0.05).abs() < 1e-12 && unlucky.limits[0].margin == Some(0.18),
            "both stay"
        );
        let lucky = weigh(verdict(Outcome::Pass, true), both(0.99, 0.02), Certainty(0.95));
        assert_eq!(lucky.outcome, Outcome::Fail);
        let near = weigh(verdict(Outcome::Pass, true), both(0.99, 0.8), Certainty(0.95));
        assert_eq!(near.outcome, Outcome::Unresolved);
    }

    #[test]
    fn where_the_twin_explains_little_the_count_decides_that_promise() {
        let one = vec![
            estimate("ttft_p99", -0.3, 0.999, Judge::Paired),
            estimate("tpot_p99", -0.3, 0.999, Judge::PlainCount),
        ];
        let weighed = weigh(verdict(Outcome::Fail, true), one, Certainty(0.95));
        assert!(weighed.confidence < 0.5 && weighed.outcome == Outcome::Unresolved, "{weighed:?}");
        assert_eq!((weighed.binding.as_deref(), weighed.margin()), (Some("tpot_p99"), Some(0.18)));
        let none = vec![estimate("ttft_p99", -0.3, 0.999, Judge::PlainCount)];
        let plain = weigh(verdict(Outcome::Fail, true), none, Certainty(0.95));
        assert_eq!((plain.outcome, plain.confidence), (Outcome::Fail, 0.2));
        let again =
            weigh(weigh(verdict(Outcome::Fail, true), both_pass(), Certainty(0.95)), Vec::new(), Certainty(0.95));
        assert_eq!(again, verdict(Outcome::Fail, true), "a later twin that says nothing leaves the count");
    }

    #[test]
    fn what_the_count_is_certain_of_stands() {
        for (outcome, complete, saturated) in
            [(Outcome::Void, true, false), (Outcome::Fail, false, false), (Outcome::Fail, true, true)]
        {
            let before = Verdict { saturated, ..verdict(outcome, complete) };
            let after = weigh(before.clone(), both_pass(), Certainty(0.95));
            assert_eq!((after.outcome, after.because), (outcome, before.because));
        }
    }
}
