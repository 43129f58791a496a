//! What a session ends with, in 80 columns: the gain, both points side by side, what to change and what to do next.

use std::fmt::Write;
use std::path::Path;

use super::bench::text::wrapped;
use super::outcome::{Answer, Outcome};
use super::shell_quoted;
use crate::colour::{Colour, Tone};
use crate::journal::{
    BUDGET_TOO_SMALL, Journal, NO_CANDIDATE, PROOF_OF_DEFAULTS, Record, Status, names_budget, without_budget,
};
use crate::printable::printable;
use crate::problems::join;
use crate::space::Value;
use crate::units::Seconds;

/// What no proof of minutes covers, and what covering it takes.
const DRIFT: &str =
    "Not covered: an engine that slows down after the proof. Drive the certified rate again after an hour to see it.";

/// A headline of more characters is cut where its reasons begin.
const LONG_HEADLINE: usize = 100;

/// So many lines of a log are shown.
const LAST_LINES: usize = 10;

/// What a person wants to know at the end; with `verbose`, also what the certified rates were taken from. `flags` are those that another run
/// has to repeat.
pub(crate) fn summary(outcome: &Outcome, folder: &Path, flags: &str, verbose: bool, colour: Colour) -> String {
    let headline = headline(outcome);
    let (answer, reasons) = reasons(&headline);
    let tone = match outcome.status {
        Status::Certified => Tone::Pass,
        Status::Uncertified | Status::Interrupted => Tone::Warning,
        Status::NotReachable | Status::NeverStarted => Tone::Fail,
    };
    let source = colour.first(Tone::Warning, "Simulated engine", &wrapped("", 0, &source(outcome)));
    let mut text = format!("\n{source}\n{}\n", colour.whole(tone, wrapped("", 0, &answer).trim_end()));
    text.extend(reasons.iter().map(|reason| wrapped("  - ", 4, reason)));
    for part in [aligned(&rows(outcome, verbose)), parameters(outcome)] {
        if !part.is_empty() {
            text += "\n";
            text += &part;
        }
    }
    text += "\n";
    for what in left_out(outcome) {
        text += &colour.first(Tone::Warning, "Left out:", &wrapped("", 2, &format!("Left out: {what}")));
    }
    if let Some(says) = enough(outcome) {
        text += &wrapped("", 2, &says);
    }
    let drift = (outcome.status == Status::Certified).then(|| DRIFT.to_owned());
    for says in latencies(outcome, verbose).into_iter().chain(drift) {
        text += &colour.whole(Tone::Quiet, wrapped("", 2, &says).trim_end());
        text += "\n";
    }
    let cost = &outcome.cost;
    let together = match (outcome.workers, outcome.elapsed) {
        (Some(workers @ 2..), Some(elapsed)) => format!(" of {workers} workers in {elapsed}"),
        _ => String::new(),
    };
    let forecast = outcome.forecast.filter(|_| verbose);
    let forecast = forecast.map_or(String::new(), |forecast| format!("; expected: {forecast}"));
    text += &wrapped("", 2, &format!("Cost: {cost}{together}{forecast}"));
    if let Some((what, command)) = next(outcome, folder, flags) {
        text += &format!("{} {what}\n  {command}\n", colour.whole(Tone::Strong, "Next:"));
    }
    // Of a run in a cluster, only the outcome comes back.
    let files =
        ["args.txt", "report.html", "report.md", "outcome.json", "trials.csv", "journal.jsonl", "requests/", "trials/"];
    let there: Vec<&str> = files.into_iter().filter(|file| folder.join(file).exists()).collect();
    if !there.is_empty() {
        text += &wrapped("", 2, &format!("Files in {}: {}", folder.display(), there.join(", ")));
    }
    text
}

