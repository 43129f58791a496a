//! Seeded streams of requests: what is asked, how long the answer is, in which conversation, and when.
//!
//! What is asked (one file for each kind of workload) and what makes it due (arrivals, users, all at once) are apart and combine
//! freely. Pure but for [`Corpus::read`]: a source is driven by offsets of time that its caller measures or simulates. Two sources
//! of the same plan, material, pace and seeds give the same requests; arrivals scale with the rate, so that probes at different
//! rates share their luck.

mod arrivals;
mod at_once;
mod capped;
mod closed;
mod content;
mod conversations;
mod corpus;
mod draw;
mod jsonl;
mod open;
mod outline;
mod pace;
mod random;
mod requests;
mod sharegpt;
mod sketch;
mod text;
mod trace;
mod vocabulary;

use crate::settings::{WorkloadKind, WorkloadPlan};
use crate::units::{Rate, Seconds};

pub use autotune_numerics::seeds::mix;
pub use autotune_records::Resent;
pub use capped::capped;
pub use corpus::{Corpus, CorpusError};
pub use outline::{Outline, outline};
pub use pace::{Demand, Pace};
pub use sketch::{MESSAGE_TEMPLATE, sketched, sketched_blocks, sketched_shared_prompts};
pub use vocabulary::Vocabulary;

use content::Content;
use corpus::Items;
use text::Pen;

