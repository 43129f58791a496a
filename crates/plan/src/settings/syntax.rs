//! The syntax of TOML, whose mistakes get a remedy like all others.

use toml::de::{DeTable, Error};

use crate::problems::Problem;

const NO_VALUE: &str = "write a value after `=`: a number, a \"text\", true, false, a [list] or a { table }";

/// Parses the text into a tree with places.
pub fn read(text: &str) -> Result<DeTable<'_>, Vec<Problem>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() { Ok(document.into_inner()) } else { Err(errors.iter().map(|e| problem(text, e)).collect()) }
}

fn problem(text: &str, error: &Error) -> Problem {
    let message = error.message();
    let span = error.span().unwrap_or(text.len()..text.len());
    let rest_of_line = text.get(span.start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let hint = if message.contains("duplicate key") {
        "keep one of them: a key or a section stands only once"
    } else if message.contains("string values must be quoted")
        && matches!(rest_of_line.trim_start().bytes().next(), None | Some(b'#'))
    {
        NO_VALUE
    } else if message.contains("string values must be quoted") {
        "put the text in double quotes"
    } else if message.contains("array") {
        "close the list with ], with commas between its elements"
    } else if message.contains("inline table") {
        "close the table with }, with commas between its keys"
    } else if message.contains("string") {
        "close the text with the quote that opens it"
    } else if message.contains("value") {
        NO_VALUE
    } else {
        "write one `key = value` or one `[section]` on each line"
    };
    Problem::new(&span, format!("not valid TOML: {message}"), "here", hint)
}
