//! The bench: a rig whose every answer is in the journal, so that an answer once paid for is never paid again.
//!
//! A resumed session runs from its beginning and asks the same questions; those that the journal answers cost nothing, and the
//! engine is launched again only when a question comes that it cannot answer.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::cost::Prices;
use super::foresight::{Foresight, Outlook};
use super::pairing::{Engine, Hindsight, Lesson, Pairing};
use super::session::NEVER_CUT;
use crate::engine::diagnosis::{Consequence, Diagnosis};
use crate::journal::{Conclusion, Cost, Entry, Journal, JournalError, Purpose, Record, Writer};
use crate::load::{read_records, write_records};
use crate::progress::{Event, Sink};
use crate::rig::{Failure, Measured, ProbeAsk, Ready, Rig, RigError, Trial};
use crate::search::ALL_AT_ONCE;
use crate::settings::Plan;
use crate::space::Point;
use crate::units::Seconds;
use crate::verdict::{Certainty, Course, Outcome, Verdict, judge};

/// Where a twin may judge, a probe goes on until so many times as many violations as a promise absorbs: at the knee the luck of arrivals
/// alone makes twice as many, and a probe that was cut is a bound and no value.
const SLACK: f64 = 3.0;
/// A probe that our own client spoilt is repeated this often.
const VOID_REPEATS: u32 = 2;

/// Why a session cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The requests of a probe cannot be written.
    #[error("failed to write {path}: {source}")]
    Requests {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The machine or our own part failed.
    #[error("{0}")]
    Machine(String),
    /// The journal answers another question than the one asked.
    #[error(
        "the journal does not fit this program: {0}; finish it with the version that began it, or start again with --fresh"
    )]
    Diverged(String),
    /// The engine or the machine is not the one that the journal knows.
    #[error(
        "{what} was {before} when this run began and is {now}; its earlier probes say nothing about this one: use --fresh"
    )]
    OtherEngine {
        /// What changed.
        what: &'static str,
        /// Then.
        before: String,
        /// Now.
        now: String,
    },
}

/// Where a session writes.
pub struct Folder {
    /// The journal; none where no later run will read it.
    pub writer: Option<Writer>,
    /// The output folder, where the requests of each probe are kept.
    pub path: PathBuf,
}

/// A rig with a memory.
pub struct Bench<'a, R> {
    rig: R,
    plan: &'a Plan,
    seed: u64,
    sink: &'a dyn Sink,
    folder: Option<Folder>,
    journal: Journal,
    pairing: Pairing,
    outlook: Outlook,
    /// How many of its records the session has come to.
    replayed: usize,
    trials: u32,
    current: Option<Current>,
}

struct Current {
    trial: u32,
    /// As it was launched.
    point: Point,
    /// With what the engine chose for parameters that were left to it.
    known_as: Point,
    purpose: Purpose,
    /// Whether its engine runs; a trial that is answered from the journal has none.
    live: bool,
    probes: u32,
    answer_time: Seconds,
    /// As the twin sees it; none where it cannot.
    engine: Option<Engine>,
    /// The probes that say something, with the latest word on them.
    told: Vec<Told>,
}

/// A probe with its verdict, and what the twin needs to judge it again.
struct Told {
    probe: u32,
    ask: ProbeAsk,
    verdict: Verdict,
    took: Seconds,
    lesson: Option<Lesson>,
}

impl<'a, R: Rig> Bench<'a, R> {
    /// A bench with what a journal already knows; without a folder nothing is written. `seed` decides every draw.
    pub fn new(
        rig: R,
        plan: &'a Plan,
        seed: u64,
        sink: &'a dyn Sink,
        folder: Option<Folder>,
        journal: Journal,
    ) -> Self {
        let (pairing, outlook) = (Pairing::default(), Outlook::default());
        Self { rig, plan, seed, sink, folder, journal, pairing, outlook, replayed: 0, trials: 0, current: None }
    }

