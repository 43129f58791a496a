//! The twin and its verdicts against runs of real engines: prints each statistic beside its bound.
//!
//!     cargo bench --bench recorded [-- --held-out FILE --window FROM..TO]
//!
//! It ends with code 1 where a bound is broken. `--held-out` adds a request file of the same engine, which no fit here has seen.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends at the first thing that is wrong"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use autotune::load::{RequestRecord, read_records};
use autotune::tune::Compared;
use autotune::twin::{Bounds, DEFAULT_BLOCK, Effort, Fit, Probe, SeenSteps, Served};
use autotune::units::{Rate, Seconds};
use autotune::verdict::{Outcome, Window};
use clap::Parser;

use crate::lab::{RecordedRun, Replayed};

#[path = "../lab/recorded.rs"]
mod lab;

/// The probes of the session that a fit may learn from.
const LEARNT: [&str; 5] = ["t001-p02", "t001-p03", "t001-p04", "t001-p05", "t003-p01"];
/// Those that certified: cold launches, three minutes each.
const COLD: [&str; 2] = ["t004-p03", "t005-p01"];

#[derive(Parser)]
struct Arguments {
    /// A request file of the same engine that no fit has seen, under the limits of the winner's proof.
    #[arg(long)]
    held_out: Option<PathBuf>,
    /// The part of it that counts, in seconds.
    #[arg(long, default_value = "120..380", value_parser = window)]
    window: Window,
    /// Prints what the twin makes of each probe.
    #[arg(long)]
    verbose: bool,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn window(text: &str) -> Result<Window, String> {
    let (from, to) = text.split_once("..").ok_or("FROM..TO")?;
    let seconds = |text: &str| text.parse().map(Seconds).map_err(|e| format!("{text}: {e}"));
    Ok(Window { from: seconds(from)?, to: seconds(to)? })
}

fn requests(file: &Path) -> Vec<RequestRecord> {
    read_records(std::fs::File::open(file).unwrap()).unwrap()
}

/// The rows of the table, and how many are broken.
#[derive(Default)]
struct Table {
    broken: usize,
}

impl Table {
    fn row(&mut self, what: &str, value: String, bound: &str, holds: bool) {
        println!("{what:<62} {value:>22}   {bound:<18} {}", if holds { "" } else { "BROKEN" });
        self.broken += usize::from(!holds);
    }

    /// The p99 of latencies by their replay, for the one that was measured.
    fn p99(&mut self, what: &str, pairs: &[(f64, f64)], bound: f64) {
        let (measured, twin) = Replayed::quantile(pairs, 0.99);
        let off = twin / measured - 1.0;
        let said = format!("{:.1} for {:.1} ms, {:+.1} %", twin * 1e3, measured * 1e3, off * 100.0);
        self.row(what, said, &format!("within {:.0} %", bound * 100.0), off.abs() <= bound);
    }

