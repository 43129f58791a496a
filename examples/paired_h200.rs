//! The paired twin on the requests of a real engine: one H200, vLLM 0.24, Llama-3.1-8B in bf16, default arguments.
//!
//!     cargo run --release --example paired_h200 -- FOLDER
//!
//! FOLDER holds one file per probe, named `def_r15.16_d40_s11.csv` (default arguments, requests per second, seconds, seed), with the
//! columns due, sent, first, last, `n_in`, `n_out`, err; `seqs32_...` ran with max-num-seqs 32, `def_sat.csv` sent 500 requests at once.
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

use autotune::settings::{Limit, Metric};
use autotune::twin::{Answered, Bounds, Effort, FastReplay, Fit, Observed, Probe, Sent, fit, refit};
use autotune::units::Seconds;
use autotune::verdict::Window;
use autotune::verdict::paired::{Long, Measured, Paired, estimate};
use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, LogNormal};

/// What that engine ran with by default: its log says 1,024 sequences, 8,192 tokens a step and 919,824 tokens of KV cache.
const DEFAULT: Bounds = Bounds { max_num_seqs: 1024, max_num_batched_tokens: 8192, kv_tokens: Some(919_824) };
const WINDOW: Window = Window { from: Seconds(10.0), to: Seconds(40.0) };
const METRICS: [(Metric, &str); 2] = [(Metric::Ttft, "TTFT"), (Metric::Tpot, "TPOT")];

struct File {
    name: String,
    probe: Probe,
}

fn read(path: &Path, bounds: Bounds) -> File {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let requests = reader.deserialize().map(|row| {
        let row: BTreeMap<String, String> = row.unwrap();
        let time = |column: &str| row[column].parse::<f64>().ok().map(Seconds);
        let count = |column: &str| row[column].parse::<u32>().unwrap();
        Observed {
            due: time("due").unwrap(),
            sent: time("sent").unwrap(),
            tokens_in: count("n_in"),
            cached: 0,
            tokens_out: count("n_out"),
            first: time("first"),
            last: time("last"),
            failed: !row["err"].is_empty(),
        }
    });
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    File { name, probe: Probe::new(requests.collect(), bounds) }
}

/// Traffic as the probes were drawn: Poisson arrivals, prompts of 800 and answers of 200 tokens in the median, lognormal.
fn long(fit: &Fit, rate: f64) -> Long {
    let mut rng = ChaCha12Rng::seed_from_u64(5);
    let (prompt, output) = (LogNormal::new(800_f64.ln(), 0.8).unwrap(), LogNormal::new(200_f64.ln(), 0.7).unwrap());
    let mut at = 0.0;
    let traffic = (0..100_000).map(|_| {
        at -= (1.0 - rng.random::<f64>()).ln() / rate;
        let tokens = |value: f64, least: f64, most: f64| value.clamp(least, most) as u32;
        let prompt = tokens(prompt.sample(&mut rng), 16.0, 8000.0);
        Sent { at, prompt, cached: 0, output: tokens(output.sample(&mut rng), 8.0, 2000.0) }
    });
    Long::replay(&fit.costs, DEFAULT, traffic)
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

fn paired(files: &[&File], fit: &Fit, long: &Long) -> Vec<Paired> {
    let measured: Vec<Measured> = files.iter().map(|f| Measured { probe: &f.probe, window: WINDOW }).collect();
    estimate(&measured, fit, long, &limits())
}

/// Spread of single probes, direct and paired, and how far pairs of probes are from all together.
fn one_rate(rate: &str, files: &[&File], fit: &Fit) {
    let long = long(fit, rate.parse().unwrap());
    let each: Vec<Vec<Paired>> = files.iter().map(|f| paired(&[f], fit, &long)).collect();
    let pooled = paired(files, fit, &long);
    let mut farthest = [0.0_f64; 2];
    for i in 0..files.len() {
        for j in 0..i {
            let two = paired(&[files[i], files[j]], fit, &long);
            for (worst, (two, all)) in farthest.iter_mut().zip(two.iter().zip(&pooled)) {
                *worst = worst.max((two.estimate.0 / all.estimate.0).ln().abs());
            }
        }
    }
    for (m, (_, name)) in METRICS.iter().enumerate() {
        let direct: Vec<f64> = each.iter().map(|p| p[m].measured.0.ln()).collect();
        let with_twin: Vec<f64> = each.iter().map(|p| p[m].estimate.0.ln()).collect();
        let (d, p) = (spread(&direct), spread(&with_twin));
        let stated = each.iter().map(|e| e[m].error).sum::<f64>() / each.len() as f64;
        println!(
            "{rate:>6} {:>3}  {name} {:>8.1} {d:>7.3} {:>9.1} {p:>7.3} {:>6.2} {stated:>7.3} {:>9.1} {:>8.1} % {:>8.0} %",
            files.len(),
            mean_ms(&direct),
            mean_ms(&with_twin),
            p / d,
            pooled[m].estimate.millis(),
            (farthest[m].exp() - 1.0) * 100.0,
            pooled[m].explained * 100.0,
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
                _ => Some((r.tpot()?, (a.last - a.first) / f64::from(r.tokens_out - 1))),
            })
            .collect();
        print!("{:28} {name}", file.name);
        for q in [0.5, 0.99] {
            let at = |values: Vec<f64>| {
                let mut values = values;
                values.sort_by(f64::total_cmp);
                values[((q * values.len() as f64).ceil() as usize).max(1) - 1]
            };
            let measured = at(both.iter().map(|b| b.0).collect());
            let twin = at(both.iter().map(|b| b.1).collect());
            print!("  {:>9.1} {:>9.1} {:>+6.1} %", measured * 1e3, twin * 1e3, (twin / measured - 1.0) * 100.0);
        }
        println!();
    }
}

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "tests/data/h200".to_owned());
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "csv"));
    paths.sort();
    let stem = |p: &Path| p.file_stem().unwrap().to_string_lossy().into_owned();
    let named = |prefix: &str| paths.iter().filter(|p| stem(p).starts_with(prefix)).cloned().collect::<Vec<_>>();
    let probes: Vec<File> =
        named("def_r").iter().filter(|p| stem(p).contains("_d40_")).map(|p| read(p, DEFAULT)).collect();
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

    println!("\np99 of single probes of 40 s that are not in the fit (ms; sd of the log), direct and paired");
    println!("req/s   n         direct      sd    paired      sd  ratio  stated    pooled  any two within  explained");
    let mut rates: BTreeMap<String, Vec<&File>> = BTreeMap::new();
    for file in rest {
        let rate = file.name.split('_').nth(1).unwrap().trim_start_matches('r').to_owned();
        rates.entry(rate).or_default().push(file);
    }
    rates.iter().for_each(|(rate, files)| one_rate(rate, files, &found));

    println!(
        "\nnever launched, or never seen by the fit (ms)      p50: measured  twin             p99: measured  twin"
    );
    for path in named("seqs32") {
        predicted(&read(&path, Bounds { max_num_seqs: 32, ..DEFAULT }), &found);
    }
    for path in [named("def_sat"), named("def_r15.16_d300")].concat() {
        predicted(&read(&path, DEFAULT), &found);
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
