//! One engine against its own earlier outcome: `verify.json`, version 1 of a public format.

use autotune_numerics::Z_95;
use serde::{Deserialize, Serialize};

use super::VERSION;
use super::answer::{interval, signed, word};
use super::cell::{Cell, WindowSeen};
use super::data::{Difference, Equality, MEASURED, SideSeen, equality, known, warnings};
use crate::levels::{CONFIDENCE, Estimate, Found, LevelSearch, LevelWindow, Range};
use crate::report::bench::text::entry;
use crate::report::bench::{Answer, Known, Offered, Summary};
use crate::settings::Limit;
use crate::units::{Rate, Seconds};

/// The limit of the earlier outcome.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Earlier {
    pub limit: Rate,
    /// The standard error of its logarithm.
    pub error: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    pub version: u32,
    pub workload: String,
    pub seed: u64,
    pub seconds: Seconds,
    pub confidence: f64,
    /// The engine of now.
    pub side: SideSeen,
    pub earlier: Earlier,
    /// Its limit now.
    pub now: Answer,
    /// Its levels, by the requests per second that were offered.
    pub levels: Vec<(Rate, Cell)>,
    /// Now over the earlier limit, minus one; `None` if there is no limit between the rates.
    pub difference: Option<Difference>,
    pub equal_within: f64,
    pub equality: Equality,
    /// One sentence for people.
    pub because: String,
    pub warnings: Vec<String>,
}

/// An end of the rates says something from so many windows on.
const SURE_WINDOWS: usize = 3;

impl Verified {
    pub fn of(
        (workload, seed, seconds): (String, u64, Seconds),
        limits: &[Limit],
        (side, windows): (SideSeen, &[WindowSeen]),
        earlier: Earlier,
        equal_within: f64,
    ) -> Self {
        let all: Vec<LevelWindow> = windows.iter().map(WindowSeen::level_window).collect();
        let mut sizes: Vec<f64> = windows.iter().map(WindowSeen::size).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let (lowest, highest) = sizes.first().copied().zip(sizes.last().copied()).unwrap_or_default();
        let range = Range { lowest, highest, whole: false };
        let difference = match LevelSearch::new(range, lowest, 0.0, &all).found() {
            Found::Root(root) => {
                Some(Difference::of(Estimate::of_two((earlier.limit.0, earlier.error), (root.level, root.error))))
            }
            Found::NothingKept | Found::AllKept | Found::NotBracketed => None,
        };
        let mut shown: Vec<Summary> = windows.iter().map(|w| w.summary.clone()).collect();
        shown.sort_by(|a, b| a.offered.size().unwrap_or(0.0).total_cmp(&b.offered.size().unwrap_or(0.0)));
        let known = known(range, &all);
        let now = Answer::of(Offered::Rate(Rate(0.0)), limits, &known, &shown, &MEASURED);
        // Without a limit between the rates, an end of them answers where it lies clear of the earlier limit and several windows say so.
        let sure = |at: f64| sizes.contains(&at) && windows.iter().filter(|w| w.size() == at).count() >= SURE_WINDOWS;
        let lowest_earlier = earlier.limit.0 * (-Z_95 * earlier.error).exp();
        let equality = match (&known, difference.as_ref()) {
            (Known::NothingKept(at), _) if sure(*at) && *at <= lowest_earlier * (1.0 - equal_within) => Equality::Worse,
            (Known::AllKept(at), _) if sure(*at) && *at >= earlier.limit.0 => Equality::SameOrBetter,
            (_, difference) => equality(difference, equal_within),
        };
        let said = difference.as_ref().map_or_else(String::new, |d| {
            format!("the limit differs by {} from {} ({}); ", signed(d.ratio), earlier.limit, interval(d))
        });
        let because = said + &word(equal_within, equality, difference.is_some());
        let cell = |rate: f64| {
            let there: Vec<&WindowSeen> = windows.iter().filter(|w| w.size() == rate).collect();
            (Rate(rate), Cell::of(&there))
        };
        Self {
            version: VERSION,
            workload,
            seed,
            seconds,
            confidence: CONFIDENCE,
            side,
            earlier,
            now,
            levels: sizes.into_iter().map(cell).collect(),
            difference,
            equal_within,
            equality,
            because,
            warnings: warnings(windows, limits),
        }
    }

    /// In 80 columns.
    pub fn text(&self) -> String {
        let mut text = entry("engine", 10, &self.side.what);
        text += &entry("workload", 10, &format!("{}; seed {}", self.workload, self.seed));
        let earlier = self.earlier;
        text += &entry("earlier", 10, &format!("limit {} +-{:.1} %", earlier.limit, earlier.error * 100.0));
        text += &entry("now", 10, &self.now.because);
        text += "\n";
        text += &entry("", 0, &self.because);
        text + &self.warnings.iter().map(|warning| entry("warning", 9, warning)).collect::<String>()
    }
}
