//! Whether a level held, in one word with its reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::level::{Level, Offered};
use crate::units::{Rate, Seconds};
use crate::verdict::{Certainty, Outcome, Window, judge};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    Pass,
    Fail,
    Unresolved,
    /// Our own client was too slow: the level says nothing about the server.
    Void,
    /// Interrupted: what is missing might have said otherwise.
    Partial,
    /// Without promises: the server answered as fast as it was asked.
    KeptUp,
    /// Without promises: the queue grew.
    Saturated,
    /// Too many answers are shorter than was asked for; without promises, too many requests have no whole answer.
    Errors,
    /// Without promises nothing tells good from bad here: a closed loop never asks faster than it is answered.
    Unjudged,
}

/// A cap that holds back a larger share of the arrivals than this is what limits the rate.
const HELD_BACK: f64 = 0.05;
/// Without promises, a level with a larger share of failed requests than this did not keep up, however fast the others were answered.
const FORGIVEN_FAILURES: f64 = 0.01;

impl Standing {
    /// The standing of a level, and why, where there is a reason. It counted `counted` requests in the filled `window`; those of
    /// `errors` have no whole answer.
    pub(super) fn of(
        level: &Level,
        window: Window,
        counted: u64,
        errors: &BTreeMap<String, u64>,
    ) -> (Self, Option<String>) {
        if level.partial {
            let ran = Seconds(window.length().0.max(0.0));
            let because = format!("interrupted after {ran} of a window of {}", level.window.length());
            return (Self::Partial, Some(because));
        }
        if let Some(because) = held_back(level, window, counted) {
            return (Self::Saturated, Some(because));
        }
        let answered = level.records.iter().filter(|r| r.complete());
        let (answers, short) = answered.fold((0, 0), |(all, short), r| {
            (all + 1_u64, short + u64::from(r.tokens_out.is_some_and(|tokens| tokens < r.asked_out)))
        });
        if level.exact && short as f64 > FORGIVEN_FAILURES * answers as f64 {
            let because = format!(
                "{short} of {answers} answers are shorter than was asked for, so the load was lighter: the server does not heed ignore_eos, or its context is full"
            );
            return (Self::Errors, Some(because));
        }
        if let Some(verdict) = &level.verdict {
            let standing = match verdict.outcome {
                Outcome::Pass => Self::Pass,
                Outcome::Fail => Self::Fail,
                Outcome::Unresolved => Self::Unresolved,
                Outcome::Void => Self::Void,
            };
            return (standing, Some(verdict.because.clone()));
        }
        // Without promises the judge still tells a starved client and a growing queue; no certainty is asked of it.
        let failed = errors.values().sum::<u64>();
        let judged = judge(&level.records, &[], level.course(window), &level.client, Certainty(0.0));
        if judged.outcome == Outcome::Void {
            (Self::Void, Some(judged.because))
        } else if failed as f64 > FORGIVEN_FAILURES * counted as f64 {
            (Self::Errors, Some(format!("{failed} of {counted} requests failed ({})", classes(errors))))
        } else if judged.saturated {
            (Self::Saturated, Some(judged.because))
        } else if counted > 0 && level.offered.is_open_loop() {
            (Self::KeptUp, None)
        } else {
            (Self::Unjudged, None)
        }
    }

    /// Whether the level held; `None` if it does not say.
    pub fn held(self) -> Option<bool> {
        match self {
            Self::Pass | Self::KeptUp => Some(true),
            Self::Fail | Self::Saturated | Self::Errors => Some(false),
            Self::Unresolved | Self::Void | Self::Partial | Self::Unjudged => None,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unresolved => "unresolved",
            Self::Void => "void",
            Self::Partial => "(partial)",
            Self::KeptUp => "kept up",
            Self::Saturated => "saturated",
            Self::Errors => "errors",
            Self::Unjudged => "-",
        }
    }
}

/// Arrivals that a cap on concurrency held back are sent later, and what is sent is no load of that rate. Latencies count from the send.
fn held_back(level: &Level, window: Window, counted: u64) -> Option<String> {
    let (cap, Offered::Rate(rate)) = (level.meta.max_concurrency?, level.offered) else { return None };
    let (asked, sent) = (rate.0 * window.length().0, counted as f64);
    // Beyond what arrivals scatter by chance (three standard deviations of a Poisson count).
    let short = asked - sent > (3.0 * asked.sqrt()).max(HELD_BACK * asked);
    short.then(|| {
        let sends = Rate(sent / window.length().0.max(1e-9));
        format!(
            "--max-concurrency {cap} held arrivals back: {sends} of {rate} were sent, and latencies count from the send"
        )
    })
}

