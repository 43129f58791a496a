//! The load generator: sends open-loop and closed-loop traffic, time-stamps every token, and records every request.
//!
//! It does not judge: the caller's [`Watch`] decides when a probe ends early.

mod alarm;
mod answer;
mod client;
mod connection;
mod drive;
pub mod endpoints;
mod health;
mod http1;
mod lateness;
#[cfg(test)]
mod pieces;
mod socket;
mod sse;
mod threads;

pub use autotune_records::{COLUMNS, ErrorClass, RecordsError, RequestRecord, as_kept, read_records, write_records};
pub use client::{Client, ClientError, Target, Unanswered};
pub use drive::{Cut, Driven, Open, Schedule, Tick, ToTheEnd, Watch, drive};
pub use health::ClientHealth;
