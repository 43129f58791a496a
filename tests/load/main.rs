//! The load generator's truth: what it records, held against what the known server did, by the same clock.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests end at the first thing that is wrong, and one starts busy processes"
)]

mod connections;
mod defects;
#[path = "../known/mod.rs"]
mod known;
mod paired;
mod starved;
mod times;
mod tls;
#[path = "../known/traffic.rs"]
mod traffic;
