//! A worker of the trial runner: one rig with the trial that it is at, whose every question goes to the journal first.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::field::{Empty, debug, display};
use tracing::{Instrument, Span, debug, info_span};

use super::super::session_twin::{FitProbe, TrafficSource, TwinEngine};
use super::super::trial::{Asking, Current, Launch, ProbeResult, TrialRequest};
use super::served_as_meant;
use super::session_log::{RunnerError, SessionLog};
use crate::events::Event;
use crate::journal::Record;
use crate::rig::{Failure, Measured, ProbeAsk, Ready, Rig, RigError, Trial};
use crate::verdict::paired::Judge;
use crate::verdict::{Certainty, Course, Outcome, Slack, Verdict, judge};
use autotune_plan::engine::diagnosis::{Cause, Consequence, Diagnosis};
use autotune_plan::engine::live::has_graphs;
use autotune_records::units::Seconds;

/// Where a twin may judge, a probe is cut only at this many times the violations that a promise absorbs. Where a hundred requests absorb one,
/// arrivals alone make four of them at the knee. A probe that was cut gives a bound and no value.
const SLACK: Slack = Slack(6.0);
/// A probe that our own client spoilt is repeated this often.
const VOID_REPEATS: u32 = 2;

/// The session log while workers work side by side: each looks into them for a moment, and none while it waits.
pub type Shared<'s, 'a> = Mutex<&'s mut SessionLog<'a>>;

/// What an engine answers. The inner result is its own, the outer one that of the machine and of our own part.
pub type Answer<T, E = Diagnosis> = Result<Result<T, E>, RunnerError>;

pub struct Worker<R> {
    pub rig: R,
    pub current: Option<Current>,
    /// Seconds that its engines took.
    pub busy: Seconds,
}

