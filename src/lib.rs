//! `autotune` finds the arguments of an LLM inference server: the highest request rate that keeps the promised latencies.
//!
//! The folders of `src/` are the rooms of the map in `docs/development.md`. Data flows one way: settings -> tune -> (search asks, the rig answers,
//! verdict judges, journal remembers) -> report.

pub mod access;
pub mod bisection;
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
#[cfg(test)]
mod fuzz;
pub mod journal;
mod linear;
mod live_file;
pub mod load;
mod overlap;
pub mod parallel;
mod printable;
mod private;
pub mod problems;
pub mod progress;
pub mod proposal;
pub mod quantiles;
pub mod rehearsal;
#[cfg(test)]
mod repeatable;
pub mod report;
pub mod rig;
pub mod search;
pub mod serving;
pub mod settings;
mod simplex;
pub mod space;
mod spread;
pub mod supervise;
pub mod token;
pub mod tune;
pub mod twin;
pub mod units;
pub mod verdict;
pub mod workload;
