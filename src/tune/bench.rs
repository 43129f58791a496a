//! The bench: workers whose every answer is in the journal, so that an answer once paid for is never paid again.
//!
//! A resumed session runs from its beginning and asks the same questions; those that the journal answers cost nothing, and an
//! engine is launched again only when a question comes that the journal cannot answer. Several workers answer in rounds: what they are
//! asked together is learnt from when all have answered, in the order of the workers, so that a session decides the same whoever was faster.

use std::collections::BTreeMap;
use std::sync::Mutex;

use futures_util::future::{join_all, try_join_all};

use super::books::Books;
use super::cost::{Before, Prices};
use super::foresight::Foresight;
use super::pairing::Hindsight;
use super::worker::{Asking, Launch, Told, Wanted, Worker};
use crate::engine::diagnosis::Diagnosis;
use crate::journal::{Conclusion, Entry, Journal, Purpose, Record};
use crate::progress::{Event, Sink};
use crate::rig::{ProbeAsk, Ready, Rig};
use crate::search::ALL_AT_ONCE;
use crate::settings::Plan;
use crate::space::Point;
use crate::twin::StepCosts;
use crate::units::Seconds;
use crate::verdict::{Certainty, NEVER_CUT, Outcome, Verdict};

pub use super::books::{BenchError, Folder};

/// Rigs with a memory, numbered from 0: at least one, which does everything that one does alone.
pub struct Bench<'a, R> {
    workers: Vec<Worker<R>>,
    books: Books<'a>,
    elapsed: Seconds,
}

/// What one worker does in a round: launches where a point is given, then probes.
pub(super) struct Step {
    pub(super) worker: usize,
    pub(super) launch: Option<Wanted>,
    pub(super) asking: Asking,
    pub(super) certainty: Certainty,
}

impl<'a, R: Rig> Bench<'a, R> {
    /// A bench with what a journal already knows; without a folder nothing is written. `seed` decides every draw.
    pub fn new(
        rigs: Vec<R>,
        plan: &'a Plan,
        seed: u64,
        sink: &'a dyn Sink,
        folder: Option<Folder>,
        journal: Journal,
    ) -> Self {
        let workers = rigs.into_iter().map(Worker::new).collect();
        Self { workers, books: Books::new(plan, seed, sink, folder, journal), elapsed: Seconds(0.0) }
    }

    /// What decides every draw.
    pub fn seed(&self) -> u64 {
        self.books.seed
    }

    /// How many engines can run at the same time.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Everything that is recorded, also what a resumed session has not come to yet.
    pub fn journal(&self) -> &Journal {
        self.books.journal()
    }

    /// The records that the session has come to: it must decide from these alone, or a resumed one would decide otherwise.
    pub fn passed(&self) -> &[Entry] {
        self.books.passed()
    }

    /// Engine time of the records that the session has come to, summed over the workers.
    pub fn spent(&self) -> Seconds {
        self.books.spent()
    }

    /// Time that passed while engines were launched, probed and stopped by this bench: of each round that of the slowest worker.
    pub fn elapsed(&self) -> Seconds {
        self.elapsed
    }

    /// The rigs themselves.
    #[cfg(test)]
    pub(super) fn rigs(&self) -> impl Iterator<Item = &R> {
        self.workers.iter().map(|worker| &worker.rig)
    }

    /// The point of a worker's trial, by its full name.
    pub(super) fn point(&self, worker: usize) -> Option<&Point> {
        self.workers.get(worker)?.current.as_ref().map(|c| &c.known_as)
    }

    /// What has to be done before a worker can probe what is wanted, where its trial is not that one.
    pub(super) fn before(&self, worker: usize, wanted: &Wanted) -> Before {
        let current = self.workers.get(worker).and_then(|worker| worker.current.as_ref());
        wanted.behind(current, self.books.may_alter(wanted))
    }

    /// The point of the first worker's trial by its full name: the engine has told what it chose for parameters that were left to it.
    pub(super) fn known_as(&mut self, point: &Point) {
        if let Some(current) = self.workers.first_mut().and_then(|worker| worker.current.as_mut()) {
            current.known_as = point.clone();
        }
    }

    /// Starts a new trial on the first worker. The inner result is the engine's: ready, or why not after a second try where one is due.
    ///
    /// # Errors
    /// What ends a session.
    pub async fn launch(&mut self, purpose: Purpose, point: &Point) -> Result<Result<Ready, Diagnosis>, BenchError> {
        let mut answers = self.launch_each(vec![(0, purpose, point.clone())]).await?;
        answers.pop().ok_or_else(|| BenchError::Machine("there is no worker".into()))
    }

    /// Starts a new trial on each of these workers, which stand in their order.
    ///
    /// # Errors
    /// What ends a session.
    pub(super) async fn launch_each(
        &mut self,
        asked: Vec<(usize, Purpose, Point)>,
    ) -> Result<Vec<Result<Ready, Diagnosis>>, BenchError> {
        let launch = |(worker, purpose, point)| {
            (worker, Some(self.books.next_launch(Wanted { purpose, point, anew: false })), None)
        };
        let asked = asked.into_iter().map(launch).collect();
        Ok(self.together(asked).await?.into_iter().filter_map(|answer| answer.ready).collect())
    }

