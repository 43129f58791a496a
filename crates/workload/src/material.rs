//! What a stream of requests is made from, beside the plan: texts of files, words, and what became of resent answers.

use autotune_records::Resent;

use super::corpus::Corpus;
use super::vocabulary::Vocabulary;

/// Cheap to clone: clones share the texts.
#[derive(Clone, Debug, Default)]
pub struct Material {
    pub corpus: Corpus,
    /// The words of drawn chat prompts.
    pub vocabulary: Vocabulary,
    /// What became of answers that were sent back, for replays; `None` if nobody has seen it.
    pub resent: Option<Resent>,
}

impl Material {
    /// Whether documents that are meant to differ differ for the engine, as far as anybody has seen.
    pub fn documents_apart(&self) -> bool {
        self.resent.is_none_or(|resent| resent.apart)
    }
}