/// The log of the last failed start with its last lines, where no engine ever served. Empty where one did, or where the log is elsewhere.
pub fn failed_start(journal: &Journal, folder: &Path) -> String {
    let conclusion = journal.conclusion().filter(|conclusion| conclusion.status == Status::NeverStarted);
    let last = conclusion.and(journal.entries.iter().rev().find_map(|entry| match entry.record {
        Record::NotReady { trial, attempt, .. } => Some((trial, attempt)),
        _ => None,
    }));
    let Some((trial, attempt)) = last else { return String::new() };
    let log = folder.join(format!("trials/t{trial:03}-{attempt}/engine.log"));
    let Ok(bytes) = std::fs::read(&log) else { return String::new() };
    let words = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = words.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return String::new();
    }
    let last: String =
        lines[lines.len().saturating_sub(LAST_LINES)..].iter().map(|line| format!("  {line}\n")).collect();
    format!("The last lines of {}:\n{}", log.display(), printable(&last))
}

/// Whether anything was measured, and on what.
pub(super) fn source(outcome: &Outcome) -> String {
    let nodes: Vec<String> = outcome.nodes.iter().map(ToString::to_string).collect();
    let place = if nodes.is_empty() { String::new() } else { format!(", on {}", nodes.join(" and ")) };
    if outcome.simulated {
        return format!("Simulated engine{place}: no number is a measurement.");
    }
    let Some(model) = &outcome.model else { return "No engine served.".to_owned() };
    let version = outcome.engine_version.as_ref().map_or(String::new(), |version| format!(", engine {version}"));
    let gpus = if outcome.gpus.is_empty() { String::new() } else { format!(", {}", outcome.gpus.join(", ")) };
    let says = if is_unmeasured(outcome) { "Served" } else { "Measured" };
    format!("{says}: {model}{version}{gpus}{place}.")
}

/// The answer in a sentence.
pub(super) fn headline(outcome: &Outcome) -> String {
    let best = outcome.best.as_ref().filter(|_| outcome.status != Status::Interrupted);
    let certified = best.map(|best| best.certified_rate.is_some());
    match (certified, outcome.gain) {
        (None, _) => {
            let (first, rest) = outcome.because.split_at(outcome.because.chars().next().map_or(0, char::len_utf8));
            format!("{}{}.", first.to_uppercase(), rest.trim_end_matches('.'))
        }
        (Some(false), _) => "Not certified: the rates below are estimates of the search.".to_owned(),
        (Some(true), _)
            if defaults_win(outcome)
                && let Some(untried) = was_left_out(outcome, NO_CANDIDATE) =>
        {
            let kept = without_budget(untried).is_some();
            let why = if kept { "the rest of the budget was kept for proofs" } else { "none promised a gain" };
            format!("The defaults are certified. No candidate was tried, since {why}.")
        }
        (Some(true), _) if defaults_win(outcome) && lacks_budget(outcome) => {
            "The defaults are the best point found with this budget.".to_owned()
        }
        (Some(true), _) if defaults_win(outcome) => {
            "The defaults are the best point found: keep your arguments.".to_owned()
        }
        (Some(true), None) => {
            "The tuned arguments are certified, the defaults are not: the gain is not known.".to_owned()
        }
        (Some(true), Some(gain)) => {
            let interval = outcome.gain_interval.map_or(String::new(), |[from, to]| interval(from, to));
            let unsure =
                if outcome.gain_interval.is_some_and(|[from, _]| from <= 0.0) { " It may be no gain." } else { "" };
            format!("The tuned arguments serve {:.0} % more than the defaults{interval}.{unsure}", gain * 100.0)
        }
    }
}

/// A long headline without its reasons, and these.
pub(super) fn reasons(headline: &str) -> (String, Vec<&str>) {
    match headline.split_once("; ").filter(|_| headline.len() > LONG_HEADLINE) {
        Some((answer, rest)) => (format!("{answer}."), rest.trim_end_matches('.').split("; ").collect()),
        None => (headline.to_owned(), Vec::new()),
    }
}

pub(super) fn interval(from: f64, to: f64) -> String {
    format!(" (90 %: {:+.0} to {:+.0} %)", from * 100.0, to * 100.0)
}

/// Whether points or proofs were left out for want of a budget.
fn lacks_budget(outcome: &Outcome) -> bool {
    outcome.left_out.iter().any(|what| names_budget(what))
}

/// What was left out that begins like that.
fn was_left_out<'a>(outcome: &'a Outcome, begins: &str) -> Option<&'a String> {
    outcome.left_out.iter().find(|what| what.starts_with(begins))
}

