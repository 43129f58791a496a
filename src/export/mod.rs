//! The winning arguments in the user's own manifest, and nothing else changed.
//!
//! A [`source`] knows every byte of the file and where each node of its YAML stands. [`shapes`] say where engines sit, [`locate`] finds the
//! homes of their arguments, [`flags`] decides what has to change, [`homes`] write it in the file's own style, and [`mod@write`] proves that the
//! result means what was intended and nothing else.

pub mod contradictions;
pub mod flags;
pub mod forms;
pub mod homes;
pub mod locate;
pub mod provenance;
pub mod render;
pub mod shapes;
pub mod shell_lexer;
pub mod source;
pub mod text;
pub mod winner;
pub mod write;
pub mod yaml;

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
