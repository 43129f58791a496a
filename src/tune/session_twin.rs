//! The twin of a session: fitted to its probes as they come, and asked what each verdict would be over hours of traffic.
//!
//! A probe is weighed by a twin that has not seen it, and what certifies is never learnt from, but in hindsight: where it can only lower what
//! is certified. The fit is refreshed as the number of probes grows by half: the first words come early, and the engine does not wait for
//! arithmetic after every probe.

use std::collections::VecDeque;

use super::launches::Launches;
use super::long_run::{LongRunTraffic, think_time};
use super::twin_fidelity::Likeness;
use crate::load::RequestRecord;
use crate::rig::{self, CacheUse, ProbeAsk, Ready, Telemetry};
use crate::search::ALL_AT_ONCE;
use crate::settings::{Metric, Plan};
use crate::space::{Point, Value};
use crate::twin::{
    Bounds, DEFAULT_BLOCK, Effort, EngineFlags, FastReplay, Fit, Launch, Probe, SeenSteps, Sent, Served, StepCosts,
    fit_anew, refit, refit_costs, seen_steps,
};
use crate::units::{Rate, Seconds};
use crate::verdict::paired::{self, Judge, LongRunReplay, estimate};
use crate::verdict::{Certainty, Outcome, Verdict, Window, weigh};
use crate::workload::{Material, Outline, Resent};

/// A workload that ends before this many requests is no long run.
const LEAST_LONG: usize = 2_000;
/// A twin of fewer probes has no say in verdicts, since one alone fits anything; it does point to the next rate.
const LEAST_TO_JUDGE: usize = 2;
/// A batch that exceeds what was ever measured by less than this factor is as good as measured.
pub(super) const AS_MEASURED: f64 = 1.1;
/// A fit takes at most so many probes: the one with the largest batch, and the latest.
const MOST_PROBES: usize = 8;
/// What a fit may cost while an engine waits.
#[cfg(not(test))]
const EFFORT: Effort = Effort::SESSION;
#[cfg(test)]
const EFFORT: Effort = Effort::LEAST;
/// And once, before it is decided what is certified.
#[cfg(not(test))]
const THOROUGH: Effort = Effort::FULL;
#[cfg(test)]
const THOROUGH: Effort = Effort::LEAST;
/// Requests that tell what an answer takes.
const OF_ANSWER_TIME: usize = if cfg!(test) { 1_000 } else { 6_000 };
/// An answer takes at most so many times as long as one of an idle engine: beyond, there is no steady state.
const SLOWEST: f64 = 4.0;
/// Answers are as long as was asked for, within this factor.
const WHOLE_ANSWERS: f64 = 0.98;

/// What bounds the engine of a trial, as the twin sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Engine {
    bounds: Bounds,
    /// Tokens of a KV block; none where prefixes are not reused.
    reused_by: Option<u32>,
}

impl Engine {
    /// By what the engine says it runs, and what it was asked to; none where the limits of its scheduler are not known, or where its
    /// scheduler is none that the twin knows.
    pub(super) fn of(plan: &Plan, point: &Point, ready: &Ready) -> Option<Self> {
        let value = |name: &str| ready.effective.values.get(name).or_else(|| point.get(name));
        let count = |name| match value(name) {
            Some(Value::Int(count)) => u32::try_from(*count).ok(),
            _ => None,
        };
        let speculates = |word: &String| word.trim_start_matches('-').starts_with("speculative");
        if !plan.with_twin()
            || plan.engine.args.iter().any(speculates)
            || value("enable-chunked-prefill") == Some(&Value::Bool(false))
        {
            return None;
        }
        let bounds = Bounds {
            max_num_seqs: count("max-num-seqs")?,
            max_num_batched_tokens: count("max-num-batched-tokens")?,
            kv_tokens: ready.effective.kv_cache_tokens,
        };
        let reuses = value("enable-prefix-caching") != Some(&Value::Bool(false));
        let block = count("block-size").unwrap_or(DEFAULT_BLOCK);
        Some(Self { bounds, reused_by: reuses.then_some(block) })
    }

    /// As it would be with the values of another point; what that point leaves out stays.
    pub(super) fn at(&self, point: &Point) -> Self {
        let count = |name, now| match point.get(name) {
            Some(Value::Int(count)) => u32::try_from(*count).unwrap_or(now),
            _ => now,
        };
        let reused_by = match point.get("enable-prefix-caching") {
            Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => self.reused_by.or(Some(DEFAULT_BLOCK)),
            _ => self.reused_by,
        };
        let bounds = Bounds {
            max_num_seqs: count("max-num-seqs", self.bounds.max_num_seqs),
            max_num_batched_tokens: count("max-num-batched-tokens", self.bounds.max_num_batched_tokens),
            ..self.bounds
        };
        Self { bounds, reused_by }
    }