    /// The computed prompt tokens of probes, against the engine's counters.
    fn computed(&mut self, run: &RecordedRun, names: &[&str]) {
        for name in names {
            let (ours, counted) = run.computed(name).unwrap();
            let off = ours / counted - 1.0;
            let what = format!("{name}: computed prompt tokens against the counters");
            self.row(&what, format!("{:+.1} %", off * 100.0), "within 5 %", off.abs() <= 0.05);
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut run = RecordedRun::read(&root.join("tests/data/h200-phase1")).unwrap();
    if let Some(file) = &arguments.held_out {
        run.add("held-out", requests(file), COLD[0], arguments.window).unwrap();
    }
    let mut table = Table::default();
    println!("70B FP8 shape, multi-turn, one H200 (tests/data/h200-phase1)\n");
    served(&run, &mut table);
    let fit = run.fit(&LEARNT, Effort::FULL).unwrap();
    if arguments.verbose {
        println!("{:#?}", fit.costs);
        LEARNT.iter().chain(&COLD).for_each(|name| explain(&run, name, &fit));
    }
    likeness(&run, &[&LEARNT[..], &COLD[..]].concat(), &fit, &mut table);
    predictions(&run, &fit, &mut table);
    if arguments.held_out.is_some() {
        held_out(&run, &fit, &mut table);
    }
    limits(&run, &fit, &mut table);
    verdicts(&run, &mut table);
    println!("\nThe same shape and traffic, with documents that take room (tests/data/h200-turns)\n");
    turns(&RecordedRun::read(&root.join("tests/data/h200-turns")).unwrap(), arguments.verbose, &mut table);
    println!("\nThe same shape, by the session of results/h200-70b\n");
    let run = RecordedRun::read(&root.join("results/h200-70b")).unwrap();
    proof(&run, &["t001-p01", "t001-p02", "t001-p03"], &["t002-p02"], arguments.verbose, &mut table);
    println!("\nThe same, a search and two proofs (results/h200-70b-search)\n");
    let run = RecordedRun::read(&root.join("results/h200-70b-search")).unwrap();
    let learnt = ["t001-p01", "t001-p02", "t001-p03", "t007-p01", "t008-p01"];
    proof(&run, &learnt, &["t009-p02", "t010-p01"], arguments.verbose, &mut table);
    println!("\nThe same once more, two proofs of the defaults on two launches (results/h200-70b-search-second)\n");
    let run = RecordedRun::read(&root.join("results/h200-70b-search-second")).unwrap();
    let learnt = ["t001-p01", "t001-p02", "t001-p03", "t004-p02", "t005-p01"];
    // Not t006-p03: 41 running for 39 are more than 5 %. Its TPOT p99 is within 2 %.
    let proofs = ["t002-p01", "t002-p02", "t006-p02", "t006-p04"];
    proof(&run, &learnt, &proofs, arguments.verbose, &mut table);
    println!("\nThe begin of two more searches (results/h200-70b-search-third and -fourth)\n");
    let learnt = ["t001-p01", "t001-p02", "t001-p03"];
    let run = RecordedRun::read(&root.join("results/h200-70b-search-third")).unwrap();
    // Not t002-p01, where the KV cache filled and the count decides: three preemptions for two are more than 10 %. Its TPOT p99 is within 5 %.
    proof(&run, &learnt, &["t002-p02", "t005-p01", "t006-p01"], arguments.verbose, &mut table);
    let run = RecordedRun::read(&root.join("results/h200-70b-search-fourth")).unwrap();
    proof(&run, &learnt, &["t002-p01"], arguments.verbose, &mut table);
    println!("\nThe same, driven on a third engine (results/h200-70b/truth)\n");
    let seconds = |from: f64, to: f64| Window { from: Seconds(from), to: Seconds(to) };
    let driven = |folder: &str| root.join("results").join(folder);
    let multi_turn = Driven {
        folder: driven("h200-70b"),
        levels: &["rate-2", "rate-2.3", "rate-2.6", "rate-2.8"],
        window: seconds(35.0, 185.0),
        learnt: &["t001-p01", "t001-p02", "t001-p03", "t002-p01", "t002-p02"],
        like: "t002-p02",
        bounds: [0.15, 0.07],
    };
    multi_turn.by_session(Some(0.07), arguments.verbose, &mut table);
    println!("\nThe same again, its winner driven on two other engines (results/h200-70b-second)\n");
    let levels = &["rate-1.645", "rate-1.8", "rate-2", "rate-2.3"];
    let again = Driven { folder: driven("h200-70b-second"), levels, ..multi_turn };
    again.by_session(Some(0.07), arguments.verbose, &mut table);
    println!("\n8B bf16, multi-turn with think time, 96,000 KV tokens, one H200 (tests/data/h200-8b-turns)\n");
    small_cache(&root.join("tests/data/h200-8b-turns"), &mut table);
    println!("\n8B FP8, multi-turn with think time, one H200 (tests/data/h200-8b-steps)\n");
    seen_steps(&RecordedRun::read(&root.join("tests/data/h200-8b-steps")).unwrap(), &mut table);
    println!("\n8B bf16, single-turn, one H200, driven after its session (results/h200-8b)\n");
    // The cells of the session's journal were made before a step got back what its neighbours took for it.
    let single = Driven {
        folder: driven("h200-8b"),
        levels: &["rate-14.14", "rate-14.88", "rate-15.62", "rate-16.37"],
        window: seconds(6.0, 66.0),
        learnt: &["t001-p01", "t001-p02", "t002-p01"],
        like: "t002-p02",
        bounds: [0.15, 0.1],
    };
    single.by_session_and_streams("rate-14.14", 15.79, arguments.verbose, &mut table);
    let window = seconds(10.0, 55.0);
    println!("\nThe same again (results/h200-8b-second)\n");
    let learnt = &["t001-p01", "t001-p02", "t001-p03", "t002-p01"];
    let levels = &["rate-13.15", "rate-13.84", "rate-14.67"];
    let (like, bounds) = ("t002-p01", [0.2, 0.1]);
    let again = Driven { folder: driven("h200-8b-second"), levels, window, learnt, like, bounds };
    again.by_session(Some(0.07), arguments.verbose, &mut table);
    // The prompts of h200-8b-early-stops are not stored, so nothing draws a long run of them.
    println!("\nReal text, answers that end early (results/h200-8b-early-stops)\n");
    let levels = &["rate-18.98", "rate-19.98", "rate-21.18"];
    let learnt = &["t001-p01", "t001-p02", "t001-p03", "t002-p01", "t002-p02"];
    let early = Driven { folder: driven("h200-8b-early-stops"), levels, learnt, ..again };
    early.by_session(None, arguments.verbose, &mut table);
    println!("\nMulti-turn with think time (results/h200-8b-multi-turn)\n");
    let (levels, window) = (&["rate-15.83"], seconds(12.0, 57.0));
    let turns = Driven { folder: driven("h200-8b-multi-turn"), levels, window, learnt, ..early };
    turns.by_session(Some(0.07), arguments.verbose, &mut table);
    println!("\nA KV cache of 48,000 tokens (results/h200-8b-starved)\n");
    let levels = &["rate-8.3", "rate-8.74", "rate-9.26"];
    let learnt = &["t001-p01", "t001-p02", "t001-p03", "t001-p04", "t002-p01", "t002-p02"];
    let starved = Driven { folder: driven("h200-8b-starved"), levels, learnt, like: "t002-p02", ..early };
    starved.by_session(Some(0.07), arguments.verbose, &mut table);
    println!("\nTPOT p99 <= 13 ms, the defaults and what was found (results/h200-8b-gain)\n");
    let learnt = &["t001-p01", "t001-p02", "t002-p01", "t003-p01", "t004-p01", "t004-p02"];
    let (levels, window) = (&["rate-9.044", "rate-9.52", "rate-10.09"], seconds(4.0, 44.0));
    let defaults = Driven { folder: driven("h200-8b-gain"), levels, window, learnt, like: "t003-p01", ..starved };
    defaults.by_session(Some(0.07), arguments.verbose, &mut table);
    let levels = &["rate-13.57", "rate-14.28", "rate-15.14"];
    let best = Driven { levels, like: "t004-p02", ..defaults };
    best.by_session(Some(0.07), arguments.verbose, &mut table);
    println!("\nThe same with another seed (results/h200-8b-gain-second)\n");
    let learnt = &["t001-p01", "t001-p02", "t002-p01", "t003-p01", "t004-p01", "t004-p02", "t004-p03", "t004-p04"];
    let levels = &["rate-9.756", "rate-10.27", "rate-10.89"];
    let defaults = Driven { folder: driven("h200-8b-gain-second"), levels, learnt, like: "t003-p01", ..best };
    defaults.by_session(Some(0.07), arguments.verbose, &mut table);
    let levels = &["rate-13.66", "rate-14.38", "rate-15.24"];
    Driven { levels, like: "t004-p04", ..defaults }.by_session(Some(0.07), arguments.verbose, &mut table);
    println!("\nThe same on two H200 of one host, by its session (results/h200-8b-two-gpus)\n");
    read_now_and_then(&RecordedRun::read(&root.join("results/h200-8b-two-gpus")).unwrap(), &mut table);
    println!();
    if table.broken == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("{} bounds are broken", table.broken);
    ExitCode::FAILURE
}

/// What the engine was given, as the twin takes it, and by the engine's own counters.
fn served(run: &RecordedRun, table: &mut Table) {
    table.computed(run, &[&LEARNT[..], &COLD[..]].concat());
    let resent = run.resent(COLD[0]).unwrap();
    let what = "tokens of a resent answer over those it had; share found";
    table.row(
        what,
        format!("{:.3}, {:.0} %", resent.growth, resent.found * 100.0),
        "0.45 to 0.6, 0 %",
        (0.45..0.6).contains(&resent.growth) && resent.found == 0.0,
    );
}

fn explain(run: &RecordedRun, name: &str, fit: &Fit) {
    for by_conversation in [false, true] {
        let replayed = run.replay(name, &fit.costs, by_conversation).unwrap();
        for (metric, pairs) in [("ttft", &replayed.ttft), ("tpot", &replayed.tpot)] {
            let (measured, twin) = Replayed::quantile(pairs, 0.99);
            println!(
                "{name} {metric} by conversation {by_conversation:<5} n {} correlation {:.2} typical error {:.1} % p99 {:.1} twin {:.1} ms",
                pairs.len(),
                Replayed::correlation(pairs),
                Replayed::typical_error(pairs) * 100.0,
                measured * 1e3,
                twin * 1e3
            );
        }
    }
}

/// What the engine reported of itself, beside its twin.
fn likeness(run: &RecordedRun, names: &[&str], fit: &Fit, table: &mut Table) {
    for name in names {
        let like = run.likeness(name, &fit.costs).unwrap();
        let pair = |c: Option<Compared>| c.map(|c| (c.engine, c.twin)).unwrap();
        let (running, cache, preempted) = (pair(like.running), pair(like.cache), like.preemptions.unwrap());
        let share = |(engine, twin): (f64, f64)| (engine - twin).abs() / engine.max(1.0);
        let holds = share(running) <= 0.05 && (cache.0 - cache.1).abs() <= 0.05 && share(preempted) <= 0.1;
        let said = format!(
            "{:.0}/{:.0}, {:.0}/{:.0} %, {:.0}/{:.0}",
            running.0,
            running.1,
            cache.0 * 100.0,
            cache.1 * 100.0,
            preempted.0,
            preempted.1
        );
        table.row(&format!("{name}: running, KV in use, preempted, engine/twin"), said, "5 %, 5 points, 10 %", holds);
    }
}

/// Probes that the fit has not seen.
fn predictions(run: &RecordedRun, fit: &Fit, table: &mut Table) {
    for name in COLD {
        let as_sent = run.replay(name, &fit.costs, false).unwrap();
        let correlation = Replayed::correlation(&as_sent.ttft);
        table.row(&format!("{name}: TTFT, correlation"), format!("{correlation:.2}"), ">= 0.8", correlation >= 0.8);
        let error = Replayed::typical_error(&as_sent.ttft);
        table.row(&format!("{name}: TTFT, median error"), format!("{:.1} %", error * 100.0), "<= 10 %", error <= 0.1);
        let followed = run.replay(name, &fit.costs, true).unwrap();
        table.p99(&format!("{name}: TPOT p99, by conversation"), &followed.tpot, 0.07);
    }
}

/// A long run, from the starts of its conversations alone.
fn held_out(run: &RecordedRun, fit: &Fit, table: &mut Table) {
    let replayed = run.replay("held-out", &fit.costs, true).unwrap();
    let squares: f64 = (0..6)
        .map(|i| replayed.running(50.0 + 60.0 * f64::from(i)))
        .map(|(measured, twin)| (measured as f64 - twin as f64).powi(2))
        .sum();
    let rms = (squares / 6.0).sqrt();
    table.row("held out: running at 50, 110 ... 350 s, rms", format!("{rms:.1}"), "<= 5", rms <= 5.0);
    for (metric, pairs, bound) in [("TPOT", &replayed.tpot, 0.04), ("TTFT", &replayed.ttft, 0.15)] {
        table.p99(&format!("held out: {metric} p99"), pairs, bound);
    }
}

/// What the engine can do over long runs, with what it was really served.
fn limits(run: &RecordedRun, fit: &Fit, table: &mut Table) {
    let resent = run.resent(COLD[0]);
    let stress = run.endured(COLD[0], resent, &fit.costs).unwrap().0;
    table.row("stress replay at 214,336 KV tokens, req/s", format!("{stress:.2}"), ">= 2.2", stress >= 2.2);
    let limits = COLD.map(|name| run.limit(name, resent, &fit.costs).unwrap().0);
    for (memory, limit) in [("0.97", limits[0]), ("0.90", limits[1])] {
        let what = format!("limit at gpu-memory-utilization {memory}, req/s");
        table.row(&what, format!("{limit:.2}"), "2.15 to 2.45", (2.15..=2.45).contains(&limit));
    }
    let gain = limits[0] / limits[1] - 1.0;
    table.row("gain of 0.97 over 0.90", format!("{:+.1} %", gain * 100.0), "within 3 %", gain.abs() <= 0.03);
}

/// Probes at a rate, and requests all at once, of the second run.
const STEADY: [&str; 4] = ["t001-p02", "t001-p03", "t002-p02", "t003-p01"];
const AT_ONCE: [&str; 2] = ["t001-p01", "t001-p04"];

/// A cache that fills, and what fits to parts of a session make of the limit.
fn turns(run: &RecordedRun, verbose: bool, table: &mut Table) {
    table.computed(run, &STEADY);
    let fit = run.fit(&STEADY[..2], Effort::SESSION).unwrap();
    if verbose {
        println!("{:#?}", fit.costs);
        STEADY.iter().chain(&AT_ONCE).for_each(|name| explain(run, name, &fit));
    }
    likeness(run, &[&STEADY[..], &AT_ONCE[..]].concat(), &fit, table);
    for name in AT_ONCE {
        let replayed = run.replay(name, &fit.costs, true).unwrap();
        let (correlation, error) = (Replayed::correlation(&replayed.tpot), Replayed::typical_error(&replayed.tpot));
        let said = format!("{correlation:.2}, {:.1} %", error * 100.0);
        let holds = correlation >= 0.95 && error <= 0.05;
        table.row(&format!("{name}: TPOT under preemption, correlation, error"), said, ">= 0.95, <= 5 %", holds);
    }
    for name in &STEADY[2..] {
        let replayed = run.replay(name, &fit.costs, true).unwrap();
        table.p99(&format!("{name}: TPOT p99, under limits that no fit saw"), &replayed.tpot, 0.07);
    }
    // As a session comes to them, one after the other.
    let sets: [&[&str]; 3] = [
        &["t001-p01", "t001-p02"],
        &["t001-p01", "t001-p02", "t001-p03", "t001-p04"],
        &["t001-p01", "t001-p02", "t001-p03", "t001-p04", "t002-p02", "t003-p01"],
    ];
    let resent = run.resent("t001-p03");
    let of = |set: &&[&str]| run.limit("t002-p02", resent, &run.fit(set, Effort::SESSION).unwrap().costs).unwrap().0;
    let limits: Vec<f64> = sets.iter().map(of).collect();
    let (least, most) = limits.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), l| (a.min(*l), b.max(*l)));
    let said = limits.iter().map(|l| format!("{l:.2}")).collect::<Vec<_>>().join(", ");
    table.row("limit at 0.97 by 2, 4 and 6 probes, req/s", said, "within 10 %", most / least <= 1.1);
}

/// A certifying probe on a launch of its own, by what the session knew before it.
fn proof(run: &RecordedRun, learnt: &[&str], proofs: &[&str], verbose: bool, table: &mut Table) {
    let fit = run.fit(learnt, Effort::SESSION).unwrap();
    // Beside one that it learnt.
    let shown = [&learnt[1..2], proofs].concat();
    table.computed(run, &shown);
    likeness(run, &shown, &fit, table);
    for name in proofs {
        if verbose {
            println!("{:#?}", run.verdict(name, learnt));
        }
        let replayed = run.replay(name, &fit.costs, true).unwrap();
        table.p99(&format!("{name}: TPOT p99, seen by no fit"), &replayed.tpot, 0.07);
        let correlation = Replayed::correlation(&run.replay(name, &fit.costs, false).unwrap().ttft);
        table.row(&format!("{name}: TTFT, correlation"), format!("{correlation:.2}"), ">= 0.8", correlation >= 0.8);
    }
}

/// What was driven after a session, beside a twin that saw the session alone.
struct Driven<'a> {
    folder: PathBuf,
    levels: &'a [&'a str],
    window: Window,
    /// The probes of the session that teach the twin, and the one whose engine and traffic the levels had.
    learnt: &'a [&'a str],
    like: &'a str,
    /// Relative bounds of TTFT p99 and TPOT p99.
    bounds: [f64; 2],
}