/// What is said of defaults that are not certified; outcomes of earlier versions called them the baseline.
fn proof_of_defaults_left_out(outcome: &Outcome) -> Option<&String> {
    [PROOF_OF_DEFAULTS, "the certification of the baseline"].iter().find_map(|begins| was_left_out(outcome, begins))
}

/// What was left out and why; in one sentence what the budget had no room for.
pub(super) fn left_out(outcome: &Outcome) -> Vec<String> {
    let (by_budget, mut said): (Vec<String>, Vec<String>) =
        outcome.left_out.iter().cloned().partition(|what| without_budget(what).is_some());
    if !by_budget.is_empty() {
        let what = by_budget.iter().filter_map(|what| without_budget(what)).map(str::to_owned);
        said.insert(0, format!("{}, since {BUDGET_TOO_SMALL}", join(what, "and")));
    }
    said
}

pub(super) fn defaults_win(outcome: &Outcome) -> bool {
    let parameters = |answer: &Option<Answer>| answer.as_ref().map(|answer| answer.parameters.clone());
    outcome.best.is_some() && parameters(&outcome.best) == parameters(&outcome.baseline)
}

/// The points to show; one where the defaults win.
pub(super) fn columns(outcome: &Outcome) -> Vec<(&'static str, &Answer)> {
    let tuned = outcome.best.as_ref().filter(|_| !defaults_win(outcome));
    let columns = [("defaults", outcome.baseline.as_ref()), ("tuned", tuned)];
    columns.into_iter().filter_map(|(name, answer)| Some((name, answer?))).collect()
}

/// A cell of [`rows`] for a page.
pub(super) fn shown(cell: &Option<String>) -> String {
    cell.as_ref().map_or_else(|| "none".to_owned(), |cell| cell.replace("+-", "±"))
}

/// A share that is never rounded up.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).floor())
}

/// A label, and a cell for each of [`columns`].
pub(super) type Row = (String, Vec<Option<String>>);

/// Rates, and beside each limit what is expected at the certified rate. Where that is not known or with `verbose`, also what the probe nearest
/// to it measured. The first row names the columns. Empty where nothing is known.
pub(super) fn rows(outcome: &Outcome, verbose: bool) -> Vec<Row> {
    let columns = columns(outcome);
    let mut rows: Vec<Row> = Vec::new();
    let mut row = |label: &str, cell: &dyn Fn(&Answer) -> Option<String>| {
        rows.push((label.to_owned(), columns.iter().map(|(_, answer)| cell(answer)).collect()));
    };
    row("certified rate", &|a| a.certified_rate.map(|rate| rate.to_string()));
    row("  confidence", &|a| a.certified_rate.and(a.confidence).map(percent));
    for (key, limit) in &outcome.limits {
        row(&format!("  {key}, limit {limit}"), &|a| a.expected.get(key).map(Seconds::to_string));
    }
    // An estimate beside a certified rate would be another number for the same thing.
    let certified = columns.iter().all(|(_, answer)| answer.certified_rate.is_some());
    if verbose || !certified {
        row("estimate of the search", &|a| {
            Some(a.estimated_rate.map_or_else(|| unknown(outcome, a), |rate| format!("about {rate}")))
        });
    }
    if verbose {
        row("limit, from the proof", &|a| Some(format!("{} +-{:.1} %", a.limit?, a.limit_error? * 100.0)));
    }
    row("breaks first", &|a| a.binding.clone());
    let nearest = shows_nearest(outcome, verbose);
    let seen = |a: &Answer| a.seen.clone().filter(|_| nearest);
    row("nearest probe at", &|a| seen(a).map(|seen| seen.rate.to_string()));
    row("  its requests", &|a| seen(a).map(|seen| seen.requests.to_string()));
    for (key, limit) in &outcome.limits {
        let there = |a: &Answer| seen(a)?.measured.get(key).map(|measured| beyond(*measured, *limit));
        row(&format!("  its {key}, limit {limit}"), &there);
    }
    rows.retain(|(_, cells)| cells.iter().any(Option::is_some));
    if is_unmeasured(outcome) {
        rows.clear();
    }
    if !rows.is_empty() {
        rows.insert(0, (String::new(), columns.iter().map(|(name, _)| Some((*name).to_owned())).collect()));
    }
    rows
}