    /// The same with a KV cache so many times as large.
    pub(super) fn with_cache(&self, times: u64) -> Self {
        let bounds = Bounds { kv_tokens: self.bounds.kv_tokens.map(|tokens| tokens * times), ..self.bounds };
        Self { bounds, ..*self }
    }

    /// The same engine block by block, with steps that take as long as that; none where the size of its KV cache is not known.
    pub(super) fn in_blocks(&self, costs: &StepCosts, resent: Option<Resent>) -> Option<rig::Engine> {
        let limits = self.bounds.limits(self.reused_by.unwrap_or(DEFAULT_BLOCK))?;
        let flags = EngineFlags {
            max_num_seqs: limits.max_num_seqs,
            max_num_batched_tokens: limits.max_num_batched_tokens,
            gpu_memory_utilization: 1.0,
            max_model_len: u32::MAX,
            kv_cache_memory_bytes: None,
            prefix_caching: self.reuses(),
        };
        let (max_seqs_before_oom, launch) = (u32::MAX, Launch::MEDIAN);
        let (kernels, noise, misses) = (None, None, resent.map_or(0.0, |resent| 1.0 - resent.found));
        Some(rig::Engine {
            costs: *costs,
            kernels,
            flags,
            limits,
            max_seqs_before_oom,
            noise,
            launch,
            age: 0.0,
            misses,
        })
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Whether it reuses the prefixes of prompts.
    pub(super) fn reuses(&self) -> bool {
        self.reused_by.is_some()
    }

    /// Requests that were drawn at one a second, as they would be sent to this engine at a rate; later turns that time after an answer. Where
    /// documents are apart, each takes its room in the cache.
    pub(super) fn sent(&self, outlines: &[Outline], rate: Rate, think: Option<Seconds>, apart: bool) -> Vec<Sent> {
        let mut sent: Vec<Sent> = Vec::with_capacity(outlines.len());
        for outline in outlines {
            let cached = self.cached(outline.prompt_tokens, outline.shared_tokens);
            let before = outline.follows.and_then(|before| sent.get(before as usize));
            sent.push(Sent {
                at: if before.is_some() { think.unwrap_or_default().0 } else { outline.due.0 / rate.0 },
                follows: outline.follows,
                prompt: outline.prompt_tokens,
                cached,
                // What a conversation has said is its own; the document that it is about is not.
                shared: before.map_or(cached, |before| before.shared),
                // Documents of the same length are rare.
                document: before.map_or(if apart { cached } else { 0 }, |before| before.document),
                output: outline.output_tokens,
            });
        }
        sent
    }

    /// Tokens that the cache holds of a prompt of which so many are shared: whole blocks, and never the last token.
    fn cached(&self, prompt: u32, shared: u32) -> u32 {
        self.reused_by.map_or(0, |block| shared.min(prompt.saturating_sub(1)) / block * block)
    }
}

/// What the twin needs to know of a probe.
#[derive(Clone, Debug)]
pub(super) struct FitProbe {
    engine: Engine,
    ask: ProbeAsk,
    probe: Probe,
    /// What later turns resent; none where it has none.
    resent: Option<Resent>,
    /// What the engine told of itself.
    told: Telemetry,
    /// Why hours of the workload are not what was measured, if they are not.
    objection: Option<String>,
}

impl FitProbe {
    /// From the requests of a probe, what the prefix cache held, and what the engine told of itself.
    pub(super) fn of(
        engine: Engine,
        ask: ProbeAsk,
        records: &[RequestRecord],
        (cache, told): (&CacheUse, &Telemetry),
    ) -> Self {
        let served = Served::of(records, cache.counted_share(), engine.reused_by);
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
}

impl FitProbe {
    /// The same with the steps that were seen when it was measured: files of requests keep no time of each token.
    pub(super) fn with_steps(self, steps: Vec<SeenSteps>) -> Self {
        Self { probe: self.probe.with_steps(steps), ..self }
    }

    pub(super) fn probe(&self) -> &Probe {
        &self.probe
    }

