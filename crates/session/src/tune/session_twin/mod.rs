//! The twin of a session: fitted to its probes as they come, and used to estimate each verdict for long traffic.
//!
//! A probe is judged by a fit that has not seen it. Certifying probes at a rate enter only the pooled fit, which can only lower a certified
//! rate. A new fit is made once the number of probes has grown by half. So the engine does not wait for arithmetic after every probe.

mod engine;
mod likeness;
mod long_run;
mod representative;

use std::collections::HashMap;

use tracing::field::Empty;
use tracing::{debug, debug_span};

pub use self::engine::TwinEngine;
pub use self::likeness::{Compared, Likeness};
pub use self::long_run::{Flights, LongRunTraffic, TrafficSource, served_in_blocks, think_time};
use super::sample_sizes::SampleSizes;
use crate::rig::{CacheUse, ProbeAsk, Telemetry};
use crate::verdict::paired::{CheckedTwin, Judge, LongRunReplay, estimate};
use crate::verdict::{Certainty, Outcome, Verdict, Window, weigh};
use autotune_load::RequestRecord;
use autotune_numerics::overlap::most_at_once;
use autotune_plan::settings::{Metric, Plan};
use autotune_records::units::{Rate, Seconds};
use autotune_twin::{FastReplay, Fit, Observed, Probe, SeenSteps, Served, StepCosts, fit_anew, refit, seen_steps};
use autotune_workload::{Material, Resent};

/// A workload that ends before this many requests is no long run.
const LEAST_LONG: usize = 2_000;
/// A twin of fewer probes has no say in verdicts, since one alone fits anything; it does point to the next rate.
const LEAST_TO_JUDGE: usize = 2;
/// A batch that exceeds what was ever measured by less than this factor is as good as measured.
pub const AS_MEASURED: f64 = 1.1;
/// A fit takes at most so many probes: the one with the largest batch, and the latest.
const MOST_PROBES: usize = 8;
/// An answer takes at most so many times as long as one of an idle engine: beyond, there is no steady state.
const SLOWEST: f64 = 4.0;
/// Answers are as long as was asked for, within this factor.
const WHOLE_ANSWERS: f64 = 0.98;

#[derive(Clone, Debug)]
pub struct FitProbe {
    engine: TwinEngine,
    ask: ProbeAsk,
    pub probe: Probe,
    /// What later turns resent; `None` if it has none.
    pub resent: Option<Resent>,
    told: Telemetry,
    /// Why the probe does not stand for long traffic of the workload, if it does not.
    objection: Option<String>,
}

impl FitProbe {
    /// From the requests of a probe, what the prefix cache held, and what the engine told of itself.
    pub fn of(
        engine: TwinEngine,
        ask: ProbeAsk,
        records: &[RequestRecord],
        cache: &CacheUse,
        told: &Telemetry,
    ) -> Self {
        let served = Served::of(records, cache.counted_share(), engine.reused_block);
        let objection = beyond(records, ask.window);
        let steps = seen_steps(records, &served.cached, engine.bounds.max_num_batched_tokens);
        Self {
            engine,
            ask,
            probe: Probe::served(records, &served, engine.bounds).with_steps(steps),
            resent: served.resent,
            told: told.clone(),
            objection,
        }
    }

    /// Adds the steps that were seen when it was measured: files of requests keep no time of each token.
    pub fn with_steps(self, steps: Vec<SeenSteps>) -> Self {
        Self { probe: self.probe.with_steps(steps), ..self }
    }
}

#[derive(Default)]
pub struct SessionTwin {
    pub sample_sizes: SampleSizes,
    /// The probe with the largest batch, and the latest.
    probes: Vec<Probe>,
    fit: Option<Fit>,
    /// How many probes there were in all, and how many at the last fit or the last try.
    fit_probes: usize,
    tried: usize,
    /// Whether the count decided the last probe that the twin looked at.
    overruled: bool,
    pub long_run: LongRunTraffic,
    /// The most requests that were streamed at the same time.
    pub largest: u32,
    /// The most requests that were sent at once, but no more than `max-num-seqs`.
    pub largest_burst: u32,
    /// The certifying probes at a rate of the point that is being certified. No fit that judges uses them.
    certifying_probes: Vec<Probe>,
    /// All probes at a rate that stand for long traffic, with their windows: the twin is checked against them.
    checks: Vec<(Probe, Window)>,
    /// What later turns were last seen to resend.
    pub resent: Option<Resent>,
    /// The seeds of the arrivals that were last sent, by the seeds that were asked for.
    arrivals: HashMap<u64, u64>,
    fits: u64,
}

impl SessionTwin {
    pub fn new(sample_sizes: SampleSizes) -> Self {
        Self { sample_sizes, long_run: LongRunTraffic::new(sample_sizes), ..Self::default() }
    }

