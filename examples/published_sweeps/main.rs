//! The twin on sweeps that others published: one H200, vLLM 0.14.1, Llama-3.1-70B in FP8, aggregates alone.
//!
//!     cargo run --release --example published_sweeps -- tests/data/h200-llama70b/rate_sweeps.csv
//!
//! One server per configuration was sent the same 300 prompts at rising rates. The twin replays that history on one cache, with the step
//! costs of the profile `h200-llama70b`. These were fitted without the configurations `moderate` and `aggressive`. The prompts themselves
//! were never published: `workload` says what is known of them and what was drawn.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example prints, and ends at the first thing that is wrong"
)]

mod measured;
mod memory;
mod tables;
mod workload;

use std::path::Path;

use autotune::twin::{Arrival, Profile, Scheduler, StepCosts, replay_in};

use measured::{Aggregates, Configuration};
use workload::Request;

const PROFILE: &str = "h200-llama70b";

/// What became of a run in the replay.
struct ReplayedRun {
    aggregates: Aggregates,
    /// The part of the prompt tokens that the prefix cache saved, 0 to 1.
    hit_rate: f64,
    preemptions: u64,
}

/// Replays the runs of a configuration one after the other on a server that starts with an empty cache. They are its warm-up of ten
/// prompts, then every rate.
fn replay(configuration: &Configuration, requests: &[Request], costs: &StepCosts) -> Vec<ReplayedRun> {
    let mut scheduler = Scheduler::new(*costs, configuration.limits()).sparing(true);
    let one = |run: &measured::Run| {
        let before = scheduler.counters();
        let arrivals: Vec<Arrival> = workload::arrivals(&requests[..run.prompts], run.rate);
        let replayed = replay_in(&mut scheduler, costs, arrivals.iter().cloned());
        let after = scheduler.counters();
        let queries = after.prefix_queries - before.prefix_queries;
        ReplayedRun {
            aggregates: Aggregates::of(&replayed, arrivals.iter().map(|arrival| arrival.output_tokens)),
            hit_rate: (after.prefix_hits - before.prefix_hits) as f64 / queries.max(1) as f64,
            preemptions: after.preemptions - before.preemptions,
        }
    };
    configuration.runs.iter().map(one).collect()
}

fn main() {
    let data = std::env::args().nth(1).unwrap_or_else(|| "tests/data/h200-llama70b/rate_sweeps.csv".to_owned());
    let configurations = measured::read(Path::new(&data));
    let requests = workload::draw(&Path::new(&data).with_file_name("requests.csv"));
    workload::describe(&requests);
    let profile = Profile::named(PROFILE).unwrap();
    let replayed: Vec<_> = configurations.iter().map(|c| replay(c, &requests, &profile.costs)).collect();
    tables::runs(&configurations, &replayed);
    tables::summary(&configurations, &replayed);
    tables::crossings(&configurations, &replayed);
    memory::table(&configurations, &profile);
}
