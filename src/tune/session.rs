//! The order of a session, and the decisions between its steps.

use statrs::distribution::{ContinuousCDF, Normal};

use super::bench::{Bench, BenchError};
use super::cost::{Prices, forecast};
use super::foresight::Foresight;
use crate::engine::diagnosis::{Consequence, Diagnosis};
use crate::engine::effective::Effective;
use crate::engine::{DEMANDING, MEMORY_KNOB};
use crate::journal::{Conclusion, Placed, Purpose, Status};
use crate::progress::{Event, Sink};
use crate::rig::{ProbeAsk, Rig};
use crate::search::{
    self, Ask, Heard, HighestThatStarts, Incumbent, Observation, Query, Strategy, Tell, Traffic, round,
};
use crate::settings::Plan;
use crate::space::{Point, Value};
use crate::units::{Rate, Seconds};
use crate::verdict::{Certainty, Outcome, Verdict, Window};
use crate::workload::mix;

/// The first rate tried, as a share of what the warm-up's burst reached: a burst fills batches that open traffic does not.
const OF_BURST: f64 = 0.7;
/// Certification begins this far below the search's estimate: the search keeps the luckiest of many readings.
const CURSE: f64 = 0.9;
/// A rate that fresh traffic did not confirm is lowered this often.
const CERTIFY_TRIES: u64 = 6;
/// By how much it is lowered where a promise was broken, and where it was only too near to say.
const LOWER: (f64, f64) = (0.92, 0.95);
/// A pair that is as sure as this is asked once more at the same rate.
const ALMOST: f64 = 0.75;

/// A probe of the search lasts until so many requests are expected in its window ...
const LEAST_REQUESTS: f64 = 100.0;
/// ... but at most so many times as long as planned.
const MOST_STRETCH: f64 = 3.0;
/// Violations that a probe bears which shall run to its end, whatever it shows.
const NEVER_CUT: f64 = 1e9;

/// Probes at most this many times above a rate speak for it too.
const EVIDENCE_REACH: f64 = 1.1;

/// Labels of independent seeds.
const ARRIVALS: u64 = 1;
const CONTENT: u64 = 2;
const FRESH: u64 = 3;
const ORDER: u64 = 4;

/// One run of a plan on a rig.
pub struct Session<'a, R> {
    bench: Bench<'a, R>,
    plan: &'a Plan,
    sink: &'a dyn Sink,
    seed: u64,
    left_out: Vec<String>,
    started: bool,
    nearest: Option<(Rate, Verdict)>,
}

/// What certification found.
struct Certified {
    rate: Rate,
    confidence: f64,
    binding: Option<String>,
    windows_that_hold: Option<f64>,
}

impl<'a, R: Rig> Session<'a, R> {
    /// A session on a bench.
    pub fn new(bench: Bench<'a, R>, plan: &'a Plan, sink: &'a dyn Sink) -> Self {
        let seed = bench.seed();
        Self { bench, plan, sink, seed, left_out: Vec::new(), started: false, nearest: None }
    }

