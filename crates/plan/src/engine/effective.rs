//! The configuration that an engine says it runs, which need not be the one it was asked for.
//!
//! Its dialect reads that of three sources, from weak to strong: its log, its metrics and its server information.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::command_line::is_left_out;
use crate::settings::Secrets;
use crate::space::{Point, Space, Value};

/// What the engine says it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// The values in force by flag, without leading dashes and with words joined by `-`.
    pub values: BTreeMap<String, Value>,
    /// How many tokens the KV cache holds.
    pub kv_cache_tokens: Option<u64>,
    pub version: Option<String>,
}

impl Effective {
    /// A point with the values in force of those parameters that it leaves to the engine.
    pub fn complete(&self, space: &Space, point: Point) -> Point {
        let told = space.parameters.iter().fold(point, |point, parameter| match self.values.get(&parameter.name) {
            Some(value) if point.get(&parameter.name).is_none() => point.with(&parameter.name, value.clone()),
            _ => point,
        });
        space.settled(told)
    }

    /// Takes secrets out of its texts.
    #[must_use]
    pub fn without(mut self, secrets: &Secrets) -> Self {
        for value in self.values.values_mut() {
            if let Value::Text(text) = value {
                *text = secrets.redact(text);
            }
        }
        self
    }

    /// Both together; where both say something, the stronger source counts.
    #[must_use]
    pub fn merge(mut self, stronger: Self) -> Self {
        self.values.extend(stronger.values);
        Self {
            values: self.values,
            kv_cache_tokens: stronger.kv_cache_tokens.or(self.kv_cache_tokens),
            version: stronger.version.or(self.version),
        }
    }

    /// The parameters of a point that run with another value: name, requested, effective.
    ///
    /// A parameter of which the engine says nothing is no mismatch, nor is one whose choice was left to it.
    pub fn mismatches(&self, point: &Point) -> Vec<(String, Value, Value)> {
        let differs = |(name, requested): (&String, &Value)| {
            let effective = self.values.get(name)?;
            let plain = plain(requested);
            let left_open = is_left_out(&plain) || matches!(&plain, Value::Text(word) if word == "auto");
            (!left_open && !plain.same(effective)).then(|| (name.clone(), requested.clone(), effective.clone()))
        };
        point.0.iter().filter_map(differs).collect()
    }
}

/// vLLM's numbers for people: `8k` is 8000 and `8K` is 8192, and so on for m and g.
fn plain(value: &Value) -> Value {
    let Value::Text(text) = value else { return value.clone() };
    let read = || {
        let (at, unit) = text.char_indices().last()?;
        let power = match unit.to_ascii_lowercase() {
            'k' => 1,
            'm' => 2,
            'g' => 3,
            't' => 4,
            _ => return None,
        };
        let base: f64 = if unit.is_ascii_uppercase() { 1024.0 } else { 1000.0 };
        Some(Value::Real(text[..at].parse::<f64>().ok()? * base.powi(power)))
    };
    read().or_else(|| scalar(text)).unwrap_or_else(|| value.clone())
}

pub(super) fn flag(name: &str) -> String {
    name.replace('_', "-")
}

/// What follows the words in a text.
pub(super) fn after<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    text.split_once(words).map(|(_, rest)| rest)
}

/// The number at the start of a text; commas part its thousands.
pub(super) fn leading_count(text: &str) -> Option<u64> {
    let digits: String =
        text.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// A word of Python's: `True`, `12`, `0.9`, `torch.bfloat16`; `None` says nothing, and lists are not values of flags here.
pub(super) fn scalar(word: &str) -> Option<Value> {
    Some(match word {
        "None" | "" => return None,
        _ if word.starts_with(['[', '{', '(', '<']) => return None,
        "True" => Value::Bool(true),
        "False" => Value::Bool(false),
        // Rust reads `inf` and `nan` as numbers, and Python prints them for no flag.
        _ if !word.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.') => text(word),
        _ => word.parse().map(Value::Int).or_else(|_| word.parse().map(Value::Real)).unwrap_or_else(|_| text(word)),
    })
}

/// A word, where a type of torch loses its module, as no flag has it.
fn text(word: &str) -> Value {
    Value::Text(word.strip_prefix("torch.").unwrap_or(word).to_owned())
}

pub(super) fn json_scalar(entry: &serde_json::Value) -> Option<Value> {
    match entry {
        serde_json::Value::Bool(b) => Some(Value::Bool(*b)),
        serde_json::Value::Number(n) => n.as_i64().map(Value::Int).or_else(|| n.as_f64().map(Value::Real)),
        serde_json::Value::String(s) => Some(text(s)),
        _ => None,
    }
}

/// The scalar entries of a printed Python dictionary, whose opening brace is gone. What is nested is passed over.
pub(super) fn python_dict(printed: &str) -> impl Iterator<Item = (&str, Value)> {
    entries(printed).into_iter().filter_map(|entry| {
        let (name, value) = entry.split_once(':')?;
        let name = unquoted(name.trim())?;
        let value = value.trim();
        match unquoted(value) {
            Some(word) => Some((name, text(word))),
            None => Some((name, scalar(value)?)),
        }
    })
}

/// Splits at the commas that are inside neither quotes nor brackets, up to the closing brace.
fn entries(printed: &str) -> Vec<&str> {
    let (mut found, mut start, mut depth, mut quote, mut escaped) = (Vec::new(), 0, 0_usize, None, false);
    for (at, c) in printed.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '{' | '[' | '(') => depth += 1,
            (None, '}' | ']' | ')') if depth > 0 => depth -= 1,
            (None, ',' | '}') if depth == 0 => {
                found.push(&printed[start..at]);
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

fn unquoted(word: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|q| word.strip_prefix(q)?.strip_suffix(q))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people_are_numbers() {
        let word = |text: &str| Value::Text(text.to_owned());
        assert_eq!(plain(&word("8k")), Value::Real(8000.0));
        assert_eq!(plain(&word("fork")), word("fork"));
    }
}
