//! The twin: a discrete-event model of a continuous-batching engine, in virtual time or behind HTTP.
//!
//! `profile`, `blocks`, `scheduler` and `replay` are pure: no clock, no I/O, no randomness. Only `server` has a clock.

mod blocks;
mod profile;
mod replay;
mod scheduler;
pub mod server;

pub use profile::{EngineDefaults, Limits, Memory, MemoryFailure, Profile, StepCosts};
pub use replay::{Arrival, Replayed, replay};
pub use scheduler::{Counters, PromptShape, Scheduler, Step};
