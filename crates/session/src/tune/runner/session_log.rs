//! The session log: the journal of a session, and what the session knows at its place in the journal. A resumed session replays the records in
//! their order.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::super::predictor::PredictionCache;
use super::super::sample_sizes::SampleSizes;
use super::super::session_twin::{FitProbe, SessionTwin, TrafficSource, TwinEngine};
use super::super::trial::{Launch, TrialRequest};
use crate::events::Sink;
use crate::journal::{Entry, Journal, JournalError, Record, Writer, keep_requests, requests_of};
use crate::rig::{Failure, Measured, ProbeAsk, Ready, Spawned};
use crate::verdict::{Certainty, Verdict};
use autotune_plan::engine::live::widest;
use autotune_plan::settings::Plan;
use autotune_plan::space::Point;
use autotune_twin::Fit;
use autotune_workload::{Material, Vocabulary};

/// Why a session cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("failed to write {path}: {source}")]
    Requests { path: PathBuf, source: std::io::Error },
    #[error("{path} {why}; restore it from a copy, or start again with --fresh")]
    Kept { path: PathBuf, why: String },
    /// The machine or our own part failed.
    #[error("{0}")]
    Machine(String),
    #[error(
        "the journal does not fit this program: {0}; finish it with the version that began it, or start again with --fresh"
    )]
    Diverged(String),
    #[error(
        "{what} was {before} when this run began and is {now}; its earlier probes say nothing about this one: use --fresh"
    )]
    OtherEngine { what: &'static str, before: String, now: String },
}

pub struct Folder {
    /// The journal; `None` if no later run will read it.
    pub writer: Option<Writer>,
    /// The output folder, where the requests of each probe are kept.
    pub path: PathBuf,
}

/// The journal, with the twin and the predictions that follow from the records so far.
pub struct SessionLog<'a> {
    pub plan: &'a Plan,
    pub seed: u64,
    pub sink: &'a dyn Sink,
    folder: Option<Folder>,
    /// All records, also those that a resumed session has not replayed yet.
    pub journal: Journal,
    pub session_twin: SessionTwin,
    pub predictions: PredictionCache,
    /// What prompts are made of, as the first engine told, if it did.
    words: Option<Vocabulary>,
    /// How many records the session has replayed or written.
    replayed: usize,
    trials: u32,
}

/// The recorded result of a probe: its verdict, or why the engine failed.
pub type Recorded = Result<Verdict, Failure>;

impl<'a> SessionLog<'a> {
    pub fn new(plan: &'a Plan, seed: u64, sink: &'a dyn Sink, folder: Option<Folder>, journal: Journal) -> Self {
        let (session_twin, predictions) = (SessionTwin::new(SampleSizes::FULL), PredictionCache::default());
        let words = journal.entries.iter().find_map(Entry::words).cloned();
        Self { plan, seed, sink, folder, journal, session_twin, predictions, words, replayed: 0, trials: 0 }
    }

    /// The records that the session has replayed or written.
    pub fn passed(&self) -> &[Entry] {
        &self.journal.entries[..self.replayed]
    }

    /// Records the vocabulary of the first engine that gave one. A resumed session reads it from its journal.
    pub fn learn_words(&mut self, told: &Vocabulary) -> Result<(), RunnerError> {
        if self.words.is_none() && *told != Vocabulary::default() {
            self.words = Some(told.clone());
            self.record(Record::Words(Box::new(told.clone())))?;
        }
        Ok(())
    }

    /// The material of a rig's traffic, with the recorded vocabulary.
    pub fn material(&self, rig: &Material) -> Material {
        let vocabulary = self.words.as_ref().unwrap_or(&rig.vocabulary).clone();
        Material { vocabulary, corpus: rig.corpus.clone(), resent: self.session_twin.resent }
    }

    /// The verdict with the twin's estimate.
    pub fn weigh(&mut self, verdict: Verdict, fit_probe: &FitProbe, rig: &Material, certainty: Certainty) -> Verdict {
        let material = self.material(rig);
        let source = TrafficSource { plan: self.plan, material: &material, seed: self.seed };
        self.session_twin.weigh(verdict, fit_probe, source, certainty)
    }

    pub fn next_launch(&mut self, wanted: TrialRequest) -> Launch {
        self.trials += 1;
        let live = self.may_alter(&wanted);
        Launch { trial: self.trials, wanted, warmed: self.first_ready().map(|ready| ready.warmed), live }
    }

    /// Whether this trial's engine may change its limits while it runs. Arguments that will be deployed are launched plainly. So is every engine
    /// once one of them could not change its limits.
    pub fn may_alter(&self, wanted: &TrialRequest) -> bool {
        !wanted.purpose.launches_plainly()
            && widest(self.plan, None, &wanted.point).is_some()
            && !self.cannot_change_live()
    }