    /// What decides every draw.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Everything that is recorded, also what a resumed session has not come to yet.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The records that the session has come to: it must decide from these alone, or a resumed one would decide otherwise.
    pub fn passed(&self) -> &[Entry] {
        &self.journal.entries[..self.replayed]
    }

    /// Engine time of the records that the session has come to.
    pub fn spent(&self) -> Seconds {
        Cost::of(self.passed()).engine_seconds
    }

    /// Comes to a record, and with it to all before it.
    fn pass(&mut self, place: usize) {
        self.replayed = self.replayed.max(place + 1);
    }

    /// The rig itself.
    #[cfg(test)]
    pub(super) fn rig(&self) -> &R {
        &self.rig
    }

    /// The point of the current trial, by its full name.
    pub fn point(&self) -> Option<&Point> {
        self.current.as_ref().map(|c| &c.known_as)
    }

    /// The current trial's point by its full name: the engine has told what it chose for parameters that were left to it.
    pub fn known_as(&mut self, point: &Point) {
        if let Some(current) = &mut self.current {
            current.known_as = point.clone();
        }
    }

    fn record(&mut self, record: Record) -> Result<(), BenchError> {
        self.append(record)?;
        // Whatever was recorded before is past once something new happens.
        self.replayed = self.journal.entries.len();
        Ok(())
    }

    fn append(&mut self, record: Record) -> Result<(), BenchError> {
        let entry = match self.folder.as_mut().and_then(|folder| folder.writer.as_mut()) {
            Some(writer) => writer.append(record)?,
            None => Entry { at: 0.0, record },
        };
        self.journal.entries.push(entry);
        Ok(())
    }

    /// Starts a new trial. The inner result is the engine's: ready, or why not after a second try where one is due.
    ///
    /// # Errors
    /// What ends a session.
    pub async fn launch(&mut self, purpose: Purpose, point: &Point) -> Result<Result<Ready, Diagnosis>, BenchError> {
        self.stop().await?;
        self.trials += 1;
        let trial = self.trials;
        let mut attempt = 1;
        loop {
            let recorded = self.recorded_launch(trial, attempt, point)?;
            let live = recorded.is_none();
            let answer = match recorded {
                Some(answer) => answer,
                None => self.start(Trial { number: trial, attempt }, purpose, point).await?,
            };
            match answer {
                Ok(ready) => {
                    let engine = Engine::of(self.plan, point, &ready);
                    self.outlook.learn(point, engine);
                    self.current = Some(Current {
                        trial,
                        point: point.clone(),
                        known_as: point.clone(),
                        purpose,
                        live,
                        probes: 0,
                        answer_time: ready.answer_time,
                        engine,
                        told: Vec::new(),
                    });
                    return Ok(Ok(ready));
                }
                Err(failure) if failure.diagnosis.consequence == Consequence::Retry && attempt == 1 => attempt += 1,
                Err(failure) => return Ok(Err(failure.diagnosis)),
            }
        }
    }

    /// What the journal knows of an attempt.
    fn recorded_launch(
        &mut self,
        trial: u32,
        attempt: u32,
        point: &Point,
    ) -> Result<Option<Result<Ready, Failure>>, BenchError> {
        let mut found = None;
        for (place, entry) in self.journal.entries.iter().enumerate() {
            match &entry.record {
                Record::Launching { trial: t, point: recorded, .. } if *t == trial && recorded != point => {
                    return Err(BenchError::Diverged(format!(
                        "trial {trial} launched {recorded}, now {point} is asked"
                    )));
                }
                Record::Ready { trial: t, attempt: a, ready } if (*t, *a) == (trial, attempt) => {
                    found = Some((place, Ok((**ready).clone())));
                }
                Record::NotReady { trial: t, attempt: a, failure } if (*t, *a) == (trial, attempt) => {
                    found = Some((place, Err(failure.clone())));
                }
                _ => {}
            }
        }
        let Some((place, answer)) = found else { return Ok(None) };
        self.pass(place);
        Ok(Some(answer))
    }

