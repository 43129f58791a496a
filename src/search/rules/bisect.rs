//! The rate search of our own: windows of traffic, and a bracket that is closed on the root of the margin.

use super::{Kept, RateRule, Step};
use crate::search::{Heard, NextRate, RateSearch, Traffic};
use crate::units::Rate;

/// The rule.
#[derive(Clone, Copy, Debug)]
pub struct Bisect {
    /// The first rate.
    pub start: Rate,
    /// The bracket is closed when its ends differ by less than this fraction.
    pub precision: f64,
    /// Whether the first rate must be kept: a candidate that does not beat the incumbent is not worth a second probe.
    pub races: bool,
}

impl Bisect {
    fn search(&self, heard: &[Heard]) -> RateSearch {
        let mut search = RateSearch::new(self.start, self.precision);
        heard.iter().for_each(|Heard { traffic, seen }| search.tell(traffic.rate(), seen));
        search
    }
}

impl RateRule for Bisect {
    fn next(&self, heard: &[Heard]) -> Step {
        let search = self.search(heard);
        let lost = self.races && search.kept().is_none() && heard.last().is_some_and(|last| !last.seen.kept);
        match search.next() {
            NextRate::Try(rate) if !lost => Step::probe(Traffic::Window(rate)),
            _ => Step::Settled,
        }
    }

    fn kept(&self, heard: &[Heard]) -> Option<Kept> {
        self.search(heard).kept().map(Kept::rate)
    }
}
