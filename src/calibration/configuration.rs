//! The limits under which a probe ran: what its source tells of them, and what a base profile adds.

use std::collections::BTreeMap;

use crate::engine::effective::Effective;
use crate::space::{Point, Value};
use crate::twin::{Bounds, EngineDefaults, EngineFlags, FlagError, MemoryFailure, Profile};

/// The name that the size of the KV cache has among the flags. Its value is what the engine logs, in tokens.
pub const KV_TOKENS: &str = "kv-tokens";
/// A replay needs these flags.
const LIMITS: [&str; 2] = ["max-num-seqs", "max-num-batched-tokens"];

/// The flags and the KV cache of an engine, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    flags: BTreeMap<String, String>,
    kv_tokens: Option<u64>,
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// Not of the form `FLAG=VALUE`.
    #[error("`{text}` is not FLAG=VALUE")]
    NoSetting { text: String },
    #[error("`{name}` changes nothing that is replayed; what does: {}, {KV_TOKENS}", EngineFlags::KNOWN.join(", "))]
    Unknown { name: String },
    /// The flag does not take this value.
    #[error("`{name}` cannot be `{value}`")]
    Value {
        /// The flag without its dashes.
        name: String,
        value: String,
    },
    #[error("`{name}` was {said}, as the engine itself said, and not {given}")]
    Contradicted { name: String, said: String, given: String },
    #[error(
        "nothing tells `{name}`\n  = hint: --set {name}=N, FILE,{name}=N, or --base with a profile whose default it was"
    )]
    Untold { name: &'static str },
    #[error(
        "the base profile cannot tell the KV cache of this configuration: {0}\n  = hint: --kv-tokens N, as the engine logged it"
    )]
    NoCache(MemoryFailure),
}

/// The limits of a probe, and where they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub bounds: Bounds,
    /// Those of the base profile, with their values.
    pub from_base: Vec<(&'static str, u64)>,
}

impl Configuration {
    /// Reads `FLAG=VALUE` or `FLAG=VALUE,FLAG=VALUE`.
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        let mut configuration = Self::default();
        for setting in text.split(',') {
            let no_setting = || ConfigurationError::NoSetting { text: setting.to_owned() };
            let (name, value) = setting.split_once('=').ok_or_else(no_setting)?;
            configuration.set(name.trim().trim_start_matches('-'), value.trim())?;
        }
        Ok(configuration)
    }

    /// What a running engine said, and where it is silent, what it was asked for.
    pub fn of_engine(effective: &Effective, asked: &Point) -> Self {
        let found = Self::default().with(&asked.0).with(&effective.values);
        Self { kv_tokens: effective.kv_cache_tokens, ..found }
    }

    /// Sets a flag, written without dashes, or [`KV_TOKENS`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigurationError> {
        let name = name.replace('_', "-");
        if name == KV_TOKENS {
            let tokens = value.parse().ok().filter(|tokens| *tokens > 0);
            self.kv_tokens = Some(tokens.ok_or(ConfigurationError::Value { name, value: value.to_owned() })?);
            return Ok(());
        }
        nothing_set().set(&name, value)?;
        self.flags.insert(name, value.to_owned());
        Ok(())
    }

    #[must_use]
    pub fn with(mut self, values: &BTreeMap<String, Value>) -> Self {
        for (name, value) in values {
            // Other flags have no effect on a replay.
            let _ = self.set(name, &value.to_string());
        }
        self
    }

    /// This, and what the other knows besides.
    #[must_use]
    pub fn or(mut self, other: &Self) -> Self {
        for (name, value) in &other.flags {
            self.flags.entry(name.clone()).or_insert_with(|| value.clone());
        }
        self.kv_tokens = self.kv_tokens.or(other.kv_tokens);
        self
    }

    /// Whether both can be true.
    pub fn agrees(&self, given: &Self) -> Result<(), ConfigurationError> {
        let contradicted = |name: &str, said: &dyn ToString, given: &dyn ToString| {
            Err(ConfigurationError::Contradicted {
                name: name.to_owned(),
                said: said.to_string(),
                given: given.to_string(),
            })
        };
        for (name, value) in &given.flags {
            match self.flags.get(name) {
                Some(said) if said != value => return contradicted(name, said, value),
                _ => {}
            }
        }
        match (self.kv_tokens, given.kv_tokens) {
            (Some(said), Some(given)) if said != given => contradicted(KV_TOKENS, &said, &given),
            _ => Ok(()),
        }
    }

    /// The flags in force: those that are known, over the base's defaults.
    pub fn flags(&self, base: &Profile) -> Result<EngineFlags, ConfigurationError> {
        self.over(base.defaults.into())
    }

    /// Size of the KV cache in tokens, where it is known.
    pub fn kv_tokens(&self) -> Option<u64> {
        self.kv_tokens
    }

    /// The limits under which a probe is replayed.
    pub fn resolve(&self, base: Option<&Profile>) -> Result<Resolved, ConfigurationError> {
        let untold = LIMITS.into_iter().filter(|name| !self.flags.contains_key(*name));
        let flags = match base {
            Some(base) => self.flags(base)?,
            None => match untold.clone().next() {
                Some(name) => return Err(ConfigurationError::Untold { name }),
                None => self.over(nothing_set())?,
            },
        };
        let value = |name| if name == LIMITS[0] { flags.max_num_seqs } else { flags.max_num_batched_tokens };
        let mut from_base: Vec<(&str, u64)> = untold.map(|name| (name, u64::from(value(name)))).collect();
        let kv_tokens = match (self.kv_tokens, base) {
            (None, Some(base)) => {
                let limits = base.limits_under(&flags).map_err(ConfigurationError::NoCache)?;
                from_base.push((KV_TOKENS, limits.kv_tokens()));
                Some(limits.kv_tokens())
            }
            (known, _) => known,
        };
        let EngineFlags { max_num_seqs, max_num_batched_tokens, .. } = flags;
        let bounds = Bounds { max_num_seqs, max_num_batched_tokens, kv_tokens };
        Ok(Resolved { bounds, from_base })
    }

    fn over(&self, mut flags: EngineFlags) -> Result<EngineFlags, ConfigurationError> {
        for (name, value) in &self.flags {
            flags.set(name, value)?;
        }
        Ok(flags)
    }
}

