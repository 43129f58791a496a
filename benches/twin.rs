//! Measures how many times faster the twin is than the engine, how that grows with load and reuse, and how long a fit takes.
//!
//!     cargo bench --bench twin
//!
//! Nothing is asserted of times, which are the machine's. One core.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark prints, reads the clock, and ends at the first thing that is wrong"
)]

use std::time::Instant;

use autotune::twin::{
    Answered, Arrival, Bounds, Effort, FastReplay, Limits, Probe, PromptShape, Scheduler, Sent, StepCosts, fit, refit,
    replay_in,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, LogNormal};

/// Fitted to two probes of vLLM 0.24 with Llama-3.1-8B in bf16 on one H200 (`examples/paired_probes.rs`).
fn h200_8b() -> StepCosts {
    StepCosts {
        base: 4.4e-3,
        per_decode: 2.5e-5,
        per_context_token: 2.7e-8,
        per_prefill_token: 2.0e-5,
        overhead: 1.3e-3,
        per_prefill_pair: 8.5e-10,
        per_prefill_square: 2.8e-10,
        mixed: 5.8e-4,
        above_16: 1.7e-4,
        above_64: 1.8e-4,
        above_128: 1.7e-4,
        overlap: 0.12,
        ahead: 0.95,
        delivery: 9e-4,
        per_delivery: 5.5e-5,
        ..StepCosts::default()
    }
}

/// The shape of the published sweeps of Llama-3.1-70B in FP8 on one H200 (vLLM 0.14). Steps of 20 to 60 ms with a staircase, 7,600
/// prompt tokens a second.
fn h200_70b() -> StepCosts {
    StepCosts {
        base: 2.0e-2,
        per_decode: 5e-5,
        per_context_token: 3.5e-8,
        per_prefill_token: 1.3e-4,
        overhead: 5e-3,
        above_16: 7e-3,
        above_64: 9e-3,
        above_128: 2e-2,
        ahead: 0.95,
        ..StepCosts::default()
    }
}

/// Poisson arrivals with lognormal lengths; `cached` of every prompt is in the prefix cache.
fn traffic(n: usize, rate: f64, prompt: f64, output: f64, cached: f64, seed: u64) -> Vec<Sent> {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let (prompt, output) = (LogNormal::new(prompt.ln(), 0.8).unwrap(), LogNormal::new(output.ln(), 0.7).unwrap());
    let mut at = 0.0;
    let one = |_| {
        at -= (1.0 - rng.random::<f64>()).ln() / rate;
        let prompt = prompt.sample(&mut rng).clamp(16.0, 16_000.0);
        let output = output.sample(&mut rng).clamp(8.0, 4000.0) as u32;
        Sent { at, prompt: prompt as u32, cached: (prompt * cached) as u32, output, ..Sent::default() }
    };
    (0..n).map(one).collect()
}

/// The best of a few runs, in seconds.
fn best<T>(mut run: impl FnMut() -> T) -> (f64, T) {
    let mut fastest: Option<(f64, T)> = None;
    for _ in 0..3 {
        let begun = Instant::now();
        let value = run();
        let took = begun.elapsed().as_secs_f64();
        if fastest.as_ref().is_none_or(|(least, _)| took < *least) {
            fastest = Some((took, value));
        }
    }
    fastest.unwrap()
}

fn fast_line(name: &str, costs: &StepCosts, bounds: Bounds, sent: &[Sent]) {
    let (mut engine, mut answers): (FastReplay, Vec<Answered>) = Default::default();
    let (took, pressure) = best(|| engine.run(costs, bounds, sent, &mut answers));
    println!(
        "{name:44} {:>9.0} x real time  {:>6.1} ns/request  {:>5.2} ns/step  most decoding {:>4}  preempted {}",
        pressure.seconds / took,
        took * 1e9 / sent.len() as f64,
        took * 1e9 / pressure.steps as f64,
        pressure.most_decoding,
        pressure.preemptions
    );
}

