//! Where arguments stand: a list of words, a line of a script or of an environment variable, keys of a mapping.

pub mod keys;
pub mod line;
pub mod list;
pub mod variable;

use std::ops::Range;

use super::flags::{Change, Seen};
use super::text::Edit;
use super::yaml::{Meaning, Path};

/// What has to be written, and what the manifest must mean afterwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written {
    pub edits: Vec<Edit>,
    /// New values by their place in the document.
    pub meanings: Vec<(Path, Meaning)>,
}

impl Written {
    pub fn and(mut self, other: Self) -> Self {
        self.edits.extend(other.edits);
        self.meanings.extend(other.meanings);
        self
    }
}

/// A place that holds the words of a command line.
pub trait Arguments {
    fn path(&self) -> &Path;
    /// The path as a person finds it.
    fn place(&self) -> String {
        self.path().to_string()
    }
    /// The words, from the first that may be an argument.
    fn seen(&self) -> Vec<Seen<'_>>;
    /// Where a word stands, in bytes of the file.
    fn span(&self, word: usize) -> Range<usize>;
    /// What makes the changes; `None` if this place's style has no way to write them.
    fn write(&self, changes: &[Change]) -> Option<Written>;
}