    /// Launches for real and records it.
    async fn start(
        &mut self,
        trial: Trial,
        purpose: Purpose,
        point: &Point,
    ) -> Result<Result<Ready, Failure>, BenchError> {
        let Trial { number, attempt } = trial;
        self.sink.take(&Event::Launching { trial: number, attempt, purpose, point });
        self.record(Record::Launching { trial: number, attempt, purpose, point: point.clone() })?;
        let mut written = Ok(());
        let (folder, journal) = (&mut self.folder, &mut self.journal);
        let mut spawned = |spawned: &crate::rig::Spawned| {
            if let Some(writer) = folder.as_mut().and_then(|folder| folder.writer.as_mut()) {
                let record = Record::Spawned { trial: number, spawned: spawned.clone() };
                written = writer.append(record).map(|entry| journal.entries.push(entry));
            }
        };
        let answer = self.rig.launch(trial, point, &mut spawned).await;
        written?;
        match answer {
            Ok(ready) => {
                self.same_engine(&ready)?;
                self.record(Record::Ready { trial: number, attempt, ready: Box::new(ready.clone()) })?;
                let mismatches = ready.effective.mismatches(point);
                self.sink.take(&Event::Ready { trial: number, ready: &ready, mismatches: &mismatches });
                Ok(Ok(ready))
            }
            Err(RigError::Engine(failure)) => {
                let again = failure.diagnosis.consequence == Consequence::Retry && attempt == 1;
                self.sink.take(&Event::Failed { trial: number, diagnosis: &failure.diagnosis, again });
                self.record(Record::NotReady { trial: number, attempt, failure: (*failure).clone() })?;
                Ok(Err(*failure))
            }
            Err(RigError::Machine(what)) => Err(BenchError::Machine(what)),
        }
    }

    /// The engine, the model and the GPU must be those that the journal began with.
    fn same_engine(&self, now: &Ready) -> Result<(), BenchError> {
        let Some(before) = self.journal.entries.iter().find_map(|e| match &e.record {
            Record::Ready { ready, .. } => Some(ready),
            _ => None,
        }) else {
            return Ok(());
        };
        let version = |r: &Ready| r.effective.version.clone().unwrap_or_default();
        let pairs = [
            ("the engine's version", version(before), version(now)),
            ("the served model", before.model.clone(), now.model.clone()),
            ("the GPU", before.gpus.join(", "), now.gpus.join(", ")),
        ];
        match pairs.into_iter().find(|(_, before, now)| before != now) {
            Some((what, before, now)) => Err(BenchError::OtherEngine { what, before, now }),
            None => Ok(()),
        }
    }

    /// Probes the current trial. The inner result is the engine's; an engine that failed is launched and asked once more, unless
    /// its failure says that this would be in vain.
    ///
    /// # Errors
    /// What ends a session.
    pub async fn probe(
        &mut self,
        ask: impl Fn(u32, u32, Seconds) -> ProbeAsk,
        certainty: Certainty,
    ) -> Result<Result<Verdict, Diagnosis>, BenchError> {
        let (mut failures, mut voids) = (0, 0);
        loop {
            let Some(current) = &mut self.current else {
                return Err(BenchError::Machine("a probe was asked of no trial".into()));
            };
            current.probes += 1;
            let (trial, probe, answer_time) = (current.trial, current.probes, current.answer_time);
            // Where a pair may find that the arrivals were to blame, the window is seen to its end.
            let slack = if current.engine.is_some() && self.pairing.has_a_say() { SLACK } else { 1.0 };
            let asked = ask(trial, probe, answer_time);
            let ask = ProbeAsk { slack: asked.slack.max(slack), ..asked };
            let answer = match self.recorded_probe(trial, probe, &ask)? {
                Some(answer) => answer,
                None => self.measure(trial, probe, ask, certainty).await?,
            };
            match answer {
                Ok(verdict) if verdict.outcome == Outcome::Void && voids < VOID_REPEATS => voids += 1,
                Ok(verdict) => return Ok(Ok(verdict)),
                Err(diagnosis) if failures == 0 && worth_another_try(&diagnosis) => failures += 1,
                Err(diagnosis) => return Ok(Err(diagnosis)),
            }
        }
    }

