use super::*;
use autotune_load::{ErrorClass, Open, Tick, Watch};

const WINDOW: Window = Window { from: Seconds(2.0), to: Seconds(22.0) };

fn course(ended: f64, complete: bool) -> Course {
    Course { window: WINDOW, ended: Seconds(ended), complete, steady: true }
}

fn limits() -> Vec<Limit> {
    vec![
        Limit { metric: Metric::Ttft, quantile: 0.99, at_most: Seconds(0.3) },
        Limit { metric: Metric::Tpot, quantile: 0.99, at_most: Seconds(0.015) },
    ]
}

/// A request due at `due` with that TTFT and TPOT, 11 tokens long.
fn answered(due: f64, ttft: f64, tpot: f64) -> RequestRecord {
    let (id, first) = ((due * 1000.0) as u32, due + ttft);
    let whole = RequestRecord::answered(id, due, first, first + 10.0 * tpot, 100, 11);
    RequestRecord { sent: Seconds(due + 0.0002), gaps: vec![tpot as f32; 10], ..whole }
}

/// Fifty requests a second over ramp and window; `spoil` may change each.
fn traffic(mut spoil: impl FnMut(usize, &mut RequestRecord)) -> Vec<RequestRecord> {
    (0..1100)
        .map(|i| {
            let mut record = answered(i as f64 * 0.02, 0.1 + 0.001 * (i % 37) as f64, 0.005 + 0.0001 * (i % 23) as f64);
            spoil(i, &mut record);
            record
        })
        .collect()
}

fn judged(records: &[RequestRecord], complete: bool) -> Verdict {
    judge(records, &limits(), course(23.0, complete), &ClientHealth::default(), Certainty(0.8))
}

/// Judged by other limits, at full length.
fn judged_by(limits: &[Limit], records: &[RequestRecord]) -> Verdict {
    judge(records, limits, course(60.0, true), &ClientHealth::default(), Certainty(0.8))
}

#[test]
fn what_holds_at_full_length_passes_and_cut_short_does_not() {
    let verdict = judged(&traffic(|_, _| {}), true);
    assert_eq!(verdict.outcome, Outcome::Pass, "{}", verdict.because);
    assert_eq!(verdict.counted, 1000);
    assert!((verdict.offered.0 - 50.0).abs() < 1e-9);
    assert!(verdict.confidence > 0.99);
    assert_eq!(verdict.binding.as_deref(), Some("tpot_p99"));
    assert_eq!(judged(&traffic(|_, _| {}), false).outcome, Outcome::Unresolved);
}

#[test]
fn the_ramp_counts_for_nothing() {
    let slow_ramp = traffic(|i, r| {
        if i < 100 {
            *r = answered(r.due.0, 5.0, 0.005);
        }
    });
    assert_eq!(judged(&slow_ramp, true).outcome, Outcome::Pass);
}

#[test]
fn eleven_slow_of_a_thousand_break_a_p99_and_ten_do_not() {
    let slow = |count: usize| {
        let records = traffic(|i, r| {
            if i >= 100 && (i - 100) % 90 == 0 && (i - 100) / 90 < count {
                *r = answered(r.due.0, 3.0, 0.005);
            }
        });
        judged(&records, true).limits[0].clone()
    };
    assert_eq!(slow(10).violations, 10);
    assert!(slow(10).margin.unwrap() < 0.0);
    assert_eq!(slow(11).violations, 11);
    assert!(slow(11).margin.unwrap() > 0.0);
}

#[test]
fn every_kind_of_failed_request_is_a_violation_of_every_promise() {
    for class in [ErrorClass::Connection, ErrorClass::Unavailable, ErrorClass::InStream, ErrorClass::Truncated] {
        let records = traffic(|i, r| {
            if i % 20 == 0 {
                (r.error, r.first, r.last, r.tokens_out) = (Some(class), None, None, None);
            }
        });
        let verdict = judged(&records, true);
        assert_eq!(verdict.outcome, Outcome::Fail, "{class:?}");
        assert!(verdict.limits.iter().all(|l| l.violations == 50 && l.measured.is_none()));
        assert_eq!(verdict.errors.get(class.name()), Some(&50));
    }
    // A run in which everything failed is no record.
    let records = traffic(|_, r| (r.error, r.first, r.last) = (Some(ErrorClass::Connection), None, None));
    let verdict = judged(&records, true);
    assert_eq!((verdict.outcome, verdict.achieved.0), (Outcome::Fail, 0.0));
}

#[test]
fn slow_requests_of_one_burst_leave_a_verdict_unresolved_that_scattered_ones_would_not() {
    // Nine slow ones of 1000 keep the promise in the count; if they are one burst, another window could hold two bursts.
    let burst = traffic(|i, r| {
        if (500..509).contains(&i) {
            *r = answered(r.due.0, 0.9, 0.005);
        }
    });
    let verdict = judged(&burst, true);
    assert!(verdict.limits[0].violations == 9 && verdict.limits[0].margin.unwrap() < 0.0);
    assert!(verdict.limits[0].margin_error.unwrap() >= 0.03);
}

