//! Bayesian search: the probe with the largest expected gain in rate per second of the engine.
//!
//! The margins model says whether the promises hold at a rate. A probe of the running engine needs no launch, so it is preferred until another point
//! is worth one. So one rule searches configurations and rates.

use super::curve::{self, Curve, Root, STEP};
use super::margins::{Margins, Sample};
use super::{Expectation, Incumbent, Infeasible, Observation, ProbedRate, PromiseMargin, Query, Strategy, Tell};
use autotune_plan::settings::Plan;
use autotune_plan::space::{Parameter, Point, Space, Value};
use autotune_records::units::Rate;

/// Spaces of at most so many points are looked at point by point. In larger ones it is this many quasi-random points.
const LOOKED_AT: usize = 256;
/// A point whose limit is not known after so many probes is left.
const MOST_PROBES: usize = 7;
/// The largest factor of a step up, of a step down, and of a step up from far below the limit.
const STRIDE: (f64, f64, f64) = (2.0, 8.0, 2.6);
/// A rate is far below the limit if its binding margin is below this.
const FAR: f64 = -0.5;
/// Where no rate was kept, the next one is at most this share of the lowest.
const DOWN: f64 = 0.75;
/// The baseline's limit is not believed before a rate was driven this near to it, in logarithms: the twin learns most there.
const NEAR: f64 = 0.12;
/// The search is content with so many times the error that is asked of the answer: certification has fresh probes for it.
const ENOUGH: f64 = 2.0;
/// A point is thought to keep some rate where a probe of it had every margin below this.
const NEARLY_KEPT: f64 = 0.3;
/// Rates this near to each other, in logarithms, are the same.
const SAME: f64 = 0.012;
/// A rate this many times below the first one is as good as none.
const LARGEST_FALL: f64 = 32.0;
/// The search ends after so many points in a row without a gain. On real vLLM on two CPU cores a search without this rule tried 15 points, and took
/// 8 of 10 minutes, though none gained. Without a twin, two were too few: 79 % of the highest limit, and 95 % with four (20 sessions of the
/// quickstart, seeds 101 to 120, windows of 20 s).
const WITHOUT_GAIN: usize = 4;
/// So many points are launched beside the baseline in most sessions of `cargo bench --bench search`.
pub const USUAL_LAUNCHES: usize = 3;
/// So many are launched without a twin, beside those that show a value for the first time.
const USUAL_WITHOUT_TWIN: usize = 5;
/// Where no point keeps the promises at the lowest rate, others are tried while they have this chance to.
const LEAST_CHANCE: f64 = 0.05;
/// ... but no more of them than this.
const MOST_FAILED_CANDIDATES: usize = 3;
/// No limit is known better than by so much in its logarithm. On an H200 a twin fitted to one configuration was off by 1 to 8 % at others.
const LEAST_ERROR: f64 = 0.02;

#[derive(Clone)]
pub struct Bayes {
    space: Space,
    seed: u64,
    precision: f64,
    min_gain: f64,
    most_launches: usize,
    baseline: Point,
    first_rate: Rate,
    held: Option<Point>,
    trials: Vec<Trial>,
    known: Infeasible,
    margins: Option<Margins>,
    estimates: Vec<PointEstimate>,
    /// Points that may still be worth a launch.
    promising: usize,
    /// Whether something was told that the margins have not learnt.
    stale: bool,
    /// Whether a twin of the engine weighs the probes.
    with_twin: bool,
    /// Words and switches that the twin has no term for. What a value of one does, only a launch with it tells.
    unmodelled: Vec<String>,
    usual_without_twin: usize,
}

#[derive(Clone)]
struct Trial {
    point: Point,
    probed: Vec<ProbedRate>,
    failed: bool,
    /// Whether its last probe said nothing: our own client was too slow for it, tried again.
    last_void: bool,
}

#[derive(Clone)]
struct PointEstimate {
    point: Point,
    curve: Curve,
    root: Option<Root>,
    /// Whether some probe was near enough to keeping every promise for the root to be more than a hope.
    seen: bool,
}

