//! Measures as the space file spells them: durations such as `1h30m` and shares such as `3%`.

use std::time::Duration;

/// The units of a duration with their length in nanoseconds, longest first.
pub const UNITS: [(&str, u64); 5] =
    [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];

/// The longest duration that a space file may name: a year.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// A regular expression of every duration, for the schema.
pub const DURATION_PATTERN: &str = "^([0-9]+(\\.[0-9]+)?(us|ms|s|m|h))+$";
/// A regular expression of every duration that is not zero, for the schema.
pub const POSITIVE_DURATION_PATTERN: &str = "^(?=.*[1-9])([0-9]+(\\.[0-9]+)?(us|ms|s|m|h))+$";
/// A regular expression of every percentage, for the schema.
pub const PERCENT_PATTERN: &str = "^[0-9]+(\\.[0-9]+)?%$";

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDuration {
    /// A number stands without a unit; the number.
    NoUnit(String),
    /// A unit is not known; the unit.
    UnknownUnit(String),
    /// It begins with a minus sign.
    Negative,
    /// Units repeat or come in the wrong order.
    Order,
    /// It is longer than a year.
    TooLong,
    /// It does not begin with a number.
    NoNumber,
}

/// Reads `90s`, `1.5h` or `1h30m`: numbers with units, each unit shorter than the one before.
///
/// # Errors
/// What is wrong with the text; fractions of a nanosecond are dropped, not refused.
pub fn duration(text: &str) -> Result<Duration, NoDuration> {
    if text.starts_with('-') {
        return Err(NoDuration::Negative);
    }
    let mut rest = text;
    let mut nanoseconds: u128 = 0;
    let mut shortest_yet = u64::MAX;
    while !rest.is_empty() || shortest_yet == u64::MAX {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(NoDuration::NoNumber);
        }
        let (unit, after) = split(after, |c| !c.is_ascii_digit() && c != '.');
        if unit.is_empty() {
            return Err(NoDuration::NoUnit(number.to_owned()));
        }
        let (_, length) = UNITS
            .into_iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| NoDuration::UnknownUnit(unit.to_owned()))?;
        if length >= shortest_yet {
            return Err(NoDuration::Order);
        }
        shortest_yet = length;
        nanoseconds = scaled(whole, fraction, length)
            .and_then(|part| nanoseconds.checked_add(part))
            .filter(|sum| *sum <= LONGEST.as_nanos())
            .ok_or(NoDuration::TooLong)?;
        rest = after;
    }
    // A year of nanoseconds fits in 64 bits.
    u64::try_from(nanoseconds).map(Duration::from_nanos).map_err(|_| NoDuration::TooLong)
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// `whole.fraction` times a length, in integers so that nothing is rounded; `None` where the whole number overflows.
fn scaled(whole: &str, fraction: &str, length: u64) -> Option<u128> {
    // No unit is longer than 10^13 nanoseconds, so later digits cannot count.
    let fraction = &fraction[..fraction.len().min(18)];
    let parts = fraction.parse::<u128>().ok()? * u128::from(length) / 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    whole.parse::<u128>().ok()?.checked_mul(u128::from(length))?.checked_add(parts)
}

/// The shortest spelling that [`duration`] reads back exactly, such as `1h30m`.
pub fn spell(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    let mut text = String::new();
    for (unit, length) in UNITS {
        let (count, remainder) = (rest / u128::from(length), rest % u128::from(length));
        rest = remainder;
        if unit == "us" && remainder > 0 {
            text += &format!("{count}.{remainder:03}us");
        } else if count > 0 {
            text += &format!("{count}{unit}");
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// What a person probably meant who wrote `90 sec` or `5min`.
pub fn meant(text: &str) -> Option<String> {
    let plain: String = text.trim_start_matches('-').to_lowercase().split_whitespace().collect();
    let mut rest = plain.as_str();
    let mut spelled = String::new();
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split(after, |c| !c.is_ascii_digit() && c != '.');
        let unit = match unit {
            "µs" | "μs" | "usec" | "micros" | "microsecond" | "microseconds" => "us",
            "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => "ms",
            "sec" | "secs" | "second" | "seconds" => "s",
            "min" | "mins" | "minute" | "minutes" => "m",
            "hr" | "hrs" | "hour" | "hours" => "h",
            "d" | "day" | "days" => {
                return number.parse::<u64>().ok().and_then(|n| n.checked_mul(24)).map(|n| format!("{n}h"));
            }
            unit => unit,
        };
        spelled += number;
        spelled += unit;
        rest = after;
    }
    duration(&spelled).ok().filter(|read| !read.is_zero()).map(spell)
}

/// Reads `3%` as 0.03; `None` for anything but a number and a percent sign.
pub fn percent(text: &str) -> Option<f64> {
    let number = text.strip_suffix('%')?.trim_end();
    hundredth(number)
}

/// A plain decimal number over 100, rounded once: 99.9 gives the `f64` nearest to 0.999, which a division would miss.
pub fn hundredth(number: &str) -> Option<f64> {
    let plain = number.chars().all(|c| c.is_ascii_digit() || c == '.') && number.contains(|c: char| c.is_ascii_digit());
    if plain { format!("{number}e-2").parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_numbers_with_units() {
        let ms = |text| duration(text).unwrap().as_millis();
        assert_eq!(ms("1h30m"), 5_400_000);
        assert_eq!(ms("1.5s"), 1500);
        assert_eq!(ms("0s"), 0);
        assert_eq!(duration("0.1us").unwrap(), Duration::from_nanos(100));
        assert_eq!(duration("10"), Err(NoDuration::NoUnit("10".into())));
        assert_eq!(duration("10sec"), Err(NoDuration::UnknownUnit("sec".into())));
        assert_eq!(duration("1m1h"), Err(NoDuration::Order));
        assert_eq!(duration("1s1s"), Err(NoDuration::Order));
        assert_eq!(duration("-1s"), Err(NoDuration::Negative));
        assert_eq!(duration(""), Err(NoDuration::NoNumber));
        assert_eq!(duration("1.s"), Err(NoDuration::NoNumber));
        assert_eq!(duration("9000h"), Err(NoDuration::TooLong));
        assert_eq!(duration("99999999999999999999999999999999999999999h"), Err(NoDuration::TooLong));
    }

    #[test]
    fn near_misses_are_understood() {
        assert_eq!(meant("90 sec").as_deref(), Some("1m30s"));
        assert_eq!(meant("5min").as_deref(), Some("5m"));
        assert_eq!(meant("2 days").as_deref(), Some("48h"));
        assert_eq!(meant("soon"), None);
    }

    #[test]
    fn percentages_are_the_nearest_fraction() {
        assert_eq!(percent("3%"), Some(0.03));
        assert_eq!(percent("0.5 %"), Some(0.005));
        assert_eq!(hundredth("99.9"), Some(0.999));
        for wrong in ["3", "%", "-3%", "3e1%", "1.2.3%", ".%"] {
            assert_eq!(percent(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn durations_survive_spelling(nanoseconds in 0..31_536_000_000_000_000_u64) {
            let given = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(duration(&spell(given)), Ok(given));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,12}|[0-9.hmsu ]{0,12}") {
            let _ = duration(&text);
            let _ = meant(&text);
            let _ = percent(&text);
        }
    }
}
