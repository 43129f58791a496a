//! An engine as numbers: the seconds of a step, the bytes of its memory, the values it takes when no flag is given.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::costs::StepCosts;

/// Where the bytes of the accelerator go.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Bytes of the accelerator.
    pub total: u64,
    /// Bytes of the weights.
    pub weights: u64,
    /// Bytes of activations for each token that a step may hold; the engine's own profiling run sees them.
    pub activation_per_batched_token: u64,
    /// Bytes of the sampler for each sequence; allocated after the KV cache, so the profiling run does not see them.
    pub sampler_per_sequence: u64,
    /// Bytes of captured graphs and of other processes, outside of what `gpu_memory_utilization` governs.
    pub unmanaged: u64,
    /// Bytes of keys and values for each token of context.
    pub per_kv_token: u64,
    /// Tokens of a KV block.
    pub block_size: u32,
}

/// The values an engine takes for the flags that are not given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineDefaults {
    /// Sequences that run at the same time, at most.
    pub max_num_seqs: u32,
    /// The token budget of a step.
    pub max_num_batched_tokens: u32,
    /// The fraction of the accelerator's memory that the engine plans with.
    pub gpu_memory_utilization: f64,
    /// Prompt and answer of a request together, in tokens, at most.
    pub max_model_len: u32,
}

/// An engine with its model on its accelerator, as numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name that `--sim-profile` takes.
    pub name: String,
    /// The seconds of a step.
    pub costs: StepCosts,
    /// The bytes of the accelerator.
    pub memory: Memory,
    /// The values of flags that are not given.
    pub defaults: EngineDefaults,
}

/// What bounds the scheduler: two flags, and the KV cache that the memory allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Sequences that run at the same time, at most.
    pub max_num_seqs: u32,
    /// The token budget of a step.
    pub max_num_batched_tokens: u32,
    /// KV blocks.
    pub num_blocks: u32,
    /// Tokens of a KV block.
    pub block_size: u32,
}

impl Limits {
    /// The size of the KV cache in tokens.
    pub fn kv_tokens(&self) -> u64 {
        u64::from(self.num_blocks) * u64::from(self.block_size)
    }
}

/// Why an engine does not start: its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFailure {
    /// What is allocated after the KV cache no longer fits.
    OutOfMemory {
        /// Bytes that the configuration asks for in all.
        needed: u64,
        /// Bytes that the accelerator has.
        available: u64,
    },
    /// Weights and activations leave less than one block.
    NoKvBlocks,
    /// The KV cache cannot hold one request of the greatest length.
    KvTooSmallForOneRequest {
        /// Tokens that the greatest request needs (`max_model_len`).
        needed_len: u32,
        /// Tokens that the KV cache holds: the greatest `max_model_len` that would do.
        max_len: u32,
    },
}

impl fmt::Display for MemoryFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { needed, available } => {
                write!(f, "out of memory: {needed} bytes needed, {available} available")
            }
            Self::NoKvBlocks => write!(f, "no memory is left for KV blocks"),
            Self::KvTooSmallForOneRequest { needed_len, max_len } => {
                write!(f, "the KV cache holds {max_len} tokens, one request may need {needed_len}")
            }
        }
    }
}

impl std::error::Error for MemoryFailure {}