    /// Whether an engine could not change its limits.
    pub fn cannot_change_live(&self) -> bool {
        self.passed().iter().filter_map(Entry::ready).any(|ready| ready.process.live_unsupported_reason.is_some())
    }

    /// The first launch: its warm-up sends whole answers, and to its engine the twin is fitted.
    pub fn first_ready(&self) -> Option<&Ready> {
        self.passed().iter().find_map(Entry::ready)
    }

    /// The tokens of the largest step that had a CUDA graph on the first engine.
    pub fn first_graph(&self) -> Option<i64> {
        self.first_ready()?.process.graph
    }

    /// Moves to the first record of which `of` tells something: it and all before it are replayed.
    fn replay<T>(&mut self, of: impl Fn(&Record) -> Option<T>) -> Option<(&Record, T)> {
        let told = |(place, entry): (usize, &Entry)| Some((place, of(&entry.record)?));
        let (place, told) = self.journal.entries.iter().enumerate().find_map(told)?;
        self.replayed = self.replayed.max(place + 1);
        Some((&self.journal.entries[place].record, told))
    }

    pub fn record(&mut self, record: Record) -> Result<(), RunnerError> {
        self.append(record)?;
        // A new step ends the replay.
        self.replayed = self.journal.entries.len();
        Ok(())
    }

    /// Appends a record without moving to it.
    pub fn append(&mut self, record: Record) -> Result<(), RunnerError> {
        let entry = match self.folder.as_mut().and_then(|folder| folder.writer.as_mut()) {
            Some(writer) => writer.append(record)?,
            None => Entry { at: 0.0, record },
        };
        self.journal.entries.push(entry);
        Ok(())
    }

    /// Records a started process, so that a later run can end it. Without a journal file there is no later run.
    pub fn spawned(&mut self, trial: u32, spawned: &Spawned) -> Result<(), RunnerError> {
        let is_kept = self.folder.as_ref().is_some_and(|folder| folder.writer.is_some());
        if is_kept { self.append(Record::Spawned { trial, spawned: spawned.clone() }) } else { Ok(()) }
    }

    pub fn recorded_launch(
        &mut self,
        trial: u32,
        attempt: u32,
        point: &Point,
    ) -> Result<Option<Result<Ready, Failure>>, RunnerError> {
        let other = self.journal.entries.iter().find_map(|entry| match &entry.record {
            Record::Launching { trial: t, point: recorded, .. } if *t == trial && recorded != point => Some(recorded),
            _ => None,
        });
        if let Some(other) = other {
            return Err(RunnerError::Diverged(format!("trial {trial} launched {other}, now {point} is asked")));
        }
        let of = (trial, attempt);
        let recorded = self.replay(|record| match record {
            Record::Ready { trial, attempt, ready } if (*trial, *attempt) == of => Some(Ok((**ready).clone())),
            Record::NotReady { trial, attempt, failure } if (*trial, *attempt) == of => Some(Err(failure.clone())),
            _ => None,
        });
        Ok(recorded.map(|(_, answer)| answer))
    }

    /// The engine, the model and the GPU must be those that the journal began with.
    pub fn same_engine(&self, now: &Ready) -> Result<(), RunnerError> {
        let readies = || self.journal.entries.iter().filter_map(Entry::ready);
        let Some(before) = readies().next() else { return Ok(()) };
        // An engine that died as soon as it served did not tell its version.
        let told = readies().find_map(|ready| ready.effective.version.clone()).zip(now.effective.version.clone());
        let (before_version, now_version) = told.unwrap_or_default();
        let gpus = |of: &Ready| if of.gpus.is_empty() { "none".to_owned() } else { of.gpus.join(", ") };
        let pairs = [
            ("the engine's version", before_version, now_version),
            ("the served model", before.model.clone(), now.model.clone()),
            ("the GPU", gpus(before), gpus(now)),
        ];
        match pairs.into_iter().find(|(_, before, now)| before != now) {
            Some((what, before, now)) => Err(RunnerError::OtherEngine { what, before, now }),
            None => Ok(()),
        }
    }

    /// The seed of the arrivals of a recorded probe.
    pub fn recorded_arrivals(&self, trial: u32, probe: u32) -> Option<u64> {
        self.journal.entries.iter().find_map(|entry| match &entry.record {
            Record::Probed { trial: t, probe: p, ask, .. } | Record::Broken { trial: t, probe: p, ask, .. }
                if (*t, *p) == (trial, probe) =>
            {
                Some(ask.arrival_seed)
            }
            _ => None,
        })
    }

