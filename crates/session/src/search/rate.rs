//! The highest rate that one point keeps: bracket it, then close the bracket on the root of the margin.

use super::Observation;
use autotune_records::units::Rate;

/// A rate this many times below the first one tried is as good as none.
const LARGEST_FALL: f64 = 64.0;
/// The root of the margin is sought in this inner part of the bracket. So every probe closes the bracket by a fifth at least.
const INNER: (f64, f64) = (0.2, 0.8);

#[derive(Clone, Debug)]
pub struct RateSearch {
    first: f64,
    /// The bracket is closed when its ends differ by less than this fraction.
    precision: f64,
    kept: Option<(f64, Option<f64>)>,
    broken: Option<(f64, Option<f64>)>,
}

impl RateSearch {
    pub fn new(first: Rate, precision: f64) -> Self {
        Self { first: first.rounded().0, precision, kept: None, broken: None }
    }

    /// What was seen at a rate. A kept rate above one that was broken withdraws nothing: the lower broken one stands.
    pub fn tell(&mut self, rate: Rate, seen: &Observation) {
        let side = (rate.0, seen.margin);
        if seen.kept {
            if self.kept.is_none_or(|(kept, _)| rate.0 > kept) && self.broken.is_none_or(|(broken, _)| rate.0 < broken)
            {
                self.kept = Some(side);
            }
        } else {
            if self.broken.is_none_or(|(broken, _)| rate.0 < broken) {
                self.broken = Some(side);
            }
            if self.kept.is_some_and(|(kept, _)| kept >= rate.0) {
                self.kept = None;
            }
        }
    }

    /// The highest rate that was kept.
    pub fn kept(&self) -> Option<Rate> {
        self.kept.map(|(rate, _)| Rate(rate))
    }

    /// The lowest rate that was not.
    pub fn broken(&self) -> Option<Rate> {
        self.broken.map(|(rate, _)| Rate(rate))
    }

    /// The next rate; `None` if the bracket is closed to the precision, or no rate that is worth anything is kept.
    pub fn next(&self) -> Option<Rate> {
        match (self.kept, self.broken) {
            (None, None) => Some(Rate(self.first)),
            (None, Some((broken, _))) if broken <= self.first / LARGEST_FALL => None,
            // A margin that was measured tells roughly how far down: latency grows at least in proportion to the rate.
            (None, Some((broken, margin))) => {
                let down = margin.map_or(0.5, |m| (-m).exp().clamp(0.5, 0.85));
                Some(Rate(broken * down).rounded())
            }
            (Some((kept, margin)), None) => {
                let up = margin.map_or(1.5, |m| (-m).exp().clamp(1.15, 2.0));
                Some(Rate(kept * up).rounded())
            }
            (Some((kept, below)), Some((broken, above))) => {
                let next = Rate(kept * (broken / kept).powf(share(below, above))).rounded().0;
                (broken / kept > 1.0 + self.precision && kept < next && next < broken).then_some(Rate(next))
            }
        }
    }
}

/// Where in the bracket (0 to 1 in the logarithm of the rate) the margin is expected to be zero.
fn share(below: Option<f64>, above: Option<f64>) -> f64 {
    match (below, above) {
        (Some(below), Some(above)) if below < 0.0 && above > 0.0 => (-below / (above - below)).clamp(INNER.0, INNER.1),
        _ => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(kept: bool, margin: Option<f64>) -> Observation {
        Observation { kept, margin, limits: Vec::new(), saturated: false, by_twin: None }
    }

    /// Searches an engine whose margin is (rate / limit)^3 in the logarithm, and counts its probes.
    fn search(limit: f64, first: f64, cut_above: f64) -> (Option<Rate>, usize) {
        let mut search = RateSearch::new(Rate(first), 0.03);
        for probes in 0..60 {
            let Some(rate) = search.next() else { return (search.kept(), probes) };
            let margin = 3.0 * (rate.0 / limit).ln();
            search.tell(rate, &seen(margin <= 0.0, (margin < cut_above).then_some(margin)));
        }
        panic!("never ends");
    }

    #[test]
    fn the_limit_is_found_within_the_precision_from_far_below_and_far_above() {
        for limit in [0.37, 2.31, 86.0] {
            for start in [0.1, 1.0, 20.0] {
                let (Some(rate), probes) = search(limit, limit * start, 0.5) else { panic!("not found") };
                assert!(rate.0 <= limit && rate.0 > limit / 1.045, "limit {limit}, from {start}: {}", rate.0);
                assert!(probes <= 12, "limit {limit}, from {start}: {probes} probes");
            }
        }
    }

    #[test]
    fn an_engine_that_keeps_nothing_is_hopeless() {
        assert_eq!(search(1e-6, 1.0, 0.0).0, None);
    }

    #[test]
    fn a_lower_rate_that_broke_overrules_a_higher_one_that_was_lucky() {
        let mut search = RateSearch::new(Rate(10.0), 0.03);
        search.tell(Rate(10.0), &seen(true, None));
        search.tell(Rate(9.0), &seen(false, None));
        assert_eq!(search.kept(), None);
        assert!(search.next().is_some_and(|rate| rate.0 < 9.0));
    }
}