struct Offer {
    point: Point,
    rate: Rate,
    gain: f64,
    seconds: f64,
}

/// How many points are launched beside the baseline in most sessions without a twin. Each value of what has no term is launched once.
pub fn usual_without_twin(plan: &Plan) -> usize {
    USUAL_WITHOUT_TWIN + plan.unmodelled_choices().map(|p| p.values.len() - 1).sum::<usize>()
}

impl Bayes {
    pub fn new(plan: &Plan, seed: u64, baseline: &Point, first_rate: Rate) -> Self {
        Self {
            space: plan.space.clone(),
            seed,
            precision: plan.search.precision,
            min_gain: plan.search.min_gain,
            most_launches: plan.search.candidates as usize,
            baseline: baseline.clone(),
            first_rate,
            held: None,
            trials: Vec::new(),
            known: Infeasible::default(),
            margins: None,
            estimates: Vec::new(),
            promising: plan.search.candidates as usize,
            stale: true,
            with_twin: plan.with_twin(),
            unmodelled: plan.unmodelled_choices().map(|p| p.name.clone()).collect(),
            usual_without_twin: usual_without_twin(plan),
        }
    }

    fn samples(&self) -> Vec<Sample> {
        self.trials.iter().flat_map(|t| t.probed.iter().map(move |h| (t.point.clone(), h.clone()))).collect()
    }

    /// Whether another probe of a point may tell more than those before it. Arrivals are the same in every probe, and so is their luck: a
    /// rate that was driven is not driven again.
    fn may_probe(&self, point: &Point) -> bool {
        let spent = |t: &Trial| t.point == *point && (t.failed || t.last_void);
        self.probed_at(point).count() < MOST_PROBES && !self.trials.iter().any(spent)
    }

    /// The lowest rate at which a probe of that point was cut; infinite if none was.
    fn lowest_cut(&self, point: &Point) -> f64 {
        let cut = self.probed_at(point).filter(|h| h.seen.margin.is_none());
        cut.map(|h| h.rate.0).fold(f64::INFINITY, f64::min)
    }

    fn driven(&self, point: &Point, rate: Rate) -> bool {
        self.rates_of(point).any(|driven| (driven / rate.0).ln().abs() < SAME)
    }

    fn failed(&self, point: &Point) -> bool {
        self.trials.iter().any(|t| t.failed && t.point == *point)
    }

    fn probed_at(&self, point: &Point) -> impl Iterator<Item = &ProbedRate> {
        self.trials.iter().filter(move |t| t.point == *point).flat_map(|t| &t.probed)
    }

    fn rates_of(&self, point: &Point) -> impl Iterator<Item = f64> {
        self.probed_at(point).map(|h| h.rate.0)
    }

    /// What is thought of the point whose engine runs.
    fn running(&self, engine: &dyn Expectation) -> Option<&PointEstimate> {
        let running = self.trials.iter().rev().find(|t| !t.failed && engine.runs(&t.point))?;
        self.estimate_of(&running.point)
    }

    /// A copy of the search in which each probe in flight has shown the margin that the model expects.
    fn imagining(&self, in_flight: &[Query], engine: &mut dyn Expectation) -> Self {
        let mut imagined = self.clone();
        for query in in_flight {
            let rate = query.rate;
            let Some(margins) = &self.margins else {
                imagined.trial_of(query).failed = true;
                continue;
            };
            let expected = margins.predict(&query.point, rate, engine);
            let seen = expected.iter().map(|(margin, _)| PromiseMargin::expected(*margin, LEAST_ERROR));
            let seen = Observation::expected(seen.collect());
            imagined.trial_of(query).probed.push(ProbedRate { rate, seen });
        }
        imagined.stale = true;
        imagined
    }

    fn trial_of(&mut self, query: &Query) -> &mut Trial {
        let known = self.trials.iter().rposition(|t| t.point == query.point);
        let at = known.unwrap_or_else(|| {
            self.trials.push(Trial { point: query.point.clone(), probed: Vec::new(), failed: false, last_void: false });
            self.trials.len() - 1
        });
        &mut self.trials[at]
    }

