//! What a session expects of points before they are launched: what the fitted twin says, and what finding out costs.

use super::cost::Prices;
use crate::search::Expectation;
use crate::settings::Plan;
use crate::space::Point;
use crate::units::{Rate, Seconds};

/// The expectation of a moment.
pub(super) struct Foresight {
    sends: Seconds,
    prices: Prices,
}

impl Foresight {
    /// With the prices that were learnt so far.
    pub(super) fn new(plan: &Plan, prices: Prices) -> Self {
        Self { sends: Seconds::from(plan.probe.ramp) + plan.probe.window.into(), prices }
    }
}

impl Expectation for Foresight {
    fn margins(&mut self, _point: &Point, _rate: Rate) -> Option<Vec<f64>> {
        None
    }

    fn version(&self) -> u64 {
        0
    }

    fn price(&self, _rate: Rate, fresh: bool) -> Seconds {
        self.prices.probe(self.sends, fresh)
    }
}
