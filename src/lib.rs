//! `autotune` finds the arguments of an LLM inference server: the highest request rate that keeps the promised latencies.
//!
//! The folders of `src/` are the rooms of the map in `docs/development.md`. Data flows one way: settings -> tune -> (search asks, the rig answers,
//! verdict judges, journal remembers) -> report.

pub mod calibration;
pub mod cli;
pub mod cluster;
mod colour;
pub mod commands;
mod diagnostics;
mod digest;
pub mod export;
pub mod journal;
mod private;
pub mod progress;
pub mod proposal;
#[cfg(test)]
mod quickstart;
pub mod rehearsal;
pub mod report;
pub mod rig;
pub mod search;
pub mod supervise;
pub mod token;
pub mod tune;
pub mod verdict;

// Crates of `crates/`, by the names that the modules above use.
pub use autotune_clock as clock;
use autotune_http::body;
pub use autotune_http::{access, serving};
pub use autotune_load as load;
use autotune_load::endpoints;
#[cfg(test)]
use autotune_numerics::repeatable;
pub use autotune_numerics::{bisection, parallel};
use autotune_numerics::{linear, overlap, simplex, spread};
use autotune_plan::printable;
pub use autotune_plan::{engine, problems, settings, space};
pub use autotune_records::{quantiles, units};
pub use autotune_sim_engine as sim_engine;
pub use autotune_twin as twin;
pub use autotune_workload as workload;