    /// What its later turns resent.
    pub(super) fn resent(&self) -> Option<Resent> {
        self.resent
    }
}

/// The engine as all probes together show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hindsight {
    pub(super) costs: StepCosts,
    pub(super) launches: Launches,
}

/// The twin, and what it was taught.
#[derive(Default)]
pub(super) struct SessionTwin {
    /// The probe with the largest batch, and the latest.
    probes: VecDeque<Probe>,
    /// The trials that they are of.
    trials: VecDeque<u32>,
    fit: Option<Fit>,
    /// How many probes there were in all, and how many at the last fit or the last try.
    lessons: usize,
    tried: usize,
    /// Whether the count decided the last probe that the twin looked at.
    overruled: bool,
    hours: LongRunTraffic,
    /// The most requests that were seen streamed at the same time.
    largest: u32,
    /// The probes that certify what is being certified, with their trials: in no fit that judges.
    witnesses: Vec<(u32, Probe)>,
    /// The workers and trials of those that ran to their end. Only they tell how far a promise is from its limit, and slow launches are not
    /// among them.
    driven: Vec<(usize, u32)>,
    /// What later turns were last seen to resend.
    resent: Option<Resent>,
    /// How many fits there were.
    fits: u64,
}

impl SessionTwin {
    /// What a verdict becomes when the twin takes the luck of the arrivals out of it.
    pub(super) fn weigh(
        &mut self,
        verdict: Verdict,
        lesson: &FitProbe,
        plan: &Plan,
        (material, shared_seed): (&Material, u64),
        certainty: Certainty,
    ) -> Verdict {
        let asks = lesson.ask.rate != ALL_AT_ONCE && verdict.open_to_pairs();
        let judges = |fit: &&Fit| asks && fit.residuals.probes.len() >= LEAST_TO_JUDGE;
        let Some(fit) = self.fit.as_ref().filter(judges) else { return verdict };
        let FitProbe { engine, ask, probe, objection, resent, told } = lesson;
        let material = &Material { resent: resent.or(self.resent), ..material.clone() };
        let (long, requests) = self.hours.through(engine, &fit.costs, plan, (material, shared_seed), ask.rate);
        if let Some(verdict) = endless(&verdict, &long, plan) {
            return verdict;
        }
        let mut estimates = estimate(&[paired::Measured { probe, window: ask.window }], fit, &long, &plan.slo);
        let short = || format!("the workload has only {requests} requests, too few for a long run");
        let unlike = || Likeness::of(probe, told, &fit.costs).lacks();
        if let Some(because) = objection.clone().or_else(|| (requests < LEAST_LONG).then(short)).or_else(unlike) {
            for estimate in &mut estimates {
                (estimate.judge, estimate.because) = (Judge::PlainCount, because.clone());
            }
        }
        let largest = self.largest.max(streamed_at_once(probe)).max(1);
        let doubt = UNSEEN * (f64::from(long.batch(OF_THE_TIME)) / f64::from(largest)).ln().max(0.0);
        weigh(verdict, estimates.into_iter().map(|estimate| estimate.doubted(doubt)).collect(), certainty)
    }

    /// What engine and twin say of a probe; none where there is no twin that judges.
    pub(super) fn likeness(&self, lesson: &FitProbe) -> Option<Likeness> {
        let fit = self.fit.as_ref().filter(|fit| fit.residuals.probes.len() >= LEAST_TO_JUDGE)?;
        Some(Likeness::of(&lesson.probe, &lesson.told, &fit.costs))
    }

    /// Whether there is a twin that judges the next probe, or will when it has seen that, and the last one that it looked at was its to judge.
    pub(super) fn has_a_say(&self) -> bool {
        self.fit.is_some() && !self.overruled
    }

    /// Takes note of who judged.
    pub(super) fn hear(&mut self, verdict: &Verdict) {
        if verdict.limits.iter().any(|l| l.paired.is_some()) {
            self.overruled = verdict.by_count.is_none();
        }
    }

    /// What later turns were last seen to resend; none before one was seen.
    pub(super) fn resent(&self) -> Option<Resent> {
        self.resent
    }

    /// Takes note of how large its batches were, and of what its later turns resent.
    pub(super) fn note(&mut self, lesson: &FitProbe) {
        self.resent = lesson.resent.or(self.resent);
        self.largest = self.largest.max(streamed_at_once(&lesson.probe));
    }

    /// Keeps a probe of a worker's trial that certifies, and whether it ran to its end.
    pub(super) fn witness(&mut self, worker: usize, trial: u32, lesson: &FitProbe, complete: bool) {
        self.witnesses.push((trial, lesson.probe.clone()));
        self.driven.extend(complete.then_some((worker, trial)));
    }