    fn decide(&mut self, engine: &mut dyn Expectation) -> Option<Query> {
        let samples = self.samples();
        if samples.is_empty() {
            let others = || self.untried().into_iter().next().filter(|_| self.launches() < self.most_launches);
            let first = if self.may_probe(&self.baseline) { Some(self.baseline.clone()) } else { others() };
            return first.map(|point| Query::new(point, self.first_rate.rounded()));
        }
        let margins = match self.margins.take() {
            Some(margins) if !self.stale => margins,
            _ => {
                let margins = Margins::learn(&self.space, self.first_rate, &samples, engine);
                self.estimates = self.estimate_points(&margins, engine);
                self.stale = false;
                margins
            }
        };
        let ask = if self.held.is_none() { self.look_at_baseline(engine) } else { self.look_around(&margins, engine) };
        self.margins = Some(margins);
        ask
    }

    /// What the model makes of every point that was probed.
    fn estimate_points(&self, margins: &Margins, engine: &mut dyn Expectation) -> Vec<PointEstimate> {
        let mut estimated = |point: &Point| {
            let from = Rate(self.rates_of(point).last().unwrap_or(self.first_rate.0));
            let curve = Curve::walk((from, curve::DOWN), self.first_rate, margins, point, engine);
            let root = curve.root().map(|root| self.below_cut(point, root));
            let near = |h: &ProbedRate| h.seen.limits.iter().all(|l| l.margin.is_some_and(|m| m < NEARLY_KEPT));
            let seen = self.probed_at(point).any(near);
            PointEstimate { point: point.clone(), curve, root, seen }
        };
        self.trials.iter().filter(|t| !t.probed.is_empty()).map(|t| estimated(&t.point)).collect()
    }

    /// Whether there is a twin that explains the engine. Of the probes that it decides or explains too little of, it decides half at least. It decided
    /// the first of them in 34 of 35 sessions on H200s, and in none of ten on busy CPU cores (`docs/results.md`).
    fn twin_tells(&self) -> bool {
        let decided = || self.trials.iter().flat_map(|t| &t.probed).filter_map(|h| h.seen.by_twin);
        let (all, by_twin) = (decided().count(), decided().filter(|by_twin| *by_twin).count());
        self.with_twin && 2 * by_twin >= all
    }

    /// A probe that was cut only bounds its margin. Without a twin nothing else tells how far below it the limit lies. So the limit is thought no
    /// higher than halfway from the highest rate below it that was kept, by this point or by another. On two H200 a model without this rule looked
    /// for a limit near 30 req/s at 124, 62, 61, 59 and 58.
    fn below_cut(&self, point: &Point, root: Root) -> Root {
        if self.twin_tells() {
            return root;
        }
        let probed = |own: bool| self.trials.iter().filter(move |t| !own || t.point == *point).flat_map(|t| &t.probed);
        let cut = self.lowest_cut(point);
        let below = |own: bool| probed(own).filter(move |h| h.rate.0 < cut);
        let kept = |own: bool| below(own).filter(|h| h.seen.kept).map(|h| h.rate.0).reduce(f64::max);
        let Some(kept) = kept(true).or_else(|| kept(false)) else { return root };
        let is_measured = below(true).any(|h| h.seen.margin.is_some_and(|margin| margin > 0.0));
        let halfway = (kept * cut).sqrt();
        if is_measured || root.rate.0 <= halfway {
            return root;
        }
        Root { rate: Rate(halfway), error: root.error.max(0.5 * (cut / kept).ln()) }
    }

    fn estimate_of(&self, point: &Point) -> Option<&PointEstimate> {
        self.estimates.iter().find(|b| b.point == *point)
    }

    /// Until the baseline's limit is known as closely as asked for.
    fn look_at_baseline(&self, engine: &mut dyn Expectation) -> Option<Query> {
        let estimate = self.estimate_of(&self.baseline).filter(|_| self.may_probe(&self.baseline))?;
        let near = |root: Root| self.rates_of(&self.baseline).any(|r| (r / root.rate.0).ln().abs() < NEAR);
        let known = |root: Root| root.error <= ENOUGH * self.precision && near(root);
        if estimate.seen && estimate.root.is_some_and(known) {
            return None;
        }
        let rate = self.step(&self.baseline, estimate.root, engine)?;
        (!self.driven(&self.baseline, rate)).then(|| Query::new(self.baseline.clone(), rate))
    }

