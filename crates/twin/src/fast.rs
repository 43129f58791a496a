//! The fast replay: the scheduler's rules for requests whose uncached tokens are known, from event to event instead of block by block.
//!
//! Between an arrival, the end of a prefill and the end of an answer every step is like the one before it. So the state is a few sums
//! and one calendar of ends. What it leaves out: which blocks are shared, and which cached ones are lost. Where that matters, the
//! block scheduler is there.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use serde::Serialize;

use super::calendar::Calendar;
use super::costs::{StepCosts, StepWork};
use super::profile::Limits;

/// A request as it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sent {
    /// When it was sent, in seconds; of one that follows another, seconds after the last token of that one.
    pub at: f64,
    /// The place in the list of the request that it follows, as a turn follows the turn before it.
    pub follows: Option<u32>,
    /// Tokens of its prompt, cached ones included.
    pub prompt: u32,
    /// Those of them that the prefix cache holds; at least one is computed all the same.
    pub cached: u32,
    /// Those of the cached ones that take no room of their own, because others hold them too, as a shared document.
    pub shared: u32,
    /// The number of that document, whose tokens take room once while anybody holds it; zero where it takes none.
    pub document: u32,
    /// Tokens of its answer.
    pub output: u32,
}

/// When its answer came, in seconds; infinite when it could never run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answered {
    /// When the request was sent.
    pub at: f64,
    pub first: f64,
    pub last: f64,
}

impl Answered {
    /// Seconds per token after the first, of an answer of so many tokens; none for a single one.
    pub fn tpot(&self, tokens: u32) -> Option<f64> {
        (tokens > 1).then(|| (self.last - self.first) / f64::from(tokens - 1))
    }
}

/// The end of a step in which a token leaves the engine, and the sequences that get one there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Leaving {
    at: f64,
    streams: u64,
}

/// Of a token that never leaves the engine.
const NEVER: Leaving = Leaving { at: f64::INFINITY, streams: 0 };

/// When the first and the last token of a request left the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Left {
    first: Leaving,
    last: Leaving,
}

impl Left {
    /// When they arrive at the client.
    pub(super) fn answered(&self, sent: &Sent, costs: &StepCosts) -> Answered {
        let first = self.first.at + costs.first_delivery(self.first.streams);
        Answered { at: sent.at, first, last: (self.last.at + costs.last_delivery(self.last.streams)).max(first) }
    }
}

/// Is told when the first and the last token of each request, by its number, leave the engine.
trait Ends {
    fn first(&mut self, request: usize, leaving: Leaving);
    fn last(&mut self, request: usize, leaving: Leaving);
}

impl Ends for Vec<Left> {
    fn first(&mut self, request: usize, leaving: Leaving) {
        self[request].first = leaving;
    }

    fn last(&mut self, request: usize, leaving: Leaving) {
        self[request].last = leaving;
    }
}

struct Client<'a> {
    costs: &'a StepCosts,
    answers: &'a mut [Answered],
}

impl Ends for Client<'_> {
    fn first(&mut self, request: usize, leaving: Leaving) {
        self.answers[request].first = leaving.at + self.costs.first_delivery(leaving.streams);
    }

    fn last(&mut self, request: usize, leaving: Leaving) {
        let answer = &mut self.answers[request];
        answer.last = (leaving.at + self.costs.last_delivery(leaving.streams)).max(answer.first);
    }
}

/// The requests that are still to come, in the order of their times.
#[derive(Clone, Debug, Default)]
struct Arrivals {
    /// The next of those that follow nobody.
    next: usize,
    /// By request: when it comes, where it follows another and that was answered. Empty where nobody follows.
    due: Vec<f64>,
    /// By request: the one that follows it.
    follower: Vec<Option<u32>>,
    /// Those whose turn it is, the earliest on top.
    later: BinaryHeap<Reverse<(Due, u32)>>,
}

