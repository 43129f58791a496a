//! What the engine observes of its requests and steps: vLLM's histograms, each filled where vLLM fills it.
//!
//! Seconds are those of the server's clock, after the time factor.

use std::time::Instant;

use super::histogram::Histogram;

const FIRST_TOKEN: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const BETWEEN_TOKENS: [f64; 19] =
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const OF_A_REQUEST: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
const OF_A_STEP: [f64; 13] = [1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

/// What a request has lived through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// When its HTTP request was read.
    pub(super) arrived: Instant,
    /// When it reached the waiting queue.
    pub(super) queued: Instant,
    /// When the first step that computes it began.
    pub(super) scheduled: Option<Instant>,
    /// The end of the step of its first token.
    pub(super) first: Option<Instant>,
    /// The end of the step of its newest token.
    pub(super) last: Instant,
    pub(super) prompt: u32,
    pub(super) generated: u32,
    /// Tokens that were asked for.
    pub(super) asked: u32,
    /// Answers to the same prompt that were asked for.
    pub(super) copies: u32,
}

/// The histograms of `/metrics`.
#[derive(Clone, Debug)]
pub(super) struct Observations {
    prompt_tokens: Histogram,
    generation_tokens: Histogram,
    step_tokens: Histogram,
    max_generation_tokens: Histogram,
    copies: Histogram,
    max_tokens: Histogram,
    first_token: Histogram,
    between_tokens: Histogram,
    per_output_token: Histogram,
    whole: Histogram,
    queue: Histogram,
    inference: Histogram,
    prefill: Histogram,
    decode: Histogram,
    preemptions: Histogram,
    computed_prompt: Histogram,
}

impl Observations {
    pub(super) fn new(max_model_len: u32) -> Self {
        let tokens = || Histogram::of_counts(max_model_len);
        let seconds = || Histogram::new(&OF_A_REQUEST);
        Self {
            prompt_tokens: tokens(),
            generation_tokens: tokens(),
            step_tokens: Histogram::new(&OF_A_STEP),
            max_generation_tokens: tokens(),
            copies: Histogram::of_counts(20),
            max_tokens: tokens(),
            first_token: Histogram::new(&FIRST_TOKEN),
            between_tokens: Histogram::new(&BETWEEN_TOKENS),
            per_output_token: Histogram::new(&BETWEEN_TOKENS),
            whole: seconds(),
            queue: seconds(),
            inference: seconds(),
            prefill: seconds(),
            decode: seconds(),
            preemptions: Histogram::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0]),
            computed_prompt: tokens(),
        }
    }

    /// A step emitted tokens, and computed the last of prompts with that many tokens together.
    pub(super) fn step(&mut self, prompt_tokens: u64, emitted: u64) {
        self.step_tokens.observe((prompt_tokens + emitted) as f64);
    }

    /// A request got tokens from the step that ended at `end`; they leave the server at `now`.
    pub(super) fn tokens(&mut self, life: &mut Life, count: u32, end: Instant, now: Instant) {
        if life.first.is_none() {
            life.first = Some(end);
            self.first_token.observe(now.saturating_duration_since(life.arrived).as_secs_f64());
        } else {
            self.between_tokens.observe(end.saturating_duration_since(life.last).as_secs_f64());
        }
        life.last = end;
        life.generated += count;
    }

    /// A request is answered in full.
    pub(super) fn end(&mut self, life: &Life, cached: u32, preemptions: u32, now: Instant) {
        let between = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
        let scheduled = life.scheduled.unwrap_or(life.queued);
        let first = life.first.unwrap_or(life.last);
        let decode = between(first, life.last);
        let later_tokens = life.generated.saturating_sub(1);
        self.whole.observe(between(life.arrived, now));
        self.queue.observe(between(life.queued, scheduled));
        self.prefill.observe(between(scheduled, first));
        self.decode.observe(decode);
        self.inference.observe(between(scheduled, life.last));
        self.per_output_token.observe(if later_tokens == 0 { 0.0 } else { decode / f64::from(later_tokens) });
        self.prompt_tokens.observe(life.prompt.into());
        self.computed_prompt.observe((life.prompt - cached.min(life.prompt)).into());
        self.generation_tokens.observe(life.generated.into());
        self.max_generation_tokens.observe(life.generated.into());
        self.max_tokens.observe(life.asked.into());
        self.copies.observe(life.copies.into());
        self.preemptions.observe(preemptions.into());
    }

    /// Name, help and histogram, in the order of vLLM's page.
    pub(super) fn families(&self) -> [(&'static str, &'static str, &Histogram); 16] {
        [
            ("request_prompt_tokens", "Number of prefill tokens processed.", &self.prompt_tokens),
            ("request_generation_tokens", "Number of generation tokens processed.", &self.generation_tokens),
            ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", &self.step_tokens),
            (
                "request_max_num_generation_tokens",
                "Histogram of maximum number of requested generation tokens.",
                &self.max_generation_tokens,
            ),
            ("request_params_n", "Histogram of the n request parameter.", &self.copies),
            ("request_params_max_tokens", "Histogram of the max_tokens request parameter.", &self.max_tokens),
            ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", &self.first_token),
            ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", &self.between_tokens),
            (
                "request_time_per_output_token_seconds",
                "Histogram of time_per_output_token_seconds per request.",
                &self.per_output_token,
            ),
            ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", &self.whole),
            ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", &self.queue),
            (
                "request_inference_time_seconds",
                "Histogram of time spent in RUNNING phase for request.",
                &self.inference,
            ),
            ("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", &self.prefill),
            ("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", &self.decode),
            ("request_num_preemptions", "Histogram of the number of times a request was preempted.", &self.preemptions),
            (
                "request_prefill_kv_computed_tokens",
                "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
                &self.computed_prompt,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    #[test]
    fn the_phases_of_a_request_are_told_apart() {
        let start = clock::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut life = Life {
            arrived: at(0),
            queued: at(2),
            scheduled: Some(at(10)),
            first: None,
            last: at(0),
            prompt: 100,
            generated: 0,
            asked: 5,
            copies: 1,
        };
        let mut seen = Observations::new(1024);
        seen.tokens(&mut life, 1, at(30), at(31));
        seen.tokens(&mut life, 3, at(40), at(41));
        seen.tokens(&mut life, 1, at(60), at(60));
        seen.end(&life, 32, 1, at(61));
        let sum = |name: &str| {
            let (_, _, histogram) = seen.families().into_iter().find(|(n, ..)| *n == name).unwrap();
            (histogram.count(), (histogram.sum() * 1e4).round() / 1e4)
        };
        assert_eq!(sum("time_to_first_token_seconds"), (1, 0.031));
        assert_eq!(sum("inter_token_latency_seconds"), (2, 0.03), "one for each step, not for each token");
        assert_eq!(sum("request_queue_time_seconds"), (1, 0.008));
        assert_eq!(sum("request_prefill_time_seconds"), (1, 0.02));
        assert_eq!(sum("request_decode_time_seconds"), (1, 0.03));
        assert_eq!(sum("request_inference_time_seconds"), (1, 0.05));
        assert_eq!(sum("e2e_request_latency_seconds"), (1, 0.061));
        assert_eq!(sum("request_time_per_output_token_seconds"), (1, 0.0075));
        assert_eq!(sum("request_prefill_kv_computed_tokens"), (1, 68.0));
        assert_eq!(sum("request_num_preemptions"), (1, 1.0));
    }
}
