//! What one engine flag takes.

use crate::space::Value;

/// The values that a flag takes. Words are left to the engine: some flags take `auto` or `8k` as well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Domain {
    /// Integers from this one on.
    Count(i64),
    /// Numbers above 0, up to 1.
    Share,
    /// Numbers from 0 on.
    Amount,
}

/// No flag takes a larger integer: vLLM hands them to C as `int`.
const LARGEST: i64 = i32::MAX as i64;

impl Domain {
    pub(super) fn holds(self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Text(_)) => true,
            (Self::Count(least), Value::Int(count)) => (least..=LARGEST).contains(count),
            (Self::Share, value) => value.number().is_some_and(|share| share > 0.0 && share <= 1.0),
            (Self::Amount, value) => value.number().is_some_and(|amount| (0.0..=LARGEST as f64).contains(&amount)),
            (Self::Count(_), _) => false,
        }
    }

    pub(super) fn says(self) -> String {
        match self {
            Self::Count(least) => format!("an integer of at least {least}, at most {LARGEST}"),
            Self::Share => "a number above 0 and at most 1".to_owned(),
            Self::Amount => "a number of at least 0".to_owned(),
        }
    }
}
