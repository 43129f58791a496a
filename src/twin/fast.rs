//! The fast replay: the scheduler's rules for requests whose uncached tokens are known, from event to event instead of block by block.
//!
//! Between an arrival, the end of a prefill and the end of an answer every step is like the one before it, so the state is a few
//! sums and one heap of ends. What it leaves out: which blocks are shared. Cached tokens lengthen the context and take no room in
//! the KV cache, as if others held them; where that matters, the block scheduler is there.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::Serialize;

use super::costs::{StepCosts, StepWork};
use super::profile::Limits;

/// A request as it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sent {
    /// When it was sent, in seconds.
    pub at: f64,
    /// Tokens of its prompt, cached ones included.
    pub prompt: u32,
    /// Those of them that the prefix cache holds; at least one is computed all the same.
    pub cached: u32,
    /// Tokens of its answer.
    pub output: u32,
}

/// When its answer came, in seconds; infinite when it could never run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answered {
    /// The first token.
    pub first: f64,
    /// The last token.
    pub last: f64,
}

impl Answered {
    /// Seconds per token after the first, of an answer of so many tokens; none for a single one.
    pub fn tpot(&self, tokens: u32) -> Option<f64> {
        (tokens > 1).then(|| (self.last - self.first) / f64::from(tokens - 1))
    }
}

/// Tokens of a KV block, where nobody tells: vLLM's default on GPUs.
pub const DEFAULT_BLOCK: u32 = 16;

/// What bounds a fast replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// Sequences that run at the same time, at most.
    pub max_num_seqs: u32,
    /// The token budget of a step.
    pub max_num_batched_tokens: u32,
    /// Tokens that the KV cache holds; none where it is not known to bound anything.
    pub kv_tokens: Option<u64>,
}

impl Bounds {
    /// The same for a scheduler that knows blocks of that many tokens; none where the size of the KV cache is not known.
    pub fn limits(&self, block_size: u32) -> Option<Limits> {
        let Self { max_num_seqs, max_num_batched_tokens, kv_tokens } = *self;
        let num_blocks = u32::try_from(kv_tokens? / u64::from(block_size.max(1))).unwrap_or(u32::MAX);
        Some(Limits { max_num_seqs, max_num_batched_tokens, num_blocks, block_size })
    }
}

impl From<Limits> for Bounds {
    fn from(limits: Limits) -> Self {
        Self {
            max_num_seqs: limits.max_num_seqs,
            max_num_batched_tokens: limits.max_num_batched_tokens,
            kv_tokens: Some(limits.kv_tokens()),
        }
    }
}

/// How near a replay came to what it models crudely.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Strain {
    /// Sequences that lost their blocks and were computed again.
    pub preemptions: u64,
    /// Steps in which a waiting request was held back by the KV cache.
    pub kv_full: u64,
    /// Steps in which a waiting request was held back by the cap on sequences.
    pub seqs_full: u64,
    /// The most sequences that ran at once, those whose prompts are computed included.
    pub most_running: u64,
    /// The most sequences that decoded in one step.
    pub most_decoding: u64,
    /// Seconds from the first arrival to the last answer.
    pub seconds: f64,
    /// Steps, those without any change to the batch included.
    pub steps: u64,
}

/// What a sequence wastes on average of its last block.
const HALF_A_BLOCK: u64 = DEFAULT_BLOCK as u64 / 2;

/// A request whose prompt is being computed.
#[derive(Clone, Copy, Debug)]
struct Prefill {
    index: u32,
    /// Tokens of its context that are computed, cached ones included.
    computed: u32,
    /// All that must be computed before the next token.
    target: u32,
    /// Tokens of its answer that came before a preemption.
    generated: u32,
}

/// A fast replay with its memory, kept by whoever replays often.
#[derive(Clone, Debug, Default)]
pub struct FastReplay {
    /// The number of the step in which a sequence gets its last token, and the request.
    ends: BinaryHeap<Reverse<(u64, u32)>>,
    /// Preempted requests and the tokens that they had generated.
    again: VecDeque<(u32, u32)>,
    /// Prompts that this step completes.
    ready: Vec<Prefill>,
    /// The prompt that is split over steps; there is at most one, since it took all that was left of a budget.
    partial: Option<Prefill>,
    /// The first request that was not admitted yet.
    next: usize,
    /// Tokens in the KV cache.
    held: u64,
    /// Tokens that the decoding sequences attend to.
    context: u64,
    /// Sequences that ended in the last step and still take their places.
    lingering: usize,
    strain: Strain,
}

