//! The scheduler: continuous batching as vLLM V1 does it, without a clock.
//!
//! A step serves the running sequences first, in the order of their admission. It then admits waiting ones first come first
//! served while the sequence cap, the token budget and the KV blocks allow. A prompt may be split over several steps (chunked
//! prefill). When blocks run out, the newest running sequence is preempted: it loses its blocks, goes to the head of the
//! waiting queue and is recomputed.

use std::collections::{HashMap, VecDeque};

use super::blocks::{BlockPool, Spreading};
use super::costs::{StepCosts, StepWork};
use super::kernels::{Kernels, Prompts};
use super::profile::Limits;
use super::speculation::{Drafted, Speculation};

/// What the scheduler needs to know of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptShape {
    /// Its length in tokens.
    pub tokens: u32,
    /// For prefix caching: the hash of each full block chained with those before it. Empty: nothing is reused. It may go on
    /// into the answer, whose blocks the next turn of a conversation then finds.
    pub blocks: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    pub seconds: f64,
    /// How many tokens were scheduled, those of prompts included.
    pub scheduled: u64,
    /// How many tokens were emitted.
    pub tokens: u64,
    /// The requests that got a token, the first one included, in the order of the batch. A request stands here once for each token that is
    /// accepted of a draft. A sparing scheduler leaves out some requests that got neither their first token nor their last.
    pub emitted: Vec<u64>,
    /// The requests that got their last token.
    pub finished: Vec<u64>,
    /// How many sequences were preempted.
    pub preempted: u32,
}

/// The state of the engine and its totals since the start, as `/metrics` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Sequences that hold KV blocks and take part in steps.
    pub running: u32,
    /// Requests that wait for admission, preempted ones included.
    pub waiting: u32,
    /// The part of the KV blocks that is in use, 0 to 1.
    pub kv_usage: f64,
    pub preemptions: u64,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_queries: u64,
    pub prefix_hits: u64,
    /// Prompt tokens of the requests that got their first token, reused ones included.
    pub prompt_tokens: u64,
    /// Tokens emitted.
    pub generation_tokens: u64,
}

#[derive(Clone, Debug, Default)]
struct Sequence {
    id: u64,
    prompt: u32,
    output: u32,
    generated: u32,
    /// Tokens whose keys and values are in the KV cache.
    computed: u32,
    /// Tokens of the prompt that the prefix cache gave at the first admission.
    reused: Option<u32>,
    blocks: Vec<u32>,
    hashes: Vec<u64>,
    /// How many of `hashes` the pool knows.
    remembered: usize,
    /// Tokens that it decodes in steps that are not booked one by one; see [`Scheduler::steady`].
    span: u32,
}

impl Sequence {
    fn tokens(&self) -> u32 {
        self.prompt + self.generated
    }

    /// Takes this many tokens off its span.
    fn settle(&mut self, tokens: u32) {
        self.generated += tokens;
        self.computed += tokens;
        self.span = 0;
    }

    /// The number of next steps in which it decodes a token that is not its last, into blocks that it already holds.
    fn steady_steps(&self, block_size: u32) -> u32 {
        if !self.decodes() {
            return 0;
        }
        let room = self.blocks.len() as u32 * block_size - self.computed;
        // The step that fills a block which others may find is booked.
        let room = if self.remembered < self.hashes.len() { room.saturating_sub(1) } else { room };
        room.min(self.output - self.generated - 1)
    }

    /// Whether its next step decodes, and does not compute a prompt or what a preemption lost.
    fn decodes(&self) -> bool {
        self.generated > 0 && self.computed + 1 == self.tokens()
    }
}

/// The scheduler with its queues and its KV cache.
#[derive(Clone, Debug)]
pub struct Scheduler {
    costs: StepCosts,
    limits: Limits,
    pool: BlockPool,
    slots: Vec<Sequence>,
    vacant: Vec<u32>,
    by_id: HashMap<u64, u32, Spreading>,
    running: Vec<u32>,
    /// The rest of the span of each running sequence. In a span, a step touches neither the blocks nor the place of the sequence, and a sparing
    /// scheduler only counts the steps down.
    steady: Vec<u32>,
    /// The sequences with a span, and the tokens of their contexts together.
    spans: (usize, u64),
    sparing: bool,
    waiting: VecDeque<u32>,
    /// Finished in the last step; their slots are kept until the next one so that they can be asked about.
    finished: Vec<u32>,
    /// The batch of the step without the sequences that are only counted down: the place among the running ones, and tokens. Kept to reuse
    /// its memory.
    batch: Vec<(usize, u32)>,
    counters: Counters,
    speculation: Option<Speculation>,
    kernels: Option<&'static Kernels>,
}

