//! A parameter's value: an integer, a real number, a word or a switch.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A switch: `--flag` or `--no-flag`.
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(String),
}

impl Value {
    /// As a number; words and switches have none.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Int(i) => Some(*i as f64),
            Self::Real(r) => Some(*r),
            Self::Bool(_) | Self::Text(_) => None,
        }
    }

    /// Numbers compare by size (3 equals 3.0 within rounding of printed decimals), words and switches only for equality.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self.number(), other.number()) {
            (Some(a), Some(b)) if (a - b).abs() <= 1e-9 * a.abs().max(b.abs()) => Some(Ordering::Equal),
            (Some(a), Some(b)) => a.partial_cmp(&b),
            _ => (self == other).then_some(Ordering::Equal),
        }
    }

    /// Whether both mean the same setting.
    pub fn same(&self, other: &Self) -> bool {
        self.compare(other) == Some(Ordering::Equal)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(b) => write!(f, "{b}"),
            Self::Int(i) => write!(f, "{i}"),
            Self::Real(r) => write!(f, "{r}"),
            Self::Text(t) => f.write_str(t),
        }
    }
}
