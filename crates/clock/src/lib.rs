//! The only place that reads a clock: every other folder gets its time from here or as an argument.

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

/// The wall clock as a time stamp, for Kubernetes objects and names.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn timestamp() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// The format of RFC 3339 in whole seconds, for [`utc`]: 2026-11-21T06:14:13Z.
pub const RFC_3339: &str = "%Y-%m-%dT%H:%M:%SZ";

/// A moment in UTC, written in a format of `strftime`. Fractions of a second are dropped.
pub fn utc(unix_seconds: f64, format: &str) -> String {
    jiff::Timestamp::from_second(unix_seconds.floor() as i64).unwrap_or_default().strftime(format).to_string()
}

/// Seconds since the Unix epoch as RFC 3339 in whole seconds, for `#[serde(with = "…")]`; a number is read too.
pub mod rfc3339 {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(at: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        at.map(|at| super::utc(at, super::RFC_3339)).serialize(to)
    }

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
        let at = |unix| utc(unix, RFC_3339);
        assert_eq!(at(0.0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400.0), "2000-02-29T00:00:00Z");
        assert_eq!(at(951_868_799.9), "2000-02-29T23:59:59Z");
        assert_eq!(at(1_795_241_653.0), "2026-11-21T06:14:13Z");
        assert_eq!(utc(1_767_225_600.0, "%m/%d"), "01/01");
    }
}
