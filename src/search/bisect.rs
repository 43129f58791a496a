//! How the rate of one point is found without a model: windows of traffic, and a bracket that is closed on the root of the margin.

use super::{Heard, NextRate, RateSearch};
use crate::units::Rate;

/// The rule. It sees all probes of its point in their order, and remembers nothing besides.
#[derive(Clone, Copy, Debug)]
pub struct Bisect {
    pub start: Rate,
    /// The bracket is closed when its ends differ by less than this fraction.
    pub precision: f64,
    /// Whether the first rate must be kept: a candidate that does not beat the incumbent is not worth a second probe.
    pub races: bool,
}

impl Bisect {
    fn search(&self, heard: &[Heard]) -> RateSearch {
        let mut search = RateSearch::new(self.start, self.precision);
        heard.iter().for_each(|Heard { rate, seen }| search.tell(*rate, seen));
        search
    }

    /// The next rate; none where what is kept by now stays.
    pub fn next(&self, heard: &[Heard]) -> Option<Rate> {
        let search = self.search(heard);
        let lost = self.races && search.kept().is_none() && heard.last().is_some_and(|last| !last.seen.kept);
        match search.next() {
            NextRate::Try(rate) if !lost => Some(rate),
            _ => None,
        }
    }

    /// What the point keeps by now.
    pub fn kept(&self, heard: &[Heard]) -> Option<Rate> {
        self.search(heard).kept()
    }
}
