//! The space: parameters, points and the constraints between parameters.
//!
//! Pure. A parameter is named as the engine's own flag, without the leading dashes, or as a variable of its environment behind `env.`. This
//! folder knows nothing of engines.

mod constraint;
mod encode;
mod value;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use constraint::{Comparison, Constraint, plain_name};
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
    /// The condition under which it exists; a point where that is not met has no value of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Constraint>,
}

impl Parameter {
    /// Whether it is one of a point with these values of other parameters.
    pub fn exists_at(&self, point: &Point) -> bool {
        self.when.as_ref().is_none_or(|when| when.is_met(point))
    }
}

/// Above so many choices of what decides whether parameters exist, the size of a space is that without conditions.
const MOST_DECIDED: usize = 100_000;

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
        self.settled(Point(self.parameters.iter().filter_map(|p| Some((p.name.clone(), p.default.clone()?))).collect()))
    }

    /// The point without values of parameters that do not exist there: points that differ in these alone are one.
    #[must_use]
    pub fn settled(&self, mut point: Point) -> Point {
        for parameter in self.parameters.iter().filter(|p| p.when.is_some()) {
            if !parameter.exists_at(&point) {
                point.0.remove(&parameter.name);
            }
        }
        point
    }

    /// The names of the parameters that do not exist at a point.
    pub fn missing_at(&self, point: &Point) -> Vec<String> {
        self.parameters.iter().filter(|p| !p.exists_at(point)).map(|p| p.name.clone()).collect()
    }

    /// The point with one value replaced. Parameters that come into being have their default, or their first value.
    #[must_use]
    pub fn changed(&self, point: &Point, name: &str, value: Value) -> Point {
        let changed = point.with(name, value);
        let begin = self.parameters.iter().filter(|p| !p.exists_at(point) && p.exists_at(&changed));
        let first = |p: &Parameter| Some((p.name.clone(), p.default.as_ref().or(p.values.first())?.clone()));
        let begin: BTreeMap<String, Value> = begin.filter_map(first).collect();
        self.settled(Point(begin.into_iter().chain(changed.0).collect()))
    }

    /// Whether the point breaks no constraint. A constraint on an absent parameter is not broken.
    pub fn admits(&self, point: &Point) -> bool {
        self.constraints.iter().all(|c| c.holds(point))
    }

    /// How many points there are, constraints not counted (saturating).
    pub fn size(&self) -> usize {
        let decides = |p: &Parameter| {
            self.parameters.iter().filter_map(|p| p.when.as_ref()).any(|when| when.names().any(|name| name == p.name))
        };
        let (deciding, others): (Vec<_>, Vec<_>) = self.parameters.iter().partition(|p| decides(p));
        let product = |all: &[&Parameter]| all.iter().fold(1_usize, |size, p| size.saturating_mul(p.values.len()));
        if product(&deciding) > MOST_DECIDED {
            return product(&deciding).saturating_mul(product(&others));
        }
        size(&deciding, &others, &Point::default())
    }
}

/// How many points begin with the values of this one: those of what decides whether others exist are tried one by one.
fn size(deciding: &[&Parameter], others: &[&Parameter], point: &Point) -> usize {
    match deciding.split_first() {
        Some((first, rest)) => {
            let with = |value: &Value| size(rest, others, &point.with(&first.name, value.clone()));
            first.values.iter().map(with).fold(0, usize::saturating_add)
        }
        None => {
            let there = others.iter().filter(|p| p.exists_at(point));
            there.fold(1, |size, p| size.saturating_mul(p.values.len()))
        }
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

    /// Whether a parameter has that value here.
    pub fn has(&self, name: &str, value: &Value) -> bool {
        self.get(name).is_some_and(|own| own.same(value))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A draft exists where there is speculation.
    fn space() -> Space {
        let texts = |texts: &[&str]| texts.iter().map(|text| Value::Text((*text).into())).collect();
        let switch = Parameter {
            name: "speculation".into(),
            values: texts(&["off", "ngram"]),
            default: Some(Value::Text("off".into())),
            when: None,
        };
        let when = Constraint::parse("speculation != off").unwrap().with_words(std::slice::from_ref(&switch));
        let ints = |values: &[i64]| values.iter().copied().map(Value::Int).collect();
        let draft = Parameter {
            name: "draft".into(),
            values: ints(&[2, 4, 8]),
            default: Some(Value::Int(4)),
            when: Some(when),
        };
        let seqs = Parameter { name: "seqs".into(), values: ints(&[16, 64]), default: None, when: None };
        Space { parameters: vec![draft, switch, seqs], constraints: Vec::new() }
    }

    #[test]
    fn points_that_differ_in_what_does_not_exist_are_one() {
        let space = space();
        assert_eq!(space.baseline(), Point::default().with("speculation", Value::Text("off".into())));
        assert_eq!(space.size(), 2 * (1 + 3));
        let all = candidates(&space, &Point::default(), space.size(), 1);
        assert_eq!(all.len(), space.size(), "{all:?}");
        for point in &all {
            let speculates = point.get("speculation") == Some(&Value::Text("ngram".into()));
            assert_eq!(point.get("draft").is_some(), speculates, "{point}");
        }
    }

    #[test]
    fn what_comes_into_being_has_its_default() {
        let space = space();
        let on = space.changed(&space.baseline(), "speculation", Value::Text("ngram".into()));
        assert_eq!(on.get("draft"), Some(&Value::Int(4)));
        assert_eq!(space.changed(&on, "speculation", Value::Text("off".into())), space.baseline());
    }
}
