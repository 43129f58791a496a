//! When a session came to which point, its incumbents with what it had spent by then; and what it spent the engine's time on.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::events::{Event, Sink};
use crate::journal::{Cost, Entry, Purpose, Record};
use crate::rig::ProbeAsk;
use crate::search::Incumbent;
use autotune_plan::space::Point;
use autotune_records::units::{Rate, Seconds};

/// A point that was the best so far.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Improvement {
    /// Seconds of the engine spent by then.
    pub spent: Seconds,
    pub point: Point,
    /// The rate that it was thought to keep.
    pub rate: Rate,
}

/// A sink that records the incumbents of a session, and passes every event on to another sink.
pub(super) struct IncumbentRecorder<'a> {
    recorded: Mutex<Recorded>,
    sink: &'a dyn Sink,
}

#[derive(Default)]
struct Recorded {
    probes: u32,
    /// Each with the number of probes before it.
    incumbents: Vec<(u32, Incumbent)>,
}

impl Sink for IncumbentRecorder<'_> {
    fn take(&self, event: &Event<'_>) {
        self.sink.take(event);
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Probed { .. } => recorded.probes += 1,
            Event::Improved(incumbent) => {
                let probes = recorded.probes;
                recorded.incumbents.push((probes, (*incumbent).clone()));
            }
            _ => {}
        }
    }
}

impl<'a> IncumbentRecorder<'a> {
    pub(super) fn new(sink: &'a dyn Sink) -> Self {
        Self { recorded: Mutex::default(), sink }
    }

    /// The incumbents, with the time that the records of the session give them.
    pub(super) fn improvements(self, entries: &[Entry]) -> Vec<Improvement> {
        let recorded = self.recorded.into_inner().unwrap_or_else(PoisonError::into_inner);
        let probed = |e: &Entry| matches!(e.record, Record::Probed { .. });
        let ends: Vec<usize> = entries.iter().enumerate().filter(|(_, e)| probed(e)).map(|(at, _)| at + 1).collect();
        let spent = |probes: u32| match probes.checked_sub(1) {
            Some(before) => Cost::of(&entries[..ends.get(before as usize).copied().unwrap_or(entries.len())]),
            None => Cost::default(),
        };
        recorded
            .incumbents
            .into_iter()
            .map(|(probes, Incumbent { point, rate })| Improvement { spent: spent(probes).engine_seconds, point, rate })
            .collect()
    }
}

/// Seconds of the engine by what they were spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spending {
    /// Starts and stops of the engines that were searched, those of the defaults and of the memory among them.
    pub launches: Seconds,
    pub probes: Seconds,
    /// Everything at once, to see what a large batch does to them.
    pub bursts: Seconds,
    /// Starts and stops of the engines that prove an answer.
    pub proof_launches: Seconds,
    /// Windows of fresh traffic on these.
    pub proof_probes: Seconds,
    /// Everything at once to these.
    pub proof_bursts: Seconds,
}

impl Spending {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let (mut spent, mut purposes) = (Self::default(), BTreeMap::new());
        for entry in entries {
            let proves = |trial: u32| purposes.get(&trial).is_some_and(|purpose: &Purpose| purpose.certifies());
            match &entry.record {
                Record::Launching { trial, purpose, .. } => {
                    purposes.insert(*trial, *purpose);
                }
                Record::Ready { trial, ready, .. } => *spent.of_launches(proves(*trial)) += ready.took,
                Record::NotReady { trial, failure, .. } => *spent.of_launches(proves(*trial)) += failure.took,
                Record::Stopped { trial, took } => *spent.of_launches(proves(*trial)) += *took,
                Record::Probed { trial, ask, took, .. } => *spent.of_probes(proves(*trial), ask) += *took,
                Record::Broken { trial, ask, failure, .. } => *spent.of_probes(proves(*trial), ask) += failure.took,
                _ => {}
            }
        }
        spent
    }

    fn of_launches(&mut self, proves: bool) -> &mut Seconds {
        if proves { &mut self.proof_launches } else { &mut self.launches }
    }

    fn of_probes(&mut self, proves: bool, ask: &ProbeAsk) -> &mut Seconds {
        match (ask.is_burst(), proves) {
            (false, false) => &mut self.probes,
            (false, true) => &mut self.proof_probes,
            (true, false) => &mut self.bursts,
            (true, true) => &mut self.proof_bursts,
        }
    }
}
