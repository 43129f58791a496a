//! What real engines have and the twin lacks, so that simulated engines can be unlike the twin that judges them.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::costs::StepCosts;

/// Steps shorter than this hide next to nothing, in seconds.
const SHORT: f64 = 0.05;

/// Parts of an engine that no coefficient of [`StepCosts`] stands for. A part that is zero is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Foreign {
    /// Every batch of this many sequences that get a token costs a tile more.
    pub tile: u32,
    /// Seconds of a tile.
    pub tile_seconds: f64,
    /// The part, 0 to 1, of what a very long step takes beyond two bases that hides; shorter steps hide less.
    pub hidden: f64,
    /// The share of steps, 0 to 1, whose tokens are handed over with those of the next step.
    pub late: f64,
}

impl Foreign {
    /// Nothing that the twin lacks.
    pub const NONE: Self = Self { tile: 0, tile_seconds: 0.0, hidden: 0.0, late: 0.0 };

    /// Seconds of a step that the twin says takes `seconds`, in which so many sequences get a token.
    pub fn seconds(&self, seconds: f64, costs: &StepCosts, emitted: u64) -> f64 {
        let tiles = emitted.checked_div(u64::from(self.tile)).unwrap_or(0) as f64;
        let long = (seconds - 2.0 * costs.base).max(0.0);
        seconds + self.tile_seconds * tiles - self.hidden * long * long / (long + SHORT)
    }

    /// Which steps hand their tokens over late, drawn from that seed.
    pub fn lateness(&self, seed: u64) -> Lateness {
        Lateness((self.late > 0.0).then(|| (self.late, ChaCha8Rng::seed_from_u64(seed))))
    }
}

/// Which steps hand their tokens over late, one after the other.
#[derive(Clone, Debug)]
pub struct Lateness(Option<(f64, ChaCha8Rng)>);

impl Lateness {
    /// Whether the tokens of this step come with those of the next.
    pub fn holds_back(&mut self) -> bool {
        self.0.as_mut().is_some_and(|(late, rng)| rng.random::<f64>() < *late)
    }
}

#[cfg(test)]
mod tests {
    use super::super::costs::NO_COSTS;
    use super::*;

    const COSTS: StepCosts = StepCosts { base: 0.01, ..NO_COSTS };

    #[test]
    fn nothing_foreign_changes_nothing() {
        assert_eq!(Foreign::NONE, Foreign::default());
        assert_eq!(Foreign::NONE.seconds(0.123, &COSTS, 77), 0.123);
        let mut lateness = Foreign::NONE.lateness(1);
        assert!((0..1000).all(|_| !lateness.holds_back()));
    }

    #[test]
    fn tiles_add_and_long_steps_hide_a_part() {
        let tiles = Foreign { tile: 24, tile_seconds: 0.001, ..Foreign::NONE };
        for (emitted, seconds) in [(23, 0.02), (24, 0.021), (50, 0.022)] {
            assert!((tiles.seconds(0.02, &COSTS, emitted) - seconds).abs() < 1e-12);
        }
        let hides = Foreign { hidden: 0.2, ..Foreign::NONE };
        assert_eq!(hides.seconds(0.02, &COSTS, 1), 0.02);
        let long = hides.seconds(10.02, &COSTS, 1);
        assert!((8.0..8.1).contains(&long), "a fifth of ten seconds hides: {long}");
    }

    #[test]
    fn so_many_steps_are_late_and_the_same_with_the_same_seed() {
        let foreign = Foreign { late: 0.1, ..Foreign::NONE };
        let late = |seed| {
            let mut lateness = foreign.lateness(seed);
            (0..10_000).map(|_| lateness.holds_back()).collect::<Vec<_>>()
        };
        let count = late(1).iter().filter(|late| **late).count();
        assert!((900..1100).contains(&count), "{count}");
        assert_eq!(late(1), late(1));
        assert_ne!(late(1), late(2));
    }
}