/// Whether it ended before any point was probed at a rate.
fn is_unmeasured(outcome: &Outcome) -> bool {
    let columns = columns(outcome);
    let none = |answer: &Answer| answer.probes == Some(0) && answer.estimated_rate.is_none();
    !columns.is_empty() && columns.iter().all(|(_, answer)| none(answer))
}

/// Whether the latencies at a certified rate are known.
fn expects(outcome: &Outcome) -> bool {
    columns(outcome).iter().any(|(_, answer)| !answer.expected.is_empty())
}

/// Whether [`rows`] has the probe that is nearest to a certified rate.
fn shows_nearest(outcome: &Outcome, verbose: bool) -> bool {
    verbose || !expects(outcome)
}

/// Of what the latencies of [`rows`] are, and why a measured one above its limit does not contradict a certified rate.
pub(super) fn latencies(outcome: &Outcome, verbose: bool) -> Vec<String> {
    let above = |(name, answer): &(&str, &Answer)| -> Vec<String> {
        let (Some(seen), Some(_)) = (&answer.seen, answer.certified_rate) else { return Vec::new() };
        let above = |(key, limit): (&String, &Seconds)| {
            let (measured, long) = ((*seen.measured.get(key)?)?, answer.long_run.get(key)?);
            let shows = measured > *limit && measured.to_string() != limit.to_string();
            (shows && long <= limit).then(|| format!(
                "{name}: at {}, {key} was {measured}, above its limit of {limit}. The twin has a reason: this window's arrivals were heavier \
                 than those of a long run, where {key} is about {long} at this rate.",
                seen.rate
            ))
        };
        outcome.limits.iter().filter_map(above).collect()
    };
    let nearest = if shows_nearest(outcome, verbose) { columns(outcome) } else { Vec::new() };
    meant(outcome).map(str::to_owned).into_iter().chain(nearest.iter().flat_map(above)).collect()
}

/// Of what the latencies of [`rows`] are.
fn meant(outcome: &Outcome) -> Option<&'static str> {
    let columns = columns(outcome);
    let some = |of: fn(&Answer) -> bool| columns.iter().any(|(_, answer)| of(answer));
    if expects(outcome) {
        // Only a twin tells of a long run.
        let by_model = some(|answer| !answer.long_run.is_empty());
        Some(if by_model {
            "Latencies: expected at the certified rate, from all certifying probes and the model of the engine."
        } else {
            "Latencies: expected at the certified rate, from all certifying probes."
        })
    } else {
        let elsewhere = |a: &Answer| a.seen.as_ref().is_some_and(|seen| Some(seen.rate) != a.certified_rate);
        some(|answer| answer.seen.is_some()).then_some(if some(elsewhere) {
            "Latencies: of the certifying probe nearest to the certified rate, not at that rate."
        } else {
            "Latencies: measured at the certified rate."
        })
    }
}

/// The budget that would have been enough, where one was not.
pub(super) fn enough(outcome: &Outcome) -> Option<String> {
    let flag = budget_flag(outcome)?;
    let starts = outcome.slowest_start.map_or(String::new(), |start| format!(", where a start takes {start}"));
    Some(format!("{flag} is expected to be enough for what the budget left out{starts}."))
}

fn budget_flag(outcome: &Outcome) -> Option<String> {
    let seconds = outcome.enough_budget?.0;
    let time =
        if seconds < 100.0 { format!("{:.0}s", seconds.ceil()) } else { format!("{:.0}m", (seconds / 60.0).ceil()) };
    Some(format!("--budget {time}"))
}