fn look<'g, 's, 'a>(session_log: &'g Shared<'s, 'a>) -> MutexGuard<'g, &'s mut SessionLog<'a>> {
    session_log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R: Rig> Worker<R> {
    pub fn new(rig: R) -> Self {
        Self { rig, current: None, busy: Seconds(0.0) }
    }

    /// Starts a new trial. The inner result is the engine's: ready, or why not after a second try where one is due.
    pub async fn launch(&mut self, session_log: &Shared<'_, '_>, launch: &Launch) -> Answer<Ready> {
        let TrialRequest { purpose, point } = &launch.wanted;
        let (number, purpose) = (launch.trial, purpose.name());
        let span = info_span!("trial", number, purpose, %point, probes = Empty, engine_time = Empty);
        self.launch_in(&span, session_log, launch).instrument(span.clone()).await
    }

    async fn launch_in(&mut self, span: &Span, session_log: &Shared<'_, '_>, launch: &Launch) -> Answer<Ready> {
        let Launch { trial, wanted: TrialRequest { purpose, point }, .. } = launch;
        let most = look(session_log).first_graph();
        let current = self.current.as_ref().filter(|_| launch.live);
        let lacks_graphs = current.and_then(|current| current.lacks_graphs(&launch.wanted, most));
        let on = match self.current.take_if(|current| launch.live && current.serves(&launch.wanted)) {
            Some(before) => {
                before.note_cost(self.busy);
                Some(before.on)
            }
            None => {
                self.stop(session_log).await?;
                launch.live.then_some(*trial)
            }
        };
        let (mut attempt, busy_before) = (1, self.busy);
        loop {
            let recorded = look(session_log).recorded_launch(*trial, attempt, point)?;
            let live = recorded.is_none();
            debug!(attempt, is_recorded = !live, "launch");
            let answer = match recorded {
                Some(answer) => answer,
                None => {
                    if let Some(says) = lacks_graphs.as_ref().filter(|_| attempt == 1) {
                        look(session_log).sink.take(&Event::Note(says));
                    }
                    self.start(session_log, launch, on, attempt).await?
                }
            };
            match answer {
                Ok(ready) => {
                    // An engine without some CUDA graphs has other step times than those that the twin is fitted to.
                    let alike = has_graphs(look(session_log).first_graph(), point);
                    let engine = TwinEngine::of(look(session_log).plan, point, &ready).filter(|_| alike);
                    self.current = Some(Current {
                        trial: *trial,
                        point: point.clone(),
                        known_as: point.clone(),
                        purpose: *purpose,
                        on: on.filter(|_| ready.process.altered).unwrap_or(*trial),
                        widest: ready.process.widest.clone(),
                        graph: ready.process.graph,
                        live,
                        probes: 0,
                        answer_time: ready.warmed.answer_time,
                        engine,
                        told: Vec::new(),
                        span: span.clone(),
                        busy_before,
                    });
                    return Ok(Ok(ready));
                }
                Err(failure) if failure.diagnosis.consequence == Consequence::Retry && attempt == 1 => attempt += 1,
                Err(failure) => {
                    span.record("engine_time", display(self.busy - busy_before));
                    return Ok(Err(failure.diagnosis));
                }
            }
        }
    }

    async fn start(
        &mut self,
        session_log: &Shared<'_, '_>,
        Launch { trial, wanted: TrialRequest { purpose, point }, warmed, .. }: &Launch,
        on: Option<u32>,
        attempt: u32,
    ) -> Answer<Ready, Failure> {
        let (trial, purpose) = (*trial, *purpose);
        {
            let mut session_log = look(session_log);
            let alters = on.is_some_and(|on| on != trial);
            session_log.sink.take(&Event::Launching { trial, attempt, purpose, point, alters });
            session_log.record(Record::Launching { trial, attempt, purpose, point: point.clone() })?;
        }
        let mut written = Ok(());
        let mut spawned = |spawned: &crate::rig::Spawned| written = look(session_log).spawned(trial, spawned);
        let launch = Trial { number: trial, attempt, warmed: *warmed, on };
        let answer = self.rig.launch(launch, point, &mut spawned).await;
        written?;
        let mut session_log = look(session_log);
        match answer {
            Ok(ready) => {
                self.busy += ready.took;
                debug!(took = %ready.took, warm_up = ready.warm_up.map(display), altered = ready.process.altered, "ready");
                session_log.same_engine(&ready)?;
                session_log.record(Record::Ready { trial, attempt, ready: Box::new(ready.clone()) })?;
                session_log.learn_words(&self.rig.material().vocabulary)?;
                let mismatches = ready.effective.mismatches(point);
                session_log.sink.take(&Event::Ready { trial, ready: &ready, mismatches: &mismatches });
                Ok(Ok(ready))
            }
            Err(RigError::Engine(failure)) => {
                self.busy += failure.took;
                let again = failure.diagnosis.consequence == Consequence::Retry && attempt == 1;
                session_log.sink.take(&Event::Failed { trial, diagnosis: &failure.diagnosis, again });
                session_log.record(Record::NotReady { trial, attempt, failure: (*failure).clone() })?;
                Ok(Err(*failure))
            }
            Err(RigError::Machine(what)) => Err(RunnerError::Machine(what)),
        }
    }

    /// Probes the current trial. The inner result is the engine's. An engine that failed is launched and asked once more, unless
    /// its failure says that this would be in vain.
    pub async fn probe(
        &mut self,
        session_log: &Shared<'_, '_>,
        ask: &Asking,
        certainty: Certainty,
    ) -> Answer<ProbeResult> {
        let (mut failures, mut voids) = (0, 0);
        loop {
            let Some(current) = &mut self.current else {
                return Err(RunnerError::Machine("a probe was asked of no trial".into()));
            };
            current.probes += 1;
            let (trial, probe, engine) = (current.trial, current.probes, current.engine);
            let certifies = current.purpose.certifies();
            let of_trial = current.span.clone();
            let idle = current.answer_time;
            let asked = ask(trial, probe, idle);
            let (ask, recorded) = {
                let mut session_log = look(session_log);
                let (plan, seed) = (session_log.plan, session_log.seed);
                let material = session_log.material(self.rig.material());
                let source = TrafficSource { plan, material: &material, seed };
                let steady = engine
                    .filter(|_| !asked.is_burst())
                    .and_then(|engine| session_log.session_twin.answer_time(&engine, source, asked.rate, idle));
                // Where no template was measured, its tokens count as some of the answer's.
                let growth = material.resent.map_or(1.0, |resent| resent.growth.clamp(0.0, 1.0));
                let asked = ProbeAsk { answer_time: steady.unwrap_or(idle), growth, ..asked };
                let arrival_seed = match engine.filter(|_| certifies) {
                    Some(engine) => session_log
                        .recorded_arrivals(trial, probe)
                        .unwrap_or_else(|| session_log.session_twin.representative_arrivals(&engine, source, &asked)),
                    None => asked.arrival_seed,
                };
                session_log.session_twin.note_arrivals(asked.arrival_seed, arrival_seed);
                let asked = ProbeAsk { arrival_seed, ..asked };
                // Where a pair may find that the arrivals were to blame, the window is seen to its end.
                let paired = engine.is_some() && session_log.session_twin.decides();
                let ask = if paired && asked.slack < SLACK { ProbeAsk { slack: SLACK, ..asked } } else { asked };
                (ask, session_log.recorded_probe(trial, probe, &ask, engine)?)
            };
            let (rate, ramp, window) = (display(ask.rate), display(ask.window.from), display(ask.window.length()));
            let span = info_span!(parent: &of_trial, "probe", number = probe, rate, ramp, window, outcome = Empty, engine_time = Empty);
            let (busy, is_recorded) = (self.busy, recorded.is_some());
            let answer = match recorded {
                Some((Ok(verdict), fit_probe)) => Ok(ProbeResult { probe, ask, verdict, fit_probe }),
                Some((Err(failure), _)) => Err(failure.diagnosis),
                None => self.measure(session_log, trial, probe, ask, certainty).instrument(span.clone()).await?,
            };
            span.record("engine_time", display(self.busy - busy));
            match &answer {
                Ok(ProbeResult { verdict: Verdict { outcome, because, confidence, by_count, .. }, .. }) => {
                    span.record("outcome", debug(outcome));
                    let judge = if by_count.is_some() { Judge::Paired } else { Judge::PlainCount };
                    span.in_scope(|| debug!(?judge, ?outcome, because, confidence, is_recorded, "judged"));
                }
                Err(failed) => {
                    span.record("outcome", debug(failed.cause));
                }
            }
            match answer {
                Ok(told) if told.verdict.outcome == Outcome::Void && voids < VOID_REPEATS => voids += 1,
                Ok(told) => return Ok(Ok(told)),
                Err(diagnosis) if failures == 0 && worth_another_try(&diagnosis) => failures += 1,
                Err(diagnosis) => {
                    // Nothing runs any more that could serve another point.
                    self.current.iter_mut().for_each(|current| current.widest = None);
                    return Ok(Err(diagnosis));
                }
            }
        }
    }

    /// Probes for real and records it; launches the trial's engine first where it does not run.
    async fn measure(
        &mut self,
        session_log: &Shared<'_, '_>,
        trial: u32,
        probe: u32,
        ask: ProbeAsk,
        certainty: Certainty,
    ) -> Answer<ProbeResult> {
        let stopped = self.current.as_ref().filter(|c| !c.live);
        if let Some((wanted, on)) = stopped.map(|c| (TrialRequest::of(c.purpose, c.point.clone()), c.on)) {
            let attempt = 1 + look(session_log).attempts(trial);
            let warmed = look(session_log).first_ready().map(|first| first.warmed);
            let live = look(session_log).may_alter(&wanted);
            let launch = Launch { trial, wanted, warmed, live };
            match self.start(session_log, &launch, live.then_some(on), attempt).await? {
                Ok(_) => self.set_live(true),
                Err(failure) => {
                    // It is the answer of this probe; what it took stands with the start.
                    let failure = Failure { took: Seconds(0.0), ..failure };
                    let diagnosis = failure.diagnosis.clone();
                    look(session_log).record(Record::Broken { trial, probe, ask, failure })?;
                    return Ok(Err(diagnosis));
                }
            }
        }
        let engine = self.current.as_ref().and_then(|c| c.engine);
        look(session_log).sink.take(&Event::Probing { trial, ask: &ask });
        let answer = self.rig.probe(&ask).await;
        let mut session_log = look(session_log);
        match answer {
            Ok(measured) => {
                self.busy += measured.took;
                let Measured { records, ended, complete, client, .. } = &measured;
                let course = Course { window: ask.window, ended: *ended, complete: *complete, steady: true };
                let mut verdict = judge(records, &session_log.plan.slo, course, client, certainty);
                let fit_probe =
                    engine.map(|engine| FitProbe::of(engine, ask, records, &measured.cache, &measured.telemetry));
                if let Some(fit_probe) = &fit_probe {
                    verdict = session_log.weigh(verdict, fit_probe, self.rig.material(), certainty);
                }
                let resent = fit_probe.as_ref().and_then(|fit_probe| fit_probe.resent);
                let served = served_as_meant::against_served(records, &ask, &measured.cache, resent);
                let (requests, requests_sha256) = session_log.keep(trial, probe, &measured)?;
                session_log.record(Record::Probed {
                    trial,
                    probe,
                    ask,
                    verdict: Box::new(verdict.clone()),
                    telemetry: measured.telemetry,
                    cache: measured.cache,
                    steps: fit_probe.as_ref().map_or_else(Vec::new, |fit_probe| fit_probe.probe.steps().to_vec()),
                    client: measured.client,
                    took: measured.took,
                    requests,
                    requests_sha256,
                })?;
                session_log.sink.take(&Event::Probed { trial, ask: &ask, verdict: &verdict });
                if let Some(served) = served.filter(|_| !ask.is_burst()) {
                    session_log.sink.take(&Event::Detail(&format!("trial {trial}: {served}")));
                    if let Some(likeness) =
                        fit_probe.as_ref().and_then(|fit_probe| session_log.session_twin.likeness(fit_probe))
                    {
                        session_log.sink.take(&Event::Detail(&format!("trial {trial}: {likeness}")));
                    }
                }
                Ok(Ok(ProbeResult { probe, ask, verdict, fit_probe }))
            }
            Err(RigError::Engine(failure)) => {
                self.busy += failure.took;
                self.set_live(false);
                session_log.record(Record::Broken { trial, probe, ask, failure: (*failure).clone() })?;
                let again = worth_another_try(&failure.diagnosis);
                session_log.sink.take(&Event::Failed { trial, diagnosis: &failure.diagnosis, again });
                Ok(Err(failure.diagnosis))
            }
            Err(RigError::Machine(what)) => Err(RunnerError::Machine(what)),
        }
    }

    fn set_live(&mut self, live: bool) {
        if let Some(current) = &mut self.current {
            current.live = live;
        }
    }

    pub async fn stop(&mut self, session_log: &Shared<'_, '_>) -> Result<(), RunnerError> {
        if let Some(current) = self.current.take()
            && current.live
        {
            let stopped = self.rig.stop().instrument(current.span.clone()).await;
            let took = stopped.map_err(|e| RunnerError::Machine(e.to_string()))?;
            self.busy += took;
            current.note_cost(self.busy);
            look(session_log).record(Record::Stopped { trial: current.trial, took })?;
        }
        Ok(())
    }

    /// Stops whatever runs, also in the middle of a launch or probe.
    pub async fn interrupt(&mut self, session_log: &Shared<'_, '_>) -> Result<(), RunnerError> {
        let stopped = self.rig.stop().await;
        if let Some(current) = self.current.take() {
            let took = *stopped.as_ref().unwrap_or(&Seconds(0.0));
            look(session_log).record(Record::Stopped { trial: current.trial, took })?;
        }
        stopped.map(drop).map_err(|e| RunnerError::Machine(e.to_string()))
    }
}

fn worth_another_try(diagnosis: &Diagnosis) -> bool {
    let in_vain = [Consequence::MemoryBound, Consequence::NeedsMoreMemory, Consequence::Abort];
    diagnosis.cause != Cause::RarelyAccepted && !in_vain.contains(&diagnosis.consequence)
}
