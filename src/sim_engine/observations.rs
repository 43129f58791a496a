//! The latencies of requests that `/metrics` shows: vLLM's histograms, each filled where vLLM fills it.
//!
//! Seconds are those of the server's clock, after the time factor.

use std::time::Instant;

use super::histogram::Histogram;

const FIRST_TOKEN: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const PER_OUTPUT_TOKEN: [f64; 19] =
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const OF_A_REQUEST: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];

/// The times of one request so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// When its HTTP request was read.
    pub(super) arrived: Instant,
    /// The end of the step of its first token, and of its newest.
    pub(super) tokens: Option<(Instant, Instant)>,
    pub(super) generated: u32,
}

/// The histograms of `/metrics`.
#[derive(Clone, Debug)]
pub(super) struct Observations {
    first_token: Histogram,
    per_output_token: Histogram,
    whole: Histogram,
}

impl Observations {
    pub(super) fn new() -> Self {
        Self {
            first_token: Histogram::new(&FIRST_TOKEN),
            per_output_token: Histogram::new(&PER_OUTPUT_TOKEN),
            whole: Histogram::new(&OF_A_REQUEST),
        }
    }

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
    use crate::clock;

    #[test]
    fn latencies_of_a_request_are_told_apart() {
        let start = clock::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut life = Life { arrived: at(0), tokens: None, generated: 0 };
        let mut seen = Observations::new();
        seen.tokens(&mut life, 1, at(30), at(31));
        seen.tokens(&mut life, 3, at(40), at(41));
        seen.tokens(&mut life, 1, at(60), at(60));
        seen.end(&life, at(61));
        let sums = seen.families().map(|(_, _, histogram)| (histogram.count(), (histogram.sum() * 1e4).round() / 1e4));
        assert_eq!(sums, [(1, 0.031), (1, 0.0075), (1, 0.061)]);
    }
}
