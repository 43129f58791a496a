//! `report.md`: the answer for a pull request, with what it rests on.

use super::data::ReportData;
use super::html::{next_step, repeat_command};
use super::summary::{changes, defaults_win, enough, headline, latencies, left_out, percent, rows, shown, source};
use super::{args_txt, env_txt};
use crate::printable::printable;
use crate::verdict::{Outcome, Verdict};

pub(super) fn markdown(data: &ReportData<'_>) -> String {
    let outcome = &data.outcome;
    let mut text = format!("## {}\n\n{}\n", plain(&headline(outcome)), plain(&source(outcome)));
    let table = rows(outcome, true);
    if let Some(((_, names), rows)) = table.split_first() {
        let cells = |cells: &[Option<String>]| cells.iter().map(shown).collect::<Vec<_>>();
        let rows = rows.iter().map(|(label, row)| (label.trim().to_owned(), cells(row)));
        text += &table_of("", &cells(names), rows);
        text.extend(latencies(outcome, true).iter().map(|says| format!("\n{}\n", plain(says))));
    } else {
        let (trials, probes) = (data.trials.len(), data.at_rates().count());
        text += &format!("\nThere is no answer yet: {trials} trials and {probes} probes at a rate are recorded.\n");
    }
    let changes = changes(outcome);
    if !changes.is_empty() {
        let rows = changes.into_iter().map(|(name, change)| (name.to_owned(), vec![change.replace("->", "→")]));
        let head = if defaults_win(outcome) { "value" } else { "defaults → answer" };
        text += &table_of("parameter", &[head.to_owned()], rows);
    }
    if let Some(best) = &outcome.best {
        text += &format!("\nArguments:\n\n{}", code(&args_txt(&best.arguments)));
        if !best.environment.is_empty() {
            text += &format!("\nEnvironment:\n\n{}", code(&env_txt(best)));
        }
    }
    if let Some((what, command)) = next_step(data) {
        text += &format!("\nNext: {}\n\n{}", plain(what), code(&command));
    }
    text += "\n### Certifying probes\n";
    let proofs: Vec<(String, Vec<String>)> = data
        .at_rates()
        .filter(|(trial, _)| trial.purpose.certifies())
        .map(|(trial, probe)| {
            (
                format!("{}, trial {}", trial.whose.words(), trial.number),
                proof(probe.ask.rate.to_string(), probe.verdict),
            )
        })
        .collect();
    if proofs.is_empty() {
        text += "\nNone. All rates above are estimates of the search.\n";
    } else {
        let mut head = ["asked", "arrived", "requests", "confidence"].map(str::to_owned).to_vec();
        head.extend(data.limits().iter().map(|l| format!("{}, limit {}", l.key(), l.at_most)));
        text += &table_of("point", &head, proofs);
    }
    if !outcome.left_out.is_empty() {
        text += "\n### Left out\n\n";
        text += &left_out(outcome).iter().map(|what| format!("* {}\n", plain(what))).collect::<String>();
        text += &enough(outcome).map_or(String::new(), |says| format!("\n{says}\n"));
    }
    text += &format!("\nCost: {}.\n", outcome.cost);
    if let Some(command) = repeat_command(data) {
        text += &format!("\n### Repeat this run\n\n{}", code(&command));
    }
    text
}

fn proof(asked: String, verdict: &Verdict) -> Vec<String> {
    let mut row = vec![
        asked,
        verdict.offered.to_string(),
        verdict.counted.to_string(),
        if verdict.outcome == Outcome::Void { "void".to_owned() } else { percent(verdict.confidence) },
    ];
    row.extend(verdict.limits.iter().map(|limit| match (limit.measured, limit.decided_by_pair()) {
        (Some(measured), Some(paired)) => format!("{measured} measured, {} in a long run", paired.estimate),
        (Some(measured), None) => format!("{measured} measured"),
        (None, _) => "not measured".to_owned(),
    }));
    row
}

fn table_of(first: &str, head: &[String], rows: impl IntoIterator<Item = (String, Vec<String>)>) -> String {
    let line = |first: &str, cells: &[String]| {
        format!("| {} | {} |\n", plain(first), cells.iter().map(|cell| plain(cell)).collect::<Vec<_>>().join(" | "))
    };
    let mut text = format!("\n{}|---|{}\n", line(first, head), "---:|".repeat(head.len()));
    text.extend(rows.into_iter().map(|(first, cells)| line(&first, &cells)));
    text
}

/// Text that Markdown shows as it is, on one line.
fn plain(text: &str) -> String {
    let mut safe = String::new();
    for c in printable(text).chars() {
        match c {
            '\n' | '\t' => safe.push(' '),
            '<' => safe.push_str("&lt;"),
            '&' => safe.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '~' | '!' | '@' => safe.extend(['\\', c]),
            c => safe.push(c),
        }
    }
    safe
}

/// A block of code whose fence is longer than any within.
fn code(text: &str) -> String {
    let text = printable(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}sh\n{}\n{fence}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::journal::read;

    #[test]
    fn the_answer_of_a_recorded_run_fits_a_pull_request() {
        let journal = read(include_bytes!("../../results/h200-8b/journal.jsonl")).unwrap();
        let text = markdown(&ReportData::new(&journal, Path::new("run")));
        for part in [
            "## The defaults are the best point found",
            "Measured: /tmp/models/8b, engine 0.24.0, NVIDIA H200.",
            "| certified rate | 14.88 req/s |",
            "--max-num-seqs 1024",
            "| defaults, trial 2 | 13.73 req/s | 13.79 req/s | 1241 | 98 % |",
            "autotune --space .h200/8b.toml --seed 1 --budget 720s --strategy bayes --precision 4%",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let longest = text.lines().map(|line| line.matches(" | ").count()).max();
        assert_eq!(longest, Some(6), "{text}");
    }

    #[test]
    fn hostile_words_stay_words() {
        assert_eq!(plain("<b>|`x`\n![a](b) @you"), "&lt;b>\\|\\`x\\` \\!\\[a\\](b) \\@you");
        assert_eq!(code("a```\n## b"), "````sh\na```\n## b\n````\n");
    }
}
