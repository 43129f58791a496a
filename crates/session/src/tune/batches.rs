//! Large batches: shows engines those that a long run of the workload comes to, and finds the rate from which on one does not recover.
//!
//! A session opens with many requests at once. They show what steps take in batches of every size, and a twin of that says at which rate to begin.
//! Without it the first rate is what the short burst of the warm-up kept, often a third of the limit.

use super::context::Context;
use super::predictor::{Ceiling, LOWEST};
use super::runner::RunnerError;
use super::session_twin::AS_MEASURED;
use super::trial::Asking;
use crate::journal::Purpose;
use crate::rig::Rig;
use crate::search::Strategy;
use crate::verdict::Awaited;
use autotune_numerics::bisection::narrowed;
use autotune_plan::space::Point;
use autotune_records::units::Rate;
use autotune_twin::StepCosts;

/// The factor of a stress replay: the ceiling is the highest rate whose replay passes at so many times the rate. Twins fitted to other probes of an
/// engine differ by about 5 %, and bursts rarer than those of a replay occur too. With 1.05, and each stream counted apart, 3 of 20 certified rates
/// lay more than 3 % above their limit, two of them by 6 %. The engines were three of `benches/search` whose KV cache fills.
const STRESS_FACTOR: f64 = 1.08;
/// More requests at once are never sent to see what a large batch does.
const MOST_AT_ONCE: u32 = 1024;
/// If a rate collapses, lower ones are tried in these steps, down to [`LOWEST`].
const LOWER: f64 = 0.95;
/// The highest rate without a collapse is found to this factor: two twins of an engine differ by more, and each replay takes seconds.
const FOUND: f64 = 1.03;
/// Requests of the opening burst: a fit wants 100 answers, and most limits are reached with smaller batches.
const AT_ONCE: u32 = 128;
/// The first rate, as a share of the limit that a twin of the burst expects. Beyond the limit a probe says less about it than below.
const OF_LIMIT: f64 = 0.95;

impl<R: Rig> Context<'_, R> {
    /// The first rate at the defaults: what the plan says, or what the twin of a larger burst expects. Their engine runs, and answered the warm-up's
    /// burst at that rate.
    pub async fn opening(&mut self, point: &Point, warm_up: Rate) -> Result<Rate, RunnerError> {
        // A short burst neither fills an engine nor leaves it as idle as open traffic does.
        let guess = self.plan.search.first_rate.unwrap_or(warm_up);
        let affords = self.affords(self.prices().probe, &[Purpose::CertifyBaseline]);
        if self.plan.search.first_rate.is_some() || !self.sends_bursts() || !affords {
            return Ok(guess);
        }
        let burst = self.at_once(AT_ONCE, Awaited::All);
        if let Err(diagnosis) = self.send_burst(burst).await? {
            self.note(&format!("the defaults do not survive {AT_ONCE} requests at once: {}", diagnosis.says));
            return Ok(guess);
        }
        let limit = self.predictor(0).limit_after_burst(point, guess);
        Ok(limit.map_or(guess, |limit| limit * OF_LIMIT))
    }

    /// Probes the running engine of the defaults with a batch as large as a long run of the workload reaches. Returns whether that told something
    /// new. A stair of the step time there decides which points are worth a launch. The certification of the defaults need not probe it again.
    pub async fn show_batches(&mut self, point: &Point, strategy: &mut dyn Strategy) -> Result<bool, RunnerError> {
        let Some(estimate) = strategy.estimate(point).filter(|_| self.sends_bursts()) else { return Ok(false) };
        let before = self.trial_runner.twin().largest;
        let Some(burst) = self.burst(point, estimate) else { return Ok(false) };
        if self.send_burst(burst).await?.is_err() {
            self.note("the defaults do not survive the batches that a long run of this traffic comes to");
            return Ok(false);
        }
        if self.trial_runner.twin().largest <= before {
            return Ok(false);
        }
        self.trial_runner.fit_to_all();
        strategy.retell(self.probed(0));
        Ok(true)
    }

    /// A batch as large as a long run reaches above that rate, if none was measured yet. It shows what steps take there, and whether there is
    /// memory for them.
    pub fn burst(&mut self, point: &Point, rate: Rate) -> Option<Asking> {
        let costs = self.trial_runner.twin().pooled_steps()?;
        let mut predictor = self.predictor(0);
        let engine = predictor.predictions.engine(point)?;
        let served = predictor.stress_replay_of(&engine, &costs, Rate(rate.0 * STRESS_FACTOR))?;
        let count = served.peaks.places.min(engine.bounds.max_num_seqs).min(MOST_AT_ONCE);
        // About as many requests at once as before come to the same batches, also where the KV cache holds fewer.
        let twin = self.trial_runner.twin();
        let shown = twin.largest_burst.max(twin.largest);
        if f64::from(count) <= f64::from(shown) * AS_MEASURED {
            return None;
        }
        if !self.affords(self.prices().certify * 2.0, &[]) {
            let why = self.budget_too_small(self.prices().certify * 2.0, &[]);
            self.left_out(format!("what {count} requests at once do to the engine: {why}"));
            return None;
        }
        Some(self.at_once(count, Awaited::All))
    }

    /// The highest rate up to this one that passes the stress replay; `None` if the size of the KV cache is not known.
    pub fn ceiling(&mut self, point: &Point, costs: &StepCosts, rate: Rate) -> Option<Ceiling> {
        let mut predictor = self.predictor(0);
        let engine = predictor.predictions.engine(point)?;
        let mut passes = |rate: f64| predictor.passes_stress(&engine, costs, Rate(rate * STRESS_FACTOR));
        if passes(rate.0)? {
            return Some(Ceiling::Above);
        }
        let (mut low, mut high) = (rate.0 * LOWER, rate.0);
        while !passes(low)? {
            (low, high) = (low * LOWER, low);
            if low < rate.0 * LOWEST {
                return Some(Ceiling::BelowAll);
            }
        }
        let (low, high) = narrowed((low, high), FOUND, passes)?;
        Some(Ceiling::At(Rate(f64::sqrt(low * high))))
    }
}
