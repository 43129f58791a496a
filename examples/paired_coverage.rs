//! What the stated error of the paired estimate is worth, on simulated engines that the twin does not match.
//!
//!     cargo run --release --example paired_coverage [-- SESSIONS]
//!
//! A session fits the twin to two probes of 40 s and estimates the p99 of long traffic from another at each of three rates. The truth
//! is the same engine on long traffic. The engines have what the twin lacks: a staircase at other batch sizes, prefill that hides behind decoding by
//! another rule, and stalls. They also have noise in every step and from run to run, and hand tokens over a step late.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example prints, and ends at the first thing that is wrong"
)]

use autotune::settings::{Limit, Metric};
use autotune::twin::{
    Arrival, Bounds, Effort, Fit, Limits, Observed, Probe, PromptShape, Scheduler, Sent, StepCosts, fit_anew,
};
use autotune::units::Seconds;
use autotune::verdict::Window;
use autotune::verdict::paired::{CheckedTwin, LongRunReplay, Paired, estimate};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, LogNormal, Normal};
use statrs::statistics::Statistics;

const LIMITS: Limits = Limits { max_num_seqs: 256, max_num_batched_tokens: 8192, num_blocks: 60_000, block_size: 16 };
const WINDOW: Window = Window { from: Seconds(10.0), to: Seconds(40.0) };
/// Below, at and above the rate that the limits are made for.
const LEVELS: [f64; 3] = [0.85, 1.0, 1.08];
const TRUTH_SEEDS: u64 = 4;
const TRUTH_SECONDS: f64 = 4000.0;

/// An engine that is not the twin.
struct Engine {
    name: &'static str,
    costs: StepCosts,
    /// Every batch of this many sequences costs a tile more.
    tile: u32,
    tile_seconds: f64,
    /// The part of a long step that hides, which grows with the step.
    hidden: f64,
    /// Relative noise of a step, and of a run.
    step_noise: f64,
    run_noise: f64,
    /// Stalls: their share of steps, and the longest in seconds.
    stalls: (f64, f64),
    /// The share of steps whose tokens come with those of the next.
    late: f64,
    /// The rate that the limits are made for.
    rate: f64,
}

fn engines() -> [Engine; 3] {
    let costs = StepCosts {
        base: 5e-3,
        per_decode: 3e-5,
        per_context_token: 2.5e-8,
        per_prefill_token: 2.4e-5,
        overhead: 3e-3,
        ahead: 0.9,
        ..StepCosts::default()
    };
    [
        Engine {
            name: "another staircase, little noise",
            costs,
            tile: 24,
            tile_seconds: 6e-4,
            hidden: 0.1,
            step_noise: 0.02,
            run_noise: 0.01,
            stalls: (0.0, 0.0),
            late: 0.0,
            rate: 13.0,
        },
        Engine {
            name: "harsh: overlap, stalls, run noise, late tokens",
            costs: StepCosts { overlap: 0.5, ..costs },
            tile: 24,
            tile_seconds: 6e-4,
            hidden: 0.25,
            step_noise: 0.05,
            run_noise: 0.03,
            stalls: (0.002, 0.25),
            late: 0.1,
            rate: 12.5,
        },
        Engine {
            name: "unsteady: run noise of 6 %, stalls",
            costs: StepCosts { ahead: 0.0, ..costs },
            tile: 40,
            tile_seconds: 1e-3,
            hidden: 0.0,
            step_noise: 0.1,
            run_noise: 0.06,
            stalls: (0.001, 0.15),
            late: 0.0,
            rate: 12.0,
        },
    ]
}

/// Poisson arrivals with lognormal lengths.
fn traffic(rate: f64, seconds: f64, seed: u64) -> Vec<Sent> {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let (prompt, output) = (LogNormal::new(800_f64.ln(), 0.8).unwrap(), LogNormal::new(200_f64.ln(), 0.7).unwrap());
    let (mut at, mut sent) = (0.0, Vec::new());
    loop {
        at -= (1.0 - rng.random::<f64>()).ln() / rate;
        if at > seconds {
            return sent;
        }
        let prompt = prompt.sample(&mut rng).clamp(16.0, 8000.0) as u32;
        sent.push(Sent { at, prompt, output: output.sample(&mut rng).clamp(8.0, 2000.0) as u32, ..Sent::default() });
    }
}

impl Engine {
    /// Serves the requests in a run of its own.
    fn serve(&self, sent: &[Sent], seed: u64, steady: bool) -> Probe {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let normal = Normal::new(0.0, 1.0).unwrap();
        let run = if steady { 1.0 } else { (self.run_noise * normal.sample(&mut rng)).exp() };
        let mut scheduler = Scheduler::new(self.costs, LIMITS);
        let mut arrivals = sent.iter().zip(0..).map(|(s, id)| {
            let prompt = PromptShape { tokens: s.prompt, blocks: Vec::new() };
            (id, Arrival { due_s: s.at, prompt, output_tokens: s.output })
        });
        let mut next = arrivals.next();
        let mut times = vec![(None, None); sent.len()];
        let mut held: Vec<(u64, bool)> = Vec::new();
        let (mut now, mut last) = (0.0, 0.0);
        loop {
            let composed = self.costs.composed_at(now, last);
            while let Some((id, a)) = next.take_if(|(_, a)| a.due_s + self.costs.overhead <= composed) {
                scheduler.admit(id, a.prompt, a.output_tokens);
                next = arrivals.next();
            }
            let Some(step) = scheduler.step() else {
                let Some((_, a)) = &next else { break };
                now = f64::max(now, a.due_s + self.costs.overhead);
                last = 0.0;
                continue;
            };
            let tiles = f64::from(step.emitted.len() as u32 / self.tile);
            let long = (step.seconds - 2.0 * self.costs.base).max(0.0);
            let plain = step.seconds + self.tile_seconds * tiles - self.hidden * long * long / (long + 0.05);
            last = plain * run * (1.0 + self.step_noise * normal.sample(&mut rng)).max(0.5);
            if rng.random::<f64>() < self.stalls.0 {
                last += self.stalls.1 * rng.random::<f64>();
            }
            now += last;
            let finished = |id: &u64| step.finished.contains(id);
            held.extend(step.emitted.iter().map(|id| (*id, finished(id))));
            if rng.random::<f64>() < self.late && scheduler.counters().running > 0 {
                continue;
            }
            for (id, finished) in held.drain(..) {
                let (first, end) = &mut times[id as usize];
                first.get_or_insert(Seconds(now));
                if finished {
                    *end = Some(Seconds(now));
                }
            }
        }
        let of = |(s, (first, last)): (&Sent, &(Option<Seconds>, Option<Seconds>))| Observed {
            shared: 0,
            document: 0,
            turn: None,
            due: Seconds(s.at),
            sent: Seconds(s.at),
            tokens_in: s.prompt,
            cached: 0,
            tokens_out: s.output,
            first: *first,
            last: *last,
            failed: last.is_none(),
            cut: false,
        };
        Probe::new(sent.iter().zip(&times).map(of).collect(), Bounds::from(LIMITS))
    }

