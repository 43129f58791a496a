//! The rig of another process, driven over HTTP as [`protocol`](super::protocol) says.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::protocol::{JobMark, SILENCE, Task, TaskAnswer};
use super::worker::TaskReply;
use super::{Failure, Measured, ProbeAsk, Ready, Rig, RigError, Spawned, Trial, Worker};
use autotune_clock as clock;
use autotune_plan::engine::diagnosis::{Cause, Consequence, Diagnosis};
use autotune_plan::space::Point;
use autotune_records::units::Seconds;
use autotune_workload::{Corpus, Material, Vocabulary};

/// How often a worker hears of its leader, also while this has nothing for it to do.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(SILENCE.as_secs() / 5);

/// The engine of a worker.
pub struct RemoteRig {
    worker: Worker,
    job: JobMark,
    material: Material,
    /// How many tasks the worker was given.
    tasks: u64,
    /// Whether the worker may run an engine.
    used: bool,
    life: JoinHandle<()>,
}

impl RemoteRig {
    /// The rig of a worker for that job; `corpus` is the workload's file, of which the worker has its own copy. From now on the worker is
    /// kept from freeing itself by a heartbeat: this needs a runtime.
    pub fn new(worker: Worker, job: JobMark, corpus: Corpus) -> Self {
        let living = worker.clone();
        let life = tokio::spawn(async move {
            loop {
                tokio::time::sleep(SIGN_OF_LIFE_EVERY).await;
                living.sign_of_life().await;
            }
        });
        let material = Material { corpus, ..Material::default() };
        Self { worker, job, material, tasks: 0, used: false, life }
    }

    async fn tell(&mut self, task: Task) -> TaskReply {
        self.tasks += 1;
        self.worker.ask(self.tasks, &task).await
    }

    /// The answer to a launch or a probe. A worker that does not know the task has lost its engine.
    async fn ask(&mut self, task: Task) -> Result<TaskAnswer, RigError> {
        let begun = clock::now();
        match self.tell(task).await {
            TaskReply::Done(answer) => match *answer {
                TaskAnswer::Failed(failure) => Err(RigError::Engine(failure)),
                TaskAnswer::Machine(what) => Err(self.machine(&what)),
                answer => Ok(answer),
            },
            TaskReply::Unknown => {
                let says = format!("{} was replaced or had lost touch: its engine is gone", self.worker.name());
                let diagnosis =
                    Diagnosis { cause: Cause::Environment, line: None, says, consequence: Consequence::Retry };
                Err(RigError::Engine(Box::new(Failure { diagnosis, took: begun.elapsed().into() })))
            }
            TaskReply::Nothing(why) => Err(RigError::Machine(why)),
        }
    }

    fn machine(&self, what: &str) -> RigError {
        RigError::Machine(format!("{}: {what}", self.worker.name()))
    }

    fn mismatch(&self) -> RigError {
        self.machine("it answered another task than the one asked")
    }
}

impl Rig for RemoteRig {
    /// `spawned` is never called: the process lives on another machine, where its number means something else than here.
    async fn launch(
        &mut self,
        trial: Trial,
        point: &Point,
        _spawned: &mut (dyn FnMut(&Spawned) + Send),
    ) -> Result<Ready, RigError> {
        self.material.vocabulary = Vocabulary::default();
        // The worker may have been replaced since the last launch.
        self.worker.greet(&self.job, |_| {}).await.map_err(|e| RigError::Machine(e.to_string()))?;
        self.used = true;
        match self.ask(Task::Launch { trial, point: point.clone() }).await? {
            TaskAnswer::Ready { ready, vocabulary } => {
                self.material.vocabulary = vocabulary;
                Ok(*ready)
            }
            _ => Err(self.mismatch()),
        }
    }

    fn material(&self) -> &Material {
        &self.material
    }

    async fn probe(&mut self, ask: &ProbeAsk) -> Result<Measured, RigError> {
        match self.ask(Task::Probe(*ask)).await? {
            TaskAnswer::Measured(measured) => Ok(*measured),
            _ => Err(self.mismatch()),
        }
    }

    /// A worker that cannot be reached is hardly waited for: it stops its engine by itself, and before any other launch. One that was
    /// replaced, or works for another leader by now, has no engine of ours.
    async fn stop(&mut self) -> Result<Seconds, RigError> {
        let begun = clock::now();
        self.material.vocabulary = Vocabulary::default();
        if !self.used {
            return Ok(Seconds(0.0));
        }
        let reply = self.tell(Task::Stop).await;
        self.used = false;
        match reply {
            TaskReply::Done(answer) => match *answer {
                TaskAnswer::Stopped(took) => Ok(took),
                TaskAnswer::Machine(what) => Err(self.machine(&what)),
                _ => Err(self.mismatch()),
            },
            TaskReply::Unknown | TaskReply::Nothing(_) => Ok(begun.elapsed().into()),
        }
    }

    async fn kill(&mut self) {
        if std::mem::take(&mut self.used) {
            self.worker.kill().await;
        }
    }
}

impl Drop for RemoteRig {
    fn drop(&mut self) {
        self.life.abort();
    }
}
