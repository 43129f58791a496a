//! Saturation: more is offered than is done, and the queue grows with it.

use super::Window;
use autotune_load::{ErrorClass, RequestRecord};
use autotune_records::quantiles::median;
use autotune_records::units::Seconds;

/// A server that leaves a larger share of the arrivals waiting is overloaded.
const LEFT_WAITING: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Halves {
    /// Counted requests whose whole answer ended within the window.
    pub(super) answered_in_window: usize,
    offered: usize,
    offered_in_second: usize,
    open_at_middle: usize,
    open_at_end: usize,
    /// Requests without a first token at the start of the window, at its middle, and at its end.
    waiting: [usize; 3],
    /// Whether the number in flight says something of the server. Arrivals come at a steady rate, and the first answers ended before the
    /// middle.
    settled: bool,
}

impl Halves {
    pub(super) fn of(records: &[RequestRecord], counted: &[&RequestRecord], window: Window, steady: bool) -> Self {
        let middle = Seconds((window.from.0 + window.to.0) / 2.0);
        // A request that failed is in nobody's way; when it failed nobody noted.
        let alive = |r: &&RequestRecord| matches!(r.error, None | Some(ErrorClass::Cut));
        let before = |at: Seconds, event: fn(&RequestRecord) -> Option<Seconds>| {
            records.iter().filter(alive).filter(|r| r.due.0 < at.0 && event(r).is_none_or(|e| e.0 > at.0)).count()
        };
        let open_at = |at| before(at, |r| r.last);
        let waiting_at = |at| before(at, |r| r.first);
        Self {
            answered_in_window: counted
                .iter()
                .filter(|r| r.complete() && r.last.is_some_and(|l| l.0 <= window.to.0))
                .count(),
            offered: counted.len(),
            offered_in_second: counted.iter().filter(|r| r.due.0 >= middle.0).count(),
            open_at_middle: open_at(middle),
            open_at_end: open_at(window.to),
            waiting: [window.from, middle, window.to].map(waiting_at),
            settled: steady && undisturbed(records).0 <= middle.0,
        }
    }

    /// Either sign of a queue that grows: a backlog that is not worked off, or more and more requests that wait for their first token.
    pub(super) fn saturated(&self) -> bool {
        self.settled && (self.backlog_grew() || self.left_waiting())
    }

    /// The share of the arrivals that got a first token, where the queue grew. Requests that wait for theirs became more by two standard
    /// deviations of the difference of two Poisson counts. Requests in flight do not tell: they rise until the longest of the first answers end.
    pub(super) fn served_share(&self) -> Option<f64> {
        let (before, after) = (self.waiting[0] as f64, self.waiting[2] as f64);
        let share = 1.0 - (after - before) / self.offered.max(1) as f64;
        (self.settled && after - before > 2.0 * (before + after).sqrt() && share > 0.0).then_some(share)
    }

    /// Whether the requests in flight grew by more than a quarter of the second half's arrivals, beyond what chance does near a
    /// limit. A promise on the time per output token sees no such queue.
    fn backlog_grew(&self) -> bool {
        let growth = self.open_at_end as f64 - self.open_at_middle as f64;
        growth > 3.0 * (2.0 * self.open_at_middle.max(1) as f64).sqrt() && growth > 0.25 * self.offered_in_second as f64
    }

    /// Whether the requests that wait for their first token grew by more than a tenth of the second half's arrivals, beyond what chance does: three
    /// standard deviations of the difference of two Poisson counts.
    fn left_waiting(&self) -> bool {
        let (before, after) = (self.waiting[1] as f64, self.waiting[2] as f64);
        let growth = after - before;
        growth > 3.0 * (before + after).sqrt() && growth > LEFT_WAITING * self.offered_in_second as f64
    }

    pub(super) fn sentence(&self) -> String {
        let (what, at_middle, at_end) = if self.backlog_grew() {
            ("in flight", self.open_at_middle, self.open_at_end)
        } else {
            ("waiting for their first token", self.waiting[1], self.waiting[2])
        };
        format!("saturated: {at_middle} requests {what} at the middle of the window, {at_end} at its end")
    }
}

/// What an answer takes where nobody waits: the quickest first token, and the median time from there to the last.
fn undisturbed(records: &[RequestRecord]) -> Seconds {
    let quickest = records.iter().filter_map(RequestRecord::ttft).map(|t| t.0).reduce(f64::min).unwrap_or(0.0);
    let streaming = records.iter().filter_map(|r| Some((r.last? - r.first?).0));
    Seconds(quickest + median(streaming).unwrap_or(0.0))
}
