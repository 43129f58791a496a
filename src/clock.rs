//! The only place that reads a clock: every other room gets its time from here or as an argument.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock: spans between two readings are never negative.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the monotonic clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// Seconds since the Unix epoch by the wall clock, for time stamps that people read; it may jump, so spans never come from it.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |span| span.as_secs_f64())
}

/// The span since the Unix epoch by the wall clock, to be compared with the kernel's time stamps of the same clock.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn since_epoch() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