    /// Forgets what certified something else.
    pub(super) fn dismiss(&mut self) {
        self.witnesses.clear();
        self.driven.clear();
    }

    /// The engine by all that is known, what certifies included: for questions that no probe answers, and whose answer only lowers a rate. How
    /// launches differ is told for the point that is certified on that worker, whose machine others may have a part of where it is `shared`.
    pub(super) fn in_hindsight(&self, worker: usize, shared: bool) -> Option<Hindsight> {
        let (trials, probes) = self.all_probes();
        let fit = refit(&probes, self.fit.as_ref()?, EFFORT).ok()?;
        let slower = trials.into_iter().zip(fit.residuals.probes.iter().map(|drift| drift.slower.ln()));
        Some(Hindsight {
            costs: fit.costs,
            launches: Launches::of(slower, |trial| self.driven.contains(&(worker, trial)), shared),
        })
    }

    /// The steps of [`Self::in_hindsight`] alone.
    pub(super) fn steps_in_hindsight(&self) -> Option<StepCosts> {
        refit_costs(&self.all_probes().1, self.fit.as_ref()?, EFFORT).ok()
    }

    /// The probes that were learnt from and those that certify, with their trials.
    fn all_probes(&self) -> (Vec<u32>, Vec<Probe>) {
        let learnt = self.trials.iter().copied().zip(self.probes.iter().cloned());
        learnt.chain(self.witnesses.iter().cloned()).unzip()
    }

    /// The most requests that were seen streamed at the same time.
    pub(super) fn largest(&self) -> u32 {
        self.largest
    }

    /// Takes a lesson of a trial; whether it is time to fit.
    pub(super) fn learn(&mut self, trial: u32, lesson: &FitProbe) -> bool {
        self.probes.push_back(lesson.probe.clone());
        self.trials.push_back(trial);
        if self.probes.len() > MOST_PROBES {
            // What large batches do, one probe alone may have shown.
            let largest = self.probes.iter().enumerate().max_by_key(|(_, probe)| streamed_at_once(probe));
            let oldest = usize::from(largest.is_some_and(|(at, _)| at == 0));
            self.probes.remove(oldest);
            self.trials.remove(oldest);
        }
        self.lessons += 1;
        2 * self.lessons >= 3 * self.tried
    }

    /// Fits to what was learnt; none where it says too little. It starts anew each time: a fit that goes downhill from the last one stays in its
    /// valley, whatever new probes show.
    pub(super) fn fit(&mut self) -> Option<&Fit> {
        self.fit_with(EFFORT)
    }

    /// The same with the effort of an answer that stays, where there is a twin.
    pub(super) fn fit_well(&mut self) {
        if self.fit.is_some() {
            self.fit_with(THOROUGH);
        }
    }

    fn fit_with(&mut self, effort: Effort) -> Option<&Fit> {
        self.tried = self.lessons;
        let probes = self.probes.make_contiguous();
        self.fit = Some(fit_anew(probes, self.fit.as_ref(), effort).ok()?);
        self.fits += 1;
        self.fit.as_ref()
    }

    /// Takes over a fit to all that was learnt so far, from the journal.
    pub(super) fn adopt(&mut self, fit: Fit) {
        self.tried = self.lessons;
        self.fits += 1;
        self.fit = Some(fit);
    }

    /// The steps of the engine as they are known, and how many fits there were so far.
    pub(super) fn known(&self) -> Option<(&StepCosts, u64)> {
        self.fit.as_ref().map(|fit| (&fit.costs, self.fits))
    }

    /// What one answer takes at a rate in the steady state, where turns follow answers and there is a twin: conversations that are under way
    /// when a probe begins are as many as that time makes them. No more than [`SLOWEST`] times what it takes an idle engine.
    pub(super) fn answer_time(
        &mut self,
        engine: &Engine,
        plan: &Plan,
        (material, shared_seed): (&Material, u64),
        rate: Rate,
        idle: Seconds,
    ) -> Option<Seconds> {
        let (think, costs) = (think_time(plan)?, self.fit.as_ref()?.costs);
        let outlines = self.hours.of(plan, material, shared_seed, OF_ANSWER_TIME);
        let sent = engine.sent(outlines, rate, Some(think), material.documents_apart());
        let mut answers = Vec::new();
        FastReplay::default().run(&costs, engine.bounds(), &sent, &mut answers);
        // The engine was empty before the first of them, and no conversation begins behind the last.
        let settled = &answers[answers.len() / 4..answers.len() * 3 / 4];
        let mean =
            settled.iter().map(|a| (a.last - a.at).min(SLOWEST * idle.0)).sum::<f64>() / settled.len().max(1) as f64;
        // In tenths of a second, so that a resumed session asks the same.
        (mean > 0.0).then_some(Seconds((mean * 10.0).ceil() / 10.0))
    }

