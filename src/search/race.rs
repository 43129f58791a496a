//! Race and bisect: quasi-random points, each tried a little above the incumbent's rate, and bisected where it wins.

use std::collections::VecDeque;

use super::{Ask, Incumbent, Infeasible, NextRate, RateSearch, Strategy, Tell};
use crate::settings::Plan;
use crate::space::{self, Point};
use crate::units::Rate;

/// The strategy.
pub struct Race {
    candidates: VecDeque<Point>,
    known: Infeasible,
    incumbent: Option<Incumbent>,
    current: Option<(Point, RateSearch)>,
    first_rate: Rate,
    precision: f64,
    min_gain: f64,
}

impl Race {
    /// Over the plan's space with some values held; the first candidate is the baseline with those values.
    pub fn new(
        plan: &Plan,
        seed: u64,
        held: &Point,
        tried: &Point,
        incumbent: Option<Incumbent>,
        first_rate: Rate,
    ) -> Self {
        let wanted = plan.search.candidates as usize;
        let baseline =
            Point(tried.0.iter().chain(&held.0).map(|(name, value)| (name.clone(), value.clone())).collect());
        let mut candidates: Vec<Point> = Vec::new();
        if plan.space.admits(&baseline) && baseline != *tried {
            candidates.push(baseline);
        }
        for point in space::candidates(&plan.space, held, wanted + 1, seed) {
            if point != *tried && !candidates.contains(&point) {
                candidates.push(point);
            }
        }
        candidates.truncate(wanted);
        Self {
            candidates: candidates.into(),
            known: Infeasible::default(),
            incumbent,
            current: None,
            first_rate,
            precision: plan.search.precision,
            min_gain: plan.search.min_gain,
        }
    }

    /// Ends with the current candidate; it becomes the incumbent where it kept a higher rate.
    fn settle(&mut self) {
        if let Some((point, search)) = self.current.take()
            && let Some(rate) = search.kept()
            && self.incumbent.as_ref().is_none_or(|i| rate.0 > i.rate.0)
        {
            self.incumbent = Some(Incumbent { point, rate });
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
    fn ask(&mut self) -> Ask {
        loop {
            if let Some((point, search)) = &self.current {
                match search.next() {
                    NextRate::Try(rate) => return Ask::Probe(point.clone(), rate),
                    NextRate::Found(_) | NextRate::Hopeless => self.settle(),
                }
            }
            let Some(point) = self.next_candidate() else { return Ask::Done };
            let start = self.incumbent.as_ref().map_or(self.first_rate, |i| i.rate * (1.0 + self.min_gain));
            self.current = Some((point, RateSearch::new(start, self.precision)));
        }
    }

    fn tell(&mut self, point: &Point, tell: &Tell) {
        match tell {
            Tell::Failed(consequence) => {
                self.known.learn(point, consequence);
                self.settle();
            }
            Tell::Probed(rate, seen) => {
                let Some((_, search)) = &mut self.current else { return };
                search.tell(*rate, *seen);
                // A candidate that does not beat the incumbent is not worth a second probe.
                if !seen.kept && search.kept().is_none() && self.incumbent.is_some() {
                    self.current = None;
                }
            }
        }
    }

    fn incumbent(&self) -> Option<&Incumbent> {
        self.incumbent.as_ref()
    }

    fn points_left(&self) -> usize {
        self.candidates.len() + usize::from(self.current.is_some())
    }
}
