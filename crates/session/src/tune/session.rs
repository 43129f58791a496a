//! The order of a session, and the decisions between its steps.

use tracing::field::{Empty, debug, display};
use tracing::{Instrument, debug, debug_span, info_span};

use super::answer::answer;
use super::context::{BOTH_PROOFS, Context};
use super::cost::{Before, forecast, search_window};
use super::runner::{RunnerError, TrialRunner, TrialStep};
use super::seeds::SeedLabel;
use super::trial::TrialRequest;
use crate::events::{Event, Sink};
use crate::journal::{Conclusion, NO_CANDIDATE, PointResult, Purpose};
use crate::rig::Rig;
use crate::search::{Incumbent, MakeStrategy, Query, Strategy, Tell};
use crate::verdict::Certainty;
use autotune_numerics::Z_95;
use autotune_plan::engine::diagnosis::Consequence;
use autotune_plan::settings::Plan;
use autotune_plan::space::Point;
use autotune_records::units::{Rate, Seconds};

pub struct Session<'a, R> {
    context: Context<'a, R>,
}

/// A question of the strategy, and what its worker does for it.
type Pending = (Query, TrialStep);

impl<'a, R: Rig> Session<'a, R> {
    pub fn new(trial_runner: TrialRunner<'a, R>, plan: &'a Plan, sink: &'a dyn Sink) -> Self {
        Self { context: Context::new(trial_runner, plan, sink) }
    }

    /// Searches with another strategy than the plan's.
    pub fn with_strategy(self, make_strategy: MakeStrategy) -> Self {
        Self { context: Context { make_strategy, ..self.context } }
    }

    /// The trial runner, for whoever has to stop it.
    pub fn trial_runner(&mut self) -> &mut TrialRunner<'a, R> {
        &mut self.context.trial_runner
    }

    /// Runs to the answer and records it.
    pub async fn run(&mut self) -> Result<Conclusion, RunnerError> {
        let Context { plan, seed, .. } = &self.context;
        let (strategy, workers) = (plan.search.strategy.name(), self.context.trial_runner.workers());
        let span = info_span!("session", seed, strategy, workers, engine_time = Empty, status = Empty);
        let ended = self.run_to_end().instrument(span.clone()).await;
        span.record("engine_time", display(self.context.trial_runner.spent()));
        if let Ok(conclusion) = &ended {
            span.record("status", debug(conclusion.status));
        }
        ended
    }

    async fn run_to_end(&mut self) -> Result<Conclusion, RunnerError> {
        let forecast = forecast(self.context.plan);
        self.context.sink.take(&Event::Begun { forecast, budget: self.context.budget() });
        let decided = self.context.decide().await?;
        let conclusion =
            Conclusion { forecast: Some(forecast), enough_budget: self.context.enough_budget(), ..decided };
        self.context.trial_runner.stop().await?;
        self.context.trial_runner.conclude(&conclusion)?;
        self.context.sink.take(&Event::Ended(&conclusion));
        Ok(conclusion)
    }
}

