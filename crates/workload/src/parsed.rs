//! What the parsers of a workload's file give: requests with their later turns, and why a file is no use.

use std::collections::BTreeMap;

use super::planned::Prompt;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) prompt: Prompt,
    /// How long its answer is; `None` where the plan's distribution tells.
    pub(super) answer: Option<AnswerLength>,
    /// The later turns of a dialogue.
    pub(super) later: Vec<Exchange>,
}

/// A later turn: what was answered before it, and its question.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exchange {
    pub(super) answered: String,
    pub(super) question: String,
    pub(super) answer: Option<AnswerLength>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AnswerLength {
    Tokens(u32),
    /// In characters, where only the text is known.
    Characters(u64),
}

/// What a parser made of a file.
#[derive(Debug)]
pub(super) struct Parsed<T> {
    pub(super) items: Vec<T>,
    /// How many entries could not be used, by reason.
    pub(super) left_out: BTreeMap<&'static str, usize>,
}

impl<T> Default for Parsed<T> {
    fn default() -> Self {
        Self { items: Vec::new(), left_out: BTreeMap::new() }
    }
}

impl<T> Parsed<T> {
    /// Takes an entry, or counts why it is none.
    pub(super) fn add(&mut self, item: Result<T, &'static str>) {
        match item {
            Ok(item) => self.items.push(item),
            Err(reason) => *self.left_out.entry(reason).or_default() += 1,
        }
    }
}

/// Why a parser gave up.
#[derive(Debug)]
pub(super) enum Mistake {
    /// The file could not be read to its end.
    Read(std::io::Error),
    /// A line, from 1, is not what it should be.
    Line { line: usize, what: String, hint: &'static str },
}
