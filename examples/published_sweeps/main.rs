//! The twin on sweeps that others published: one H200, vLLM 0.14.1, Llama-3.1-70B in FP8, aggregates alone.
//!
//!     cargo run --release --example published_sweeps -- tests/data/h200-llama70b/rate_sweeps.csv
//!
//! One server per configuration was sent the same 300 prompts at rising rates; the twin replays that history on one cache. The step
//! costs are fitted without the configurations `moderate` and `aggressive`, which are predicted. The prompts themselves were never
//! published: `workload` says what is known of them and what was drawn. `--write FILE` writes the profile with the fitted costs, and
//! `--with FILE` judges those of a profile instead of fitting any.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "an example prints, reads the clock, and ends at the first thing that is wrong"
)]

mod measured;
mod memory;
mod tables;
mod workload;

use std::path::Path;
use std::time::Instant;

use autotune::twin::{History, HistoryRun, Profile, StepCosts, SummaryFit, SummaryTerms, fit_summaries};

use measured::Configuration;
use workload::Request;

const PROFILE: &str = "h200-llama70b";
/// Replays of the five histories; one to two minutes on two cores.
const REPLAYS: u64 = 300;

/// Where the search starts: gaps between tokens read off the sweeps by eye for the first, twice the prefill and half the stairs for the
/// second. vLLM 0.14.1 schedules asynchronously.
const STARTS: [StepCosts; 2] = [
    StepCosts {
        base: 20e-3,
        per_decode: 7e-5,
        per_context_token: 2e-8,
        per_prefill_token: 1.35e-4,
        overhead: 7.5e-3,
        per_prefill_pair: 3e-9,
        per_prefill_square: 0.0,
        mixed: 2e-3,
        above_16: 6e-3,
        above_64: 7.5e-3,
        above_128: 20e-3,
        per_256: 0.0,
        fall: 0.3,
        overlap: 0.12,
        ahead: 0.95,
        delivery: 5e-3,
        per_delivery: 6e-5,
    },
    StepCosts {
        base: 20e-3,
        per_decode: 7e-5,
        per_context_token: 4e-8,
        per_prefill_token: 2.7e-4,
        overhead: 7.5e-3,
        per_prefill_pair: 3e-9,
        per_prefill_square: 0.0,
        mixed: 2e-3,
        above_16: 3e-3,
        above_64: 3.7e-3,
        above_128: 10e-3,
        per_256: 0.0,
        fall: 0.3,
        overlap: 0.12,
        ahead: 0.95,
        delivery: 5e-3,
        per_delivery: 6e-5,
    },
];

/// A configuration as the twin sees it: its warm-up of ten prompts, then every rate.
fn history(configuration: &Configuration, requests: &[Request]) -> History {
    let run = |run: &measured::Run| HistoryRun {
        arrivals: workload::arrivals(&requests[..run.prompts], run.rate),
        measured: Some(run.aggregates),
    };
    History { limits: configuration.limits(), runs: configuration.runs.iter().map(run).collect() }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut data, mut write, mut with) = ("tests/data/h200-llama70b/rate_sweeps.csv".to_owned(), None, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--write" => write = Some(arguments.next().unwrap()),
            "--with" => with = Some(arguments.next().unwrap()),
            _ => data = argument,
        }
    }
    let configurations = measured::read(Path::new(&data));
    let requests = workload::draw(&Path::new(&data).with_file_name("requests.csv"));
    workload::describe(&requests);

    let histories: Vec<History> = configurations.iter().map(|c| history(c, &requests)).collect();
    let profile = Profile::named(PROFILE).unwrap();
    let costs = match with {
        Some(file) => Profile::find(&file).unwrap().costs,
        None => fitted(&configurations, &histories).costs,
    };
    let replayed: Vec<_> = histories.iter().map(|h| h.replay(&costs)).collect();
    tables::runs(&configurations, &replayed);
    tables::summary(&configurations, &replayed);
    tables::crossings(&configurations, &replayed);
    memory::table(&configurations, &profile);
    if let Some(file) = write {
        std::fs::write(file, with_costs(include_str!("../../profiles/h200-llama70b.toml"), &costs)).unwrap();
    }
}

fn fitted(configurations: &[Configuration], histories: &[History]) -> SummaryFit {
    let of_fit = configurations.iter().zip(histories).filter(|(c, _)| !c.held_out);
    let (names, of_fit): (Vec<&str>, Vec<History>) = of_fit.map(|(c, h)| (c.name, h.clone())).unzip();
    let begun = Instant::now();
    let terms = SummaryTerms { replays: REPLAYS, drawn: false, moving: None };
    let fit = fit_summaries(&of_fit, &STARTS, &terms).unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    println!("fitted to {} in {seconds:.0} s ({} replays), loss {:.4}:", names.join(", "), fit.replays, fit.loss);
    lines(&fit.costs).iter().for_each(|line| println!("  {line}"));
    fit
}

/// The costs as lines of TOML.
fn lines(costs: &StepCosts) -> Vec<String> {
    let serde_json::Value::Object(fields) = serde_json::to_value(costs).unwrap() else { unreachable!() };
    fields.iter().map(|(name, value)| format!("{name} = {:.4e}", value.as_f64().unwrap())).collect()
}

/// The text of a profile with other costs.
fn with_costs(profile: &str, costs: &StepCosts) -> String {
    let (head, rest) = profile.split_once("[costs]\n").unwrap();
    let (_, tail) = rest.split_once("\n[memory]").unwrap();
    format!("{head}[costs]\n{}\n\n[memory]{tail}", lines(costs).join("\n"))
}
