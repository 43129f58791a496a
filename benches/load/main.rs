//! What the load generator costs and how true it is, against the known server in a process of its own.
//!
//!     cargo bench --bench load [-- --quick]
//!     cargo bench --bench load -- --against URL --model 'known?ttft=20&itl=20' --rate 10 --requests 100 --tokens 100
//!
//! The second form drives one such traffic and prints one line of JSON, for comparisons with other clients. Nothing is asserted of
//! times, which are the machine's; a request that fails makes the exit code 1.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark prints, starts its server, and ends at the first thing that is wrong"
)]

#[path = "../../tests/known/mod.rs"]
#[expect(dead_code, reason = "this server's notes are asked for over HTTP")]
mod known;
mod parts;
mod process;
mod stats;
#[path = "../../tests/known/traffic.rs"]
mod traffic;

use std::process::ExitCode;

use clap::Parser;

use crate::stats::failures;
use crate::traffic::{Traffic, driven};

#[derive(Parser)]
struct Arguments {
    /// Short enough for every change: about 15 s.
    #[arg(long)]
    quick: bool,
    /// Drive one traffic against this server instead, and print one line of JSON.
    #[arg(long)]
    against: Option<String>,
    #[arg(long, default_value = "known?ttft=20&itl=20")]
    model: String,
    /// Requests per second; 0 sends all at once.
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
    #[arg(long, default_value_t = 100)]
    requests: usize,
    #[arg(long, default_value_t = 100)]
    tokens: u32,
    #[arg(long, default_value_t = 64)]
    prompt_tokens: u32,
    #[arg(long)]
    chat: bool,
    /// Serve, as the child of a benchmark.
    #[arg(long, hide = true)]
    known_server: bool,
    #[arg(long, hide = true)]
    noted: bool,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.known_server {
        process::serve(arguments.noted);
        return ExitCode::SUCCESS;
    }
    process::raise_open_files();
    let failed = if let Some(url) = &arguments.against {
        against(url, &arguments)
    } else if arguments.bench || arguments.quick {
        parts::all(arguments.quick)
    } else {
        // `cargo test --all-targets` runs benchmarks without their flag: it is enough that this one starts.
        0
    };
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn against(url: &str, arguments: &Arguments) -> usize {
    let (count, tokens) = (arguments.requests, arguments.tokens);
    let mut traffic = match arguments.rate {
        0.0 => Traffic::at(vec![0.0; count], tokens),
        rate => Traffic::at_rate(rate, count, tokens),
    };
    traffic.prompt_tokens = arguments.prompt_tokens;
    if arguments.chat {
        traffic = traffic.chat();
    }
    let driven = driven(url, &arguments.model, traffic);
    let failed = failures(&driven.records);
    let tokens: u64 = driven.records.iter().filter_map(|r| r.tokens_out).map(u64::from).sum();
    let spans = |of: &dyn Fn(&autotune::load::RequestRecord) -> Option<f64>| {
        stats::median(&driven.records.iter().filter_map(of).collect::<Vec<_>>())
    };
    println!(
        "{{\"requests\":{count},\"failed\":{failed},\"tokens\":{tokens},\"wall_s\":{:.3},\"cpu_s\":{:.3},\"ttft_ms\":{:.3},\
         \"tpot_ms\":{:.3},\"peak_kib\":{}}}",
        driven.ended.0,
        process::own_cpu(),
        spans(&|r| r.ttft().map(|t| t.millis())),
        spans(&|r| r.tpot().map(|t| t.millis())),
        process::memory("VmHWM"),
    );
    failed
}
