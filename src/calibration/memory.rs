//! The KV cache that engines logged, beside the one that the base profile's memory predicts.

use serde::Serialize;

use super::configuration::{Configuration, ConfigurationError};
use crate::twin::{EngineFlags, Profile};

/// More than this share apart, the base's memory is not that of the engine.
const TOLERANCE: f64 = 0.01;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheSize {
    /// Fraction of the accelerator's memory that the engine planned with.
    pub gpu_memory_utilization: f64,
    /// Sequences that run at the same time, at most.
    pub max_num_seqs: u32,
    /// The token budget of a step.
    pub max_num_batched_tokens: u32,
    /// Tokens, as the engine logged them.
    pub logged: u64,
    /// Tokens that the base profile predicts; `None` if it says that this engine does not start.
    pub predicted: Option<u64>,
}

impl CacheSize {
    /// What the base says of an engine that logged its KV cache; none for one that did not.
    pub fn of(configuration: &Configuration, base: &Profile) -> Result<Option<Self>, ConfigurationError> {
        let Some(logged) = configuration.kv_tokens() else { return Ok(None) };
        let flags = configuration.flags(base)?;
        let EngineFlags { gpu_memory_utilization, max_num_seqs, max_num_batched_tokens, .. } = flags;
        let predicted = base.limits_under(&flags).ok().map(|limits| limits.kv_tokens());
        Ok(Some(Self { gpu_memory_utilization, max_num_seqs, max_num_batched_tokens, logged, predicted }))
    }

    /// The share by which the prediction is too large.
    pub fn error(&self) -> Option<f64> {
        self.predicted.map(|predicted| predicted as f64 / self.logged as f64 - 1.0)
    }

    /// Whether the base's memory is not that of the engine.
    pub fn is_wrong(&self) -> bool {
        self.error().is_none_or(|error| error.abs() > TOLERANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_another_model_shows() {
        let launch = Configuration::parse("gpu-memory-utilization=0.92,kv-tokens=919824").unwrap();
        let beside = |base: &str| CacheSize::of(&launch, &Profile::named(base).unwrap()).unwrap().unwrap();
        assert!(!beside("h200-llama8b").is_wrong() && beside("h200-llama70b").is_wrong());
        let silent = Configuration::default();
        assert_eq!(CacheSize::of(&silent, &Profile::quickstart()), Ok(None));
    }
}
