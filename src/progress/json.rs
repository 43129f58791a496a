//! One JSON object per line and event, for a log that machines read.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::plain::Lines;
use super::{Event, Sink};
use crate::clock;
use crate::printable::printable;
use crate::units::Rate;
use crate::verdict::Outcome;

/// A line of the log. Keys that the event has no value for are left out.
#[derive(Debug, Serialize)]
struct LogLine<'a> {
    #[serde(with = "crate::clock::rfc3339")]
    at: Option<f64>,
    level: &'static str,
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trial: Option<u32>,
    /// Requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Rate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    message: &'a str,
}

/// Words that belong to no event, as a line of the same log.
pub(crate) fn message(level: &'static str, text: &str) -> String {
    line(&LogLine {
        at: Some(clock::unix_seconds()),
        level,
        event: "message",
        trial: None,
        rate: None,
        outcome: None,
        message: text,
    })
}

fn line(line: &LogLine<'_>) -> String {
    serde_json::to_string(line).unwrap_or_default()
}

/// Writes each event that plain lines would show.
pub(crate) struct JsonLines(Mutex<Lines>);

impl JsonLines {
    /// With the reasons of each decision where they are asked for.
    pub(crate) fn new(verbose: bool) -> Self {
        Self(Mutex::new(Lines::new(verbose)))
    }
}

impl Sink for JsonLines {
    fn take(&self, event: &Event<'_>) {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner).line(event);
        if let Some(text) = text {
            let line = of_event(event, &text, clock::unix_seconds());
            drop(writeln!(std::io::stderr().lock(), "{line}"));
        }
    }
}

fn of_event(event: &Event<'_>, text: &str, at: f64) -> String {
    let (name, trial) = match event {
        Event::Begun { .. } => ("begun", None),
        Event::Resumed { .. } => ("resumed", None),
        Event::Launching { trial, .. } => ("launching", Some(*trial)),
        Event::Ready { trial, .. } => ("ready", Some(*trial)),
        Event::Failed { trial, .. } => ("failed", Some(*trial)),
        Event::Probing { trial, .. } => ("probing", Some(*trial)),
        Event::Probed { trial, .. } => ("probed", Some(*trial)),
        Event::Fitted(_) => ("fitted", None),
        Event::Improved { .. } => ("improved", None),
        Event::Note(_) => ("note", None),
        Event::Detail(_) => ("detail", None),
        Event::Standing { .. } => ("standing", None),
        Event::Loading { .. } => ("loading", None),
        Event::Ended(_) => ("ended", None),
    };
    let (rate, outcome) = match event {
        Event::Probing { ask, .. } if !ask.is_burst() => (Some(ask.rate), None),
        Event::Probed { ask, verdict, .. } if !ask.is_burst() => (Some(ask.rate), Some(verdict.outcome)),
        Event::Improved { best, .. } => (Some(best.rate), None),
        _ => (None, None),
    };
    let level = match event {
        Event::Failed { .. } => "warning",
        Event::Ready { mismatches, .. } if !mismatches.is_empty() => "warning",
        _ => "info",
    };
    line(&LogLine { at: Some(at), level, event: name, trial, rate, outcome, message: &printable(text) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::diagnosis::{Cause, Consequence, Diagnosis};
    use crate::journal::Purpose;
    use crate::search::Incumbent;
    use crate::space::Point;

    #[test]
    fn each_line_is_an_object_with_its_time_and_what_is_known_of_the_event() {
        let (mut lines, point) = (Lines::new(false), Point::default());
        let mut said = |event: &Event<'_>| {
            let text = lines.line(event).unwrap();
            serde_json::from_str::<serde_json::Value>(&of_event(event, &text, 1_795_000_000.4)).unwrap()
        };
        let launching =
            Event::Launching { trial: 3, attempt: 1, purpose: Purpose::Search, point: &point, alters: false };
        let message = "trial 3, search: starting with the engine's defaults";
        let expected = serde_json::json!({
            "at": "2026-11-18T11:06:40Z", "level": "info", "event": "launching", "trial": 3, "message": message,
        });
        assert_eq!(said(&launching), expected);
        let improved =
            said(&Event::Improved { best: &Incumbent { point: Point::default(), rate: Rate(9.5) }, defaults: None });
        assert_eq!((&improved["event"], &improved["rate"]), (&"improved".into(), &9.5.into()));
        let note = said(&Event::Note("a\nb\u{1b}[2J"));
        assert_eq!((&note["level"], &note["message"]), (&"info".into(), &"a\nb\u{fffd}[2J".into()));
        let diagnosis = Diagnosis {
            cause: Cause::OutOfMemory,
            line: None,
            says: "The device ran out of memory.".into(),
            consequence: Consequence::MemoryBound,
        };
        let failed = said(&Event::Failed { trial: 3, diagnosis: &diagnosis, again: false });
        assert_eq!((&failed["level"], &failed["event"]), (&"warning".into(), &"failed".into()));
    }
}