    /// The bench, for whoever has to stop it.
    pub fn bench(&mut self) -> &mut Bench<'a, R> {
        &mut self.bench
    }

    /// Runs to the answer and records it.
    ///
    /// # Errors
    /// What keeps a session from going on; a failing engine does not.
    pub async fn run(&mut self) -> Result<Conclusion, BenchError> {
        self.sink.take(&Event::Begun { forecast: forecast(self.plan), budget: self.budget() });
        let conclusion = self.decide().await?;
        self.bench.stop().await?;
        self.bench.conclude(&conclusion)?;
        self.sink.take(&Event::Ended(&conclusion));
        Ok(conclusion)
    }

    async fn decide(&mut self) -> Result<Conclusion, BenchError> {
        // 1. The defaults: what the user would deploy without us.
        let (point, mut strategy) = match self.baseline().await? {
            Ok(found) => found,
            Err(diagnosis) => return Ok(never_started(&diagnosis)),
        };
        let binding = self.bench.told().last().and_then(|(_, verdict, _)| verdict.binding.clone());
        // 2. The memory: as much as starts.
        let held = self.memory(&point).await?;
        // 3. The other parameters, at that memory.
        strategy.open(&held);
        self.follow(&mut *strategy, Purpose::Search).await?;
        let mut baseline = Placed { estimated_rate: strategy.estimate(&point), binding, ..placed(point) };
        let Some(winner) = strategy.incumbent() else {
            return Ok(self.nothing_found(baseline));
        };
        // 4. Proof on traffic that the search never used, on a cold engine; the baseline on the same arrivals.
        let certified = self.certify(Purpose::Certify, &winner.point, winner.rate).await?;
        let mut best = place(winner, certified);
        if best.point == baseline.point {
            baseline = best.clone();
        } else if let Some(rate) = baseline.estimated_rate {
            let incumbent = Incumbent { point: baseline.point.clone(), rate };
            let certified = self.certify(Purpose::CertifyBaseline, &incumbent.point, rate).await?;
            baseline = place(incumbent, certified);
        }
        let rate = |p: &Placed| p.certified_rate.map_or(0.0, |r| r.0);
        if rate(&baseline) >= rate(&best) && baseline.certified_rate.is_some() {
            best = baseline.clone();
        }
        Ok(self.answer(baseline, best))
    }

    /// Launches the defaults and finds what they keep. Defaults that do not start end nothing, unless no point can.
    async fn baseline(&mut self) -> Result<Result<(Point, Box<dyn Strategy>), Diagnosis>, BenchError> {
        let point = self.plan.space.baseline();
        let seed = mix(self.seed, &[ORDER]);
        match self.bench.launch(Purpose::Baseline, &point).await? {
            Ok(ready) => {
                self.started = true;
                let point = complete(self.plan, point, &ready.effective);
                self.bench.known_as(&point);
                let mut strategy = search::strategy(self.plan, seed, &point, self.first_rate(Some(ready.burst_rate)));
                self.follow(&mut *strategy, Purpose::Baseline).await?;
                Ok(Ok((point, strategy)))
            }
            Err(diagnosis) if diagnosis.consequence == Consequence::Abort => Ok(Err(diagnosis)),
            Err(diagnosis) => {
                self.note(&format!("the defaults do not start ({}); searching on without a baseline", diagnosis.says));
                let mut strategy = search::strategy(self.plan, seed, &point, self.first_rate(None));
                let asked = strategy.ask(&mut self.foresight());
                if let Ask::Probe(query) = asked {
                    strategy.tell(&query, &Tell::Failed(diagnosis.consequence));
                }
                Ok(Ok((point, strategy)))
            }
        }
    }

    /// Does what the strategy asks until it is done or the budget ends.
    async fn follow(&mut self, strategy: &mut dyn Strategy, purpose: Purpose) -> Result<(), BenchError> {
        let certifications = if purpose == Purpose::Baseline { 1 } else { 2 };
        let mut before = strategy.incumbent();
        loop {
            let asked = strategy.ask(&mut self.foresight());
            // A winner is settled when the next question is asked.
            let incumbent = strategy.incumbent();
            if let Some(incumbent) = incumbent.as_ref().filter(|_| incumbent != before) {
                self.sink.take(&Event::Improved(incumbent));
            }
            before = incumbent;
            let Ask::Probe(query) = asked else { return Ok(()) };
            let fresh = query.relaunch || self.bench.point() != Some(&query.point);
            let price = self.prices().probe(self.length(&query.traffic), fresh);
            if !self.affords(price, certifications) {
                self.left_out(match purpose {
                    Purpose::Baseline => "the rest of the baseline's rate search: the budget ended".into(),
                    _ => format!("{} of the candidates: the budget ended", strategy.points_left()),
                });
                return Ok(());
            }
            let told = self.try_out(purpose, &query, fresh).await?;
            strategy.tell(&query, &told);
            self.standing(strategy.points_left());
        }
    }

    async fn try_out(&mut self, purpose: Purpose, query: &Query, fresh: bool) -> Result<Tell, BenchError> {
        if fresh {
            if let Err(diagnosis) = self.bench.launch(purpose, &query.point).await? {
                return Ok(Tell::Failed(diagnosis.consequence));
            }
            self.started = true;
        }
        match self.bench.probe(self.asking(query.traffic), Certainty::SEARCH).await? {
            Ok(verdict) => {
                self.look_at(query.traffic.rate(), verdict);
                let heard = |(ask, verdict, took): (&ProbeAsk, &Verdict, Seconds)| Heard {
                    traffic: traffic_of(ask),
                    seen: Observation::of(verdict, took),
                };
                Ok(Tell::Probed(self.bench.told().map(heard).collect()))
            }
            Err(diagnosis) => {
                if purpose == Purpose::Baseline {
                    let says = &diagnosis.says;
                    self.note(&format!(
                        "the baseline failed under load ({says}); its rate stays at what it kept before"
                    ));
                }
                Ok(Tell::Failed(diagnosis.consequence))
            }
        }
    }

    /// What the strategy may ask about the engine, from what was learnt so far.
    fn foresight(&self) -> Foresight {
        Foresight::new(self.plan, self.prices())
    }

    /// Holds the memory knob at the highest value that starts where everything else asks for most.
    async fn memory(&mut self, baseline: &Point) -> Result<Point, BenchError> {
        let Some(knob) = self.plan.space.parameter(MEMORY_KNOB).filter(|p| p.values.len() > 1) else {
            return Ok(Point::default());
        };
        let default = baseline.get(MEMORY_KNOB).cloned();
        let hold = |value: Option<Value>| value.map_or(Point::default(), |v| Point::default().with(MEMORY_KNOB, v));
        let corner = self.hungriest(baseline);
        let mut search = HighestThatStarts::new(knob.values.clone());
        while let Some(value) = search.next().cloned() {
            if !self.affords(self.prices().launch, 2) {
                self.left_out("a larger memory share: the budget ended".into());
                break;
            }
            match self.bench.launch(Purpose::Memory, &corner.with(MEMORY_KNOB, value.clone())).await? {
                Ok(_) => {
                    self.started = true;
                    search.tell(&value, true);
                }
                Err(diagnosis) if diagnosis.consequence == Consequence::MemoryBound => search.tell(&value, false),
                Err(diagnosis) => {
                    self.note(&format!("the memory share stays at its default: {}", diagnosis.says));
                    break;
                }
            }
        }
        let found = search.found().cloned();
        // The default is known to start at the defaults, whatever the hungriest corner does.
        let best = match (&found, &default) {
            (Some(found), Some(default)) if found.compare(default) == Some(std::cmp::Ordering::Less) => {
                Some(default.clone())
            }
            (Some(found), _) => Some(found.clone()),
            (None, _) => default,
        };
        if let Some(best) = &best {
            self.note(&format!("memory: {MEMORY_KNOB} {best} is held from here on"));
        }
        Ok(hold(best))
    }

    /// The baseline with every parameter that costs memory at its largest, where the constraints admit that.
    fn hungriest(&self, baseline: &Point) -> Point {
        let largest = self.plan.space.parameters.iter().filter(|p| DEMANDING.contains(&p.name.as_str()));
        let corner = largest.fold(baseline.clone(), |point, p| match p.values.last() {
            Some(value) => point.with(&p.name, value.clone()),
            None => point,
        });
        if self.plan.space.admits(&corner) { corner } else { baseline.clone() }
    }

    /// Drives a cold engine with fresh arrivals at the estimate, and at lower rates until one holds.
    async fn certify(
        &mut self,
        purpose: Purpose,
        point: &Point,
        estimate: Rate,
    ) -> Result<Option<Certified>, BenchError> {
        let what = if purpose == Purpose::Certify {
            "the certification of the best point"
        } else {
            "the certification of the baseline"
        };
        if !self.affords(self.prices().launch + self.prices().certify, 0) {
            self.left_out(format!("{what}: the budget ended"));
            return Ok(None);
        }
        if let Err(diagnosis) = self.bench.launch(purpose, point).await? {
            self.left_out(format!("{what}: {}", diagnosis.says));
            return Ok(None);
        }
        let mut rate = round(estimate * CURSE);
        let (mut evidence, mut again): (Vec<(Rate, f64)>, u32) = (Vec::new(), 0);
        for attempt in 0..CERTIFY_TRIES {
            if attempt > 0 && !self.affords(self.prices().certify, 0) {
                self.left_out(format!("{what} below {rate}: the budget ended"));
                return Ok(None);
            }
            let (seed, ramp, length) = (self.seed, self.ramp(), Seconds::from(self.plan.probe.certify_window));
            let ask = move |trial: u32, probe: u32, answer_time| ProbeAsk {
                rate,
                window: Window { from: ramp, to: ramp + length },
                // The same for the winner and the baseline, and never used by the search.
                arrival_seed: mix(seed, &[FRESH, attempt]),
                content_seed: mix(seed, &[FRESH, CONTENT, u64::from(trial), u64::from(probe)]),
                answer_time,
                slack: 1.0,
            };
            let verdict = match self.bench.probe(ask, Certainty::CERTIFIED).await? {
                Ok(verdict) => verdict,
                Err(diagnosis) => {
                    self.left_out(format!("{what}: {}", diagnosis.says));
                    return Ok(None);
                }
            };
            self.standing(0);
            // Fresh probes at this rate and up to a tenth above it are evidence together: what holds there holds here.
            evidence.push((
                rate,
                if verdict.margin().is_some() { verdict.confidence } else { 1.0 - Certainty::CERTIFIED.0 },
            ));
            evidence.retain(|(r, _)| r.0 <= rate.0 * EVIDENCE_REACH);
            let confidence = pooled(evidence.iter().map(|(_, confidence)| *confidence));
            let inside = verdict.complete && !verdict.saturated && verdict.margin().is_some_and(|m| m <= 0.0);
            match verdict.outcome {
                Outcome::Pass | Outcome::Unresolved if inside && confidence >= Certainty::CERTIFIED.0 => {
                    let windows_that_hold = verdict.windows_that_hold();
                    return Ok(Some(Certified { rate, confidence, binding: verdict.binding, windows_that_hold }));
                }
                // Nearly sure by the pair, whose doubt is of this window alone: another one at the same rate is worth more than a lower rate.
                Outcome::Unresolved if inside && verdict.by_count.is_some() && confidence >= ALMOST && again < 1 => {
                    again += 1;
                }
                Outcome::Fail => rate = round(rate * LOWER.0),
                Outcome::Pass | Outcome::Unresolved | Outcome::Void => rate = round(rate * LOWER.1),
            }
        }
        self.left_out(format!("{what}: no rate down to {rate} held on fresh traffic"));
        Ok(None)
    }

    /// A probe of the search: common arrivals for every point, fresh prompts in every probe.
    fn asking(&self, traffic: Traffic) -> impl Fn(u32, u32, Seconds) -> ProbeAsk + use<R> {
        let (seed, window) = (self.seed, self.window(&traffic));
        let slack = if matches!(traffic, Traffic::Requests { .. }) { NEVER_CUT } else { 1.0 };
        move |trial, probe, answer_time| ProbeAsk {
            rate: traffic.rate(),
            window,
            arrival_seed: mix(seed, &[ARRIVALS]),
            content_seed: mix(seed, &[CONTENT, u64::from(trial), u64::from(probe)]),
            answer_time,
            slack,
        }
    }

    fn window(&self, traffic: &Traffic) -> Window {
        match traffic {
            Traffic::Window(rate) => {
                let planned = Seconds::from(self.plan.probe.window);
                let enough = Seconds((LEAST_REQUESTS / rate.0).clamp(planned.0, planned.0 * MOST_STRETCH));
                Window { from: self.ramp(), to: self.ramp() + enough }
            }
            Traffic::Requests { rate, count } => Window { from: Seconds(0.0), to: Seconds(f64::from(*count) / rate.0) },
        }
    }

    /// Seconds in which requests are sent.
    fn length(&self, traffic: &Traffic) -> Seconds {
        self.window(traffic).to
    }

    fn first_rate(&self, burst: Option<Rate>) -> Rate {
        self.plan.search.first_rate.unwrap_or_else(|| burst.unwrap_or(Rate(1.0)) * OF_BURST)
    }

    fn ramp(&self) -> Seconds {
        self.plan.probe.ramp.into()
    }

    fn budget(&self) -> Seconds {
        self.plan.budget.gpu_time.into()
    }

    fn prices(&self) -> Prices {
        Prices::new(self.plan, self.bench.passed())
    }

    /// Whether a step fits before the budget ends, with `certifications` still to come.
    fn affords(&self, price: Seconds, certifications: u32) -> bool {
        let reserve = self.prices().certification() * f64::from(certifications);
        self.bench.spent().0 + price.0 + reserve.0 <= self.budget().0
    }

    fn standing(&self, candidates: usize) {
        let prices = self.prices();
        let spent = self.bench.spent();
        let wanted = prices.candidates(candidates) + prices.certification() * 2.0;
        let left = Seconds(wanted.0.min((self.budget() - spent).0).max(0.0));
        self.sink.take(&Event::Standing { spent, left, budget: self.budget() });
    }

    fn note(&self, text: &str) {
        self.sink.take(&Event::Note(text));
    }

    fn left_out(&mut self, what: String) {
        self.note(&format!("left out: {what}"));
        self.left_out.push(what);
    }

    /// Remembers the probe at the lowest rate: where nothing is found, it says how near it was.
    fn look_at(&mut self, rate: Rate, verdict: Verdict) {
        if self.nearest.as_ref().is_none_or(|(lowest, _)| rate.0 < lowest.0) {
            self.nearest = Some((rate, verdict));
        }
    }

    fn nothing_found(&self, baseline: Placed) -> Conclusion {
        let (status, because) = match (&self.nearest, self.started) {
            (Some((rate, verdict)), _) => {
                let near = infeasible_sentence(*rate, verdict);
                (Status::NotReachable, format!("no point keeps the promises at any rate that was tried: {near}"))
            }
            // Nothing was measured, so nothing is known of the promises.
            (None, true) => (Status::Uncertified, format!("no probe was possible: {}", self.left_out.join("; "))),
            (None, false) => {
                (Status::NeverStarted, "no engine ever started; the logs of the trials say why".to_owned())
            }
        };
        Conclusion { status, because, baseline: Some(baseline), best: None, left_out: self.left_out.clone() }
    }

    fn answer(&self, baseline: Placed, best: Placed) -> Conclusion {
        let gain = gain(&baseline, &best);
        let (status, because) = match (best.certified_rate, best.estimated_rate) {
            (Some(rate), _) => {
                let sure = best.confidence.map_or(String::new(), |c| format!(", {:.0} % sure", (c * 100.0).floor()));
                (Status::Certified, format!("{rate} certified{sure} with {}{gain}", best.point))
            }
            (None, Some(rate)) => (
                Status::Uncertified,
                format!("about {rate} with {}, not certified: {}", best.point, self.left_out.join("; ")),
            ),
            (None, None) => (Status::Uncertified, "nothing was measured".to_owned()),
        };
        Conclusion { status, because, baseline: Some(baseline), best: Some(best), left_out: self.left_out.clone() }
    }
}

