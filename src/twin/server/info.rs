//! What the server tells about itself: `/metrics`, `/server_info` and `/v1/models`.

use std::fmt::Write;

use serde_json::{Value, json};

use super::engine::Snapshot;
use crate::twin::Limits;

/// The effective configuration.
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
    /// Unix time of the start in seconds.
    pub(super) started: u64,
}

impl Config {
    /// How many requests of the greatest length the KV cache holds.
    pub(super) fn max_concurrency(&self) -> f64 {
        self.limits.kv_tokens() as f64 / f64::from(self.max_model_len)
    }
}

/// The page of `/metrics` in Prometheus' text format, with the names and labels of vLLM 0.32.
pub(super) fn metrics(config: &Config, snapshot: &Snapshot) -> String {
    let mut c = snapshot.counters;
    if !config.prefix_caching {
        // Without a prefix cache nothing is looked up.
        c.prefix_queries = 0;
    }
    let model = Value::from(config.served_name.as_str());
    let mut page = String::with_capacity(6_000);
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(&str, f64)]| {
        let suffix = if kind == "counter" { "_total" } else { "" };
        let _ = writeln!(page, "# HELP vllm:{name}{suffix} {help}\n# TYPE vllm:{name}{suffix} {kind}");
        for (label, value) in samples {
            // Labels come in the order of their names, as the Prometheus client of Python writes them.
            let mut labels = vec!["engine=\"0\"".to_owned(), format!("model_name={model}")];
            labels.extend((!label.is_empty()).then(|| (*label).to_owned()));
            labels.sort();
            let _ = writeln!(page, "vllm:{name}{suffix}{{{}}} {value:?}", labels.join(","));
        }
    };
    let (running, waiting) = (f64::from(c.running), f64::from(c.waiting));
    family("num_requests_running", "gauge", "Number of requests in model execution batches.", &[("", running)]);
    family("num_requests_waiting", "gauge", "Number of requests waiting to be processed.", &[("", waiting)]);
    family(
        "num_requests_waiting_by_reason",
        "gauge",
        "Number of waiting requests by reason.",
        &[("reason=\"capacity\"", waiting), ("reason=\"deferred\"", 0.0)],
    );
    family("kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", &[("", c.kv_usage)]);
    for (name, help, value) in [
        ("num_preemptions", "Cumulative number of preemption from the engine.", c.preemptions),
        ("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", c.prefix_queries),
        ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", c.prefix_hits),
        ("prompt_tokens", "Number of prefill tokens processed.", c.prompt_tokens),
        ("generation_tokens", "Number of generation tokens processed.", c.generation_tokens),
    ] {
        family(name, "counter", help, &[("", value as f64)]);
    }
    // Aborted requests are counted nowhere, as in vLLM 0.32.
    let reasons = ["stop", "length", "abort", "error", "repetition"].map(|reason| {
        let value = if reason == "length" { snapshot.completed as f64 } else { 0.0 };
        (format!("finished_reason=\"{reason}\""), value)
    });
    let reasons: Vec<(&str, f64)> = reasons.iter().map(|(label, value)| (label.as_str(), *value)).collect();
    family("request_success", "counter", "Count of successfully processed requests.", &reasons);
    let _ = writeln!(
        page,
        "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n# TYPE vllm:cache_config_info gauge\n\
         vllm:cache_config_info{{block_size=\"{}\",cache_dtype=\"auto\",enable_prefix_caching=\"{}\",engine=\"0\",\
         gpu_memory_utilization=\"{:?}\",kv_cache_max_concurrency=\"{:?}\",kv_cache_size_tokens=\"{}\",num_gpu_blocks=\"{}\"}} 1.0",
        config.limits.block_size,
        if config.prefix_caching { "True" } else { "False" },
        config.gpu_memory_utilization,
        config.max_concurrency(),
        config.limits.kv_tokens(),
        config.limits.num_blocks,
    );
    page
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
    }, "vllm_env": {}, "system_env": {}})
}

/// The answer of `/server_info` without a format: one long string, as vLLM's.
pub(super) fn server_info_text(config: &Config) -> Value {
    let text = format!(
        "model='{}', max_seq_len={}, enable_prefix_caching={}, max_num_seqs={}, max_num_batched_tokens={}",
        config.model,
        config.max_model_len,
        if config.prefix_caching { "True" } else { "False" },
        config.limits.max_num_seqs,
        config.limits.max_num_batched_tokens
    );
    json!({"vllm_config": text, "vllm_env": {}, "system_env": {}})
}

/// The answer of `/v1/models`.
pub(super) fn models(config: &Config) -> Value {
    json!({"object": "list", "data": [{
        "id": config.served_name, "object": "model", "created": config.started, "owned_by": "vllm", "root": config.model,
        "parent": null, "max_model_len": config.max_model_len, "permission": [],
    }]})
}