    /// The next rate at a point whose root is looked for; `None` if no useful rate is left.
    fn step(&self, point: &Point, root: Option<Root>, engine: &mut dyn Expectation) -> Option<Rate> {
        let lowest = self.rates_of(point).fold(f64::INFINITY, f64::min);
        let highest = self.rates_of(point).fold(0.0, f64::max);
        let floor = self.first_rate.0 / LARGEST_FALL;
        // Far below the limit the margin says more than the model, which has it squashed: a latency grows about as the rate does.
        let far = self.probed_at(point).filter(|h| h.rate.0 == highest).find_map(|h| h.seen.margin);
        let up = far.map_or(1.0, |margin| (-margin).exp()).clamp(STRIDE.0, STRIDE.2);
        let from_far = if far.is_some_and(|margin| margin < FAR) { highest * up } else { 0.0 };
        // Where nothing was kept yet, what the model thinks of the root is a hope: further down there is more to see.
        let kept = self.estimate_of(point).is_some_and(|b| b.seen);
        let most = if kept { highest * up } else { lowest * DOWN };
        // What is far beyond a limit says nothing of lower rates: there it is thought to be as expected.
        let hoped = || expected(point, Rate(lowest), engine).map_or(floor, |rate| rate.0);
        let wanted = root.map_or_else(hoped, |r| r.rate.0.max(from_far)).min(most).max(lowest / STRIDE.1).max(floor);
        (root.is_some() || lowest > floor * 1.01).then(|| Rate(wanted).rounded())
    }

    /// The probe that is worth most for its price, of those that were launched and those that were not.
    fn look_around(&mut self, margins: &Margins, engine: &mut dyn Expectation) -> Option<Query> {
        let Some(best) = self.incumbent() else { return self.look_for_any(margins, engine) };
        // A point that was launched before is not launched again: that is what certification does. The best one's own limit is known well
        // enough where another probe could only tell it better: that is what certification does too.
        let settled = |b: &PointEstimate| b.point == best.point && b.root.is_some_and(|r| r.error <= self.precision);
        let running = self.running(engine).filter(|b| self.may_probe(&b.point) && !settled(b));
        let own = running.map(|b| self.offer(&b.point, &b.curve, b.root, best.rate, engine));
        let own = own.filter(|o| !self.driven(&o.point, o.rate) && o.rate.0 < self.lowest_cut(&o.point));
        // What one probe makes of a limit is far from it without a twin: a point that may be better is probed again before others.
        if let Some(own) = own.as_ref().filter(|o| !self.twin_tells() && o.gain >= self.min_gain) {
            return Some(Query::new(own.point.clone(), own.rate));
        }
        if let Some(point) = self.unseen(&best.point).filter(|_| self.launches() < self.most_launches) {
            let curve = Curve::walk((best.rate, 0), self.first_rate, margins, &point, engine);
            let offer = self.offer(&point, &curve, curve.root(), best.rate, engine);
            return Some(Query::new(offer.point, offer.rate));
        }
        let mut offers: Vec<Offer> = own.into_iter().collect();
        if self.launches() < self.most_launches && self.launches_without_gain() < WITHOUT_GAIN {
            let mut points = self.untried();
            points.retain(|point| !self.is_like_a_probed_one(point, best.rate, engine));
            engine.prepare(&points, curve::rate_at(self.first_rate, curve::step_below(self.first_rate, best.rate)));
            for point in points {
                let curve = Curve::walk((best.rate, 0), self.first_rate, margins, &point, engine);
                offers.push(self.offer(&point, &curve, curve.root(), best.rate, engine));
            }
        }
        // `results/h200-8b-gain-eighth` launched a point for its CUDA graphs. It was expected to gain 1 to 2 %, and took 4 of 18.5 minutes.
        offers.retain(|o| o.gain >= self.min_gain * engine.surcharge(&o.point, best.rate));
        self.promising = offers.len().min(self.most_launches);
        let worth = |o: &Offer| o.gain / o.seconds;
        let chosen = offers.into_iter().max_by(|a, b| worth(a).total_cmp(&worth(b)));
        chosen.map(|o| Query::new(o.point, o.rate))
    }

