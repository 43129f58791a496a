//! vLLM: its flags, endpoints, metrics, log lines and failures, as releases 0.24 to 0.33 have them.

pub mod live;

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::super::effective::{Effective, after, flag, json_scalar, leading_count, python_dict, scalar};
use super::super::log_lines;
use super::super::metrics::Page;
use super::super::symptoms::Cause::{BadArgument, Environment, KvCacheTooSmall, ModelBroken, OutOfMemory};
use super::super::symptoms::Effect::{Abort, Blames, MemoryBound, NeedsMoreMemory, Retry};
use super::super::symptoms::{FORMATS, PARALLEL, QUANTIZATION, Symptom, row};
use super::super::telemetry::EngineSample;
use super::{Dialect, Quantity};
use crate::settings::Domain;
use crate::space::Value;

pub struct Vllm;

/// Every flag of `vllm serve` 0.32 without its dashes, one in each line.
pub const FLAGS: &str = include_str!("flags-0.32.txt");

impl Dialect for Vllm {
    fn name(&self) -> &'static str {
        "vLLM"
    }

    fn release(&self) -> &'static str {
        "0.32"
    }

    fn flags(&self) -> &'static str {
        FLAGS
    }

    fn quantities(&self) -> &'static [(Quantity, &'static str)] {
        QUANTITIES
    }

    fn domains(&self) -> &'static [(&'static str, Domain)] {
        DOMAINS
    }

    /// The cached prompt tokens of each request in its usage.
    fn telling(&self) -> &'static [&'static str] {
        &["enable-prompt-tokens-details"]
    }

    /// Developer mode opens `/reset_prefix_cache` and `/server_info`. It does so on the loopback address. Both are called at the start and between probes, never during one.
    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        &[("VLLM_SERVER_DEV_MODE", "1")]
    }

    fn api_key_variable(&self) -> Option<&'static str> {
        Some("VLLM_API_KEY")
    }

    fn is_modelled(&self) -> bool {
        true
    }

    fn health(&self) -> &'static str {
        "/health"
    }

    fn server_info(&self) -> &'static [&'static str] {
        &["/server_info?config_format=json"]
    }

    fn empties_cache(&self) -> Option<&'static str> {
        Some("/reset_prefix_cache")
    }

    /// Reads the log of a start. What the engine resolved counts for more than what it was given.
    fn of_log(&self, log: &str) -> Effective {
        let mut given = BTreeMap::new();
        let mut found = Effective::default();
        for line in log_lines::lines(log) {
            let text = line.text.as_str();
            if let Some(dict) = after(text, "non-default args: {") {
                given.extend(python_dict(dict).map(|(name, value)| (flag(name), value)));
            } else if let Some(config) = after(text, "Initializing a V1 LLM engine (v") {
                found.version = config.split_once(')').map(|(version, _)| version.to_owned());
                found.values.extend(STARTED_WITH.iter().filter_map(|n| Some((flag(n), started_with(config, n)?))));
                let graph = after(config, "'max_cudagraph_capture_size': ").and_then(leading_count);
                let graph = graph.and_then(|tokens| i64::try_from(tokens).ok());
                found.values.extend(largest_graph(graph));
            } else if let Some(version) = banner_version(text) {
                found.version.get_or_insert_with(|| version.to_owned());
            } else if let Some(tokens) = after(text, "KV cache size: ") {
                // With several engines in one log the last one speaks for all: they are sized alike.
                found.kv_cache_tokens = leading_count(tokens).or(found.kv_cache_tokens);
            }
            for (words, name) in [
                ("Chunked prefill is enabled with max_num_batched_tokens=", "max-num-batched-tokens"),
                ("Using max model len ", "max-model-len"),
            ] {
                if let Some(count) = after(text, words).and_then(leading_count).and_then(|c| i64::try_from(c).ok()) {
                    found.values.insert(name.to_owned(), Value::Int(count));
                }
            }
        }
        for (name, value) in given {
            found.values.entry(name).or_insert(value);
        }
        found
    }

    /// Reads `vllm:cache_config_info`, which any vLLM shows: the cache's part of the configuration alone.
    fn of_metrics(&self, page: &Page) -> Effective {
        const INFO: &str = "vllm:cache_config_info";
        // `engine` numbers the engine within the server and is no setting.
        let labels = page.labels(INFO).filter(|(name, _)| is_setting(name) && *name != "engine");
        let values =
            labels.filter_map(|(name, text)| Some((section_flag("cache_config", name), scalar(text)?))).collect();
        let kv_cache_tokens = kv_cache_tokens(|label| page.label(INFO, label)?.parse().ok());
        Effective { values, kv_cache_tokens, version: None }
    }

    /// Reads `/server_info?config_format=json`, with or without its outer shell.
    fn of_server_info(&self, info: &Json) -> Effective {
        let config = info.get("vllm_config").unwrap_or(info);
        let mut values = BTreeMap::new();
        for section in SECTIONS {
            let entries = config.get(section).and_then(|s| s.as_object()).into_iter().flatten();
            for (name, entry) in entries.filter(|(name, _)| is_setting(name)) {
                if let Some(value) = json_scalar(entry) {
                    values.insert(section_flag(section, name), value);
                }
            }
        }
        let graph =
            config.get("compilation_config").and_then(|section| section.get("max_cudagraph_capture_size")?.as_i64());
        values.extend(largest_graph(graph));
        let version = info.get("system_env").and_then(|e| e.get("vllm_version")).and_then(|v| v.as_str());
        Effective {
            values,
            kv_cache_tokens: kv_cache_tokens(|name| config.get("cache_config")?.get(name)?.as_u64()),
            version: version.map(str::to_owned),
        }
    }

    fn sample(&self, page: &Page) -> EngineSample {
        // Clients of the OpenMetrics format append `_total` to counters, older ones do not.
        let counter = |name: &str| page.value(&format!("{name}_total")).or_else(|| page.value(name));
        EngineSample {
            running: page.value("vllm:num_requests_running"),
            waiting: page.value("vllm:num_requests_waiting"),
            // Older releases have `gpu_` in these names.
            kv_usage: page.largest("vllm:kv_cache_usage_perc").or_else(|| page.largest("vllm:gpu_cache_usage_perc")),
            preemptions: counter("vllm:num_preemptions"),
            prefix_queries: counter("vllm:prefix_cache_queries").or_else(|| counter("vllm:gpu_prefix_cache_queries")),
            prefix_hits: counter("vllm:prefix_cache_hits").or_else(|| counter("vllm:gpu_prefix_cache_hits")),
            prompt_tokens: counter("vllm:prompt_tokens"),
            generation_tokens: counter("vllm:generation_tokens"),
            drafts: counter("vllm:spec_decode_num_drafts"),
            draft_tokens: counter("vllm:spec_decode_num_draft_tokens"),
            accepted_tokens: counter("vllm:spec_decode_num_accepted_tokens"),
            // A router of Dynamo tells them on the page of its frontend.
            kv_events: page.value_with("dynamo_component_kv_cache_events_applied", ("status", "ok")),
        }
    }

    fn symptoms(&self) -> &'static [Symptom] {
        SYMPTOMS
    }

    fn echoes(&self) -> &'static [&'static str] {
        ECHOES
    }

    fn programs(&self) -> &'static [&'static str] {
        &["vllm"]
    }

    /// As in `Failed core proc(s): {'EngineCore_DP0': -9}`.
    fn tells_lost_process(&self, line: &str) -> bool {
        line.split_once("Failed core proc(s): ").is_some_and(|(_, processes)| processes.contains(": -9"))
    }
}

