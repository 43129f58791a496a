//! What is printed: measured beside replayed, errors over all runs, and the rates at which TPOT crosses its limit.

use crate::ReplayedRun;
use crate::measured::{Aggregate, Aggregates, Configuration, Run};

const TPOT_LIMIT: f64 = 0.060;

/// A metric at a quantile, and the error that its requirement allows.
struct Target {
    name: &'static str,
    of: fn(&Aggregates) -> Option<f64>,
    at_most: f64,
    below_saturation: bool,
}

const TARGETS: [Target; 4] = [
    Target { name: "TPOT p50", of: |a| a.tpot.p50, at_most: 0.08, below_saturation: false },
    Target { name: "TPOT p99", of: |a| a.tpot.p99, at_most: 0.08, below_saturation: false },
    Target { name: "TTFT p50", of: |a| a.ttft.p50, at_most: 0.15, below_saturation: true },
    Target { name: "TTFT p99", of: |a| a.ttft.p99, at_most: 0.25, below_saturation: true },
];

pub fn runs(configurations: &[Configuration], replayed: &[Vec<ReplayedRun>]) {
    println!("\nmeasured and replayed, ms; `*` marks runs in which requests waited for a place");
    for (c, replayed) in configurations.iter().zip(replayed) {
        println!("\n{}{}", c.name, if c.held_out { ", held out" } else { "" });
        println!("  req/s      TTFT p50        TTFT p99          TPOT p50        TPOT p99    hits  preempted");
        for (run, r) in c.runs.iter().zip(replayed) {
            let mark = match (run.warm_up(), c.saturated(run)) {
                (true, _) => 'w',
                (_, true) => '*',
                _ => ' ',
            };
            let pair = |of: fn(&Aggregates) -> Aggregate, at: fn(&Aggregate) -> Option<f64>| {
                let ms = |a: &Aggregates| at(&of(a)).map_or("-".to_owned(), |s| format!("{:.1}", s * 1e3));
                format!("{:>7} {:>7}", ms(&run.aggregates), ms(&r.aggregates))
            };
            println!(
                "  {:>4.2} {mark} {}  {}   {}  {}   {:.3} {:>4}",
                run.rate,
                pair(|a| a.ttft, |q| q.p50),
                pair(|a| a.ttft, |q| q.p99),
                pair(|a| a.tpot, |q| q.p50),
                pair(|a| a.tpot, |q| q.p99),
                r.hit_rate,
                r.preemptions,
            );
        }
    }
}

/// The runs of the sweep, their replays, and whether the fit saw them.
fn sweep<'a>(
    configurations: &'a [Configuration],
    replayed: &'a [Vec<ReplayedRun>],
) -> impl Iterator<Item = (&'a Configuration, &'a Run, &'a Aggregates)> {
    let both = configurations.iter().zip(replayed);
    let runs = both.flat_map(|(c, replayed)| c.runs.iter().zip(replayed).map(move |(run, r)| (c, run, &r.aggregates)));
    runs.filter(|(_, run, _)| !run.warm_up())
}

pub fn summary(configurations: &[Configuration], replayed: &[Vec<ReplayedRun>]) {
    println!("\nmedian absolute log error        at most    all (runs)   held out (runs)");
    for target in &TARGETS {
        let errors = |held_out_alone: bool| {
            let some = sweep(configurations, replayed).filter(|(c, run, _)| {
                (c.held_out || !held_out_alone) && !(target.below_saturation && c.saturated(run))
            });
            let mut errors: Vec<f64> = some
                .map(|(_, run, r)| ((target.of)(&run.aggregates).unwrap() / (target.of)(r).unwrap()).ln().abs())
                .collect();
            errors.sort_by(f64::total_cmp);
            let middle = errors.len() / 2;
            (0.5 * (errors[middle] + errors[(errors.len() - 1) / 2]), errors.len())
        };
        let ((all, n), (held, m)) = (errors(false), errors(true));
        println!(
            "{}{:22} {:>5.0} % {:>8.1} % ({n}) {:>8.1} % ({m})   {}",
            target.name,
            if target.below_saturation { ", below saturation" } else { "" },
            target.at_most * 100.0,
            all * 100.0,
            held * 100.0,
            met(all <= target.at_most && held <= target.at_most),
        );
    }
}

pub fn met(met: bool) -> &'static str {
    if met { "target met" } else { "target missed" }
}

pub fn crossings(configurations: &[Configuration], replayed: &[Vec<ReplayedRun>]) {
    println!("\nrate at which TPOT p99 crosses 60 ms   measured   twin   error (within 5 %)");
    for (c, replayed) in configurations.iter().zip(replayed) {
        let of = |measured: bool| {
            let both = c.runs.iter().zip(replayed).filter(|(run, _)| !run.warm_up());
            let points = both.map(|(run, r)| {
                let aggregates = if measured { &run.aggregates } else { &r.aggregates };
                (run.rate, aggregates.tpot.p99.unwrap())
            });
            crossing(&points.collect::<Vec<_>>())
        };
        let (measured, twin) = (of(true), of(false));
        let error = (twin / measured - 1.0) * 100.0;
        println!(
            "{:24} {:13} {measured:>8.3} {twin:>6.3} {error:>+7.1} %   {}",
            c.name,
            if c.held_out { "held out" } else { "" },
            met(error.abs() <= 5.0),
        );
    }
}

/// The last rate at which the limit still held, between two rates by the logarithms.
fn crossing(points: &[(f64, f64)]) -> f64 {
    let at = points.windows(2).rfind(|w| w[0].1 <= TPOT_LIMIT && w[1].1 > TPOT_LIMIT);
    at.map_or(f64::NAN, |w| {
        let part = (TPOT_LIMIT / w[0].1).ln() / (w[1].1 / w[0].1).ln();
        (w[0].0.ln() + part * (w[1].0 / w[0].0).ln()).exp()
    })
}
