//! What others say - servers, engines, workers - as it may be shown and kept: without what moves a terminal's cursor or rings its bell.

use std::borrow::Cow;

/// The text with each control character but line feed and tab replaced by U+FFFD.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let moves = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(moves) { Cow::Owned(text.replace(moves, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_bells_and_nul_are_taken_out() {
        let said = printable("\u{1b}[2J\u{7}\0\u{9b}31mred\r\n\tgrün");
        assert_eq!(said, "\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}31mred\u{fffd}\n\tgrün");
        assert!(matches!(printable("plain\n"), Cow::Borrowed(_)));
    }
}
