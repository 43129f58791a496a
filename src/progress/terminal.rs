//! A live line for a terminal: what runs now and for how long, the best point, the budget, the time left; what ended scrolls above it.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::plain::{Lines, time};
use super::{Event, Sink};
use crate::printable::{printable, wrapped};

/// The columns of a terminal that does not tell.
const WIDTH: usize = 80;

pub struct Terminal {
    bar: ProgressBar,
    shown: Mutex<Shown>,
}

struct Shown {
    lines: Lines,
    /// What each trial does at this moment, by its number; several where several workers do something.
    now: BTreeMap<u32, String>,
    load: String,
    left: String,
}

impl Terminal {
    /// With the reasons of each decision where they are asked for.
    pub fn new(verbose: bool) -> Self {
        let bar = ProgressBar::new(1000);
        // The last part is cut where the terminal is narrow. With the cursor at its beginning, the echo of Ctrl-C does not wrap a full line.
        if let Ok(style) = ProgressStyle::with_template("{spinner} [{bar:12}] {elapsed:>3} {wide_msg}\r") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        let lines = Lines::new(verbose);
        Self { bar, shown: Mutex::new(Shown { lines, now: BTreeMap::new(), load: String::new(), left: String::new() }) }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Sink for Terminal {
    fn take(&self, event: &Event<'_>) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Standing { spent, left, budget } => {
                self.bar.set_position((1000.0 * spent.0 / (spent.0 + left.0).max(1e-9)) as u64);
                shown.left = time(*spent, *left, *budget);
            }
            Event::Loading { level, elapsed, length, answered, failed, open } => {
                self.bar.set_position((1000.0 * (elapsed.0 / length.0.max(1e-9)).min(1.0)) as u64);
                shown.load = format!("{level}: {answered} answered, {failed} failed, {open} in flight");
                shown.left = format!("{elapsed} of {length}");
            }
            Event::Ended(_) => self.bar.finish_and_clear(),
            _ => {
                if let Some(line) = shown.lines.line(event) {
                    let columns =
                        console::Term::stderr().size_checked().map_or(WIDTH, |(_, columns)| usize::from(columns));
                    // The bar's own way to print fills lines with blanks, which wrap where the terminal becomes narrower.
                    let line = folded(&line, columns);
                    self.bar.suspend(|| drop(writeln!(std::io::stderr(), "{line}")));
                }
                match event {
                    Event::Launching { trial, alters, .. } => {
                        let waits = if *alters { "the engine takes new limits" } else { "the engine starts" };
                        shown.now.insert(*trial, format!("trial {trial}: {waits}"));
                        self.bar.reset_elapsed();
                    }
                    Event::Probing { trial, ask } => {
                        let what = if ask.is_burst() {
                            "requests at once".to_owned()
                        } else {
                            format!("{} for {}", ask.rate, ask.window.to)
                        };
                        shown.now.insert(*trial, format!("trial {trial}: {what}"));
                        self.bar.reset_elapsed();
                    }
                    Event::Ready { trial, .. } | Event::Probed { trial, .. } | Event::Failed { trial, .. } => {
                        shown.now.remove(trial);
                    }
                    _ => {}
                }
            }
        }
        let best = shown.lines.best_so_far().unwrap_or_default();
        let parts =
            shown.now.values().map(String::as_str).chain([&*shown.load, &*shown.left, best.trim_end_matches(',')]);
        let message = parts.filter(|p| !p.is_empty()).collect::<Vec<_>>().join(" | ");
        self.bar.set_message(printable(&message).into_owned());
    }
}

/// Text in so many columns: what a line is too short for stands below it, indented by two more. The last column stays free, where
/// terminals differ in what a full line does to the cursor.
fn folded(text: &str, columns: usize) -> String {
    let line = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        wrapped(&" ".repeat(indent), indent + 2, line, columns.saturating_sub(1))
    };
    text.lines().map(line).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_at_any_width() {
        let text = "trial 1, baseline: starting with gpu-memory-utilization 0.85, max-num-seqs 128\n    log: trials/t001-1/engine.log";
        let expected = "trial 1, baseline: starting with\n  gpu-memory-utilization 0.85,\n  max-num-seqs 128\n    log: trials/t001-1/engine.log";
        assert_eq!(folded(text, 40), expected);
        assert_eq!(folded(text, 80), text, "79 columns hold the first line");
        assert_eq!(folded("a\u{1b}[2J b", 80), "a\u{fffd}[2J b");
    }
}
