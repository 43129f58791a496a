//! The simulated rig with accidents: every failure that a rig can report, when a test wants it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::*;
use crate::rig::{Failure, Measured, ProbeAsk, Ready, Rig, RigError, SimulatedRig, Spawned, Trial};
use autotune_plan::engine::diagnosis::{Cause, Consequence, Diagnosis};
use autotune_plan::space::Point;
use autotune_records::units::Seconds;

/// What happens to the engines of a rig. A resumed session meets the same script.
pub(super) trait Script: Send {
    fn start(&mut self, _trial: Trial, _point: &Point) -> Option<RigError> {
        None
    }
    /// The point whose engine is started instead.
    fn swapped(&mut self, _trial: Trial, point: &Point) -> Point {
        point.clone()
    }
    /// Why the engine of that start fails in a probe.
    fn probe(&mut self, _trial: Trial, _point: &Point) -> Option<RigError> {
        None
    }
    /// How late our own client is in a probe, at the 99th percentile.
    fn lag(&mut self, _trial: Trial) -> Seconds {
        Seconds(0.0)
    }
    /// Why the engine cannot be stopped cleanly.
    fn stop(&mut self, _trial: Trial) -> Option<RigError> {
        None
    }
}

pub(super) struct Uneventful;

impl Script for Uneventful {}

/// A failure with that consequence, after a virtual second.
pub(super) fn failure(cause: Cause, consequence: Consequence) -> RigError {
    let says = format!("scripted: {cause}");
    let diagnosis = Diagnosis { cause, line: Some("the line of the log".into()), says, consequence };
    RigError::Engine(Box::new(Failure { diagnosis, took: Seconds(1.0) }))
}

/// What probes measured, by point and question: the rig repeats exactly, so a session that is run many times need not.
/// Their requests stay in a folder, as those of a real session do.
#[derive(Clone)]
pub(super) struct Memory(Arc<Mutex<HashMap<String, Measured>>>, Arc<tempfile::TempDir>);

impl Default for Memory {
    fn default() -> Self {
        Self(Arc::default(), Arc::new(tempfile::tempdir().unwrap()))
    }
}

impl Memory {
    pub(super) fn folder(&self) -> Folder {
        Folder { writer: None, path: self.1.path().to_owned() }
    }
}

/// The rig of a script; it counts what was paid for.
pub(super) struct Scripted<S> {
    rig: SimulatedRig,
    script: S,
    memory: Memory,
    current: Option<(Trial, Point)>,
    pub(super) probes: u32,
    /// How often other workers have their turn before it answers.
    pub(super) patience: usize,
}

impl<S: Script> Scripted<S> {
    pub(super) fn new(plan: &Plan, seed: u64, script: S, memory: Memory) -> Self {
        Self::of(Profile::quickstart(), plan, seed, script, memory)
    }

    /// The same on the engine of a profile.
    pub(super) fn of(profile: Profile, plan: &Plan, seed: u64, script: S, memory: Memory) -> Self {
        let rig = SimulatedRig::new(plan.clone(), profile, seed, Material::default());
        Self { rig, script, memory, current: None, probes: 0, patience: 0 }
    }
}

/// Lets others have their turn so many times.
async fn turns(patience: usize) {
    for _ in 0..patience {
        tokio::task::yield_now().await;
    }
}

impl<S: Script> Rig for Scripted<S> {
    async fn launch(
        &mut self,
        trial: Trial,
        point: &Point,
        spawned: &mut (dyn FnMut(&Spawned) + Send),
    ) -> Result<Ready, RigError> {
        if let Some(error) = self.script.start(trial, point) {
            return Err(error);
        }
        self.current = Some((trial, point.clone()));
        turns(self.patience).await;
        let swapped = self.script.swapped(trial, point);
        self.rig.launch(trial, &swapped, spawned).await
    }

    fn material(&self) -> &Material {
        self.rig.material()
    }

    async fn probe(&mut self, ask: &ProbeAsk) -> Result<Measured, RigError> {
        let (trial, point) = self.current.clone().unwrap();
        if let Some(error) = self.script.probe(trial, &point) {
            return Err(error);
        }
        self.probes += 1;
        turns(self.patience).await;
        let question = format!("{point} {ask:?}");
        let known = self.memory.0.lock().unwrap().get(&question).cloned();
        let mut measured = match known {
            Some(measured) => measured,
            None => self.rig.probe(ask).await?,
        };
        self.memory.0.lock().unwrap().entry(question).or_insert_with(|| measured.clone());
        measured.client.lag_p99 = self.script.lag(trial);
        Ok(measured)
    }

    async fn stop(&mut self) -> Result<Seconds, RigError> {
        if let Some(error) = self.current.take().and_then(|(trial, _)| self.script.stop(trial)) {
            return Err(error);
        }
        self.rig.stop().await
    }

    async fn kill(&mut self) {
        self.rig.kill().await;
    }
}
