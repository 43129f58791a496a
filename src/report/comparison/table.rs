//! A comparison in 80 columns.

use super::NAMES;
use super::answer::signed;
use super::cell::Cell;
use super::data::{Comparison, LevelCompared};
use crate::report::bench::Offered;
use crate::report::bench::spread::{OfSpread, QUANTILES};
use crate::report::bench::table::size;
use crate::report::bench::text::{NOTHING, entry, millis, percent};

const INDENT: usize = 10;
/// So many turns of conversations are told.
const TURNS: u32 = 10;
/// So many names of what is the same are told.
const NAMED: usize = 4;

/// Both sides, what differs, their levels beside each other, the paired differences, each limit, and the difference in a sentence.
pub fn compared(comparison: &Comparison) -> String {
    let Comparison { sides, levels, answers, .. } = comparison;
    let mut text = String::new();
    for (name, side) in NAMES.iter().zip(sides) {
        let fact = |name: &str| side.facts.get(name).cloned();
        let told: Vec<String> = fact("model").into_iter().chain(fact("engine version")).collect();
        text += &entry(name, INDENT, &format!("{} ({})", side.what, told.join(", ")));
    }
    text += &entry("workload", INDENT, &format!("{}; seed {}", comparison.workload, comparison.seed));
    let (sweeps, count) = (comparison.sweeps, levels.len());
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    text += &entry(
        "measured",
        INDENT,
        &format!(
            "{sweeps} sweep{} of {count} level{} on both sides, the order turned from one to the next, within {}",
            plural(sweeps as usize),
            plural(count),
            comparison.seconds
        ),
    );
    text += &differs(comparison);
    text += &entry("cache", INDENT, &comparison.cache);
    text += &replicas(levels);
    text += &format!("\n{}\n", grid(levels));
    text += &paired(levels);
    text += &by_turn(comparison);
    for (name, answer) in NAMES.iter().zip(answers) {
        text += &entry(name, 3, &answer.because);
    }
    text += "\n";
    text += &entry("", 0, &comparison.because);
    text + &comparison.warnings.iter().map(|warning| entry("warning", 9, warning)).collect::<String>()
}

fn differs(comparison: &Comparison) -> String {
    let told = |value: &Option<String>| value.clone().unwrap_or_else(|| "not told".to_owned());
    let differs: Vec<String> =
        comparison.differs.iter().map(|d| format!("{}: {} | {}", d.name, told(&d.a), told(&d.b))).collect();
    let differs = if differs.is_empty() { "nothing that the servers tell".to_owned() } else { differs.join("; ") };
    // What everybody asks for first; flags follow.
    let first = |name: &&String| ["engine version", "model", "max-model-len"].contains(&name.as_str());
    let mut same: Vec<&String> = comparison.same.iter().filter(first).collect();
    same.extend(comparison.same.iter().filter(|name| !first(name)));
    let more = same.len().saturating_sub(NAMED);
    let named: Vec<&str> = same.iter().take(NAMED).map(|name| name.as_str()).collect();
    let same = match (named.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => entry("same", INDENT, &named.join(", ")),
        (false, more) => entry("same", INDENT, &format!("{} and {more} more", named.join(", "))),
    };
    entry("differs", INDENT, &differs) + &same
}

/// The share of requests of each replica at the heaviest level.
fn replicas(levels: &[LevelCompared]) -> String {
    let Some(level) = levels.last() else { return String::new() };
    if level.sides.iter().all(|cell| cell.replica_shares.is_empty()) {
        return entry("replicas", INDENT, "one, or not told apart by /metrics");
    }
    let told = |(name, cell): (&&str, &Cell)| {
        let shares: Vec<String> = cell.replica_shares.iter().map(|share| percent(*share)).collect();
        format!("{name}: {}", if shares.is_empty() { "not told apart".to_owned() } else { shares.join(", ") })
    };
    let told: Vec<String> = NAMES.iter().zip(&level.sides).map(told).collect();
    entry("replicas", INDENT, &format!("{} of the requests, at {}", told.join("; "), level.offered))
}

/// The level whose turns are shown: the heaviest that one side keeps, or the lightest.
pub(in crate::report) fn told_by_turn(comparison: &Comparison) -> Option<&LevelCompared> {
    let kept = comparison.answers.iter().filter_map(|answer| answer.level).fold(0.0, f64::max);
    let has = |level: &&LevelCompared| level.sides.iter().any(|cell| !cell.turns.is_empty());
    let all = || comparison.levels.iter().filter(has);
    all().rfind(|level| level.offered.size().is_some_and(|size| size <= kept)).or_else(|| all().next())
}

