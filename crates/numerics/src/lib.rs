//! What the twin, the verdicts and the search compute with. Nothing here knows what an engine is.

pub mod bisection;
pub mod linear;
pub mod overlap;
pub mod parallel;
pub mod repeatable;
pub mod seeds;
pub mod simplex;
pub mod spread;

/// The 0.95 quantile of the standard normal distribution. An interval of this many standard errors to each side holds 90 %.
pub const Z_95: f64 = 1.645;

/// A number as it is up to the size of `knee`, and beyond that bent to an end `rest` further.
pub fn bent(number: f64, knee: f64, rest: f64) -> f64 {
    let past = number.abs() - knee;
    if past <= 0.0 { number } else { number.signum() * (knee + rest * (past / rest).tanh()) }
}