    /// The recorded result of a probe and, if it was measured, its requests for the fit of the twin.
    pub fn recorded_probe(
        &mut self,
        trial: u32,
        probe: u32,
        ask: &ProbeAsk,
        engine: Option<TwinEngine>,
    ) -> Result<Option<(Recorded, Option<FitProbe>)>, RunnerError> {
        let folder = self.folder.as_ref().map(|folder| folder.path.clone());
        let of = (trial, probe);
        let recorded = self.replay(|record| match record {
            Record::Probed { trial, probe, ask, verdict, .. } if (*trial, *probe) == of => {
                Some((*ask, Ok((**verdict).clone())))
            }
            Record::Broken { trial, probe, ask, failure } if (*trial, *probe) == of => {
                Some((*ask, Err(failure.clone())))
            }
            _ => None,
        });
        let Some((record, (recorded, answer))) = recorded else { return Ok(None) };
        if recorded != *ask {
            let (was, is) = (recorded.rate, ask.rate);
            let says = format!("trial {trial} probed {was}, now {is} is asked, or other traffic at that rate");
            return Err(RunnerError::Diverged(says));
        }
        // A fit takes a measured probe whose requests were kept.
        let (Record::Probed { cache, telemetry, steps, requests, requests_sha256, .. }, Some(engine), Some(folder)) =
            (record, engine, folder)
        else {
            return Ok(Some((answer, None)));
        };
        let path = folder.join(requests);
        match requests_of(&path, requests_sha256.as_deref()) {
            Ok(records) => {
                let fit_probe = FitProbe::of(engine, *ask, &records, cache, telemetry).with_steps(steps.clone());
                Ok(Some((answer, Some(fit_probe))))
            }
            Err(why) => Err(RunnerError::Kept { path, why }),
        }
    }

    /// The recorded fit after a probe, with the verdicts of the trial's probes under it.
    pub fn recorded_fit(&mut self, trial: u32, probe: u32) -> Option<(Box<Fit>, BTreeMap<u32, Verdict>)> {
        let recorded = self.replay(|record| match record {
            Record::Fitted { trial: t, probe: p, fit, verdicts } if (*t, *p) == (trial, probe) => {
                Some((fit.clone(), verdicts.clone()))
            }
            _ => None,
        });
        recorded.map(|(_, fitted)| fitted)
    }

    pub fn attempts(&self, trial: u32) -> u32 {
        let attempts = self.journal.entries.iter().filter_map(|e| match e.record {
            Record::Launching { trial: t, attempt, .. } if t == trial => Some(attempt),
            _ => None,
        });
        attempts.max().unwrap_or(0)
    }

    /// Writes the requests of a probe to a file. Returns its path below the output folder, and its digest.
    pub fn keep(&self, trial: u32, probe: u32, measured: &Measured) -> Result<(String, Option<String>), RunnerError> {
        let Some(folder) = &self.folder else { return Ok((String::new(), None)) };
        let name = format!("requests/t{trial:03}-p{probe:02}.csv");
        let path = folder.path.join(&name);
        let kept = keep_requests(&path, &measured.records);
        let digest = kept.map_err(|source| RunnerError::Requests { path, source })?;
        Ok((name, Some(digest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Silent;

    #[test]
    fn an_engine_that_did_not_tell_its_version_is_not_another_engine() {
        let plan = crate::quickstart::quickstart(&[]);
        let journal =
            crate::journal::read(include_bytes!("../../../../../tests/data/h200-turns/journal.jsonl")).unwrap();
        let with = |version: Option<&str>| {
            let mut ready = journal.entries.iter().find_map(Entry::ready).unwrap().clone();
            ready.effective.version = version.map(str::to_owned);
            ready
        };
        let entry =
            |version| Entry { at: 1.0, record: Record::Ready { trial: 1, attempt: 1, ready: Box::new(with(version)) } };
        for (before, now, same) in [
            (vec![Some("1")], Some("1"), true),
            (vec![Some("1")], Some("2"), false),
            (vec![Some("1")], None, true),
            (vec![None], Some("2"), true),
            (vec![None, Some("1")], Some("2"), false),
        ] {
            let journal = Journal { entries: before.iter().copied().map(entry).collect(), ..Journal::default() };
            let session_log = SessionLog::new(&plan, 1, &Silent, None, journal);
            let found = session_log.same_engine(&with(now));
            assert_eq!(found.is_ok(), same, "{before:?} {now:?}");
            let says = "the engine's version was 1 when this run began and is 2; its earlier probes say nothing about this one: use --fresh";
            assert!(found.err().is_none_or(|error| error.to_string() == says));
        }
    }
}