/// A time that is never NaN, so that times have a total order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Due(f64);

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Arrivals {
    fn begin(&mut self, requests: &[Sent]) {
        self.due.clear();
        self.follower.clear();
        self.later.clear();
        self.next = 0;
        if requests.iter().any(|r| r.follows.is_some()) {
            self.due.resize(requests.len(), f64::INFINITY);
            self.follower.resize(requests.len(), None);
            for (index, before) in requests.iter().enumerate().filter_map(|(i, r)| Some((i, r.follows?))) {
                self.follower[before as usize] = Some(index as u32);
            }
            self.skip(requests);
        }
    }

    /// Passes those that follow others.
    fn skip(&mut self, requests: &[Sent]) {
        while requests.get(self.next).is_some_and(|r| r.follows.is_some()) {
            self.next += 1;
        }
    }

    /// When the next one comes, and its place.
    fn next(&self, requests: &[Sent]) -> Option<(f64, u32)> {
        let first = requests.get(self.next).map(|r| (r.at, self.next as u32));
        let later = self.later.peek().map(|Reverse((due, index))| (due.0, *index));
        match (first, later) {
            (Some(first), Some(later)) => Some(if later.0 < first.0 { later } else { first }),
            (first, later) => first.or(later),
        }
    }

    fn take(&mut self, requests: &[Sent]) {
        let first = requests.get(self.next).map_or(f64::INFINITY, |r| r.at);
        if self.later.peek().is_some_and(|Reverse((due, _))| due.0 < first || self.next >= requests.len()) {
            self.later.pop();
        } else {
            self.next += 1;
            if !self.due.is_empty() {
                self.skip(requests);
            }
        }
    }

    /// A request was answered: the one that follows it comes.
    fn answered(&mut self, requests: &[Sent], index: u32, at: f64) {
        if let Some(follower) = self.follower.get(index as usize).copied().flatten() {
            let due = at + requests[follower as usize].at;
            self.due[follower as usize] = due;
            self.later.push(Reverse((Due(due), follower)));
        }
    }
}

/// Tokens of a KV block, where nobody tells: vLLM's default on GPUs.
pub const DEFAULT_BLOCK: u32 = 16;

/// What bounds a fast replay. They are ordered by their fields: the cap on sequences first, then the token budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Bounds {
    /// Sequences that run at the same time, at most.
    pub max_num_seqs: u32,
    /// The token budget of a step.
    pub max_num_batched_tokens: u32,
    /// Tokens that the KV cache holds; `None` if it is not known to bound anything.
    pub kv_tokens: Option<u64>,
}

impl Bounds {
    /// The limits of a scheduler with blocks of that many tokens; `None` if the size of the KV cache is not known.
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
pub struct Pressure {
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
    /// The most tokens of one step, those of prompts included.
    pub most_tokens: u64,
    /// Seconds from the first arrival to the last answer.
    pub seconds: f64,
    /// Steps, those without any change to the batch included.
    pub steps: u64,
}

impl Pressure {
    /// Whether the KV cache was the limit at some time.
    pub fn by_cache(&self) -> bool {
        self.preemptions > 0 || self.kv_full > 0
    }
}

/// The load on the engine at a moment, as its gauges would tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Sequences that run, those whose prompts are computed included.
    pub running: f64,
    /// Tokens that the KV cache holds.
    pub held: f64,
}

/// Moments of a replay at which its load is read.
#[derive(Clone, Debug, Default)]
struct Readings {
    /// Ascending, in seconds.
    moments: Vec<f64>,
    /// Those of the first moments: the others are still to come.
    taken: Vec<Reading>,
}

impl Readings {
    /// From `from` to `to`, so many ran, and the tokens held grew evenly by `grown`.
    fn take(&mut self, from: f64, to: f64, running: usize, held: u64, grown: u64) {
        while let Some(moment) = self.moments.get(self.taken.len()).filter(|moment| **moment < to) {
            let share = ((moment - from) / (to - from)).clamp(0.0, 1.0);
            self.taken.push(Reading { running: running as f64, held: held as f64 + share * grown as f64 });
        }
    }
}

/// Which documents are held, by how many requests, and their tokens: by their numbers.
#[derive(Clone, Debug, Default)]
struct Documents(HashMap<u32, (u32, u32)>);

