//! The space: parameters, points and the constraints between parameters.
//!
//! Pure. A parameter is named as the engine's own flag, without the leading dashes. This room knows nothing of engines.

mod constraint;
mod encode;
mod value;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use constraint::{Comparison, Constraint};
pub use encode::{candidates, coordinate, is_choice};
pub use value::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// The engine's flag without its dashes, words joined by `-`, such as `max-num-seqs`.
    pub name: String,
    /// The values it may take, ascending for numbers; at least one.
    pub values: Vec<Value>,
    /// The value of the baseline; without it the running engine tells its own.
    pub default: Option<Value>,
}

/// The parameters and the constraints between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Space {
    /// In the order of the space file.
    pub parameters: Vec<Parameter>,
    /// Points that break one are never launched.
    pub constraints: Vec<Constraint>,
}

impl Space {
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|p| p.name == name)
    }

    /// The point of all given defaults; parameters without one are absent, and the engine chooses.
    pub fn baseline(&self) -> Point {
        Point(self.parameters.iter().filter_map(|p| Some((p.name.clone(), p.default.clone()?))).collect())
    }

    /// Whether the point breaks no constraint. A constraint on an absent parameter is not broken.
    pub fn admits(&self, point: &Point) -> bool {
        self.constraints.iter().all(|c| c.holds(point))
    }

    /// How many points there are, constraints not counted (saturating).
    pub fn size(&self) -> usize {
        self.parameters.iter().fold(1, |size, p| size.saturating_mul(p.values.len()))
    }
}

/// A choice of values, by parameter name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Point(pub BTreeMap<String, Value>);

impl Point {
    /// The value of a parameter, if the point has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The same point with one value replaced.
    pub fn with(&self, name: &str, value: Value) -> Self {
        let mut point = self.clone();
        point.0.insert(name.to_owned(), value);
        point
    }

    /// The same point with all values of another in place of its own.
    pub fn holding(&self, held: &Self) -> Self {
        let values = self.0.iter().chain(&held.0);
        Self(values.map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

impl fmt::Display for Point {
    /// `max-num-batched-tokens 2048, max-num-seqs 16`; the empty point reads `the engine's defaults`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the engine's defaults");
        }
        for (i, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name} {value}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
