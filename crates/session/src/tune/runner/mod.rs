//! The trial runner: workers whose answers all go into the journal, so that none is paid for twice.
//!
//! A resumed session runs from its beginning and asks the same questions. The journal answers them at no cost. An engine is launched only for a
//! question that the journal cannot answer. Several workers answer in rounds. The session learns from a round when all have answered, in the order
//! of the workers. So it decides the same whoever was faster.

mod served_as_meant;
mod session_log;
mod worker;

use std::collections::BTreeMap;
use std::sync::Mutex;

use self::session_log::SessionLog;
pub use self::session_log::{Folder, RunnerError};
use self::worker::Worker;
use super::cost::{Before, Prices};
use super::predictor::Predictor;
use super::sample_sizes::SampleSizes;
use super::session_twin::SessionTwin;
use super::trial::{Asking, Current, ProbeResult, TrialRequest};
use crate::events::{Event, Sink};
use crate::journal::{Conclusion, Cost, Entry, Journal, Purpose, Record};
use crate::rig::{ProbeAsk, Ready, Rig};
use crate::verdict::{Certainty, Outcome, Verdict};
use autotune_plan::engine::diagnosis::Diagnosis;
use autotune_plan::settings::Plan;
use autotune_plan::space::Point;
use autotune_records::units::Seconds;
use futures_util::future::{join_all, try_join_all};

/// Rigs with a memory, numbered from 0: at least one, which does everything that one does alone.
pub struct TrialRunner<'a, R> {
    workers: Vec<Worker<R>>,
    session_log: SessionLog<'a>,
    elapsed: Seconds,
}

/// What one worker does in a round: launches where a point is given, then probes.
pub struct TrialStep {
    pub worker: usize,
    pub launch: Option<TrialRequest>,
    pub probe: Option<(Asking, Certainty)>,
}

impl<'a, R: Rig> TrialRunner<'a, R> {
    /// A trial runner with what a journal already knows; without a folder nothing is written. `seed` decides every draw.
    pub fn new(
        rigs: Vec<R>,
        plan: &'a Plan,
        seed: u64,
        sink: &'a dyn Sink,
        folder: Option<Folder>,
        journal: Journal,
    ) -> Self {
        let workers = rigs.into_iter().map(Worker::new).collect();
        Self { workers, session_log: SessionLog::new(plan, seed, sink, folder, journal), elapsed: Seconds(0.0) }
    }

    pub fn with_sample_sizes(mut self, sample_sizes: SampleSizes) -> Self {
        self.session_log.session_twin = SessionTwin::new(sample_sizes);
        self
    }

    pub fn seed(&self) -> u64 {
        self.session_log.seed
    }

    /// How many engines can run at the same time.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Everything that is recorded, also what a resumed session has not come to yet.
    pub fn journal(&self) -> &Journal {
        &self.session_log.journal
    }

    /// The records that the session has come to: it must decide from these alone, or a resumed one would decide otherwise.
    pub fn passed(&self) -> &[Entry] {
        self.session_log.passed()
    }

    /// Engine time of the records that the session has come to, summed over the workers.
    pub fn spent(&self) -> Seconds {
        Cost::of(self.passed()).engine_seconds
    }

    /// Time that passed while engines were launched, probed and stopped by this trial runner: of each round that of the slowest worker.
    pub fn elapsed(&self) -> Seconds {
        self.elapsed
    }

    #[cfg(test)]
    pub(crate) fn rigs(&self) -> impl Iterator<Item = &R> {
        self.workers.iter().map(|worker| &worker.rig)
    }

    pub(crate) fn current(&self, worker: usize) -> Option<&Current> {
        self.workers.get(worker)?.current.as_ref()
    }

    /// What has to be done before a worker can probe what is wanted, where its trial is not that one.
    pub(crate) fn before(&self, worker: usize, wanted: &TrialRequest) -> Before {
        wanted.behind(self.current(worker), self.session_log.may_alter(wanted))
    }

    /// What the process of a worker was launched with, where it takes smaller limits.
    pub fn launched_with(&self, worker: usize) -> Option<&Point> {
        self.current(worker)?.widest.as_ref()
    }

    /// The point of the first worker's trial by its full name: the engine has told what it chose for parameters that were left to it.
    pub(crate) fn known_as(&mut self, point: &Point) {
        if let Some(current) = self.workers.first_mut().and_then(|worker| worker.current.as_mut()) {
            current.known_as = point.clone();
        }
    }

    /// Starts a new trial on the first worker. The inner result is the engine's: ready, or why not after a second try where one is due.
    pub(crate) async fn launch(
        &mut self,
        purpose: Purpose,
        point: Point,
    ) -> Result<Result<Ready, Diagnosis>, RunnerError> {
        let launch = Some(TrialRequest::of(purpose, point));
        let answer = self.together(vec![TrialStep { worker: 0, launch, probe: None }]).await?.pop();
        answer.and_then(|answer| answer.ready).ok_or_else(no_answer)
    }

