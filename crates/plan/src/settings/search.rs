//! `[search]`, `[probe]` and `[budget]`: how the space is searched and what that may cost.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::declared::plan;
use super::format::{Key, Kind, POSITIVE_TIME, Table, Variant};
use super::reader::Fields;
use autotune_records::units::Rate;

plan! {
    /// `[search]`, without its constraints, which belong to the space.
    pub struct SearchPlan of &[], rows SEARCH_ROWS {
        /// How points are proposed: by a model, or without one by bisection.
        strategy: StrategyKind = [Key::default(Kind::Word(&["bayes", "bisect"]), "\"bayes\"")];
        /// Refinement of the maximum rate ends at this standard error.
        precision: f64 = [Key::default(Kind::Share { min: 0.001, max: 0.5 }, "\"3%\"")];
        /// How much more than the incumbent a candidate must promise. A winner that may gain nothing must be expected to gain as much over the defaults.
        min_gain: f64 = [Key::default(Kind::Share { min: 0.0, max: 0.5 }, "\"1%\"")];
        /// At most this many candidates are launched.
        candidates: u32 = [Key::default(Kind::Integer { min: 1, max: 10_000 }, "24")];
        /// The first rate at the baseline in requests per second; without it the warm-up tells.
        first_rate: Option<Rate> = [Key::optional(Kind::Positive)];
        /// The seed of every draw.
        seed: u64 = [Key::default(Kind::Integer { min: 0, max: i64::MAX }, "1")];
    }
}

const CONSTRAINTS: &str =
    "Comparisons between parameters that every point keeps; with `or` between some, one of them is enough.";
pub static SEARCH: Table = Table {
    variant: Variant::None,
    rows: &[SEARCH_ROWS, &[Key::default(Kind::Texts { at_least: 0 }, "[]").named("constraints", CONSTRAINTS)]],
};

plan! {
    /// `[probe]`: the lengths of a probe, and how its verdict is found.
    #[derive(Copy)]
    pub struct ProbePlan of &[], rows PROBE_ROWS {
        /// Traffic before anything counts.
        ramp: Duration = [Key::default(Kind::Time { zero: true }, "\"10s\"")];
        /// The time whose arrivals count.
        window: Duration = [Key::default(POSITIVE_TIME, "\"60s\"")];
        /// The window of a certifying probe; without it three times `window`.
        certify_window: Duration = [Key::optional(POSITIVE_TIME)], read by certify_window;
        /// Whether a model of the engine, fitted to the probes, takes the luck of their arrivals out; without it violations are counted.
        twin: bool where serde(default = "yes") = [Key::default(Kind::Switch, "true")];
        /// Tokens that a step must give in the mean at a point that drafts tokens otherwise than the baseline; with fewer its trial ends. 1 or less asks for nothing.
        acceptance_length: f64 where serde(default = "least_acceptance_length") = [Key::default(Kind::Positive, "1.1")];
    }
}

/// The default of [`ProbePlan::acceptance_length`], for journals of earlier versions.
fn least_acceptance_length() -> f64 {
    1.1
}

pub static PROBE: Table = Table { variant: Variant::None, rows: &[PROBE_ROWS] };

fn certify_window(fields: &Fields) -> Option<Duration> {
    fields.get("certify_window").or_else(|| Some(3 * fields.get::<Duration>("window")?))
}

fn yes() -> bool {
    true
}

plan! {
    /// What the search may cost.
    pub struct Budget of &[], rows BUDGET_ROWS {
        /// How long engines may be up in all, starts and stops included.
        gpu_time: Duration = [Key::default(POSITIVE_TIME, "\"90m\"")];
    }
}

pub static BUDGET: Table = Table { variant: Variant::None, rows: &[BUDGET_ROWS] };

/// The strategies that propose points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StrategyKind {
    /// A model of the margins, the fitted twin and a Gaussian process for what it gets wrong: the largest expected gain per second.
    Bayes,
    /// Quasi-random points, each raced at the incumbent's rate and bisected where it wins.
    Bisect,
}

impl StrategyKind {
    /// Every strategy, in the order of the documentation.
    pub const ALL: [Self; 2] = [Self::Bayes, Self::Bisect];

    /// The word of the space file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bayes => "bayes",
            Self::Bisect => "bisect",
        }
    }
}
