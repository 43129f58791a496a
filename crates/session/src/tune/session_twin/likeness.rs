//! Compares gauges of the engine and of its twin in one probe. If running requests or the KV cache in use differ too much, the plain count decides.

use std::fmt;

use crate::rig::{FIRST_SAMPLE, SAMPLE_EVERY, Telemetry};
use autotune_numerics::spread::{mean, squares};
use autotune_records::units::Seconds;
use autotune_twin::{FastReplay, Probe, StepCosts};

/// The running requests of the twin may differ from the engine's by the larger of this share and this many requests. On thirteen probes of a 70B
/// engine peaks differed by two requests, by three points of the cache, and by one preemption of 34 (`benches/recorded.rs`).
const RUNNING: (f64, f64) = (0.15, 5.0);
/// And so much of the KV cache: blocks, documents that are still computed, and sequences that have just ended take room.
const CACHE: f64 = 0.1;
/// A difference counts as far as it is larger than so many of its standard errors. A window of seconds has few readings.
const ERRORS: f64 = 2.0;

/// A figure of the engine beside that of its twin, read at the same moments. Both are means, or the largest where a journal holds no other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    pub engine: f64,
    pub twin: f64,
    /// The standard error of their difference; infinite where readings are too few to have one.
    error: f64,
}

impl Compared {
    fn of(engine: &[(Seconds, f64)], peak: Option<f64>, twin: &[f64]) -> Option<Self> {
        if engine.is_empty() {
            return peak.map(|engine| Self { engine, twin: twin.iter().copied().fold(0.0, f64::max), error: 0.0 });
        }
        let engine: Vec<f64> = engine.iter().map(|(_, value)| *value).collect();
        let differences: Vec<f64> = engine.iter().zip(twin).map(|(engine, twin)| engine - twin).collect();
        let n = differences.len() as f64;
        let error = if n > 1.0 { (squares(&differences) / (n - 1.0) / n).sqrt() } else { f64::INFINITY };
        Some(Self { engine: mean(&engine), twin: mean(&engine) - mean(&differences), error })
    }

    /// How far apart they surely are.
    fn apart(&self) -> f64 {
        (self.engine - self.twin).abs() - ERRORS * self.error
    }
}

/// When gauges were read over a probe, for journals of earlier versions, which hold the largest readings alone.
fn reading_moments(probe: &Probe) -> Vec<f64> {
    let end = probe.requests().iter().filter_map(|r| r.last).map(|last| last.0).fold(0.0, f64::max);
    std::iter::successors(Some(FIRST_SAMPLE.as_secs_f64()), |at| Some(at + SAMPLE_EVERY.as_secs_f64()))
        .take_while(|at| *at <= end)
        .collect()
}

/// Figures of an engine over a probe, each beside that of its twin; `None` if the engine does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Likeness {
    /// Requests that ran at once.
    pub running: Option<Compared>,
    /// The share of the KV cache in use, 0 to 1.
    pub cache: Option<Compared>,
    pub preemptions: Option<(f64, f64)>,
}

impl Likeness {
    /// Of a probe and what its engine told, for a twin with those costs. The twin's gauges are read at the moments at which the engine's were. A
    /// batch that changes within milliseconds has peaks that readings two seconds apart do not see.
    pub fn of(probe: &Probe, told: &Telemetry, costs: &StepCosts) -> Self {
        let bounds = probe.bounds();
        let series = if told.running.is_empty() { &told.kv_usage } else { &told.running };
        let moments = match series.is_empty() {
            true => reading_moments(probe),
            false => series.iter().map(|(at, _)| at.0).collect(),
        };
        let (pressure, readings) =
            FastReplay::default().readings(costs, bounds, &probe.sent_by_conversation(), moments);
        let running: Vec<f64> = readings.iter().map(|r| r.running).collect();
        let held = |kv: u64| readings.iter().map(|r| (r.held / kv.max(1) as f64).min(1.0)).collect::<Vec<f64>>();
        let running = Compared::of(&told.running, told.peak_running, &running);
        let cache = bounds.kv_tokens.and_then(|kv| Compared::of(&told.kv_usage, told.peak_kv_usage, &held(kv)));
        let preemptions = told.preemptions.map(|engine| (engine, pressure.preemptions as f64));
        Self { running, cache, preemptions }
    }

    /// In what the twin is not like the engine, if it is not.
    pub fn lacks(&self) -> Option<String> {
        let differs = |c: &Compared| c.apart() > RUNNING.0 * c.engine.max(c.twin) && c.apart() > RUNNING.1;
        if let Some(Compared { engine, twin, .. }) = self.running.filter(differs) {
            return Some(format!("the engine ran {engine:.0} requests at once, its twin {twin:.0}"));
        }
        let Compared { engine, twin, .. } = self.cache.filter(|cache| cache.apart() > CACHE)?;
        let percent = |share: f64| share * 100.0;
        Some(format!("the engine filled {:.0} % of its KV cache, its twin {:.0} %", percent(engine), percent(twin)))
    }
}

impl fmt::Display for Likeness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("engine and twin:")?;
        let mut comma = "";
        for (what, figures, unit) in [
            ("running", self.running.map(|c| (c.engine, c.twin)), ""),
            ("KV cache in use", self.cache.map(|c| (c.engine * 100.0, c.twin * 100.0)), " %"),
            ("preempted", self.preemptions, ""),
        ] {
            if let Some((engine, twin)) = figures {
                write!(f, "{comma} {what} {engine:.0}{unit} and {twin:.0}{unit}")?;
                comma = ",";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_that_is_like_its_engine_lacks_nothing_and_another_says_what() {
        let compared = |engine, twin| Compared::of(&[], Some(engine), &[twin]);
        let like =
            Likeness { running: compared(62.0, 58.0), cache: compared(0.69, 0.6), preemptions: Some((0.0, 0.0)) };
        assert_eq!(like.lacks(), None);
        let says = "engine and twin: running 62 and 58, KV cache in use 69 % and 60 %, preempted 0 and 0";
        assert_eq!(like.to_string(), says);
        let empty = Likeness { cache: compared(0.3, 0.7), ..like };
        assert!(empty.lacks().unwrap().contains("filled 30 % of its KV cache, its twin 70 %"));
        let crowded = Likeness { running: compared(62.0, 120.0), ..like };
        assert!(crowded.lacks().unwrap().contains("ran 62 requests at once, its twin 120"));
        assert_eq!(Likeness { running: compared(2.0, 6.0), ..Likeness::default() }.lacks(), None, "too few to tell");
    }
    #[test]
    fn few_readings_tell_a_difference_only_where_it_is_larger_than_their_spread() {
        let readings = |values: &[f64]| values.iter().map(|v| (Seconds(1.0), *v)).collect::<Vec<_>>();
        let cache = |engine: &[f64], twin: &[f64]| Likeness {
            cache: Compared::of(&readings(engine), None, twin),
            ..Likeness::default()
        };
        // A window of six seconds of an engine whose batch turns over three times a second.
        let noisy = cache(&[0.0, 0.56, 0.39, 0.55, 0.38, 0.0], &[0.0, 0.31, 0.72, 0.62, 0.79, 0.0]);
        assert_eq!(noisy.lacks(), None);
        let unlike = cache(&[0.0, 0.26, 0.29, 0.25, 0.28, 0.27], &[0.0, 0.61, 0.72, 0.62, 0.79, 0.7]);
        assert!(unlike.lacks().unwrap().contains("filled 22 % of its KV cache, its twin 57 %"), "{:?}", unlike.lacks());
        assert_eq!(cache(&[0.2], &[0.9]).lacks(), None, "one reading says nothing");
    }
}
