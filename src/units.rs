//! Units that cross a room's door: seconds and requests per second are types, so that they never meet as bare numbers.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A span or an offset of time in seconds, as measured (may be negative where one clock reading is subtracted from another).
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(pub f64);

impl Seconds {
    /// The same span in milliseconds.
    pub fn millis(self) -> f64 {
        self.0 * 1e3
    }

    /// As a `Duration`; negative spans become zero.
    pub fn duration(self) -> Duration {
        Duration::from_secs_f64(self.0.max(0.0))
    }
}

impl From<Duration> for Seconds {
    fn from(duration: Duration) -> Self {
        Self(duration.as_secs_f64())
    }
}

impl std::ops::Add for Seconds {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl std::ops::Sub for Seconds {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl std::ops::AddAssign for Seconds {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl std::ops::Mul<f64> for Seconds {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }
}

impl fmt::Display for Seconds {
    /// Reads as a person would say it: `412 ms`, `2.5 s`, `14 min`, `1 h 05 min`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0;
        match s.abs() {
            a if a < 0.0995 => write!(f, "{:.1} ms", s * 1e3),
            a if a < 0.9995 => write!(f, "{:.0} ms", s * 1e3),
            a if a < 99.5 => write!(f, "{s:.1} s"),
            a if a < 3_570.0 => write!(f, "{:.0} min", s / 60.0),
            _ => write!(f, "{} h {:02} min", (s / 60.0).round() as i64 / 60, (s / 60.0).round() as i64 % 60),
        }
    }
}

/// A request rate in requests per second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub f64);

impl std::ops::Mul<f64> for Rate {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = if self.0 < 10.0 {
            2
        } else if self.0 < 100.0 {
            1
        } else {
            0
        };
        write!(f, "{:.*} req/s", decimals, self.0)
    }
}

/// A rate of tokens in tokens per second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenRate(pub f64);

impl fmt::Display for TokenRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.*} tok/s", usize::from(self.0 < 100.0), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_a_person_would_say_them() {
        let say = |s: f64| Seconds(s).to_string();
        assert_eq!(say(0.0123), "12.3 ms");
        assert_eq!(say(0.412), "412 ms");
        assert_eq!(say(2.5), "2.5 s");
        assert_eq!(say(840.0), "14 min");
        assert_eq!(say(3900.0), "1 h 05 min");
        assert_eq!(Rate(2.345).to_string(), "2.35 req/s");
        assert_eq!([TokenRate(17.26), TokenRate(1943.4)].map(|r| r.to_string()), ["17.3 tok/s", "1943 tok/s"]);
    }
}