    /// Whether a point serves every request as another one with a known limit, up to a rate above the incumbent's limit. Then it has that limit.
    fn is_like_a_probed_one(&self, point: &Point, best: Rate, engine: &mut dyn Expectation) -> bool {
        let higher = curve::rate_at(self.first_rate, curve::step_below(self.first_rate, best) + 2);
        let known = |e: &&PointEstimate| e.seen && e.root.is_some() && !self.failed(&e.point);
        self.estimates.iter().filter(known).any(|e| engine.serve_alike(&e.point, point, higher))
    }

    /// What a point may gain. Its probe is where its limit is thought to be, which tells most about it, but not below what would be a gain. Below a
    /// probe that was cut it is a step lower: arrivals are the same, and only a whole probe tells a margin.
    fn offer(&self, point: &Point, curve: &Curve, root: Option<Root>, best: Rate, engine: &dyn Expectation) -> Offer {
        let limit = root.map_or(0.0, |r| r.rate.0).min(self.lowest_cut(point) / STEP);
        let rate = Rate(limit.clamp(best.0 * (1.0 + self.min_gain), best.0 * STRIDE.0)).rounded();
        Offer { gain: curve.gain(best), seconds: engine.price(point, rate).0, point: point.clone(), rate }
    }

    /// Where nothing was seen to keep the promises: the point with the best chance to, at the lowest rate that was tried.
    fn look_for_any(&mut self, margins: &Margins, engine: &mut dyn Expectation) -> Option<Query> {
        if let Some(estimate) = self.running(engine).filter(|b| self.may_probe(&b.point))
            && let Some(rate) =
                self.step(&estimate.point, estimate.root, engine).filter(|rate| !self.driven(&estimate.point, *rate))
        {
            return Some(Query::new(estimate.point.clone(), rate));
        }
        if self.launches() >= MOST_FAILED_CANDIDATES.min(self.most_launches) {
            return None;
        }
        let lowest = self.samples().iter().map(|(_, h)| h.rate.0).fold(f64::INFINITY, f64::min);
        let chances = self.untried().into_iter().map(|point| (margins.holds(&point, Rate(lowest), engine), point));
        let chances: Vec<(f64, Point)> = chances.filter(|(chance, _)| *chance >= LEAST_CHANCE).collect();
        self.promising = chances.len().min(self.most_launches);
        let best = chances.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        best.map(|(_, point)| Query::new(point, Rate(lowest).rounded()))
    }

    /// A point with a value that no launch had and only a launch tells of; where it can be, the best one with that value.
    fn unseen(&self, best: &Point) -> Option<Point> {
        let held = self.held.as_ref()?;
        let free = self.space.parameters.iter().filter(|p| held.get(&p.name).is_none());
        let values =
            free.filter(|p| self.unmodelled.contains(&p.name)).flat_map(|p| p.values.iter().map(move |v| (p, v)));
        let has = |point: &Point, (p, value): &(&Parameter, &Value)| point.has(&p.name, value);
        let mut new = values.filter(|value| !self.trials.iter().any(|t| has(&t.point, value))).peekable();
        new.peek()?;
        let untried = self.untried();
        new.find_map(|value| {
            let like = self.space.changed(best, &value.0.name, value.1.clone());
            let others = untried.iter().filter(|point| has(point, &value));
            others.clone().find(|point| **point == like).or_else(|| others.clone().next()).cloned()
        })
    }

    /// How many of the last launches found no point whose limit is higher by the least gain than that of all before it.
    fn launches_without_gain(&self) -> usize {
        let limit = |t: &Trial| self.estimate_of(&t.point).filter(|e| e.seen).map_or(0.0, rate);
        let (mut highest, mut without_gain) = (0.0, 0);
        for trial in &self.trials {
            without_gain = if limit(trial) >= highest * (1.0 + self.min_gain) { 0 } else { without_gain + 1 };
            highest = limit(trial).max(highest);
        }
        without_gain
    }

