//! The paired twin on the requests of a real engine. It prints the spread of a p99 from probe to probe, direct and paired, and what is
//! predicted of probes that no fit has seen.
//!
//!     cargo run --release --example paired_probes -- FOLDER [WORKLOAD SEQS TOKENS KV]
//!
//! FOLDER holds one file of requests per probe, named `def_r15.16_d40_s11.csv` (the engine's arguments, requests per second, seconds,
//! seed). The first 10 s of a probe are its ramp; `seqs32_...` ran with max-num-seqs 32, `def_sat.csv` sent everything at once.
//! WORKLOAD is a file with the `[workload]` that they were drawn from. SEQS, TOKENS and KV are what bounds the engine: sequences,
//! tokens of a step, tokens of the KV cache. Without them: one H200, vLLM 0.24, Llama-3.1-8B in bf16, default arguments.
//!
//! The twin is fitted to the first two probes of 40 s. Every figure is made from the files; nothing here was tuned to them.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "an example prints, reads the clock, and ends at the first thing that is wrong"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use autotune::load::read_records;
use autotune::quantiles::quantile;
use autotune::settings::{Limit, Metric, WorkloadPlan, traffic};
use autotune::twin::{Answered, Bounds, Effort, FastReplay, Fit, Observed, Probe, Sent, fit, refit};
use autotune::units::{Rate, Seconds};
use autotune::verdict::Window;
use autotune::verdict::paired::{CheckedTwin, LongRunReplay, Paired, estimate};
use autotune::workload::{Demand, Material, Pace, outline};

/// What the H200's engine said that it ran with.
const H200: Bounds = Bounds { max_num_seqs: 1024, max_num_batched_tokens: 8192, kv_tokens: Some(919_824) };
/// What its probes were drawn from.
const H200_WORKLOAD: &str = r#"
[workload]
kind = "random"
input_tokens = { distribution = "lognormal", median = 800, sigma = 0.8, min = 16, max = 8000 }
output_tokens = { distribution = "lognormal", median = 200, sigma = 0.7, min = 8, max = 2000 }
"#;
const WINDOW: Window = Window { from: Seconds(10.0), to: Seconds(40.0) };
const METRICS: [(Metric, &str); 2] = [(Metric::Ttft, "TTFT"), (Metric::Tpot, "TPOT")];

/// What the probes were drawn from, and what served them.
struct Traffic {
    workload: WorkloadPlan,
    bounds: Bounds,
}

impl Traffic {
    fn of_arguments(mut arguments: impl Iterator<Item = String>) -> Self {
        let file = arguments.next();
        let text = file.as_ref().map_or(H200_WORKLOAD.to_owned(), |path| std::fs::read_to_string(path).unwrap());
        let workload =
            traffic(file.as_deref().unwrap_or("the H200's workload"), &text).map_err(|e| e.render()).unwrap().0;
        let counts: Vec<u64> = arguments.map(|count| count.parse().unwrap()).collect();
        let bounds = match counts[..] {
            [seqs, tokens, kv] => {
                Bounds { max_num_seqs: seqs as u32, max_num_batched_tokens: tokens as u32, kv_tokens: Some(kv) }
            }
            _ => H200,
        };
        Self { workload, bounds }
    }
}

struct File {
    name: String,
    probe: Probe,
}

fn read(path: &Path, bounds: Bounds) -> File {
    let records = read_records(std::fs::File::open(path).unwrap()).unwrap();
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    File { name, probe: Probe::new(records.iter().map(Observed::from).collect(), bounds) }
}

/// A long-run replay of the traffic that the probes were drawn from.
fn long(fit: &Fit, traffic: &Traffic, rate: f64) -> LongRunReplay {
    let pace = Pace::new(Demand::Open(Rate(rate)), Seconds(f64::MAX), 5);
    let drawn = outline(&traffic.workload, &Material::default(), pace, 100_000, |_| Seconds(0.0));
    let sent =
        drawn.iter().map(|o| Sent { at: o.due.0, prompt: o.prompt_tokens, output: o.output_tokens, ..Sent::default() });
    LongRunReplay::replay(&fit.costs, traffic.bounds, sent)
}

fn spread(logs: &[f64]) -> f64 {
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    (logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (logs.len() as f64 - 1.0)).sqrt()
}

fn mean_ms(logs: &[f64]) -> f64 {
    (logs.iter().sum::<f64>() / logs.len() as f64).exp() * 1e3
}

fn limits() -> Vec<Limit> {
    let limit = |metric, at_most| Limit { metric, quantile: 0.99, at_most: Seconds(at_most) };
    vec![limit(Metric::Ttft, 0.3), limit(Metric::Tpot, 0.02)]
}

/// Spread of single probes, direct and paired.
fn one_rate(rate: &str, files: &[&File], twin: CheckedTwin, traffic: &Traffic) {
    let long = long(twin.fit, traffic, rate.parse().unwrap());
    let each: Vec<Vec<Paired>> = files.iter().map(|f| estimate(&f.probe, WINDOW, twin, &long, &limits())).collect();
    for (m, (_, name)) in METRICS.iter().enumerate() {
        let direct: Vec<f64> = each.iter().map(|p| p[m].measured.0.ln()).collect();
        let with_twin: Vec<f64> = each.iter().map(|p| p[m].estimate.0.ln()).collect();
        let (d, p) = (spread(&direct), spread(&with_twin));
        let mean = |of: &dyn Fn(&Paired) -> f64| each.iter().map(|e| of(&e[m])).sum::<f64>() / each.len() as f64;
        println!(
            "{rate:>6} {:>3}  {name} {:>8.1} {d:>7.3} {:>9.1} {p:>7.3} {:>6.2} {:>7.3} {:>8.0} %",
            files.len(),
            mean_ms(&direct),
            mean_ms(&with_twin),
            p / d,
            mean(&|e| e.error),
            mean(&|e| e.explained) * 100.0,
        );
    }
}

