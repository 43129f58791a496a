//! Constraints between parameters, such as `max-num-batched-tokens >= max-num-seqs`.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Point;

/// `left <comparison> right`, where each side is a parameter, a number, or a parameter times a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constraint {
    pub left: Term,
    pub comparison: Comparison,
    pub right: Term,
}

/// One side of a constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// The parameter, if the side names one.
    pub parameter: Option<String>,
    /// Its factor, or the number itself where there is no parameter.
    pub factor: f64,
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
    /// Reads `A >= B`, where a side is `NAME`, `NUMBER`, `NUMBER * NAME` or `NAME * NUMBER`.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the text. Whether the names exist is not checked here.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (at, spelling, comparison) = Comparison::SPELLINGS
            .iter()
            .filter_map(|(s, c)| text.find(s).map(|at| (at, *s, *c)))
            .min_by_key(|(at, s, _)| (*at, std::cmp::Reverse(s.len())))
            .ok_or("a constraint needs one of <, <=, ==, !=, >=, >")?;
        let (left, right) = (&text[..at], &text[at + spelling.len()..]);
        Ok(Self { left: Term::parse(left)?, comparison, right: Term::parse(right)? })
    }

    /// Whether the point keeps it; an absent or wordless parameter cannot break it.
    pub fn holds(&self, point: &Point) -> bool {
        let (Some(left), Some(right)) = (self.left.value(point), self.right.value(point)) else { return true };
        let order = if (left - right).abs() <= 1e-9 * left.abs().max(right.abs()) {
            Some(Ordering::Equal)
        } else {
            left.partial_cmp(&right)
        };
        match (self.comparison, order) {
            (_, None) => true,
            (Comparison::Less, Some(o)) => o == Ordering::Less,
            (Comparison::AtMost, Some(o)) => o != Ordering::Greater,
            (Comparison::AtLeast, Some(o)) => o != Ordering::Less,
            (Comparison::Greater, Some(o)) => o == Ordering::Greater,
            (Comparison::Equal, Some(o)) => o == Ordering::Equal,
            (Comparison::NotEqual, Some(o)) => o != Ordering::Equal,
        }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        [&self.left, &self.right].into_iter().filter_map(|t| t.parameter.as_deref())
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        let mut term = Self { parameter: None, factor: 1.0 };
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
            } else if part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
                term.parameter = Some(part.replace('_', "-"));
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

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.left, self.comparison.spelling(), self.right)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parameter {
            None => write!(f, "{}", self.factor),
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
    fn nonsense_is_refused_with_a_reason() {
        assert!(Constraint::parse("max-num-seqs").unwrap_err().contains("needs one of"));
        assert!(Constraint::parse("a * b > 3").unwrap_err().contains("multiplies two"));
        assert!(Constraint::parse("> 3").unwrap_err().contains("empty"));
        assert!(Constraint::parse("a(3) > 3").unwrap_err().contains("neither"));
    }
}
