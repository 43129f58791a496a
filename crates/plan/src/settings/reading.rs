//! Reads one value as its kind asks, and reports why it does not fit.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::format::Kind;
use super::lengths::{self, Lengths};
use super::measure::{self, NoDuration};
use super::reader::in_order;
use super::suggest;
use crate::problems::Problem;
use crate::space::Value;

/// A value that fits its kind.
pub enum Reading {
    Word(String),
    Text(String),
    Texts(Vec<(String, Range<usize>)>),
    TextTable(BTreeMap<String, String>),
    Switch(bool),
    Integer(i64),
    Integers(Vec<(i64, Range<usize>)>),
    Real(f64),
    Time(Duration),
    Lengths(Lengths),
    Value(Value),
    Values(Vec<(Value, Range<usize>)>),
}

/// Reads a value of a kind, or reports why it is none.
pub fn read(kind: &Kind, path: &str, value: &Spanned<DeValue>, problems: &mut Vec<Problem>) -> Option<Reading> {
    match (kind, value.get_ref()) {
        (Kind::Word(words), DeValue::String(word)) if words.contains(&word.as_ref()) => {
            Some(Reading::Word(word.to_string()))
        }
        (Kind::Word(words), DeValue::String(word)) => {
            let hint = suggest::closest(word, words.iter().copied())
                .map(|near| format!("did you mean \"{near}\"?"))
                .unwrap_or_else(|| format!("write {}", kind.expects()));
            problems.push(Problem::new(&value.span(), format!("`{path}` cannot be \"{word}\""), "unknown word", hint));
            None
        }
        (Kind::Text, DeValue::String(_)) => {
            let (text, span) = text(path, value, problems)?;
            if text.trim().is_empty() {
                let hint = format!("write {}, such as {}", kind.expects(), kind.example());
                problems.push(Problem::new(&span, format!("`{path}` is empty"), "empty", hint));
                return None;
            }
            Some(Reading::Text(text))
        }
        (Kind::Texts { at_least }, DeValue::Array(elements)) => {
            if elements.len() < *at_least {
                let hint = format!("name the program, such as {}", kind.example());
                problems.push(Problem::new(&value.span(), format!("`{path}` is empty"), "no elements", hint));
                return None;
            }
            // Not `collect::<Option<_>>` straight away, which would stop at the first mistake.
            let texts: Vec<_> = elements.iter().map(|element| text(path, element, problems)).collect();
            texts.into_iter().collect::<Option<_>>().map(Reading::Texts)
        }
        (Kind::TextTable, DeValue::Table(table)) => text_table(path, table, problems).map(Reading::TextTable),
        (Kind::Switch, DeValue::Boolean(on)) => Some(Reading::Switch(*on)),
        (Kind::Integer { min, max }, DeValue::Integer(_)) => match number(value.get_ref()) {
            Some(Value::Int(integer)) if (*min..=*max).contains(&integer) => Some(Reading::Integer(integer)),
            _ => {
                let hint = format!("write {}", kind.expects());
                problems.push(Problem::new(&value.span(), format!("`{path}` is out of range"), "out of range", hint));
                None
            }
        },
        (Kind::Integers { min, max }, DeValue::Array(elements)) => {
            let single = Kind::Integer { min: *min, max: *max };
            let integers: Vec<_> = elements
                .iter()
                .map(|element| match read(&single, path, element, problems)? {
                    Reading::Integer(integer) => Some((integer, element.span())),
                    _ => None,
                })
                .collect();
            integers.into_iter().collect::<Option<_>>().map(Reading::Integers)
        }
        (Kind::Positive, DeValue::Integer(_) | DeValue::Float(_)) => {
            let real = number(value.get_ref()).and_then(|n| n.number()).filter(|n| *n > 0.0);
            if real.is_none() {
                let message = format!("`{path}` is not greater than 0");
                problems.push(Problem::new(&value.span(), message, "not a positive number", "write a number above 0"));
            }
            real.map(Reading::Real)
        }
        (Kind::Share { min, max }, DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_)) => {
            share(*min, *max, kind, path, value, problems).map(Reading::Real)
        }
        (Kind::Time { zero }, _) => time(*zero, path, value, problems).map(Reading::Time),
        (Kind::Lengths, DeValue::Integer(_) | DeValue::Table(_)) => {
            lengths::read(path, value, problems).map(Reading::Lengths)
        }
        (Kind::Number, DeValue::Integer(_) | DeValue::Float(_)) | (Kind::Value, _) => {
            scalar(kind, path, value, problems).map(Reading::Value)
        }
        (Kind::Values, DeValue::Array(elements)) => {
            let values: Vec<_> = elements
                .iter()
                .map(|element| scalar(&Kind::Value, path, element, problems).map(|value| (value, element.span())))
                .collect();
            values.into_iter().collect::<Option<_>>().map(Reading::Values)
        }
        _ => {
            problems.push(wrong_type(kind, path, value));
            None
        }
    }
}