    fn recorded_probe(
        &mut self,
        trial: u32,
        probe: u32,
        ask: &ProbeAsk,
    ) -> Result<Option<Result<Verdict, Diagnosis>>, BenchError> {
        for (place, entry) in self.journal.entries.iter().enumerate() {
            let (recorded, answer) = match &entry.record {
                Record::Probed { trial: t, probe: p, ask, verdict, took, .. } if (*t, *p) == (trial, probe) => {
                    (ask, Ok(((**verdict).clone(), *took)))
                }
                Record::Broken { trial: t, probe: p, ask, failure } if (*t, *p) == (trial, probe) => {
                    (ask, Err(failure.diagnosis.clone()))
                }
                _ => continue,
            };
            if recorded != ask {
                let (was, is) = (recorded.rate, ask.rate);
                return Err(BenchError::Diverged(format!("trial {trial} probed {was}, now {is} is asked")));
            }
            self.pass(place);
            if let Ok((verdict, took)) = &answer {
                let lesson = self.kept_lesson(place);
                self.tell(Told { probe, ask: *ask, verdict: verdict.clone(), took: *took, lesson })?;
            }
            return Ok(Some(answer.map(|(verdict, _)| verdict)));
        }
        Ok(None)
    }

    /// What the twin can learn from a recorded probe, by its record and the requests that were kept; nothing where these are gone.
    fn kept_lesson(&self, place: usize) -> Option<Lesson> {
        let engine = self.current.as_ref()?.engine?;
        let Record::Probed { ask, cache, requests, .. } = &self.journal.entries.get(place)?.record else {
            return None;
        };
        let file = std::fs::File::open(self.folder.as_ref()?.path.join(requests)).ok()?;
        Some(Lesson::of(engine, *ask, &read_records(file).ok()?, cache))
    }

    /// Adds a probe to those of the trial, teaches it to the twin, and judges the trial again where that was the time for a new fit.
    /// What certifies is not taught: it must be new to whoever judges it. The fit behind a recorded probe stands in the journal.
    fn tell(&mut self, told: Told) -> Result<(), BenchError> {
        let Some(current) = self.current.as_mut().filter(|_| told.verdict.outcome != Outcome::Void) else {
            return Ok(());
        };
        let (trial, probe) = (current.trial, told.probe);
        if told.ask.rate != ALL_AT_ONCE {
            self.pairing.hear(&told.verdict);
        }
        told.lesson.iter().for_each(|lesson| self.pairing.note(lesson));
        let due = match &told.lesson {
            // What a burst shows is no evidence for a rate.
            Some(lesson) if current.purpose.certifies() && told.ask.slack < NEVER_CUT => {
                self.pairing.witness(trial, lesson, told.verdict.complete);
                false
            }
            Some(lesson) => self.pairing.learn(trial, lesson),
            None => false,
        };
        current.told.push(told);
        let recorded = self.journal.entries.iter().enumerate().find_map(|(place, entry)| match &entry.record {
            Record::Fitted { trial: t, probe: p, fit, verdicts } if (*t, *p) == (trial, probe) => {
                Some((place, fit.clone(), verdicts.clone()))
            }
            _ => None,
        });
        if let Some((place, fit, verdicts)) = recorded {
            self.pairing.adopt(*fit);
            self.pass(place);
            self.judge_again(verdicts);
        } else if due && let Some(fit) = self.pairing.fit() {
            let fit = Box::new(fit.clone());
            self.sink.take(&Event::Fitted(&fit));
            let verdicts = self.second_thoughts();
            self.record(Record::Fitted { trial, probe, fit, verdicts: verdicts.clone() })?;
            self.judge_again(verdicts);
        }
        Ok(())
    }

