//! Requests with their times, and the stream that yields them.

use autotune_records::units::Seconds;

#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// Token ids, for `/v1/completions`.
    Tokens(Vec<u32>),
    /// Text, for `/v1/completions`.
    Text(String),
    /// Messages, for `/v1/chat/completions`.
    Messages(Vec<Message>),
}

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
    /// How many of these an engine with an endless prefix cache already holds. They are shared prefixes, starters, earlier turns of a conversation
    /// or a trace, and whole prompts of a file that come again.
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

/// A request that is due later than this after an answer does not mind if the answer's end is seen some milliseconds late.
pub(super) const SOON: Seconds = Seconds(0.02);

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

/// Times order heaps as whole nanoseconds: exact, and finer than any clock here.
pub(super) fn nanos(at: Seconds) -> u64 {
    (at.0.max(0.0) * 1e9).round() as u64
}
