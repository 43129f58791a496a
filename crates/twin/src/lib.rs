//! The twin: a discrete-event model of a continuous-batching engine, in virtual time.
//!
//! `scheduler` knows every block of the KV cache; `fast` knows sums alone and is what a fit and long-run replays use. Only
//! `noise` and `speculation` draw, from a seed, and only `profiles` reads files; all else is pure. There is no clock.

mod blocks;
mod calendar;
mod coefficients;
mod costs;
mod fast;
mod fidelity;
mod fit;
mod flags;
mod kernels;
mod loss;
mod noise;
mod observed;
mod profile;
mod profiles;
mod replay;
mod residuals;
mod scheduler;
mod served;
mod speculation;
mod steps;
mod uncertainty;

pub use costs::{NO_COSTS, StepCosts, StepWork};
pub use fast::{Answered, Bounds, DEFAULT_BLOCK, FastReplay, Pressure, Reading, Sent};
pub use fidelity::{ReplayFidelity, replay_faithfully};
pub use fit::{Coefficient, Effort, Fit, FitError, fit, fit_anew, refit};
pub use flags::{ACCEPTANCE, EngineDefaults, EngineFlags, FlagError, bytes};
pub use kernels::{Kernels, Prompts};
pub use noise::{Launch, Noise, Unsteady};
pub use observed::{Observed, Probe};
pub use profile::{Limits, Memory, MemoryFailure, Profile, Start};
pub use profiles::ProfileError;
pub use replay::{Arrival, replay, replay_in};
pub use residuals::{Drift, Residuals};
pub use scheduler::{Counters, PromptShape, Scheduler, Step};
pub use served::Served;
pub use speculation::{Drafted, Speculation};
pub use steps::{SeenSteps, seen_steps};