fn block_line(name: &str, costs: &StepCosts, limits: Limits, sent: &[Sent], shared: u32) {
    let arrivals = || {
        sent.iter().enumerate().map(|(id, s)| {
            // The first blocks are one of ten starters, the others are each request's own.
            let own = (id as u64 + 1) << 32;
            let hash = |b: u32| if b < shared { (id as u64 % 10) << 16 | u64::from(b) } else { own | u64::from(b) };
            let blocks = if shared == 0 { Vec::new() } else { (0..s.prompt / 16).map(hash).collect() };
            let prompt = PromptShape { tokens: s.prompt, blocks };
            Arrival { due_s: s.at, prompt, output_tokens: s.output }
        })
    };
    let (took, (done, cached)) = best(|| {
        let mut scheduler = Scheduler::new(*costs, limits).sparing(true);
        (replay_in(&mut scheduler, costs, arrivals()), scheduler.counters().prefix_hits)
    });
    let end = done.iter().map(|d| d.last).filter(|l| l.is_finite()).fold(0.0, f64::max);
    let asked: u64 = sent.iter().map(|s| u64::from(s.prompt)).sum();
    println!(
        "{name:44} {:>9.0} x real time  {:>6.1} ns/request  {:.0} % of prompt tokens cached",
        end / took,
        took * 1e9 / sent.len() as f64,
        cached as f64 / asked as f64 * 100.0
    );
}

fn probe(costs: &StepCosts, bounds: Bounds, rate: f64, seed: u64) -> Probe {
    let sent = traffic((rate * 40.0) as usize, rate, 800.0, 200.0, 0.0, seed);
    Probe::replayed(costs, bounds, &sent)
}

fn main() {
    let (small, large) = (h200_8b(), h200_70b());
    let bounds = Bounds { max_num_seqs: 1024, max_num_batched_tokens: 8192, kv_tokens: Some(919_824) };
    let bounds_70b = Bounds { kv_tokens: Some(348_304), ..bounds };
    println!("fast replay, 100,000 requests");
    for rate in [5.0, 10.0, 15.0, 18.0] {
        let sent = traffic(100_000, rate, 800.0, 200.0, 0.0, 1);
        fast_line(&format!("8B, {rate} req/s, 1,100 in, 255 out"), &small, bounds, &sent);
    }
    for rate in [1.0, 2.0, 2.5] {
        let sent = traffic(100_000, rate, 4200.0, 400.0, 0.85, 1);
        fast_line(&format!("70B, {rate} req/s, 5,800 in (85 % cached), 510 out"), &large, bounds_70b, &sent);
    }
    for seqs in [16, 32, 64, 128] {
        let sent = traffic(100_000, 15.0, 800.0, 200.0, 0.0, 1);
        let capped = Bounds { max_num_seqs: seqs, ..bounds };
        fast_line(&format!("8B, 15 req/s, at most {seqs} sequences"), &small, capped, &sent);
    }
    for cached in [0.5, 0.9] {
        let sent = traffic(100_000, 15.0, 800.0, 200.0, cached, 1);
        fast_line(&format!("8B, 15 req/s, {:.0} % cached", cached * 100.0), &small, bounds, &sent);
    }
    println!("block scheduler, 10,000 requests");
    let limits = Limits { max_num_seqs: 1024, max_num_batched_tokens: 8192, num_blocks: 57_489, block_size: 16 };
    let sent = traffic(10_000, 15.0, 800.0, 200.0, 0.0, 1);
    for (shared, name) in [(0, "no hashes"), (1, "hashes, 16 tokens shared"), (30, "480 shared"), (200, "3,200 shared")]
    {
        block_line(&format!("8B, 15 req/s, {name}"), &small, limits, &sent, shared);
    }
    let tight = Limits { num_blocks: 4_000, ..limits };
    block_line("8B, 15 req/s, 64,000 KV tokens, 3,200 shared", &small, tight, &sent, 200);
    println!("fit");
    for n in [1, 2, 5, 10] {
        let probes: Vec<Probe> = (0..n).map(|i| probe(&small, bounds, 12.0 + 0.6 * i as f64, i + 7)).collect();
        let begun = Instant::now();
        let found = fit(&probes, Effort::FULL).unwrap();
        let took = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        refit(&probes, &found, Effort::FULL).unwrap();
        let warm = begun.elapsed().as_secs_f64();
        println!("{n:>3} probes of 40 s: {took:.1} s, {} replays; from an earlier fit {warm:.1} s", found.replays);
    }
}
