//! The line with the throughput that vLLM logs while it works.

use std::time::{Duration, Instant};

use super::log;
use crate::twin::{Counters, Drafted};

/// vLLM logs its throughput that often.
const EVERY: Duration = Duration::from_secs(10);

/// The totals at the last line.
pub(super) struct Statistics {
    since: Instant,
    counters: Counters,
    drafted: Drafted,
}

impl Statistics {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, counters: Counters::default(), drafted: Drafted::default() }
    }

    /// Writes a line if it is time for one.
    pub(super) fn log(&mut self, at: Instant, now: Counters, drafted: Option<&Drafted>) {
        let span = at.saturating_duration_since(self.since);
        if span < EVERY {
            return;
        }
        let per_second = |after: u64, before: u64| (after - before) as f64 / span.as_secs_f64();
        let hit_rate = 100.0 * now.prefix_hits as f64 / now.prefix_queries.max(1) as f64;
        let text = format!(
            "Engine 000: Avg prompt throughput: {:.1} tokens/s, Avg generation throughput: {:.1} tokens/s, Running: {} reqs, \
             Waiting: {} reqs, GPU KV cache usage: {:.1}%, Prefix cache hit rate: {hit_rate:.1}%",
            per_second(now.prompt_tokens, self.counters.prompt_tokens),
            per_second(now.generation_tokens, self.counters.generation_tokens),
            now.running,
            now.waiting,
            100.0 * now.kv_usage,
        );
        log::info(log::Source::Api, "loggers.py:273", &text);
        if let Some(drafted) = drafted {
            let text = speculation(drafted, &self.drafted, span);
            log::info(log::Source::Api, "metrics.py:120", &text);
            self.drafted = drafted.clone();
        }
        (self.since, self.counters) = (at, now);
    }
}

fn speculation(now: &Drafted, before: &Drafted, span: Duration) -> String {
    let drafts = (now.drafts - before.drafts).max(1) as f64;
    let (accepted, tokens) = (now.accepted - before.accepted, now.tokens - before.tokens);
    let rates = now.accepted_at.iter().enumerate().map(|(position, total)| {
        let accepted = total - before.accepted_at.get(position).unwrap_or(&0);
        format!("{:.3}", accepted as f64 / drafts)
    });
    format!(
        "SpecDecoding metrics: Mean acceptance length: {:.2}, Accepted throughput: {:.2} tokens/s, Drafted throughput: {:.2} \
         tokens/s, Accepted: {accepted} tokens, Drafted: {tokens} tokens, Per-position acceptance rate: {}, Avg Draft acceptance \
         rate: {:.1}%",
        1.0 + accepted as f64 / drafts,
        accepted as f64 / span.as_secs_f64(),
        tokens as f64 / span.as_secs_f64(),
        rates.collect::<Vec<String>>().join(", "),
        100.0 * accepted as f64 / tokens.max(1) as f64,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_is_told_as_vllm_tells_it() {
        let before = Drafted { drafts: 10, tokens: 20, accepted: 8, accepted_at: vec![6, 2] };
        let now = Drafted { drafts: 110, tokens: 220, accepted: 98, accepted_at: vec![66, 32] };
        let text = speculation(&now, &before, Duration::from_secs(10));
        assert!(
            text.starts_with("SpecDecoding metrics: Mean acceptance length: 1.90, Accepted throughput: 9.00"),
            "{text}"
        );
        assert!(
            text.contains("Per-position acceptance rate: 0.600, 0.300, Avg Draft acceptance rate: 45.0%"),
            "{text}"
        );
    }
}