/// Rows as text, their cells below each other.
pub(super) fn aligned(rows: &[Row]) -> String {
    let wide = |cells: &mut dyn Iterator<Item = usize>| cells.max().unwrap_or(0);
    let first = wide(&mut rows.iter().map(|(label, _)| label.chars().count()));
    let cell = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "none".to_owned());
    let others: Vec<usize> = (0..rows.first().map_or(0, |(_, cells)| cells.len()))
        .map(|c| wide(&mut rows.iter().map(|(_, cells)| cell(&cells[c]).chars().count())))
        .collect();
    let mut text = String::new();
    for (label, cells) in rows {
        let cells: String = cells.iter().zip(&others).map(|(one, width)| format!("   {:>width$}", cell(one))).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {label:first$}{cells}");
    }
    text
}

/// A quantile; where it lies among requests without an answer, it is beyond the limit.
fn beyond(measured: Option<Seconds>, limit: Seconds) -> String {
    measured.map_or_else(|| format!("above {limit}"), |measured| measured.to_string())
}

/// Why there is no rate.
fn unknown(outcome: &Outcome, answer: &Answer) -> String {
    match answer.probes {
        Some(0) => "not measured",
        Some(_) => "no rate held",
        None if outcome.status == Status::NotReachable => "no rate held",
        None => "unknown",
    }
    .to_owned()
}

/// Each parameter, with its change.
pub(super) fn changes(outcome: &Outcome) -> Vec<(&str, String)> {
    let Some(best) = &outcome.best else { return Vec::new() };
    let before = |name: &str| outcome.baseline.as_ref().and_then(|baseline| baseline.parameters.get(name));
    let change = |name| {
        let now = best.parameters.get(name).map_or(String::new(), Value::to_string);
        let change = match before(name).map(Value::to_string) {
            Some(before) if before == now => now,
            Some(before) => format!("{before} -> {now}"),
            None => format!("the engine's own -> {now}"),
        };
        (name, change)
    };
    best.parameters.0.keys().map(|name| change(name.as_str())).collect()
}

/// [`changes`] as text.
fn parameters(outcome: &Outcome) -> String {
    let changes = changes(outcome);
    let wide = changes.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    changes.iter().map(|(name, change)| format!("  {name:wide$}   {change}\n")).collect()
}

