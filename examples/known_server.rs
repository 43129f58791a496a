//! The known server of the tests as a process, for clients of other kinds.
//!
//!     cargo run --release --example known_server -- [--port 0] [--threads 1] [--noted] [--until-stdin-ends]
//!
//! It prints its URL and ends on a signal. How a request steers it: `tests/known/script.rs`.
#![expect(clippy::print_stdout, reason = "an example prints")]

#[path = "../tests/known/mod.rs"]
#[expect(dead_code, reason = "the server's notes and counts are for tests")]
mod known;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
struct Arguments {
    /// The port on the loopback address; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Note what is served, for `GET /served`.
    #[arg(long)]
    noted: bool,
    /// End with the standard input too: whoever started it may die without a signal, and its end of the pipe closes then.
    #[arg(long)]
    until_stdin_ends: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    let server = known::Known::on(arguments.port, arguments.threads, arguments.noted)?;
    println!("{}", server.url());
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (gone, parent_gone) = tokio::sync::oneshot::channel();
    if arguments.until_stdin_ends {
        // A thread, since a runtime waits for its blocking reads; this one may be left behind.
        std::thread::spawn(move || {
            drop(std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()));
            gone.send(()).ok();
        });
    } else {
        std::mem::forget(gone);
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = parent_gone => {}
    }
    drop(server);
    Ok(())
}
