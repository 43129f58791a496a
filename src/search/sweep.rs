//! One point after the other, each by one rule for its rate.

use super::bisect::Bisect;
use super::orders::{Order, Past, quasi_random};
use super::{Ask, Expectation, Heard, Incumbent, Query, Strategy, Tell};
use crate::settings::Plan;
use crate::space::Point;
use crate::units::Rate;

/// Makes the order of the points, once it is known what is held.
type Orders = Box<dyn Fn(&Point) -> Box<dyn Order> + Send>;
/// Makes the rule for a point's rate, given the incumbent's.
type Rules = Box<dyn Fn(Option<Rate>) -> Bisect + Send>;

pub struct Sweep {
    orders: Orders,
    rules: Rules,
    /// None until the space is opened.
    order: Option<Box<dyn Order>>,
    past: Past,
    current: Option<Current>,
}

/// The point that is being tried.
struct Current {
    point: Point,
    rule: Bisect,
    /// All probes of that point.
    heard: Vec<Heard>,
}

impl Sweep {
    /// `orders` makes the order of the points once it is known what is held; `rules` makes a point's rule from the incumbent's rate.
    pub fn new<O: Order + 'static>(
        baseline: &Point,
        orders: impl Fn(&Point) -> O + Send + 'static,
        rules: impl Fn(Option<Rate>) -> Bisect + Send + 'static,
    ) -> Self {
        let (orders, rules): (Orders, Rules) = (Box::new(move |held| Box::new(orders(held))), Box::new(rules));
        let mut sweep = Self { orders, rules, order: None, past: Past::default(), current: None };
        sweep.begin(baseline.clone());
        sweep
    }

    /// Quasi-random points, each tried a little above the incumbent's rate, and bisected where it wins.
    pub(super) fn race(plan: &Plan, seed: u64, baseline: &Point, first_rate: Rate) -> Self {
        let (space, defaults, wanted) = (plan.space.clone(), baseline.clone(), plan.search.candidates as usize);
        let (precision, min_gain) = (plan.search.precision, plan.search.min_gain);
        let orders = move |held: &Point| quasi_random(&space, held, &defaults, wanted, seed);
        let rules = move |incumbent: Option<Rate>| Bisect {
            start: incumbent.map_or(first_rate, |rate| rate * (1.0 + min_gain)),
            precision,
            races: incumbent.is_some(),
        };
        Self::new(baseline, orders, rules)
    }

    fn begin(&mut self, point: Point) {
        let rule = (self.rules)(self.incumbent().map(|incumbent| incumbent.rate));
        self.current = Some(Current { point, rule, heard: Vec::new() });
    }

    /// Ends with the current point.
    fn settle(&mut self) {
        if let Some(Current { point, rule, heard, .. }) = self.current.take() {
            self.past.tried.push((point, rule.kept(&heard)));
        }
    }
}

impl Current {
    /// Hears all probes of the running engine. Whether one of them is new: a probe that says nothing is not among them.
    fn hear(&mut self, told: &[Heard]) -> bool {
        let known = self.heard.len();
        self.heard = told.to_vec();
        self.heard.len() > known
    }
}

impl Strategy for Sweep {
    fn open(&mut self, held: &Point) {
        self.settle();
        self.order = Some((self.orders)(held));
    }

    fn ask(&mut self, _engine: &mut dyn Expectation, in_flight: &[Query]) -> Ask {
        // What it asks next hangs on the answer.
        if !in_flight.is_empty() {
            return Ask::Done;
        }
        loop {
            if let Some(Current { point, rule, heard, .. }) = &self.current {
                match rule.next(heard) {
                    Some(rate) => {
                        return Ask::Probe(Query::new(point.clone(), rate));
                    }
                    None => self.settle(),
                }
            }
            let next = self.order.as_mut().and_then(|order| order.next(&self.past));
            let Some(point) = next else { return Ask::Done };
            self.begin(point);
        }
    }

    fn tell(&mut self, query: &Query, tell: &Tell) {
        match tell {
            Tell::Failed(consequence) => {
                self.past.known.learn(&query.point, consequence);
                self.settle();
            }
            Tell::Probed(told) => {
                // A client that is too slow for one probe, tried again, is too slow for the next.
                if self.current.as_mut().is_some_and(|current| !current.hear(told)) {
                    self.settle();
                }
            }
        }
    }

    fn ranking(&self) -> Vec<Incumbent> {
        let kept = self.past.tried.iter().filter_map(|(point, kept)| Some((point, (*kept)?)));
        let mut kept: Vec<(&Point, Rate)> = kept.collect();
        kept.sort_by(|(_, a), (_, b)| b.0.total_cmp(&a.0));
        kept.into_iter().map(|(point, rate)| Incumbent { point: point.clone(), rate }).collect()
    }

    fn estimate(&self, point: &Point) -> Option<Rate> {
        let settled = self.past.tried.iter().find(|(known, _)| known == point).and_then(|(_, kept)| *kept);
        let running = self.current.as_ref().filter(|current| current.point == *point);
        settled.or_else(|| running.and_then(|current| current.rule.kept(&current.heard)))
    }

    fn points_left(&self) -> usize {
        self.order.as_ref().map_or(0, |order| order.left()) + usize::from(self.current.is_some())
    }
}
