//! Constraints between parameters, such as `max-num-batched-tokens >= max-num-seqs`, and conditions under which a parameter exists.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Parameter, Point, Value};

/// `left <comparison> right`, where each side is a parameter, a number, a parameter times a number, or a word; or one of several of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constraint {
    pub left: Term,
    pub comparison: Comparison,
    pub right: Term,
    /// Further comparisons, one of which is enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub or: Vec<Self>,
}

/// One side of a constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// The parameter, if the side names one.
    pub parameter: Option<String>,
    /// Its factor, or the number itself where there is no parameter.
    pub factor: f64,
    /// The value that it is, where that is a word or a switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    Less,
    AtMost,
    AtLeast,
    Greater,
    Equal,
    NotEqual,
}

impl Comparison {
    /// Every spelling; longer ones first, so that `<=` is not read as `<`.
    pub const SPELLINGS: [(&'static str, Self); 6] = [
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("==", Self::Equal),
        ("!=", Self::NotEqual),
        ("<", Self::Less),
        (">", Self::Greater),
    ];

    fn spelling(self) -> &'static str {
        Self::SPELLINGS.iter().find(|(_, c)| *c == self).map_or("?", |(s, _)| s)
    }
}

impl Constraint {
    /// Reads `A >= B`, where a side is `NAME`, `NUMBER`, `NUMBER * NAME` or `NAME * NUMBER`, and several of these with `or` between them.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the text. Whether the names exist is not checked here.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut all = text.split(" or ").map(Self::one);
        let first = all.next().unwrap_or_else(|| Self::one(text))?;
        Ok(Self { or: all.collect::<Result<_, _>>()?, ..first })
    }

    fn one(text: &str) -> Result<Self, String> {
        let (at, spelling, comparison) = Comparison::SPELLINGS
            .iter()
            .filter_map(|(s, c)| text.find(s).map(|at| (at, *s, *c)))
            .min_by_key(|(at, s, _)| (*at, std::cmp::Reverse(s.len())))
            .ok_or("a constraint needs one of <, <=, ==, !=, >=, >")?;
        let (left, right) = (&text[..at], &text[at + spelling.len()..]);
        Ok(Self { left: Term::parse(left)?, comparison, right: Term::parse(right)?, or: Vec::new() })
    }

    /// Reads a name as a word where it is no parameter's, and the other side is a parameter with a value of this spelling.
    #[must_use]
    pub fn with_words(mut self, parameters: &[Parameter]) -> Self {
        let known = |name: &str| parameters.iter().find(|p| p.name == name);
        let valued = |term: &Term, other: &Term| {
            let (name, other) = (term.parameter.as_deref()?, known(other.parameter.as_deref()?)?);
            let spelt = |value: &&Value| value.number().is_none() && plain_name(&value.to_string()) == name;
            let value = other.values.iter().find(spelt).filter(|_| known(name).is_none() && term.factor == 1.0)?;
            Some(Term { parameter: None, factor: 1.0, word: Some(value.to_string()) })
        };
        let (left, right) = (valued(&self.left, &self.right), valued(&self.right, &self.left));
        (self.left, self.right) = (left.unwrap_or(self.left), right.unwrap_or(self.right));
        self.or = self.or.into_iter().map(|other| other.with_words(parameters)).collect();
        self
    }

    /// Whether the point keeps it; an absent or wordless parameter cannot break it.
    pub fn holds(&self, point: &Point) -> bool {
        self.compares(point).unwrap_or(true) || self.or.iter().any(|other| other.holds(point))
    }

    /// Whether the point meets it as a condition: an absent parameter meets none.
    pub fn is_met(&self, point: &Point) -> bool {
        self.compares(point).unwrap_or(false) || self.or.iter().any(|other| other.is_met(point))
    }

    /// The comparison itself; `None` if one of the sides has no value.
    fn compares(&self, point: &Point) -> Option<bool> {
        if let Some(word) = self.left.word.as_ref().or(self.right.word.as_ref()) {
            let name = self.left.parameter.as_ref().or(self.right.parameter.as_ref())?;
            let is = point.get(name)?.to_string() == *word;
            return Some(is == (self.comparison == Comparison::Equal));
        }
        let (left, right) = (self.left.value(point)?, self.right.value(point)?);
        let order = if (left - right).abs() <= 1e-9 * left.abs().max(right.abs()) {
            Ordering::Equal
        } else {
            left.partial_cmp(&right)?
        };
        Some(match self.comparison {
            Comparison::Less => order == Ordering::Less,
            Comparison::AtMost => order != Ordering::Greater,
            Comparison::AtLeast => order != Ordering::Less,
            Comparison::Greater => order == Ordering::Greater,
            Comparison::Equal => order == Ordering::Equal,
            Comparison::NotEqual => order != Ordering::Equal,
        })
    }

    /// Itself, and the comparisons that are enough instead.
    pub fn alternatives(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.or)
    }

    /// The names of parameters, of which some may stand there twice.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let terms = self.alternatives().flat_map(|one| [&one.left, &one.right]);
        terms.filter_map(|term| term.parameter.as_deref())
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        let mut term = Self { parameter: None, factor: 1.0, word: None };
        for part in text.split('*').map(str::trim) {
            if part.is_empty() {
                return Err("a side of the constraint is empty".into());
            }
            if let Ok(number) = part.parse::<f64>() {
                term.factor *= number;
            } else if term.parameter.is_some() {
                return Err(format!(
                    "`{}` multiplies two parameters; only a parameter times a number is known",
                    text.trim()
                ));
            } else if part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
                term.parameter = Some(plain_name(part));
            } else {
                return Err(format!("`{part}` is neither a number nor a parameter's name"));
            }
        }
        Ok(term)
    }

    fn value(&self, point: &Point) -> Option<f64> {
        match &self.parameter {
            None => Some(self.factor),
            Some(name) => Some(point.get(name)?.number()? * self.factor),
        }
    }
}

