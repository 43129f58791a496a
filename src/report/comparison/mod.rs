//! The results of `autotune compare`: from the windows of both sides to each side's limit, the difference, a table, JSON and TSV.
//!
//! Pure, and by the rules of `bench`. A percentage stands only where both sides have a limit between levels that were measured.

mod answer;
mod cell;
mod data;
mod setup;
mod table;
mod tsv;
mod verified;

pub(super) use answer::{interval, signed};
pub use cell::{Cell, TurnSeen, WindowSeen};
pub use data::{Comparison, Difference, Equality, LevelCompared, Seen, SideSeen};
pub use setup::{Differing, Facts, facts};
pub use table::compared;
pub(super) use table::told_by_turn;
pub use tsv::tsv;
pub use verified::{Earlier, Verified};

/// The version of `compare.json` and `compare.tsv`.
const VERSION: u32 = 1;
/// How the sides are called.
pub const NAMES: [&str; 2] = ["A", "B"];