    /// What the new twin makes of the trial's probes.
    fn second_thoughts(&mut self) -> BTreeMap<u32, Verdict> {
        let Self { rig, plan, seed, pairing, current, .. } = self;
        let mut weighed = |told: &Told| {
            let traffic = (rig.material(), *seed);
            let lesson = told.lesson.as_ref()?;
            Some((told.probe, pairing.weigh(told.verdict.clone(), lesson, plan, traffic, Certainty::SEARCH)))
        };
        current.iter().flat_map(|current| &current.told).filter_map(&mut weighed).collect()
    }

    fn judge_again(&mut self, mut verdicts: BTreeMap<u32, Verdict>) {
        for told in self.current.iter_mut().flat_map(|current| &mut current.told) {
            if let Some(verdict) = verdicts.remove(&told.probe) {
                told.verdict = verdict;
            }
        }
    }

    /// The engine by all that is known of it, what certifies included.
    pub(super) fn in_hindsight(&self) -> Option<Hindsight> {
        self.pairing.in_hindsight()
    }

    /// Another point is certified from here on.
    pub(super) fn dismiss_witnesses(&mut self) {
        self.pairing.dismiss();
    }

    /// Fits the twin as well as it can be, and judges the trial's probes again: before points are compared, and before it judges what is
    /// certified.
    pub(super) fn fit_well(&mut self) {
        self.pairing.fit_well();
        let verdicts = self.second_thoughts();
        self.judge_again(verdicts);
    }

    /// The most requests that were seen streamed at the same time.
    pub(super) fn largest_batch(&self) -> u32 {
        self.pairing.largest()
    }