    /// What a verdict becomes when the twin takes the luck of the arrivals out of it.
    pub fn weigh(
        &mut self,
        verdict: Verdict,
        fit_probe: &FitProbe,
        source: TrafficSource,
        certainty: Certainty,
    ) -> Verdict {
        let asks = !fit_probe.ask.is_burst() && verdict.open_to_pairs();
        let judges = |fit: &&Fit| asks && fit.residuals.probes.len() >= LEAST_TO_JUDGE;
        let Some(fit) = self.fit.as_ref().filter(judges) else { return verdict };
        let FitProbe { engine, ask, probe, objection, resent, told } = fit_probe;
        let material = &Material { resent: resent.or(self.resent), ..source.material.clone() };
        let (source, plan) = (TrafficSource { material, ..source }, source.plan);
        let (long, requests) = self.long_run.through(engine, &fit.costs, source, ask.rate);
        let others = self.checks.iter().filter(|(other, _)| other != probe);
        let others: Vec<(&Probe, Window)> = others.map(|(other, window)| (other, *window)).collect();
        if let Some(verdict) = endless(&verdict, &long, plan) {
            return verdict;
        }
        let twin = CheckedTwin { fit, others: &others, shared: engine.shared };
        let mut estimates = estimate(probe, ask.window, twin, &long, &plan.slo);
        let unlike = || Likeness::of(probe, told, &fit.costs).lacks();
        if let Some(because) = objection.clone().or_else(|| too_few(requests)).or_else(unlike) {
            for estimate in &mut estimates {
                (estimate.judge, estimate.because) = (Judge::PlainCount, because.clone());
            }
        }
        let largest = self.largest.max(streamed_at_once(probe)).max(1);
        let doubt = UNSEEN * (f64::from(long.batch(OF_THE_TIME)) / f64::from(largest)).ln().max(0.0);
        weigh(verdict, estimates.into_iter().map(|estimate| estimate.doubted(doubt)).collect(), certainty)
    }

    /// What engine and twin say of a probe; `None` if there is no twin that judges.
    pub fn likeness(&self, fit_probe: &FitProbe) -> Option<Likeness> {
        Some(Likeness::of(&fit_probe.probe, &fit_probe.told, &self.judging_fit()?.costs))
    }

    /// Whether the twin may judge the next probe. There is a fit, perhaps of too few probes yet, and the count did not decide the last compared one.
    pub fn decides(&self) -> bool {
        self.fit.is_some() && !self.overruled
    }

    /// The fit, where it is to enough probes for a say in verdicts.
    fn judging_fit(&self) -> Option<&Fit> {
        self.fit.as_ref().filter(|fit| fit.residuals.probes.len() >= LEAST_TO_JUDGE)
    }

    pub fn note_verdict(&mut self, verdict: &Verdict) {
        if verdict.limits.iter().any(|l| l.paired.is_some()) {
            self.overruled = verdict.by_count.is_none();
        }
    }

    pub fn dismiss(&mut self) {
        self.certifying_probes.clear();
    }

    /// The step times by all that is known, what certifies included: for questions that no probe answers, and whose answer only lowers a rate.
    /// Where the fit knows all of that, they are its own.
    pub fn pooled_steps(&self) -> Option<StepCosts> {
        let fit = self.fit.as_ref()?;
        if self.certifying_probes.is_empty() && self.knows_all_probes() {
            return Some(fit.costs);
        }
        let probes = [&self.probes[..], &self.certifying_probes].concat();
        let _span = debug_span!("refit", probes = probes.len()).entered();
        refit(&probes, fit, self.sample_sizes.fit).ok()
    }

    /// Takes what a probe teaches; whether it is time to fit. A probe that certifies stays out of the fit that judges it.
    pub fn learn(&mut self, fit_probe: &FitProbe, certifies: bool) -> bool {
        let FitProbe { engine, ask, probe, objection, resent, .. } = fit_probe;
        self.resent = resent.or(self.resent);
        self.largest = self.largest.max(streamed_at_once(probe));
        let burst = ask.whole_burst().map_or(0, |count| count.min(engine.bounds.max_num_seqs));
        self.largest_burst = self.largest_burst.max(burst);
        if !ask.is_burst() && objection.is_none() {
            self.checks.push((probe.clone(), ask.window));
        }
        if certifies {
            self.certifying_probes.push(probe.clone());
            return false;
        }
        self.probes.push(probe.clone());
        if self.probes.len() > MOST_PROBES {
            // What large batches do, one probe alone may have shown.
            let largest = self.probes.iter().enumerate().max_by_key(|(_, probe)| streamed_at_once(probe));
            let oldest = usize::from(largest.is_some_and(|(at, _)| at == 0));
            self.probes.remove(oldest);
        }
        self.fit_probes += 1;
        2 * self.fit_probes >= 3 * self.tried
    }

