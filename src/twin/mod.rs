//! The twin: a discrete-event model of a continuous-batching engine, in virtual time or behind HTTP.
//!
//! `profile`, `blocks`, `scheduler` and `replay` are pure: no clock, no I/O, no randomness. Only `noise` draws, from a seed; only
//! `profiles` reads files; only `server` has a clock.

mod blocks;
mod flags;
mod noise;
mod profile;
mod profiles;
mod replay;
mod scheduler;
pub mod server;

pub use flags::{EngineFlags, FlagError};
pub use noise::{Noise, Unsteady};
pub use profile::{EngineDefaults, Limits, Memory, MemoryFailure, Profile, Start, StepCosts};
pub use profiles::ProfileError;
pub use replay::{Arrival, Replayed, replay};
pub use scheduler::{Counters, PromptShape, Scheduler, Step};