/// Measured beside replayed, at the median and at the p99.
fn predicted(file: &File, fit: &Fit) {
    let mut answers: Vec<Answered> = Vec::new();
    FastReplay::default().run(&fit.costs, file.probe.bounds(), file.probe.sent(), &mut answers);
    let counts = |r: &Observed| file.name == "def_sat" || r.due.0 >= WINDOW.from.0;
    let rows = || file.probe.requests().iter().zip(&answers).filter(|(r, _)| counts(r));
    for (metric, name) in METRICS {
        let both: Vec<(f64, f64)> = rows()
            .filter_map(|(r, a)| match metric {
                Metric::Ttft => Some((r.ttft()?, a.first - r.due.0)),
                _ => Some((r.tpot()?, a.tpot(r.tokens_out)?)),
            })
            .collect();
        print!("{:28} {name}", file.name);
        for q in [0.5, 0.99] {
            let at = |of: fn(&(f64, f64)) -> f64| quantile(both.iter().map(of), q).unwrap_or(f64::NAN);
            let (measured, twin) = (at(|b| b.0), at(|b| b.1));
            print!("  {:>9.1} {:>9.1} {:>+6.1} %", measured * 1e3, twin * 1e3, (twin / measured - 1.0) * 100.0);
        }
        println!();
    }
}

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "tests/data/h200".to_owned());
    let traffic = Traffic::of_arguments(std::env::args().skip(2));
    let default = traffic.bounds;
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "csv"));
    paths.sort();
    let stem = |p: &Path| p.file_stem().unwrap().to_string_lossy().into_owned();
    let named = |prefix: &str| paths.iter().filter(|p| stem(p).starts_with(prefix)).cloned().collect::<Vec<_>>();
    let probes: Vec<File> =
        named("def_r").iter().filter(|p| stem(p).contains("_d40_")).map(|p| read(p, default)).collect();
    let (fitted, rest) = probes.split_at(2);

    let begun = Instant::now();
    let fit_to = |files: &[File]| -> Fit {
        fit(&files.iter().map(|f| f.probe.clone()).collect::<Vec<_>>(), Effort::FULL).unwrap()
    };
    let found = fit_to(fitted);
    let seconds = begun.elapsed().as_secs_f64();
    println!("fitted to {} and {} in {seconds:.1} s ({} replays):", fitted[0].name, fitted[1].name, found.replays);
    for c in &found.coefficients {
        println!("  {:20} {:>10.3e}  +- {:.0} %", c.name, c.value, c.log_error * 100.0);
    }
    found.open.iter().for_each(|line| println!("  {line}"));
    let r = &found.residuals;
    println!(
        "  residuals: sd of log TTFT {:.3}, TPOT {:.3}; {} of {} far off",
        r.ttft_sd, r.tpot_sd, r.outliers, r.answers
    );

    println!(
        "  correlation of measured and replayed logarithms, request by request: TTFT {:.3}, TPOT {:.3}",
        r.ttft_correlation, r.tpot_correlation
    );

    println!("\np99 of single probes of 40 s that are not in the fit (ms; sd of the log), direct and paired");
    println!("req/s   n         direct      sd    paired      sd  ratio  stated  explained");
    let mut rates: BTreeMap<String, Vec<&File>> = BTreeMap::new();
    for file in rest {
        let rate = file.name.split('_').nth(1).unwrap().trim_start_matches('r').to_owned();
        rates.entry(rate).or_default().push(file);
    }
    // One probe has no spread.
    let twin =
        CheckedTwin { fit: &found, others: &[(&fitted[0].probe, WINDOW), (&fitted[1].probe, WINDOW)], shared: false };
    rates.iter().filter(|(_, files)| files.len() > 1).for_each(|(rate, files)| one_rate(rate, files, twin, &traffic));

    println!(
        "\nnever launched, or never seen by the fit (ms)      p50: measured  twin             p99: measured  twin"
    );
    for path in named("seqs32") {
        predicted(&read(&path, Bounds { max_num_seqs: 32, ..default }), &found);
    }
    for path in named("def_sat") {
        predicted(&read(&path, default), &found);
    }

    let ten: Vec<Probe> = probes.iter().take(10).map(|f| f.probe.clone()).collect();
    let begun = Instant::now();
    let all = fit(&ten, Effort::FULL).unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    refit(&ten, &all, Effort::FULL).unwrap();
    println!(
        "\na fit to {} probes takes {seconds:.1} s, again from there {:.1} s",
        ten.len(),
        begun.elapsed().as_secs_f64()
    );
    let drift: Vec<String> = all.residuals.probes.iter().map(|p| format!("{:.3}", p.slower)).collect();
    println!("drift of its probes: {}", drift.join(" "));
}