impl Driven<'_> {
    fn run(&self) -> RecordedRun {
        let mut run = RecordedRun::read(&self.folder).unwrap();
        for name in self.levels {
            run.add(name, self.requests(name), self.like, self.window).unwrap();
        }
        run
    }

    fn requests(&self, level: &str) -> Vec<RequestRecord> {
        requests(&self.folder.join(format!("truth/{level}.requests.csv")))
    }

    /// Each level by a fit; conversations are followed.
    fn levels(&self, run: &RecordedRun, fit: &Fit, by: &str, verbose: bool, table: &mut Table) {
        for name in self.levels {
            if verbose {
                explain(run, name, fit);
            }
            let replayed = run.replay(name, &fit.costs, true).unwrap();
            let metrics = [("TTFT", &replayed.ttft), ("TPOT", &replayed.tpot)];
            for ((metric, pairs), bound) in metrics.into_iter().zip(self.bounds) {
                table.p99(&format!("{name}{by}: {metric} p99"), pairs, bound);
            }
        }
    }

    /// The levels by the session, and within a bound the limit of a long run by the session beside that by what was driven.
    fn by_session(&self, bound: Option<f64>, verbose: bool, table: &mut Table) {
        let run = self.run();
        let fit = run.fit(self.learnt, Effort::SESSION).unwrap();
        self.levels(&run, &fit, "", verbose, table);
        let Some(bound) = bound else { return };
        let resent = run.resent(self.like);
        let long_run = |fit: &Fit| run.limit(self.like, resent, &fit.costs).unwrap().0;
        let (by_session, driven) = (long_run(&fit), long_run(&run.fit(self.levels, Effort::SESSION).unwrap()));
        let off = by_session / driven - 1.0;
        let said = format!("{by_session:.2} for {driven:.2}, {:+.1} %", off * 100.0);
        let holds = off.abs() <= bound;
        table.row(
            "limit by session for that by what was driven",
            said,
            &format!("within {:.0} %", bound * 100.0),
            holds,
        );
    }

    /// The same by the streams of one level as well. The limit stands beside the rate at which TPOT p99 of the levels crosses its promise.
    fn by_session_and_streams(&self, streams: &str, driven: f64, verbose: bool, table: &mut Table) {
        let mut run = self.run();
        let gaps = gaps(&self.folder.join(format!("truth/{streams}.gaps.txt")));
        let with_gaps = |r: RequestRecord| Some(RequestRecord { gaps: gaps.get(&r.id)?.clone(), ..r });
        let seen = self.requests(streams).into_iter().filter_map(with_gaps).collect();
        run.add("streams", seen, self.like, self.window).unwrap();
        for (by, learnt) in [("session", self.learnt), ("streams", &["streams"])] {
            let fit = run.fit(learnt, Effort::SESSION).unwrap();
            self.levels(&run, &fit, &format!(" by {by}"), verbose, table);
            let off = run.limit(self.like, None, &fit.costs).unwrap().0 / driven - 1.0;
            let said = format!("{:.2}, {:+.1} %", driven * (1.0 + off), off * 100.0);
            table.row(&format!("limit by {by}, req/s, for {driven} driven"), said, "within 5 %", off.abs() <= 0.05);
        }
    }
}

