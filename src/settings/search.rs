//! `[search]`, `[probe]` and `[budget]`: how the space is searched and what that may cost.

use super::plan::{Budget, ProbePlan, SearchPlan};
use super::reader::Fields;
use crate::units::Rate;

/// How many windows the window of a certifying probe lasts, unless the file says otherwise.
const CERTIFYING_WINDOWS: u32 = 3;

/// The plan of `[search]` without its constraints, which belong to the space; `None` where a value was refused.
pub fn search(fields: &Fields) -> Option<SearchPlan> {
    Some(SearchPlan {
        strategy: fields.word("strategy")?,
        precision: fields.real("precision")?,
        min_gain: fields.real("min_gain")?,
        candidates: fields.integer("candidates")?,
        first_rate: fields.real("first_rate").map(Rate),
        seed: fields.integer("seed")?,
    })
}

/// The plan of `[probe]`; `None` where a value was refused.
pub fn probe(fields: &Fields) -> Option<ProbePlan> {
    let window = fields.time("window")?;
    let certify_window = fields.time("certify_window").unwrap_or(window * CERTIFYING_WINDOWS);
    Some(ProbePlan {
        ramp: fields.time("ramp")?,
        window,
        certify_window,
        twin: fields.switch("twin")?,
        acceptance_length: fields.real("acceptance_length")?,
    })
}

/// The plan of `[budget]`; `None` where a value was refused.
pub fn budget(fields: &Fields) -> Option<Budget> {
    Some(Budget { gpu_time: fields.time("gpu_time")? })
}
