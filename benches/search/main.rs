//! What the answers of whole sessions are worth, on simulated engines whose true limits are known, by strategy.
//!
//!     cargo bench --bench search [-- --quick] [--seeds N|A..B] [--steps SEED] [--arms a,b] [--surfaces x,y] [--out DIR]
//!     cargo bench --bench search -- --truths [--coarse] [--surfaces x,y]
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
#[path = "../../lab/capacity.rs"]
mod capacity;
#[path = "../../lab/strategies.rs"]
mod lab;
mod numbers;
mod sessions;
mod surfaces;
mod tables;
mod truths;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::arms::{ARMS, Arm, QUICK_ARMS, REFERENCE};
use crate::numbers::Summary;
use crate::sessions::Row;
use crate::surfaces::{QUICK_SURFACES, Surface, surfaces};
use crate::truths::Truths;

/// Seeds of an ordinary and of a quick run.
const SEEDS: u64 = 50;
const QUICK_SEEDS: u64 = 4;
/// What a quick run asks of the reference. The bars are its shares of points within 3 % of the best and of rates over their limit,
/// and its median rate over its limit.
const BARS: (f64, f64, f64) = (0.6, 0.15, 0.8);

#[derive(Parser)]
struct Arguments {
    /// Two engines of measured kernels, one of them with conversations: about two minutes.
    #[arg(long)]
    quick: bool,
    /// So many seeds from 1 on, or those from the first to the last, such as 21..40.
    #[arg(long, value_parser = seeds)]
    seeds: Option<RangeInclusive<u64>>,
    /// Only this seed, and every step of its sessions on standard error.
    #[arg(long)]
    steps: Option<u64>,
    /// Only these arms.
    #[arg(long, value_delimiter = ',')]
    arms: Vec<String>,
    /// Only these surfaces.
    #[arg(long, value_delimiter = ',')]
    surfaces: Vec<String>,
    /// The folder for `search.md` and `search.json`.
    #[arg(long, default_value = "target/search-bench")]
    out: PathBuf,
    /// Compute the true limits that are missing, and print what the surfaces are like.
    #[arg(long)]
    truths: bool,
    /// Rank points by short runs only, where limits are missing.
    #[arg(long)]
    coarse: bool,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let all = surfaces();
    let mut truths = Truths::kept(&all);
    let quick = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let names = match (&arguments.surfaces[..], arguments.quick) {
        ([], true) => quick(QUICK_SURFACES),
        (names, _) => names.to_vec(),
    };
    let chosen: Vec<&Surface> = all.iter().filter(|s| names.is_empty() || names.iter().any(|n| n == s.name)).collect();
    if arguments.truths {
        truths.complete(&chosen, &[], !arguments.coarse);
        print!("{}", tables::landscape(&chosen, &truths));
        return ExitCode::SUCCESS;
    }
    let names = match (&arguments.arms[..], arguments.quick) {
        ([], true) => quick(QUICK_ARMS),
        (names, _) => names.to_vec(),
    };
    let arms: Vec<Arm> = ARMS
        .iter()
        .filter(|arm| if names.is_empty() { arm.workers == 1 } else { names.iter().any(|n| n == arm.name) })
        .filter(|arm| chosen[0].try_plan(arm).inspect_err(|_| eprintln!("left out: {}", arm.name)).is_ok())
        .copied()
        .collect();
    let usual = 1..=if arguments.quick { QUICK_SEEDS } else { SEEDS };
    let seeds = arguments.seeds.clone().unwrap_or(usual);
    let seeds = arguments.steps.map_or(seeds, |seed| seed..=seed);
    let runs = sessions::run(&chosen, &arms, seeds, arguments.steps.is_some());
    truths.complete(&chosen, &sessions::points(&runs), !arguments.quick && !arguments.coarse);
    let rows: Vec<Row> = runs.iter().map(|run| sessions::row(run, &truths)).collect();
    let text = tables::markdown(&rows, &chosen, &arms, &truths);
    std::fs::create_dir_all(&arguments.out).unwrap();
    std::fs::write(arguments.out.join("search.md"), &text).unwrap();
    std::fs::write(arguments.out.join("search.json"), serde_json::to_string_pretty(&rows).unwrap()).unwrap();
    print!("{text}");
    if arguments.quick { judged(&rows, &arms) } else { ExitCode::SUCCESS }
}

/// `N` for the seeds from 1 to N, `A..B` for those from A to B, both included.
fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once("..").unwrap_or(("1", text));
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    let seeds = number(first)?..=number(last)?;
    if seeds.is_empty() { Err("the last seed comes before the first".to_owned()) } else { Ok(seeds) }
}

/// Whether the reference is above the bars.
fn judged(rows: &[Row], arms: &[Arm]) -> ExitCode {
    let Some(reference) = arms.iter().find(|arm| arm.name == REFERENCE) else { return ExitCode::FAILURE };
    let found = Summary::of(&tables::of(rows, reference, None));
    let (as_good, over, certified) = BARS;
    let missed = [
        (found.as_good < as_good, "points within 3 % of the best"),
        (found.over > over, "certified rates over their limit"),
        (found.median_certified < certified, "certified rates far below their limit"),
    ];
    let missed: Vec<&str> = missed.iter().filter(|(missed, _)| *missed).map(|(_, what)| *what).collect();
    if missed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("a bar is missed: {}", missed.join(", "));
    ExitCode::FAILURE
}
