//! A run that is over, judged again from its journal and its requests: what the benchmark of recorded runs asks.

use std::collections::BTreeMap;
use std::path::Path;

use autotune::bisection::narrowed;
use autotune::journal::{Entry, FILE, Journal, Record, read};
use autotune::load::{ClientHealth, RequestRecord, read_records};
use autotune::quantiles::{median, quantile};
use autotune::rig::{CacheUse, ProbeAsk, Telemetry};
use autotune::settings::{Limit, Plan};
use autotune::tune::{
    FitProbe, Likeness, LongRunTraffic, SampleSizes, SessionTwin, TrafficSource, TwinEngine, stress_replay,
};
use autotune::twin::{Answered, Effort, FastReplay, Fit, Observed, Probe, SeenSteps, StepCosts, fit};
use autotune::units::{Rate, Seconds};
use autotune::verdict::paired::{CheckedTwin, estimate};
use autotune::verdict::{Certainty, Course, Verdict, Window, judge};
use autotune::workload::{Material, Resent, Vocabulary};
use autotune_numerics::spread::{correlation, mean};

/// Limits are found to this factor.
const FOUND: f64 = 1.003;

pub struct RecordedProbe {
    pub ask: ProbeAsk,
    /// What the engine's counters said.
    pub telemetry: Telemetry,
    pub records: Vec<RequestRecord>,
    course: Course,
    client: ClientHealth,
    pub engine: TwinEngine,
    fit_probe: FitProbe,
}

pub struct RecordedRun {
    pub plan: Plan,
    material: Material,
    seed: u64,
    /// By name, such as `t001-p02`.
    pub probes: BTreeMap<String, RecordedProbe>,
}

/// Latencies of the requests of a window beside those of their replay, in seconds.
pub struct Replayed {
    /// Times to the first token: measured, replayed.
    pub ttft: Vec<(f64, f64)>,
    /// Times per token: measured, replayed.
    pub tpot: Vec<(f64, f64)>,
    /// When each request ran, by the measurement and by the replay.
    spans: Vec<[(f64, f64); 2]>,
}

impl Replayed {
    /// The requests of a probe beside their replay, those that count among their latencies; turns follow the replay's own answers where that is
    /// asked.
    pub fn of(probe: &Probe, costs: &StepCosts, by_conversation: bool, counts: impl Fn(&Observed) -> bool) -> Self {
        let sent = if by_conversation { probe.sent_by_conversation() } else { probe.sent().to_vec() };
        let mut answers: Vec<Answered> = Vec::new();
        FastReplay::default().run(costs, probe.bounds(), &sent, &mut answers);
        let mut found = Self { ttft: Vec::new(), tpot: Vec::new(), spans: Vec::new() };
        for (r, a) in probe.requests().iter().zip(&answers) {
            let (Some(ttft), Some(first), Some(last)) = (r.ttft(), r.first, r.last) else { continue };
            found.spans.push([(first.0, last.0), (a.first, a.last)]);
            if counts(r) {
                found.ttft.push((ttft, a.first - a.at + (r.sent - r.due).0));
                found.tpot.extend(r.tpot().zip(a.tpot(r.tokens_out)));
            }
        }
        found
    }

    /// The correlation of the logarithms.
    pub fn correlation(pairs: &[(f64, f64)]) -> f64 {
        correlation(pairs.iter().map(|p| (p.0.ln(), p.1.ln())))
    }

    /// The median magnitude of the logarithm of measured over replayed.
    pub fn typical_error(pairs: &[(f64, f64)]) -> f64 {
        median(pairs.iter().map(|p| (p.0 / p.1).ln().abs())).unwrap_or(f64::NAN)
    }

    /// A quantile of both: measured, replayed.
    pub fn quantile(pairs: &[(f64, f64)], q: f64) -> (f64, f64) {
        let of = |which: fn(&(f64, f64)) -> f64| quantile(pairs.iter().map(which), q).unwrap_or(f64::NAN);
        (of(|p| p.0), of(|p| p.1))
    }

    /// How many requests ran at a time: measured, replayed.
    pub fn running(&self, at: f64) -> (usize, usize) {
        let count = |which: usize| self.spans.iter().filter(|s| s[which].0 <= at && at < s[which].1).count();
        (count(0), count(1))
    }
}