impl Documents {
    /// Tokens that one more holder adds.
    fn adds(&self, request: &Sent) -> u64 {
        if request.document == 0 || self.0.contains_key(&request.document) {
            return 0;
        }
        u64::from(shared(request))
    }

    /// Takes note of a holder.
    fn hold(&mut self, request: &Sent) {
        if request.document > 0 {
            self.0.entry(request.document).or_insert((0, shared(request))).0 += 1;
        }
    }

    /// A holder is gone; tokens that nobody holds any more.
    fn release(&mut self, request: &Sent) -> u64 {
        let Some((holders, tokens)) = self.0.get_mut(&request.document) else { return 0 };
        *holders -= 1;
        if *holders > 0 {
            return 0;
        }
        let tokens = u64::from(*tokens);
        self.0.remove(&request.document);
        tokens
    }
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

/// Steps are alike up to the number `step`, while the KV cache holds at most `held` tokens, and until a request is seen
/// at `seen`.
#[derive(Clone, Copy, Debug)]
struct Until {
    step: u64,
    held: u64,
    seen: f64,
}

/// A fast replay with its memory, kept by whoever replays often.
#[derive(Clone, Debug, Default)]
pub struct FastReplay {
    /// The steps in which sequences get their last tokens.
    ends: Calendar,
    /// Preempted requests and the tokens that they had generated.
    again: VecDeque<(u32, u32)>,
    /// Prompts that this step completes.
    ready: Vec<Prefill>,
    /// The prompt that is split over steps; there is at most one, since it took all that was left of a budget.
    partial: Option<Prefill>,
    /// The requests that were not admitted yet.
    arrivals: Arrivals,
    /// Tokens in the KV cache.
    held: u64,
    /// Those of them that several requests may hold.
    documents: Documents,
    /// Tokens that the decoding sequences attend to.
    context: u64,
    /// Sequences that ended in the last step and still take their places.
    lingering: usize,
    pressure: Pressure,
    readings: Readings,
    /// Whether a replay ends when the KV cache is first full.
    gives_up: bool,
}

impl FastReplay {
    /// Serves the requests, sorted by their time, and tells when each was answered, in their order.
    pub fn run(
        &mut self,
        costs: &StepCosts,
        bounds: Bounds,
        requests: &[Sent],
        answers: &mut Vec<Answered>,
    ) -> Pressure {
        self.run_as(costs, bounds, requests, answers, |seconds, _| seconds)
    }

    /// Runs an engine whose steps take what `takes` says, given the seconds by the costs and the number of sequences that get a token.
    pub fn run_as(
        &mut self,
        costs: &StepCosts,
        bounds: Bounds,
        requests: &[Sent],
        answers: &mut Vec<Answered>,
        takes: impl FnMut(f64, u64) -> f64,
    ) -> Pressure {
        answers.clear();
        let never = f64::INFINITY;
        answers.extend(requests.iter().map(|r| Answered { at: r.at, first: never, last: never }));
        let pressure = self.serve(costs, bounds, requests, takes, &mut Client { costs, answers });
        for ((answer, request), due) in answers.iter_mut().zip(requests).zip(&self.arrivals.due) {
            if request.follows.is_some() {
                answer.at = *due;
            }
        }
        pressure
    }

    /// What gauges of the engine would tell at each of the moments, which are in order.
    pub fn readings(
        &mut self,
        costs: &StepCosts,
        bounds: Bounds,
        requests: &[Sent],
        moments: Vec<f64>,
    ) -> (Pressure, Vec<Reading>) {
        let expected = moments.len();
        self.readings = Readings { moments, taken: Vec::with_capacity(expected) };
        let pressure = self.run(costs, bounds, requests, &mut Vec::new());
        let mut taken = std::mem::take(&mut self.readings).taken;
        taken.resize(expected, Reading::default());
        (pressure, taken)
    }