#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// Token ids, for `/v1/completions`.
    Tokens(Vec<u32>),
    /// Text, for `/v1/completions`.
    Text(String),
    /// Messages, for `/v1/chat/completions`.
    Messages(Vec<Message>),
}

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`, or another role that a file gave.
    pub role: &'static str,
    pub content: String,
}

/// A request with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Counts from 0 in the order of creation.
    pub id: u32,
    /// When it is to be sent, from the start of the traffic.
    pub due: Seconds,
    pub prompt: Prompt,
    /// Tokens that the prompt is meant to have, or their best estimate.
    pub prompt_tokens: u32,
    /// How many of these an engine with an endless prefix cache already holds because the workload means it: shared prefixes,
    /// starters, what a conversation or a trace has sent before, and whole prompts of a file that come again.
    pub shared_tokens: u32,
    /// The number of tokens the answer shall have (its most, where the end-of-sequence token is not ignored).
    pub output_tokens: u32,
    /// Which conversation it belongs to, and its turn there, both from 0.
    pub turn: Option<Turn>,
}

/// A place in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    pub conversation: u32,
    pub turn: u32,
}

/// What sources are made from beside the plan. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Material {
    pub corpus: Corpus,
    /// The words of drawn chat prompts.
    pub vocabulary: Vocabulary,
    /// What became of answers that were sent back, for replays; none where nobody has seen it.
    pub resent: Option<Resent>,
}

impl Material {
    /// Whether documents that are meant to differ differ for the engine, as far as anybody has seen.
    pub fn documents_apart(&self) -> bool {
        self.resent.is_none_or(|resent| resent.apart)
    }
}

/// A request that is due later than this after an answer does not mind if the answer's end is seen some milliseconds late.
const SOON: Seconds = Seconds(0.02);

/// A stream of requests in the order of their times.
pub trait Source: Send {
    /// When the next request is due, if one is known.
    fn next_due(&self) -> Option<Seconds>;

    fn take(&mut self) -> Option<Planned>;

    /// An answer ended at `at` with this text, or failed (`None`). Later requests follow from it.
    fn answered(&mut self, request: u32, at: Seconds, text: Option<&str>);

    /// Whether later requests are due so soon after answers that an answer's end must be seen at once.
    fn follows_answers(&self) -> bool {
        false
    }
}

/// The traffic of a plan at a pace. There is none where the material is not the plan's, and none at recorded times without a
/// trace.
pub fn source(plan: &WorkloadPlan, material: &Material, pace: Pace) -> Box<dyn Source> {
    drawn(plan, material, pace, Pen::new(plan.endpoint, &material.vocabulary))
}

fn drawn(plan: &WorkloadPlan, material: &Material, pace: Pace, pen: Pen) -> Box<dyn Source> {
    let Some(content) = content(plan, material, &pace, pen) else { return Box::new(Silence) };
    match pace.demand {
        Demand::AllAtOnce(count) => Box::new(at_once::AtOnce::new(content, count, pace.arrival_seed)),
        Demand::Closed { users, think } => Box::new(closed::ClosedLoop::new(content, users, think, pace.horizon)),
        Demand::Recorded => match &material.corpus.items {
            Items::Steps(steps) => {
                let times = Box::new(trace::recorded_times(steps.clone()));
                Box::new(open::OpenLoop::new(content, times, pace.horizon))
            }
            Items::None | Items::Requests(_) => Box::new(Silence),
        },
        Demand::Open(rate) => {
            let session_rate = Rate(rate.0 / content.mean_turns());
            let times: Vec<Seconds> = match &material.corpus.items {
                Items::Steps(steps) => steps.iter().map(|step| step.at).collect(),
                Items::None | Items::Requests(_) => Vec::new(),
            };
            let arrivals = arrivals::Arrivals::new(plan.arrivals, &times, session_rate, pace.arrival_seed);
            let open = open::OpenLoop::new(content, Box::new(arrivals), pace.horizon);
            Box::new(open.populated(session_rate, &pace))
        }
    }
}

/// What a plan asks; `None` where the material holds no such file.
fn content(plan: &WorkloadPlan, material: &Material, pace: &Pace, pen: Pen) -> Option<Box<dyn Content>> {
    let vocabulary = &material.vocabulary;
    let requests = |requests: &std::sync::Arc<[corpus::Request]>, output_tokens: &Option<_>| {
        requests::Requests::new(requests.clone(), output_tokens.clone(), plan, vocabulary, pace)
    };
    Some(match (&plan.kind, &material.corpus.items) {
        (WorkloadKind::Random(kind), _) => Box::new(random::Random::new(kind.clone(), pen, pace)),
        (WorkloadKind::Conversations(kind), _) => {
            Box::new(conversations::Conversations::new(kind.clone(), plan, vocabulary, pen, pace))
        }
        (WorkloadKind::Sharegpt(kind), Items::Requests(read)) => {
            Box::new(requests(read, &kind.output_tokens).thinking(kind.think_time.into()))
        }
        (WorkloadKind::Jsonl(kind), Items::Requests(read)) => Box::new(requests(read, &kind.output_tokens)),
        (WorkloadKind::Trace(kind), Items::Steps(steps)) => {
            let first = match pace.demand {
                Demand::Open(_) => trace::first_step(steps.len(), pace.arrival_seed),
                Demand::Recorded | Demand::AllAtOnce(_) | Demand::Closed { .. } => 0,
            };
            Box::new(trace::Trace::new(steps.clone(), kind.block_tokens, pen, pace.content_seed, first))
        }
        (WorkloadKind::Sharegpt(_) | WorkloadKind::Jsonl(_), Items::None | Items::Steps(_))
        | (WorkloadKind::Trace(_), Items::None | Items::Requests(_)) => return None,
    })
}

struct Silence;

impl Source for Silence {
    fn next_due(&self) -> Option<Seconds> {
        None
    }

    fn take(&mut self) -> Option<Planned> {
        None
    }

    fn answered(&mut self, _request: u32, _at: Seconds, _text: Option<&str>) {}
}

/// What all requests share, one prompt for each shared prefix or starter: sent once before a probe, so that the sharing that
/// the workload means is warm and no probe pays for it. Requests of files share only what they send themselves.
pub fn shared_prompts(plan: &WorkloadPlan, material: &Material, shared_seed: u64) -> Vec<Prompt> {
    let pen = Pen::new(plan.endpoint, &material.vocabulary);
    match &plan.kind {
        WorkloadKind::Random(kind) => random::shared(kind, &pen, shared_seed),
        WorkloadKind::Conversations(kind) => conversations::shared(kind, &pen, shared_seed),
        WorkloadKind::Sharegpt(_) | WorkloadKind::Jsonl(_) | WorkloadKind::Trace(_) => Vec::new(),
    }
}

/// The mean number of tokens of an answer, for forecasts.
pub fn mean_output_tokens(plan: &WorkloadPlan, material: &Material) -> f64 {
    let drawn = match &plan.kind {
        WorkloadKind::Random(kind) => Some(&kind.output_tokens),
        WorkloadKind::Conversations(kind) => Some(&kind.output_tokens),
        WorkloadKind::Sharegpt(kind) => kind.output_tokens.as_ref(),
        WorkloadKind::Jsonl(kind) => kind.output_tokens.as_ref(),
        WorkloadKind::Trace(_) => None,
    };
    match (&material.corpus.items, drawn) {
        (Items::Requests(read), drawn) => requests::mean_output(read, drawn, &material.vocabulary),
        (Items::Steps(steps), _) => trace::mean_output(steps),
        (Items::None, drawn) => drawn.map_or(1.0, draw::mean_length),
    }
}

/// Times order heaps as whole nanoseconds: exact, and finer than any clock here.
fn nanos(at: Seconds) -> u64 {
    (at.0.max(0.0) * 1e9).round() as u64
}

#[cfg(test)]
mod tests;
