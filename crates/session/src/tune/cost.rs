//! What steps cost: the forecast before the first launch, and the prices that a running session has learnt.

use crate::journal::{Cost, Entry};
use crate::search::{USUAL_LAUNCHES, usual_without_twin};
use crate::verdict::Window;
use autotune_numerics::spread::mean;
use autotune_plan::engine::live::{alters, widest};
use autotune_plan::settings::{Plan, ProbePlan, StrategyKind};
use autotune_records::units::{Rate, Seconds};

/// Probes that close a bracket from a first guess, as seen in practice.
const CLIMB: f64 = 7.0;
/// Probes a candidate takes on average: one, and some more for those that win.
const RACE: f64 = 1.5;
/// Most losing candidates are cut before half of their window.
const CUT: f64 = 0.7;
/// Probes until a certification holds, on average.
const CERTIFY: f64 = 1.5;

/// A certifying probe sends for so many answers at least, its ramp included. In a shorter time a slow engine does not reach its steady state.
/// With 15 of them the 70B engines of `cargo bench --bench search` took 4 to 10 minutes more, and as many of their certified rates were too high.
const ANSWERS: f64 = 9.0;

/// A probe of the search lasts until so many requests are expected in its window ...
const LEAST_REQUESTS: f64 = 100.0;
/// ... but at most so many times as long as planned.
const MOST_STRETCH: f64 = 3.0;

/// How long a running engine takes to change its limits, until that was seen.
const ALTERING: Seconds = Seconds(1.0);

/// What has to be done before a point can be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    Nothing,
    Altering,
    Launching,
}

#[derive(Clone, Copy, Debug)]
pub struct Prices {
    pub launch: Seconds,
    alter: Seconds,
    /// Whether the latest engine can change its limits while it runs.
    pub alters: bool,
    pub probe: Seconds,
    /// A certifying probe as planned: what is reserved, so that a short budget still holds some search.
    pub certify: Seconds,
    /// How much longer than planned a certifying probe takes if answers are long.
    stretched: Seconds,
    /// The time from the last send to the last answer.
    drain: Seconds,
}

impl Prices {
    /// As the plan promises, and as the journal has seen.
    pub fn new(plan: &Plan, entries: &[Entry]) -> Self {
        let ready = || entries.iter().filter_map(Entry::ready);
        let starts: Vec<f64> = ready().filter(|r| !r.process.altered).map(|r| r.took.0).collect();
        let latest = ready().next_back();
        let altered = ready().rev().find(|r| r.process.altered);
        // The first start loads weights from cold storage; the later ones are what is still to come.
        let warm = &starts[starts.len().min(1).min(starts.len().saturating_sub(1))..];
        let launch = if warm.is_empty() { Seconds::from(plan.engine.start_estimate).0 } else { mean(warm) };
        let drain = latest.map_or(0.0, |ready| ready.warmed.answer_time.0);
        let ramp = Seconds::from(plan.probe.ramp).0 + drain;
        Self {
            launch: Seconds(launch),
            alter: altered.map_or(ALTERING, |ready| ready.took),
            alters: latest.is_some_and(|ready| ready.process.widest.is_some()),
            drain: Seconds(drain),
            probe: Seconds(ramp + Seconds::from(plan.probe.window).0),
            certify: Seconds(ramp + Seconds::from(plan.probe.certify_window).0),
            stretched: certifying(&plan.probe, Seconds(drain)) - plan.probe.certify_window.into(),
        }
    }

    /// What a probe takes that sends for so long, with what has to be done before.
    pub fn probe(&self, sends: Seconds, before: Before) -> Seconds {
        sends + self.drain + self.preparing(before)
    }

    /// The time of a launch, or of a change of limits, before a probe.
    pub fn preparing(&self, before: Before) -> Seconds {
        match before {
            Before::Nothing => Seconds(0.0),
            Before::Altering => self.alter,
            Before::Launching => self.launch,
        }
    }

    /// What is reserved for one certification.
    pub fn certification(&self) -> Seconds {
        self.launch + self.certify * CERTIFY
    }

    /// What `certifications` are expected to take, and `windows` beside them.
    pub fn proving(&self, certifications: usize, windows: usize) -> Seconds {
        let windows = CERTIFY * certifications as f64 + windows as f64;
        self.launch * certifications as f64 + (self.certify + self.stretched) * windows
    }

    /// How many times as long a certifying probe takes as a launch and a probe of the search.
    pub fn certifying_by_candidate(&self) -> f64 {
        (self.certify + self.stretched).0 / (self.launch + self.probe).0
    }

    /// What `candidates` more candidates are expected to take.
    pub fn candidates(&self, candidates: usize) -> Seconds {
        let launch = if self.alters { self.alter } else { self.launch };
        (launch + self.probe * (CUT * RACE)) * candidates as f64
    }
}

/// The window of a probe of the search: a low rate needs longer.
pub fn search_window(plan: &Plan, rate: Rate) -> Window {
    let (ramp, planned) = (Seconds::from(plan.probe.ramp), Seconds::from(plan.probe.window));
    let enough = Seconds((LEAST_REQUESTS / rate.0).clamp(planned.0, planned.0 * MOST_STRETCH));
    Window { from: ramp, to: ramp + enough }
}

