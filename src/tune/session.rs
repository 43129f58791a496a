//! The order of a session, and the decisions between its steps.

use super::answer::{answer, never_started};
use super::cost::{Before, Prices, forecast};
use super::predictor::Predictor;
use super::trial_runner::{RunnerError, Step, TrialRunner};
use super::worker::{Asking, TrialRequest};
use crate::engine::diagnosis::{Consequence, Diagnosis};
use crate::journal::{Conclusion, PointResult, Purpose};
use crate::progress::{Event, Sink};
use crate::rig::{ProbeAsk, Rig};
use crate::search::{self, ALL_AT_ONCE, Ask, Heard, MakeStrategy, Observation, Query, Strategy, Tell, Traffic};
use crate::settings::Plan;
use crate::space::Point;
use crate::units::{Rate, Seconds};
use crate::verdict::{Awaited, Certainty, NEVER_CUT, Verdict, Window};
use crate::workload::mix;

/// Where nothing is proved of the best point, so many others are certified at most.
const RUNNERS_UP: usize = 1;
/// A probe of the search lasts until so many requests are expected in its window ...
const LEAST_REQUESTS: f64 = 100.0;
/// ... but at most so many times as long as planned.
const MOST_STRETCH: f64 = 3.0;

const ARRIVALS: u64 = 1;
pub(super) const CONTENT: u64 = 2;
const ORDER: u64 = 4;

/// One run of a plan on a rig.
pub struct Session<'a, R> {
    pub(super) trial_runner: TrialRunner<'a, R>,
    pub(super) plan: &'a Plan,
    sink: &'a dyn Sink,
    pub(super) seed: u64,
    pub(super) left_out: Vec<String>,
    pub(super) started: bool,
    pub(super) nearest: Option<(Rate, Verdict)>,
    /// Whether the defaults do not endure what they keep for minutes, and would with a larger KV cache.
    pub(super) lacks_cache: bool,
    /// Points whose certified rate is bound by what the twin endures.
    pub(super) bound: Vec<Point>,
    /// The defaults, once they started.
    defaults: Option<Point>,
    make_strategy: MakeStrategy,
}

/// A question of the strategy on its way to a worker.
struct PendingProbe {
    worker: usize,
    query: Query,
    /// The trial that it begins, where its engine is not the one that runs.
    wanted: Option<TrialRequest>,
}

impl<'a, R: Rig> Session<'a, R> {
    /// A session on a trial runner.
    pub fn new(trial_runner: TrialRunner<'a, R>, plan: &'a Plan, sink: &'a dyn Sink) -> Self {
        let seed = trial_runner.seed();
        Self {
            trial_runner,
            plan,
            sink,
            seed,
            left_out: Vec::new(),
            started: false,
            nearest: None,
            lacks_cache: false,
            bound: Vec::new(),
            defaults: None,
            make_strategy: search::strategy,
        }
    }

    /// Searches with another strategy than the plan's.
    #[must_use]
    pub fn with_strategy(self, make_strategy: MakeStrategy) -> Self {
        Self { make_strategy, ..self }
    }