pub const QUANTITIES: &[(Quantity, &str)] = &[
    (Quantity::MemoryShare, "gpu-memory-utilization"),
    (Quantity::Sequences, "max-num-seqs"),
    (Quantity::Tokens, "max-num-batched-tokens"),
    (Quantity::Length, "max-model-len"),
];

#[rustfmt::skip]
const DOMAINS: &[(&str, Domain)] = &[
    ("api-server-count", Domain::Count(0)),
    ("block-size", Domain::Count(1)),
    ("cpu-offload-gb", Domain::Amount),
    ("data-parallel-size", Domain::Count(1)),
    ("decode-context-parallel-size", Domain::Count(1)),
    ("gpu-memory-utilization", Domain::Share),
    ("long-prefill-token-threshold", Domain::Count(0)),
    // -1 is the longest that fits.
    ("max-model-len", Domain::Count(-1)),
    ("max-num-batched-tokens", Domain::Count(1)),
    ("max-num-seqs", Domain::Count(1)),
    ("num-gpu-blocks-override", Domain::Count(1)),
    ("pipeline-parallel-size", Domain::Count(1)),
    ("speculative-config.num_speculative_tokens", Domain::Count(1)),
    ("stream-interval", Domain::Count(1)),
    ("swap-space", Domain::Amount),
    ("tensor-parallel-size", Domain::Count(1)),
];

