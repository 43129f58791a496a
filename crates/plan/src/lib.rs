//! What a run is asked to do: the space file, read and checked, and what is known of each engine.
//!
//! Text in, plans and answers out. Nothing here opens a socket, starts a process or asks the time; `engine::live_file` alone writes to a file that it is given.

pub mod engine;
pub mod printable;
pub mod problems;
pub mod settings;
pub mod space;
