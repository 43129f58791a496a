//! Dialogues that have another turn: generated conversations, and those of a file.

use std::collections::HashMap;

use super::content::Ask;
use super::planned::{Prompt, Turn};
use super::vocabulary::Vocabulary;

/// A dialogue at a turn that was asked or is to be. `origin` is where its later turns come from.
pub(super) struct Dialogue<O> {
    pub(super) number: u32,
    pub(super) turn: u32,
    /// The prompt of that turn, its tokens, and how many of them the engine has seen.
    pub(super) prompt: Prompt,
    pub(super) tokens: u32,
    pub(super) seen: u32,
    pub(super) output_tokens: u32,
    pub(super) origin: O,
}

/// The dialogues of one stream that go on, by their numbers.
pub(super) struct Dialogues<O> {
    open: HashMap<u32, Dialogue<O>>,
    pub(super) begun: u32,
}

impl<O> Dialogues<O> {
    pub(super) fn new() -> Self {
        Self { open: HashMap::new(), begun: 0 }
    }

    /// The number of a new dialogue.
    pub(super) fn number(&mut self) -> u32 {
        self.begun += 1;
        self.begun - 1
    }

    pub(super) fn keep(&mut self, dialogue: Dialogue<O>) -> u32 {
        let number = dialogue.number;
        self.open.insert(number, dialogue);
        number
    }

    pub(super) fn take(&mut self, number: u32) -> Option<Dialogue<O>> {
        self.open.remove(&number)
    }

    /// Asks the turn of a dialogue of so many turns, and keeps the dialogue if others follow.
    pub(super) fn ask(&mut self, dialogue: Dialogue<O>, turns: u32) -> Ask {
        let Dialogue { number, turn, tokens, seen, output_tokens, .. } = dialogue;
        let prompt = if turn + 1 < turns {
            let prompt = dialogue.prompt.clone();
            self.keep(dialogue);
            prompt
        } else {
            dialogue.prompt
        };
        let turn = Some(Turn { conversation: number, turn });
        Ask { prompt, prompt_tokens: tokens, shared_tokens: seen, output_tokens, turn }
    }
}

/// Tokens of an answer with this text, of which at most so many were asked for. Without `ignore_eos` it may be shorter.
pub(super) fn answered_tokens(text: &str, most: u32, ignore_eos: bool, vocabulary: &Vocabulary) -> u32 {
    if ignore_eos { most } else { vocabulary.estimate(text.chars().count() as u64).min(most) }
}
