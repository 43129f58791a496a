//! Byte positions in manifests: of each node of a YAML file, each value of a unit file and each word of a shell script. Edits leave all
//! other bytes alone. Nothing here knows what an engine is.

pub mod shell_lexer;
pub mod text;
pub mod unit;
pub mod yaml;
