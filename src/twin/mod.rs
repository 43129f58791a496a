//! The twin: a discrete-event model of a continuous-batching engine, in virtual time or behind HTTP.
//!
//! `profile`, `blocks`, `scheduler` and `replay` are pure: no clock, no I/O, no randomness. Only `server` has a clock.

mod blocks;
mod coefficients;
mod costs;
mod fast;
pub mod fit;
mod observed;
mod profile;
mod replay;
mod scheduler;
pub mod server;
mod simplex;

pub use fast::{Answered, Bounds, FastReplay, Sent, Strain};
pub use costs::{StepCosts, StepWork};
pub use observed::{Observed, Probe};
pub use profile::{EngineDefaults, Limits, Memory, MemoryFailure, Profile};
pub use replay::{Arrival, Replayed, replay};
pub use scheduler::{Counters, PromptShape, Scheduler, Step};