fn gain(baseline: &Placed, best: &Placed) -> String {
    if baseline.point == best.point {
        return "; the defaults are the best point found".to_owned();
    }
    match (baseline.certified_rate, best.certified_rate) {
        (Some(baseline), Some(best)) => {
            format!("; the defaults keep {baseline}: {:+.0} %", (best.0 / baseline.0 - 1.0) * 100.0)
        }
        _ => String::new(),
    }
}

/// How near the lowest rate came.
fn infeasible_sentence(rate: Rate, verdict: &Verdict) -> String {
    let limits: Vec<&str> = verdict.limits.iter().map(|l| l.key.as_str()).collect();
    let binding = verdict.binding.as_deref().unwrap_or("none");
    format!("even at {rate}, {}; of {}, {binding} binds", verdict.because, limits.join(" and "))
}

fn never_started(diagnosis: &Diagnosis) -> Conclusion {
    let quote = diagnosis.line.as_ref().map_or(String::new(), |l| format!(" (the log says: {l})"));
    Conclusion {
        status: Status::NeverStarted,
        because: format!("the engine cannot start: {}{quote}", diagnosis.says),
        baseline: None,
        best: None,
        left_out: Vec::new(),
    }
}

fn placed(point: Point) -> Placed {
    Placed {
        point,
        estimated_rate: None,
        certified_rate: None,
        confidence: None,
        binding: None,
        windows_that_hold: None,
    }
}

