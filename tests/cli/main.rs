//! The program as its user runs it, on the simulated engine: real processes, real HTTP, temporary folders.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests end at the first thing that is wrong, and start the program"
)]

mod bench;
mod calibrate;
mod command_lines;
mod compare;
mod diagnostics;
mod export;
mod failures;
mod flags;
mod graph;
mod init;
mod kills;
mod lab;
mod lend;
mod listen;
mod live;
mod rehearse;
mod report;
mod secrets;
mod session;
mod sim_engine;
mod streams;
mod words;
mod workbench;