    /// As [`Self::run`], but ends as soon as the KV cache was the limit: the answers are of no use then.
    pub(super) fn run_until_cache_full(
        &mut self,
        costs: &StepCosts,
        bounds: Bounds,
        requests: &[Sent],
        answers: &mut Vec<Answered>,
    ) -> Pressure {
        self.gives_up = true;
        let pressure = self.run(costs, bounds, requests, answers);
        self.gives_up = false;
        pressure
    }

    /// When the tokens left the engine, without the way to the client.
    pub(super) fn left(
        &mut self,
        costs: &StepCosts,
        bounds: Bounds,
        requests: &[Sent],
        left: &mut Vec<Left>,
    ) -> Pressure {
        left.clear();
        left.resize(requests.len(), Left { first: NEVER, last: NEVER });
        self.serve(costs, bounds, requests, |seconds, _| seconds, left)
    }

    fn serve(
        &mut self,
        costs: &StepCosts,
        bounds: Bounds,
        requests: &[Sent],
        mut takes: impl FnMut(f64, u64) -> f64,
        ends: &mut impl Ends,
    ) -> Pressure {
        self.ends.clear(requests.len(), requests.iter().map(|r| r.output).max().unwrap_or(0));
        self.again.clear();
        self.documents.0.clear();
        (self.partial, self.held, self.context, self.lingering) = (None, 0, 0, 0);
        self.arrivals.begin(requests);
        self.pressure = Pressure::default();
        let kv = bounds.kv_tokens.unwrap_or(u64::MAX);
        let start = requests.first().map_or(0.0, |r| r.at);
        let (mut now, mut last, mut step) = (start, 0.0, 0_u64);
        loop {
            let composed_at = costs.composed_at(now, last);
            let (work, blocked) = self.compose(bounds, kv, requests, |at| at + costs.overhead <= composed_at);
            if work.prefill == 0 && work.decoding == 0 {
                let Some((at, _)) = self.arrivals.next(requests) else { break };
                let idle_since = now;
                now = now.max(at + costs.overhead);
                self.readings.take(idle_since, now, 0, 0, 0);
                last = 0.0;
                continue;
            }
            let ended;
            let (began, first_step, held, running) = (now, step, self.held, self.running());
            self.pressure.most_decoding = self.pressure.most_decoding.max(work.decoding);
            self.pressure.most_tokens = self.pressure.most_tokens.max(work.decoding + work.prefill);
            if work.prefill > 0 {
                let emitted = work.decoding + self.ready.len() as u64;
                last = takes(costs.seconds(&work), emitted);
                now += last;
                step += 1;
                self.context += work.decoding;
                self.held += work.decoding;
                self.first_tokens(requests, Leaving { at: now, streams: emitted }, step, ends);
                ended = self.last_tokens(costs, requests, Leaving { at: now, streams: emitted }, step, ends);
            } else {
                // Nothing changes until an answer ends, the KV cache overflows or a request is seen that may be admitted.
                let end = self.ends.next(step).unwrap_or(step);
                let end = if blocked && self.lingering > 0 { step } else { end };
                let seen = if blocked { None } else { self.arrivals.next(requests) };
                let seen = seen.map_or(f64::INFINITY, |(at, _)| at + costs.overhead);
                let until = Until { step: end, held: kv, seen };
                (now, last, step) = self.decode(costs, work, now, step, until, &mut takes);
                ended = self.last_tokens(costs, requests, Leaving { at: now, streams: work.decoding }, step, ends);
            }
            self.readings.take(began, now, running, held, (step - first_step) * work.decoding);
            // An engine that is idle but for those that ended composes anew.
            let still_running = !self.ends.is_empty() || self.partial.is_some();
            self.lingering = if costs.lingers() && still_running { ended } else { 0 };
            while self.held > kv && self.preempt(requests, step) {
                self.pressure.preemptions += 1;
            }
            if self.gives_up && self.pressure.by_cache() {
                break;
            }
        }
        self.pressure.seconds = now - start;
        self.pressure.steps = step;
        self.pressure
    }