fn place(found: Incumbent, certified: Option<Certified>) -> Placed {
    let estimated_rate = Some(found.rate);
    match certified {
        Some(Certified { rate, confidence, binding, windows_that_hold }) => Placed {
            windows_that_hold,
            estimated_rate,
            certified_rate: Some(rate),
            confidence: Some(confidence),
            binding,
            ..placed(found.point)
        },
        None => Placed { estimated_rate, ..placed(found.point) },
    }
}

/// What a probe was asked to send.
fn traffic_of(ask: &ProbeAsk) -> Traffic {
    if ask.slack >= NEVER_CUT {
        Traffic::Requests { rate: ask.rate, count: (ask.window.to.0 * ask.rate.0).round() as u32 }
    } else {
        Traffic::Window(ask.rate)
    }
}

/// One confidence from those of independent probes (Stouffer 1949: the sum of their normal quantiles over the root of their number).
fn pooled(confidences: impl Iterator<Item = f64>) -> f64 {
    let Ok(normal) = Normal::new(0.0, 1.0) else { return 0.0 };
    let quantiles: Vec<f64> = confidences.map(|c| normal.inverse_cdf(c.clamp(1e-4, 1.0 - 1e-4))).collect();
    normal.cdf(quantiles.iter().sum::<f64>() / (quantiles.len() as f64).sqrt())
}

/// A point with the defaults that the engine itself tells for parameters without one.
fn complete(plan: &Plan, point: Point, effective: &Effective) -> Point {
    plan.space.parameters.iter().fold(point, |point, parameter| match effective.values.get(&parameter.name) {
        Some(value) if point.get(&parameter.name).is_none() => point.with(&parameter.name, value.clone()),
        _ => point,
    })
}

#[cfg(test)]
mod tests {
    use super::pooled;

    #[test]
    fn independent_probes_strengthen_each_other_and_a_failure_weakens_them() {
        assert!((pooled([0.9].into_iter()) - 0.9).abs() < 1e-6);
        assert!(pooled([0.9, 0.9].into_iter()) > 0.96);
        assert!(pooled([0.9, 0.05].into_iter()) < 0.45);
    }
}
