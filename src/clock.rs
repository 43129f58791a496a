//! The only place that reads a clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "this is the clock that everything else is given")]
pub fn now() -> Instant {
    Instant::now()
}

/// Seconds since the Unix epoch, for stamps that people and other machines read.
#[expect(clippy::disallowed_methods, reason = "this is the clock that everything else is given")]
pub fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}