    /// The p99 of long traffic, of both latencies, in seconds.
    fn truth(&self, rate: f64) -> [f64; 2] {
        let mut values = [Vec::new(), Vec::new()];
        for seed in 0..TRUTH_SEEDS {
            let probe = self.serve(&traffic(rate, TRUTH_SECONDS, 900 + seed), 77 + seed, true);
            for r in probe.requests().iter().filter(|r| r.due.0 > 100.0) {
                values[0].extend(r.ttft());
                values[1].extend(r.tpot());
            }
        }
        values.map(|mut v| {
            v.sort_by(f64::total_cmp);
            v[(v.len() as f64 * 0.99) as usize]
        })
    }
}

/// What one session says of one level: by metric, the paired estimate.
fn session(engine: &Engine, seed: u64, earlier: Option<&Fit>) -> (Fit, Vec<Vec<Paired>>) {
    let probe = |level: f64, part: u64| {
        let seed = seed * 100 + part;
        engine.serve(&traffic(engine.rate * level, 40.0, seed), seed + 7_000_000, false)
    };
    let fitted = [probe(0.85, 1), probe(1.05, 2)];
    let found = fit_anew(&fitted, earlier, Effort::FULL).unwrap();
    let limit = |metric| Limit { metric, quantile: 0.99, at_most: Seconds(1.0) };
    // What sessions on H200s showed says nothing of these engines.
    let twin = CheckedTwin { fit: &found, others: &[(&fitted[0], WINDOW), (&fitted[1], WINDOW)], shared: true };
    let levels = LEVELS.iter().enumerate().map(|(l, level)| {
        let fresh = probe(*level, 10 + 2 * l as u64);
        let rate = engine.rate * level;
        let long =
            LongRunReplay::replay(&found.costs, Bounds::from(LIMITS), traffic(rate, 100_000.0 / rate, seed * 100 + 50));
        estimate(&fresh, WINDOW, twin, &long, &[limit(Metric::Ttft), limit(Metric::Tpot)])
    });
    let levels = levels.collect();
    (found, levels)
}

fn main() {
    let sessions: u64 = std::env::args().nth(1).map_or(200, |n| n.parse().unwrap());
    println!(
        "p99 from a probe of 40 s, {sessions} sessions: bias and sd of its logarithm, share of 90 % intervals that hold the truth"
    );
    for engine in engines() {
        println!("\n{}", engine.name);
        println!(
            "load         truth ms   direct: bias    sd  covers   paired: bias    sd  covers  stated  explained  plain count decides"
        );
        let first = session(&engine, 0, None).0;
        let all: Vec<Vec<Vec<Paired>>> = (1..=sessions).map(|seed| session(&engine, seed, Some(&first)).1).collect();
        for (l, level) in LEVELS.iter().enumerate() {
            let truth = engine.truth(engine.rate * level);
            for (m, name) in ["TTFT", "TPOT"].iter().enumerate() {
                let each: Vec<&Paired> = all.iter().filter_map(|s| s[l].get(m)).collect();
                let log = truth[m].ln();
                let direct: Vec<f64> = each.iter().map(|p| p.measured.0.ln() - log).collect();
                let paired: Vec<f64> = each.iter().map(|p| p.estimate.0.ln() - log).collect();
                let share = |of: &dyn Fn(&Paired) -> bool| {
                    each.iter().filter(|p| of(p)).count() as f64 / each.len() as f64 * 100.0
                };
                let inside = |p: &Paired| {
                    let (low, high) = p.interval(0.9);
                    (low.0..=high.0).contains(&truth[m])
                };
                let plain = |p: &Paired| {
                    let own = Paired { estimate: p.measured, error: p.direct_error, ..p.clone() };
                    inside(&own)
                };
                println!(
                    "{level:.2} {name} {:>10.1} {:>+14.3} {:>5.3} {:>5.0} % {:>+14.3} {:>5.3} {:>5.0} % {:>7.3} {:>8.0} % {:>8.0} %",
                    truth[m] * 1e3,
                    direct.iter().mean(),
                    direct.iter().std_dev(),
                    share(&plain),
                    paired.iter().mean(),
                    paired.iter().std_dev(),
                    share(&inside),
                    each.iter().map(|p| p.error).mean(),
                    each.iter().map(|p| p.explained).mean() * 100.0,
                    share(&|p| !p.because.is_empty()),
                );
            }
        }
    }
}
