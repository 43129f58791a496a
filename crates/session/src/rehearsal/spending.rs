//! What a session spent the engine's time on.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::journal::{Entry, Purpose, Record};
use crate::rig::ProbeAsk;
use autotune_records::units::Seconds;

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
