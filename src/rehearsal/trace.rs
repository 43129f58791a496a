//! When a session came to which point: its incumbents with what it had spent by then.

use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::journal::{Cost, Entry, Record};
use crate::progress::{Event, Sink};
use crate::search::Incumbent;
use crate::space::Point;
use crate::units::{Rate, Seconds};

/// A point that was the best so far.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Improvement {
    /// Seconds of the engine spent by then.
    pub spent: Seconds,
    /// The point.
    pub point: Point,
    /// The rate that it was thought to keep.
    pub rate: Rate,
}

/// Listens to a session for its incumbents, and passes on what it hears.
pub(super) struct Ear<'a> {
    heard: Mutex<Heard>,
    sink: &'a dyn Sink,
}

#[derive(Default)]
struct Heard {
    probes: u32,
    /// Each with the number of probes before it.
    incumbents: Vec<(u32, Incumbent)>,
}

impl Sink for Ear<'_> {
    fn take(&self, event: &Event<'_>) {
        self.sink.take(event);
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Probed { .. } => heard.probes += 1,
            Event::Improved(incumbent) => {
                let probes = heard.probes;
                heard.incumbents.push((probes, (*incumbent).clone()));
            }
            _ => {}
        }
    }
}

impl<'a> Ear<'a> {
    pub(super) fn new(sink: &'a dyn Sink) -> Self {
        Self { heard: Mutex::default(), sink }
    }

    /// The incumbents, with the time that the records of the session give them.
    pub(super) fn improvements(self, entries: &[Entry]) -> Vec<Improvement> {
        let heard = self.heard.into_inner().unwrap_or_else(PoisonError::into_inner);
        let probed = |e: &Entry| matches!(e.record, Record::Probed { .. });
        let ends: Vec<usize> = entries.iter().enumerate().filter(|(_, e)| probed(e)).map(|(at, _)| at + 1).collect();
        let spent = |probes: u32| match probes.checked_sub(1) {
            Some(before) => Cost::of(&entries[..ends.get(before as usize).copied().unwrap_or(entries.len())]),
            None => Cost::default(),
        };
        heard
            .incumbents
            .into_iter()
            .map(|(probes, Incumbent { point, rate })| Improvement { spent: spent(probes).engine_seconds, point, rate })
            .collect()
    }
}

/// What was spent from the first launch on that proves an answer.
pub(super) fn proof(entries: &[Entry]) -> Seconds {
    let proves = |e: &Entry| matches!(&e.record, Record::Launching { purpose, .. } if purpose.certifies());
    let from = entries.iter().position(proves).unwrap_or(entries.len());
    Cost::of(&entries[from..]).engine_seconds
}
