//! Which answers are good: whole, and within every limit that a single request can keep.

use crate::load::RequestRecord;
use crate::settings::{Limit, Metric};
use crate::units::Seconds;

/// What a single request must keep. A promise about a quantile says nothing about one request, so its limit alone is asked here. Where a
/// metric has several promises, that of the highest quantile counts, because `ttft_p50` was never meant for every request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Good(Vec<(Metric, Seconds)>);

impl Good {
    /// By these promises; none without any, since then nothing tells good from bad.
    pub(super) fn of(limits: &[Limit]) -> Option<Self> {
        let highest = |metric| {
            let promised = limits.iter().filter(|l| l.metric == metric);
            promised.max_by(|a, b| a.quantile.total_cmp(&b.quantile)).map(|l| (metric, l.at_most))
        };
        let asked: Vec<_> = Metric::ALL.into_iter().filter_map(highest).collect();
        (!asked.is_empty()).then_some(Self(asked))
    }

    /// Whether the whole answer came within every limit: for `itl` every gap of it. An answer of a single token has neither time per
    /// output token nor gaps, and keeps those limits.
    pub(super) fn holds(&self, record: &RequestRecord) -> bool {
        let came = |latency: Option<Seconds>, limit: Seconds| latency.is_some_and(|l| l <= limit);
        record.complete()
            && self.0.iter().all(|(metric, limit)| match metric {
                Metric::Ttft => came(record.ttft(), *limit),
                Metric::E2e => came(record.e2e(), *limit),
                Metric::Tpot => record.tpot().is_none_or(|tpot| tpot <= *limit),
                Metric::Itl => record.gaps.iter().all(|gap| f64::from(*gap) <= limit.0),
            })
    }

    /// In words, such as `ttft <= 500 ms, tpot <= 50.0 ms`.
    pub(super) fn sentence(&self) -> String {
        let limits: Vec<String> =
            self.0.iter().map(|(metric, limit)| format!("{} <= {limit}", metric.name())).collect();
        limits.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::answer;
    use super::*;
    use crate::load::ErrorClass;

    fn good(slo: &str) -> Good {
        Good::of(&crate::settings::limits(slo).unwrap()).unwrap()
    }

    #[test]
    fn every_limit_of_a_request_counts() {
        // First token after 100 ms, ten gaps of 20 ms.
        let whole = answer(0, 1.0, 0.1, 11, 0.02);
        assert!(good("ttft_p99=100.1ms,tpot_p99=20.1ms,itl_p99=20.1ms,e2e_p99=301ms").holds(&whole));
        for broken in ["ttft_p99=99ms", "tpot_p99=19ms", "itl_p99=19ms", "e2e_p99=299ms"] {
            assert!(!good(broken).holds(&whole), "{broken}");
        }
        let failed = RequestRecord { error: Some(ErrorClass::Truncated), ..whole.clone() };
        assert!(!good("ttft_p99=1s").holds(&failed));
        let single = RequestRecord { tokens_out: Some(1), gaps: vec![], ..whole };
        assert!(good("tpot_p99=1ms,itl_p99=1ms").holds(&single));
    }

    #[test]
    fn the_highest_quantile_of_a_metric_counts() {
        assert_eq!(good("ttft_p99=1s,ttft_p50=200ms").sentence(), "ttft <= 1.0 s");
        assert_eq!(Good::of(&[]), None);
    }
}