    /// Probes the first worker's engine. The inner result is the engine's.
    pub(crate) async fn probe(
        &mut self,
        probe: (Asking, Certainty),
    ) -> Result<Result<Verdict, Diagnosis>, RunnerError> {
        self.round(vec![TrialStep { worker: 0, launch: None, probe: Some(probe) }]).await?.pop().ok_or_else(no_answer)
    }

    /// Lets workers, which stand in their order, take a step each at the same time. The inner results are the engines'. An engine that failed in
    /// a probe is launched and asked once more, unless its failure says that this would be in vain.
    pub(crate) async fn round(
        &mut self,
        steps: Vec<TrialStep>,
    ) -> Result<Vec<Result<Verdict, Diagnosis>>, RunnerError> {
        let answers = self.together(steps).await?;
        let verdict = |answer: WorkerReply| match answer {
            WorkerReply { ready: Some(Err(diagnosis)), .. } => Some(Err(diagnosis)),
            WorkerReply { probed, .. } => probed.map(|probed| probed.map(|told| told.verdict)),
        };
        Ok(answers.into_iter().filter_map(verdict).collect())
    }

    async fn together(&mut self, steps: Vec<TrialStep>) -> Result<Vec<WorkerReply>, RunnerError> {
        let busy: Vec<Seconds> = self.workers.iter().map(|worker| worker.busy).collect();
        let numbered = steps.into_iter().map(|TrialStep { worker, launch, probe }| {
            (worker, (launch.map(|wanted| self.session_log.next_launch(wanted)), probe))
        });
        let mut steps: BTreeMap<usize, _> = numbered.collect();
        let session_log = Mutex::new(&mut self.session_log);
        let each = self.workers.iter_mut().enumerate();
        let each = each.filter_map(|(at, worker)| steps.remove(&at).map(|(launch, probe)| (at, worker, launch, probe)));
        let each = each.map(async |(at, worker, launch, probe)| {
            let mut answer = WorkerReply { worker: at, ready: None, probed: None };
            if let Some(launch) = &launch {
                let ready = worker.launch(&session_log, launch).await?;
                let failed = ready.is_err();
                answer.ready = Some(ready);
                if failed {
                    return Ok(answer);
                }
            }
            if let Some((asking, certainty)) = probe {
                answer.probed = Some(worker.probe(&session_log, &asking, certainty).await?);
            }
            Ok::<WorkerReply, RunnerError>(answer)
        });
        let answers = try_join_all(each).await?;
        let took = self.workers.iter().zip(busy).map(|(worker, before)| worker.busy.0 - before.0);
        self.elapsed += Seconds(took.fold(0.0, f64::max));
        for answer in &answers {
            self.learn(answer)?;
        }
        Ok(answers)
    }

    fn learn(&mut self, answer: &WorkerReply) -> Result<(), RunnerError> {
        if let Some(Ok(_)) = &answer.ready
            && let Some(Worker { current: Some(current), .. }) = self.workers.get(answer.worker)
        {
            self.session_log.predictions.learn(&current.point, current.engine);
        }
        match &answer.probed {
            Some(Ok(told)) if told.verdict.outcome != Outcome::Void => self.tell(answer.worker, told.clone()),
            _ => Ok(()),
        }
    }

    /// Adds a probe to its trial and gives it to the twin. If a new fit is due, the probes of the trial are judged again. Certifying probes at a rate
    /// stay out of the fit that judges them; bursts do not, since no rate is judged by them. Where the fit turns the verdict of the probe round, that is
    /// said. The fit behind a recorded probe stands in the journal.
    fn tell(&mut self, worker: usize, told: ProbeResult) -> Result<(), RunnerError> {
        let Self { workers, session_log, .. } = self;
        let Some(current) = workers.get_mut(worker).and_then(|worker| worker.current.as_mut()) else { return Ok(()) };
        let (trial, probe) = (current.trial, told.probe);
        // What a burst shows is no evidence for a rate.
        let (at_a_rate, twin) = (!told.ask.is_burst(), &mut session_log.session_twin);
        if at_a_rate {
            twin.note_verdict(&told.verdict);
        }
        let certifies = at_a_rate && current.purpose.certifies();
        let due = told.fit_probe.as_ref().is_some_and(|fit_probe| twin.learn(fit_probe, certifies));
        let (rate, said) = (told.ask.rate, told.verdict.outcome);
        current.told.push(told);
        if let Some((fit, verdicts)) = session_log.recorded_fit(trial, probe) {
            session_log.session_twin.adopt(*fit);
            self.judge_again(worker, verdicts);
        } else if due && let Some(fit) = session_log.session_twin.fit() {
            let fit = Box::new(fit.clone());
            session_log.sink.take(&Event::Fitted(&fit));
            let verdicts = self.second_thoughts(worker);
            if let Some(Verdict { outcome: now, because, .. }) = verdicts.get(&probe)
                && matches!((said, now), (Outcome::Pass, Outcome::Fail) | (Outcome::Fail, Outcome::Pass))
            {
                let now = if said == Outcome::Fail { "holds" } else { "fails" };
                let says = format!("trial {trial}: judged again after a new fit, {rate} {now}: {because}");
                self.session_log.sink.take(&Event::Note(&says));
            }
            self.session_log.record(Record::Fitted { trial, probe, fit, verdicts: verdicts.clone() })?;
            self.judge_again(worker, verdicts);
        }
        Ok(())
    }

