//! What an engine says of itself: why it failed, what it runs, how it fares.
//!
//! Pure readers of text that somebody else fetched. Nothing here opens a socket, starts a process or asks the time.

mod command_line;
mod complaints;
pub mod diagnosis;
pub mod effective;
mod known_flags;
pub mod live;
mod log_lines;
pub mod metrics;
mod probe_http;
mod symptoms;
pub mod telemetry;
mod tokenize;

pub use command_line::{
    CACHED_TOKENS_FLAG, DEMANDING, MEMORY_KNOB, VLLM_FLAGS, api_key, command_line, environment, flags,
    may_tell_cached_tokens, program,
};
pub use known_flags::{KnownFlags, Refusal, meant};
pub use probe_http::Endpoints;
