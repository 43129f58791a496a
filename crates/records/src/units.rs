//! Seconds and requests per second are types, so that modules never exchange them as bare numbers.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The most tokens of a prompt or an answer that are believed or asked for: ten times what the longest models take.
pub const MOST_TOKENS: u32 = 10_000_000;

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

impl Rate {
    /// The nearest rate of as many digits as count: finer ones are not told apart, and people read them.
    pub fn rounded(self) -> Self {
        self.to_step(f64::round)
    }

    /// The next lower rate of that kind, for rates that are promised.
    pub fn rounded_down(self) -> Self {
        // What lies on a step stays there, though its float may lie just below.
        self.to_step(|steps| (steps + 1e-6).floor())
    }

    fn to_step(self, rounding: impl Fn(f64) -> f64) -> Self {
        let scale = 10f64.powi(self.decimals());
        Self(rounding(self.0 * scale) / scale)
    }

    /// Decimals of three significant digits, and of a fourth where the first is 1. A step is at most half a percent. Negative
    /// where not all digits before the point are significant.
    fn decimals(self) -> i32 {
        let rate = self.0.abs().max(1e-9);
        let first = rate.log10().floor();
        let fourth = rate < 2.0 * 10f64.powf(first);
        2 + i32::from(fourth) - first as i32
    }
}

impl fmt::Display for Rate {
    /// The digits that count, but for a fourth that is zero: `0.857 req/s`, `1.045 req/s`, `12.3 req/s`, `140 req/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0.0 {
            return write!(f, "0 req/s");
        }
        let decimals = self.decimals().clamp(0, 5) as usize;
        let text = format!("{:.decimals$}", self.0);
        let digits = text.bytes().filter(u8::is_ascii_digit).skip_while(|digit| *digit == b'0').count();
        let fourth_is_zero = decimals > 0 && digits > 3 && text.ends_with('0');
        write!(f, "{:.*} req/s", decimals - usize::from(fourth_is_zero), self.0)
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
    fn rates_have_three_digits_and_four_behind_a_one() {
        let say = |rate: f64| Rate(rate).to_string();
        assert_eq!([2.345, 0.857, 0.0857, 0.0].map(say), ["2.35 req/s", "0.857 req/s", "0.0857 req/s", "0 req/s"]);
        assert_eq!([1.0452, 1.05, 17.26, 100.0].map(say), ["1.045 req/s", "1.05 req/s", "17.26 req/s", "100 req/s"]);
        assert_eq!([99.97, 1000.0, 12345.0].map(say), ["100 req/s", "1000 req/s", "12345 req/s"]);
        let down = |rate: f64| Rate(rate).rounded_down().0;
        assert_eq!([12.399, 0.5678, 84.6, 2.119, 1234.5].map(down), [12.39, 0.567, 84.6, 2.11, 1234.0]);
        assert_eq!([12.395, 0.5678, 84.65].map(|rate| Rate(rate).rounded().0), [12.4, 0.568, 84.7]);
        for steps in 100..2000 {
            let rate = Rate(f64::from(steps) / 100.0).rounded_down();
            assert_eq!(rate.rounded_down(), rate);
            let said: f64 = rate.to_string().trim_end_matches(" req/s").parse().unwrap();
            assert_eq!(Rate(said), rate, "what is said of a certified rate is never more");
        }
    }

    #[test]
    fn spans_read_as_a_person_would_say_them() {
        let say = |s: f64| Seconds(s).to_string();
        assert_eq!(say(0.0123), "12.3 ms");
        assert_eq!(say(0.412), "412 ms");
        assert_eq!(say(2.5), "2.5 s");
        assert_eq!(say(840.0), "14 min");
        assert_eq!(say(3900.0), "1 h 05 min");
        assert_eq!([TokenRate(17.26), TokenRate(1943.4)].map(|r| r.to_string()), ["17.3 tok/s", "1943 tok/s"]);
    }
}