#[test]
fn a_growing_queue_is_saturation_even_inside_the_limits() {
    let generous = vec![Limit { metric: Metric::Ttft, quantile: 0.99, at_most: Seconds(1000.0) }];
    let records = traffic(|_, r| *r = answered(r.due.0, 0.05 + r.due.0 * 0.8, 0.005));
    let verdict = judged_by(&generous, &records);
    assert!(verdict.saturated, "{verdict:?}");
    assert_eq!(verdict.outcome, Outcome::Fail);
    assert!(verdict.achieved.0 < verdict.offered.0);
}

/// The same traffic before a server that begins so many answers a second, one after the other; their times per token by number.
fn queued(capacity: f64, tpot: impl Fn(usize) -> f64) -> Vec<RequestRecord> {
    let mut free = 0.0_f64;
    traffic(|i, r| {
        free = free.max(r.due.0) + 1.0 / capacity;
        *r = answered(r.due.0, free - r.due.0, tpot(i));
    })
}

#[test]
fn a_queue_that_a_promise_does_not_see_is_saturation_all_the_same() {
    // Five requests a second are done of the fifty that come, each token on time: the ramp has filled the queue long before the window.
    let tpot_alone = &limits()[1..];
    let records = queued(5.0, |_| 0.005);
    let verdict = judge(&records, tpot_alone, course(300.0, true), &ClientHealth::default(), Certainty(0.5));
    assert_eq!(verdict.limits[0].violations, 0);
    assert_eq!(verdict.outcome, Outcome::Fail, "{}", verdict.because);
}

#[test]
fn an_overload_of_a_fifth_is_saturation_where_no_promise_tells() {
    let saturated = |served: f64| judged_by(&[], &queued(served, |_| 0.005)).saturated;
    assert!(saturated(41.0) && !saturated(51.0));
}

#[test]
fn a_queue_that_grows_tells_the_rate_that_was_served() {
    // Fifty requests a second come, and each answer takes a few seconds, some of them half of the window.
    let served = |capacity: f64| judged_by(&[], &queued(capacity, |i| if i % 20 == 0 { 1.0 } else { 0.3 })).served;
    assert!(served(45.0).is_some_and(|rate| (rate.0 - 45.0).abs() < 0.5), "{:?}", served(45.0));
    assert_eq!(served(51.0), None);
    // Three requests more that wait are chance.
    assert_eq!(served(49.85), None);
}

#[test]
fn long_answers_and_users_in_step_are_no_saturation() {
    let tpot_alone = &limits()[1..];
    let judged = |records: &[RequestRecord], steady: bool| {
        let course = Course { steady, ..course(60.0, true) };
        judge(records, tpot_alone, course, &ClientHealth::default(), Certainty(0.5))
    };
    // Each answer takes fifteen of the window's twenty seconds: what is in flight still rises at the middle, at any rate.
    let long = traffic(|_, r| *r = RequestRecord { tokens_out: Some(3001), ..answered(r.due.0, 0.1, 1.5) });
    assert!(!judged(&long, true).saturated);
    // A closed loop's users begin together, and ask again together.
    let in_step = traffic(|i, r| {
        let round = if i < 550 { 2.5 } else { 21.0 };
        *r = answered(round, 0.1, 0.005);
        r.last = Some(Seconds(round + 8.0));
    });
    assert!(!judged(&in_step, false).saturated);
    // Failed requests are in nobody's way.
    let failing = traffic(|i, r| {
        if i % 3 == 0 {
            (r.error, r.first, r.last) = (Some(ErrorClass::Unavailable), None, None);
        }
    });
    assert!(!judged(&failing, true).saturated);
}

#[test]
fn a_lagging_client_voids_the_probe_instead_of_blaming_the_engine() {
    let judged = |client: ClientHealth| {
        judge(&traffic(|_, _| {}), &limits(), course(23.0, true), &client, Certainty(0.8)).outcome
    };
    let client = ClientHealth { lag_p99: Seconds(0.002), backlog_p99: Some(Seconds(0.002)), ..ClientHealth::default() };
    assert_eq!(judged(client), Outcome::Pass);
    assert_eq!(judged(ClientHealth { lag_p99: Seconds(0.05), ..client }), Outcome::Void);
    let late = ClientHealth { backlog_p99: Some(Seconds(0.05)), ..client };
    assert_eq!(judged(late), Outcome::Void);
    let says = judge(&traffic(|_, _| {}), &limits(), course(23.0, true), &late, Certainty(0.8)).because;
    assert!(says.starts_with("this client read answers late by 50.0 ms (p99), more than "), "{says}");
}

