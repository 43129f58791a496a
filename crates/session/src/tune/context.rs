//! What the steps of a session share: its workers, its plan, what was found and left out, and what the budget still holds.

use super::cost::{Before, Prices, expected_at, launches_beside, probing_defaults, search_window};
use super::predictor::Predictor;
use super::proving::Proving;
use super::runner::{RunnerError, TrialRunner};
use super::seeds::SeedLabel;
use super::trial::{Asking, TrialRequest};
use crate::events::{Event, Sink};
use crate::journal::{BUDGET_TOO_SMALL, NO_CANDIDATE, Purpose, Record, names_budget};
use crate::rig::{BURST_RATE, ProbeAsk, Rig, Telemetry};
use crate::search::{self, MakeStrategy, Observation, ProbedRate};
use crate::verdict::{Awaited, Certainty, Outcome, Slack, Verdict, Window};
use autotune_plan::engine::diagnosis::Diagnosis;
use autotune_plan::problems::join;
use autotune_plan::settings::{Plan, StrategyKind};
use autotune_plan::space::{Parameter, Point, Value};
use autotune_records::units::{Rate, Seconds};

/// A budget is so many times what a session is expected to take. With it, six seeds of the quickstart left nothing out, and used 32 to 43 of 46 s.
/// Two of three of `search-spaces/vllm-cpu.toml` left nothing out, and used 195 to 232 of 240 s.
const ROOM: f64 = 1.2;
/// Gauges are read every two seconds: fewer readings than these miss the peak of a batch that changes within milliseconds.
const SEE_A_PEAK: usize = 10;
/// A KV cache that is this full in minutes may fill in rare bursts. On one simulated engine (L40S, multi-turn) such bursts set all limits, and windows
/// filled half of the cache. With 0.6, four of eight sessions saw no gain over the defaults, with 0.45 one (`docs/results.md`).
const MAY_FILL: f64 = 0.45;

/// The proofs that a search has before it.
pub const BOTH_PROOFS: &[Purpose] = &[Purpose::CertifyBaseline, Purpose::Certify];

pub struct Context<'a, R> {
    pub trial_runner: TrialRunner<'a, R>,
    pub plan: &'a Plan,
    pub sink: &'a dyn Sink,
    pub make_strategy: MakeStrategy,
    pub seed: u64,
    pub left_out: Vec<String>,
    /// The price of all steps that the budget could not hold.
    pub wanted: Seconds,
    /// The engine time that would have held these steps and the proofs reserved behind them; `None` if all steps fitted.
    pub enough: Option<Seconds>,
    pub started: bool,
    pub nearest: Option<(Rate, Verdict)>,
    /// Why the last void probe was void.
    pub void: Option<String>,
    /// The proofs so far.
    pub proofs: Vec<Proving>,
    pub defaults: Option<Point>,
}

impl<'a, R: Rig> Context<'a, R> {
    pub fn new(trial_runner: TrialRunner<'a, R>, plan: &'a Plan, sink: &'a dyn Sink) -> Self {
        let seed = trial_runner.seed();
        Self {
            trial_runner,
            plan,
            sink,
            make_strategy: search::strategy,
            seed,
            left_out: Vec::new(),
            wanted: Seconds(0.0),
            enough: None,
            started: false,
            nearest: None,
            void: None,
            proofs: Vec::new(),
            defaults: None,
        }
    }

    /// Whether large bursts are sent before the search: only the Bayesian search with a twin uses what they show.
    pub fn sends_bursts(&self) -> bool {
        self.plan.search.strategy == StrategyKind::Bayes && self.plan.with_twin()
    }

    /// The probes of a worker's engine that the strategy asked for.
    pub fn probed(&self, worker: usize) -> Vec<ProbedRate> {
        let probed =
            |(ask, verdict): (&ProbeAsk, &Verdict)| ProbedRate { rate: ask.rate, seen: Observation::of(verdict) };
        let own = |ask: &ProbeAsk| self.sends_bursts() && ask.is_burst();
        self.trial_runner.told(worker).filter(|(ask, ..)| !own(ask)).map(probed).collect()
    }

    /// Sends requests at once to the first worker's engine. The inner result is the engine's.
    pub async fn send_burst(&mut self, asking: Asking) -> Result<Result<Verdict, Diagnosis>, RunnerError> {
        self.trial_runner.probe((asking, Certainty::SEARCH)).await
    }

