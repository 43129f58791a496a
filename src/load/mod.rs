//! The load generator: sends every request at its time whatever the answers do, stamps what arrives, and records it all.
//!
//! It measures and never judges: when to stop early is decided by the [`Watch`] that its caller brings.

mod client;
mod drive;
mod record;
mod sse;

pub use client::{Client, Target};
pub use drive::{Cut, Driven, Open, Schedule, Tick, ToTheEnd, Watch, drive};
pub use record::{COLUMNS, ErrorClass, RequestRecord, write_records};