    /// The trial runner, for whoever has to stop it.
    pub fn trial_runner(&mut self) -> &mut TrialRunner<'a, R> {
        &mut self.trial_runner
    }

    /// Runs to the answer and records it.
    ///
    /// # Errors
    /// What keeps a session from going on; a failing engine does not.
    pub async fn run(&mut self) -> Result<Conclusion, RunnerError> {
        let forecast = forecast(self.plan);
        self.sink.take(&Event::Begun { forecast, budget: self.budget() });
        let conclusion = Conclusion { forecast: Some(forecast), ..self.decide().await? };
        self.trial_runner.stop().await?;
        self.trial_runner.conclude(&conclusion)?;
        self.sink.take(&Event::Ended(&conclusion));
        Ok(conclusion)
    }

    async fn decide(&mut self) -> Result<Conclusion, RunnerError> {
        // 1. The defaults: what the user would deploy without us.
        let (point, mut strategy) = match self.baseline().await? {
            Ok(found) => found,
            Err(diagnosis) => return Ok(never_started(&diagnosis)),
        };
        let binding = self.trial_runner.told(0).last().and_then(|(_, verdict, _)| verdict.binding.clone());
        if self.show_batches(&point, &mut *strategy).await? {
            self.follow(&mut *strategy, Purpose::Baseline).await?;
        }
        self.lacks_cache = self.lacks_cache(&point, strategy.estimate(&point));
        // 2. The memory: as much as starts.
        let held = self.memory(&point).await?;
        // 3. The other parameters, at that memory.
        strategy.open(&held);
        self.follow(&mut *strategy, Purpose::Search).await?;
        let baseline = PointResult { estimated_rate: strategy.estimate(&point), binding, ..PointResult::new(point) };
        let ranking = strategy.ranking();
        let Some(winner) = ranking.first().cloned() else {
            return Ok(self.nothing_found(baseline));
        };
        // 4. Proof on traffic that the search never used, on a cold engine; the baseline on the same arrivals, at the same time where there
        //    is another worker.
        let beside = (winner.point != baseline.point && baseline.estimated_rate.is_some()).then(|| baseline.clone());
        let mut best = PointResult { estimated_rate: Some(winner.rate), ..PointResult::new(winner.point.clone()) };
        let (mut later, mut beside_proved) = (beside, None);
        if self.trial_runner.workers() == 1
            && let Some(beside) = later.take_if(|_| self.serves_defaults())
        {
            // Before the engine that serves them makes room for that of the best point: it saves a launch.
            beside_proved = Some(self.certify(Purpose::CertifyBaseline, beside, None, 1).await?);
        }
        match later.take_if(|_| self.trial_runner.workers() > 1) {
            Some(beside) => {
                let mut both = [(Purpose::Certify, best), (Purpose::CertifyBaseline, beside)];
                self.certify_each(&mut both, None, 0).await?;
                let [(_, winner), (_, beside)] = both;
                (best, beside_proved) = (winner, Some(beside));
            }
            None => best = self.certify(Purpose::Certify, best, None, u32::from(later.is_some())).await?,
        }
        for next in ranking.into_iter().skip(1).take(RUNNERS_UP).filter(|next| next.point != baseline.point) {
            // What the search got wrong of its winner, it got wrong of points that are like it: only where nothing at all is proved,
            // another proof may be worth its minutes.
            if best.certified_rate.is_some() || !self.affords(self.prices().certification(), 1) {
                break;
            }
            self.note(&format!("nothing was proved of {}: {} is proved instead", best.point, next.point));
            let runner_up = PointResult { estimated_rate: Some(next.rate), ..PointResult::new(next.point) };
            best = self.certify(Purpose::Certify, runner_up, None, u32::from(later.is_some())).await?;
        }
        let baseline = match (beside_proved, later) {
            (Some(baseline), _) => baseline,
            (None, Some(baseline)) => self.certify(Purpose::CertifyBaseline, baseline, Some(&best), 0).await?,
            (None, None) if best.point == baseline.point => best.clone(),
            (None, None) => baseline,
        };
        let seen = strategy.advantage(&best.point, &baseline.point);
        let stated = self.gain_by_one_twin(&baseline, &best, seen);
        Ok(answer(baseline, best, stated, seen, self.left_out.clone()))
    }

    /// Launches the defaults and finds what they keep. Defaults that do not start end nothing, unless no point can.
    async fn baseline(&mut self) -> Result<Result<(Point, Box<dyn Strategy>), Diagnosis>, RunnerError> {
        let point = self.plan.space.baseline();
        let seed = mix(self.seed, &[ORDER]);
        match self.trial_runner.launch(Purpose::Baseline, &point).await? {
            Ok(ready) => {
                self.started = true;
                let point = ready.effective.complete(&self.plan.space, point);
                self.trial_runner.known_as(&point);
                self.defaults = Some(point.clone());
                let first_rate = self.opening(&point, ready.warmed.burst_rate).await?;
                let mut strategy = (self.make_strategy)(self.plan, seed, &point, first_rate);
                self.follow(&mut *strategy, Purpose::Baseline).await?;
                Ok(Ok((point, strategy)))
            }
            Err(diagnosis) if diagnosis.consequence == Consequence::Abort => Ok(Err(diagnosis)),
            Err(diagnosis) => {
                self.note(&format!("the defaults do not start ({}); searching on without a baseline", diagnosis.says));
                let mut strategy = (self.make_strategy)(self.plan, seed, &point, self.first_rate(None));
                let asked = strategy.ask(&mut self.predictor(0), &[]);
                if let Ask::Probe(query) = asked {
                    strategy.tell(&query, &Tell::Failed(diagnosis.consequence));
                }
                Ok(Ok((point, strategy)))
            }
        }
    }

    /// Does what the strategy asks until it is done or the budget ends: round by round a question for each worker, and for the first alone
    /// where the defaults are looked at.
    async fn follow(&mut self, strategy: &mut dyn Strategy, purpose: Purpose) -> Result<(), RunnerError> {
        let (workers, certifications) =
            if purpose == Purpose::Baseline { (1, 1) } else { (self.trial_runner.workers(), 2) };
        let mut before = strategy.incumbent();
        loop {
            let (mut round, mut price): (Vec<PendingProbe>, Seconds) = (Vec::new(), Seconds(0.0));
            let mut spent = false;
            for worker in 0..workers {
                let in_flight: Vec<Query> = round.iter().map(|asked| asked.query.clone()).collect();
                let asked = strategy.ask(&mut self.predictor(worker), &in_flight);
                // A winner is settled when the next question is asked.
                let incumbent = strategy.incumbent();
                if let Some(incumbent) = incumbent.as_ref().filter(|_| incumbent != before) {
                    self.sink.take(&Event::Improved(incumbent));
                }
                before = incumbent;
                let Ask::Probe(query) = asked else { continue };
                let fresh = self.trial_runner.point(worker) != Some(&query.point);
                let wanted = fresh.then(|| TrialRequest { purpose, point: query.point.clone(), anew: false });
                let before = wanted.as_ref().map_or(Before::Nothing, |wanted| self.trial_runner.before(worker, wanted));
                price += self.prices().probe(self.length(&query.traffic), before);
                spent = !self.affords(price, certifications);
                if spent {
                    break;
                }
                round.push(PendingProbe { worker, query, wanted });
            }
            if round.is_empty() {
                if spent {
                    self.left_out(match purpose {
                        Purpose::Baseline => {
                            format!(
                                "the rest of the baseline's rate search: {}",
                                self.budget_ended(price, certifications)
                            )
                        }
                        _ => {
                            let more = self.prices().candidates(strategy.points_expected().max(1));
                            format!(
                                "{} of the candidates: {}",
                                strategy.points_left(),
                                self.budget_ended(more, certifications)
                            )
                        }
                    });
                }
                return Ok(());
            }
            let told = self.try_out(purpose, &round).await?;
            for (asked, told) in round.iter().zip(told) {
                strategy.tell(&asked.query, &told);
            }
            let prices = self.prices();
            self.standing(prices.candidates(strategy.points_expected()) + prices.proving(2, 0));
        }
    }

    async fn try_out(&mut self, purpose: Purpose, round: &[PendingProbe]) -> Result<Vec<Tell>, RunnerError> {
        let step = |PendingProbe { worker, query, wanted }: &PendingProbe| Step {
            worker: *worker,
            launch: wanted.clone(),
            asking: self.asking(query.traffic),
            certainty: Certainty::SEARCH,
        };
        let steps = round.iter().map(step).collect();
        let mut told = Vec::new();
        for (PendingProbe { worker, query, .. }, answer) in round.iter().zip(self.trial_runner.round(steps).await?) {
            // Where no engine of its trial runs, the launch itself has failed.
            self.started |= self.trial_runner.point(*worker).is_some();
            told.push(match answer {
                Ok(verdict) => {
                    self.look_at(query.traffic.rate(), verdict);
                    Tell::Probed(self.heard(*worker))
                }
                Err(diagnosis) => {
                    if purpose == Purpose::Baseline {
                        let says = &diagnosis.says;
                        self.note(&format!(
                            "the baseline failed under load ({says}); its rate stays at what it kept before"
                        ));
                    }
                    Tell::Failed(diagnosis.consequence)
                }
            });
        }
        Ok(told)
    }

    /// The probes of a worker's engine that the strategy asked for.
    pub(super) fn heard(&self, worker: usize) -> Vec<Heard> {
        let heard = |(ask, verdict, took): (&ProbeAsk, &Verdict, Seconds)| Heard {
            traffic: traffic_of(ask),
            seen: Observation::of(verdict, took),
        };
        let own = |ask: &ProbeAsk| self.shows_batches() && ask.rate == ALL_AT_ONCE;
        self.trial_runner.told(worker).filter(|(ask, ..)| !own(ask)).map(heard).collect()
    }

    /// Shows the engines of workers, at the same time, what is meant for each, where there is something; what became of it.
    pub(super) async fn show(
        &mut self,
        asked: Vec<(usize, Option<Asking>)>,
    ) -> Result<Vec<Option<Result<Verdict, Diagnosis>>>, RunnerError> {
        let meant: Vec<bool> = asked.iter().map(|(_, asking)| asking.is_some()).collect();
        let step =
            |(worker, asking)| Some(Step { worker, launch: None, asking: asking?, certainty: Certainty::SEARCH });
        let steps = asked.into_iter().filter_map(step).collect();
        let mut answers = self.trial_runner.round(steps).await?.into_iter();
        Ok(meant.into_iter().map(|meant| if meant { answers.next() } else { None }).collect())
    }

    /// What the strategy may ask about a worker's engine, from what was learnt so far.
    pub(super) fn predictor(&mut self, worker: usize) -> Predictor<'_> {
        let (prices, crowded) = (self.prices(), self.is_crowded());
        self.trial_runner.predictor(worker, prices, crowded)
    }

    /// A probe of the search: common arrivals for every point, fresh prompts in every probe.
    pub(super) fn asking(&self, traffic: Traffic) -> Asking {
        let (seed, window) = (self.seed, self.window(&traffic));
        let slack = if matches!(traffic, Traffic::Requests { .. }) { NEVER_CUT } else { 1.0 };
        Box::new(move |trial, probe, answer_time| ProbeAsk {
            rate: traffic.rate(),
            window,
            arrival_seed: mix(seed, &[ARRIVALS]),
            content_seed: mix(seed, &[CONTENT, u64::from(trial), u64::from(probe)]),
            answer_time,
            slack,
            awaited: Awaited::All,
        })
    }

    /// So many requests at once, and what of their answers is awaited.
    pub(super) fn at_once(&self, count: u32, awaited: Awaited) -> Asking {
        let asking = self.asking(Traffic::Requests { rate: ALL_AT_ONCE, count });
        Box::new(move |trial, probe, answer_time| ProbeAsk { awaited, ..asking(trial, probe, answer_time) })
    }

    fn window(&self, traffic: &Traffic) -> Window {
        match traffic {
            Traffic::Window(rate) => window(self.plan, *rate),
            Traffic::Requests { rate, count } => Window { from: Seconds(0.0), to: Seconds(f64::from(*count) / rate.0) },
        }
    }

    /// Seconds in which requests are sent.
    fn length(&self, traffic: &Traffic) -> Seconds {
        self.window(traffic).to
    }

    pub(super) fn ramp(&self) -> Seconds {
        self.plan.probe.ramp.into()
    }

    fn budget(&self) -> Seconds {
        self.plan.budget.gpu_time.into()
    }

    pub(super) fn prices(&self) -> Prices {
        Prices::new(self.plan, self.trial_runner.passed())
    }

    /// Whether a step fits before the budget ends, with `certifications` still to come.
    pub(super) fn affords(&self, price: Seconds, certifications: u32) -> bool {
        let prices = self.prices();
        // The last is that of the best point, which is always launched.
        let saved = if certifications > 1 && self.serves_defaults() { prices.launch } else { Seconds(0.0) };
        let reserve = prices.certification() * f64::from(certifications) - saved;
        self.trial_runner.spent().0 + price.0 + reserve.0 <= self.budget().0
    }

    /// Whether the first worker's engine can be that of the defaults without a launch.
    fn serves_defaults(&self) -> bool {
        let wanted =
            |point: &Point| TrialRequest { purpose: Purpose::CertifyBaseline, point: point.clone(), anew: false };
        self.defaults.as_ref().is_some_and(|point| self.trial_runner.before(0, &wanted(point)) == Before::Altering)
    }

    /// Says what was spent, and how much is wanted for what is left to do.
    pub(super) fn standing(&self, wanted: Seconds) {
        let spent = self.trial_runner.spent();
        let left = Seconds(wanted.0.min((self.budget() - spent).0).max(0.0));
        self.sink.take(&Event::Standing { spent, left, budget: self.budget() });
    }

    pub(super) fn note(&self, text: &str) {
        self.sink.take(&Event::Note(text));
    }

    pub(super) fn detail(&self, text: &str) {
        self.sink.take(&Event::Detail(text));
    }

    /// That the budget ended, and which one would have held this price with `certifications` behind it; a tenth more for what nobody foresees.
    pub(super) fn budget_ended(&self, price: Seconds, certifications: u32) -> String {
        let reserve = self.prices().certification() * f64::from(certifications);
        let enough = f64::max((self.trial_runner.spent() + price + reserve).0 * 1.1, self.budget().0);
        let time =
            if enough < 100.0 { format!("{:.0}s", enough.ceil()) } else { format!("{:.0}m", (enough / 60.0).ceil()) };
        format!("the budget ended; --budget {time} is expected to be enough")
    }

    pub(super) fn left_out(&mut self, what: String) {
        self.note(&format!("left out: {what}"));
        self.left_out.push(what);
    }

    /// Remembers the probe at the lowest rate: where nothing is found, it says how near it was.
    fn look_at(&mut self, rate: Rate, verdict: Verdict) {
        if self.nearest.as_ref().is_none_or(|(lowest, _)| rate.0 < lowest.0) {
            self.nearest = Some((rate, verdict));
        }
    }
}

/// The window of a probe of the search: a low rate needs longer.
pub(super) fn window(plan: &Plan, rate: Rate) -> Window {
    let (ramp, planned) = (Seconds::from(plan.probe.ramp), Seconds::from(plan.probe.window));
    let enough = Seconds((LEAST_REQUESTS / rate.0).clamp(planned.0, planned.0 * MOST_STRETCH));
    Window { from: ramp, to: ramp + enough }
}

/// What a probe was asked to send.
fn traffic_of(ask: &ProbeAsk) -> Traffic {
    if ask.slack >= NEVER_CUT {
        Traffic::Requests { rate: ask.rate, count: (ask.window.to.0 * ask.rate.0).round() as u32 }
    } else {
        Traffic::Window(ask.rate)
    }
}