    /// Decodes step after step; returns the time, the length of the last step, and its number. Most of a replay's time is spent here, so
    /// it is a function with few variables. It counts tokens of context as they are multiplied: a sum of whole numbers has no rounding.
    #[inline(never)]
    fn decode(
        &mut self,
        costs: &StepCosts,
        work: StepWork,
        mut now: f64,
        mut step: u64,
        until: Until,
        takes: &mut impl FnMut(f64, u64) -> f64,
    ) -> (f64, f64, u64) {
        let fixed = costs.seconds(&StepWork { context: 0, ..work });
        let (per_context_token, ahead) = (costs.per_context_token, costs.ahead);
        let (decoding, mut context, begin, mut held) = (work.decoding as f64, work.context as f64, step, self.held);
        let last = loop {
            let last = takes(fixed + per_context_token * context, work.decoding);
            now += last;
            step += 1;
            context += decoding;
            held += work.decoding;
            if step >= until.step || held > until.held || until.seen <= now - ahead * last {
                break last;
            }
        };
        self.held = held;
        self.context = work.context + (step - begin) * work.decoding;
        (now, last, step)
    }

    /// Composes a step: those that decode, the prompt that was begun, then whoever waits, first come first served. Also
    /// tells whether somebody waits for a sequence to end.
    fn compose(&mut self, bounds: Bounds, kv: u64, requests: &[Sent], waits: impl Fn(f64) -> bool) -> (StepWork, bool) {
        let decoding = self.ends.len() as u64;
        let mut work = StepWork { decoding, context: self.context, ..StepWork::default() };
        let mut budget = bounds.max_num_batched_tokens.saturating_sub(decoding as u32);
        if let Some(prefill) = self.partial.take() {
            self.compute(prefill, &mut budget, &mut work);
        }
        loop {
            let (index, generated) = match self.again.front() {
                Some(preempted) => *preempted,
                None => match self.arrivals.next(requests) {
                    Some((at, index)) if waits(at) => (index, 0),
                    _ => return (work, false),
                },
            };
            let running = self.running();
            if budget == 0 || running >= bounds.max_num_seqs as usize {
                self.pressure.seqs_full += u64::from(running >= bounds.max_num_seqs as usize);
                return (work, true);
            }
            let request = &requests[index as usize];
            let document = if request.document > 0 { u64::from(shared(request)) } else { 0 };
            let fits = room(request, request.output) + document <= kv;
            let possible = fits && request.prompt > 0 && request.output > 0;
            let needed = room(request, generated) + self.documents.adds(request);
            if possible && self.held + needed > kv {
                self.pressure.kv_full += 1;
                return (work, true);
            }
            if self.again.pop_front().is_none() {
                self.arrivals.take(requests);
            }
            if possible {
                self.pressure.most_running = self.pressure.most_running.max(running as u64 + 1);
                self.held += needed;
                self.documents.hold(request);
                let computed = request.cached.min(request.prompt - 1);
                let prefill = Prefill { index, computed, target: request.prompt + generated, generated };
                self.compute(prefill, &mut budget, &mut work);
            }
        }
    }