    /// What the new twin makes of the probes of a worker's trial.
    fn second_thoughts(&mut self, worker: usize) -> BTreeMap<u32, Verdict> {
        let Self { workers, session_log, .. } = self;
        let Some(Worker { rig, current: Some(current), .. }) = workers.get(worker) else { return BTreeMap::new() };
        let mut weighed = |ProbeResult { probe, verdict, fit_probe, .. }: &ProbeResult| {
            let fit_probe = fit_probe.as_ref()?;
            Some((*probe, session_log.weigh(verdict.clone(), fit_probe, rig.material(), Certainty::SEARCH)))
        };
        current.told.iter().filter_map(&mut weighed).collect()
    }

    fn judge_again(&mut self, worker: usize, mut verdicts: BTreeMap<u32, Verdict>) {
        let current = self.workers.get_mut(worker).and_then(|worker| worker.current.as_mut());
        for told in current.into_iter().flat_map(|current| &mut current.told) {
            if let Some(verdict) = verdicts.remove(&told.probe) {
                told.verdict = verdict;
            }
        }
    }

    pub(crate) fn twin(&mut self) -> &mut SessionTwin {
        &mut self.session_log.session_twin
    }

    /// Fits the twin to all that was learnt, and judges the probes of the running trials again. Does nothing where the last fit knows it all. Called
    /// before points are compared, before a proof asks for a burst, and before it judges what is certified.
    pub(crate) fn fit_to_all(&mut self) {
        if !self.session_log.session_twin.fit_to_all() {
            return;
        }
        for worker in 0..self.workers.len() {
            let verdicts = self.second_thoughts(worker);
            self.judge_again(worker, verdicts);
        }
    }

    pub(crate) fn predictor(&mut self, worker: usize, prices: Prices, crowded: bool) -> Predictor<'_> {
        let Self { workers, session_log, .. } = self;
        let material = session_log.material(workers[0].rig.material());
        let alters = !session_log.cannot_change_live();
        let SessionLog { plan, seed, session_twin, predictions, .. } = session_log;
        let running = workers[worker].current.as_ref();
        Predictor {
            plan,
            material,
            seed: *seed,
            session_twin,
            predictions,
            prices,
            running,
            alters,
            crowded,
            believed: true,
        }
    }

    /// The probes of a worker's trial that say something, in their order: what was asked, and the latest word on it.
    pub(crate) fn told(&self, worker: usize) -> impl Iterator<Item = (&ProbeAsk, &Verdict)> {
        self.current(worker).into_iter().flat_map(|current| &current.told).map(|told| (&told.ask, &told.verdict))
    }

    /// Ends every trial and stops the engines that run.
    pub async fn stop(&mut self) -> Result<(), RunnerError> {
        let session_log = Mutex::new(&mut self.session_log);
        join_all(self.workers.iter_mut().map(|worker| worker.stop(&session_log))).await.into_iter().collect()
    }

    /// Stops whatever runs, also in the middle of a launch or probe, and records the interruption.
    pub async fn interrupt(&mut self) -> Result<(), RunnerError> {
        let session_log = Mutex::new(&mut self.session_log);
        let stopped = join_all(self.workers.iter_mut().map(|worker| worker.interrupt(&session_log))).await;
        self.session_log.record(Record::Interrupted)?;
        stopped.into_iter().collect()
    }

    pub async fn kill(&mut self) {
        join_all(self.workers.iter_mut().map(|worker| worker.rig.kill())).await;
    }

    /// Records that another run took over.
    pub fn resumed(&mut self, gpu_time: Seconds) -> Result<(), RunnerError> {
        // The session has yet to come to what stands before it.
        self.session_log.append(Record::Resumed { gpu_time })
    }

    pub fn conclude(&mut self, conclusion: &Conclusion) -> Result<(), RunnerError> {
        self.session_log.record(Record::Concluded(Box::new(conclusion.clone())))
    }
}

fn no_answer() -> RunnerError {
    RunnerError::Machine("the first worker gave no answer".into())
}

struct WorkerReply {
    worker: usize,
    ready: Option<Result<Ready, Diagnosis>>,
    probed: Option<Result<ProbeResult, Diagnosis>>,
}
