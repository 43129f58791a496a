//! The only place that reads a clock: every other room gets its time from here or as an argument.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock: spans between two readings are never negative.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the monotonic clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// The clock of the runtime's timers, for spans between pauses: where a test lets pauses pass at once, this goes along.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the runtime's clock")]
pub fn ticks() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Seconds since the Unix epoch by the wall clock, for time stamps that people read; it may jump, so spans never come from it.
pub fn unix_seconds() -> f64 {
    since_epoch().as_secs_f64()
}

/// The span since the Unix epoch by the wall clock, to be compared with the kernel's time stamps of the same clock.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn since_epoch() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A moment in UTC, for time stamps that people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc {
    pub year: i64,
    /// The month, 1 to 12.
    pub month: i64,
    /// The day of the month, from 1.
    pub day: i64,
    /// The hour, 0 to 23.
    pub hour: i64,
    /// The minute, 0 to 59.
    pub minute: i64,
    /// The second, 0 to 59.
    pub second: i64,
}

impl Utc {
    /// Of seconds since the Unix epoch; fractions are dropped.
    pub fn of(unix_seconds: f64) -> Self {
        let seconds = unix_seconds.floor() as i64;
        let (days, of_day) = (seconds.div_euclid(86_400) + 719_468, seconds.rem_euclid(86_400));
        // Days since 0000-03-01 make the leap day the last of its year (Howard Hinnant, "chrono-compatible date algorithms").
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Self {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month,
            day: of_year - (153 * from_march + 2) / 5 + 1,
            hour: of_day / 3_600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }
}

impl std::fmt::Display for Utc {
    /// As RFC 3339 has it, such as 2026-11-21T06:14:13Z.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Seconds since the Unix epoch as RFC 3339 in whole seconds, for `#[serde(with = "…")]`; a number is read too.
pub mod rfc3339 {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes it.
    pub fn serialize<S: Serializer>(at: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        at.map(|at| super::Utc::of(at).to_string()).serialize(to)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        match serde_json::Value::deserialize(from)? {
            serde_json::Value::Null => Ok(None),
            serde_json::Value::String(text) => {
                let at: jiff::Timestamp =
                    text.parse().map_err(|_| D::Error::custom("not a time as RFC 3339 has it"))?;
                Ok(Some(at.as_second() as f64))
            }
            value => value.as_f64().map(Some).ok_or_else(|| D::Error::custom("a time is a text or a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        let parts = |unix| {
            let utc = Utc::of(unix);
            [utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second]
        };
        assert_eq!(parts(0.0), [1970, 1, 1, 0, 0, 0]);
        assert_eq!(parts(951_782_400.0), [2000, 2, 29, 0, 0, 0]);
        assert_eq!(parts(951_868_799.9), [2000, 2, 29, 23, 59, 59]);
        assert_eq!(parts(1_795_241_653.0), [2026, 11, 21, 6, 14, 13]);
        assert_eq!(parts(1_767_225_600.0), [2026, 1, 1, 0, 0, 0]);
    }
}