    /// What may be expected of points, with those prices.
    pub(super) fn foresight(&mut self, prices: Prices, crowded: bool) -> Foresight<'_> {
        let Self { rig, plan, seed, pairing, outlook, current, .. } = self;
        let running = current.as_ref().map(|current| &current.known_as);
        Foresight { plan, material: rig.material(), seed: *seed, pairing, outlook, prices, running, crowded }
    }

    /// The current trial's probes that say something, in their order: what was asked, the latest word on it, and the time it took.
    pub fn told(&self) -> impl Iterator<Item = (&ProbeAsk, &Verdict, Seconds)> {
        self.current.iter().flat_map(|current| &current.told).map(|told| (&told.ask, &told.verdict, told.took))
    }

    /// Probes for real and records it; launches the trial's engine first where it does not run.
    async fn measure(
        &mut self,
        trial: u32,
        probe: u32,
        ask: ProbeAsk,
        certainty: Certainty,
    ) -> Result<Result<Verdict, Diagnosis>, BenchError> {
        if let Some((point, purpose)) = self.current.as_ref().filter(|c| !c.live).map(|c| (c.point.clone(), c.purpose))
        {
            let attempt = 1 + self.attempts(trial);
            match self.start(Trial { number: trial, attempt }, purpose, &point).await? {
                Ok(_) => self.set_live(true),
                Err(failure) => {
                    // It is the answer of this probe; what it took stands with the start.
                    let failure = Failure { took: Seconds(0.0), ..failure };
                    let diagnosis = failure.diagnosis.clone();
                    self.record(Record::Broken { trial, probe, ask, failure })?;
                    return Ok(Err(diagnosis));
                }
            }
        }
        let rate = ask.rate;
        let engine = self.current.as_ref().and_then(|c| c.engine);
        self.sink.take(&Event::Probing { trial, rate, length: ask.window.to });
        match self.rig.probe(&ask).await {
            Ok(measured) => {
                let Measured { records, ended, complete, client, .. } = &measured;
                let course = Course { window: ask.window, ended: *ended, complete: *complete, steady: true };
                let mut verdict = judge(records, &self.plan.slo, course, client, certainty);
                let lesson = engine.map(|engine| Lesson::of(engine, ask, records, &measured.cache));
                if let Some(lesson) = &lesson {
                    let traffic = (self.rig.material(), self.seed);
                    verdict = self.pairing.weigh(verdict, lesson, self.plan, traffic, certainty);
                }
                let requests = self.keep(trial, probe, &measured)?;
                self.record(Record::Probed {
                    trial,
                    probe,
                    ask,
                    verdict: Box::new(verdict.clone()),
                    telemetry: measured.telemetry,
                    cache: measured.cache,
                    client: measured.client,
                    took: measured.took,
                    requests,
                })?;
                self.sink.take(&Event::Probed { trial, rate, verdict: &verdict });
                if let Some(warning) = measured.cache.warning() {
                    self.sink.take(&Event::Note(&format!("trial {trial}: {warning}")));
                }
                self.tell(Told { probe, ask, verdict: verdict.clone(), took: measured.took, lesson })?;
                Ok(Ok(verdict))
            }
            Err(RigError::Engine(failure)) => {
                self.set_live(false);
                self.record(Record::Broken { trial, probe, ask, failure: (*failure).clone() })?;
                let again = worth_another_try(&failure.diagnosis);
                self.sink.take(&Event::Failed { trial, diagnosis: &failure.diagnosis, again });
                Ok(Err(failure.diagnosis))
            }
            Err(RigError::Machine(what)) => Err(BenchError::Machine(what)),
        }
    }

    fn set_live(&mut self, live: bool) {
        if let Some(current) = &mut self.current {
            current.live = live;
        }
    }

    fn attempts(&self, trial: u32) -> u32 {
        let attempts = self.journal.entries.iter().filter_map(|e| match e.record {
            Record::Launching { trial: t, attempt, .. } if t == trial => Some(attempt),
            _ => None,
        });
        attempts.max().unwrap_or(0)
    }

    /// Keeps every request of a probe in a file of its own; returns its path below the output folder.
    fn keep(&self, trial: u32, probe: u32, measured: &Measured) -> Result<String, BenchError> {
        let Some(folder) = &self.folder else { return Ok(String::new()) };
        let name = format!("requests/t{trial:03}-p{probe:02}.csv");
        let path = folder.path.join(&name);
        let write = || -> std::io::Result<()> {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            write_records(&measured.records, std::io::BufWriter::new(std::fs::File::create(&path)?))
        };
        write().map_err(|source| BenchError::Requests { path: path.clone(), source })?;
        Ok(name)
    }

    /// Ends the current trial and stops its engine, if one runs.
    ///
    /// # Errors
    /// Where the machine is not clean afterwards.
    pub async fn stop(&mut self) -> Result<(), BenchError> {
        if let Some(current) = self.current.take()
            && current.live
        {
            let took = self.rig.stop().await.map_err(|e| BenchError::Machine(e.to_string()))?;
            self.record(Record::Stopped { trial: current.trial, took })?;
        }
        Ok(())
    }

    /// Stops whatever runs, also in the middle of a launch or probe, and records the interruption.
    ///
    /// # Errors
    /// Where the machine is not clean afterwards.
    pub async fn interrupt(&mut self) -> Result<(), BenchError> {
        let stopped = self.rig.stop().await;
        if let Some(current) = self.current.take() {
            let took = *stopped.as_ref().unwrap_or(&Seconds(0.0));
            self.record(Record::Stopped { trial: current.trial, took })?;
        }
        self.record(Record::Interrupted)?;
        stopped.map(drop).map_err(|e| BenchError::Machine(e.to_string()))
    }

    /// Ends every process at once.
    pub async fn kill(&mut self) {
        self.rig.kill().await;
    }

    /// Records that another run took over.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn resumed(&mut self, gpu_time: Seconds) -> Result<(), BenchError> {
        // The session has yet to come to what stands before it.
        self.append(Record::Resumed { gpu_time })
    }

    /// Records the answer.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn conclude(&mut self, conclusion: &Conclusion) -> Result<(), BenchError> {
        self.record(Record::Concluded(Box::new(conclusion.clone())))
    }
}

fn worth_another_try(diagnosis: &Diagnosis) -> bool {
    !matches!(diagnosis.consequence, Consequence::MemoryBound | Consequence::NeedsMoreMemory | Consequence::Abort)
}