    /// Fits once more where there is a fit, and it does not know all probes learnt so far. Returns whether it did.
    pub fn fit_to_all(&mut self) -> bool {
        self.fit.is_some() && !self.knows_all_probes() && self.fit().is_some()
    }

    /// Whether nothing was learnt since the last fit that judges was tried.
    fn knows_all_probes(&self) -> bool {
        self.tried == self.fit_probes
    }

    /// Fits the twin to the probes learnt so far; `None` if they tell too little. Several starts are tried, the last fit among them: a descent from
    /// that alone would stay in its local minimum, whatever new probes show.
    pub fn fit(&mut self) -> Option<&Fit> {
        self.tried = self.fit_probes;
        let probes = self.probes.len();
        let span = debug_span!("fit", probes, replays = Empty, loss = Empty, ttft_sd = Empty, tpot_sd = Empty);
        let _entered = span.enter();
        let fit = fit_anew(&self.probes, self.fit.as_ref(), self.sample_sizes.fit)
            .inspect_err(|why| debug!(%why, "there is no fit"))
            .ok()?;
        span.record("replays", fit.replays).record("loss", fit.loss);
        span.record("ttft_sd", fit.residuals.ttft_sd).record("tpot_sd", fit.residuals.tpot_sd);
        self.fit = Some(fit);
        self.fits += 1;
        self.fit.as_ref()
    }

    /// Takes over a fit to all that was learnt so far, from the journal.
    pub fn adopt(&mut self, fit: Fit) {
        self.tried = self.fit_probes;
        self.fits += 1;
        self.fit = Some(fit);
    }

    /// The steps of the engine as they are known, and how many fits there were so far.
    pub fn known(&self) -> Option<(&StepCosts, u64)> {
        self.fit.as_ref().map(|fit| (&fit.costs, self.fits))
    }

    /// The time of one answer at a rate in the steady state, where turns follow answers and there is a twin. It sets how many conversations are
    /// under way when a probe begins. No more than [`SLOWEST`] times what it takes an idle engine.
    pub fn answer_time(
        &mut self,
        engine: &TwinEngine,
        source: TrafficSource,
        rate: Rate,
        idle: Seconds,
    ) -> Option<Seconds> {
        let (think, costs) = (think_time(source.plan)?, self.fit.as_ref()?.costs);
        let outlines = self.long_run.of(source, self.sample_sizes.answer_time);
        let sent = engine.sent(outlines, rate, Some(think), source.material.documents_apart());
        let mut answers = Vec::new();
        FastReplay::default().run(&costs, engine.bounds, &sent, &mut answers);
        // The engine was empty before the first of them, and no conversation begins behind the last.
        let settled = &answers[answers.len() / 4..answers.len() * 3 / 4];
        let mean =
            settled.iter().map(|a| (a.last - a.at).min(SLOWEST * idle.0)).sum::<f64>() / settled.len().max(1) as f64;
        // In tenths of a second, so that a resumed session asks the same.
        (mean > 0.0).then_some(Seconds((mean * 10.0).ceil() / 10.0))
    }
}

/// Batches stay below the considered size for this share of a long run.
const OF_THE_TIME: f64 = 0.99;
/// The error added for each unit of the logarithm by which that size exceeds every measured one. Steps may get longer there: a 70B model at 128
/// sequences takes a third more.
const UNSEEN: f64 = 0.5;

/// A queue grows without end if this quantile of the time to first token exceeds so many seconds in a long run.
pub const ENDLESS: (f64, f64) = (0.9, 5.0);

/// The verdict of a rate at which a queue grows without end in a long run. Only if no promise is about waiting: nothing else would tell.
fn endless(verdict: &Verdict, long: &LongRunReplay, plan: &Plan) -> Option<Verdict> {
    let grows = long.log_of(Metric::Ttft, ENDLESS.0).is_some_and(|log| log > ENDLESS.1.ln());
    (grows && !promises_waiting(plan)).then(|| Verdict {
        outcome: Outcome::Fail,
        saturated: true,
        because: "in a long run of this traffic the queue grows without end, as the twin sees it".to_owned(),
        ..verdict.clone()
    })
}

/// Whether some promise is about the time that requests wait.
pub fn promises_waiting(plan: &Plan) -> bool {
    plan.slo.iter().any(|l| l.metric.includes_waiting())
}

/// The most requests of a probe that were streamed at the same time.
fn streamed_at_once(probe: &Probe) -> u32 {
    let streamed = |r: &Observed| Some((r.first?.0, r.last.map_or(f64::INFINITY, |last| last.0)));
    most_at_once(probe.requests().iter().filter_map(streamed))
}