const ECHOES: &[&str] = &[
    "engine core initialization failed",
    "workerproc initialization failed",
    "enginedeaderror",
    "enginecore encountered a",
    "dumping input data",
    "dumping scheduler output",
];

const DEVICE_SHARE: &str = "Less memory is free than the engine was told to take: lower {memory}, or end \
                            whatever else holds memory there.";
const KV_SMALL: &str =
    "The KV cache is too small for one request of full length: give it more memory or lower {length}.";

const SYMPTOMS: &[Symptom] = &[
    row(&["is less than desired", "memory utilization"], OutOfMemory, MemoryBound, DEVICE_SHARE),
    // A negative request means that the engine itself already fills its share, so nothing is left for the cache.
    row(&["less than requested memory for kv (-"], KvCacheTooSmall, NeedsMoreMemory, KV_SMALL),
    row(
        &["less than requested memory for kv ("],
        OutOfMemory,
        MemoryBound,
        "The host has less free memory than the KV cache asks for: lower kv-cache-memory-bytes or VLLM_CPU_KVCACHE_SPACE.",
    ),
    row(&["no available memory for the cache blocks"], KvCacheTooSmall, NeedsMoreMemory, KV_SMALL),
    row(&["to serve at least one request"], KvCacheTooSmall, NeedsMoreMemory, KV_SMALL),
    row(&["larger than the available kv cache memory"], KvCacheTooSmall, NeedsMoreMemory, KV_SMALL),
    row(&["number of tokens that can be stored in kv cache"], KvCacheTooSmall, NeedsMoreMemory, KV_SMALL),
    row(
        &["no module named", live::LIVE_MODULE_NAME],
        BadArgument,
        Abort,
        "The engine's command does not pass on the PYTHONPATH that it gets, so the module that changes limits is not found: let it add to that path.",
    ),
    // A kernel that this build declares but does not have; quantized formats are the ones with kernels of their own.
    row(&["_c::", "quant", "expected at most"], ModelBroken, Blames(FORMATS), QUANTIZATION),
    row(
        &["no common block size for"],
        BadArgument,
        Blames(&["block-size"]),
        "No attention backend supports this block size: choose a multiple of what the message names.",
    ),
    row(
        &["max_num_batched_tokens", "is smaller than max_model_len"],
        BadArgument,
        Blames(&["enable-chunked-prefill"]),
        "Without chunked prefill the token budget must hold a request of full length: raise max-num-batched-tokens.",
    ),
    row(
        &["max_num_batched_tokens", "must be greater than or equal to max_num_seqs"],
        BadArgument,
        Blames(&[]),
        "The token budget must be at least the number of sequences: add the constraint max-num-batched-tokens >= max-num-seqs.",
    ),
    row(
        &["user-specified max_model_len"],
        BadArgument,
        Blames(&["max-model-len"]),
        "The model was not made for requests of this length: lower max-model-len.",
    ),
    row(
        &["must be divisible by tensor parallel size"],
        BadArgument,
        Blames(&["tensor-parallel-size"]),
        "The model's heads cannot be shared equally among so many devices: choose another tensor-parallel-size.",
    ),
    row(
        &["attention backend", "is not valid for this configuration"],
        BadArgument,
        Blames(&["attention-backend", "kv-cache-dtype", "block-size"]),
        "The attention backend does not support this configuration: choose another one.",
    ),
    row(
        &["not enough allowed numa nodes"],
        Environment,
        Blames(PARALLEL),
        "The host has fewer NUMA nodes than workers: lower tensor-parallel-size.",
    ),
    row(
        &["error in memory profiling"],
        Environment,
        Retry,
        "Another process gave memory back while the engine measured it: leave the device to the engine alone.",
    ),
];