    /// How many points besides the baseline were launched.
    fn launches(&self) -> usize {
        self.trials.iter().filter(|t| t.point != self.baseline).count()
    }

    /// Points that may be launched: all of a small space, or some of a large one.
    fn untried(&self) -> Vec<Point> {
        let Some(held) = &self.held else { return Vec::new() };
        let wanted = self.space.size().min(LOOKED_AT);
        let mut points = super::candidate_points(&self.space, held, &self.baseline, wanted, self.seed);
        points.retain(|point| self.trials.iter().all(|t| t.point != *point) && !self.known.rules_out(point));
        points
    }
}

fn rate(estimate: &PointEstimate) -> f64 {
    estimate.root.map_or(0.0, |r| r.rate.0)
}

/// The highest useful rate below one at which every promise is expected to hold, whatever was seen; `None` if that is nowhere so, or nothing is
/// expected.
fn expected(point: &Point, below: Rate, engine: &mut dyn Expectation) -> Option<Rate> {
    let rates = std::iter::successors(Some(below.0 / STEP), |rate| Some(rate / STEP));
    let mut useful = rates.take_while(|rate| *rate >= below.0 / STRIDE.1).map(Rate);
    useful.find(|rate| {
        let margins = engine.margins(point, *rate);
        !margins.is_empty()
            && margins.into_iter().all(|margin| margin.is_some_and(|margin| margin <= 0.0))
            && engine.collapse(point, *rate).is_none_or(|beyond| beyond <= 0.0)
    })
}

impl Strategy for Bayes {
    fn open(&mut self, held: &Point) {
        self.held = Some(held.clone());
        self.stale = true;
    }

    fn ask(&mut self, engine: &mut dyn Expectation, in_flight: &[Query]) -> Option<Query> {
        engine.trust(self.twin_tells());
        if !in_flight.is_empty() {
            return self.imagining(in_flight, engine).decide(engine);
        }
        let next = self.decide(engine);
        if next.is_none() && self.held.is_some() {
            self.promising = 0;
        }
        next
    }

    fn tell(&mut self, query: &Query, tell: &Tell) {
        self.stale = true;
        let trial = self.trial_of(query);
        match tell {
            Tell::Probed(probed) => {
                trial.last_void = probed.len() <= trial.probed.len();
                trial.probed.clone_from(probed);
            }
            Tell::Failed(consequence) => {
                trial.failed = true;
                self.known.learn(&query.point, consequence);
            }
        }
    }

    fn retell(&mut self, probed: Vec<ProbedRate>) {
        self.stale = true;
        if let Some(trial) = self.trials.last_mut() {
            trial.probed = probed;
        }
    }

    fn incumbent(&self) -> Option<Incumbent> {
        let sound = self.estimates.iter().rev().filter(|b| b.root.is_some() && b.seen && !self.failed(&b.point));
        let best = sound.max_by(|a, b| rate(a).total_cmp(&rate(b)));
        best.map(|b| Incumbent { point: b.point.clone(), rate: Rate(rate(b)) })
    }

    fn estimate(&self, point: &Point) -> Option<Rate> {
        self.estimate_of(point).filter(|b| b.seen)?.root.map(|r| r.rate)
    }

    fn advantage(&self, of: &Point, over: &Point) -> Option<(f64, f64)> {
        let root = |point: &Point| self.estimate_of(point).filter(|b| b.seen && !self.failed(point))?.root;
        let (of, over) = (root(of)?, root(over)?);
        Some(((of.rate.0 / over.rate.0).ln(), of.error.max(LEAST_ERROR).hypot(over.error.max(LEAST_ERROR))))
    }

    fn points_left(&self) -> usize {
        self.promising
    }

    fn points_expected(&self) -> usize {
        let usual = if self.twin_tells() { USUAL_LAUNCHES } else { self.usual_without_twin };
        self.promising.min(usual.saturating_sub(self.launches()).max(1))
    }
}

#[cfg(test)]
mod tests;
