//! The load generator: sends every request at its time whatever the answers do, stamps what arrives, and records it all.
//!
//! It measures and never judges: when to stop early is decided by the [`Watch`] that its caller brings.

mod alarm;
mod answer;
mod client;
mod connection;
mod drive;
mod health;
mod http1;
mod lateness;
#[cfg(test)]
mod pieces;
mod record;
mod record_reader;
mod socket;
mod sse;
mod threads;

pub use client::{Client, ClientError, Target, Unanswered};
pub use drive::{Cut, Driven, Open, Schedule, Tick, ToTheEnd, Watch, drive};
pub use health::ClientHealth;
pub use record::{COLUMNS, ErrorClass, RequestRecord, as_kept, write_records};
pub use record_reader::{RecordsError, read_records};
