//! What a probe meant to send and what the engine was served, in words: the verdict is about the latter.

use crate::rig::{CacheUse, ProbeAsk};
use autotune_load::RequestRecord;
use autotune_workload::Resent;

/// Figures that differ by less than this share are the same.
const SAME: f64 = 0.02;
/// A larger share is a change. A chat template adds some tokens to an answer that is sent back, and half of its last KV block is never found.
const INTACT: f64 = 0.05;

/// One sentence about the requests of a probe's window; `None` if it has no answers.
pub fn against_served(
    records: &[RequestRecord],
    ask: &ProbeAsk,
    cache: &CacheUse,
    resent: Option<Resent>,
) -> Option<String> {
    let counted: Vec<&RequestRecord> = records.iter().filter(|r| ask.window.holds(r.due) && r.complete()).collect();
    let came = records.iter().filter(|r| ask.window.holds(r.due)).count() as f64 / ask.window.length().0.max(1e-9);
    let mean = |of: fn(&RequestRecord) -> u32| {
        counted.iter().map(|r| f64::from(of(r))).sum::<f64>() / counted.len().max(1) as f64
    };
    let (prompt, meant) = (mean(|r| r.tokens_in.unwrap_or(r.asked_in)), mean(|r| r.asked_in));
    if counted.is_empty() {
        return None;
    }
    let mut said = format!("served: {came:.2} requests/s (asked {:.2}), prompts of {prompt:.0} tokens", ask.rate.0);
    if (prompt / meant.max(1.0) - 1.0).abs() > SAME {
        said += &format!(" (meant {meant:.0})");
    }
    if let Some((expected, measured)) = cache.expected_share.zip(cache.measured_share) {
        said += &format!(", {:.0} % of them cached", measured * 100.0);
        if (measured - expected).abs() > SAME {
            said += &format!(" (meant {:.0} %)", expected * 100.0);
        }
    }
    if let Some(Resent { growth, found, .. }) =
        resent.filter(|r| (r.growth - 1.0).abs() > INTACT || r.found < 1.0 - 2.0 * INTACT)
    {
        said += &format!(
            "; answers that later turns resend have {growth:.2} times their tokens, and the prefix cache holds {:.0} % \
             of them: tokenizer or chat template change them. The verdict is for this traffic",
            found * 100.0
        );
    }
    Some(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Window;
    use autotune_records::units::{Rate, Seconds};

    fn said(tokens_in: u32, measured: f64, resent: Option<Resent>) -> Option<String> {
        let request = |id: u32| {
            let due = f64::from(id);
            let whole = RequestRecord::answered(id, due, due + 0.1, due + 0.9, tokens_in, 10);
            RequestRecord { asked_in: 1000, shared_in: 900, ..whole }
        };
        let window = Window { from: Seconds(2.0), to: Seconds(10.0) };
        let ask = ProbeAsk { window, ..ProbeAsk::at(Rate(1.25)) };
        let cache = CacheUse { expected_share: Some(0.9), measured_share: Some(measured), ..CacheUse::default() };
        let records: Vec<RequestRecord> = (0..10).map(request).collect();
        against_served(&records, &ask, &cache, resent)
    }

    #[test]
    fn what_is_as_meant_is_said_once_and_the_rest_stands_beside_it_with_its_reason() {
        let plain = said(1001, 0.9, Some(Resent::WHOLE)).unwrap();
        assert_eq!(plain, "served: 1.00 requests/s (asked 1.25), prompts of 1001 tokens, 90 % of them cached");
        let other = said(800, 0.6, Some(Resent { growth: 0.5, found: 0.0, apart: true })).unwrap();
        assert!(other.contains("800 tokens (meant 1000), 60 % of them cached (meant 90 %)"), "{other}");
        assert!(other.contains("have 0.50 times their tokens, and the prefix cache holds 0 % of them"), "{other}");
    }
}
