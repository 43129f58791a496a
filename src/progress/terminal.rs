//! A live line for a terminal: what runs now and for how long, the best point, the budget, the time left. What ended scrolls above it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::painted::painted;
use super::plain::{Lines, time};
use super::{Event, Sink};
use crate::colour::Colour;
use crate::printable::{printable, wrapped};
use crate::units::Seconds;

/// The columns of a terminal that does not tell.
const WIDTH: usize = 80;
/// What stands before the words of the live line: spinner, bar, elapsed time and blanks.
const BEFORE: usize = 18;
/// A live line that a narrower terminal wrapped leaves its end below the cursor.
const ERASE_BELOW: &str = "\x1b[J";

pub struct Terminal {
    bar: ProgressBar,
    colour: Colour,
    shown: Mutex<Shown>,
    /// The words of the live line, for whoever draws it.
    words: Arc<Mutex<Vec<Said>>>,
}

/// A text in full, and for a narrow terminal.
#[derive(Clone, Debug, Default)]
struct Said {
    full: String,
    short: String,
}

impl Said {
    fn new(full: impl Into<String>, short: impl Into<String>) -> Self {
        Self { full: full.into(), short: short.into() }
    }
}

struct Shown {
    lines: Lines,
    /// What each trial does at this moment, by its number; several where several workers do something.
    now: BTreeMap<u32, Said>,
    load: Said,
    left: Said,
}

impl Terminal {
    /// With the reasons of each decision where they are asked for.
    pub(crate) fn new(verbose: bool, colour: Colour) -> Self {
        let bar = ProgressBar::new(1000);
        let words = Arc::<Mutex<Vec<Said>>>::default();
        let latest = Arc::clone(&words);
        // Whenever it is drawn, since the terminal may have another width than before.
        let fitted = move |_: &ProgressState, line: &mut dyn fmt::Write| {
            let words = fitting(&latest.lock().unwrap_or_else(PoisonError::into_inner), columns());
            let _ = line.write_str(&printable(&words));
        };
        // With the cursor at its beginning, the echo of Ctrl-C does not wrap a full line. The empty message fills the rest with blanks, which
        // the bar would otherwise write from there.
        let template = format!("{ERASE_BELOW}{{spinner}} [{{bar:8}}] {{elapsed:>3}} {{words}}{{wide_msg}}\r");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("=> ").with_key("words", fitted));
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        let (lines, now) = (Lines::new(verbose), BTreeMap::new());
        let shown = Mutex::new(Shown { lines, now, load: Said::default(), left: Said::default() });
        Self { bar, colour, shown, words }
    }
}

fn columns() -> usize {
    console::Term::stderr().size_checked().map_or(WIDTH, |(_, columns)| usize::from(columns))
}

impl Shown {
    /// The parts of the live line: what is done now, then what was spent, then the best point.
    fn parts(&self) -> Vec<Said> {
        let best = Said {
            full: self.lines.best_so_far().unwrap_or_default().trim_end_matches(',').to_owned(),
            short: self.lines.best_rate().map_or(String::new(), |rate| format!("best {rate}")),
        };
        self.now.values().chain([&self.load, &self.left, &best]).cloned().collect()
    }
}

/// The words of the live line in so many columns: each part in full where it fits, that of the best point first.
fn fitting(parts: &[Said], columns: usize) -> String {
    let room = columns.saturating_sub(BEFORE + 1);
    let fits = |texts: &[&str]| joined(texts).chars().count() <= room;
    let mut texts: Vec<&str> = parts.iter().map(|said| said.short.as_str()).collect();
    if !fits(&texts) {
        // What matters least is left out, and one part alone is cut.
        texts.reverse();
        while texts.len() > 1 && !fits(&texts) {
            texts.pop();
        }
        return joined(&texts).chars().take(room).collect();
    }
    for (n, part) in parts.iter().enumerate().rev() {
        let short = std::mem::replace(&mut texts[n], part.full.as_str());
        if !fits(&texts) {
            texts[n] = short;
        }
    }
    joined(&texts)
}

