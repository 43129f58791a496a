//! The opening: many requests at once show what steps take in batches of every size, and a twin of that says at which rate to begin. Without
//! it the first rate is what the short burst of the warm-up kept, often a third of the limit.

use super::context::{Context, Proofs};
use super::runner::RunnerError;
use crate::rig::Rig;
use crate::space::Point;
use crate::units::Rate;
use crate::verdict::Awaited;

/// Requests of the opening burst: a fit wants 100 answers, and most limits are reached with smaller batches.
const AT_ONCE: u32 = 128;
/// The first rate, as a share of the limit that a twin of the burst expects: beyond the limit a probe says less about it than below.
const OF_LIMIT: f64 = 0.95;

impl<R: Rig> Context<'_, R> {
    /// The first rate at the defaults, whose engine runs and answered the warm-up's burst at that rate: what the plan says, or what the twin of
    /// a larger burst expects.
    pub async fn opening(&mut self, point: &Point, warm_up: Rate) -> Result<Rate, RunnerError> {
        let guess = self.first_rate(Some(warm_up));
        let affords = self.affords(self.prices().probe, Proofs::OfDefaults);
        if self.plan.search.first_rate.is_some() || !self.shows_batches() || !affords {
            return Ok(guess);
        }
        let burst = self.at_once(AT_ONCE, Awaited::All);
        if let Some(Some(Err(diagnosis))) = self.show(vec![(0, Some(burst))]).await?.pop() {
            self.note(&format!("the defaults do not survive {AT_ONCE} requests at once: {}", diagnosis.says));
            return Ok(guess);
        }
        let limit = self.predictor(0).limit(point, guess);
        Ok(limit.map_or(guess, |limit| limit * OF_LIMIT))
    }

    /// The first rate that is known without a twin: what the warm-up's burst reached, where nothing else tells. A short burst neither fills an
    /// engine nor leaves it as idle as open traffic does.
    pub fn first_rate(&self, warm_up: Option<Rate>) -> Rate {
        self.plan.search.first_rate.unwrap_or_else(|| warm_up.unwrap_or(Rate(1.0)))
    }
}