/// Why the workload makes no long run, if it makes none.
fn too_few(requests: usize) -> Option<String> {
    (requests < LEAST_LONG).then(|| format!("the workload has only {requests} requests, too few for a long run"))
}

/// Why the long run is not what was measured, if it is not.
fn beyond(records: &[RequestRecord], window: Window) -> Option<String> {
    let counted = || records.iter().filter(|r| r.complete() && window.holds(r.due));
    let asked: u64 = counted().map(|r| u64::from(r.asked_out)).sum();
    let came: u64 = counted().map(|r| u64::from(r.tokens_out.unwrap_or(0))).sum();
    ((came as f64) < asked as f64 * WHOLE_ANSWERS)
        .then(|| "answers end earlier than was asked, and the long run does not know when".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::fixtures::{counted, verdict};
    use autotune_twin::{Answered, Bounds};

    /// What a probe at that rate teaches of which so many requests were streamed at the same time.
    fn fit_probe(rate: Rate, at_once: usize) -> FitProbe {
        let engine = TwinEngine::bare(Bounds { max_num_seqs: 1024, max_num_batched_tokens: 8192, kv_tokens: None });
        let records = vec![RequestRecord::answered(0, 0.0, 1.0, 10.0, 10, 10); at_once];
        FitProbe::of(engine, ProbeAsk::at(rate), &records, &CacheUse::default(), &Telemetry::default())
    }

    #[test]
    fn a_long_run_that_is_not_what_was_measured_is_said_so() {
        let window = Window { from: Seconds(0.0), to: Seconds(10.0) };
        let record =
            |tokens_out| RequestRecord { asked_out: 100, ..RequestRecord::answered(0, 1.0, 1.5, 2.0, 10, tokens_out) };
        let early = "answers end earlier than was asked, and the long run does not know when";
        assert_eq!(beyond(&[record(50)], window).as_deref(), Some(early));
        assert_eq!(beyond(&[record(100)], window), None);
        let few = "the workload has only 5 requests, too few for a long run";
        assert_eq!(too_few(5).as_deref(), Some(few));
        assert_eq!(too_few(LEAST_LONG), None);
    }

    #[test]
    fn a_queue_without_end_fails_a_rate_where_no_promise_is_about_waiting() {
        let mut plan = crate::quickstart::quickstart(&[]);
        let served = |waits: f64| {
            let answer =
                |i| Answered { at: f64::from(i), first: f64::from(i) + waits, last: f64::from(i) + waits + 1.0 };
            LongRunReplay::served(&(0..100).map(|i| (answer(i), 10)).collect::<Vec<_>>())
        };
        let passed = verdict(Outcome::Pass, vec![counted("tpot_p99")], true);
        assert_eq!(endless(&passed, &served(9.0), &plan), None, "a promise about waiting tells");
        plan.slo.retain(|limit| !limit.metric.includes_waiting());
        assert_eq!(endless(&passed, &served(1.0), &plan), None);
        let failed = endless(&passed, &served(9.0), &plan).unwrap();
        assert!(failed.outcome == Outcome::Fail && failed.saturated);
    }

    #[test]
    fn a_fit_that_knows_all_probes_is_not_made_again() {
        let mut session_twin = SessionTwin::new(SampleSizes::SMALL);
        let probe = fit_probe(Rate(1.0), 200);
        session_twin.learn(&probe, false);
        assert!(!session_twin.fit_to_all(), "there is no fit yet");
        let costs = session_twin.fit().unwrap().costs;
        assert!(!session_twin.fit_to_all());
        assert_eq!(session_twin.pooled_steps(), Some(costs));
        session_twin.learn(&probe, true);
        assert!(!session_twin.fit_to_all(), "a probe that certifies stays out");
        assert_ne!(session_twin.pooled_steps(), Some(costs), "but its steps count where nothing is judged");
        session_twin.learn(&probe, false);
        assert!(session_twin.fit_to_all() && !session_twin.fit_to_all());
    }

    #[test]
    fn the_probe_with_the_largest_batch_stays_and_of_the_others_the_latest() {
        let mut session_twin = SessionTwin::new(SampleSizes::SMALL);
        for at_once in [128, 50, 51, 52, 53, 54, 55, 56, 57] {
            let fit_probe = fit_probe(Rate(1.0), at_once);
            session_twin.learn(&fit_probe, false);
        }
        let kept: Vec<usize> = session_twin.probes.iter().map(|probe| probe.requests().len()).collect();
        assert_eq!((kept, session_twin.largest), (vec![128, 51, 52, 53, 54, 55, 56, 57], 128));
    }
}