impl FastReplay {
    /// Serves the requests, sorted by their time, and tells when each was answered, in their order.
    pub fn run(&mut self, costs: &StepCosts, bounds: Bounds, requests: &[Sent], answers: &mut Vec<Answered>) -> Strain {
        self.run_as(costs, bounds, requests, answers, |seconds, _| seconds)
    }

    /// The same for an engine of which `takes` tells what a step takes, from the seconds that the costs say and the number of sequences
    /// that get a token.
    pub fn run_as(
        &mut self,
        costs: &StepCosts,
        bounds: Bounds,
        requests: &[Sent],
        answers: &mut Vec<Answered>,
        mut takes: impl FnMut(f64, u64) -> f64,
    ) -> Strain {
        answers.clear();
        answers.resize(requests.len(), Answered { first: f64::INFINITY, last: f64::INFINITY });
        self.ends.clear();
        self.again.clear();
        (self.partial, self.next, self.held, self.context, self.lingering) = (None, 0, 0, 0, 0);
        self.strain = Strain::default();
        let kv = bounds.kv_tokens.unwrap_or(u64::MAX);
        let start = requests.first().map_or(0.0, |r| r.at);
        let (mut now, mut last, mut step) = (start, 0.0, 0_u64);
        loop {
            let composed_at = costs.composed_at(now, last);
            let (mut work, blocked) = self.compose(bounds, kv, requests, |r| r.at + costs.overhead <= composed_at);
            if work.prefill == 0 && work.decoding == 0 {
                let Some(more) = requests.get(self.next) else { break };
                now = now.max(more.at + costs.overhead);
                last = 0.0;
                continue;
            }
            let ended;
            self.strain.most_decoding = self.strain.most_decoding.max(work.decoding);
            if work.prefill > 0 {
                let emitted = work.decoding + self.ready.len() as u64;
                last = takes(costs.seconds(&work), emitted);
                now += last;
                step += 1;
                self.context += work.decoding;
                self.held += work.decoding;
                self.first_tokens(requests, now + costs.first_delivery(emitted), step, answers);
                ended = self.last_tokens(requests, now + costs.last_delivery(emitted), step, answers);
            } else {
                // Nothing changes until an answer ends, the KV cache overflows or a request is seen that may be admitted.
                let end = self.ends.peek().map_or(step, |Reverse((end, _))| *end);
                let end = if blocked && self.lingering > 0 { step } else { end };
                let seen = if blocked { None } else { requests.get(self.next) };
                let seen = seen.map_or(f64::INFINITY, |r| r.at + costs.overhead);
                let fixed = costs.seconds(&StepWork { context: 0, ..work });
                loop {
                    last = takes(fixed + costs.per_context_token * work.context as f64, work.decoding);
                    now += last;
                    step += 1;
                    work.context += work.decoding;
                    self.held += work.decoding;
                    if step >= end || self.held > kv || seen <= costs.composed_at(now, last) {
                        break;
                    }
                }
                self.context = work.context;
                ended = self.last_tokens(requests, now + costs.last_delivery(work.decoding), step, answers);
            }
            // An engine that is idle but for those that ended composes anew.
            let still_running = !self.ends.is_empty() || self.partial.is_some();
            self.lingering = if costs.lingers() && still_running { ended } else { 0 };
            while self.held > kv && self.preempt(requests, step) {
                self.strain.preemptions += 1;
            }
        }
        self.strain.seconds = now - start;
        self.strain.steps = step;
        self.strain
    }