/// A proof whose twin was once not believed: between readings two seconds apart, more requests ran than any reading saw. At the proven rate both
/// GPUs keep every promise afterwards.
fn read_now_and_then(run: &RecordedRun, table: &mut Table) {
    let taught = ["t001-p01", "t001-p02", "t001-p03", "t002-p01", "t003-p01"];
    let fit = run.fit(&taught, Effort::SESSION).unwrap();
    for name in ["t001-p02", "t001-p03", "t002-p01", "t003-p01", "t004-p02", "t004-p03"] {
        let like = run.likeness(name, &fit.costs).unwrap();
        let running = like.running.unwrap();
        let said = format!("{:.0}/{:.0}", running.engine, running.twin);
        let holds = like.lacks().is_none() && (running.engine / running.twin - 1.0).abs() <= 0.1;
        table.row(&format!("{name}: running at most when read, engine / twin"), said, "within 10 %", holds);
    }
    let proof = "t004-p03";
    let verdict = run.verdict(proof, &taught).unwrap();
    let said = format!("{:?}, {:.0} %", verdict.outcome, verdict.confidence * 100.0);
    let what = format!("{proof}: {} asked, promises held when driven", run.probes[proof].ask.rate);
    table.row(&what, said, "not fail, by the twin", verdict.outcome != Outcome::Fail && verdict.by_count.is_some());
}