/// The sections of `/server_info` whose entries are flags, in rising precedence where two use the same name.
const SECTIONS: &[&str] =
    &["load_config", "attention_config", "model_config", "parallel_config", "cache_config", "scheduler_config"];

/// Entries that are called otherwise than their flags: section, entry, flag.
const RENAMED: &[(&str, &str, &str)] = &[
    ("cache_config", "cache_dtype", "kv-cache-dtype"),
    ("scheduler_config", "policy", "scheduling-policy"),
    ("attention_config", "backend", "attention-backend"),
];

/// Entries of the engine's own start line that are flags under the same name, but for underscores.
const STARTED_WITH: &[&str] = &[
    "dtype",
    "load_format",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "quantization",
    "enforce_eager",
    "kv_cache_dtype",
    "seed",
    "enable_prefix_caching",
    "enable_chunked_prefill",
];

fn section_flag(section: &str, name: &str) -> String {
    let renamed = RENAMED.iter().find(|(s, entry, _)| *s == section && *entry == name);
    renamed.map_or_else(|| flag(name), |(_, _, flag)| (*flag).to_owned())
}

/// The largest graph as a flag and its value.
fn largest_graph(tokens: Option<i64>) -> Option<(String, Value)> {
    Some((live::LARGEST_GRAPH.to_owned(), Value::Int(tokens?)))
}

/// The size of the KV cache, from the entry of each name. Releases that do not tell the tokens tell the blocks.
fn kv_cache_tokens(entry: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let blocks = || entry("num_gpu_blocks")?.checked_mul(entry("block_size")?);
    entry("kv_cache_size_tokens").or_else(blocks)
}

/// Entries that start with an underscore are the engine's own notes.
fn is_setting(name: &str) -> bool {
    !name.starts_with('_')
}

/// `vLLM API server version 0.24.0`, or the same in the banner, whose lines are drawn with blocks.
fn banner_version(text: &str) -> Option<&str> {
    let version = after(text, "vLLM API server version ")
        .or_else(|| text.contains('\u{2588}').then(|| after(text, "  version ")).flatten())?;
    version.split_whitespace().next()
}