    /// Composes a step: those that decode, the prompt that was begun, then whoever waits, first come first served. Also
    /// tells whether somebody waits for a sequence to end.
    fn compose(
        &mut self,
        bounds: Bounds,
        kv: u64,
        requests: &[Sent],
        waits: impl Fn(&Sent) -> bool,
    ) -> (StepWork, bool) {
        let decoding = self.ends.len() as u64;
        let mut work = StepWork { decoding, context: self.context, ..StepWork::default() };
        let mut budget = bounds.max_num_batched_tokens.saturating_sub(decoding as u32);
        if let Some(prefill) = self.partial.take() {
            self.compute(prefill, &mut budget, &mut work);
        }
        loop {
            let (index, generated) = match self.again.front() {
                Some(preempted) => *preempted,
                None if requests.get(self.next).is_some_and(&waits) => (self.next as u32, 0),
                None => return (work, false),
            };
            let running = self.ends.len() + self.ready.len() + usize::from(self.partial.is_some()) + self.lingering;
            if budget == 0 || running >= bounds.max_num_seqs as usize {
                self.strain.seqs_full += u64::from(running >= bounds.max_num_seqs as usize);
                return (work, true);
            }
            let request = &requests[index as usize];
            let possible = room(request, request.output) <= kv && request.prompt > 0 && request.output > 0;
            let needed = room(request, generated);
            if possible && self.held + needed > kv {
                self.strain.kv_full += 1;
                return (work, true);
            }
            if self.again.pop_front().is_none() {
                self.next += 1;
            }
            if possible {
                self.strain.most_running = self.strain.most_running.max(running as u64 + 1);
                self.held += needed;
                let computed = request.cached.min(request.prompt - 1);
                let prefill = Prefill { index, computed, target: request.prompt + generated, generated };
                self.compute(prefill, &mut budget, &mut work);
            }
        }
    }

    fn compute(&mut self, mut prefill: Prefill, budget: &mut u32, work: &mut StepWork) {
        let tokens = (*budget).min(prefill.target - prefill.computed);
        work.add_prefill(prefill.computed, tokens);
        *budget -= tokens;
        prefill.computed += tokens;
        if prefill.computed == prefill.target {
            self.ready.push(prefill);
        } else {
            self.partial = Some(prefill);
        }
    }

    fn first_tokens(&mut self, requests: &[Sent], arrives: f64, step: u64, answers: &mut [Answered]) {
        while let Some(prefill) = self.ready.pop() {
            let index = prefill.index as usize;
            if prefill.generated == 0 {
                answers[index].first = arrives;
            }
            self.context += u64::from(prefill.target) + 1;
            let more = requests[index].output.saturating_sub(prefill.generated + 1);
            self.ends.push(Reverse((step + u64::from(more), prefill.index)));
        }
    }

    fn last_tokens(&mut self, requests: &[Sent], arrives: f64, step: u64, answers: &mut [Answered]) -> usize {
        let before = self.ends.len();
        while let Some(Reverse((end, index))) = self.ends.peek().copied() {
            if end > step {
                break;
            }
            self.ends.pop();
            let request = &requests[index as usize];
            let answer = &mut answers[index as usize];
            answer.last = arrives.max(answer.first);
            self.context -= u64::from(request.prompt) + u64::from(request.output);
            self.held -= room(request, request.output.max(1) - 1);
        }
        before - self.ends.len()
    }

    /// Takes the blocks of the newest sequence; false when none is left.
    fn preempt(&mut self, requests: &[Sent], step: u64) -> bool {
        let (index, generated) = if let Some(prefill) = self.partial.take() {
            self.held -= room(&requests[prefill.index as usize], prefill.generated);
            (prefill.index, prefill.generated)
        } else {
            // Rare, so the heap need not know who is newest.
            let Some(newest) = self.ends.iter().map(|Reverse((_, index))| *index).max() else { return false };
            let mut ends = std::mem::take(&mut self.ends).into_vec();
            let Some(at) = ends.iter().position(|Reverse((_, index))| *index == newest) else { return false };
            let Reverse((end, _)) = ends.swap_remove(at);
            self.ends = ends.into();
            let request = &requests[newest as usize];
            let generated = request.output - (end - step) as u32;
            self.context -= u64::from(request.prompt) + u64::from(generated);
            self.held -= room(request, generated - 1);
            (newest, generated)
        };
        self.again.push_front((index, generated));
        true
    }
}

/// Tokens that a request takes in the KV cache once that much of its answer is there.
fn room(request: &Sent, generated: u32) -> u64 {
    let computed = request.prompt - request.cached.min(request.prompt.saturating_sub(1));
    u64::from(computed) + u64::from(generated) + HALF_A_BLOCK
}

#[cfg(test)]
mod tests {
    use super::super::{Arrival, PromptShape, replay};
    use super::*;
    use crate::repeatable::uniform;

