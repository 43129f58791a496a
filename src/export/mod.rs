//! The winning arguments in the user's own manifest, and nothing else changed.
//!
//! A [`source`] knows every byte of the file and where each node stands. [`shapes`] list the places where an engine may have its arguments. [`locate`]
//! finds the engine there by its command or image, with the variables of its script that hold flags (`kept`). [`flags`] decides what has to change, and
//! [`arguments`] write it in the file's own style. [`mod@write`] proves that the result means what was intended and nothing else.

pub mod arguments;
pub mod contradictions;
pub mod deployed;
pub mod flags;
pub mod forms;
mod hints;
mod kept;
pub mod known;
pub mod locate;
pub mod provenance;
pub mod render;
pub mod shapes;
pub mod source;
mod trtllm;
mod variables;
pub mod winner;
pub mod write;

use autotune_manifest::unit;
pub use autotune_manifest::{shell_lexer, text, yaml};

#[cfg(test)]
mod matrix;
#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