/// The value of `name=` in `model='m', dtype=torch.bfloat16, seed=0, ...`.
fn started_with(config: &str, name: &str) -> Option<Value> {
    let value = after(config, &format!(", {name}="))?;
    scalar(value.split([',', ' ']).next()?.trim_matches('\''))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::diagnosis::{Exit, diagnose};
    use super::*;
    use crate::space::Point;

    const LOG: &str = include_str!("../../../../../../tests/data/vllm/h200_llama70b_fp8_start.log");
    const METRICS: &str = include_str!("../../../../../../tests/data/vllm/metrics_after_load.txt");
    const SERVER_INFO: &str = include_str!("../../../../../../tests/data/vllm/server_info.json");

    fn word(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn the_log_of_a_start_tells_what_was_resolved() {
        let found = Vllm.of_log(LOG);
        assert_eq!(found.kv_cache_tokens, Some(382_880));
        assert_eq!(found.version.as_deref(), Some("0.24.0"));
        for (name, value) in [
            ("max-num-batched-tokens", Value::Int(8192)),
            ("max-model-len", Value::Int(16384)),
            ("port", Value::Int(8100)),
            ("kv-cache-dtype", word("fp8")),
            ("quantization", word("fp8")),
            ("dtype", word("bfloat16")),
            ("tensor-parallel-size", Value::Int(1)),
            ("enforce-eager", Value::Bool(false)),
            ("enable-prefix-caching", Value::Bool(true)),
        ] {
            assert_eq!(found.values.get(name), Some(&value), "{name}");
        }
        let cpu = "CPU + host KV cache size: 131,072 tokens, Maximum concurrency for 8,192 tokens per request: 16.00x\n\
                   vLLM API server version 0.32.0\n\
                   non-default args: {'max_model_len': 'auto', 'a': {'b': [1, 2], 'c': 'x, }'}, 'f': 0.995, 'n': None, 'q': \"it's\", 'z': True}";
        let found = Vllm.of_log(cpu);
        assert_eq!((found.kv_cache_tokens, found.version.as_deref()), (Some(131_072), Some("0.32.0")));
        let given: Vec<_> = found.values.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(given, ["f=0.995", "max-model-len=auto", "q=it's", "z=true"]);
        let graphs = "Initializing a V1 LLM engine (v0.24.0) with config: model='m', compilation_config={'mode': 3, 'cudagraph_capture_sizes': [1, 2, 4], \
                      'pass_config': {'enable_sp': False}, 'max_cudagraph_capture_size': 128, 'local_cache_dir': None}";
        assert_eq!(Vllm.of_log(graphs).values[live::LARGEST_GRAPH], Value::Int(128));
        assert!(!Vllm.of_log(&graphs.replace("128", "None")).values.contains_key(live::LARGEST_GRAPH));
    }

    #[test]
    fn metrics_and_server_info_agree_on_the_cache() {
        let metrics = Vllm.of_metrics(&Page::parse(METRICS));
        let info = Vllm.of_server_info(&serde_json::from_str(SERVER_INFO).unwrap());
        assert_eq!((metrics.kv_cache_tokens, info.kv_cache_tokens), (Some(131_072), Some(131_072)));
        assert_eq!(info.version.as_deref(), Some("0.32.0"));
        for (name, value) in &metrics.values {
            assert_eq!(info.values.get(name), Some(value), "{name}");
        }
        assert_eq!(metrics.values["gpu-memory-utilization"], Value::Real(0.92));
        assert_eq!(metrics.values["kv-cache-dtype"], word("auto"));
        assert_eq!(info.values["max-num-seqs"], Value::Int(128));
        assert_eq!(info.values["scheduling-policy"], word("fcfs"));
        assert_eq!(info.values["dtype"], word("bfloat16"));
        let old = Page::parse("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10\"} 1");
        assert_eq!(Vllm.of_metrics(&old).kv_cache_tokens, Some(160));
    }

    #[test]
    fn the_stronger_source_wins_and_gaps_are_filled() {
        let merged = Vllm
            .of_log(LOG)
            .merge(Vllm.of_metrics(&Page::parse(METRICS)))
            .merge(Vllm.of_server_info(&serde_json::json!({"scheduler_config": {"max_num_batched_tokens": 2048}})));
        assert_eq!(merged.values["max-num-batched-tokens"], Value::Int(2048));
        assert_eq!(merged.values["block-size"], Value::Int(128));
        assert_eq!(merged.values["max-model-len"], Value::Int(16384));
        assert_eq!((merged.kv_cache_tokens, merged.version.as_deref()), (Some(131_072), Some("0.24.0")));
        let text = serde_json::to_string(&merged).unwrap();
        assert_eq!(serde_json::from_str::<Effective>(&text).unwrap(), merged);
    }

    #[test]
    fn only_a_value_that_the_engine_changed_is_a_mismatch() {
        let info = Vllm.of_server_info(&serde_json::from_str(SERVER_INFO).unwrap());
        let point = Point::default()
            .with("max-num-seqs", Value::Int(256))
            .with("max-num-batched-tokens", Value::Real(2048.0))
            .with("max-model-len", word("auto"))
            .with("kv-cache-memory-bytes", word("256M"))
            .with("enable-prefix-caching", Value::Bool(false))
            .with("unheard-of", Value::Int(1));
        let expected = [
            ("enable-prefix-caching".to_owned(), Value::Bool(false), Value::Bool(true)),
            ("max-num-seqs".to_owned(), Value::Int(256), Value::Int(128)),
        ];
        assert_eq!(info.mismatches(&point), expected);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_readers_panic(
            text in any::<String>(),
            dict in "[ '\"\\\\:,{}a-z0-9.é]*",
            count in "[0-9,]{0,40}",
        ) {
            let log = format!("{text}\nnon-default args: {{{dict}\nCPU KV cache size: {count} tokens\n\
                               Initializing a V1 LLM engine (v{text}, seed={dict}");
            let found = Vllm.of_log(&log);
            let _ = Vllm.of_metrics(&Page::parse(&format!("vllm:cache_config_info{{a=\"{dict}\"}} 1")));
            let point = Point(found.values.clone());
            // What the engine prints is read as it was asked for, unless a word reads as a number of another spelling.
            let _ = found.mismatches(&point.with("a", Value::Text(dict)));
        }
    }

    #[test]
    fn fuzz_logs() {
        let failures = include_str!("../../../../../../tests/data/vllm/failure_modes.txt");
        let lines: Vec<&str> = LOG.lines().chain(failures.lines()).collect();
        let valid = lines.chunks(20).map(|lines| lines.join("\n"));
        autotune_fuzz::fuzz(3, valid, |input, _| {
            let log = String::from_utf8_lossy(input);
            let _ = Vllm.of_log(&log);
            let _ = diagnose(&Vllm, &log, Exit::Code(1), &["max-num-seqs"]);
        });
    }

    #[test]
    fn drafts_and_events_of_a_router_are_known() {
        let page = Page::parse(
            "vllm:spec_decode_num_drafts_total{engine=\"0\",model_name=\"tiny\"} 796.0\n\
             vllm:spec_decode_num_draft_tokens_total{engine=\"0\",model_name=\"tiny\"} 2108.0\n\
             vllm:spec_decode_num_accepted_tokens_total{engine=\"0\",model_name=\"tiny\"} 1570.0\n\
             dynamo_component_kv_cache_events_applied{event_type=\"stored\",status=\"ok\",worker_id=\"1\"} 40\n\
             dynamo_component_kv_cache_events_applied{event_type=\"removed\",status=\"ok\",worker_id=\"2\"} 2\n\
             dynamo_component_kv_cache_events_applied{event_type=\"stored\",status=\"invalid_block\",worker_id=\"1\"} 7\n",
        );
        let sample = Vllm.sample(&page);
        assert_eq!(
            (sample.drafts, sample.draft_tokens, sample.accepted_tokens),
            (Some(796.0), Some(2108.0), Some(1570.0))
        );
        assert_eq!(sample.kv_events, Some(42.0));
    }

    #[test]
    fn the_real_engine_tells_everything() {
        let sample = Vllm.sample(&Page::parse(METRICS));
        let expected = EngineSample {
            running: Some(0.0),
            waiting: Some(0.0),
            kv_usage: Some(0.0),
            preemptions: Some(0.0),
            prefix_queries: Some(7680.0),
            prefix_hits: Some(0.0),
            prompt_tokens: Some(7680.0),
            generation_tokens: Some(1943.0),
            ..EngineSample::default()
        };
        assert_eq!(sample, expected);
    }

    #[test]
    fn a_worker_that_tells_less_leaves_gaps() {
        let sample =
            Vllm.sample(&Page::parse(include_str!("../../../../../../tests/data/vllm/dynamo_worker_metrics.txt")));
        assert_eq!((sample.running, sample.kv_usage, sample.preemptions), (Some(0.0), Some(0.0), Some(0.0)));
        assert_eq!((sample.prefix_hits, sample.prompt_tokens), (None, None));
    }

    #[test]
    fn counters_without_total_and_several_engines_are_known() {
        let page = Page::parse(
            "vllm:num_preemptions{engine=\"0\"} 2\nvllm:num_preemptions{engine=\"1\"} 3\n\
             vllm:gpu_cache_usage_perc{engine=\"0\"} 0.2\nvllm:gpu_cache_usage_perc{engine=\"1\"} 0.9\n",
        );
        let sample = Vllm.sample(&page);
        assert_eq!((sample.preemptions, sample.kv_usage), (Some(5.0), Some(0.9)));
        assert_eq!(Vllm.sample(&Page::default()), EngineSample::default());
    }
}
