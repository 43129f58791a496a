//! Whether the twin of a probe was like its engine: what both say of the batch, the cache and preemptions. Only then has it a say.

use std::fmt;

use crate::rig::Telemetry;
use crate::twin::{FastReplay, Probe, StepCosts};

/// The engine is asked now and then, its twin knows every step: peaks differ by this share, or by so many requests. On thirteen probes of a 70B
/// engine they differed by two requests, by three points of the cache, and by one preemption of 34 (`benches/recorded.rs`).
const RUNNING: (f64, f64) = (0.15, 5.0);
/// And by so much of the KV cache: blocks, documents that are still computed, and sequences that have just ended take room.
const CACHE: f64 = 0.1;

/// Figures of an engine over a probe, each beside that of its twin; none where the engine does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Likeness {
    /// The most requests that ran at once.
    pub running: Option<(f64, f64)>,
    /// The largest share of the KV cache in use, 0 to 1.
    pub cache: Option<(f64, f64)>,
    pub preemptions: Option<(f64, f64)>,
}

impl Likeness {
    /// Of a probe and what its engine told, for a twin with those costs.
    pub fn of(probe: &Probe, told: &Telemetry, costs: &StepCosts) -> Self {
        let bounds = probe.bounds();
        let pressure = FastReplay::default().run(costs, bounds, &probe.sent_by_conversation(), &mut Vec::new());
        let held = bounds.kv_tokens.map(|kv| pressure.most_held as f64 / kv.max(1) as f64);
        Self {
            running: told.peak_running.map(|engine| (engine, pressure.most_running as f64)),
            cache: told.peak_kv_usage.zip(held),
            preemptions: told.preemptions.map(|engine| (engine, pressure.preemptions as f64)),
        }
    }

    /// In what the twin is not like the engine, if it is not.
    pub fn lacks(&self) -> Option<String> {
        let running = self.running.filter(|(engine, twin)| {
            let apart = (engine - twin).abs();
            apart > RUNNING.0 * engine.max(*twin) && apart > RUNNING.1
        });
        if let Some((engine, twin)) = running {
            return Some(format!("the engine ran {engine:.0} requests at once, its twin {twin:.0}"));
        }
        let (engine, twin) = self.cache.filter(|(engine, twin)| (engine - twin).abs() > CACHE)?;
        let percent = |share: f64| share * 100.0;
        Some(format!("the engine filled {:.0} % of its KV cache, its twin {:.0} %", percent(engine), percent(twin)))
    }
}

impl fmt::Display for Likeness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("engine and twin:")?;
        let mut comma = "";
        for (what, figures, unit) in [
            ("running at most", self.running, ""),
            ("KV cache in use", self.cache.map(|(engine, twin)| (engine * 100.0, twin * 100.0)), " %"),
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
        let like = Likeness { running: Some((62.0, 58.0)), cache: Some((0.69, 0.6)), preemptions: Some((0.0, 0.0)) };
        assert_eq!(like.lacks(), None);
        let says = "engine and twin: running at most 62 and 58, KV cache in use 69 % and 60 %, preempted 0 and 0";
        assert_eq!(like.to_string(), says);
        let empty = Likeness { cache: Some((0.3, 0.7)), ..like };
        assert!(empty.lacks().unwrap().contains("filled 30 % of its KV cache, its twin 70 %"));
        let crowded = Likeness { running: Some((62.0, 120.0)), ..like };
        assert!(crowded.lacks().unwrap().contains("ran 62 requests at once, its twin 120"));
        assert_eq!(Likeness { running: Some((2.0, 6.0)), ..Likeness::default() }.lacks(), None, "too few to tell");
    }
}