    /// So many requests of the workload, as hours of it have them, at one a second.
    pub(super) fn traffic(
        &mut self,
        plan: &Plan,
        material: &Material,
        shared_seed: u64,
        requests: usize,
    ) -> &[Outline] {
        self.hours.of(plan, material, shared_seed, requests)
    }
}

/// The size that batches keep below for this share of the time over hours ...
const OF_THE_TIME: f64 = 0.99;
/// ... adds so much to the error for each unit of the logarithm by which it exceeds what was ever measured: beyond may lie a stair, as that
/// of a 70B model at 128 sequences, where a step takes a third longer.
const UNSEEN: f64 = 0.5;

/// A queue grows without end where this quantile of the time to first token exceeds so many seconds over hours.
pub(super) const ENDLESS: (f64, f64) = (0.9, 5.0);

/// The verdict of a rate at which a queue grows without end over hours, where no promise is about waiting and nothing else would tell.
fn endless(verdict: &Verdict, long: &LongRunReplay, plan: &Plan) -> Option<Verdict> {
    let grows = long.log_of(Metric::Ttft, ENDLESS.0).is_some_and(|log| log > ENDLESS.1.ln());
    (grows && !promises_waiting(plan)).then(|| Verdict {
        outcome: Outcome::Fail,
        saturated: true,
        because: "over hours of this traffic the queue grows without end, as the twin sees it".to_owned(),
        ..verdict.clone()
    })
}

/// Whether some promise is about the time that requests wait.
pub(super) fn promises_waiting(plan: &Plan) -> bool {
    plan.slo.iter().any(|l| matches!(l.metric, Metric::Ttft | Metric::E2e))
}

/// The most requests of a probe that were streamed at the same time.
fn streamed_at_once(probe: &Probe) -> u32 {
    let spans = probe.requests().iter().filter_map(|r| Some((r.first?.0, r.last.map_or(f64::INFINITY, |last| last.0))));
    let mut changes: Vec<(f64, i32)> = spans.flat_map(|(first, last)| [(first, 1), (last, -1)]).collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let open = changes.into_iter().scan(0, |open, (_, change)| {
        *open += change;
        Some(*open)
    });
    open.max().map_or(0, |most| most.max(0) as u32)
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
    use crate::twin::Observed;
    use crate::verdict::Awaited;

    /// What a probe at that rate teaches of which so many requests were streamed at the same time.
    fn lesson(rate: Rate, at_once: u32) -> FitProbe {
        let bounds = Bounds { max_num_seqs: 1024, max_num_batched_tokens: 8192, kv_tokens: None };
        let (from, to) = (Seconds(0.0), Seconds(10.0));
        let window = Window { from, to };
        let ask = ProbeAsk {
            rate,
            window,
            arrival_seed: 1,
            content_seed: 1,
            answer_time: to,
            slack: 1.0,
            awaited: Awaited::All,
        };
        let one = Observed {
            due: from,
            sent: from,
            tokens_in: 10,
            cached: 0,
            shared: 0,
            document: 0,
            turn: None,
            tokens_out: 10,
            first: Some(Seconds(1.0)),
            last: Some(to),
            failed: false,
            cut: false,
        };
        let probe = Probe::new(vec![one; at_once as usize], bounds);
        FitProbe {
            engine: Engine { bounds, reused_by: None },
            ask,
            probe,
            resent: None,
            told: Telemetry::default(),
            objection: None,
        }
    }

    #[test]
    fn the_probe_with_the_largest_batch_stays_and_of_the_others_the_latest() {
        let mut session_twin = SessionTwin::default();
        for at_once in [128, 50, 51, 52, 53, 54, 55, 56, 57] {
            let lesson = lesson(Rate(1.0), at_once);
            session_twin.note(&lesson);
            session_twin.learn(1, &lesson);
        }
        let kept: Vec<usize> = session_twin.probes.iter().map(|probe| probe.requests().len()).collect();
        assert_eq!((kept, session_twin.largest()), (vec![128, 51, 52, 53, 54, 55, 56, 57], 128));
    }
}