/// The window of a certifying probe, of an engine whose answers take so long.
pub fn certifying(probe: &ProbePlan, answer_time: Seconds) -> Seconds {
    let (ramp, planned) = (Seconds::from(probe.ramp), Seconds::from(probe.certify_window));
    Seconds(planned.0.max(ANSWERS * answer_time.0 - ramp.0))
}

/// How a strategy works on average: points that it launches beside the baseline, probes of the baseline, probes of a point.
/// Of the Bayesian search as seen in `cargo bench --bench search`, of the others by their rules.
fn usual_counts(plan: &Plan) -> (f64, f64, f64) {
    let all = plan.space.size() as f64 / memory_values(plan);
    let most = f64::from(plan.search.candidates).min(all);
    match plan.search.strategy {
        StrategyKind::Bayes if plan.with_twin() => (most.min(USUAL_LAUNCHES as f64), 3.0, 2.0),
        StrategyKind::Bayes => (most.min(usual_without_twin(plan) as f64), 5.0, 2.0),
        StrategyKind::Bisect => (most, CLIMB, RACE),
    }
}

pub fn probing_defaults(plan: &Plan, prices: &Prices) -> Seconds {
    prices.probe * (CUT * usual_counts(plan).1)
}

/// Launches between that of the defaults and the proofs: for the memory, and one for each point. An engine that alters its limits needs one only
/// for each choice of what it cannot alter.
pub fn launches_beside(plan: &Plan, alters_limits: bool) -> f64 {
    memory_launches(plan) + usual_counts(plan).0.min(fixed_choices(plan, alters_limits) - 1.0)
}

/// Launches that look for the largest memory share.
fn memory_launches(plan: &Plan) -> f64 {
    plan.memory_share().map_or(0.0, |p| (p.values.len() as f64).log2().ceil().max(1.0))
}

/// The choices of what a running engine cannot alter, the memory aside.
fn fixed_choices(plan: &Plan, alters_limits: bool) -> f64 {
    let fixed = plan.space.parameters.iter().filter(|p| !(alters_limits && alters(&p.name)));
    fixed.map(|p| p.values.len() as f64).product::<f64>() / memory_values(plan)
}

/// The engine time that the defaults take to be probed and certified, without any search.
pub fn least(plan: &Plan) -> Seconds {
    let prices = Prices::new(plan, &[]);
    prices.launch + probing_defaults(plan, &prices) + prices.certification()
}

/// What a whole session is expected to cost if its budget allows it.
pub fn forecast(plan: &Plan) -> Cost {
    expected_at(plan, &Prices::new(plan, &[]))
}

/// What a whole session is expected to cost at these prices.
pub fn expected_at(plan: &Plan, prices: &Prices) -> Cost {
    let (points, of_baseline, of_a_point) = usual_counts(plan);
    let alters_limits = widest(plan, None, &plan.space.baseline()).is_some();
    // An engine that alters its limits proves the defaults, unless the memory or another choice that it cannot alter has ended it.
    let stays = alters_limits && fixed_choices(plan, true) <= 1.0 && memory_launches(plan) == 0.0;
    let of_proofs = if stays { 1.0 } else { 2.0 };
    let launches = 1.0 + launches_beside(plan, alters_limits) + of_proofs;
    let (searching, proving) = (of_baseline + of_a_point * points, 2.0 * CERTIFY);
    let windows = (prices.certify + prices.stretched) * proving;
    Cost {
        launches: launches as u32,
        probes: (searching + proving).ceil() as u32,
        engine_seconds: prices.launch * launches + prices.probe * (CUT * searching) + windows,
    }
}

/// The memory knob is held during the search, so that it multiplies nothing.
fn memory_values(plan: &Plan) -> f64 {
    plan.memory_share().map_or(1.0, |p| p.values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quickstart::quickstart;
    use autotune_plan::settings::parse;
    use std::time::Duration;

    #[test]
    fn a_certifying_probe_lasts_as_planned_or_for_nine_answers_with_its_ramp() {
        let seconds = Duration::from_secs;
        let probe = ProbePlan { ramp: seconds(30), certify_window: seconds(120), ..quickstart(&[]).probe };
        assert_eq!(certifying(&probe, Seconds(14.0)), Seconds(120.0));
        assert_eq!(certifying(&probe, Seconds(24.0)), Seconds(186.0));
    }

    #[test]
    fn what_a_running_engine_cannot_alter_is_launched() {
        let plan = |more: &str| {
            let text = include_str!("../../../../search-spaces/phase1.toml");
            parse("phase1.toml", &text.replace("[parameters]", &format!("[parameters]\n{more}"))).unwrap()
        };
        let memory = launches_beside(&plan(""), true);
        let gpus = "tensor-parallel-size = { values = [1, 2], default = 1 }";
        assert_eq!(launches_beside(&plan(gpus), true), memory + 1.0);
        assert_eq!(launches_beside(&plan(gpus), false), memory + 5.0);
        assert_eq!(forecast(&plan(gpus)).launches, forecast(&plan("")).launches + 1);
    }
}