impl From<FlagError> for ConfigurationError {
    fn from(error: FlagError) -> Self {
        match error {
            FlagError::Unknown { name } => Self::Unknown { name },
            FlagError::Value { name, value } => Self::Value { name, value },
        }
    }
}

/// Flags to try values on; the numbers are never used.
fn nothing_set() -> EngineFlags {
    let defaults =
        EngineDefaults { max_num_seqs: 1, max_num_batched_tokens: 1, gpu_memory_utilization: 1.0, max_model_len: 1 };
    defaults.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_counts_and_the_base_tells_the_rest() {
        let base = Profile::named("h200-llama8b").unwrap();
        let known = Configuration::parse("max-num-seqs=32,kv-tokens=919824").unwrap();
        assert_eq!(known.resolve(None), Err(ConfigurationError::Untold { name: "max-num-batched-tokens" }));
        let resolved = known.resolve(Some(&base)).unwrap();
        let bounds = Bounds { max_num_seqs: 32, max_num_batched_tokens: 8192, kv_tokens: Some(919_824) };
        let from_base = vec![("max-num-batched-tokens", 8192)];
        assert_eq!(resolved, Resolved { bounds, from_base });
        let more = known.or(&Configuration::parse("max_num_seqs=64,--max-num-batched-tokens=1024").unwrap());
        let bounds = Bounds { max_num_batched_tokens: 1024, ..bounds };
        assert_eq!(more.resolve(None), Ok(Resolved { bounds, from_base: vec![] }));
    }

    #[test]
    fn a_cache_that_nothing_tells_is_the_bases_or_bounds_nothing() {
        let base = Profile::named("h200-llama8b").unwrap();
        let limits = Configuration::parse("max-num-seqs=1024,max-num-batched-tokens=8192").unwrap();
        assert_eq!(limits.resolve(None).unwrap().bounds.kv_tokens, None);
        let (name, tokens) = limits.resolve(Some(&base)).unwrap().from_base[0];
        assert!(name == KV_TOKENS && (tokens as f64 / 919_824.0 - 1.0).abs() < 0.01, "{tokens}");
        let small = limits.or(&Configuration::parse("gpu-memory-utilization=0.1").unwrap());
        assert!(matches!(small.resolve(Some(&base)), Err(ConfigurationError::NoCache(_))));
    }

    #[test]
    fn mistakes_are_named() {
        let said = |text: &str| Configuration::parse(text).unwrap_err().to_string();
        assert!(said("block-size=32").contains("max-num-seqs") && said("block-size=32").contains(KV_TOKENS));
        assert_eq!(said("max-num-seqs=0"), "`max-num-seqs` cannot be `0`");
        assert_eq!(said("kv-tokens=many"), "`kv-tokens` cannot be `many`");
        assert_eq!(said("max-num-seqs"), "`max-num-seqs` is not FLAG=VALUE");
        let [said, given] = ["max-num-seqs=32", "max-num-seqs=64"].map(|text| Configuration::parse(text).unwrap());
        assert!(said.agrees(&said).is_ok() && said.agrees(&given).unwrap_err().to_string().contains("32"));
    }
}
