//! What prompts are made of: token ids, or words of one token each.

use autotune_records::Resent;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::planned::{Message, Prompt};
use super::sketch::{self, MESSAGE_TEMPLATE};
use super::vocabulary::Vocabulary;
use autotune_plan::settings::Endpoint;

/// Ids below are special or single-byte tokens in the tokenizers in use; ids above may be missing in a small vocabulary.
const TOKEN_IDS: std::ops::Range<u32> = 256..8000;

/// Writes pieces of prompts in the form that the endpoint takes.
#[derive(Clone, Debug)]
pub(super) struct Pen {
    endpoint: Endpoint,
    vocabulary: Vocabulary,
    ink: Ink,
    resent: Option<Resent>,
}

/// What becomes of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ink {
    Whole,
    /// It is left empty, for whoever wants lengths alone.
    Dry,
    /// Its name and its length stand for it.
    Sketch,
}

/// A piece of a prompt, in whichever form the endpoint takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    Tokens(Vec<u32>),
    Words(Vec<String>),
}

impl Pen {
    pub(super) fn new(endpoint: Endpoint, vocabulary: &Vocabulary) -> Self {
        Self { endpoint, vocabulary: vocabulary.clone(), ink: Ink::Whole, resent: None }
    }

    /// Sets how answers come back to the engine.
    pub(super) fn resending(self, resent: Option<Resent>) -> Self {
        Self { resent, ..self }
    }

    /// What becomes of answers that are sent back. Unless it was seen, they come back whole, and the engine knows those that it made itself.
    pub(super) fn resent(&self) -> Resent {
        let found = f64::from(u8::from(self.resends_answers()));
        self.resent.unwrap_or(Resent { found, ..Resent::WHOLE })
    }

    /// Writes nothing: lengths stay, and pieces are empty.
    pub(super) fn dry(self) -> Self {
        Self { ink: Ink::Dry, ..self }
    }

    pub(super) fn is_dry(&self) -> bool {
        self.ink == Ink::Dry
    }

    /// Writes sketches of pieces: lengths stay.
    pub(super) fn sketching(self) -> Self {
        Self { ink: Ink::Sketch, ..self }
    }

    /// A piece of so many tokens: ids, or words.
    pub(super) fn draw(&self, tokens: u32, rng: &mut ChaCha8Rng) -> Piece {
        let tokens = match self.ink {
            Ink::Whole => tokens,
            Ink::Dry => 0,
            Ink::Sketch => return self.sketch(tokens, rng.random()),
        };
        match self.endpoint {
            Endpoint::Completions => Piece::Tokens((0..tokens).map(|_| rng.random_range(TOKEN_IDS)).collect()),
            Endpoint::Chat => {
                let words = self.vocabulary.words();
                let mut drawn: Vec<String> =
                    (0..tokens).map(|_| words[rng.random_range(0..words.len())].clone()).collect();
                self.lead(&mut drawn);
                Piece::Words(drawn)
            }
        }
    }

    fn sketch(&self, tokens: u32, name: u64) -> Piece {
        let own = sketch::piece(name, tokens);
        Piece::Tokens(match self.endpoint {
            Endpoint::Completions => own.to_vec(),
            Endpoint::Chat => [sketch::piece(0, MESSAGE_TEMPLATE), own].concat(),
        })
    }

    /// Whether the engine's own answers stand in what is sent later.
    pub(super) fn resends_answers(&self) -> bool {
        self.endpoint == Endpoint::Chat
    }

    /// Pieces one behind the other, as one.
    pub(super) fn join(&self, pieces: Vec<Piece>) -> Piece {
        match (self.endpoint, self.ink) {
            (Endpoint::Completions, _) | (_, Ink::Sketch) => Piece::Tokens(
                pieces
                    .into_iter()
                    .flat_map(|piece| if let Piece::Tokens(ids) = piece { ids } else { Vec::new() })
                    .collect(),
            ),
            (Endpoint::Chat, Ink::Whole | Ink::Dry) => Piece::Words(
                pieces
                    .into_iter()
                    .flat_map(|piece| if let Piece::Words(words) = piece { words } else { Vec::new() })
                    .collect(),
            ),
        }
    }

    fn lead(&self, words: &mut [String]) {
        if let (Some(first), Some(lead)) = (words.first_mut(), self.vocabulary.lead()) {
            lead.clone_into(first);
        }
    }

    /// Tokens that the endpoint adds around a user's message alone; none around ids.
    pub(super) fn alone(&self) -> u32 {
        self.chat(self.vocabulary.alone())
    }

    /// Tokens that the endpoint adds around a system message and a user's.
    pub(super) fn led(&self) -> u32 {
        self.chat(self.vocabulary.led())
    }

    /// Tokens that the endpoint adds around an answer and the user's message after it.
    pub(super) fn exchange(&self) -> u32 {
        self.chat(self.vocabulary.exchange())
    }

    fn chat(&self, tokens: u32) -> u32 {
        if self.endpoint == Endpoint::Chat { tokens } else { 0 }
    }
}

/// What is left of a length once the template's share is taken off; a message has at least one word.
pub(super) fn less(tokens: u32, template: u32) -> u32 {
    tokens.saturating_sub(template).max(1)
}

impl Piece {
    /// An empty prompt's first piece as a prompt of its own.
    pub(super) fn into_prompt(self, role: &'static str) -> Prompt {
        match self {
            Self::Tokens(ids) => Prompt::Tokens(ids),
            Self::Words(words) => Prompt::Messages(vec![Message { role, content: words.join(" ") }]),
        }
    }
}

impl Prompt {
    /// Appends a piece: ids join the others, words become a message of their own.
    pub(super) fn push(&mut self, role: &'static str, piece: Piece) {
        match (self, piece) {
            (Self::Tokens(ids), Piece::Tokens(more)) => ids.extend(more),
            (Self::Messages(messages), Piece::Words(words)) => {
                messages.push(Message { role, content: words.join(" ") });
            }
            (Self::Tokens(_) | Self::Text(_), Piece::Words(_))
            | (Self::Messages(_) | Self::Text(_), Piece::Tokens(_)) => {
                debug_assert!(false, "a source draws all its pieces for one endpoint");
            }
        }
    }
}
