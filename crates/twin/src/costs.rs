//! What a step takes: the seconds of its parts, and how they overlap.

use serde::{Deserialize, Serialize};

/// What a step takes, as a sum of terms, and what a request costs outside of the steps. A coefficient that a profile leaves out is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepCosts {
    /// Seconds of every step, whatever it holds: weights read from memory, kernels launched.
    pub base: f64,
    /// Seconds for each decoding sequence in the step.
    pub per_decode: f64,
    /// Seconds for each token of context that a decoding sequence attends to.
    pub per_context_token: f64,
    /// Seconds for each prompt token that is computed in the step.
    pub per_prefill_token: f64,
    /// Seconds between the sending of a request and its arrival in the waiting queue: HTTP, tokenizer.
    pub overhead: f64,
    /// Seconds for each pair of a prompt token that is computed and a token before it in its own prompt: attention grows with the square.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub per_prefill_pair: f64,
    /// Seconds for the square of the prompt tokens of a step: long arithmetic runs at a lower clock than short, within the same power.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub per_prefill_square: f64,
    /// Seconds more of a step that computes prompt tokens: such a step cannot replay the graph captured for decoding.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mixed: f64,
    /// Seconds more of a step that computes more than 16 tokens, decoding sequences and prompt tokens together. Kernels of matrix products
    /// work on tiles of so many rows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub above_16: f64,
    /// Seconds more, again, above 64 tokens.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub above_64: f64,
    /// Seconds more, again, above 128 tokens.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub above_128: f64,
    /// Seconds more above each multiple of 256 tokens, the size of a large tile.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub per_256: f64,
    /// The part, 0 to 1, of the stair above 128 tokens that is gone at 256. The same part of each above a multiple of 256 is gone at the next
    /// one. FP8 kernels on Hopper are slowest right behind an edge. A 70B model on an H200, timed by NVIDIA, took 83 ms at 257 tokens and 51 ms
    /// at 512. On two H100 it took 53, 46, 75, 64 and 95 ms at 257, 512, 513, 768 and 769.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fall: f64,
    /// The part, 0 to 1, of the shorter of decoding and prefill that hides behind the longer when a step holds both. One waits for
    /// memory, the other for arithmetic.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overlap: f64,
    /// The part, 0 to 1, of a step's length by which the next step is composed before this one ends. With asynchronous scheduling
    /// (vLLM's default since 0.11) it is near 1: what arrives later waits a whole step more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ahead: f64,
    /// Seconds between the end of a step and the arrival of its tokens at the client: sampling, detokenizer, HTTP.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delivery: f64,
    /// Seconds more for each sequence whose token is delivered before, in the order of admission: one process writes all streams.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub per_delivery: f64,
}

/// Tokens of a step behind which it takes longer.
pub(super) const EDGES: [u64; 4] = [16, 64, 128, 256];

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepWork {
    pub decoding: u64,
    /// Tokens of context that they attend to, together.
    pub context: u64,
    /// Prompt tokens that are computed.
    pub prefill: u64,
    /// Pairs of such a token and one before it in its prompt.
    pub pairs: f64,
}

impl StepWork {
    /// Adds `tokens` prompt tokens that follow `before` tokens of their prompt.
    pub fn add_prefill(&mut self, before: u32, tokens: u32) {
        self.prefill += u64::from(tokens);
        self.pairs += f64::from(tokens) * (f64::from(before) + 0.5 * f64::from(tokens));
    }
}

impl StepCosts {
    /// Seconds of a step that computes this.
    pub fn seconds(&self, work: &StepWork) -> f64 {
        let stairs = self.stairs(work.decoding);
        let decode =
            self.base + self.per_decode * work.decoding as f64 + self.per_context_token * work.context as f64 + stairs;
        if work.prefill == 0 {
            return decode;
        }
        let tokens = work.prefill as f64;
        let prefill =
            (self.per_prefill_token + self.per_prefill_square * tokens) * tokens + self.per_prefill_pair * work.pairs;
        let more_stairs = self.stairs(work.decoding + work.prefill) - stairs;
        decode + prefill - self.overlap * decode.min(prefill) + self.mixed + more_stairs
    }