/// Failures by class, such as `3 unavailable, 1 truncated`.
pub(super) fn classes(errors: &BTreeMap<String, u64>) -> String {
    errors.iter().map(|(class, count)| format!("{count} {class}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{WINDOW, at_rate, failed, level, records};
    use super::*;
    use crate::load::{ErrorClass, RequestRecord};

    fn standing(level: &Level) -> Standing {
        super::super::Summary::of(level).standing
    }

    /// One request after the other is answered at 5 a second; at more than that the queue grows.
    fn queueing(rate: f64) -> Vec<RequestRecord> {
        let mut free = 0.0_f64;
        let mut each = |record: RequestRecord| {
            free = free.max(record.due.0) + 0.2;
            RequestRecord { first: Some(Seconds(free - 0.1)), last: Some(Seconds(free)), ..record }
        };
        records(rate, 0.1).into_iter().map(&mut each).collect()
    }

    #[test]
    fn with_promises_the_verdict_speaks() {
        assert_eq!(standing(&at_rate(20.0, 0.1, "ttft_p99=500ms")), Standing::Pass);
        assert_eq!(standing(&at_rate(20.0, 0.9, "ttft_p99=500ms")), Standing::Fail);
    }

    #[test]
    fn without_promises_growing_queues_failures_and_a_starved_client_speak() {
        let rate = Offered::Rate(Rate(10.0));
        assert_eq!(standing(&at_rate(20.0, 0.9, "")), Standing::KeptUp);
        assert_eq!(standing(&level(rate, queueing(12.0), "")), Standing::Saturated);
        assert_eq!(standing(&level(rate, queueing(4.0), "")), Standing::KeptUp);
        let refused = records(10.0, 0.1)
            .into_iter()
            .map(|r| if r.id % 2 == 0 { r } else { failed(r.id, r.due.0, ErrorClass::Unavailable) });
        assert_eq!(standing(&level(rate, refused.collect(), "")), Standing::Errors);
        let late = records(10.0, 0.1).into_iter().map(|r| RequestRecord { sent: Seconds(r.due.0 + 0.05), ..r });
        assert_eq!(standing(&level(rate, late.collect(), "")), Standing::Void);
        assert_eq!(standing(&level(rate, vec![], "")), Standing::Unjudged);
    }

    #[test]
    fn answers_shorter_than_was_asked_for_are_no_load_that_was_kept_up() {
        let short = |level: Level| {
            let records = level.records.into_iter().map(|r| RequestRecord { tokens_out: Some(1), ..r }).collect();
            Level { records, ..level }
        };
        for promises in ["", "ttft_p99=500ms"] {
            assert_eq!(standing(&short(at_rate(20.0, 0.1, promises))), Standing::Errors);
        }
        let free = Level { exact: false, ..short(at_rate(20.0, 0.1, "")) };
        assert_eq!(standing(&free), Standing::KeptUp, "where answers may end by themselves");
    }

    #[test]
    fn arrivals_that_a_cap_holds_back_are_no_load_of_that_rate() {
        for (sent, standing_is) in [(10.0, Standing::Pass), (6.0, Standing::Saturated)] {
            let mut capped = level(Offered::Rate(Rate(10.0)), records(sent, 0.1), "ttft_p99=500ms");
            capped.meta.max_concurrency = Some(8);
            assert_eq!(standing(&capped), standing_is, "{sent} of 10 req/s");
        }
        let mut capped = level(Offered::Rate(Rate(10.0)), records(6.0, 0.1), "");
        capped.meta.max_concurrency = Some(8);
        let says = super::super::Summary::of(&capped).because.unwrap();
        assert!(
            says.starts_with("--max-concurrency 8 held arrivals back: 6.00 req/s of 10.0 req/s were sent"),
            "{says}"
        );
    }

    #[test]
    fn a_closed_loop_without_promises_is_not_judged() {
        assert_eq!(standing(&level(Offered::Users(4), records(10.0, 0.1), "")), Standing::Unjudged);
    }

    #[test]
    fn an_interrupted_level_is_neither_held_nor_broken() {
        let interrupted =
            Level { partial: true, ended: Seconds(WINDOW.from.0 + 4.0), ..at_rate(20.0, 0.9, "ttft_p99=500ms") };
        assert_eq!(standing(&interrupted), Standing::Partial);
        assert_eq!(Standing::Partial.held(), None);
    }
}