    /// Probes the trial of a worker. The inner result is the engine's; an engine that failed is launched and asked once more, unless
    /// its failure says that this would be in vain.
    ///
    /// # Errors
    /// What ends a session.
    pub(super) async fn probe(
        &mut self,
        worker: usize,
        asking: Asking,
        certainty: Certainty,
    ) -> Result<Result<Verdict, Diagnosis>, BenchError> {
        let mut answers = self.round(vec![Step { worker, launch: None, asking, certainty }]).await?;
        answers.pop().ok_or_else(|| BenchError::Machine("there is no worker".into()))
    }

    /// Lets workers, which stand in their order, take a step each at the same time. The inner results are the engines'.
    ///
    /// # Errors
    /// What ends a session.
    pub(super) async fn round(&mut self, steps: Vec<Step>) -> Result<Vec<Result<Verdict, Diagnosis>>, BenchError> {
        let asked = steps.into_iter().map(|Step { worker, launch, asking, certainty }| {
            let launch = launch.map(|wanted| self.books.next_launch(wanted));
            (worker, launch, Some((asking, certainty)))
        });
        let asked = asked.collect();
        let answers = self.together(asked).await?;
        let verdict = |answer: Answer| match answer {
            Answer { ready: Some(Err(diagnosis)), .. } => Some(Err(diagnosis)),
            Answer { probed, .. } => probed.map(|probed| probed.map(|told| told.verdict)),
        };
        Ok(answers.into_iter().filter_map(verdict).collect())
    }

    async fn together(&mut self, asked: Vec<Asked>) -> Result<Vec<Answer>, BenchError> {
        let busy: Vec<Seconds> = self.workers.iter().map(|worker| worker.busy).collect();
        let books = Mutex::new(&mut self.books);
        let mut asked: BTreeMap<usize, Asked> = asked.into_iter().map(|asked| (asked.0, asked)).collect();
        let each = self.workers.iter_mut().enumerate().filter_map(|(at, worker)| Some((worker, asked.remove(&at)?)));
        let each = each.map(async |(worker, (at, launch, probe))| {
            let mut answer = Answer { worker: at, ready: None, probed: None };
            if let Some(launch) = &launch {
                let ready = worker.launch(&books, launch).await?;
                let failed = ready.is_err();
                answer.ready = Some(ready);
                if failed {
                    return Ok(answer);
                }
            }
            if let Some((asking, certainty)) = &probe {
                answer.probed = Some(worker.probe(&books, asking, *certainty).await?);
            }
            Ok::<Answer, BenchError>(answer)
        });
        let answers = try_join_all(each).await?;
        let took = self.workers.iter().zip(busy).map(|(worker, before)| worker.busy.0 - before.0);
        self.elapsed += Seconds(took.fold(0.0, f64::max));
        for answer in &answers {
            self.learn(answer)?;
        }
        Ok(answers)
    }

    /// Learns from what a worker answered.
    fn learn(&mut self, answer: &Answer) -> Result<(), BenchError> {
        if let Some(Ok(_)) = &answer.ready
            && let Some(current) = self.workers.get(answer.worker).and_then(|worker| worker.current.as_ref())
        {
            self.books.outlook.learn(&current.point, current.engine);
        }
        match &answer.probed {
            Some(Ok(told)) if told.verdict.outcome != Outcome::Void => self.tell(answer.worker, told.clone()),
            _ => Ok(()),
        }
    }

    /// Adds a probe to those of its trial, teaches it to the twin, and judges the trial again where that was the time for a new fit.
    /// What certifies is not taught: it must be new to whoever judges it. The fit behind a recorded probe stands in the journal.
    fn tell(&mut self, worker: usize, told: Told) -> Result<(), BenchError> {
        let Self { workers, books, .. } = self;
        let Some(current) = workers.get_mut(worker).and_then(|worker| worker.current.as_mut()) else { return Ok(()) };
        // Launches differ, and points that one process served do not.
        let (trial, probe, on) = (current.trial, told.probe, current.on);
        if told.ask.rate != ALL_AT_ONCE {
            books.pairing.hear(&told.verdict);
        }
        told.lesson.iter().for_each(|lesson| books.pairing.note(lesson));
        let due = match &told.lesson {
            // What a burst shows is no evidence for a rate.
            Some(lesson) if current.purpose.certifies() && told.ask.slack < NEVER_CUT => {
                books.pairing.witness(worker, on, lesson, told.verdict.complete);
                false
            }
            Some(lesson) => books.pairing.learn(on, lesson),
            None => false,
        };
        current.told.push(told);
        if let Some((fit, verdicts)) = books.recorded_fit(trial, probe) {
            books.pairing.adopt(*fit);
            self.judge_again(worker, verdicts);
        } else if due && let Some(fit) = books.pairing.fit() {
            let fit = Box::new(fit.clone());
            books.sink.take(&Event::Fitted(&fit));
            let verdicts = self.second_thoughts(worker);
            self.books.record(Record::Fitted { trial, probe, fit, verdicts: verdicts.clone() })?;
            self.judge_again(worker, verdicts);
        }
        Ok(())
    }

