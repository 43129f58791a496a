//! The seeds of a session: each stream of draws has a label of its own.

use autotune_workload::mix;

/// What a seed is for. Numbers never change: a resumed session draws what it drew before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedLabel {
    /// Arrivals of the search: the same for every point.
    Arrivals = 1,
    /// Prompts: others in every probe.
    Content = 2,
    /// Traffic that certifies.
    FreshTraffic = 3,
    /// The order of candidates.
    Candidates = 4,
    LongRun = 5,
    StressReplay = 6,
}

impl SeedLabel {
    /// The seed of this stream in the session of that seed, and within it of those parts.
    pub fn of(self, session: u64, parts: &[u64]) -> u64 {
        mix(session, &[&[self as u64], parts].concat())
    }
}
