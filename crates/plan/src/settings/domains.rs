//! The domains of known engine flags, which its dialect lists. A value outside is refused before an engine is started or simulated.

use crate::engine::DIALECTS;
use crate::space::Value;

/// What the flag accepts, if it does not accept that value; `None` if it does, or if the flag is unknown.
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
