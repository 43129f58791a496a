//! What the engine's counters showed over a probe, so that a report can say why.

use serde::{Deserialize, Serialize};

use autotune_plan::engine::telemetry::EngineSample;
use autotune_records::units::Seconds;

/// So many moments are kept.
const MOMENTS: usize = 120;

/// Peaks of the gauges and differences of the counters over one probe; `None` if the engine does not tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    pub peak_running: Option<f64>,
    pub peak_waiting: Option<f64>,
    /// Largest share of the KV cache seen in use, 0 to 1.
    pub peak_kv_usage: Option<f64>,
    pub preemptions: Option<f64>,
    /// Share of prompt tokens that the prefix cache held, 0 to 1.
    pub prefix_hit_rate: Option<f64>,
    /// Tokens that one step of speculative decoding gives on average: one, and those of its draft that were accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance_length: Option<f64>,
    /// Share of the drafts' tokens that were accepted, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance_rate: Option<f64>,
    /// Events of KV caches that a router of Dynamo took in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_events: Option<f64>,
    /// Requests in the running batch at moments of the probe; none in journals of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<(Seconds, f64)>,
    /// Share of the KV cache in use at these moments; none in journals of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kv_usage: Vec<(Seconds, f64)>,
}

impl Telemetry {
    /// Over samples in the order of their times, which count from the start of the traffic.
    pub fn of(samples: &[(Seconds, EngineSample)]) -> Self {
        let each = || samples.iter().map(|(_, sample)| sample);
        let peak = |value: fn(&EngineSample) -> Option<f64>| each().filter_map(value).reduce(f64::max);
        let rise = |value: fn(&EngineSample) -> Option<f64>| {
            let (first, last) = (each().next().and_then(value)?, each().next_back().and_then(value)?);
            Some((last - first).max(0.0))
        };
        let step = samples.len().div_ceil(MOMENTS).max(1);
        let rounded = |number: f64, digits: f64| (number * digits).round() / digits;
        let moments = |value: fn(&EngineSample) -> Option<f64>| {
            let each = samples.iter().step_by(step);
            each.filter_map(|(at, s)| Some((Seconds(rounded(at.0, 1e3)), rounded(value(s)?, 1e4)))).collect()
        };
        let (queries, hits) = (rise(|s| s.prefix_queries), rise(|s| s.prefix_hits));
        let accepted = rise(|s| s.accepted_tokens);
        let share = |of: Option<f64>| of.filter(|of| *of > 0.0).zip(accepted).map(|(of, accepted)| accepted / of);
        Self {
            peak_running: peak(|s| s.running),
            peak_waiting: peak(|s| s.waiting),
            peak_kv_usage: peak(|s| s.kv_usage),
            preemptions: rise(|s| s.preemptions),
            prefix_hit_rate: queries.zip(hits).filter(|(q, _)| *q > 0.0).map(|(q, h)| h / q),
            acceptance_length: share(rise(|s| s.drafts)).map(|accepted| 1.0 + accepted),
            acceptance_rate: share(rise(|s| s.draft_tokens)),
            kv_events: rise(|s| s.kv_events),
            running: moments(|s| s.running),
            kv_usage: moments(|s| s.kv_usage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_peak_and_counters_rise() {
        let sample = |running, queries, hits| EngineSample {
            running: Some(running),
            prefix_queries: Some(queries),
            prefix_hits: Some(hits),
            ..EngineSample::default()
        };
        let told = [sample(0.0, 100.0, 0.0), sample(9.0, 200.0, 20.0), sample(2.0, 300.0, 50.0)];
        let timed: Vec<_> = told.into_iter().enumerate().map(|(i, sample)| (Seconds(i as f64), sample)).collect();
        let telemetry = Telemetry::of(&timed);
        assert_eq!((telemetry.peak_running, telemetry.prefix_hit_rate), (Some(9.0), Some(0.25)));
        assert_eq!((telemetry.preemptions, telemetry.kv_usage.len(), telemetry.running.len()), (None, 0, 3));
    }

    #[test]
    fn a_step_of_speculation_gives_one_token_and_the_accepted_ones() {
        let told = |drafts, tokens, accepted| {
            let sample = EngineSample {
                drafts: Some(drafts),
                draft_tokens: Some(tokens),
                accepted_tokens: Some(accepted),
                ..EngineSample::default()
            };
            (Seconds(drafts), sample)
        };
        let telemetry = Telemetry::of(&[told(100.0, 300.0, 50.0), told(200.0, 600.0, 200.0)]);
        assert_eq!((telemetry.acceptance_length, telemetry.acceptance_rate), (Some(2.5), Some(0.5)));
        let idle = Telemetry::of(&[told(100.0, 300.0, 50.0), told(100.0, 300.0, 50.0)]);
        assert_eq!((idle.acceptance_length, idle.acceptance_rate), (None, None));
    }

    #[test]
    fn few_moments_of_the_cache_are_kept_of_a_long_probe() {
        let full = |i: u32| (Seconds(i.into()), EngineSample { kv_usage: Some(0.5), ..EngineSample::default() });
        let telemetry = Telemetry::of(&(0..10_000).map(full).collect::<Vec<_>>());
        assert_eq!((telemetry.kv_usage.len(), telemetry.kv_usage[1].0), (MOMENTS, Seconds(84.0)));
    }
}
