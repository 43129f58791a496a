//! What an engine says of itself: why it failed, what it runs, how it fares.
//!
//! Pure readers of text that somebody else fetched. Nothing here opens a socket, starts a process or asks the time.

mod command_line;
mod complaints;
pub mod diagnosis;
mod dialects;
pub mod effective;
mod known_flags;
pub mod live_file;
mod log_lines;
pub mod metrics;
pub mod programs;
mod symptoms;
pub mod telemetry;

pub use command_line::{
    PART, api_key, command_line, devices, environment, flags, frontend, is_left_out, is_parallel_size, program, spelt,
    telling, variable, variables,
};
pub use dialects::vllm::{FLAGS as VLLM_FLAGS, live};
pub use dialects::{DIALECTS, Dialect, FRONTEND, Quantity, dialect, is_of_frontend};
pub use known_flags::{KnownFlags, Refusal, meant};