impl Profile {
    /// The names that [`Profile::named`] knows.
    pub const NAMES: [&'static str; 1] = ["quickstart"];

    /// The profile of that name.
    pub fn named(name: &str) -> Option<Self> {
        (name == "quickstart").then(Self::quickstart)
    }

    /// A small imaginary engine on which every tuned flag matters within seconds. It is no measurement of anything.
    ///
    /// Made for prompts of 150 to 250 tokens, answers of 16 to 32 tokens and the limits TTFT p99 <= 150 ms, TPOT p99 <= 7 ms:
    /// few sequences leave requests waiting, many stretch the steps; a small token budget delays prefill, a large one stretches
    /// the steps of those that decode; too little memory holds too few sequences, too much does not start. There, by replays of
    /// 60,000 requests, the defaults hold 68.4 req/s and the best point (16 sequences, 256 tokens, 0.94) holds 86.3 req/s.
    pub fn quickstart() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            name: "quickstart".to_owned(),
            costs: StepCosts {
                base: 1.8e-3,
                per_decode: 1.2e-4,
                per_context_token: 1.0e-7,
                per_prefill_token: 2.0e-5,
                overhead: 3.0e-3,
                ..StepCosts::default()
            },
            memory: Memory {
                total: 8192 * MIB,
                weights: 6067 * MIB,
                activation_per_batched_token: 62 * 1024,
                sampler_per_sequence: MIB / 2,
                unmanaged: 410 * MIB,
                per_kv_token: 368 * 1024,
                block_size: 16,
            },
            defaults: EngineDefaults {
                max_num_seqs: 128,
                max_num_batched_tokens: 2048,
                gpu_memory_utilization: 0.85,
                max_model_len: 1024,
            },
        }
    }

    /// What the scheduler may use under these flags, or why the engine does not start.
    ///
    /// # Errors
    /// The memory does not suffice; see [`MemoryFailure`].
    pub fn limits(
        &self,
        gpu_memory_utilization: f64,
        max_num_seqs: u32,
        max_num_batched_tokens: u32,
    ) -> Result<Limits, MemoryFailure> {
        self.limits_for_len(gpu_memory_utilization, max_num_seqs, max_num_batched_tokens, self.defaults.max_model_len)
    }

    /// [`Profile::limits`] with another `max_model_len` than the default.
    ///
    /// # Errors
    /// The memory does not suffice; see [`MemoryFailure`].
    pub fn limits_for_len(
        &self,
        gpu_memory_utilization: f64,
        max_num_seqs: u32,
        max_num_batched_tokens: u32,
        max_model_len: u32,
    ) -> Result<Limits, MemoryFailure> {
        let m = &self.memory;
        let planned = (m.total as f64 * gpu_memory_utilization) as u64;
        let used = m.weights + m.activation_per_batched_token * u64::from(max_num_batched_tokens);
        let num_blocks = planned.saturating_sub(used) / (m.per_kv_token * u64::from(m.block_size));
        let num_blocks = u32::try_from(num_blocks).unwrap_or(u32::MAX);
        if num_blocks == 0 {
            return Err(MemoryFailure::NoKvBlocks);
        }
        let max_len = num_blocks.saturating_mul(m.block_size);
        if max_len < max_model_len {
            return Err(MemoryFailure::KvTooSmallForOneRequest { needed_len: max_model_len, max_len });
        }
        // The KV cache fills what was planned; graphs and the sampler come afterwards, as in vLLM's start-up.
        let needed = planned + m.unmanaged + m.sampler_per_sequence * u64::from(max_num_seqs);
        if needed > m.total {
            return Err(MemoryFailure::OutOfMemory { needed, available: m.total });
        }
        Ok(Limits { max_num_seqs, max_num_batched_tokens, num_blocks, block_size: m.block_size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_means_more_kv_until_the_start_fails() {
        let p = Profile::quickstart();
        let tokens = |u| p.limits(u, 32, 256).map(|l| l.kv_tokens());
        assert!(tokens(0.80).unwrap() < tokens(0.90).unwrap());
        assert!(tokens(0.90).unwrap() < tokens(0.94).unwrap());
        for seqs in [1, 128] {
            assert!(p.limits(0.94, seqs, 2048).is_ok());
            assert!(
                matches!(p.limits(0.951, seqs, 128), Err(MemoryFailure::OutOfMemory { needed, available }) if needed > available)
            );
        }
    }

    #[test]
    fn activations_take_from_the_kv_cache() {
        let p = Profile::quickstart();
        assert!(p.limits(0.9, 32, 2048).unwrap().num_blocks < p.limits(0.9, 32, 128).unwrap().num_blocks);
    }

    #[test]
    fn too_little_memory_has_two_names() {
        let p = Profile::quickstart();
        assert_eq!(p.limits(0.5, 32, 256), Err(MemoryFailure::NoKvBlocks));
        let Err(MemoryFailure::KvTooSmallForOneRequest { needed_len, max_len }) = p.limits(0.78, 32, 256) else {
            panic!("a KV cache smaller than one request");
        };
        assert!(max_len > 0 && max_len < needed_len);
        assert!(p.limits_for_len(0.78, 32, 256, max_len).is_ok());
    }

    #[test]
    fn the_defaults_start_and_names_are_known() {
        for name in Profile::NAMES {
            let p = Profile::named(name).unwrap();
            let d = p.defaults;
            assert!(p.limits(d.gpu_memory_utilization, d.max_num_seqs, d.max_num_batched_tokens).is_ok());
            assert_eq!(serde_json::from_str::<Profile>(&serde_json::to_string(&p).unwrap()).unwrap(), p);
        }
        assert_eq!(Profile::named("h200"), None);
    }
}
