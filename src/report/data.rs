//! What the report shows, gathered once from the journal and from the requests of the certifying probe.

use std::collections::BTreeMap;
use std::path::Path;

use super::outcome::{Outcome, outcome, times};
use super::summary::defaults_win;
use crate::journal::{Conclusion, ExpectedQuantile, Header, Journal, PointResult, Purpose, Record, requests_of};
use crate::load::{ClientHealth, RequestRecord};
use crate::rig::{CacheUse, Failure, ProbeAsk, Telemetry};
use crate::search::{Observation, RateSearch};
use crate::settings::Limit;
use crate::space::{Point, Space};
use crate::units::{Rate, Seconds};
use crate::verdict::{Outcome as Judged, Verdict};

/// What a page is made of.
pub(super) struct ReportData<'a> {
    pub(super) header: Option<&'a Header>,
    pub(super) outcome: Outcome,
    pub(super) folder: &'a Path,
    pub(super) trials: Vec<Trial<'a>>,
    /// The budget of the last run into this folder: a resumed one may have another.
    pub(super) budget: Option<Seconds>,
    /// The profile of a rehearsal's engine.
    pub(super) rehearsed_on: Option<&'a str>,
    conclusion: Option<&'a Conclusion>,
}

/// Whose point a trial ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    Other,
    Defaults,
    Tuned,
}

impl Whose {
    /// As people read it.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Other => "another candidate",
            Self::Defaults | Self::Tuned => self.name(),
        }
    }

    /// As a class of the style sheet.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Defaults => "defaults",
            Self::Tuned => "tuned",
        }
    }
}

pub(super) struct Trial<'a> {
    pub(super) number: u32,
    pub(super) purpose: Purpose,
    /// Completed by what the engine said it runs.
    pub(super) point: Point,
    pub(super) whose: Whose,
    /// Whether it ran on the engine of an earlier trial.
    pub(super) altered: bool,
    pub(super) spans: Vec<Span>,
    pub(super) failures: Vec<(String, &'a Failure)>,
    pub(super) probes: Vec<Probe<'a>>,
}

/// What an engine was busy with; seconds of the run, without the time in which it was interrupted.
pub(super) struct Span {
    pub(super) what: Busy,
    pub(super) from: f64,
    pub(super) to: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Busy {
    Launch,
    Burst,
    Probe,
    Proof,
    Stop,
}

/// A probe with the latest word on it.
pub(super) struct Probe<'a> {
    pub(super) number: u32,
    pub(super) ask: &'a ProbeAsk,
    pub(super) verdict: &'a Verdict,
    pub(super) telemetry: &'a Telemetry,
    pub(super) cache: &'a CacheUse,
    pub(super) client: &'a ClientHealth,
    requests: &'a str,
    digest: Option<&'a str>,
}

pub(super) struct Proof<'a> {
    pub(super) trial: u32,
    pub(super) purpose: Purpose,
    pub(super) whose: Whose,
    pub(super) probe: &'a Probe<'a>,
}

/// The rates between which the limit of a point lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bracket {
    /// The highest that held, below those that did not.
    pub(super) kept: Option<Rate>,
    /// The lowest that did not.
    pub(super) broken: Option<Rate>,
}

impl<'a> ReportData<'a> {
    pub(super) fn new(journal: &'a Journal, folder: &'a Path) -> Self {
        let outcome = outcome(journal);
        let header = journal.header();
        let trials = trials(journal, header.map(|h| &h.plan.space), &outcome);
        let resumed = journal.entries.iter().rev().find_map(|entry| match entry.record {
            Record::Resumed { gpu_time } => Some(gpu_time),
            _ => None,
        });
        let budget = resumed.or(header.map(|header| header.plan.budget.gpu_time.into()));
        Self { header, outcome, folder, trials, budget, rehearsed_on: None, conclusion: journal.conclusion() }
    }

