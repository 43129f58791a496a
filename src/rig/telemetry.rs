//! What the engine's counters showed over a probe, so that a report can say why.

use serde::{Deserialize, Serialize};

use crate::engine::telemetry::EngineSample;

/// Peaks of the gauges and differences of the counters over one probe; none where the engine does not tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    pub peak_running: Option<f64>,
    pub peak_waiting: Option<f64>,
    /// Largest share of the KV cache seen in use, 0 to 1.
    pub peak_kv_usage: Option<f64>,
    pub preemptions: Option<f64>,
    /// Share of prompt tokens that the prefix cache held, 0 to 1.
    pub prefix_hit_rate: Option<f64>,
}

impl Telemetry {
    /// Over samples in the order of their times.
    pub fn of(samples: &[EngineSample]) -> Self {
        let peak = |value: fn(&EngineSample) -> Option<f64>| samples.iter().filter_map(value).reduce(f64::max);
        let rise = |value: fn(&EngineSample) -> Option<f64>| {
            let (first, last) = (samples.first().and_then(value)?, samples.last().and_then(value)?);
            Some((last - first).max(0.0))
        };
        let (queries, hits) = (rise(|s| s.prefix_queries), rise(|s| s.prefix_hits));
        Self {
            peak_running: peak(|s| s.running),
            peak_waiting: peak(|s| s.waiting),
            peak_kv_usage: peak(|s| s.kv_usage),
            preemptions: rise(|s| s.preemptions),
            prefix_hit_rate: queries.zip(hits).filter(|(q, _)| *q > 0.0).map(|(q, h)| h / q),
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
        let telemetry = Telemetry::of(&[sample(0.0, 100.0, 0.0), sample(9.0, 200.0, 20.0), sample(2.0, 300.0, 50.0)]);
        assert_eq!((telemetry.peak_running, telemetry.prefix_hit_rate), (Some(9.0), Some(0.25)));
        assert_eq!(telemetry.preemptions, None);
    }
}