fn joined(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" | ")
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
                shown.left = Said::new(time(*spent, *left, *budget), of(*spent, *budget));
            }
            Event::Loading { level, elapsed, length, answered, failed, open } => {
                self.bar.set_position((1000.0 * (elapsed.0 / length.0.max(1e-9)).min(1.0)) as u64);
                shown.load = Said::new(
                    format!("{level}: {answered} answered, {failed} failed, {open} in flight"),
                    format!("{answered} ok, {failed} failed"),
                );
                shown.left = Said::new(format!("{elapsed} of {length}"), of(*elapsed, *length));
            }
            Event::Ended(_) => self.bar.finish_and_clear(),
            _ => {
                if let Some(line) = shown.lines.line(event) {
                    let line = painted(self.colour, event, &line, |line| folded(line, columns()));
                    // The bar's own way to print fills lines with blanks, which wrap where the terminal becomes narrower.
                    self.bar.suspend(|| drop(writeln!(std::io::stderr(), "{ERASE_BELOW}{line}")));
                }
                match event {
                    Event::Launching { trial, alters, .. } => {
                        let waits = if *alters { "the engine takes new limits" } else { "the engine starts" };
                        let short = waits.trim_start_matches("the ");
                        shown.now.insert(*trial, Said::new(format!("trial {trial}: {waits}"), short));
                        self.bar.reset_elapsed();
                    }
                    Event::Probing { trial, ask } => {
                        let (full, short) = if ask.is_burst() {
                            ("requests at once".to_owned(), "burst".to_owned())
                        } else {
                            (format!("{} for {}", ask.rate, ask.window.to), format!("at {}", ask.rate))
                        };
                        shown.now.insert(*trial, Said::new(format!("trial {trial}: {full}"), short));
                        self.bar.reset_elapsed();
                    }
                    Event::Ready { trial, .. } | Event::Probed { trial, .. } | Event::Failed { trial, .. } => {
                        shown.now.remove(trial);
                    }
                    _ => {}
                }
            }
        }
        *self.words.lock().unwrap_or_else(PoisonError::into_inner) = shown.parts();
    }
}

/// How much of a time has passed, with one unit where both have the same: `8 of 12 min`.
fn of(spent: Seconds, whole: Seconds) -> String {
    let (spent, whole) = (spent.to_string(), whole.to_string());
    match (spent.split_once(' '), whole.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} of {whole}"),
        _ => format!("{spent} of {whole}"),
    }
}

/// A line in so many columns: what it is too short for stands below it, indented by two more. The last column stays free, where
/// terminals differ in what a full line does to the cursor.
fn folded(line: &str, columns: usize) -> String {
    let indent = line.len() - line.trim_start().len();
    wrapped(&" ".repeat(indent), indent + 2, line, columns.saturating_sub(1)).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Incumbent;
    use crate::space::{Point, Value};
    use crate::units::Rate;

    #[test]
    fn words_are_whole_at_any_width() {
        let text = "trial 1, baseline: starting with gpu-memory-utilization 0.85, max-num-seqs 128";
        let expected = "trial 1, baseline: starting with\n  gpu-memory-utilization 0.85,\n  max-num-seqs 128";
        assert_eq!(folded(text, 40), expected);
        assert_eq!(folded(text, 80), text, "79 columns hold the line");
        assert_eq!(folded("    log: trials/t001-1/engine.log", 24), "    log:\n      trials/t001-1/engine.log");
        assert_eq!(folded("a\u{1b}[2J b", 80), "a\u{fffd}[2J b");
    }

    #[test]
    fn a_narrow_terminal_gets_a_shorter_line_that_has_the_best_rate_and_the_budget() {
        let mut lines = Lines::new(false);
        let defaults = Point::default().with("max-num-seqs", Value::Int(128));
        let other = Point::default().with("max-num-seqs", Value::Int(16));
        let of_defaults = Event::Launching {
            trial: 1,
            attempt: 1,
            purpose: crate::journal::Purpose::Baseline,
            point: &defaults,
            alters: false,
        };
        lines.line(&of_defaults);
        for (point, rate) in [(&defaults, 68.4), (&other, 89.5)] {
            lines.line(&Event::Improved {
                best: &Incumbent { point: point.clone(), rate: Rate(rate) },
                defaults: Some(Rate(68.4)),
            });
        }
        let now = BTreeMap::from([(12, Said::new("trial 12: 89.5 req/s for 30.0 s", "at 89.5 req/s"))]);
        let (spent, left, budget) = (Seconds(480.0), Seconds(180.0), Seconds(720.0));
        let left = Said::new(time(spent, left, budget), super::of(spent, budget));
        let shown = Shown { lines, now, load: Said::default(), left };
        let best = "best so far: about 89.5 req/s, defaults 68.4 req/s";
        let full = "trial 12: 89.5 req/s for 30.0 s | 8 min of 12 min, about 3 min to go | best so far: about 89.5 req/s, defaults 68.4 req/s";
        let short = "at 89.5 req/s | 8 of 12 min | best 89.5 req/s";
        let at = |columns| fitting(&shown.parts(), columns);
        assert_eq!(at(160), full);
        assert_eq!(at(120), format!("trial 12: 89.5 req/s for 30.0 s | 8 of 12 min | {best}"));
        assert_eq!(at(110), format!("at 89.5 req/s | 8 of 12 min | {best}"));
        assert_eq!(at(80), short);
        assert_eq!(at(60), "best 89.5 req/s | 8 of 12 min", "none is cut");
        assert_eq!(at(36), "best 89.5 req/s");
        assert_eq!(super::of(Seconds(39.5), Seconds(720.0)), "39.5 s of 12 min");
    }
}
