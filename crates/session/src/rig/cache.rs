//! Compares the share of prompt tokens that the prefix cache held with the share that the workload intends.

use serde::{Deserialize, Serialize};

use super::Telemetry;
use crate::verdict::Window;
use autotune_load::RequestRecord;
use autotune_twin::Served;
use autotune_workload::Resent;

/// What the prefix cache did, against what the workload means it to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheUse {
    /// Whether the cache was emptied before the level.
    pub reset: bool,
    /// The share of prompt tokens, 0 to 1, that the workload shares on purpose.
    pub expected_share: Option<f64>,
    /// The share of prompt tokens, 0 to 1, that the cache held.
    pub measured_share: Option<f64>,
    /// Where the measured share comes from.
    #[serde(rename = "said_by")]
    pub source: Option<ShareSource>,
}

/// Where the measured share of cached tokens comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareSource {
    /// The usage of each answer.
    Usage,
    /// The server's counters, which other clients move as well.
    Counters,
}

/// A share that differs from the expected one by more than this is worth a warning; block sizes alone explain less.
const SHARE_TOLERANCE: f64 = 0.05;

impl CacheUse {
    /// Over the requests due in the window: by their usage where all tell it, otherwise by the server's counters.
    pub fn of(records: &[RequestRecord], window: Window, telemetry: &Telemetry, reset: bool) -> Self {
        let counted = || records.iter().filter(|r| window.holds(r.due) && r.complete());
        let sum = |tokens: fn(&RequestRecord) -> u32| counted().map(|r| u64::from(tokens(r))).sum::<u64>() as f64;
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let every_answer = counted().all(|r| r.tokens_cached.is_some() && r.tokens_in.is_some());
        let by_usage = share(sum(|r| r.tokens_cached.unwrap_or(0)), sum(|r| r.tokens_in.unwrap_or(0)));
        let (measured_share, source) = match by_usage.filter(|_| every_answer) {
            Some(share) => (Some(share), Some(ShareSource::Usage)),
            None => (telemetry.prefix_hit_rate, telemetry.prefix_hit_rate.map(|_| ShareSource::Counters)),
        };
        Self { reset, expected_share: share(sum(|r| r.shared_in), sum(|r| r.asked_in)), measured_share, source }
    }

    /// The share that the server counted over all requests of the probe; `None` if each answer gave its own.
    pub fn counted_share(&self) -> Option<f64> {
        self.measured_share.filter(|_| self.source == Some(ShareSource::Counters))
    }

    /// A sentence where the cache held another share than the workload means. The requests tell whether resent answers are the reason.
    pub fn warning(&self, records: &[RequestRecord]) -> Option<String> {
        let (expected, measured) = self.expected_share.zip(self.measured_share)?;
        let (side, effect) = match measured - expected {
            d if d > SHARE_TOLERANCE && self.reset => ("more", MORE_SHARED.to_owned()),
            d if d > SHARE_TOLERANCE => ("more", FROM_BEFORE.to_owned()),
            d if d < -SHARE_TOLERANCE => ("less", computed_again(records)),
            _ => return None,
        };
        Some(format!(
            "the prefix cache held {:.0} % of the prompt tokens, {side} than the {:.0} % that the workload shares: {effect}",
            measured * 100.0,
            expected * 100.0,
        ))
    }
}

const FROM_BEFORE: &str = "earlier requests left them there, so TTFT is shorter than in production. Use another --seed, or restart the server";
const MORE_SHARED: &str = "the prompts begin alike more than was meant, so TTFT is shorter than in production";
const NOT_CACHED: &str =
    "TTFT is longer than in production. Check that prefix caching is on and that the KV cache is large enough";

/// The effect of too few cached tokens. It names the cause if answers that are sent back have another number of tokens.
fn computed_again(records: &[RequestRecord]) -> String {
    match Served::of(records, None, None).resent {
        Some(Resent { growth, .. }) if (growth - 1.0).abs() > SHARE_TOLERANCE => format!(
            "the tokenizer or chat template turns an answer that is sent back into {growth:.2} times as many tokens, which the engine computes again"
        ),
        _ => NOT_CACHED.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_cache_is_told() {
        let warning = |expected, measured| {
            CacheUse { expected_share: expected, measured_share: measured, ..CacheUse::default() }.warning(&[])
        };
        assert!(warning(Some(0.0), Some(0.93)).unwrap().contains("held 93 % of the prompt tokens, more than the 0 %"));
        assert!(warning(Some(0.0), Some(0.93)).unwrap().ends_with(FROM_BEFORE));
        let emptied =
            CacheUse { reset: true, expected_share: Some(0.0), measured_share: Some(0.93), ..CacheUse::default() };
        assert!(emptied.warning(&[]).unwrap().ends_with(MORE_SHARED));
        assert!(warning(Some(0.5), Some(0.1)).unwrap().contains("less than the 50 %"));
        assert_eq!(warning(Some(0.5), Some(0.47)), None);
        assert_eq!(warning(None, Some(0.9)), None);
    }

    #[test]
    fn answers_that_come_back_as_other_tokens_are_named_as_the_reason() {
        let turn = |turn: u32, tokens_in: u32, asked_in: u32, shared_in: u32| {
            let due = f64::from(turn);
            let whole = RequestRecord::answered(turn, due, due + 0.1, due + 0.9, tokens_in, 400);
            RequestRecord { asked_in, shared_in, turn: Some((1, turn)), ..whole }
        };
        let cache = CacheUse { expected_share: Some(0.99), measured_share: Some(0.93), ..CacheUse::default() };
        let of = |came: u32| cache.warning(&[turn(0, 1_000, 1_000, 960), turn(1, came, 1_440, 1_400)]).unwrap();
        assert!(
            of(1_240).contains("less than the 99 % that the workload shares: the tokenizer or chat template turns an")
        );
        assert!(of(1_240).contains("into 0.50 times as many tokens, which the engine computes again"), "{}", of(1_240));
        assert!(of(1_440).ends_with(NOT_CACHED), "{}", of(1_440));
    }
}
