//! Race and bisect: quasi-random points, each tried a little above the incumbent's rate, and bisected where it wins.

use std::collections::VecDeque;

use super::{Ask, Expectation, Heard, Incumbent, Infeasible, NextRate, Query, RateSearch, Strategy, Tell, Traffic};
use crate::settings::Plan;
use crate::space::{self, Point, Space};
use crate::units::Rate;

/// The strategy.
pub struct Race {
    space: Space,
    seed: u64,
    wanted: usize,
    precision: f64,
    min_gain: f64,
    baseline: Point,
    first_rate: Rate,
    candidates: VecDeque<Point>,
    known: Infeasible,
    estimates: Vec<(Point, Rate)>,
    current: Option<Current>,
}

struct Current {
    point: Point,
    start: Rate,
    search: RateSearch,
}

impl Race {
    /// Over the plan's space.
    pub fn new(plan: &Plan, seed: u64, baseline: &Point, first_rate: Rate) -> Self {
        let mut race = Self {
            space: plan.space.clone(),
            seed,
            wanted: plan.search.candidates as usize,
            precision: plan.search.precision,
            min_gain: plan.search.min_gain,
            baseline: baseline.clone(),
            first_rate,
            candidates: VecDeque::new(),
            known: Infeasible::default(),
            estimates: Vec::new(),
            current: None,
        };
        race.begin(baseline.clone(), first_rate);
        race
    }

    fn begin(&mut self, point: Point, start: Rate) {
        self.current = Some(Current { point, start, search: RateSearch::new(start, self.precision) });
    }

    /// Ends with the current candidate.
    fn settle(&mut self) {
        if let Some(Current { point, search, .. }) = self.current.take()
            && let Some(rate) = search.kept()
        {
            self.estimates.push((point, rate));
        }
    }

    fn next_candidate(&mut self) -> Option<Point> {
        while let Some(point) = self.candidates.pop_front() {
            if !self.known.rules_out(&point) {
                return Some(point);
            }
        }
        None
    }
}

impl Strategy for Race {
    /// The first candidate is the baseline with what is held.
    fn open(&mut self, held: &Point) {
        let mut candidates: Vec<Point> = Vec::new();
        let raised = held.0.iter().fold(self.baseline.clone(), |point, (name, value)| point.with(name, value.clone()));
        if self.space.admits(&raised) && raised != self.baseline {
            candidates.push(raised);
        }
        for point in space::candidates(&self.space, held, self.wanted + 1, self.seed) {
            if point != self.baseline && !candidates.contains(&point) {
                candidates.push(point);
            }
        }
        candidates.truncate(self.wanted);
        self.candidates = candidates.into();
    }

    fn ask(&mut self, _engine: &mut dyn Expectation) -> Ask {
        loop {
            if let Some(Current { point, search, .. }) = &self.current {
                match search.next() {
                    NextRate::Try(rate) => {
                        let traffic = Traffic::Window(rate);
                        return Ask::Probe(Query { point: point.clone(), traffic, relaunch: false });
                    }
                    NextRate::Found(_) | NextRate::Hopeless => self.settle(),
                }
            }
            let Some(point) = self.next_candidate() else { return Ask::Done };
            let start = self.incumbent().map_or(self.first_rate, |i| i.rate * (1.0 + self.min_gain));
            self.begin(point, start);
        }
    }

    fn tell(&mut self, query: &Query, tell: &Tell) {
        match tell {
            Tell::Failed(consequence) => {
                self.known.learn(&query.point, consequence);
                self.settle();
            }
            Tell::Probed(heard) => {
                let beaten = self.incumbent().is_some();
                let Some(Current { start, search, .. }) = &mut self.current else { return };
                *search = RateSearch::new(*start, self.precision);
                heard.iter().for_each(|Heard { traffic, seen }| search.tell(traffic.rate(), seen));
                // A candidate that does not beat the incumbent is not worth a second probe.
                if heard.last().is_some_and(|h| !h.seen.kept) && search.kept().is_none() && beaten {
                    self.current = None;
                }
            }
        }
    }

    fn incumbent(&self) -> Option<Incumbent> {
        let better = |a: &&(Point, Rate), b: &&(Point, Rate)| a.1.0.total_cmp(&b.1.0);
        self.estimates.iter().rev().max_by(better).map(|(point, rate)| Incumbent { point: point.clone(), rate: *rate })
    }

    fn estimate(&self, point: &Point) -> Option<Rate> {
        let settled = self.estimates.iter().find(|(known, _)| known == point).map(|(_, rate)| *rate);
        let running = self.current.as_ref().filter(|c| c.point == *point).and_then(|c| c.search.kept());
        settled.or(running)
    }

    fn points_left(&self) -> usize {
        self.candidates.len() + usize::from(self.current.is_some())
    }
}