/// What to do with the answer, and the command that does it, with the flags of the run.
pub(super) fn next(outcome: &Outcome, folder: &Path, flags: &str) -> Option<(&'static str, String)> {
    let folder = shell_quoted(&folder.display().to_string());
    let export = format!("autotune export --outcome {folder} --manifest deployment.yaml --form diff");
    let again = format!("autotune --space {}{flags} --out {folder}", shell_quoted(&outcome.space_file));
    let larger = format!("{again} --fresh {}", budget_flag(outcome).unwrap_or_else(|| "--budget TIME".to_owned()));
    Some(match outcome.status {
        Status::Certified if defaults_win(outcome) && lacks_budget(outcome) => {
            ("try what was left out, with a larger budget", larger)
        }
        Status::Certified if defaults_win(outcome) => return None,
        Status::Certified
            if outcome.gain.is_none() && proof_of_defaults_left_out(outcome).is_some_and(|what| names_budget(what)) =>
        {
            ("certify the defaults too, with a larger budget", larger)
        }
        Status::Certified => ("put the arguments into your manifest", export),
        Status::Uncertified if outcome.best.is_some() && !defaults_win(outcome) => {
            ("run it again with a larger budget, or export the point as it is", format!("{export} --uncertified"))
        }
        Status::Uncertified => ("run it again with a larger budget", larger),
        Status::NotReachable => {
            ("raise the limits in [slo] or search other parameters, then", format!("{again} --fresh"))
        }
        Status::NeverStarted => ("correct the space file or the machine, then", format!("{again} --fresh")),
        Status::Interrupted => ("continue", format!("{again} --resume")),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::report::bench::text::WIDTH;
    use crate::units::Rate;

    fn stored() -> Outcome {
        serde_json::from_str(include_str!("../../tests/data/outcome.json")).unwrap()
    }

    fn said(outcome: &Outcome) -> String {
        let text = summary(outcome, Path::new("autotune-out/quickstart"), "", false, Colour::NONE);
        let long = text.lines().find(|line| line.chars().count() > WIDTH && !line.starts_with("  autotune "));
        assert_eq!(long, None);
        text
    }

    #[test]
    fn the_answer_is_a_sentence_a_table_and_a_command() {
        insta::assert_snapshot!(said(&stored()), @"

        Simulated engine: no number is a measurement.

        The tuned arguments serve 22 % more than the defaults (90 %: +16 to +30 %).

                                       defaults        tuned
          certified rate             65.9 req/s   80.7 req/s
            confidence                     95 %         95 %
            tpot_p99, limit 7.0 ms       4.8 ms       6.7 ms
            ttft_p99, limit 150 ms      81.2 ms      88.5 ms
          breaks first                 ttft_p99     tpot_p99

          gpu-memory-utilization   0.85 -> 0.94
          max-num-batched-tokens   2048 -> 256
          max-num-seqs             128 -> 16

        Latencies: expected at the certified rate, from all certifying probes and the
          model of the engine.
        Not covered: an engine that slows down after the proof. Drive the certified rate
          again after an hour to see it.
        Cost: 8 launches, 12 probes, 39.5 s of engine time
        Next: put the arguments into your manifest
          autotune export --outcome autotune-out/quickstart --manifest deployment.yaml --form diff
        ");
    }

    #[test]
    fn a_window_above_its_limit_beside_a_certified_rate_is_explained() {
        let journal = |bytes: &[u8]| crate::report::outcome(&crate::journal::read(bytes).unwrap());
        let outcome = journal(include_bytes!("../../results/h200-70b-second/journal.jsonl"));
        assert_eq!(
            latencies(&outcome, true)[1..],
            [
                "defaults: at 1.687 req/s, ttft_p99 was 1.1 s, above its limit of 1.0 s. The twin has a reason: this window's arrivals \
              were heavier than those of a long run, where ttft_p99 is about 315 ms at this rate."
            ]
        );
        assert_eq!(latencies(&outcome, false).len(), 1, "the table has no probe");
        let kept = journal(include_bytes!("../../results/h200-8b/journal.jsonl"));
        assert_eq!(latencies(&kept, true).len(), 1);
        // Where the count judges, or a long run breaks the promise too, nothing explains the window.
        for long_run in [None, Some(Seconds(1.01))] {
            let mut unexplained = outcome.clone();
            let long_run = long_run.map(|long| ("ttft_p99".to_owned(), long));
            unexplained.best.iter_mut().for_each(|best| best.long_run = long_run.clone().into_iter().collect());
            unexplained.baseline.clone_from(&unexplained.best);
            assert_eq!(latencies(&unexplained, true).len(), 1, "{long_run:?}");
        }
    }

    #[test]
    fn the_defaults_that_win_are_printed_once() {
        let mut outcome = stored();
        outcome.best.clone_from(&outcome.baseline);
        outcome.left_out = vec![
            "a larger memory share: the budget is too small".to_owned(),
            "12 of the candidates: the budget is too small".to_owned(),
        ];
        outcome.enough_budget = Some(Seconds(1_180.0));
        insta::assert_snapshot!(said(&outcome), @"

        Simulated engine: no number is a measurement.

        The defaults are the best point found with this budget.

                                       defaults
          certified rate             65.9 req/s
            confidence                     95 %
            tpot_p99, limit 7.0 ms       4.8 ms
            ttft_p99, limit 150 ms      81.2 ms
          breaks first                 ttft_p99

          gpu-memory-utilization   0.85
          max-num-batched-tokens   2048
          max-num-seqs             128

        Left out: a larger memory share and 12 of the candidates, since the budget is
          too small
        --budget 20m is expected to be enough for what the budget left out, where a
          start takes 376 ms.
        Latencies: expected at the certified rate, from all certifying probes and the
          model of the engine.
        Not covered: an engine that slows down after the proof. Drive the certified rate
          again after an hour to see it.
        Cost: 8 launches, 12 probes, 39.5 s of engine time
        Next: try what was left out, with a larger budget
          autotune --space search-spaces/quickstart.toml --out autotune-out/quickstart --fresh --budget 20m
        ");
        outcome.left_out[1] = "all candidates: the budget ended".to_owned();
        assert!(headline(&outcome).ends_with("the rest of the budget was kept for proofs."), "{outcome:?}");
        outcome.left_out[1] =
            "all candidates: none is expected to gain, apart from what the budget left out".to_owned();
        assert!(headline(&outcome).ends_with("No candidate was tried, since none promised a gain."), "{outcome:?}");
        outcome.status = Status::Uncertified;
        assert!(said(&outcome).contains(" --fresh --budget 20m\n"), "nobody exports the defaults");
    }

    #[test]
    fn arguments_beside_defaults_that_are_not_certified_are_no_known_gain() {
        let mut outcome = stored();
        outcome.baseline.iter_mut().for_each(|baseline| baseline.certified_rate = None);
        (outcome.gain, outcome.gain_interval) = (None, None);
        assert!(headline(&outcome).ends_with("the gain is not known."), "{}", headline(&outcome));
        assert!(said(&outcome).contains("autotune export "), "no budget helps");
        let dies = "the certification of the defaults: the engine runs out of memory";
        outcome.left_out = vec!["3 of the candidates: the budget is too small".to_owned(), dies.to_owned()];
        assert!(said(&outcome).contains("autotune export "), "a budget certifies no engine that dies");
        outcome.left_out = vec!["the certification of the defaults: the budget is too small".to_owned()];
        outcome.enough_budget = Some(Seconds(78.0));
        let text = said(&outcome);
        assert!(text.contains(" --fresh --budget 78s\n") && !text.contains("autotune export "), "{text}");
    }

    #[test]
    fn latencies_beside_a_certified_rate_keep_their_limits_or_are_said_to_be_of_another_rate() {
        let mut outcome = stored();
        let text = said(&outcome);
        assert!(text.contains("Latencies: expected at the certified rate, from all certifying probes"), "{text}");
        assert!(!text.contains("84.9 req/s"), "the rate of the nearest probe: {text}");
        let text = summary(&outcome, Path::new("out"), "", true, Colour::NONE);
        assert!(text.contains("nearest probe at") && text.contains("84.9 req/s"), "{text}");
        for answer in outcome.best.iter_mut().chain(&mut outcome.baseline) {
            answer.expected.clear();
        }
        let text = said(&outcome);
        assert!(text.contains("nearest probe at") && text.contains("84.9 req/s"), "{text}");
        assert!(text.contains("Latencies: of the certifying probe nearest to the certified rate, not at"), "{text}");
    }

    #[test]
    fn colour_adds_codes_and_no_words() {
        let colour = Colour::of(false, |name| (name == "CLICOLOR_FORCE").then(|| "1".into()));
        for status in [Status::Certified, Status::Uncertified, Status::NotReachable] {
            let outcome = Outcome { status, left_out: vec!["a point".to_owned()], ..stored() };
            let of = |colour| summary(&outcome, Path::new("out"), "", false, colour);
            let coloured = of(colour);
            assert_eq!(console::strip_ansi_codes(&coloured), of(Colour::NONE));
            assert!(
                coloured.contains("\u{1b}[1mNext:\u{1b}[0m") && coloured.contains("\u{1b}[33mLeft out:"),
                "{coloured}"
            );
        }
    }

    #[test]
    fn what_was_not_measured_is_not_what_no_rate_holds() {
        let mut outcome = stored();
        outcome.status = Status::Uncertified;
        for answer in outcome.best.iter_mut().chain(&mut outcome.baseline) {
            (answer.certified_rate, answer.estimated_rate, answer.seen) = (None, None, None);
        }
        for (probes, expected) in [(0, "not measured"), (3, "no rate held")] {
            outcome.baseline.as_mut().unwrap().probes = Some(probes);
            outcome.best.as_mut().unwrap().estimated_rate = Some(Rate(86.2));
            let text = said(&outcome);
            assert!(
                text.contains(expected) && text.contains("about 86.2 req/s") && text.contains("--uncertified"),
                "{text}"
            );
        }
    }

    #[test]
    fn another_run_repeats_the_flags_of_this_one_and_reasons_stand_below_the_answer() {
        let because = format!("no point keeps the promises; tpot_p99 binds; at 2.49 req/s, {}", "too slow ".repeat(9));
        let (status, best) = (Status::NotReachable, None);
        let outcome = Outcome { status, because, best, gain: None, gain_interval: None, ..stored() };
        let flags = " --seed 4 --precision 8%";
        let text = summary(&outcome, Path::new("my out"), flags, false, Colour::NONE);
        for part in [
            "\nNo point keeps the promises.\n  - tpot_p99 binds\n  - at 2.49 req/s, too slow",
            "autotune --space search-spaces/quickstart.toml --seed 4 --precision 8% --out 'my out' --fresh\n",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn where_nothing_was_measured_there_is_no_table_and_the_next_command_has_a_budget() {
        let mut outcome = Outcome {
            status: Status::Uncertified,
            simulated: false,
            best: None,
            gain: None,
            gain_interval: None,
            because: "nothing was measured: the budget of 16 min is too small for a probe at a rate; it took 4 min to start and warm up the engine"
                .to_owned(),
            left_out: vec!["24 of the candidates: the budget is too small".to_owned()],
            enough_budget: Some(Seconds(5_000.0)),
            cost: crate::journal::Cost { launches: 1, probes: 1, engine_seconds: Seconds(342.0) },
            ..stored()
        };
        if let Some(answer) = &mut outcome.baseline {
            (answer.certified_rate, answer.estimated_rate, answer.probes) = (None, None, Some(0));
            (answer.seen, answer.expected) = (None, BTreeMap::new());
        }
        insta::assert_snapshot!(said(&outcome), @"

        Served: sim-model, engine 0.32.0+sim.

        Nothing was measured: the budget of 16 min is too small for a probe at a rate.
          - it took 4 min to start and warm up the engine

        Left out: 24 of the candidates, since the budget is too small
        --budget 84m is expected to be enough for what the budget left out, where a
          start takes 376 ms.
        Cost: 1 launch, 1 probe, 6 min of engine time
        Next: run it again with a larger budget
          autotune --space search-spaces/quickstart.toml --out autotune-out/quickstart --fresh --budget 84m
        ");
    }

    #[test]
    fn the_gain_is_the_ratio_of_the_two_rates_that_stand_below_it() {
        let text = said(&stored());
        let mut rates = text.lines().find(|line| line.contains("certified rate")).unwrap().split_whitespace();
        let mut rate = || rates.find_map(|word| word.parse::<f64>().ok()).unwrap();
        let (defaults, tuned) = (rate(), rate());
        assert!(text.contains(&format!("serve {:.0} % more", (tuned / defaults - 1.0) * 100.0)), "{text}");
    }

    #[test]
    fn a_failed_start_shows_the_end_of_its_log_without_what_moves_a_cursor() {
        use crate::engine::diagnosis::{Cause, Consequence, Diagnosis};
        use crate::journal::{Conclusion, Entry};
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("trials/t001-2")).unwrap();
        let log: String = (0..40).map(|n| format!("line {n}\x1b[2J\n")).collect();
        let write = |log: &str| std::fs::write(folder.path().join("trials/t001-2/engine.log"), log).unwrap();
        let diagnosis =
            Diagnosis { cause: Cause::Crashed, line: None, says: "it broke".into(), consequence: Consequence::Abort };
        let failure = crate::rig::Failure { diagnosis, took: Seconds(1.0) };
        let conclusion = Conclusion {
            status: Status::NeverStarted,
            because: String::new(),
            baseline: None,
            best: None,
            left_out: Vec::new(),
            enough_budget: None,
            forecast: None,
        };
        let records = [Record::NotReady { trial: 1, attempt: 2, failure }, Record::Concluded(Box::new(conclusion))];
        let entries = records.into_iter().map(|record| Entry { at: 0.0, record }).collect();
        let journal = Journal { entries, ..Journal::default() };
        write("\n");
        assert_eq!(failed_start(&journal, folder.path()), "");
        write(&log);
        let text = failed_start(&journal, folder.path());
        assert!(text.contains("t001-2/engine.log") && text.contains("line 39") && !text.contains("line 29"), "{text}");
        assert!(!text.contains('\x1b') && text.lines().count() == 1 + LAST_LINES, "{text}");
    }
}