#[test]
fn a_cut_request_violates_only_what_its_wait_proves() {
    let waiting = |due: f64, first: Option<f64>| RequestRecord {
        first: first.map(Seconds),
        last: None,
        tokens_out: None,
        gaps: vec![],
        error: Some(ErrorClass::Cut),
        ..answered(due, 0.0, 0.0)
    };
    // The probe ended at 23 s: one waited 1 s without a token, one 0.1 s, one streams its 11 tokens far too slowly.
    let records = [waiting(22.0 - 1e-9, None), waiting(21.9, Some(21.95)), waiting(21.0, Some(21.1))];
    let verdict = judge(&records, &limits(), course(22.2, false), &ClientHealth::default(), Certainty(0.8));
    let counted = |place: usize| (verdict.limits[place].observations, verdict.limits[place].violations);
    assert_eq!(counted(0), (2, 0), "0.2 s is within 0.3 s: unknown");
    assert_eq!(counted(1), (2, 2));
}

#[test]
fn a_watch_cuts_once_the_planned_length_cannot_absorb_more() {
    let mut watch = Counter::new(&limits(), WINDOW, Rate(50.0), 11.0, Slack::default());
    let none = &mut std::iter::empty();
    assert_eq!(watch.tick(Seconds(3.0), none), Tick::Continue);
    for i in 0..11 {
        watch.ended(&answered(3.0 + i as f64, 3.0, 0.005));
    }
    assert_eq!(watch.tick(Seconds(14.0), none), Tick::Continue, "1000 requests absorb ten, and 10 % more may come");
    // Requests that wait past their limit count at once.
    let open = |count: usize| vec![Open { due: Seconds(13.0), first: None, asked_out: 11 }; count];
    assert_eq!(watch.tick(Seconds(13.2), &mut open(20).into_iter()), Tick::Continue, "not past it yet");
    assert_eq!(watch.tick(Seconds(14.0), &mut open(20).into_iter()), Tick::Decided);
}

#[test]
fn slack_bears_slow_answers_and_no_failures() {
    let none = &mut std::iter::empty();
    let mut patient = Counter::new(&limits(), WINDOW, Rate(50.0), 11.0, Slack(3.0));
    (0..30).for_each(|i| patient.ended(&answered(3.0 + f64::from(i) * 0.1, 3.0, 0.005)));
    assert_eq!(patient.tick(Seconds(14.0), none), Tick::Continue, "more than ten, fewer than thirty-three");
    patient.ended(&RequestRecord { error: Some(ErrorClass::Truncated), ..answered(9.0, 0.1, 0.005) });
    assert_eq!(patient.tick(Seconds(14.0), none), Tick::Decided, "a failure ends the patience");
}

#[test]
fn a_drain_ends_when_nobody_can_tell_anything_more() {
    let mut watch = Counter::new(&limits(), WINDOW, Rate(50.0), 11.0, Slack::default());
    let streaming = Open { due: Seconds(21.9), first: Some(Seconds(22.0)), asked_out: 11 };
    assert_eq!(watch.tick(Seconds(22.1), &mut [streaming].into_iter()), Tick::Continue);
    assert_eq!(watch.tick(Seconds(22.2), &mut [streaming].into_iter()), Tick::Settled, "its TPOT limit has passed");
}

#[test]
fn a_soak_ends_when_every_answer_has_begun_and_not_before() {
    // At this length and rate a promise absorbs no violation at all.
    let at_once = Window { from: Seconds(0.0), to: Seconds(0.064) };
    let soak = || Counter::new(&limits(), at_once, Rate(1000.0), 11.0, Slack::UNBOUNDED);
    let waiting = Open { due: Seconds(0.01), first: None, asked_out: 1000 };
    let begun = Open { first: Some(Seconds(9.0)), ..waiting };
    let (mut to_the_end, mut watch) = (soak(), soak().awaiting(Awaited::Begun));
    assert_eq!(watch.tick(Seconds(9.5), &mut [begun, waiting].into_iter()), Tick::Continue, "one still waits");
    assert_eq!(watch.tick(Seconds(9.5), &mut [begun, begun].into_iter()), Tick::Settled);
    assert_eq!(to_the_end.tick(Seconds(9.5), &mut [begun, begun].into_iter()), Tick::Continue, "answers are wanted");
}

#[test]
fn a_key_says_whether_its_promise_includes_waiting() {
    for (key, waits) in
        [("ttft_p99", true), ("ttft_p99_9", true), ("e2e_p95", true), ("tpot_p99", false), ("itl_p50", false)]
    {
        assert_eq!(fixtures::counted(key).includes_waiting(), waits, "{key}");
    }
}

#[test]
fn a_latency_of_a_long_run_stands_beside_a_measured_one_on_the_other_side_of_the_limit() {
    let mut limit = fixtures::counted("ttft_p99");
    for (margin, says) in
        [(-0.1, "ttft_p99 90.5 ms in a long run (120 ms measured) of 100 ms"), (0.1, "ttft_p99 111 ms of 100 ms")]
    {
        limit.paired = Some(fixtures::paired("ttft_p99", margin, 0.1, 0.9, paired::Judge::Paired));
        assert_eq!(limit.beside_its_limit(), says);
    }
}