    /// Sequences that hold a place, those that ended in the last step included where they still do.
    fn running(&self) -> usize {
        self.ends.len() + self.ready.len() + usize::from(self.partial.is_some()) + self.lingering
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

    fn first_tokens(&mut self, requests: &[Sent], leaving: Leaving, step: u64, ends: &mut impl Ends) {
        while let Some(prefill) = self.ready.pop() {
            let index = prefill.index as usize;
            if prefill.generated == 0 {
                ends.first(index, leaving);
            }
            self.context += u64::from(prefill.target) + 1;
            let more = requests[index].output.saturating_sub(prefill.generated + 1);
            self.ends.note(step + u64::from(more), prefill.index);
        }
    }

    fn last_tokens(
        &mut self,
        costs: &StepCosts,
        requests: &[Sent],
        leaving: Leaving,
        step: u64,
        ends: &mut impl Ends,
    ) -> usize {
        let before = self.ends.len();
        while let Some(index) = self.ends.take(step) {
            let request = &requests[index as usize];
            ends.last(index as usize, leaving);
            self.arrivals.answered(requests, index, leaving.at + costs.last_delivery(leaving.streams));
            self.context -= u64::from(request.prompt) + u64::from(request.output);
            self.held -= room(request, request.output.max(1) - 1) + self.documents.release(request);
        }
        before - self.ends.len()
    }

    /// Takes the blocks of the newest sequence; false when none is left.
    fn preempt(&mut self, requests: &[Sent], step: u64) -> bool {
        let (index, generated) = if let Some(prefill) = self.partial.take() {
            let request = &requests[prefill.index as usize];
            self.held -= room(request, prefill.generated) + self.documents.release(request);
            (prefill.index, prefill.generated)
        } else {
            let Some((end, newest)) = self.ends.take_newest(step) else { return false };
            let request = &requests[newest as usize];
            let generated = request.output - (end - step) as u32;
            self.context -= u64::from(request.prompt) + u64::from(generated);
            self.held -= room(request, generated - 1) + self.documents.release(request);
            (newest, generated)
        };
        self.again.push_front((index, generated));
        true
    }
}

/// Tokens of a request's prompt that others may hold too.
fn shared(request: &Sent) -> u32 {
    request.shared.min(request.prompt.saturating_sub(1))
}

/// Tokens that a request takes in the KV cache for itself once that much of its answer is there.
fn room(request: &Sent, generated: u32) -> u64 {
    let own = request.prompt - shared(request);
    u64::from(own) + u64::from(generated) + HALF_A_BLOCK
}

#[cfg(test)]
mod tests {
    use super::super::{Arrival, PromptShape, replay};
    use super::*;
    use autotune_numerics::repeatable::uniform;

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
        per_256: 2e-3,
        fall: 0.4,
        overlap: 0.3,
        ahead: 0.8,
        delivery: 2e-3,
        per_delivery: 1e-4,
    };

    fn requests(n: usize, rate: f64) -> Vec<Sent> {
        let mut uniform = uniform(11);
        let mut at = 0.0;
        let mut one = move || {
            at -= uniform().ln() / rate;
            let (prompt, output) = (50 + (uniform() * 3000.0) as u32, 1 + (uniform() * 400.0) as u32);
            Sent { at, prompt, output, ..Sent::default() }
        };
        (0..n).map(|_| one()).collect()
    }

    fn both(limits: Limits, requests: &[Sent]) -> (Vec<Answered>, Vec<Answered>, Pressure) {
        let mut fast = Vec::new();
        let pressure = FastReplay::default().run(&COSTS, limits.into(), requests, &mut fast);
        let arrivals = requests.iter().map(|r| Arrival {
            due_s: r.at,
            prompt: PromptShape { tokens: r.prompt, blocks: Vec::new() },
            output_tokens: r.output,
        });
        (fast, replay(COSTS, limits, arrivals), pressure)
    }

    #[test]
    fn it_agrees_with_the_block_scheduler_to_the_last_step() {
        for (max_num_seqs, max_num_batched_tokens, rate) in [(256, 8192, 12.0), (16, 512, 6.0), (64, 2048, 30.0)] {
            let limits = Limits { max_num_seqs, max_num_batched_tokens, num_blocks: 60_000, block_size: 16 };
            let (fast, slow, pressure) = both(limits, &requests(3000, rate));
            let differ =
                fast.iter().zip(&slow).filter(|(a, b)| (a.first - b.first).abs() + (a.last - b.last).abs() > 1e-6);
            assert_eq!(differ.count(), 0, "{max_num_seqs} {max_num_batched_tokens}");
            assert_eq!((pressure.preemptions, pressure.kv_full), (0, 0));
        }
    }

    #[test]
    fn a_small_cache_preempts_about_as_often_and_loses_nobody() {
        let limits = Limits { max_num_seqs: 256, max_num_batched_tokens: 2048, num_blocks: 1500, block_size: 16 };
        let (fast, slow, pressure) = both(limits, &requests(1000, 14.0));
        assert!(pressure.preemptions > 20 && pressure.kv_full > 20, "{pressure:?}");
        assert!(fast.iter().all(|a| a.first <= a.last && a.last.is_finite()));
        let mean = |answers: &[Answered]| answers.iter().map(|a| a.last).sum::<f64>() / answers.len() as f64;
        assert!((mean(&fast) / mean(&slow)).ln().abs() < 0.03, "{} {}", mean(&fast), mean(&slow));
    }