    const COSTS: StepCosts = StepCosts {
        base: 5e-3,
        per_decode: 3e-5,
        per_context_token: 2e-8,
        per_prefill_token: 3e-5,
        overhead: 4e-3,
        per_prefill_pair: 1e-9,
        per_prefill_square: 2e-10,
        mixed: 2e-3,
        above_16: 5e-4,
        above_64: 1e-3,
        above_128: 1e-3,
        overlap: 0.3,
        ahead: 0.8,
        delivery: 2e-3,
        per_delivery: 1e-4,
    };

    /// Poisson arrivals that repeat.
    fn requests(n: usize, rate: f64) -> Vec<Sent> {
        let mut uniform = uniform(11);
        let mut at = 0.0;
        let mut one = move || {
            at -= uniform().ln() / rate;
            Sent { at, prompt: 50 + (uniform() * 3000.0) as u32, cached: 0, output: 1 + (uniform() * 400.0) as u32 }
        };
        (0..n).map(|_| one()).collect()
    }

    fn both(limits: Limits, requests: &[Sent]) -> (Vec<Answered>, Vec<Answered>, Strain) {
        let mut fast = Vec::new();
        let strain = FastReplay::default().run(&COSTS, limits.into(), requests, &mut fast);
        let arrivals = requests.iter().enumerate().map(|(id, r)| Arrival {
            id: id as u64,
            due_s: r.at,
            prompt: PromptShape { tokens: r.prompt, blocks: Vec::new() },
            output_tokens: r.output,
        });
        let slow = replay(COSTS, limits, arrivals);
        (fast, slow.iter().map(|r| Answered { first: r.first, last: r.last }).collect(), strain)
    }

    #[test]
    fn it_agrees_with_the_block_scheduler_to_the_last_step() {
        for (max_num_seqs, max_num_batched_tokens, rate) in [(256, 8192, 12.0), (16, 512, 6.0), (64, 2048, 30.0)] {
            let limits = Limits { max_num_seqs, max_num_batched_tokens, num_blocks: 60_000, block_size: 16 };
            let (fast, slow, strain) = both(limits, &requests(3000, rate));
            let differ =
                fast.iter().zip(&slow).filter(|(a, b)| (a.first - b.first).abs() + (a.last - b.last).abs() > 1e-6);
            assert_eq!(differ.count(), 0, "{max_num_seqs} {max_num_batched_tokens}");
            assert_eq!((strain.preemptions, strain.kv_full), (0, 0));
        }
    }

    #[test]
    fn a_small_cache_preempts_about_as_often_and_loses_nobody() {
        let limits = Limits { max_num_seqs: 256, max_num_batched_tokens: 2048, num_blocks: 1500, block_size: 16 };
        let (fast, slow, strain) = both(limits, &requests(1000, 14.0));
        assert!(strain.preemptions > 20 && strain.kv_full > 20, "{strain:?}");
        assert!(fast.iter().all(|a| a.first <= a.last && a.last.is_finite()));
        let mean = |answers: &[Answered]| answers.iter().map(|a| a.last).sum::<f64>() / answers.len() as f64;
        assert!((mean(&fast) / mean(&slow)).ln().abs() < 0.03, "{} {}", mean(&fast), mean(&slow));
    }

    #[test]
    fn cached_tokens_cost_context_and_no_prefill() {
        let limits = Bounds { max_num_seqs: 8, max_num_batched_tokens: 8192, kv_tokens: None };
        let run = |cached| {
            let mut answers = Vec::new();
            let one = [Sent { at: 1.0, prompt: 1000, cached, output: 3 }];
            FastReplay::default().run(&COSTS, limits, &one, &mut answers);
            answers[0]
        };
        let (cold, warm) = (run(0), run(1000));
        let decode = (warm.last - warm.first) - (cold.last - cold.first);
        assert!(decode.abs() < 1e-12 && warm.first < cold.first - 900.0 * COSTS.per_prefill_token);
    }

    #[test]
    fn a_request_that_never_fits_is_infinitely_late_and_stops_nobody() {
        let bounds = Bounds { max_num_seqs: 8, max_num_batched_tokens: 512, kv_tokens: Some(320) };
        let sent = [400, 200].map(|prompt| Sent { at: 0.0, prompt, cached: 0, output: 4 });
        let mut answers = Vec::new();
        FastReplay::default().run(&COSTS, bounds, &sent, &mut answers);
        assert!(answers[0].last.is_infinite() && answers[1].last.is_finite());
    }
}
