//! What is asked, apart from when: the seam between the kinds of workload and the clocks that send them.

use super::planned::{Planned, Prompt, Turn};
use autotune_records::units::Seconds;

/// A request without its time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ask {
    pub(super) prompt: Prompt,
    pub(super) prompt_tokens: u32,
    pub(super) shared_tokens: u32,
    pub(super) output_tokens: u32,
    pub(super) turn: Option<Turn>,
}

impl Ask {
    pub(super) fn planned(self, id: u32, due: Seconds) -> Planned {
        let Self { prompt, prompt_tokens, shared_tokens, output_tokens, turn } = self;
        Planned { id, due, prompt, prompt_tokens, shared_tokens, output_tokens, turn }
    }
}

/// A kind of workload: requests one after another. Whatever follows from answers is told by conversation.
pub(super) trait Content: Send {
    /// A request that begins something new.
    fn open(&mut self) -> Option<Ask>;

    /// The most requests that follow from an opening one, itself included.
    fn turns(&self) -> u32 {
        1
    }

    /// The share of conversations that have this turn, counted from 0.
    fn share_with(&self, _turn: u32) -> f64 {
        1.0
    }

    fn mean_turns(&self) -> f64 {
        (0..self.turns()).map(|turn| self.share_with(turn)).sum()
    }

    /// From an answer to the next turn.
    fn think_time(&self) -> Seconds {
        Seconds(0.0)
    }

    /// A conversation that awaits the answer before that turn. [`Self::next_turn`] asks the turn. `wanted` gets the tokens of that answer. `None` if it
    /// declines, or there is no such conversation.
    fn begun(&mut self, _turn: u32, _wanted: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        None
    }

    /// The answer to a conversation's last request, or its failure; whether there is a next turn.
    fn answered(&mut self, _conversation: u32, _text: Option<&str>) -> bool {
        false
    }

    /// The next request of a conversation that goes on.
    fn next_turn(&mut self, _conversation: u32) -> Option<Ask> {
        None
    }
}