    #[test]
    fn cached_tokens_cost_context_and_no_prefill() {
        let limits = Bounds { max_num_seqs: 8, max_num_batched_tokens: 8192, kv_tokens: None };
        let run = |cached| {
            let mut answers = Vec::new();
            let one = [Sent { at: 1.0, prompt: 1000, cached, output: 3, ..Sent::default() }];
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
        let sent = [400, 200].map(|prompt| Sent { prompt, output: 4, ..Sent::default() });
        let mut answers = Vec::new();
        FastReplay::default().run(&COSTS, bounds, &sent, &mut answers);
        assert!(answers[0].last.is_infinite() && answers[1].last.is_finite());
    }

    #[test]
    fn gauges_tell_who_runs_at_a_moment_and_what_they_hold() {
        let bounds = Bounds { max_num_seqs: 8, max_num_batched_tokens: 8192, kv_tokens: None };
        let one = |at| Sent { at, prompt: 1000, output: 101, ..Sent::default() };
        let sent = [one(1.0), one(1.0), one(60.0)];
        let mut answers = Vec::new();
        let mut replay = FastReplay::default();
        let pressure = replay.run(&COSTS, bounds, &sent, &mut answers);
        let (first, last) = (answers[0].first, answers[0].last);
        let (same, told) = replay.readings(&COSTS, bounds, &sent, vec![0.5, (first + last) / 2.0, 30.0, 1e3]);
        assert_eq!((same, told.len()), (pressure, 4));
        assert_eq!((told[0], told[2], told[3]), (Reading::default(), Reading::default(), Reading::default()));
        assert!((told[1].running - 2.0).abs() < 1e-12, "{told:?}");
        let held = 2.0 * (1000.0 + 50.0 + HALF_A_BLOCK as f64);
        assert!((told[1].held - held).abs() < 6.0, "{told:?} for {held}");
    }

    #[test]
    fn a_shared_document_takes_its_room_once() {
        let one = Sent { at: 1.0, prompt: 400, cached: 320, shared: 320, document: 1, output: 40, ..Sent::default() };
        let cache_full = |kv: u64, requests: &[Sent]| {
            let bounds = Bounds { max_num_seqs: 8, max_num_batched_tokens: 512, kv_tokens: Some(kv) };
            FastReplay::default().run(&COSTS, bounds, requests, &mut Vec::new()).by_cache()
        };
        // 320 for the document, 80 + 40 + half a block for each of three.
        let same = [one; 3];
        assert!(!cache_full(320 + 3 * 128, &same) && cache_full(320 + 3 * 128 - 16, &same));
        let others = [one, Sent { document: 2, ..one }, one];
        assert!(cache_full(320 + 3 * 128, &others), "another document takes room of its own");
    }

    #[test]
    fn a_turn_follows_the_answer_before_it_and_what_others_hold_takes_no_room() {
        let bounds = Bounds { max_num_seqs: 8, max_num_batched_tokens: 512, kv_tokens: Some(700) };
        let opens = Sent { at: 1.0, prompt: 300, output: 20, ..Sent::default() };
        let turn = Sent { at: 2.0, follows: Some(0), prompt: 600, cached: 320, shared: 320, document: 0, output: 5 };
        let mut answers = Vec::new();
        let pressure = FastReplay::default().run(&COSTS, bounds, &[opens, turn], &mut answers);
        assert!(
            (answers[1].at - answers[0].last - 2.0).abs() < 1e-9 && answers[1].first > answers[1].at,
            "{answers:?}"
        );
        assert!(!pressure.by_cache(), "{pressure:?}");
        let crowd = [opens, Sent { at: 1.0, shared: 0, follows: None, ..turn }];
        assert!(FastReplay::default().run(&COSTS, bounds, &crowd, &mut answers).by_cache());
    }
}