impl<R: Rig> Context<'_, R> {
    async fn decide(&mut self) -> Result<Conclusion, RunnerError> {
        // 1. The defaults: what the user would deploy without us.
        let Some((point, mut strategy)) = self.baseline().await? else { return Ok(self.nothing_starts()) };
        let binding = self.trial_runner.told(0).last().and_then(|(_, verdict)| verdict.binding.clone());
        if self.show_batches(&point, &mut *strategy).await? {
            self.follow(&mut *strategy, Purpose::Baseline).await?;
        }
        let estimated_rate = strategy.estimate(&point);
        let mut baseline = PointResult { estimated_rate, binding, ..PointResult::new(point.clone()) };
        // 2. The memory: as much as starts, where more of it may help.
        let held = match self.memory_suffices(&point, estimated_rate) {
            Some(why) => {
                self.note(&format!("memory: {why}"));
                self.share_of(&point)
            }
            None => self.memory(&point).await?,
        };
        // 3. The other parameters, at that memory.
        strategy.open(&held);
        self.follow(&mut *strategy, Purpose::Search).await?;
        baseline.estimated_rate = strategy.estimate(&point);
        let Some(winner) = strategy.incumbent() else { return Ok(self.nothing_found(baseline)) };
        if let Some(defaults) = self.tie(&*strategy, &winner, &baseline) {
            let kept = self.prove(defaults, baseline.clone()).await?;
            if kept.best.as_ref().is_some_and(|best| best.certified_rate.is_some()) {
                return Ok(kept);
            }
        }
        self.prove(winner, baseline).await
    }

    /// Proves the winner on traffic that the search never used, and the baseline beside it.
    async fn prove(&mut self, winner: Incumbent, mut baseline: PointResult) -> Result<Conclusion, RunnerError> {
        let beside = winner.point != baseline.point && baseline.estimated_rate.is_some();
        let is_one = winner.point == baseline.point;
        let mut best = PointResult { estimated_rate: Some(winner.rate), ..PointResult::new(winner.point) };
        let purpose = if self.runs(&best.point) { Purpose::CertifyRunning } else { Purpose::Certify };
        // A proof of a tie may have found that the defaults keep nothing.
        let proves_defaults = beside && self.proofs.iter().all(|proof| proof.point != baseline.point);
        // Before the engine that serves the defaults makes room for that of the best point: it saves a launch.
        let defaults_first = proves_defaults && self.serves_defaults();
        if defaults_first {
            self.certify(Purpose::CertifyBaseline, &mut baseline, &[Purpose::Certify]).await?;
        }
        let behind = proves_defaults && !defaults_first;
        let to_come: &[Purpose] = if behind { &[Purpose::CertifyBaseline] } else { &[] };
        self.certify(purpose, &mut best, to_come).await?;
        if behind {
            self.certify(Purpose::CertifyBaseline, &mut baseline, &[]).await?;
        }
        if is_one {
            baseline = PointResult { binding: best.binding.clone().or(baseline.binding), ..best.clone() };
        }
        Ok(answer(baseline, best, self.left_out.clone()))
    }

    /// The defaults, where they tie with the winner of the search: it is expected to gain less than what counts, and may gain nothing. A proof costs
    /// as much as several candidates. The points of six 70B searches on H200s tie, and such a proof took 8 minutes (`results/h200-70b-search`).
    fn tie(&self, strategy: &dyn Strategy, winner: &Incumbent, baseline: &PointResult) -> Option<Incumbent> {
        let (rate, (gain, error)) = baseline.estimated_rate.zip(strategy.advantage(&winner.point, &baseline.point))?;
        let least = self.plan.search.min_gain;
        if winner.point == baseline.point || gain >= least.ln_1p() || gain > Z_95 * error {
            return None;
        }
        self.note(&says_tie(&winner.point, gain, least));
        Some(Incumbent { point: baseline.point.clone(), rate })
    }

    /// Launches the defaults and finds what they keep. Defaults that do not start end nothing; `None` if no point can start.
    async fn baseline(&mut self) -> Result<Option<(Point, Box<dyn Strategy>)>, RunnerError> {
        let point = self.plan.space.baseline();
        let seed = SeedLabel::Candidates.of(self.seed, &[]);
        match self.trial_runner.launch(Purpose::Baseline, point.clone()).await? {
            Ok(ready) => {
                self.started = true;
                let point = ready.effective.complete(&self.plan.space, point);
                if point.0.is_empty() {
                    self.note("the engine tells none of its defaults for the tuned parameters, so the report shows them without values; a `default` of each in the space file names them");
                }
                self.trial_runner.known_as(&point);
                self.defaults = Some(point.clone());
                self.note_slow_start();
                let first_rate = self.opening(&point, ready.warmed.burst_rate).await?;
                let mut strategy = (self.make_strategy)(self.plan, seed, &point, first_rate);
                self.follow(&mut *strategy, Purpose::Baseline).await?;
                Ok(Some((point, strategy)))
            }
            Err(diagnosis) if diagnosis.consequence == Consequence::Abort => Ok(None),
            Err(diagnosis) => {
                self.note(&format!("the defaults do not start ({}); searching on without a baseline", diagnosis.says));
                let mut strategy =
                    (self.make_strategy)(self.plan, seed, &point, self.plan.search.first_rate.unwrap_or(Rate(1.0)));
                if let Some(query) = strategy.ask(&mut self.predictor(0), &[]) {
                    strategy.tell(&query, &Tell::Failed(diagnosis.consequence));
                }
                Ok(Some((point, strategy)))
            }
        }
    }

    /// Does what the strategy asks until it is done or the budget has no room. Each round asks for a probe by each worker, or by the first alone where
    /// the defaults are looked at.
    async fn follow(&mut self, strategy: &mut dyn Strategy, purpose: Purpose) -> Result<(), RunnerError> {
        let workers = if purpose == Purpose::Baseline { 1 } else { self.trial_runner.workers() };
        let mut before = strategy.incumbent();
        loop {
            let (mut round, mut price): (Vec<Pending>, Seconds) = (Vec::new(), Seconds(0.0));
            let (mut spent, mut to_come) = (false, BOTH_PROOFS);
            for worker in 0..workers {
                let in_flight: Vec<Query> = round.iter().map(|(query, _)| query.clone()).collect();
                let asked =
                    debug_span!("ask", worker).in_scope(|| strategy.ask(&mut self.predictor(worker), &in_flight));
                // A winner is settled when the next question is asked.
                let incumbent = strategy.incumbent();
                if let Some(best) = incumbent.as_ref().filter(|_| incumbent != before) {
                    let defaults = self.defaults.as_ref().and_then(|point| strategy.estimate(point));
                    self.sink.take(&Event::Improved { best, defaults });
                }
                before = incumbent;
                let estimated = |point: &Point| strategy.estimate(point).is_some();
                to_come = match purpose {
                    // There is nothing to prove until a rate is known to hold.
                    Purpose::Baseline if before.is_none() && !self.defaults.as_ref().is_some_and(estimated) => &[],
                    Purpose::Baseline => &[Purpose::CertifyBaseline],
                    _ => BOTH_PROOFS,
                };
                let Some(query) = asked else {
                    debug!(worker, "nothing more is worth its cost");
                    continue;
                };
                debug!(worker, point = %query.point, rate = %query.rate, "asked");
                let fresh = self.trial_runner.current(worker).is_none_or(|c| c.known_as != query.point);
                let launch = fresh.then(|| TrialRequest::of(purpose, query.point.clone()));
                let before = launch.as_ref().map_or(Before::Nothing, |wanted| self.trial_runner.before(worker, wanted));
                price += self.prices().probe(search_window(self.plan, query.rate).to, before);
                spent = !self.affords(price, to_come);
                if spent {
                    break;
                }
                let probe = Some((self.at_rate(query.rate), Certainty::SEARCH));
                round.push((query, TrialStep { worker, launch, probe }));
            }
            if round.is_empty() {
                if spent {
                    let (what, price) = match purpose {
                        Purpose::Baseline => ("more probes of the defaults".to_owned(), price),
                        _ => (
                            self.untried(strategy.points_left()),
                            Seconds(price.0.max(self.prices().candidates(strategy.points_expected().max(1)).0)),
                        ),
                    };
                    let why = self.budget_too_small(price, to_come);
                    self.left_out(format!("{what}: {why}"));
                } else if purpose == Purpose::Search && self.enough.is_some() && !self.tried() {
                    self.left_out(format!(
                        "{NO_CANDIDATE}: none is expected to gain, apart from what the budget left out"
                    ));
                }
                return Ok(());
            }
            for (query, told) in self.try_out(purpose, round).await? {
                strategy.tell(&query, &told);
            }
            let prices = self.prices();
            let proofs = prices.proving(BOTH_PROOFS.len(), 0);
            self.standing(prices.candidates(strategy.points_expected()) + proofs);
        }
    }

    async fn try_out(&mut self, purpose: Purpose, round: Vec<Pending>) -> Result<Vec<(Query, Tell)>, RunnerError> {
        let (queries, steps): (Vec<Query>, Vec<TrialStep>) = round.into_iter().unzip();
        let workers: Vec<usize> = steps.iter().map(|step| step.worker).collect();
        let mut told = Vec::new();
        for ((query, worker), answer) in queries.into_iter().zip(workers).zip(self.trial_runner.round(steps).await?) {
            // Where no engine of its trial runs, the launch itself has failed.
            self.started |= self.trial_runner.current(worker).is_some();
            let tell = match answer {
                Ok(verdict) => {
                    self.look_at(query.rate, verdict);
                    Tell::Probed(self.probed(worker))
                }
                Err(diagnosis) => {
                    if purpose == Purpose::Baseline {
                        let says = &diagnosis.says;
                        self.note(&format!(
                            "the engine failed under load with the defaults ({says}); their estimate rests on the probes before that"
                        ));
                    }
                    Tell::Failed(diagnosis.consequence)
                }
            };
            told.push((query, tell));
        }
        Ok(told)
    }
}

/// What is said of a winner that is expected to gain so much, as a logarithm, where that share counts.
fn says_tie(winner: &Point, gain: f64, least: f64) -> String {
    let percent = |share: f64| (share * 1e4).round() / 1e2;
    let (gains, least) = (percent(gain.exp_m1()), percent(least));
    format!(
        "{winner} is expected to gain {gains} % over the defaults, less than {least} % (search.min_gain): the defaults are proved alone"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_plan::space::Value;

    #[test]
    fn a_tie_is_said_in_per_cent() {
        let winner = Point::default().with("max-num-seqs", Value::Int(64));
        let says = "max-num-seqs 64 is expected to gain 0.4 % over the defaults, less than 1 % (search.min_gain): the defaults are proved alone";
        assert_eq!(says_tie(&winner, 0.004, 0.01), says);
        assert!(says_tie(&winner, -0.003, 0.029).contains("gain -0.3 % over the defaults, less than 2.9 %"));
    }
}
