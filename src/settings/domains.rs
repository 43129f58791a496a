//! The domains of known engine flags, which its dialect lists. A value outside is refused before an engine is started or simulated.

use crate::engine::DIALECTS;
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
    fn holds(self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Text(_)) => true,
            (Self::Count(least), Value::Int(count)) => (least..=LARGEST).contains(count),
            (Self::Share, value) => value.number().is_some_and(|share| share > 0.0 && share <= 1.0),
            (Self::Amount, value) => value.number().is_some_and(|amount| (0.0..=LARGEST as f64).contains(&amount)),
            (Self::Count(_), _) => false,
        }
    }

    fn says(self) -> String {
        match self {
            Self::Count(least) => format!("an integer of at least {least}, at most {LARGEST}"),
            Self::Share => "a number above 0 and at most 1".to_owned(),
            Self::Amount => "a number of at least 0".to_owned(),
        }
    }
}

/// What the flag accepts, if it does not accept that value; none if it does, or if the flag is unknown.
pub fn refuses(flag: &str, value: &Value) -> Option<String> {
    let mut all = DIALECTS.iter().flat_map(|dialect| dialect.domains());
    let (_, domain) = all.find(|(name, _)| *name == flag)?;
    (!domain.holds(value)).then(|| domain.says())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_flags_of_the_engine() {
        for dialect in DIALECTS {
            for (name, _) in dialect.domains() {
                let flag = name.split('.').next().unwrap();
                assert!(dialect.flags().lines().any(|line| line == flag) || *name == "swap-space", "{name}");
            }
        }
    }

    #[test]
    fn values_that_no_engine_takes_are_refused() {
        for (flag, value) in [
            ("max-num-seqs", Value::Int(0)),
            ("max-num-seqs", Value::Int(-8)),
            ("max-num-seqs", Value::Int(i64::MAX)),
            ("max-num-seqs", Value::Real(1.5)),
            ("max-num-seqs", Value::Bool(true)),
            ("gpu-memory-utilization", Value::Real(0.0)),
            ("gpu-memory-utilization", Value::Real(1.01)),
            ("swap-space", Value::Real(-1.0)),
        ] {
            assert!(refuses(flag, &value).is_some(), "{flag} {value}");
        }
        for (flag, value) in [
            ("max-num-seqs", Value::Int(1)),
            ("gpu-memory-utilization", Value::Int(1)),
            ("max-model-len", Value::Text("8k".into())),
            ("an-unknown-flag", Value::Int(-8)),
        ] {
            assert_eq!(refuses(flag, &value), None, "{flag} {value}");
        }
    }
}
