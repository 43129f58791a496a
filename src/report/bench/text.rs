//! How results look in a terminal: numbers of a fixed shape, and sentences that wrap.

use crate::units::Seconds;

/// No line is longer, unless a single word is.
pub(in crate::report) const WIDTH: usize = 80;

/// Stands where there is no number.
pub(in crate::report) const NOTHING: &str = "-";

/// Milliseconds with one decimal below a hundred and none above; no unit, since columns are compared.
pub(in crate::report) fn millis(latency: Option<Seconds>) -> String {
    latency.map_or(NOTHING.to_owned(), |l| format!("{:.*}", usize::from(l.millis().abs() < 99.95), l.millis()))
}

/// A rate without its unit: two decimals below ten, one below a hundred.
pub(in crate::report) fn per_second(rate: Option<f64>) -> String {
    let decimals = |r: f64| if r < 9.995 { 2 } else { usize::from(r < 99.95) };
    rate.map_or(NOTHING.to_owned(), |r| format!("{r:.*}", decimals(r)))
}

/// A share as whole percent.
pub(in crate::report) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Parts as prose with commas; nothing of nothing.
pub(super) fn joined(parts: impl IntoIterator<Item = Option<String>>) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `name` and a sentence behind it, wrapped under the sentence's first word.
pub(in crate::report) fn entry(name: &str, indent: usize, sentence: &str) -> String {
    wrapped(&format!("{name:indent$}"), indent, sentence)
}

/// A sentence behind a head in [`WIDTH`] columns, its later lines indented.
pub(in crate::report) fn wrapped(head: &str, indent: usize, sentence: &str) -> String {
    crate::printable::wrapped(head, indent, sentence, WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_shape() {
        let milliseconds = [0.000_21, 0.0994, 0.1, 1.5739, 123.4].map(|s| millis(Some(Seconds(s))));
        assert_eq!(milliseconds, ["0.2", "99.4", "100", "1574", "123400"]);
        assert_eq!([0.5, 9.999, 42.0, 293.12].map(|r| per_second(Some(r))), ["0.50", "10.0", "42.0", "293"]);
        assert_eq!((millis(None), per_second(None)), ("-".to_owned(), "-".to_owned()));
    }

    #[test]
    fn sentences_wrap_under_their_first_word_and_do_not_steer_the_terminal() {
        let text = entry("warning", 10, &"seven77 ".repeat(10));
        assert!(text.lines().all(|line| line.len() <= WIDTH));
        assert_eq!(text.lines().nth(1), Some("          seven77 seven77"));
        assert_eq!(entry("model", 6, "a\u{1b}[2J"), "model a\u{fffd}[2J\n");
    }
}
