//! An engine as numbers: the seconds of a step, the bytes of its memory, the values it takes when no flag is given.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::costs::StepCosts;
use super::flags::{EngineDefaults, EngineFlags};
use super::kernels::Kernels;
use super::noise::Noise;

/// Where the bytes of the accelerator go.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Bytes of the accelerator.
    pub total: u64,
    /// Bytes of the weights.
    pub weights: u64,
    /// Bytes that the engine's own profiling run sees whatever the flags say: contexts, workspaces.
    #[serde(default)]
    pub fixed: u64,
    /// Bytes of activations for each token that a step may hold; the profiling run sees them.
    #[serde(default)]
    pub activation_per_batched_token: u64,
    /// Bytes of activations for each squared token that a step may hold, where they grow faster than the budget.
    #[serde(default)]
    pub activation_per_batched_token_squared: f64,
    /// Bytes of the sampler for each sequence in the profiling run. It comes when the activations are gone: the larger peak counts.
    #[serde(default)]
    pub profiled_sampler_per_sequence: u64,
    /// Bytes of the sampler for each sequence; allocated after the KV cache, so the profiling run does not see them.
    #[serde(default)]
    pub sampler_per_sequence: u64,
    /// Bytes of captured graphs and of other processes, outside of what `gpu_memory_utilization` governs.
    #[serde(default)]
    pub unmanaged: u64,
    /// Bytes that each running sequence still allocates under load: a start does not show whether there is room for them.
    #[serde(default)]
    pub load_per_sequence: u64,
    /// Bytes of keys and values for each token of context.
    pub per_kv_token: u64,
    /// Tokens of a KV block.
    pub block_size: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Seconds from the start of the process to its readiness, and those of its stop; the warm-up comes on top.
    pub seconds: f64,
}

/// An engine with its model on its accelerator, as numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name that `--sim-profile` takes.
    pub name: String,
    /// Where the numbers come from, in a line for people.
    pub source: String,
    /// Whether others have a part of its machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// The seconds of a step; of the CPU alone where `kernels` tell those of the GPU.
    pub costs: StepCosts,
    /// The table of measured kernels that tells what steps take on the GPU: a name of [`Kernels::names`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
    /// The bytes of the accelerator.
    pub memory: Memory,
    /// The values of flags that are not given.
    pub defaults: EngineDefaults,
    /// How unsteady the engine is; none for one that repeats exactly.
    pub noise: Option<Noise>,
    /// What a start takes; none for an imaginary engine, which starts at once.
    pub start: Option<Start>,
}

/// What bounds the scheduler: two flags, and the KV cache that the memory allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Sequences that run at the same time, at most.
    pub max_num_seqs: u32,
    /// The token budget of a step.
    pub max_num_batched_tokens: u32,
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
    /// Its table of measured kernels.
    pub fn kernels(&self) -> Option<&'static Kernels> {
        self.kernels.as_deref().and_then(Kernels::named)
    }

    /// What the scheduler may use under these flags, or why the engine does not start.
    pub fn limits(
        &self,
        gpu_memory_utilization: f64,
        max_num_seqs: u32,
        max_num_batched_tokens: u32,
    ) -> Result<Limits, MemoryFailure> {
        let defaults = EngineFlags::from(self.defaults);
        self.limits_under(&EngineFlags { gpu_memory_utilization, max_num_seqs, max_num_batched_tokens, ..defaults })
    }

    /// [`Profile::limits`] with all flags that matter.
    pub fn limits_under(&self, flags: &EngineFlags) -> Result<Limits, MemoryFailure> {
        let m = &self.memory;
        let num_blocks = self.cache_bytes(flags) / (m.per_kv_token * u64::from(m.block_size));
        let num_blocks = u32::try_from(num_blocks).unwrap_or(u32::MAX);
        if num_blocks == 0 {
            return Err(MemoryFailure::NoKvBlocks);
        }
        let (needed_len, max_len) = (flags.max_model_len, num_blocks.saturating_mul(m.block_size));
        if max_len < needed_len {
            return Err(MemoryFailure::KvTooSmallForOneRequest { needed_len, max_len });
        }
        let needed = self.started_bytes(flags);
        if needed > m.total {
            return Err(MemoryFailure::OutOfMemory { needed, available: m.total });
        }
        let EngineFlags { max_num_seqs, max_num_batched_tokens, .. } = *flags;
        Ok(Limits { max_num_seqs, max_num_batched_tokens, num_blocks, block_size: m.block_size })
    }

    /// How many sequences may run at once before an engine that started runs out of memory under load.
    pub fn max_seqs_before_oom(&self, flags: &EngineFlags) -> u32 {
        let room = self.memory.total.saturating_sub(self.started_bytes(flags));
        room.checked_div(self.memory.load_per_sequence).map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Bytes that the profiling run sees.
    fn profiled_bytes(&self, flags: &EngineFlags) -> u64 {
        let m = &self.memory;
        let tokens = u64::from(flags.max_num_batched_tokens);
        let squared = m.activation_per_batched_token_squared * (tokens as f64).powi(2);
        let activations = m.activation_per_batched_token * tokens + squared as u64;
        let sampler = m.profiled_sampler_per_sequence * u64::from(flags.max_num_seqs);
        m.weights + m.fixed + activations.max(sampler)
    }

    /// Bytes that the engine plans with, the KV cache included.
    fn planned_bytes(&self, flags: &EngineFlags) -> u64 {
        match flags.kv_cache_memory_bytes {
            Some(bytes) => self.profiled_bytes(flags).saturating_add(bytes),
            None => (self.memory.total as f64 * flags.gpu_memory_utilization) as u64,
        }
    }

    fn cache_bytes(&self, flags: &EngineFlags) -> u64 {
        self.planned_bytes(flags).saturating_sub(self.profiled_bytes(flags))
    }

    /// Bytes in use when the engine is ready: the KV cache fills what was planned; graphs and the sampler come afterwards.
    fn started_bytes(&self, flags: &EngineFlags) -> u64 {
        let sampler = self.memory.sampler_per_sequence * u64::from(flags.max_num_seqs);
        self.planned_bytes(flags).saturating_add(self.memory.unmanaged + sampler)
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
        let defaults = EngineFlags::from(p.defaults);
        let flags =
            EngineFlags { gpu_memory_utilization: 0.78, max_num_seqs: 32, max_num_batched_tokens: 256, ..defaults };
        assert!(p.limits_under(&EngineFlags { max_model_len: max_len, ..flags }).is_ok());
    }

    #[test]
    fn a_cache_of_given_bytes_ignores_the_share() {
        let p = Profile::named("vllm-cpu-small").unwrap();
        let flags = EngineFlags { kv_cache_memory_bytes: Some(256 << 20), max_model_len: 8192, ..p.defaults.into() };
        assert_eq!(p.limits_under(&flags).unwrap().kv_tokens(), 131_072, "as vLLM 0.32 logs it");
    }

    #[test]
    fn in_a_narrow_band_an_engine_starts_and_runs_out_of_memory_under_load() {
        let p = Profile::named("h200-llama8b").unwrap();
        let max_seqs = |share| {
            let flags = EngineFlags { gpu_memory_utilization: share, ..p.defaults.into() };
            p.limits_under(&flags).map(|_| p.max_seqs_before_oom(&flags))
        };
        assert!(max_seqs(0.92).unwrap() > 1024, "the defaults bear as many as the cap admits");
        assert!(max_seqs(0.99).unwrap() < 1024);
        assert!(matches!(max_seqs(0.995), Err(MemoryFailure::OutOfMemory { .. })));
    }
}
