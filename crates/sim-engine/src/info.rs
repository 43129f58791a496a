//! What the server tells of its configuration: `/server_info` and `/v1/models`.

use serde_json::{Value, json};

use autotune_twin::Limits;

#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) model: String,
    pub(super) served_name: String,
    pub(super) limits: Limits,
    pub(super) max_model_len: u32,
    pub(super) gpu_memory_utilization: f64,
    pub(super) prefix_caching: bool,
    /// Tokens of a streamed chunk behind the first.
    pub(super) stream_interval: u32,
    /// How it speculates, if it does: vLLM's JSON.
    pub(super) speculative: Option<Value>,
    /// Unix time of the start in seconds.
    pub(super) started: u64,
}

impl Config {
    /// How many requests of the greatest length the KV cache holds.
    pub(super) fn max_concurrency(&self) -> f64 {
        self.limits.kv_tokens() as f64 / f64::from(self.max_model_len)
    }
}

/// The answer of `/server_info?config_format=json`: the keys of vLLM's that a tuner reads.
pub(super) fn server_info(config: &Config) -> Value {
    json!({"vllm_config": {
        "model_config": {
            "model": config.model, "served_model_name": config.served_name, "max_model_len": config.max_model_len,
        },
        "cache_config": {
            "block_size": config.limits.block_size,
            "gpu_memory_utilization": config.gpu_memory_utilization,
            "cache_dtype": "auto",
            "enable_prefix_caching": config.prefix_caching,
            "num_gpu_blocks": config.limits.num_blocks,
            "kv_cache_size_tokens": config.limits.kv_tokens(),
            "kv_cache_max_concurrency": config.max_concurrency(),
        },
        "scheduler_config": {
            "runner_type": "generate",
            "max_num_batched_tokens": config.limits.max_num_batched_tokens,
            "max_num_seqs": config.limits.max_num_seqs,
            "enable_chunked_prefill": true,
            "policy": "fcfs",
            "async_scheduling": false,
            "stream_interval": config.stream_interval,
        },
        "speculative_config": config.speculative,
    }, "vllm_env": {}, "system_env": {}})
}

/// The answer of `/v1/models`.
pub(super) fn models(config: &Config) -> Value {
    let permission = json!({
        "id": "modelperm-0000000000000000", "object": "model_permission", "created": config.started,
        "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true, "allow_search_indices": false,
        "allow_view": true, "allow_fine_tuning": false, "organization": "*", "group": null, "is_blocking": false,
    });
    json!({"object": "list", "data": [{
        "id": config.served_name, "object": "model", "created": config.started, "owned_by": "vllm", "root": config.model,
        "parent": null, "max_model_len": config.max_model_len, "permission": [permission],
    }]})
}
