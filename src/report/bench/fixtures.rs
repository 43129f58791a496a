//! Levels for tests, made without chance.

use super::level::{Level, Meta, Offered};
use crate::load::ClientHealth;
use crate::load::{ErrorClass, RequestRecord};
use crate::rig::{CacheUse, ShareSource, Telemetry};
use crate::settings::{Endpoint, limits};
use crate::units::{Rate, Seconds};
use crate::verdict::{Certainty, Course, Window, judge};

/// A whole answer of `tokens`, due at a time, whose tokens come one by one.
pub(in crate::report) fn answer(id: u32, due: f64, ttft: f64, tokens: u32, gap: f32) -> RequestRecord {
    let first = due + ttft;
    RequestRecord {
        id,
        due: Seconds(due),
        sent: Seconds(due + 0.000_2),
        first: Some(Seconds(first)),
        last: Some(Seconds(first + f64::from(gap) * f64::from(tokens - 1))),
        tokens_in: Some(200),
        tokens_cached: None,
        tokens_out: Some(tokens),
        asked_out: tokens,
        asked_in: 100,
        shared_in: 0,
        error: None,
        turn: None,
        why: None,
        gaps: vec![gap; tokens as usize - 1],
    }
}

/// A request without any token.
pub(in crate::report) fn failed(id: u32, due: f64, class: ErrorClass) -> RequestRecord {
    RequestRecord {
        first: None,
        last: None,
        tokens_in: None,
        tokens_out: None,
        error: Some(class),
        gaps: vec![],
        ..answer(id, due, 0.1, 2, 0.1)
    }
}

/// Two seconds of ramp and a window of ten.
pub(in crate::report) const WINDOW: Window = Window { from: Seconds(2.0), to: Seconds(12.0) };

/// Arrivals at an even rate over ramp and window; first tokens after `ttft` seconds and up to 40 % more, then 19 gaps of 10 ms.
pub(in crate::report) fn records(rate: f64, ttft: f64) -> Vec<RequestRecord> {
    let count = (rate * WINDOW.to.0) as u32;
    let each = |i: u32| answer(i, f64::from(i) / rate, ttft * (1.0 + 0.1 * f64::from(i % 5)), 20, 0.01);
    (0..count).map(each).collect()
}

/// A level of these records, judged where there are limits.
pub(in crate::report) fn level(offered: Offered, records: Vec<RequestRecord>, slo: &str) -> Level {
    let limits = if slo.is_empty() { Vec::new() } else { limits(slo).unwrap() };
    let ended = Seconds(WINDOW.to.0 + 1.0);
    let verdict = (!limits.is_empty()).then(|| {
        judge(
            &records,
            &limits,
            Course { window: WINDOW, ended, complete: true, steady: matches!(offered, Offered::Rate(_)) },
            &ClientHealth::of(&records),
            Certainty(0.6),
        )
    });
    Level {
        offered,
        window: WINDOW,
        ended,
        partial: false,
        verdict,
        limits,
        telemetry: Telemetry {
            peak_running: Some(12.0),
            peak_waiting: Some(3.0),
            peak_kv_usage: Some(0.437),
            preemptions: Some(0.0),
            prefix_hit_rate: Some(0.01),
            ..Telemetry::default()
        },
        client: ClientHealth::of(&records),
        cache: CacheUse {
            reset: true,
            expected_share: Some(0.0),
            measured_share: Some(0.01),
            source: Some(ShareSource::Counters),
        },
        exact: true,
        warnings: vec![],
        meta: Meta {
            url: "http://127.0.0.1:8000".into(),
            model: "tiny".into(),
            endpoint: Endpoint::Completions,
            workload: "random, 200 tokens in, 20 out".into(),
            burstiness: 1.0,
            seed: 7,
            started: 1_795_241_053.0,
            label: None,
            max_concurrency: None,
        },
        records,
    }
}

/// A level at a rate whose requests are all answered.
pub(in crate::report) fn at_rate(rate: f64, ttft: f64, slo: &str) -> Level {
    level(Offered::Rate(Rate(rate)), records(rate, ttft), slo)
}
