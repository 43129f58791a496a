//! The latencies of requests that `/metrics` shows: vLLM's histograms, each filled where vLLM fills it.
//!
//! Seconds are those of the server's clock, after the time factor.

use std::time::Instant;

/// The times of one request so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// When its HTTP request was read.
    pub(super) arrived: Instant,
    /// The end of the step of its first token, and of its newest.
    pub(super) tokens: Option<(Instant, Instant)>,
    pub(super) generated: u32,
}

/// A histogram without bounds of its own: the number of values, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Histogram {
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl Histogram {
    fn observe(&mut self, seconds: f64) {
        *self = Self { count: self.count + 1, sum: self.sum + seconds };
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Observations {
    first_token: Histogram,
    per_output_token: Histogram,
    whole: Histogram,
}

impl Observations {
    /// A request got tokens from the step that ended at `end`; they leave the server at `now`.
    pub(super) fn tokens(&mut self, life: &mut Life, count: u32, end: Instant, now: Instant) {
        if life.tokens.is_none() {
            self.first_token.observe(now.saturating_duration_since(life.arrived).as_secs_f64());
        }
        life.tokens = Some((life.tokens.map_or(end, |(first, _)| first), end));
        life.generated += count;
    }

    /// A request is answered in full.
    pub(super) fn end(&mut self, life: &Life, now: Instant) {
        let decode = life.tokens.map_or(0.0, |(first, last)| last.saturating_duration_since(first).as_secs_f64());
        let later_tokens = life.generated.saturating_sub(1);
        self.per_output_token.observe(if later_tokens == 0 { 0.0 } else { decode / f64::from(later_tokens) });
        self.whole.observe(now.saturating_duration_since(life.arrived).as_secs_f64());
    }

    /// Name, help and histogram, in the order of vLLM's page.
    pub(super) fn families(&self) -> [(&'static str, &'static str, &Histogram); 3] {
        [
            ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", &self.first_token),
            (
                "request_time_per_output_token_seconds",
                "Histogram of time_per_output_token_seconds per request.",
                &self.per_output_token,
            ),
            ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", &self.whole),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use autotune_clock as clock;

    #[test]
    fn latencies_of_a_request_are_told_apart() {
        let start = clock::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut life = Life { arrived: at(0), tokens: None, generated: 0 };
        let mut seen = Observations::default();
        seen.tokens(&mut life, 1, at(30), at(31));
        seen.tokens(&mut life, 3, at(40), at(41));
        seen.tokens(&mut life, 1, at(60), at(60));
        seen.end(&life, at(61));
        let sums = seen.families().map(|(_, _, histogram)| (histogram.count, (histogram.sum * 1e4).round() / 1e4));
        assert_eq!(sums, [(1, 0.031), (1, 0.0075), (1, 0.061)]);
    }
}
