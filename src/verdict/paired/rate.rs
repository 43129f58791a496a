//! The limit in rate: where the margin, as the corrected twin sees it, crosses zero.

use super::Paired;
use super::long::Long;
use crate::settings::Limit;
use crate::twin::{Bounds, Sent, StepCosts};
use crate::units::Rate;

/// Halvings of the bracket: its width falls to a thousandth.
const HALVINGS: usize = 12;

/// The highest rate that keeps a promise over hours of traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitRate {
    /// The rate; an end of the bracket where the root lies beyond it.
    pub rate: Rate,
    /// The standard error of its logarithm: that of the margin over the slope of the margin.
    pub error: f64,
    /// Whether the root lies within the bracket.
    pub bracketed: bool,
}

/// The root of the margin between two rates: the twin on the traffic of each rate, corrected by what the probes showed at theirs.
///
/// `traffic` makes the long traffic of a rate; the same seed for every rate keeps the margin smooth.
pub fn limit_rate<T: IntoIterator<Item = Sent>>(
    paired: &Paired,
    limit: &Limit,
    costs: &StepCosts,
    bounds: Bounds,
    bracket: (Rate, Rate),
    mut traffic: impl FnMut(Rate) -> T,
) -> Option<LimitRate> {
    let mut margin = |log_rate: f64| {
        let long = Long::replay(costs, bounds, traffic(Rate(log_rate.exp())));
        let (quantile, _) = long.log_quantile(limit.metric, limit.quantile)?;
        Some(quantile + paired.correction() - limit.at_most.0.ln())
    };
    let (mut low, mut high) = (bracket.0.0.ln(), bracket.1.0.ln());
    let (mut at_low, mut at_high) = (margin(low)?, margin(high)?);
    let bracketed = at_low <= 0.0 && at_high > 0.0;
    if !bracketed {
        let rate = if at_low > 0.0 { bracket.0 } else { bracket.1 };
        return Some(LimitRate { rate, error: f64::INFINITY, bracketed });
    }
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        let here = margin(middle)?;
        if here <= 0.0 {
            (low, at_low) = (middle, here);
        } else {
            (high, at_high) = (middle, here);
        }
        // Within this the margin is straight, and its slope is what the error is divided by.
        if high - low < 0.02 {
            break;
        }
    }
    let slope = ((at_high - at_low) / (high - low)).max(0.1);
    Some(LimitRate { rate: Rate((low - at_low / slope).exp()), error: paired.error / slope, bracketed })
}