    /// What the strategy may ask about a worker's engine, from what was learnt so far.
    pub fn predictor(&mut self, worker: usize) -> Predictor<'_> {
        let (prices, crowded) = (self.prices(), self.is_crowded());
        self.trial_runner.predictor(worker, prices, crowded)
    }

    /// A probe of the search: common arrivals for every point, fresh prompts in every probe.
    pub fn at_rate(&self, rate: Rate) -> Asking {
        self.asking(rate, search_window(self.plan, rate), Slack::default(), Awaited::All)
    }

    /// So many requests at once, and what of their answers is awaited.
    pub fn at_once(&self, count: u32, awaited: Awaited) -> Asking {
        let window = Window { from: Seconds(0.0), to: Seconds(f64::from(count) / BURST_RATE.0) };
        self.asking(BURST_RATE, window, Slack::UNBOUNDED, awaited)
    }

    fn asking(&self, rate: Rate, window: Window, slack: Slack, awaited: Awaited) -> Asking {
        let seed = self.seed;
        Box::new(move |trial, probe, _| ProbeAsk {
            window,
            arrival_seed: SeedLabel::Arrivals.of(seed, &[]),
            content_seed: SeedLabel::Content.of(seed, &[u64::from(trial), u64::from(probe)]),
            slack,
            awaited,
            ..ProbeAsk::at(rate)
        })
    }

    pub fn budget(&self) -> Seconds {
        self.plan.budget.gpu_time.into()
    }

    pub fn prices(&self) -> Prices {
        Prices::new(self.plan, self.trial_runner.passed())
    }

    /// Whether a step fits before the budget ends, with these proofs still to come.
    pub fn affords(&self, price: Seconds, to_come: &[Purpose]) -> bool {
        self.trial_runner.spent().0 + price.0 + self.reserve(to_come).0 <= self.budget().0
    }

    /// The engine time that is kept for proofs.
    fn reserve(&self, to_come: &[Purpose]) -> Seconds {
        let prices = self.prices();
        let saves = to_come.contains(&Purpose::CertifyBaseline) && self.serves_defaults();
        prices.certification() * to_come.len() as f64 - if saves { prices.launch } else { Seconds(0.0) }
    }

    /// Whether the first worker's engine can be that of the defaults without a launch. Where the memory is tuned, it must have been launched as they
    /// are: larger limits leave less room for the KV cache.
    pub fn serves_defaults(&self) -> bool {
        let wanted = |point: &Point| TrialRequest::of(Purpose::CertifyBaseline, point.clone());
        let as_they_are =
            |point| self.plan.tuned_memory().is_none() || self.trial_runner.launched_with(0) == Some(point);
        let alters = |point| self.trial_runner.before(0, &wanted(point)) == Before::Altering;
        self.defaults.as_ref().is_some_and(|point| alters(point) && as_they_are(point))
    }

    /// Whether the first worker's engine can prove that point without a launch. Either it was launched with exactly these arguments, or they are
    /// the defaults, which have started before.
    pub fn runs(&self, point: &Point) -> bool {
        let is_default = self.defaults.as_ref() == Some(point);
        self.trial_runner.launched_with(0) == Some(point) || is_default && self.serves_defaults()
    }

    /// Says what was spent, and how much is wanted for what is left to do.
    pub fn standing(&self, wanted: Seconds) {
        let spent = self.trial_runner.spent();
        let left = Seconds(wanted.0.min((self.budget() - spent).0).max(0.0));
        self.sink.take(&Event::Standing { spent, left, budget: self.budget() });
    }

    pub fn note(&self, text: &str) {
        self.sink.take(&Event::Note(text));
    }

    /// That the budget has no room for a step of this price with these proofs behind it. A larger budget that is named later holds it too.
    pub fn budget_too_small(&mut self, price: Seconds, to_come: &[Purpose]) -> String {
        self.wanted += price;
        let enough = self.trial_runner.spent() + self.wanted + self.reserve(to_come);
        self.enough = Some(self.enough.map_or(enough, |before| Seconds(before.0.max(enough.0))));
        BUDGET_TOO_SMALL.to_owned()
    }

    /// The budget that would have held all that the budget left out; `None` if it left out nothing.
    pub fn enough_budget(&self) -> Option<Seconds> {
        // A proof that was precise enough all the same leaves nothing out.
        let wanted = self.enough.filter(|_| self.left_out.iter().any(|what| names_budget(what)));
        wanted.map(|wanted| self.budget_for(wanted))
    }

    /// A budget for what is wanted, and for a whole session at least, with room for sessions that take longer than is expected. In whole seconds, or
    /// minutes.
    fn budget_for(&self, wanted: Seconds) -> Seconds {
        let whole = expected_at(self.plan, &self.prices()).engine_seconds;
        let enough = (wanted.0.max(whole.0) * ROOM).max(self.budget().0);
        let unit = if enough < 100.0 { 1.0 } else { 60.0 };
        Seconds((enough / unit).ceil() * unit)
    }

    /// Says at the first start if the budget is expected to hold no other launch beside the proofs.
    pub fn note_slow_start(&self) {
        let (prices, budget) = (self.prices(), self.budget());
        let second = probing_defaults(self.plan, &prices) + prices.launch + prices.probe;
        if launches_beside(self.plan, prices.alters) < 1.0 || self.affords(second, BOTH_PROOFS) {
            return;
        }
        let estimate = Seconds::from(self.plan.engine.start_estimate);
        let late = prices.launch.0 > estimate.0;
        let expected = if late { format!(", and `engine.start_estimate` is {estimate}") } else { String::new() };
        self.note(&format!(
            "a start takes {}{expected}. Beside the proofs, the budget of {budget} probably has no time for a second \
             launch, so candidates that need one are left out. A budget of {} would probably be enough.",
            prices.launch,
            self.budget_for(Seconds(0.0))
        ));
    }

    pub fn tried(&self) -> bool {
        let tries = |record: &Record| matches!(record, Record::Launching { purpose: Purpose::Search, .. });
        self.trial_runner.passed().iter().any(|entry| tries(&entry.record))
    }

    /// How many candidates are left, and the values of parameters without a term that no engine was launched with. It leaves out parameters whose
    /// default nobody knows.
    pub fn untried(&self, left: usize) -> String {
        let left = if self.tried() { format!("{left} of the candidates") } else { NO_CANDIDATE.to_owned() };
        let launched = || {
            self.trial_runner.passed().iter().filter_map(|entry| match &entry.record {
                Record::Launching { point, .. } => Some(point),
                _ => None,
            })
        };
        let of = |name| Some((self.plan.space.parameter(name)?, self.defaults.as_ref()?.get(name)?));
        let mut never = Vec::new();
        for (Parameter { name, values, .. }, own) in self.plan.without_term().into_iter().filter_map(of) {
            let was = |value: &&Value| launched().any(|point| point.get(name).unwrap_or(own).same(value));
            never.extend(values.iter().filter(|value| !was(value)).map(|value| format!("{name} {value}")));
        }
        if never.is_empty() { left } else { format!("{left} (no engine was launched with {})", join(never, "or")) }
    }

    pub fn left_out(&mut self, what: String) {
        self.note(&format!("left out: {what}"));
        self.left_out.push(what);
    }

    /// Remembers the probe at the lowest rate: where nothing is found, it says how near it was.
    pub fn look_at(&mut self, rate: Rate, verdict: Verdict) {
        if verdict.outcome == Outcome::Void {
            self.void = Some(verdict.because);
        } else if self.nearest.as_ref().is_none_or(|(lowest, _)| rate.0 < lowest.0) {
            self.nearest = Some((rate, verdict));
        }
    }

    /// Whether rare bursts may fill the KV cache, or nobody tells.
    pub fn is_crowded(&self) -> bool {
        self.fullest().is_none_or(|fullest| fullest >= MAY_FILL)
    }

    /// The largest share of the KV cache that was in use in the probes so far. `None` if the engine does not tell, sequences lost their blocks, or
    /// the probe of the highest rate was too short to see its peak.
    pub fn fullest(&self) -> Option<f64> {
        let probed = self.trial_runner.passed().iter().filter_map(|e| match &e.record {
            // What everything at once fills, no traffic does.
            Record::Probed { ask, .. } if ask.is_burst() => None,
            Record::Probed { ask, verdict, telemetry, .. } => Some((ask.rate, verdict.complete, telemetry)),
            _ => None,
        });
        let probed: Vec<(Rate, bool, &Telemetry)> = probed.collect();
        let usage = |t: &Telemetry| t.peak_kv_usage.filter(|_| t.preemptions.is_none_or(|p| p == 0.0));
        let fullest =
            probed.iter().map(|(_, _, t)| usage(t)).collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max);
        let ended = probed.iter().filter(|(_, complete, _)| *complete);
        let busiest = ended.max_by(|a, b| a.0.0.total_cmp(&b.0.0))?.2;
        fullest.filter(|_| busiest.kv_usage.len() >= SEE_A_PEAK)
    }
}
