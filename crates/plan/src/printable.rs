//! What others say - servers, engines, workers - as it may be shown and kept: without what moves a terminal's cursor or rings its bell.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The text with each control character but line feed and tab replaced by U+FFFD.
pub fn printable(text: &str) -> Cow<'_, str> {
    let moves = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(moves) { Cow::Owned(text.replace(moves, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// What JSON of others says, with every string in it [`printable`].
pub fn read_json<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    fn every_string(value: Value) -> Value {
        match value {
            Value::String(text) => match printable(&text) {
                Cow::Borrowed(_) => Value::String(text),
                Cow::Owned(plain) => Value::String(plain),
            },
            Value::Array(items) => items.into_iter().map(every_string).collect(),
            Value::Object(entries) => {
                entries.into_iter().map(|(key, value)| (printable(&key).into_owned(), every_string(value))).collect()
            }
            other => other,
        }
    }
    serde_json::from_value(every_string(serde_json::from_slice(text)?))
}

/// A sentence behind a head in so many columns, its later lines indented. Control characters, which may come from a server and would act on
/// the terminal, are replaced.
pub fn wrapped(head: &str, indent: usize, sentence: &str, width: usize) -> String {
    let mut lines = vec![head.to_owned()];
    let mut empty = true;
    for word in sentence.split_whitespace() {
        let word: String = word.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        let used = lines.last().map_or(0, |line| line.chars().count());
        if !empty && used + 1 + word.chars().count() > width {
            lines.push(" ".repeat(indent));
            empty = true;
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(if empty { "" } else { " " });
            line.push_str(&word);
        }
        empty = false;
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn escapes_bells_and_nul_are_taken_out() {
        let said = printable("\u{1b}[2J\u{7}\0\u{9b}31mred\r\n\tgrün");
        assert_eq!(said, "\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}31mred\u{fffd}\n\tgrün");
        assert!(matches!(printable("plain\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn every_string_of_json_is_made_printable_and_nothing_else_changes() {
        let said = br#"{"a\u001b": ["x\u0007\u0000", {"b": "y\nz"}, 1.5, null, true]}"#;
        let read: BTreeMap<String, Value> = read_json(said).unwrap();
        let expected = serde_json::json!(["x\u{fffd}\u{fffd}", {"b": "y\nz"}, 1.5, null, true]);
        assert_eq!(read, BTreeMap::from([("a\u{fffd}".to_owned(), expected)]));
    }
}