    /// As the report of a session that was rehearsed on an engine of that profile, if there is one.
    pub(super) fn rehearsed(mut self, profile: Option<&'a str>) -> Self {
        self.outcome.simulated |= profile.is_some();
        self.rehearsed_on = profile;
        self
    }

    /// The promises, in the order of the space file.
    pub(super) fn limits(&self) -> &'a [Limit] {
        self.header.map_or(&[], |header| &header.plan.slo)
    }

    /// What certification expects of the promises of each point that [`super::summary::columns`] shows.
    pub(super) fn expected(&self) -> Vec<(&'static str, &'a [ExpectedQuantile])> {
        let of = |point: Option<&'a PointResult>| point.map_or(&[][..], |point| &point.expected);
        let defaults = ("defaults", of(self.conclusion.and_then(|c| c.baseline.as_ref())));
        let tuned = ("tuned", of(self.conclusion.and_then(|c| c.best.as_ref())));
        if defaults_win(&self.outcome) { vec![("defaults", tuned.1)] } else { vec![defaults, tuned] }
    }

    pub(super) fn at_rates(&self) -> impl Iterator<Item = (&Trial<'a>, &Probe<'a>)> {
        self.trials.iter().flat_map(|t| t.probes.iter().filter(|p| !p.ask.is_burst()).map(move |p| (t, p)))
    }

    /// The certifying probe of the answer that is nearest to its certified rate; before there is one, the last probe at a rate.
    pub(super) fn proof(&self) -> Option<Proof<'_>> {
        let best = self.outcome.best.as_ref();
        let whose = if best.is_none() || defaults_win(&self.outcome) { Whose::Defaults } else { Whose::Tuned };
        let seen = best.and_then(|best| best.seen.as_ref()).map(|seen| seen.rate);
        let rank = |(trial, probe): &(&Trial<'_>, &Probe<'_>)| {
            let certifies = trial.purpose.certifies() && trial.whose == whose;
            (certifies && Some(probe.ask.rate) == seen, certifies, trial.whose == whose)
        };
        // Of those that are alike, the last.
        let (trial, probe) = self.at_rates().max_by_key(rank)?;
        Some(Proof { trial: trial.number, purpose: trial.purpose, whose: trial.whose, probe })
    }

    /// The requests of a probe.
    ///
    /// # Errors
    /// A sentence: the file is missing, or not the one that was written.
    pub(super) fn requests(&self, probe: &Probe<'_>) -> Result<Vec<RequestRecord>, String> {
        let said = |why| format!("{} {why}", probe.requests);
        requests_of(&self.folder.join(probe.requests), probe.digest).map_err(said)
    }

    /// Each point that was probed at a rate, with what its probes say of its limit.
    pub(super) fn brackets(&self) -> Vec<(&Trial<'a>, Bracket)> {
        let mut points: Vec<(&Trial<'a>, Vec<&Probe<'a>>)> = Vec::new();
        for (trial, probe) in self.at_rates().filter(|(_, probe)| probe.verdict.outcome != Judged::Void) {
            match points.iter_mut().find(|(other, _)| other.point == trial.point) {
                Some((_, probes)) => probes.push(probe),
                None => points.push((trial, vec![probe])),
            }
        }
        points.into_iter().map(|(trial, probes)| (trial, bracket(&probes))).collect()
    }
}

