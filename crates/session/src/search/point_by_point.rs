//! The strategy `bisect`: quasi-random points one after the other, each with a bisection of its rate, and no model.

use super::rate::RateSearch;
use super::{Expectation, Incumbent, Infeasible, ProbedRate, Query, Strategy, Tell, candidate_points};
use autotune_plan::settings::Plan;
use autotune_plan::space::Point;
use autotune_records::units::Rate;

type Order = dyn Fn(&Point) -> Vec<Point> + Send;

pub struct PointByPoint {
    /// Tells which points are tried and in which order, once it is known what is held.
    order: Box<Order>,
    first_rate: Rate,
    precision: f64,
    /// A point is first tried so much above the incumbent's rate, and left where it does not keep that.
    min_gain: f64,
    /// Points that are still to come; none before the space is opened.
    left: std::vec::IntoIter<Point>,
    /// Each point that was tried, in that order, the baseline first, with what it kept.
    tried: Vec<(Point, Option<Rate>)>,
    known: Infeasible,
    current: Option<Current>,
}

struct Current {
    point: Point,
    start: Rate,
    precision: f64,
    /// Whether the first rate must be kept: a candidate that does not beat the incumbent is not worth a second probe.
    races: bool,
    probed: Vec<ProbedRate>,
}

impl PointByPoint {
    /// Quasi-random points, the baseline with what is held before them.
    pub(super) fn quasi_random(plan: &Plan, seed: u64, baseline: &Point, first_rate: Rate) -> Self {
        let (space, defaults, wanted) = (plan.space.clone(), baseline.clone(), plan.search.candidates as usize);
        let order = move |held: &Point| {
            let mut points = candidate_points(&space, held, &defaults, wanted + 1, seed);
            points.retain(|point| *point != defaults);
            points.truncate(wanted);
            points
        };
        Self::new(plan, baseline, first_rate, order)
    }

    /// `order` tells which points are tried, from what is held. Those that were tried or are known to fail are left out.
    pub fn new(
        plan: &Plan,
        baseline: &Point,
        first_rate: Rate,
        order: impl Fn(&Point) -> Vec<Point> + Send + 'static,
    ) -> Self {
        let mut search = Self {
            order: Box::new(order),
            first_rate,
            precision: plan.search.precision,
            min_gain: plan.search.min_gain,
            left: Vec::new().into_iter(),
            tried: Vec::new(),
            known: Infeasible::default(),
            current: None,
        };
        search.begin(baseline.clone());
        search
    }

    fn begin(&mut self, point: Point) {
        let better = self.incumbent().map(|incumbent| incumbent.rate * (1.0 + self.min_gain));
        let (start, precision) = (better.unwrap_or(self.first_rate), self.precision);
        self.current = Some(Current { point, start, precision, races: better.is_some(), probed: Vec::new() });
    }

    fn settle(&mut self) {
        if let Some(current) = self.current.take() {
            let kept = current.search().kept();
            self.tried.push((current.point, kept));
        }
    }
}

impl Current {
    /// The search of its rate, from all its probes; it remembers nothing besides.
    fn search(&self) -> RateSearch {
        let mut search = RateSearch::new(self.start, self.precision);
        self.probed.iter().for_each(|probed| search.tell(probed.rate, &probed.seen));
        search
    }

    /// The next rate; `None` if what is kept by now stays.
    fn next(&self) -> Option<Rate> {
        let search = self.search();
        let lost = self.races && search.kept().is_none() && self.probed.last().is_some_and(|last| !last.seen.kept);
        search.next().filter(|_| !lost)
    }
}

impl Strategy for PointByPoint {
    fn open(&mut self, held: &Point) {
        self.settle();
        self.left = (self.order)(held).into_iter();
    }

    fn ask(&mut self, _engine: &mut dyn Expectation, in_flight: &[Query]) -> Option<Query> {
        // What it asks next hangs on the answer.
        if !in_flight.is_empty() {
            return None;
        }
        loop {
            if let Some(current) = &self.current
                && let Some(rate) = current.next()
            {
                return Some(Query::new(current.point.clone(), rate));
            }
            self.settle();
            let is_open =
                |point: &Point| self.tried.iter().all(|(tried, _)| tried != point) && !self.known.rules_out(point);
            let point = self.left.find(is_open)?;
            self.begin(point);
        }
    }

    fn tell(&mut self, query: &Query, tell: &Tell) {
        match tell {
            Tell::Failed(consequence) => {
                self.known.learn(&query.point, consequence);
                self.settle();
            }
            Tell::Probed(told) => {
                let Some(current) = &mut self.current else { return };
                // A probe that says nothing is not among them. A client that is too slow for one, tried again, is too slow for the next.
                let is_mute = told.len() <= current.probed.len();
                current.probed.clone_from(told);
                if is_mute {
                    self.settle();
                }
            }
        }
    }

    fn incumbent(&self) -> Option<Incumbent> {
        let kept = self.tried.iter().rev().filter_map(|(point, kept)| Some((point, (*kept)?)));
        let best = kept.max_by(|(_, a), (_, b)| a.0.total_cmp(&b.0));
        best.map(|(point, rate)| Incumbent { point: point.clone(), rate })
    }

    fn estimate(&self, point: &Point) -> Option<Rate> {
        let settled = self.tried.iter().find(|(known, _)| known == point).and_then(|(_, kept)| *kept);
        let running = self.current.as_ref().filter(|current| current.point == *point);
        settled.or_else(|| running.and_then(|current| current.search().kept()))
    }

    fn points_left(&self) -> usize {
        self.left.len() + usize::from(self.current.is_some())
    }
}
