//! The busiest moments of a window: requests in flight, and output tokens within one second.

use std::collections::BTreeMap;

use crate::load::{ErrorClass, RequestRecord};
use crate::overlap::most_at_once;
use crate::units::{Seconds, TokenRate};
use crate::verdict::Window;

/// Most requests in flight at one moment of the window, those of the ramp included.
pub(super) fn in_flight(records: &[RequestRecord], window: Window, ended: Seconds) -> u64 {
    let within = |record: &RequestRecord| {
        let (start, end) = flight(record, ended);
        let (start, end) = (start.0.max(window.from.0), end.0.min(window.to.0));
        (end > start).then_some((start, end))
    };
    most_at_once(records.iter().filter_map(within)).into()
}

/// A request is in flight from its send to its last token. One that we cut is until the level `ended`. One that failed is until its last
/// token, because nothing tells when it failed.
pub(in crate::report) fn flight(record: &RequestRecord, ended: Seconds) -> (Seconds, Seconds) {
    let end = match record.error {
        Some(ErrorClass::Cut) => ended,
        _ => record.last.or(record.first).unwrap_or(record.sent),
    };
    (record.sent, end)
}

/// Most output tokens within one second of the window, counted from its start; `None` if no whole answer's tokens fell into it. One read may
/// bring several tokens and nobody tells how many, so the tokens of an answer are spread evenly over its reads.
pub(super) fn tokens(records: &[RequestRecord], window: Window) -> Option<TokenRate> {
    let mut seconds: BTreeMap<u64, f64> = BTreeMap::new();
    for record in records.iter().filter(|r| r.complete()) {
        let (Some(first), Some(tokens)) = (record.first, record.tokens_out) else { continue };
        let share = f64::from(tokens) / (record.gaps.len() + 1) as f64;
        let mut at = first;
        for gap in std::iter::once(0.0).chain(record.gaps.iter().copied()) {
            at += Seconds(f64::from(gap));
            if window.holds(at) {
                *seconds.entry((at - window.from).0 as u64).or_insert(0.0) += share;
            }
        }
    }
    seconds.into_values().reduce(f64::max).map(TokenRate)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{answer, failed};
    use super::*;

    const WINDOW: Window = Window { from: Seconds(1.0), to: Seconds(3.0) };

    #[test]
    fn requests_of_the_ramp_are_in_flight_and_failed_ones_are_not() {
        // One from before the window, one that begins as it ends, one within both, and one cut at the end.
        let first = answer(0, 0.5, 0.5, 11, 0.05);
        let second = answer(1, 1.5, 0.5, 11, 0.05);
        let within = answer(2, 1.2, 0.5, 11, 0.05);
        let all = [first, second, within, failed(3, 2.0, ErrorClass::Unavailable)];
        assert_eq!(in_flight(&all, WINDOW, Seconds(5.0)), 2);
        let cut = failed(4, 1.9, ErrorClass::Cut);
        assert_eq!(in_flight(&[all.as_slice(), &[cut]].concat(), WINDOW, Seconds(5.0)), 3);
        assert_eq!(in_flight(&[answer(0, 3.5, 0.1, 2, 0.1)], WINDOW, Seconds(5.0)), 0);
    }

    #[test]
    fn coalesced_tokens_count_in_full() {
        // 20 tokens in 10 reads from 1.1 s on, and the same from 2.1 s on, when ten more come alone.
        let coalesced = |due| RequestRecord { tokens_out: Some(20), ..answer(0, due, 0.1, 10, 0.01) };
        let all = [coalesced(1.0), coalesced(2.0), answer(0, 2.0, 0.1, 10, 0.01)];
        assert!((tokens(&all, WINDOW).unwrap().0 - 30.0).abs() < 1e-9);
        assert_eq!(tokens(&[failed(0, 1.0, ErrorClass::Status)], WINDOW), None);
    }
}
