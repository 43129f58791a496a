//! The order of a session, and the decisions between its steps.

use statrs::distribution::{ContinuousCDF, Normal};

use super::bench::{Bench, BenchError};
use super::cost::{Prices, forecast};
use crate::engine::diagnosis::{Consequence, Diagnosis};
use crate::engine::effective::Effective;
use crate::engine::{DEMANDING, MEMORY_KNOB};
use crate::journal::{Conclusion, Placed, Purpose, Record, Status};
use crate::progress::{Event, Sink};
use crate::rig::{ProbeAsk, Rig};
use crate::search::{self, Ask, HighestThatStarts, Incumbent, NextRate, Observation, RateSearch, Tell, round};
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
        let (baseline, first_rate) = match self.baseline().await? {
            Ok(found) => found,
            Err(diagnosis) if diagnosis.consequence == Consequence::Abort => return Ok(never_started(&diagnosis)),
            Err(diagnosis) => {
                self.note(&format!("the defaults do not start ({}); searching on without a baseline", diagnosis.says));
                (placed(self.plan.space.baseline()), self.first_rate(None))
            }
        };
        // 2. The memory: as much as starts.
        let held = self.memory(&baseline.point).await?;
        // 3. The other parameters, at that memory.
        let incumbent = baseline.estimated_rate.map(|rate| Incumbent { point: baseline.point.clone(), rate });
        let winner = self.search(&held, &baseline.point, incumbent, first_rate).await?;
        let Some(winner) = winner else {
            return Ok(self.nothing_found(baseline));
        };
        // 4. Proof on traffic that the search never used, on a cold engine; the baseline on the same arrivals.
        let certified = self.certify(Purpose::Certify, &winner.point, winner.rate).await?;
        let mut best = place(winner, certified);
        let mut baseline = baseline;
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

    async fn baseline(&mut self) -> Result<Result<(Placed, Rate), Diagnosis>, BenchError> {
        let point = self.plan.space.baseline();
        let ready = match self.bench.launch(Purpose::Baseline, &point).await? {
            Ok(ready) => ready,
            Err(diagnosis) => return Ok(Err(diagnosis)),
        };
        self.started = true;
        let point = complete(self.plan, point, &ready.effective);
        let first = self.first_rate(Some(ready.burst_rate));
        let mut search = RateSearch::new(first, self.plan.search.precision);
        while let NextRate::Try(rate) = search.next() {
            if !self.affords(self.prices().probe, 1) {
                self.left_out("the rest of the baseline's rate search: the budget ended".into());
                break;
            }
            match self.bench.probe(self.asking(rate), Certainty::SEARCH).await? {
                Ok(verdict) => {
                    // The twin that a probe taught may think otherwise of those before it.
                    search = RateSearch::new(first, self.plan.search.precision);
                    self.bench.told().for_each(|(rate, verdict)| search.tell(rate, Observation::from(verdict)));
                    self.look_at(rate, verdict);
                }
                Err(diagnosis) => {
                    self.note(&format!(
                        "the baseline failed under load ({}); its rate stays at what it kept before",
                        diagnosis.says
                    ));
                    break;
                }
            }
            self.standing(self.plan.search.candidates as usize);
        }
        let placed = Placed { estimated_rate: search.kept(), binding: self.binding(), ..placed(point) };
        if let Some(rate) = placed.estimated_rate {
            self.sink.take(&Event::Improved(&Incumbent { point: placed.point.clone(), rate }));
        }
        Ok(Ok((placed, first)))
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

    async fn search(
        &mut self,
        held: &Point,
        baseline: &Point,
        incumbent: Option<Incumbent>,
        first_rate: Rate,
    ) -> Result<Option<Incumbent>, BenchError> {
        let seed = mix(self.seed, &[ORDER]);
        let mut strategy = search::strategy(self.plan, seed, held, baseline, incumbent, first_rate);
        while let Ask::Probe(point, rate) = strategy.ask() {
            let fresh = self.bench.point() != Some(&point);
            let prices = self.prices();
            let price = if fresh { prices.launch + prices.probe } else { prices.probe };
            if !self.affords(price, 2) {
                self.left_out(format!("{} of the candidates: the budget ended", strategy.points_left()));
                break;
            }
            let told = self.try_out(&point, rate, fresh).await?;
            let before = strategy.incumbent().cloned();
            strategy.tell(&point, &told);
            // A winner is settled when the next question is asked; asking twice changes nothing.
            strategy.ask();
            if let Some(incumbent) = strategy.incumbent().filter(|i| Some(*i) != before.as_ref()) {
                self.sink.take(&Event::Improved(incumbent));
            }
            self.standing(strategy.points_left());
        }
        Ok(strategy.incumbent().cloned())
    }

    async fn try_out(&mut self, point: &Point, rate: Rate, fresh: bool) -> Result<Tell, BenchError> {
        if fresh {
            if let Err(diagnosis) = self.bench.launch(Purpose::Search, point).await? {
                return Ok(Tell::Failed(diagnosis.consequence));
            }
            self.started = true;
        }
        Ok(match self.bench.probe(self.asking(rate), Certainty::SEARCH).await? {
            Ok(verdict) => {
                let seen = Observation::from(&verdict);
                self.look_at(rate, verdict);
                Tell::Probed(rate, seen)
            }
            Err(diagnosis) => Tell::Failed(diagnosis.consequence),
        })
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
    fn asking(&self, rate: Rate) -> impl Fn(u32, u32, Seconds) -> ProbeAsk + use<R> {
        let (seed, ramp, length) = (self.seed, self.ramp(), Seconds::from(self.plan.probe.window));
        move |trial, probe, answer_time| ProbeAsk {
            rate,
            window: Window { from: ramp, to: ramp + length },
            arrival_seed: mix(seed, &[ARRIVALS]),
            content_seed: mix(seed, &[CONTENT, u64::from(trial), u64::from(probe)]),
            answer_time,
            slack: 1.0,
        }
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

    /// The promise that bound in the last probe that was recorded.
    fn binding(&self) -> Option<String> {
        self.bench.passed().iter().rev().find_map(|e| match &e.record {
            Record::Probed { verdict, .. } => verdict.binding.clone(),
            _ => None,
        })
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
