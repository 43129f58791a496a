//! Seeded streams of requests: what is asked, how long the answer is, in which conversation, and when.
//!
//! Pure: a source is driven by offsets of time that its caller measures or simulates. Two sources of the same plan, pace and
//! seeds give the same requests; arrivals scale with the rate, so that probes at different rates share their luck.

mod arrivals;
mod burst;
mod conversations;
mod draw;
mod random;
mod text;

use crate::settings::{WorkloadKind, WorkloadPlan};
use crate::units::{Rate, Seconds};

pub use draw::mix;

/// What a request asks.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// Token ids, for `/v1/completions`.
    Tokens(Vec<u32>),
    /// Messages, for `/v1/chat/completions`.
    Messages(Vec<Message>),
}

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// Its text.
    pub content: String,
}

/// A request with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Counts from 0 in the order of creation.
    pub id: u32,
    /// When it is to be sent, from the start of the traffic.
    pub due: Seconds,
    /// What it asks.
    pub prompt: Prompt,
    /// The number of tokens the answer shall have (its most, where the end-of-sequence token is not ignored).
    pub output_tokens: u32,
    /// Which conversation it belongs to, and its turn there, both from 0.
    pub turn: Option<Turn>,
}

/// A place in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The conversation.
    pub conversation: u32,
    /// Its turn.
    pub turn: u32,
}

/// How fast and how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Requests per second, turns of conversations included.
    pub rate: Rate,
    /// No request becomes due after this.
    pub horizon: Seconds,
    /// Decides arrivals and lengths.
    pub arrival_seed: u64,
    /// Decides what is written in prompts.
    pub content_seed: u64,
    /// Decides what is shared by all probes of a session: prefixes and starters.
    pub shared_seed: u64,
    /// What one answer is expected to take; conversations begin in mid-life, so that the first second is like any other.
    pub answer_time: Seconds,
}

/// A stream of requests in the order of their times.
pub trait Source: Send {
    /// When the next request is due, if one is known.
    fn next_due(&self) -> Option<Seconds>;

    /// The next request.
    fn take(&mut self) -> Option<Planned>;

    /// An answer ended at `at` with this text, or failed (`None`). Later turns follow from it.
    fn answered(&mut self, request: u32, at: Seconds, text: Option<&str>);
}

/// The traffic of a plan at a pace.
pub fn source(plan: &WorkloadPlan, pace: Pace) -> Box<dyn Source> {
    match &plan.kind {
        WorkloadKind::Random(kind) => Box::new(random::Random::new(kind.clone(), plan.endpoint, pace)),
        WorkloadKind::Conversations(kind) => {
            Box::new(conversations::Conversations::new(kind.clone(), plan.endpoint, pace))
        }
    }
}

/// The first `count` requests of that traffic, all due at once.
pub fn burst(plan: &WorkloadPlan, pace: Pace, count: usize) -> Box<dyn Source> {
    Box::new(burst::Burst::new(source(plan, pace), count))
}

/// What all requests share, one prompt for each shared prefix or starter: sent once before a probe, so that the sharing that
/// the workload means is warm and no probe pays for it.
pub fn shared_prompts(plan: &WorkloadPlan, shared_seed: u64) -> Vec<Prompt> {
    match &plan.kind {
        WorkloadKind::Random(kind) => random::shared(kind, plan.endpoint, shared_seed),
        WorkloadKind::Conversations(kind) => conversations::shared(kind, plan.endpoint, shared_seed),
    }
}

/// The mean number of tokens of an answer, for forecasts.
pub fn mean_output_tokens(plan: &WorkloadPlan) -> f64 {
    let lengths = match &plan.kind {
        WorkloadKind::Random(kind) => kind.output_tokens,
        WorkloadKind::Conversations(kind) => kind.output_tokens,
    };
    draw::mean_length(&lengths)
}