fn by_turn(comparison: &Comparison) -> String {
    let Some(level) = told_by_turn(comparison) else { return String::new() };
    let most = level.sides.iter().flat_map(|cell| &cell.turns).map(|turn| turn.turn).max().unwrap_or(0);
    let mut text = format!("{:2}at {}, by turn:\n{:8}", "", level.offered, "");
    for name in NAMES {
        text += &format!("  {name}: ttft p50    p99 cached");
    }
    text += "\n";
    for turn in 1..=most.min(TURNS) {
        text += &format!("{turn:>6}  ");
        for cell in &level.sides {
            let seen = cell.turns.iter().find(|seen| seen.turn == turn);
            let latency = |of: OfSpread| millis(seen.map(|seen| of(&seen.ttft)));
            let cached = seen.and_then(|seen| seen.cached_share).map_or(NOTHING.to_owned(), percent);
            text += &format!("{:>14}{:>7}{cached:>7}", latency(|s| s.median), latency(|s| s.p99));
        }
        text += "\n";
    }
    if most > TURNS {
        text += &entry("", 6, &format!("and {} more turns, which compare.json has", most - TURNS));
    }
    text + "\n"
}

type OfCell = Box<dyn Fn(&Cell) -> String>;

fn grid(levels: &[LevelCompared]) -> String {
    let mut columns: Vec<([&str; 2], usize, OfCell)> = Vec::new();
    for (name, value) in QUANTILES {
        columns.push((["ttft", name], 7, Box::new(move |c| millis(c.ttft.as_ref().map(value)))));
    }
    for (name, value) in QUANTILES {
        columns.push((["tpot", name], 6, Box::new(move |c| millis(c.tpot.as_ref().map(value)))));
    }
    columns.push((
        ["out", "tok/s"],
        7,
        Box::new(|c| c.output_throughput.map_or(NOTHING.to_owned(), |r| format!("{:.0}", r.0))),
    ));
    columns.push((["", "cached"], 7, Box::new(|c| c.cached_share.map_or(NOTHING.to_owned(), percent))));
    columns.push((["", "failed"], 7, Box::new(|c| c.failed.to_string())));
    if levels.iter().flat_map(|l| &l.sides).any(|c| c.acceptance_length.is_some()) {
        let accepted = |c: &Cell| c.acceptance_length.map_or(NOTHING.to_owned(), |length| format!("{length:.2}"));
        // It takes the place of the failures, which the sentence of each limit tells.
        columns.pop();
        columns.push((["accept", "length"], 7, Box::new(accepted)));
    }
    let unit = if levels.iter().any(|l| matches!(l.offered, Offered::Rate(_))) { "req/s" } else { "users" };
    let head =
        |line: usize| columns.iter().map(|(head, width, _)| format!("{:>width$}", head[line])).collect::<String>();
    let mut text = format!("{:8} in ms\n{:8}{}\n{unit:>6}  {}  breaks\n", "", "", head(0).trim_end(), head(1));
    for level in levels {
        for (side, cell) in level.sides.iter().enumerate() {
            let size = if side == 0 { size(level.offered) } else { String::new() };
            let cells: String = columns.iter().map(|(_, width, of)| format!("{:>width$}", of(cell))).collect();
            text += &format!("{size:>6} {}{cells}  {}\n", NAMES[side], cell.breaks());
        }
    }
    text
}

/// B against A at each level, in the quantiles that have a limit.
fn paired(levels: &[LevelCompared]) -> String {
    let lines: Vec<String> = levels
        .iter()
        .filter(|level| !level.differences.is_empty())
        .map(|level| {
            let is_throughput = |(key, _): &(&String, _)| *key == "output_throughput";
            let limits = level.differences.iter().filter(|d| !is_throughput(d));
            let told = limits.chain(level.differences.iter().filter(is_throughput)).map(|(key, difference)| {
                let key = if key == "output_throughput" { "tokens per second" } else { key };
                format!("{key} {} ({} to {})", signed(difference.ratio), signed(difference.from), signed(difference.to))
            });
            entry("", 2, &format!("{}: {}", level.offered, told.collect::<Vec<_>>().join(", ")))
        })
        .collect();
    if lines.is_empty() {
        String::new()
    } else {
        format!("B against A, paired by sweep (90 % intervals):\n{}\n", lines.concat())
    }
}