impl RecordedRun {
    /// Reads the run of an output folder.
    ///
    /// # Errors
    /// A file is missing, or says something that this version does not understand.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let open =
            |name: &str| std::fs::read(folder.join(name)).map_err(|e| format!("{}: {e}", folder.join(name).display()));
        let journal = read(&open(FILE)?).map_err(|e| e.to_string())?;
        let header = journal.header().ok_or("the journal has no header")?;
        let (plan, seed) = (header.plan.clone(), header.seed);
        let mut run = Self { plan, material: material(&journal), seed, probes: BTreeMap::new() };
        for entry in &journal.entries {
            let Record::Probed { trial, probe, ask, verdict, telemetry, cache, steps, client, requests, .. } =
                &entry.record
            else {
                continue;
            };
            let Some(engine) = engine_of(&run.plan, &journal, *trial) else { continue };
            let records = read_records(&open(requests)?[..]).map_err(|e| format!("{requests}: {e}"))?;
            let recorded = RecordedProbe {
                ask: *ask,
                telemetry: telemetry.clone(),
                course: course(*ask, &records, verdict.complete),
                client: *client,
                fit_probe: FitProbe::of(engine, *ask, &records, cache, telemetry).with_steps(steps.clone()),
                records,
                engine,
            };
            run.probes.insert(format!("t{trial:03}-p{probe:02}"), recorded);
        }
        Ok(run)
    }

    /// Adds a probe that another program recorded, under the limits of a probe of this run.
    ///
    /// # Errors
    /// No probe has that name.
    pub fn add(&mut self, name: &str, records: Vec<RequestRecord>, like: &str, window: Window) -> Result<(), String> {
        let (engine, ask) =
            self.probes.get(like).map(|p| (p.engine, p.ask)).ok_or_else(|| format!("no probe {like}"))?;
        let ask = ProbeAsk { window, ..ask };
        let fit_probe = FitProbe::of(engine, ask, &records, &CacheUse::default(), &Telemetry::default());
        let (telemetry, client, course) = (Telemetry::default(), ClientHealth::default(), course(ask, &records, true));
        let added = RecordedProbe { ask, telemetry, records, course, client, engine, fit_probe };
        self.probes.insert(name.to_owned(), added);
        Ok(())
    }

    /// Prompt tokens that were computed in a probe: as the twin takes them, and by the engine's counters.
    pub fn computed(&self, name: &str) -> Option<(f64, f64)> {
        let probe = self.probes.get(name)?;
        let requests = probe.fit_probe.probe.requests();
        let prompts: f64 = requests.iter().map(|r| f64::from(r.tokens_in)).sum();
        let ours: f64 = requests.iter().map(|r| f64::from(r.tokens_in - r.cached.min(r.tokens_in))).sum();
        Some((ours, (1.0 - probe.telemetry.prefix_hit_rate?) * prompts))
    }

    /// The engine's steps in a probe, as they were seen.
    pub fn steps(&self, name: &str) -> &[SeenSteps] {
        self.probes.get(name).map_or(&[], |probe| probe.fit_probe.probe.steps())
    }

    /// The same by the lengths of prompts and answers alone, later turns only, over all tokens that the engine computed.
    pub fn resent(&self, name: &str) -> Option<Resent> {
        self.probes.get(name)?.fit_probe.resent
    }

    /// Requests that came in the window over those that its rate means.
    pub fn offered(&self, name: &str) -> Option<f64> {
        let probe = self.probes.get(name)?;
        let came = probe.records.iter().filter(|r| probe.ask.window.holds(r.due)).count();
        Some(came as f64 / probe.ask.window.length().0 / probe.ask.rate.0)
    }

    /// The twin of these probes.
    ///
    /// # Errors
    /// They say too little.
    pub fn fit(&self, names: &[&str], effort: Effort) -> Result<Fit, String> {
        let probes: Vec<Probe> =
            names.iter().filter_map(|n| Some(self.probes.get(*n)?.fit_probe.probe.clone())).collect();
        fit(&probes, effort).map_err(|e| e.to_string())
    }

    /// The requests of a probe's window beside their replay; turns follow the replay's own answers where that is asked.
    pub fn replay(&self, name: &str, costs: &StepCosts, by_conversation: bool) -> Option<Replayed> {
        let recorded = self.probes.get(name)?;
        let window = recorded.ask.window;
        Some(Replayed::of(&recorded.fit_probe.probe, costs, by_conversation, |r| window.holds(r.due)))
    }

    /// What the engine and its twin say of a probe.
    pub fn likeness(&self, name: &str, costs: &StepCosts) -> Option<Likeness> {
        let probe = self.probes.get(name)?;
        Some(Likeness::of(&probe.fit_probe.probe, &probe.telemetry, costs))
    }

    fn material(&self, resent: Option<Resent>) -> Material {
        Material { resent, ..self.material.clone() }
    }

    fn source<'a>(&'a self, material: &'a Material) -> TrafficSource<'a> {
        TrafficSource { plan: &self.plan, material, seed: self.seed }
    }

    /// The highest rate at which every promise holds over a long run, of the engine of that probe, with what its later turns resent. What the twin
    /// misses of a quantile in these windows, it is taken to miss in the long run too: the mean of the logarithms.
    pub fn limit(&self, name: &str, resent: Option<Resent>, fit: &Fit, windows: &[&str]) -> Option<Rate> {
        let engine = self.probes.get(name)?.engine;
        let (material, mut hours) = (self.material(resent), LongRunTraffic::new(SampleSizes::FULL));
        let mut long_run = |rate| hours.through(&engine, &fit.costs, self.source(&material), rate).0;
        let twin = CheckedTwin { fit, others: &[], shared: engine.shared };
        let mut missed: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for driven in windows.iter().filter_map(|window| self.probes.get(*window)) {
            let (ask, long) = (driven.ask, long_run(driven.ask.rate));
            for pair in estimate(&driven.fit_probe.probe, ask.window, twin, &long, &self.plan.slo) {
                missed.entry(pair.key).or_default().push((pair.estimate.0 / pair.long.0).ln());
            }
        }
        Some(highest(|rate| {
            let long = long_run(rate);
            let holds = |limit: &Limit| {
                let missed = missed.get(&limit.key()).map_or(0.0, |missed| mean(missed));
                long.log_of(limit.metric, limit.quantile).is_none_or(|log| log + missed <= limit.at_most.0.ln())
            };
            self.plan.slo.iter().all(holds)
        }))
    }

    /// The highest rate at which the engine of that probe passes the stress replay.
    pub fn stress_limit(&self, name: &str, resent: Option<Resent>, costs: &StepCosts) -> Option<Rate> {
        let engine = self.probes.get(name)?.engine;
        let material = self.material(resent);
        Some(highest(|rate| {
            stress_replay(self.source(&material), &engine, costs, rate, SampleSizes::FULL.stress)
                .is_none_or(|reach| reach.passes)
        }))
    }

    /// What is said of a probe by a session that was taught these others, in this order.
    pub fn verdict(&self, name: &str, taught: &[&str]) -> Option<Verdict> {
        let mut session_twin = SessionTwin::new(SampleSizes::FULL);
        for fit_probe in taught.iter().filter_map(|n| Some(&self.probes.get(*n)?.fit_probe)) {
            if session_twin.learn(fit_probe, false) {
                session_twin.fit();
            }
        }
        let recorded = self.probes.get(name)?;
        let RecordedProbe { records, course, client, fit_probe, .. } = recorded;
        let certainty = Certainty::SEARCH;
        let plain = judge(records, &self.plan.slo, *course, client, certainty);
        Some(session_twin.weigh(plain, fit_probe, self.source(&self.material), certainty))
    }
}

