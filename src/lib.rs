//! `autotune` finds the arguments of an LLM inference server: the highest request rate that keeps the promised latencies.
//!
//! The folders of `src/` are the rooms of the map in `docs/development.md`. Data flows one way: settings -> tune -> (search asks, the rig answers,
//! verdict judges, journal remembers) -> report.

pub mod access;
mod body;
pub mod calibration;
pub mod cli;
pub mod clock;
pub mod cluster;
mod colour;
pub mod commands;
mod diagnostics;
mod digest;
pub mod engine;
pub mod export;
pub mod journal;
mod live_file;
pub mod load;
mod printable;
mod private;
pub mod problems;
pub mod progress;
pub mod proposal;
pub mod rehearsal;
pub mod report;
pub mod rig;
pub mod search;
pub mod serving;
pub mod settings;
pub mod sim_engine;
pub mod space;
pub mod supervise;
pub mod token;
pub mod tune;
pub mod verdict;
pub mod workload;

// Crates of `crates/`, by the names that the modules above use.
#[cfg(test)]
use autotune_numerics::repeatable;
pub use autotune_numerics::{bisection, parallel};
use autotune_numerics::{linear, overlap, simplex, spread};
pub use autotune_records::{quantiles, units};
pub use autotune_twin as twin;
