//! What a stream of requests is made from beside the plan.

use autotune_records::Resent;

use super::corpus::Corpus;
use super::vocabulary::Vocabulary;

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