fn course(ask: ProbeAsk, records: &[RequestRecord], complete: bool) -> Course {
    let ended = records.iter().filter_map(|r| r.last).map(|last| last.0).fold(0.0, f64::max);
    Course { window: ask.window, ended: Seconds(ended), complete, steady: true }
}

fn material(journal: &Journal) -> Material {
    let words = journal.entries.iter().find_map(Entry::words).cloned();
    Material { vocabulary: words.unwrap_or_else(Vocabulary::default), ..Material::default() }
}

fn engine_of(plan: &Plan, journal: &Journal, trial: u32) -> Option<TwinEngine> {
    let point = journal.entries.iter().find_map(|e| match &e.record {
        Record::Launching { trial: t, point, .. } if *t == trial => Some(point),
        _ => None,
    })?;
    let ready = journal.entries.iter().rev().find_map(|e| match &e.record {
        Record::Ready { trial: t, ready, .. } if *t == trial => Some(ready),
        _ => None,
    })?;
    TwinEngine::of(plan, point, ready)
}

/// The highest rate at which something holds that holds below some rate and not above it.
fn highest(mut holds: impl FnMut(Rate) -> bool) -> Rate {
    let (mut low, mut high) = (0.01, 0.02);
    while high < 1e4 && holds(Rate(high)) {
        (low, high) = (high, high * 1.5);
    }
    Rate(narrowed((low, high), FOUND, |middle| Some(holds(Rate(middle)))).map_or(low, |(low, _)| low))
}