impl Scheduler {
    pub fn new(costs: StepCosts, limits: Limits) -> Self {
        Self {
            costs,
            limits,
            pool: BlockPool::new(limits.num_blocks),
            slots: Vec::new(),
            vacant: Vec::new(),
            by_id: HashMap::default(),
            running: Vec::new(),
            steady: Vec::new(),
            spans: (0, 0),
            sparing: false,
            waiting: VecDeque::new(),
            finished: Vec::new(),
            batch: Vec::new(),
            counters: Counters::default(),
            speculation: None,
            kernels: None,
        }
    }

    /// The same scheduler with speculative decoding: a step then emits the accepted tokens of a draft too.
    #[must_use]
    pub fn speculating(self, speculation: Option<Speculation>) -> Self {
        Self { speculation, ..self }
    }

    /// The same scheduler on a GPU whose kernels take what a table says; the costs are then those of the CPU.
    #[must_use]
    pub fn on(self, kernels: Option<&'static Kernels>) -> Self {
        Self { kernels, ..self }
    }

    /// The same scheduler, sparing. Its steps do not list every token between the first and the last of a request, and take a fraction of the
    /// time.
    #[must_use]
    pub fn sparing(self, sparing: bool) -> Self {
        Self { sparing, ..self }
    }

    /// Changes the sequence cap and the token budget of later steps. Running sequences go on.
    pub fn limit(&mut self, max_num_seqs: u32, max_num_batched_tokens: u32) {
        self.limits = Limits { max_num_seqs, max_num_batched_tokens, ..self.limits };
    }

    /// The totals of speculative decoding, if it is on.
    pub fn drafted(&self) -> Option<&Drafted> {
        self.speculation.as_ref().map(Speculation::drafted)
    }

