//! How much is asked, how fast and for how long.

use autotune_records::units::{Rate, Seconds};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// Open loop: requests arrive at this rate by the plan's arrival process, whatever the answers do. Turns of conversations count.
    Open(Rate),
    /// Open loop: one pass through a trace at the file's own times, neither faster nor slower.
    Recorded,
    /// So many requests, all due at time zero and without follow-ups: what the engine can do at most.
    AllAtOnce(u32),
    /// Closed loop: each user asks again once the answer is there, also where it failed.
    Closed {
        /// How many users there are; the first request of each is due at time zero.
        users: u32,
        /// From the end of an answer to the user's next request, beside the think time of the plan's conversations.
        think: Seconds,
    },
}

/// How fast and how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    pub demand: Demand,
    /// No request becomes due after this.
    pub horizon: Seconds,
    pub arrival_seed: u64,
    /// Decides what is written in prompts, and which of a file's requests come in which order.
    pub content_seed: u64,
    /// Decides what is shared by all probes of a session: prefixes and starters.
    pub shared_seed: u64,
    /// What one answer is expected to take; conversations begin in mid-life, so that the first second is like any other.
    pub answer_time: Seconds,
    /// Tokens of an answer that is sent back over those that it had when it was made. The histories of such conversations, where they are drawn and not
    /// read from a file, hold answers of that length.
    pub growth: f64,
    /// Where requests of a file begin in an order that `shared_seed` gives, so that streams with other places send other requests. None draws an
    /// order of its own from `content_seed`.
    pub first_place: Option<u32>,
}

impl Pace {
    /// Of one seed, without conversations in mid-life, up to the horizon.
    pub fn new(demand: Demand, horizon: Seconds, seed: u64) -> Self {
        Self {
            demand,
            horizon,
            arrival_seed: seed,
            content_seed: seed,
            shared_seed: seed,
            answer_time: Seconds(0.0),
            growth: 1.0,
            first_place: None,
        }
    }
}
