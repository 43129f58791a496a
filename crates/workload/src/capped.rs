//! A cap on the requests in flight: an arrival that finds all places taken is sent once an answer frees one.

use super::planned::{Planned, Source};
use autotune_records::units::Seconds;

struct Capped {
    source: Box<dyn Source>,
    places: u32,
    horizon: Seconds,
    open: u32,
    /// When a place became free after all were taken; nothing is due before.
    freed: Seconds,
}

/// The same traffic with at most so many requests in flight. A request that waits for a place becomes due when it gets it, or never where
/// that is behind the horizon.
pub fn capped(source: Box<dyn Source>, places: u32, horizon: Seconds) -> Box<dyn Source> {
    Box::new(Capped { source, places, horizon, open: 0, freed: Seconds(0.0) })
}

impl Capped {
    fn delayed(&self, due: Seconds) -> Seconds {
        Seconds(due.0.max(self.freed.0))
    }
}

impl Source for Capped {
    fn next_due(&self) -> Option<Seconds> {
        let due = self.source.next_due().filter(|_| self.open < self.places)?;
        Some(self.delayed(due)).filter(|due| due.0 < self.horizon.0)
    }

    fn take(&mut self) -> Option<Planned> {
        self.next_due()?;
        let planned = self.source.take()?;
        self.open += 1;
        Some(Planned { due: self.delayed(planned.due), ..planned })
    }

    fn answered(&mut self, request: u32, at: Seconds, text: Option<&str>) {
        if self.open == self.places {
            self.freed = self.delayed(at);
        }
        self.open = self.open.saturating_sub(1);
        self.source.answered(request, at, text);
    }

    /// An arrival may wait for the answer's end.
    fn follows_answers(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{drive, material, open, random};
    use super::super::{Planned, source};
    use super::*;

    /// Answers take two seconds.
    fn sent(rate: f64, places: u32) -> Vec<Planned> {
        let pace = open(rate, 60.0);
        drive(capped(source(&random(), &material(), pace), places, pace.horizon), Some("fine"))
    }

    fn most_in_flight(sent: &[Planned]) -> usize {
        sent.iter()
            .map(|p| sent.iter().filter(|o| o.due.0 <= p.due.0 && p.due.0 < o.due.0 + 2.0 - 1e-6).count())
            .max()
            .unwrap()
    }

    #[test]
    fn places_that_are_all_taken_hold_arrivals_back() {
        let (free, held) = (sent(10.0, 1000), sent(10.0, 4));
        assert!(most_in_flight(&free) > 15);
        assert_eq!(most_in_flight(&held), 4);
        // Four places, two seconds each: two a second, and what is held back beyond the horizon is not sent.
        assert!((115..=120).contains(&held.len()), "{}", held.len());
        assert!(held.windows(2).all(|pair| pair[0].due.0 <= pair[1].due.0) && held.iter().all(|p| p.due.0 < 60.0));
    }

    #[test]
    fn where_no_place_is_wanting_nothing_changes() {
        let all = drive(source(&random(), &material(), open(1.0, 60.0)), Some("fine"));
        assert_eq!(sent(1.0, 1000), all);
    }
}