    /// Puts a request at the end of the waiting queue. Returns false, and does nothing, for one that could never run. It
    /// has no prompt, no answer, more tokens than the whole KV cache, or an id that is still known.
    pub fn admit(&mut self, id: u64, prompt: PromptShape, output_tokens: u32) -> bool {
        let fits = u64::from(prompt.tokens) + u64::from(output_tokens) <= self.limits.kv_tokens();
        if !fits || prompt.tokens == 0 || output_tokens == 0 || self.by_id.contains_key(&id) {
            return false;
        }
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Sequence::default());
            self.slots.len() as u32 - 1
        });
        let blocks = std::mem::take(&mut self.slots[slot as usize].blocks);
        self.slots[slot as usize] = Sequence {
            id,
            prompt: prompt.tokens,
            output: output_tokens,
            hashes: prompt.blocks,
            blocks,
            ..Sequence::default()
        };
        self.by_id.insert(id, slot);
        self.waiting.push_back(slot);
        true
    }

    /// Drops a request, wherever it is, and frees its blocks. Unknown and finished ids are ignored.
    pub fn abort(&mut self, id: u64) {
        let Some(&slot) = self.by_id.get(&id) else { return };
        if let Some(at) = self.running.iter().position(|s| *s == slot) {
            self.settle(slot, self.steady[at]);
            self.running.remove(at);
            self.steady.remove(at);
        } else if let Some(at) = self.waiting.iter().position(|s| *s == slot) {
            self.waiting.remove(at);
        } else {
            return;
        }
        self.pool.release(&mut self.slots[slot as usize].blocks);
        self.by_id.remove(&id);
        self.vacant.push(slot);
    }

    /// Tokens of the prompt that came from the prefix cache at admission. None before the admission and for unknown ids; a
    /// finished request is known until the next step.
    pub fn cached_tokens(&self, id: u64) -> Option<u32> {
        self.slots[*self.by_id.get(&id)? as usize].reused
    }

    /// The state and the totals.
    pub fn counters(&self) -> Counters {
        let used = self.pool.total() - self.pool.free();
        Counters {
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            kv_usage: f64::from(used) / f64::from(self.pool.total().max(1)),
            ..self.counters
        }
    }

    /// Forgets the prefix cache; false, and nothing done, while a block is in use.
    pub fn reset_prefix_cache(&mut self) -> bool {
        self.pool.reset()
    }

    /// Computes one step, or nothing when there is nothing to do. The state afterwards is that at the end of the step.
    pub fn step(&mut self) -> Option<Step> {
        let ended = if self.costs.lingers() && !self.running.is_empty() { self.finished.len() } else { 0 };
        while let Some(slot) = self.finished.pop() {
            self.by_id.remove(&self.slots[slot as usize].id);
            self.vacant.push(slot);
        }
        self.batch.clear();
        let (budget, counted_down, preempted) = self.serve_running(self.limits.max_num_batched_tokens);
        // A step that had to preempt admits nobody: the blocks are needed by those that run.
        if preempted == 0 {
            self.serve_waiting(budget, ended);
        }
        if self.batch.is_empty() && counted_down == 0 {
            return None;
        }
        self.counters.preemptions += u64::from(preempted);
        Some(self.finish_step(counted_down, preempted))
    }

    /// Gives each running sequence its tokens, oldest first. Returns the rest of the budget, how many sequences were only counted down,
    /// and the number of preemptions.
    fn serve_running(&mut self, mut budget: u32) -> (u32, usize, u32) {
        let (mut served, mut counted_down, mut preempted) = (0, 0, 0);
        let draft = self.speculation.as_ref().map_or(0, Speculation::tokens);
        while served < self.running.len() && budget > 0 {
            if self.steady[served] > 0 {
                self.steady[served] -= 1;
                counted_down += 1;
                budget -= 1;
                served += 1;
                continue;
            }
            let slot = self.running[served];
            self.settle(slot, 0);
            let sequence = &self.slots[slot as usize];
            // A draft is verified with the token before it, and never reaches beyond the answer's end.
            let drafted = if sequence.decodes() { draft.min(sequence.output - sequence.generated - 1) } else { 0 };
            let tokens = (sequence.tokens() - sequence.computed + drafted).min(budget);
            let reach = sequence.computed + tokens;
            while !self.allocate(slot, reach) {
                // The newest goes first; it may be the one that asks, and then nobody after it is left.
                let Some((victim, left)) = self.running.pop().zip(self.steady.pop()) else { break };
                self.settle(victim, left);
                self.preempt(victim);
                preempted += 1;
                if victim == slot {
                    return (budget, counted_down, preempted);
                }
            }
            self.batch.push((served, tokens));
            budget -= tokens;
            served += 1;
        }
        (budget, counted_down, preempted)
    }

    /// Books what a sequence has decoded of its span, given the rest of the span.
    fn settle(&mut self, slot: u32, left: u32) {
        let sequence = &mut self.slots[slot as usize];
        if sequence.span > 0 {
            sequence.settle(sequence.span - left);
            self.spans.0 -= 1;
            self.spans.1 -= u64::from(sequence.tokens());
        }
    }

    /// Admits waiting requests, first come first served; the first that does not fit holds back those behind it.
    /// Those that just ended may still take places.
    fn serve_waiting(&mut self, mut budget: u32, ended: usize) {
        while budget > 0 && self.running.len() + ended < self.limits.max_num_seqs as usize {
            let Some(&slot) = self.waiting.front() else { break };
            let Some(reused) = self.reuse_prefix(slot) else { break };
            self.waiting.pop_front();
            let sequence = &mut self.slots[slot as usize];
            sequence.computed = reused;
            if sequence.reused.is_none() {
                // A recomputed sequence is not counted again, as in vLLM's statistics.
                sequence.reused = Some(reused);
                self.counters.prefix_queries += u64::from(sequence.prompt);
                self.counters.prefix_hits += u64::from(reused);
            }
            let tokens = (sequence.tokens() - reused).min(budget);
            let allocated = self.allocate(slot, reused + tokens);
            debug_assert!(allocated, "the whole prompt was seen to fit");
            self.batch.push((self.running.len(), tokens));
            self.running.push(slot);
            self.steady.push(0);
            budget -= tokens;
        }
    }

    /// Takes the cached blocks of a waiting request and returns their tokens; None when its whole context would not fit.
    ///
    /// The last token is always computed, since its logits are needed. Room for the whole context is asked for although only
    /// a chunk is allocated now (vLLM's `scheduler_reserve_full_isl`).
    fn reuse_prefix(&mut self, slot: u32) -> Option<u32> {
        let sequence = &mut self.slots[slot as usize];
        let usable = ((sequence.tokens() - 1) / self.limits.block_size) as usize;
        let mut free_hits = 0;
        for hash in sequence.hashes.iter().take(usable) {
            let Some((block, free)) = self.pool.cached(*hash) else { break };
            sequence.blocks.push(block);
            free_hits += u32::from(free);
        }
        let hits = sequence.blocks.len() as u32;
        let new = sequence.tokens().div_ceil(self.limits.block_size) - hits;
        if new + free_hits > self.pool.free() {
            sequence.blocks.clear();
            return None;
        }
        sequence.blocks.iter().for_each(|block| self.pool.share(*block));
        sequence.remembered = hits as usize;
        Some(hits * self.limits.block_size)
    }

    /// Extends the blocks of a sequence to hold that many tokens, or changes nothing and says so.
    fn allocate(&mut self, slot: u32, tokens: u32) -> bool {
        let sequence = &mut self.slots[slot as usize];
        let block_size = self.limits.block_size;
        // Most steps need neither a block nor a division.
        if tokens as usize > sequence.blocks.len() * block_size as usize {
            let missing = tokens.div_ceil(block_size) as usize - sequence.blocks.len();
            if missing > self.pool.free() as usize {
                return false;
            }
            for _ in 0..missing {
                sequence.blocks.extend(self.pool.take());
            }
        }
        // Full blocks can be found from now on: within a step keys and values are written before they are read.
        if sequence.remembered < sequence.hashes.len() {
            let full = (tokens / block_size) as usize;
            while sequence.remembered < full.min(sequence.hashes.len()) {
                self.pool.remember(sequence.blocks[sequence.remembered], sequence.hashes[sequence.remembered]);
                sequence.remembered += 1;
            }
        }
        true
    }

    fn preempt(&mut self, slot: u32) {
        let sequence = &mut self.slots[slot as usize];
        self.pool.release(&mut sequence.blocks);
        sequence.computed = 0;
        sequence.remembered = 0;
        self.waiting.push_front(slot);
    }

    /// Prices the batch and moves every sequence in it forward. The other sequences were only counted down.
    fn finish_step(&mut self, counted_down: usize, preempted: u32) -> Step {
        let mut step = Step { preempted, tokens: counted_down as u64, ..Step::default() };
        let mut work =
            StepWork { decoding: step.tokens, context: self.context_of(counted_down), ..StepWork::default() };
        let mut prompts = Prompts::default();
        self.spans.1 += step.tokens;
        let mut ended = Vec::new();
        for &(place, tokens) in &self.batch {
            let slot = self.running[place];
            let sequence = &mut self.slots[slot as usize];
            let mut emitted = 1;
            if sequence.decodes() {
                // A drafted token costs what a decoding sequence costs; what is rejected leaves no key and value behind.
                work.decoding += u64::from(tokens);
                work.context += u64::from(sequence.tokens());
                emitted += self.speculation.as_mut().map_or(0, |speculation| speculation.verify(tokens - 1));
                sequence.computed += emitted;
            } else {
                work.add_prefill(sequence.computed, tokens);
                if let Some(kernels) = self.kernels {
                    kernels.add_prompt(&mut prompts, sequence.computed, tokens);
                }
                sequence.computed += tokens;
                if sequence.computed < sequence.tokens() {
                    continue;
                }
            }
            if sequence.generated == 0 {
                self.counters.prompt_tokens += u64::from(sequence.prompt);
            }
            sequence.generated += emitted;
            step.tokens += u64::from(emitted);
            step.emitted.extend(std::iter::repeat_n(sequence.id, emitted as usize));
            if sequence.generated == sequence.output {
                step.finished.push(sequence.id);
                self.pool.release(&mut sequence.blocks);
                self.finished.push(slot);
                ended.push(place);
            } else if self.sparing && self.speculation.is_none() {
                sequence.span = sequence.steady_steps(self.limits.block_size);
                self.steady[place] = sequence.span;
                if sequence.span > 0 {
                    self.spans.0 += 1;
                    self.spans.1 += u64::from(sequence.tokens());
                }
            }
        }
        for place in ended.into_iter().rev() {
            self.running.remove(place);
            self.steady.remove(place);
        }
        self.counters.generation_tokens += step.tokens;
        step.seconds = self.costs.seconds(&work) + self.kernels.map_or(0.0, |kernels| kernels.seconds(&work, prompts));
        step.scheduled = work.prefill + work.decoding;
        step
    }

    /// The context tokens of the sequences that were counted down in this step. They are all that have a span, or the first of them where
    /// the budget ended.
    fn context_of(&self, counted_down: usize) -> u64 {
        if counted_down == self.spans.0 {
            return self.spans.1;
        }
        let spans = self.running.iter().zip(&self.steady).map(|(slot, left)| (&self.slots[*slot as usize], left));
        let counted_down = spans.filter(|(sequence, _)| sequence.span > 0).take(counted_down);
        counted_down.map(|(sequence, left)| u64::from(sequence.tokens() + sequence.span - left - 1)).sum()
    }

    /// Checks that every block is either free or held by exactly the sequences that list it.
    #[cfg(test)]
    fn check(&self) {
        let held: Vec<&[u32]> = self.slots.iter().map(|s| s.blocks.as_slice()).collect();
        self.pool.check(&held);
        for slot in self.waiting.iter().chain(&self.vacant) {
            assert!(self.slots[*slot as usize].blocks.is_empty());
        }
        assert!(self.running.len() <= self.limits.max_num_seqs as usize);
        assert_eq!(self.running.len(), self.steady.len());
        let spans = self.running.iter().zip(&self.steady).map(|(slot, left)| (&self.slots[*slot as usize], *left));
        let contexts = spans.filter(|(s, _)| s.span > 0).map(|(s, left)| u64::from(s.tokens() + s.span - left));
        assert_eq!(self.spans, (contexts.clone().count(), contexts.sum()));
        assert_eq!(self.by_id.len(), self.running.len() + self.waiting.len() + self.finished.len());
    }
}

#[cfg(test)]
mod tests;