fn wrong_type(kind: &Kind, path: &str, value: &Spanned<DeValue>) -> Problem {
    let quoted = |text: &str| match kind {
        Kind::Integer { .. } => text.trim().parse::<i64>().is_ok(),
        Kind::Positive | Kind::Number => text.trim().parse::<f64>().is_ok(),
        Kind::Switch => matches!(text.trim(), "true" | "false"),
        Kind::Lengths => text.trim().parse::<u32>().is_ok(),
        _ => false,
    };
    let hint = match (kind, value.get_ref()) {
        (_, DeValue::String(text)) if quoted(text) => format!("remove the quotes: {}", text.trim()),
        (Kind::Texts { .. }, DeValue::String(text)) => {
            let words: Vec<String> = text.split_whitespace().map(|word| format!("{word:?}")).collect();
            format!("write a list with one element for each word: [{}]", words.join(", "))
        }
        (Kind::Values, _) => "list the choices in brackets, such as [1, 2, 4]".into(),
        (Kind::Text, _) => format!("write {}, such as {}", kind.expects(), kind.example()),
        _ => format!("write {}", kind.expects()),
    };
    let label = format!("this is {}", article(value.get_ref()));
    Problem::new(&value.span(), format!("wrong type for `{path}`"), label, hint)
}

/// A value's TOML type with its article.
pub fn article(value: &DeValue) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a real number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or a time of day",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn text(path: &str, value: &Spanned<DeValue>, problems: &mut Vec<Problem>) -> Option<(String, Range<usize>)> {
    let hint = match value.get_ref() {
        DeValue::String(text) if !text.contains('\0') => return Some((text.to_string(), value.span())),
        DeValue::String(_) => "remove the character \\u0000: no process can be given it".to_owned(),
        DeValue::Integer(integer) => format!("put it in quotes: \"{integer}\""),
        DeValue::Float(float) => format!("put it in quotes: \"{float}\""),
        DeValue::Boolean(on) => format!("put it in quotes: \"{on}\""),
        _ => "write a string in quotes".to_owned(),
    };
    let label = format!("this is {}", article(value.get_ref()));
    problems.push(Problem::new(&value.span(), format!("`{path}` holds strings only"), label, hint));
    None
}

fn text_table(path: &str, table: &DeTable, problems: &mut Vec<Problem>) -> Option<BTreeMap<String, String>> {
    let before = problems.len();
    let mut texts = BTreeMap::new();
    for (name, span, value) in in_order(table) {
        if name.is_empty() || name.contains(['=', '\0']) {
            let message = format!("`{path}` has a name that no environment variable can have");
            problems.push(Problem::new(&span, message, "not a name", "use letters, digits and `_`"));
        }
        if let Some((text, _)) = text(path, value, problems) {
            texts.insert(name.to_owned(), text);
        }
    }
    (problems.len() == before).then_some(texts)
}

/// A finite number as a parameter's value; `None` for anything else and for integers beyond 64 bits.
fn number(value: &DeValue) -> Option<Value> {
    match value {
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(Value::Int),
        // Adding zero turns -0.0 into 0.0, so that equal values are spelled alike.
        DeValue::Float(float) => {
            float.as_str().parse().ok().filter(|real: &f64| real.is_finite()).map(|r| Value::Real(r + 0.0))
        }
        _ => None,
    }
}

fn scalar(kind: &Kind, path: &str, value: &Spanned<DeValue>, problems: &mut Vec<Problem>) -> Option<Value> {
    match value.get_ref() {
        DeValue::Boolean(on) => Some(Value::Bool(*on)),
        DeValue::String(text) if !text.contains('\0') => Some(Value::Text(text.to_string())),
        numeric @ (DeValue::Integer(_) | DeValue::Float(_)) => {
            let read = number(numeric);
            if read.is_none() {
                let hint = "write a finite number within 64 bits";
                problems.push(Problem::new(&value.span(), format!("`{path}` is out of range"), "out of range", hint));
            }
            read
        }
        _ => {
            problems.push(wrong_type(kind, path, value));
            None
        }
    }
}