    /// What the new twin makes of the probes of a worker's trial.
    fn second_thoughts(&mut self, worker: usize) -> BTreeMap<u32, Verdict> {
        let Self { workers, books, .. } = self;
        let Some(Worker { rig, current: Some(current), .. }) = workers.get(worker) else { return BTreeMap::new() };
        let material = books.material(rig.material());
        let mut weighed = |told: &Told| {
            let traffic = (&material, books.seed);
            let lesson = told.lesson.as_ref()?;
            let verdict = told.verdict.clone();
            Some((told.probe, books.pairing.weigh(verdict, lesson, books.plan, traffic, Certainty::SEARCH)))
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

    /// The engine by all that is known of it, what certifies included, for the point that this worker certifies.
    pub(super) fn in_hindsight(&self, worker: usize) -> Option<Hindsight> {
        let current = self.workers.get(worker).and_then(|worker| worker.current.as_ref());
        self.books.pairing.in_hindsight(worker, current.is_some_and(|current| current.shared))
    }

    /// The steps of the engine by all that is known of it.
    pub(super) fn steps_in_hindsight(&self) -> Option<StepCosts> {
        self.books.pairing.steps_in_hindsight()
    }

    /// Other points are certified from here on.
    pub(super) fn dismiss_witnesses(&mut self) {
        self.books.pairing.dismiss();
    }

    /// Fits the twin to all that was learnt, and judges the probes of the running trials again: before points are compared, and before it
    /// judges what is certified.
    pub(super) fn fit_well(&mut self) {
        self.books.pairing.fit_well();
        for worker in 0..self.workers.len() {
            let verdicts = self.second_thoughts(worker);
            self.judge_again(worker, verdicts);
        }
    }

    /// The most requests that were seen streamed at the same time.
    pub(super) fn largest_batch(&self) -> u32 {
        self.books.pairing.largest()
    }

    /// What may be expected of points by a worker, with those prices.
    pub(super) fn foresight(&mut self, worker: usize, prices: Prices, crowded: bool) -> Foresight<'_> {
        let Self { workers, books, .. } = self;
        let material = books.material(workers[0].rig.material());
        let alters = !books.stays();
        let Books { plan, seed, pairing, outlook, .. } = books;
        let running = workers[worker].current.as_ref();
        Foresight { plan, material, seed: *seed, pairing, outlook, prices, running, alters, crowded }
    }

    /// The probes of a worker's trial that say something, in their order: what was asked, the latest word on it, and the time it took.
    pub(super) fn told(&self, worker: usize) -> impl Iterator<Item = (&ProbeAsk, &Verdict, Seconds)> {
        let current = self.workers.get(worker).and_then(|worker| worker.current.as_ref());
        current.into_iter().flat_map(|current| &current.told).map(|told| (&told.ask, &told.verdict, told.took))
    }

    /// Ends every trial and stops the engines that run.
    ///
    /// # Errors
    /// Where a machine is not clean afterwards.
    pub async fn stop(&mut self) -> Result<(), BenchError> {
        let books = Mutex::new(&mut self.books);
        join_all(self.workers.iter_mut().map(|worker| worker.stop(&books))).await.into_iter().collect()
    }

    /// Stops whatever runs, also in the middle of a launch or probe, and records the interruption.
    ///
    /// # Errors
    /// Where a machine is not clean afterwards.
    pub async fn interrupt(&mut self) -> Result<(), BenchError> {
        let books = Mutex::new(&mut self.books);
        let stopped = join_all(self.workers.iter_mut().map(|worker| worker.interrupt(&books))).await;
        self.books.record(Record::Interrupted)?;
        stopped.into_iter().collect()
    }

    /// Ends every process at once.
    pub async fn kill(&mut self) {
        join_all(self.workers.iter_mut().map(|worker| worker.rig.kill())).await;
    }

    /// Records that another run took over.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn resumed(&mut self, gpu_time: Seconds) -> Result<(), BenchError> {
        // The session has yet to come to what stands before it.
        self.books.append(Record::Resumed { gpu_time })
    }

    /// Records the answer.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn conclude(&mut self, conclusion: &Conclusion) -> Result<(), BenchError> {
        self.books.record(Record::Concluded(Box::new(conclusion.clone())))
    }
}

/// A worker, what it launches, and what it probes.
type Asked = (usize, Option<Launch>, Option<(Asking, Certainty)>);

/// What a worker answered.
struct Answer {
    worker: usize,
    ready: Option<Result<Ready, Diagnosis>>,
    probed: Option<Result<Told, Diagnosis>>,
}