/// A name in the one spelling of parameters: words joined by `-`, but for what follows a dot, where `_` and `-` differ.
pub fn plain_name(name: &str) -> String {
    match name.split_once('.') {
        Some((head, inner)) => format!("{}.{inner}", head.replace('_', "-")),
        None => name.replace('_', "-"),
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, one) in self.alternatives().enumerate() {
            let or = if i == 0 { "" } else { " or " };
            write!(f, "{or}{} {} {}", one.left, one.comparison.spelling(), one.right)?;
        }
        Ok(())
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parameter {
            None => f.write_str(&self.word.clone().unwrap_or_else(|| self.factor.to_string())),
            Some(name) if self.factor == 1.0 => f.write_str(name),
            Some(name) => write!(f, "{} * {name}", self.factor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Value;

    fn point(seqs: i64, tokens: i64) -> Point {
        Point::default().with("max-num-seqs", Value::Int(seqs)).with("max-num-batched-tokens", Value::Int(tokens))
    }

    #[test]
    fn sides_are_names_numbers_or_products() {
        let c = Constraint::parse("max_num_batched_tokens >= 4 * max-num-seqs").unwrap();
        assert_eq!(c.to_string(), "max-num-batched-tokens >= 4 * max-num-seqs");
        assert!(c.holds(&point(16, 64)));
        assert!(!c.holds(&point(17, 64)));
        assert!(c.holds(&Point::default()), "an absent parameter breaks nothing");
        assert!(Constraint::parse("max-num-seqs <= 64").unwrap().holds(&point(64, 0)));
        assert!(!Constraint::parse("max-num-seqs < 64").unwrap().holds(&point(64, 0)));
        assert!(!Constraint::parse("max-num-seqs != 64").unwrap().holds(&point(64, 0)));
    }

    #[test]
    fn one_of_several_comparisons_is_enough() {
        let c = Constraint::parse("max-num-seqs <= 64 or max-num-batched-tokens >= 4096").unwrap();
        assert_eq!(c.to_string(), "max-num-seqs <= 64 or max-num-batched-tokens >= 4096");
        assert!(c.holds(&point(64, 8)) && c.holds(&point(65, 4096)) && !c.holds(&point(65, 4095)));
        assert_eq!(c.names().count(), 2);
        let read: Constraint = serde_json::from_str(&serde_json::to_string(&c).unwrap()).unwrap();
        assert_eq!(read, c);
    }

    #[test]
    fn words_are_the_values_of_the_other_side() {
        let values = ["off", "FLASH_ATTN"].map(|word| Value::Text(word.into())).to_vec();
        let backend = Parameter { name: "env.BACKEND".into(), values, default: None, when: None };
        let read = |text| Constraint::parse(text).unwrap().with_words(std::slice::from_ref(&backend));
        let (not_off, flash) = (read("env.BACKEND != off"), read("FLASH_ATTN == env.BACKEND"));
        assert_eq!(flash.to_string(), "FLASH_ATTN == env.BACKEND");
        let with = |word: &str| Point::default().with("env.BACKEND", Value::Text(word.into()));
        assert!(not_off.is_met(&with("FLASH_ATTN")) && !not_off.is_met(&with("off")));
        assert!(flash.is_met(&with("FLASH_ATTN")) && !flash.is_met(&with("off")));
        assert!(!not_off.is_met(&Point::default()), "an absent parameter meets no condition");
        assert!(not_off.holds(&Point::default()), "and breaks no constraint");
        assert_eq!(read("env.BACKEND != other").names().count(), 2, "what is no value stays a name");
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        assert!(Constraint::parse("max-num-seqs").unwrap_err().contains("needs one of"));
        assert!(Constraint::parse("a * b > 3").unwrap_err().contains("multiplies two"));
        assert!(Constraint::parse("> 3").unwrap_err().contains("empty"));
        assert!(Constraint::parse("a(3) > 3").unwrap_err().contains("neither"));
    }
}
