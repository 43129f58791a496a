//! What an engine says of itself: why it failed, what it runs, how it fares.
//!
//! Pure readers of text that somebody else fetched. Nothing here opens a socket, starts a process or asks the time.

mod complaints;
pub mod diagnosis;
pub mod effective;
mod log_lines;
pub mod metrics;
mod symptoms;
pub mod telemetry;
