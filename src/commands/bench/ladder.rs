//! The levels of load that the flags of a benchmark ask for.

use std::time::Duration;

use super::super::Failed;
use super::super::load::{Load, Traffic};
use crate::cli::{BenchArgs, Sought};
use crate::report::bench::Offered;
use crate::settings::WorkloadKind;
use crate::units::{Rate, Seconds};
use crate::verdict::Window;
use crate::workload;

/// The window of a level where nothing else is asked for.
const DURATION: Duration = Duration::from_secs(60);
/// More than any client sends.
const MOST_REQUESTS_PER_SECOND: f64 = 1e6;
/// Tokens of the prompts that may be held in memory at once: about 6 GB.
const MOST_TOKENS_HELD: u64 = 1_000_000_000;

/// Rates that a client can send.
pub(in crate::commands) fn check_rates(rates: &[f64]) -> Result<(), Failed> {
    if rates.iter().all(|rate| *rate > 0.0 && *rate <= MOST_REQUESTS_PER_SECOND) {
        return Ok(());
    }
    Err(Failed::usage(
        "error: a rate is a number of requests per second above 0, at most 1000000; for all at once there is --at-once N",
    ))
}

/// The levels that the flags ask for.
pub(super) fn offered(args: &BenchArgs, traffic: &Traffic) -> Result<Vec<Offered>, Failed> {
    let wrong = |text: &str| Err(Failed::usage(format!("error: {text}")));
    let rates: Vec<f64> = args.rate.into_iter().chain(args.rates.iter().copied()).collect();
    check_rates(&rates)?;
    let is_trace = matches!(traffic.workload.kind, WorkloadKind::Trace(_));
    if args.recorded && !is_trace {
        return wrong("--recorded takes the times of a trace; give one with --dataset FILE");
    }
    let mut offered: Vec<Offered> = rates.into_iter().map(|rate| Offered::Rate(Rate(rate))).collect();
    offered.extend(args.concurrency.iter().map(|users| Offered::Users(*users)));
    offered.extend(args.at_once.map(Offered::AllAtOnce));
    if offered.is_empty() && args.find.is_none() && (args.recorded || is_trace) {
        offered.push(Offered::Recorded);
    }
    if args.load.think.is_some() && args.concurrency.is_empty() && args.find != Some(Sought::Users) {
        return wrong("--think is how long users think: it goes with --concurrency or --find users");
    }
    if args.load.max_concurrency.is_some() && args.find == Some(Sought::Users) {
        return wrong(
            "--max-concurrency holds back an open loop: it goes with --rate, --rates, --recorded or --find rate",
        );
    }
    let at_once = args.concurrency.iter().chain(&args.at_once).copied().max().unwrap_or(0);
    let longest = match &traffic.workload.kind {
        WorkloadKind::Random(plan) => u64::from(plan.input_tokens.max) + u64::from(plan.shared_prefix_tokens),
        _ => 0,
    };
    if u64::from(at_once) * longest > MOST_TOKENS_HELD {
        return wrong(&format!(
            "{at_once} prompts of up to {longest} tokens at once do not fit into memory: at most {MOST_TOKENS_HELD} tokens do; give fewer requests or shorter prompts"
        ));
    }
    if offered.is_empty() && args.find.is_none() {
        return wrong("how much load? --rate 2, --rates 1,2,4, --concurrency 20,40,80, --at-once 500 or --find users");
    }
    Ok(offered)
}

pub(super) fn load(args: &BenchArgs, traffic: &Traffic, number: usize, offered: Offered) -> Load {
    Load {
        offered,
        window: window(args, traffic, offered),
        arrival_seed: workload::mix(args.load.seed, &[1]),
        content_seed: content_seed(args, number),
        answer_time: None,
        first_place: None,
        counter: None,
    }
}

/// Every level has words of its own.
pub(super) fn content_seed(args: &BenchArgs, number: usize) -> u64 {
    workload::mix(args.load.seed, &[2, number as u64])
}

fn window(args: &BenchArgs, traffic: &Traffic, offered: Offered) -> Window {
    let length = Seconds::from(args.duration.unwrap_or(DURATION));
    match offered {
        Offered::Rate(_) | Offered::Users(_) => {
            let from = args.load.ramp.map_or(length * 0.1, Seconds::from);
            Window { from, to: from + length }
        }
        // Everything is due at the beginning; the window becomes what it took.
        Offered::AllAtOnce(_) => Window { from: Seconds(0.0), to: Seconds(1e9) },
        Offered::Recorded => {
            let span = traffic.corpus.span().unwrap_or(length) + Seconds(1e-3);
            let to = Seconds(span.0.min(length.0));
            Window { from: Seconds(0.0), to }
        }
    }
}
