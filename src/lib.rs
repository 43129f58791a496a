//! `autotune` finds the arguments of an LLM inference server: the highest request rate that keeps the promised latencies.
//!
//! `docs/development.md` has the map of these folders and of the crates below them. Data flows one way: settings -> tune -> (search asks, the rig
//! answers, verdict judges, journal remembers) -> report.

pub mod calibration;
pub mod cli;
pub mod cluster;
mod colour;
pub mod commands;
mod diagnostics;
pub mod export;
mod levels;
pub mod progress;
pub mod proposal;
pub mod report;

// Crates of `crates/`, by the names that the modules above use.
pub use autotune_clock as clock;
pub use autotune_http::{access, serving};
pub use autotune_load as load;
use autotune_load::endpoints;
#[cfg(test)]
use autotune_numerics::repeatable;
pub use autotune_numerics::{bisection, parallel};
use autotune_numerics::{overlap, spread};
use autotune_plan::printable;
pub use autotune_plan::{engine, problems, settings, space};
pub use autotune_records::{quantiles, units};
use autotune_session::{digest, private};
pub use autotune_session::{journal, rehearsal, rig, search, supervise, token, tune, verdict};
pub use autotune_sim_engine as sim_engine;
pub use autotune_twin as twin;
pub use autotune_workload as workload;