fn bracket(probes: &[&Probe<'_>]) -> Bracket {
    let Some(first) = probes.first() else { return Bracket { kept: None, broken: None } };
    let mut search = RateSearch::new(first.ask.rate, 0.0);
    for probe in probes {
        search.tell(probe.ask.rate, &Observation::of(probe.verdict));
    }
    Bracket { kept: search.kept(), broken: search.broken() }
}

fn trials<'a>(journal: &'a Journal, space: Option<&Space>, outcome: &Outcome) -> Vec<Trial<'a>> {
    let mut latest: BTreeMap<(u32, u32), &Verdict> = BTreeMap::new();
    for entry in &journal.entries {
        if let Record::Fitted { trial, verdicts, .. } = &entry.record {
            latest.extend(verdicts.iter().map(|(probe, verdict)| ((*trial, *probe), verdict)));
        }
    }
    let mut trials: BTreeMap<u32, Trial<'a>> = BTreeMap::new();
    let mut begun = BTreeMap::new();
    for (entry, now) in journal.entries.iter().zip(times(&journal.entries)) {
        let span =
            |trial: &mut Trial<'a>, what, from: f64| trial.spans.push(Span { what, from: from.max(0.0), to: now });
        match &entry.record {
            Record::Launching { trial, purpose, point, .. } => {
                begun.insert(*trial, now);
                trials.entry(*trial).or_insert_with(|| Trial {
                    number: *trial,
                    purpose: *purpose,
                    point: point.clone(),
                    whose: Whose::Other,
                    altered: false,
                    spans: Vec::new(),
                    failures: Vec::new(),
                    probes: Vec::new(),
                });
            }
            Record::Ready { trial: number, ready, .. } => {
                let Some(trial) = trials.get_mut(number) else { continue };
                span(trial, Busy::Launch, begun.get(number).copied().unwrap_or(now));
                trial.altered = ready.process.altered;
                if let Some(space) = space {
                    trial.point = ready.effective.complete(space, trial.point.clone());
                }
            }
            Record::NotReady { trial: number, attempt, failure } => {
                let Some(trial) = trials.get_mut(number) else { continue };
                span(trial, Busy::Launch, begun.get(number).copied().unwrap_or(now));
                trial.failures.push((format!("attempt {attempt} to start"), failure));
            }
            Record::Probed {
                trial: number,
                probe,
                ask,
                verdict,
                telemetry,
                cache,
                client,
                took,
                requests,
                requests_sha256,
                ..
            } => {
                let Some(trial) = trials.get_mut(number) else { continue };
                span(trial, busy(trial.purpose, ask), now - took.0);
                trial.probes.push(Probe {
                    number: *probe,
                    ask,
                    verdict: latest.get(&(*number, *probe)).copied().unwrap_or(verdict),
                    telemetry,
                    cache,
                    client,
                    requests,
                    digest: requests_sha256.as_deref(),
                });
            }
            Record::Broken { trial: number, probe, ask, failure } => {
                let Some(trial) = trials.get_mut(number) else { continue };
                span(trial, busy(trial.purpose, ask), now - failure.took.0);
                trial.failures.push((format!("probe {probe}"), failure));
            }
            Record::Stopped { trial: number, took } => {
                let Some(trial) = trials.get_mut(number) else { continue };
                span(trial, Busy::Stop, now - took.0);
            }
            _ => {}
        }
    }
    let mut trials: Vec<Trial<'a>> = trials.into_values().collect();
    mark(&mut trials, outcome);
    trials
}

fn busy(purpose: Purpose, ask: &ProbeAsk) -> Busy {
    match (ask.is_burst(), purpose.certifies()) {
        (true, _) => Busy::Burst,
        (false, true) => Busy::Proof,
        (false, false) => Busy::Probe,
    }
}

/// Says whose the points are: by the answer, or before there is one by what the trials are for.
fn mark(trials: &mut [Trial<'_>], outcome: &Outcome) {
    let of = |purpose| trials.iter().find(|t| t.purpose == purpose).map(|t| t.point.clone());
    let defaults = outcome.baseline.as_ref().map(|a| a.parameters.clone()).or_else(|| of(Purpose::Baseline));
    let tuned = outcome
        .best
        .as_ref()
        .map(|a| a.parameters.clone())
        .or_else(|| of(Purpose::Certify))
        .or_else(|| of(Purpose::CertifyRunning));
    for trial in trials {
        let is = |point: &Option<Point>| point.as_ref().is_some_and(|point| point.holding(&trial.point) == *point);
        trial.whose = match () {
            () if is(&defaults) => Whose::Defaults,
            () if is(&tuned) => Whose::Tuned,
            () => Whose::Other,
        };
    }
}