    /// Seconds that the number of tokens of a step adds beyond its linear part.
    pub(super) fn stairs(&self, tokens: u64) -> f64 {
        if tokens <= EDGES[0] {
            return 0.0;
        }
        let tall = |above: u64, seconds: f64| if tokens > above { seconds } else { 0.0 };
        let falling = |seconds: f64, beyond: f64| seconds * (1.0 - self.fall * beyond.min(1.0));
        let [_, e64, e128, e256] = EDGES;
        let tiles = tokens.saturating_sub(1) / e256;
        let tiled = if tiles == 0 {
            0.0
        } else {
            let inside = (tokens - tiles * e256) as f64 / e256 as f64;
            falling(self.per_256, inside) + (tiles - 1) as f64 * falling(self.per_256, 1.0)
        };
        let beyond_128 = tokens.saturating_sub(e128) as f64 / e128 as f64;
        self.above_16 + tall(e64, self.above_64) + tall(e128, falling(self.above_128, beyond_128)) + tiled
    }

    /// Until when a request must be in the waiting queue to be part of the step that starts now. `last` is the length of the step before it. Zero
    /// stands for an idle engine, which composes the step at once.
    pub fn composed_at(&self, now: f64, last: f64) -> f64 {
        now - self.ahead * last
    }

    /// Seconds from the end of a step to the arrival of a first token at the client, when that many sequences got a token. The newest
    /// are served last.
    pub fn first_delivery(&self, emitted: u64) -> f64 {
        self.delivery + self.per_delivery * emitted as f64
    }

    /// The delivery of a last token, which is half way through the streams on average.
    pub fn last_delivery(&self, emitted: u64) -> f64 {
        self.delivery + 0.5 * self.per_delivery * emitted as f64
    }

    /// Whether a sequence that ended still holds its place while the next step is composed. With asynchronous scheduling its last token
    /// is not known by then.
    pub fn lingers(&self) -> bool {
        self.ahead > 0.5
    }
}

/// An engine that takes no time, to build others from.
pub const NO_COSTS: StepCosts = StepCosts {
    base: 0.0,
    per_decode: 0.0,
    per_context_token: 0.0,
    per_prefill_token: 0.0,
    overhead: 0.0,
    per_prefill_pair: 0.0,
    per_prefill_square: 0.0,
    mixed: 0.0,
    above_16: 0.0,
    above_64: 0.0,
    above_128: 0.0,
    per_256: 0.0,
    fall: 0.0,
    overlap: 0.0,
    ahead: 0.0,
    delivery: 0.0,
    per_delivery: 0.0,
};

#[cfg(test)]
mod tests {
    use super::*;

    const LINEAR: StepCosts = StepCosts {
        base: 1.0,
        per_decode: 0.1,
        per_context_token: 0.001,
        per_prefill_token: 0.01,
        overhead: 0.5,
        ..NO_COSTS
    };

    #[test]
    fn prefill_hides_behind_decoding_by_the_overlap() {
        let work = StepWork { decoding: 20, context: 1000, prefill: 100, pairs: 0.0 };
        assert!((LINEAR.seconds(&work) - 5.0).abs() < 1e-12);
        let hidden = StepCosts { overlap: 1.0, ..LINEAR };
        assert!((hidden.seconds(&work) - 4.0).abs() < 1e-12);
        let stairs = StepCosts { above_16: 7.0, above_64: 9.0, above_128: 11.0, ..LINEAR };
        assert!((stairs.seconds(&work) - 21.0).abs() < 1e-12, "20 that decode and 100 of a prompt are 120");
    }

    #[test]
    fn stairs_lie_on_all_tokens_of_a_step_and_fall_until_the_next() {
        let costs = StepCosts { per_256: 0.06, fall: 0.5, ..NO_COSTS };
        let of = |decoding, prefill| costs.seconds(&StepWork { decoding, prefill, ..StepWork::default() });
        for (decoding, prefill, seconds) in
            [(56, 200, 0.0), (0, 384, 0.045), (128, 256, 0.045), (0, 512, 0.03), (0, 640, 0.075), (0, 1024, 0.09)]
        {
            assert!((of(decoding, prefill) - seconds).abs() < 1e-12, "{decoding} + {prefill}");
        }
    }

    #[test]
    fn pairs_of_a_prompt_do_not_depend_on_its_chunks() {
        let (mut whole, mut parts) = (StepWork::default(), StepWork::default());
        whole.add_prefill(10, 90);
        parts.add_prefill(10, 30);
        parts.add_prefill(40, 60);
        assert_eq!(whole, parts);
    }

    #[test]
    fn a_file_without_the_newer_coefficients_reads_and_a_mistyped_one_does_not() {
        let old = r#"{"base":1.0,"per_decode":0.1,"per_context_token":0.001,"per_prefill_token":0.01,"overhead":0.5}"#;
        assert_eq!(serde_json::from_str::<StepCosts>(old).unwrap(), LINEAR);
        assert_eq!(serde_json::to_string(&LINEAR).unwrap(), old);
        assert!(serde_json::from_str::<StepCosts>(&old.replace("overhead", "overhaed")).is_err());
    }
}
