//! The rule of vLLM's former SLA search in its first generation: doubled from the saturated throughput, then bisected, in whole requests per
//! second; three runs for every rate.

use super::{ALL_AT_ONCE, Kept, RateRule, Step};
use crate::search::{Heard, Traffic};
use crate::units::Rate;

/// Runs of every rate (`--num-runs`).
const RUNS: usize = 3;
/// Requests of a run.
const REQUESTS: u32 = 1_000;

/// The rule.
#[derive(Clone, Copy, Debug)]
pub struct VllmSla;

/// The runs that were made, a rate after the other.
struct Levels<'a>(std::slice::Chunks<'a, Heard>);

impl<'a> Levels<'a> {
    /// The runs at the next rate; where they are not complete, the step that makes them so.
    fn at(&mut self, rate: u64) -> Result<&'a [Heard], Step> {
        let missing = Step::probe(Traffic::Requests { rate: Rate(rate as f64), count: REQUESTS });
        self.0.next().filter(|runs| runs.len() == RUNS).ok_or(missing)
    }
}

impl VllmSla {
    /// The whole search over the runs so far; the step that it lacks where it cannot end.
    fn search(heard: &[Heard]) -> Result<(), Step> {
        let mut levels = Levels(heard.chunks(RUNS));
        let all_at_once = ALL_AT_ONCE.0 as u64;
        let saturated = levels.at(all_at_once)?;
        let throughput = saturated.iter().map(|run| run.seen.throughput.0).sum::<f64>() / RUNS as f64;
        let mut rate = (throughput.ceil() as u64).max(1);
        let (mut kept, mut broken) = (0, all_at_once);
        while rate < all_at_once {
            if !passes(levels.at(rate)?) {
                broken = rate;
                break;
            }
            kept = rate;
            rate *= 2;
        }
        while broken - kept > 1 {
            let middle = kept.midpoint(broken);
            if passes(levels.at(middle)?) {
                kept = middle;
            } else {
                broken = middle;
            }
        }
        Ok(())
    }
}

impl RateRule for VllmSla {
    fn next(&self, heard: &[Heard]) -> Step {
        Self::search(heard).err().unwrap_or(Step::Settled)
    }

    fn kept(&self, heard: &[Heard]) -> Option<Kept> {
        let levels = heard.chunks_exact(RUNS).skip(1);
        let kept = levels.filter(|runs| passes(runs)).map(|runs| runs[0].traffic.rate());
        kept.max_by(|a, b| a.0.total_cmp(&b.0)).map(Kept::rate)
    }
}

/// Whether the mean of each promise's quantile over the runs lies within its limit.
fn passes(runs: &[Heard]) -> bool {
    let promises = runs.iter().map(|run| run.seen.limits.len()).min().unwrap_or(0);
    (0..promises).all(|promise| {
        // Where a quantile lies among requests without an answer, no mean is within anything.
        let shares = runs.iter().map(|run| run.seen.limits[promise].measured.map_or(f64::INFINITY, f64::exp));
        shares.sum::<f64>() <= RUNS as f64
    })
}