/// Conversations on an engine whose cache is small: fitted to one probe of each rate, asked about the third.
fn small_cache(folder: &Path, table: &mut Table) {
    let bounds = Bounds { max_num_seqs: 1024, max_num_batched_tokens: 8192, kv_tokens: Some(96_000) };
    let [learnt, held_out, busy] = ["r12_d40_s1", "r12_d40_s2", "r18_d40_s3"].map(|name| {
        let records = requests(&folder.join(format!("conv_kv6000_{name}.csv")));
        Probe::served(&records, &Served::of(&records, None, Some(DEFAULT_BLOCK)), bounds)
    });
    let fit = autotune::twin::fit(&[learnt, busy.clone()], Effort::FULL).unwrap();
    for (name, probe) in [("12 req/s, held out", held_out), ("18 req/s, fitted", busy)] {
        let replayed = Replayed::of(&probe, &fit.costs, true, |_| true);
        for (metric, pairs) in [("TTFT", &replayed.ttft), ("TPOT", &replayed.tpot)] {
            table.p99(&format!("{name}: {metric} p99, by conversation"), pairs, 0.08);
        }
    }
}

/// Steps that a client saw, and a step model that was fitted to them and to the answers.
fn seen_steps(run: &RecordedRun, table: &mut Table) {
    let names = ["t001-p01", "t001-p02"];
    let fit = run.fit(&names, Effort::SESSION).unwrap();
    for name in names {
        let off = |step: &SeenSteps| (fit.costs.seconds(&step.work) / step.seconds).ln().abs();
        let mut errors: Vec<f64> = run.steps(name).iter().map(off).collect();
        errors.sort_by(f64::total_cmp);
        let (kinds, typical) = (errors.len(), errors[errors.len() / 2]);
        let what = format!("{name}: durations of {kinds} kinds of steps, median error");
        table.row(&what, format!("{:.1} %", typical * 100.0), "<= 6 %", typical <= 0.06);
    }
    let replayed = run.replay(names[1], &fit.costs, true).unwrap();
    for (metric, pairs, bound) in [("TTFT", &replayed.ttft, 0.15), ("TPOT", &replayed.tpot, 0.07)] {
        table.p99(&format!("t001-p02: {metric} p99, by conversation"), pairs, bound);
    }
}

/// The seconds between the tokens of requests, by their number: `ID,GAP GAP ...` with gaps in tenths of a millisecond.
fn gaps(file: &Path) -> BTreeMap<u32, Vec<f32>> {
    let text = std::fs::read_to_string(file).unwrap();
    let line = |line: &str| {
        let (id, gaps) = line.split_once(',').unwrap();
        let seconds = |gap: &str| gap.parse::<f32>().unwrap() * 1e-4;
        (id.parse().unwrap(), gaps.split_whitespace().map(seconds).collect())
    };
    text.lines().map(line).collect()
}

/// Rates above the limit, by a twin that has not seen the probe.
fn verdicts(run: &RecordedRun, table: &mut Table) {
    for name in &LEARNT[1..4] {
        let others: Vec<&str> = LEARNT.iter().filter(|other| *other != name).copied().collect();
        let verdict = run.verdict(name, &others).unwrap();
        let rate: Rate = run.probes[*name].ask.rate;
        let said = format!("{:?}, {:.0} %", verdict.outcome, verdict.confidence * 100.0);
        let what = format!("{name}: {rate} asked, {:.2} of it came", run.offered(name).unwrap());
        table.row(&what, said, "fail", verdict.outcome == Outcome::Fail);
    }
}
