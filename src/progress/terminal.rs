//! A live line for a terminal: what runs now, the incumbent, the budget, the time left; what ended scrolls above it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::plain::{begins, line};
use super::{Event, Sink};
use crate::printable::printable;

/// Draws on standard error.
pub struct Terminal {
    bar: ProgressBar,
    shown: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    /// What each trial does at this moment, by its number; several where several workers do something.
    now: BTreeMap<u32, String>,
    load: String,
    best: String,
    left: String,
}

impl Default for Terminal {
    fn default() -> Self {
        let bar = ProgressBar::new(1000);
        if let Ok(style) = ProgressStyle::with_template("{spinner} [{bar:24}] {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar, shown: Mutex::new(Shown::default()) }
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
            Event::Launching { trial, point, alters, .. } => {
                shown.now.insert(*trial, format!("trial {trial}: {} {point}", begins(*alters)));
            }
            Event::Probing { rate, length, trial } => {
                shown.now.insert(*trial, format!("trial {trial}: {rate} for {length}"));
            }
            Event::Standing { spent, left, budget } => {
                self.bar.set_position((1000.0 * spent.0 / (spent.0 + left.0).max(1e-9)) as u64);
                shown.left = format!("{spent} of {budget}, about {left} left");
            }
            Event::Loading { level, elapsed, length, answered, failed, open } => {
                self.bar.set_position((1000.0 * (elapsed.0 / length.0.max(1e-9)).min(1.0)) as u64);
                shown.load = format!("{level}: {answered} answered, {failed} failed, {open} in flight");
                shown.left = format!("{elapsed} of {length}");
            }
            Event::Ended(_) => self.bar.finish_and_clear(),
            _ => {
                match event {
                    Event::Improved(incumbent) => shown.best = format!("best {}", incumbent.rate),
                    Event::Ready { trial, .. } | Event::Probed { trial, .. } | Event::Failed { trial, .. } => {
                        shown.now.remove(trial);
                    }
                    _ => {}
                }
                if let Some(line) = line(event) {
                    self.bar.println(printable(&line));
                }
            }
        }
        let Shown { now, load, best, left } = &*shown;
        let parts = now.values().chain([load, best, left]).map(String::as_str);
        let message = parts.filter(|p| !p.is_empty()).collect::<Vec<_>>().join(" | ");
        self.bar.set_message(printable(&message).into_owned());
    }
}
