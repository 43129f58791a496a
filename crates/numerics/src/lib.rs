//! What the twin, the verdicts and the search compute with. Nothing here knows what an engine is.

pub mod bisection;
pub mod linear;
pub mod overlap;
pub mod parallel;
pub mod repeatable;
pub mod seeds;
pub mod simplex;
pub mod spread;
