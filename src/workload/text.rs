//! What prompts are made of: token ids, or common English words of about one token each.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Message, Prompt};
use crate::settings::Endpoint;

/// Ids below are special or single-byte tokens in the tokenizers in use; ids above may be missing in a small vocabulary.
const TOKEN_IDS: std::ops::Range<u32> = 256..8000;

/// Short words that byte-pair tokenizers keep whole with their leading space.
const WORDS: &str = "the of and to in is that for it as was with be by on not he his but at are this have from or had an they \
which one you were all her she there would their we him been has when who will no more if out so up said what its about than \
into them can only other time new some could these two may first then do any like my now over such our man me even most made \
after also did many off before must well back through years where much your way down should because long each just state those \
people too little good world still see own work men day get here between both life being under three never know same last \
another while us might great old year come since against go came right used take himself few house use place during high \
without again home around small however found school part once general upon every left number course war until always away \
something fact water less public put think almost hand enough far took head yet better set told nothing night end why find \
going look asked later point knew next city give group toward young days let room side social given present several order \
second possible rather face per among form important often things early white case large big need four within felt best";

/// A piece of a prompt, in whichever form the endpoint takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    /// Token ids.
    Tokens(Vec<u32>),
    /// Words joined by spaces.
    Text(String),
}

impl Piece {
    /// A piece of about `tokens` tokens (exactly so many ids, or so many words).
    pub(super) fn draw(endpoint: Endpoint, tokens: u32, rng: &mut ChaCha8Rng) -> Self {
        match endpoint {
            Endpoint::Completions => Self::Tokens((0..tokens).map(|_| rng.random_range(TOKEN_IDS)).collect()),
            Endpoint::Chat => {
                let words: Vec<&str> = WORDS.split(' ').collect();
                let drawn: Vec<&str> = (0..tokens).map(|_| words[rng.random_range(0..words.len())]).collect();
                Self::Text(drawn.join(" "))
            }
        }
    }

    /// An empty prompt's first piece as a prompt of its own.
    pub(super) fn into_prompt(self, role: &'static str) -> Prompt {
        match self {
            Self::Tokens(ids) => Prompt::Tokens(ids),
            Self::Text(content) => Prompt::Messages(vec![Message { role, content }]),
        }
    }
}

impl Prompt {
    /// Appends a piece: ids join the others, text becomes a message of its own.
    pub(super) fn push(&mut self, role: &'static str, piece: Piece) {
        match (self, piece) {
            (Self::Tokens(ids), Piece::Tokens(more)) => ids.extend(more),
            (Self::Messages(messages), Piece::Text(content)) => messages.push(Message { role, content }),
            (Self::Tokens(_), Piece::Text(_)) | (Self::Messages(_), Piece::Tokens(_)) => {
                debug_assert!(false, "a source draws all its pieces for one endpoint");
            }
        }
    }
}