fn share(
    min: f64,
    max: f64,
    kind: &Kind,
    path: &str,
    value: &Spanned<DeValue>,
    problems: &mut Vec<Problem>,
) -> Option<f64> {
    let (fraction, written) = match value.get_ref() {
        DeValue::String(text) => (measure::percent(text), text.to_string()),
        other => (number(other).and_then(|n| n.number()), String::new()),
    };
    match fraction {
        Some(fraction) if (min..=max).contains(&fraction) => return Some(fraction),
        Some(fraction) if written.is_empty() && fraction > max && fraction <= 100.0 * max => {
            let hint = format!("a bare number is a fraction: write \"{fraction}%\" or {}", fraction / 100.0);
            problems.push(Problem::new(&value.span(), format!("`{path}` is too large"), "out of range", hint));
        }
        Some(_) => {
            let hint = format!("write {}", kind.expects());
            problems.push(Problem::new(&value.span(), format!("`{path}` is out of range"), "out of range", hint));
        }
        None => {
            let percent = format!("{}%", written.trim());
            let hint = match measure::percent(&percent) {
                Some(fraction) if (min..=max).contains(&fraction) => format!("add the percent sign: \"{percent}\""),
                _ => format!("write {}", kind.expects()),
            };
            problems.push(Problem::new(&value.span(), format!("`{path}` is no percentage"), "not a percentage", hint));
        }
    }
    None
}

/// Reads a duration, or reports why it is none. Public to the folder for the limits of `[slo]`, whose names no table
/// knows.
pub fn time(zero: bool, path: &str, value: &Spanned<DeValue>, problems: &mut Vec<Problem>) -> Option<Duration> {
    let generic = || format!("write {}", Kind::Time { zero }.expects());
    let with_units = |number: &str| match number.parse::<f64>() {
        Ok(n) if n > 0.0 => format!("add a unit: \"{number}s\" for seconds or \"{number}ms\" for milliseconds"),
        _ => generic(),
    };
    let (message, label, hint) = match value.get_ref() {
        DeValue::String(text) => match measure::duration(text) {
            Ok(time) if zero || !time.is_zero() => return Some(time),
            Ok(_) => ("must be longer than zero", "zero", "write a duration above 0, such as \"10s\"".to_owned()),
            Err(NoDuration::Negative) => {
                let hint = measure::meant(text).map_or_else(generic, |meant| format!("write \"{meant}\""));
                ("cannot be negative", "negative", hint)
            }
            Err(NoDuration::NoUnit(number)) => ("has no unit", "a number without a unit", with_units(&number)),
            Err(NoDuration::TooLong) => ("is longer than a year", "too long", "write at most \"8760h\"".to_owned()),
            Err(NoDuration::Order) => {
                ("is no duration", "units go from h to us, each once", "write it as in \"1h30m\"".to_owned())
            }
            Err(NoDuration::UnknownUnit(_)) => {
                let hint = measure::meant(text).map_or_else(generic, |meant| format!("write \"{meant}\""));
                ("has an unknown unit", "the units are us, ms, s, m and h", hint)
            }
            Err(NoDuration::NoNumber) => ("is no duration", "not a number with a unit", generic()),
        },
        DeValue::Integer(integer) => ("has no unit", "a bare number", with_units(integer.as_str())),
        DeValue::Float(float) => ("has no unit", "a bare number", with_units(float.as_str())),
        _ => {
            problems.push(wrong_type(&Kind::Time { zero }, path, value));
            return None;
        }
    };
    problems.push(Problem::new(&value.span(), format!("`{path}` {message}"), label, hint));
    None
}

#[cfg(test)]
mod tests {
    use super::super::format::tests::TABLES;
    use super::super::format::{Need, Table};
    use super::*;

    #[test]
    fn every_default_fits_its_own_kind() {
        for key in TABLES.into_iter().flat_map(Table::keys) {
            if let Need::Default(toml) = key.need {
                let mut problems = Vec::new();
                let value = DeValue::parse(toml).unwrap();
                assert!(read(&key.kind, key.name, &value, &mut problems).is_some(), "{}: {problems:?}", key.name);
            }
        }
    }
}
