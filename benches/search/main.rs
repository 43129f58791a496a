//! What the answers of whole sessions are worth, on simulated engines whose true limits are known, by strategy.
//!
//!     cargo bench --bench search [-- --quick] [--seeds N] [--arms a,b] [--surfaces x,y] [--out DIR]
//!     cargo bench --bench search -- --truths [--surfaces x,y]
//!
//! The second computes the true limits that are missing in `truths.json`. A quick run ends with code 1 where a loose bar is missed.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a benchmark prints, reads the clock, and ends at the first thing that is wrong"
)]

mod arms;
mod surfaces;
mod truths;

use std::process::ExitCode;

use clap::Parser;

use crate::surfaces::{Surface, surfaces};
use crate::truths::{Truths, known_arm};

#[derive(Parser)]
struct Arguments {
    /// Compute the true limits that are missing, and print what the surfaces are like.
    #[arg(long)]
    truths: bool,
    /// With `--truths`: rank the points only.
    #[arg(long)]
    coarse: bool,
    /// Only these surfaces.
    #[arg(long, value_delimiter = ',')]
    surfaces: Vec<String>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let all = surfaces();
    let mut truths = Truths::kept(&all);
    let asked: Vec<&Surface> = all
        .iter()
        .filter(|s| arguments.surfaces.is_empty() || arguments.surfaces.iter().any(|n| n == s.name))
        .collect();
    if arguments.truths {
        truths.complete(&asked, &[], !arguments.coarse);
        truths.keep();
        println!("| surface | engine | points | best point | req/s | defaults | gain | within 3 % | fine |");
        println!("|---|---|---|---|---|---|---|---|---|");
        for surface in &asked {
            let name = surface.name;
            let (points, near) = truths.count(name);
            let (best, rate) = truths.best(name).unwrap_or(("none", 0.0));
            let defaults = truths.rate(name, &surface.plan(&known_arm(surface)).space.baseline());
            let engine = if surface.is_foreign() { "foreign" } else { "matched" };
            println!(
                "| {name} | {engine} | {points} | {best} | {rate:.2} | {defaults:.2} | {:+.0} % | {near} | {} |",
                (rate / defaults - 1.0) * 100.0,
                truths.fine(name)
            );
        }
    }
    ExitCode::SUCCESS
}
