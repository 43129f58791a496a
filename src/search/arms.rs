//! The strategies that are an order of points and a rule for the rate: the race, and the control arms that it is compared with.

use super::bisect::Bisect;
use super::orders::{Order, Random, quasi_random};
use super::sweep::{Orders, Rules, Sweep};
use crate::settings::Plan;
use crate::space::{Grid, Point};
use crate::units::Rate;

/// What an arm starts from.
#[derive(Clone, Copy)]
pub struct Arms<'a> {
    pub plan: &'a Plan,
    pub seed: u64,
    /// The point of the running engine.
    pub baseline: &'a Point,
    /// A first guess of what it keeps.
    pub first_rate: Rate,
}

impl Arms<'_> {
    /// Quasi-random points, each tried a little above the incumbent's rate, and bisected where it wins.
    pub fn race(self) -> Sweep {
        let (space, baseline, seed) = (self.plan.space.clone(), self.baseline.clone(), self.seed);
        let (first, precision, min_gain) = (self.first_rate, self.plan.search.precision, self.plan.search.min_gain);
        let wanted = self.wanted();
        let orders = order(move |held| quasi_random(&space, held, &baseline, wanted, seed));
        let rules = rule(move |incumbent| Bisect {
            start: incumbent.map_or(first, |rate| rate * (1.0 + min_gain)),
            precision,
            races: incumbent.is_some(),
        });
        Sweep::new(self.baseline, orders, rules)
    }

    pub fn random(self) -> Sweep {
        let (space, wanted, seed) = (self.plan.space.clone(), self.wanted(), self.seed);
        let orders = order(move |held| Random::new(&space, held, wanted, seed));
        Sweep::new(self.baseline, orders, self.whole_searches())
    }

    pub fn grid(self) -> Sweep {
        let space = self.plan.space.clone();
        Sweep::new(self.baseline, order(move |held| Grid::new(&space, held)), self.whole_searches())
    }

    fn wanted(self) -> usize {
        self.plan.search.candidates as usize
    }

    /// A rate search without a race, from the best rate so far.
    fn whole_searches(self) -> Rules {
        let (first, precision) = (self.first_rate, self.plan.search.precision);
        rule(move |incumbent| Bisect { start: incumbent.unwrap_or(first), precision, races: false })
    }
}

fn order<O: Order + 'static>(order: impl Fn(&Point) -> O + Send + 'static) -> Orders {
    Box::new(move |held| Box::new(order(held)))
}

fn rule(rule: impl Fn(Option<Rate>) -> Bisect + Send + 'static) -> Rules {
    Box::new(rule)
}
