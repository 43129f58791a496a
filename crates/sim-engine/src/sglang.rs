//! The simulated engine as SGLang: its flags, endpoints, metrics and log lines instead of vLLM's. Faults speak as vLLM.

use std::fmt::Write;

use serde_json::{Value, json};

use super::args::SimArgs;
use super::engine::Snapshot;
use super::info::Config;
use super::log::raw;
use autotune_clock as clock;
use autotune_twin::MemoryFailure;

/// Its flags, and those of the simulated engine that stand for them.
pub(super) const FLAGS: [(&str, &str); 19] = [
    ("--model-path", "--model"),
    ("--model", "--model"),
    ("--served-model-name", "--served-model-name"),
    ("--host", "--host"),
    ("--port", "--port"),
    ("--api-key", "--api-key"),
    ("--random-seed", "--seed"),
    ("--mem-fraction-static", "--gpu-memory-utilization"),
    ("--max-running-requests", "--max-num-seqs"),
    ("--chunked-prefill-size", "--max-num-batched-tokens"),
    ("--context-length", "--max-model-len"),
    ("--stream-interval", "--stream-interval"),
    ("--schedule-conservativeness", "--sim-ignored"),
    ("--disable-radix-cache", "--no-enable-prefix-caching"),
    ("--enable-metrics", "--sim-metrics"),
    ("--enable-cache-report", "--enable-prompt-tokens-details"),
    ("--trust-remote-code", "--trust-remote-code"),
    ("--tp-size", "--tensor-parallel-size"),
    ("--tensor-parallel-size", "--tensor-parallel-size"),
];

fn say(text: &str) {
    raw(&format!("{} {text}", clock::utc(clock::unix_seconds(), "[%Y-%m-%d %H:%M:%S]")));
}

/// What it says first.
pub(super) fn announce(args: &SimArgs) {
    let profile = &args.sim_profile;
    say(&format!(
        "simulates {} behind SGLang's words: {}; nothing it answers is a measurement",
        profile.name, profile.source
    ));
    let share = args.gpu_memory_utilization.map_or_else(|| "None".to_owned(), |share| format!("{share:?}"));
    let count = |count: Option<u32>| count.map_or_else(|| "None".to_owned(), |count| count.to_string());
    say(&format!(
        "server_args={{'model_path': '{}', 'mem_fraction_static': {share}, 'max_running_requests': {}, 'chunked_prefill_size': {}}}",
        args.model(),
        count(args.max_num_seqs),
        count(args.max_num_batched_tokens),
    ));
}

/// What it says of its limits once it knows them.
pub(super) fn resolved(config: &Config) {
    say(&format!(
        "max_total_num_tokens={}, chunked_prefill_size={}, max_prefill_tokens=16384, max_running_requests={}, context_len={}, \
         available_gpu_mem=1.00 GB",
        config.limits.kv_tokens(),
        config.limits.max_num_batched_tokens,
        config.limits.max_num_seqs,
        config.max_model_len
    ));
}

pub(super) fn listens(address: &str) {
    say(&format!("INFO:     Uvicorn running on {address} (Press CTRL+C to quit)"));
}

pub(super) fn is_ready() {
    say("INFO:     Application startup complete.");
    say("The server is fired up and ready to roll!");
}

/// The start failed for memory: the scheduler's traceback, then the parent that only points at it.
pub(super) fn memory_failure(failure: MemoryFailure, share: f64) {
    say("Scheduler hit an exception: Traceback (most recent call last):");
    match failure {
        MemoryFailure::OutOfMemory { needed, .. } => raw(&format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {:.2} GiB.",
            needed as f64 / f64::from(1 << 30)
        )),
        MemoryFailure::NoKvBlocks | MemoryFailure::KvTooSmallForOneRequest { .. } => raw(&format!(
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: \
             mem_fraction_static={share:?}"
        )),
    }
    say("Received sigquit from a child process. It usually means the child failed.");
}

/// The answer of `/server_info`: the fields that a tuner reads.
pub(super) fn server_info(config: &Config) -> Value {
    json!({
        "model_path": config.model, "served_model_name": config.served_name, "tp_size": 1, "context_length": config.max_model_len,
        "mem_fraction_static": config.gpu_memory_utilization, "max_running_requests": config.limits.max_num_seqs,
        "chunked_prefill_size": config.limits.max_num_batched_tokens, "disable_radix_cache": !config.prefix_caching,
        "page_size": config.limits.block_size, "max_total_num_tokens": config.limits.kv_tokens(),
        "internal_states": [{"effective_max_running_requests_per_dp": config.limits.max_num_seqs}], "version": "0.5.23+sim",
    })
}

/// The page of `/metrics`: the families that a tuner reads.
pub(super) fn metrics(config: &Config, snapshot: &Snapshot) -> String {
    let c = snapshot.counters;
    let labels =
        format!("engine_type=\"unified\",model_name={},tp_rank=\"0\"", Value::from(config.served_name.as_str()));
    let mut page = String::new();
    for (name, kind, value) in [
        ("num_running_reqs", "gauge", f64::from(c.running)),
        ("num_queue_reqs", "gauge", f64::from(c.waiting)),
        ("token_usage", "gauge", c.kv_usage),
        ("max_total_num_tokens", "gauge", config.limits.kv_tokens() as f64),
        ("num_retracted_requests_total", "counter", c.preemptions as f64),
        ("prompt_tokens_total", "counter", c.prompt_tokens as f64),
        ("generation_tokens_total", "counter", c.generation_tokens as f64),
        ("cached_tokens_total", "counter", c.prefix_hits as f64),
    ] {
        let _ = writeln!(page, "# TYPE sglang:{name} {kind}\nsglang:{name}{{{labels}}} {value:?}");
    }
    page
}
