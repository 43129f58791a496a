//! SGLang: its flags, endpoints, metrics, log lines and failures, as its wheel 0.5.23 has them.

use serde_json::Value as Json;

use super::super::effective::{Effective, after, flag, json_scalar, python_dict, scalar};
use super::super::log_lines;
use super::super::metrics::Page;
use super::super::symptoms::Cause::{BadArgument, Environment, KvCacheTooSmall, OutOfMemory};
use super::super::symptoms::Effect::{Blames, NeedsMoreMemory, Retry};
use super::super::symptoms::{Symptom, row};
use super::super::telemetry::EngineSample;
use super::{Dialect, Quantity};
use crate::settings::{Domain, holds_secret};
use crate::space::Value;

pub struct Sglang;

/// Every flag of `python -m sglang.launch_server` without its dashes, one in each line.
pub const FLAGS: &str = include_str!("flags-0.5.23.txt");

impl Dialect for Sglang {
    fn name(&self) -> &'static str {
        "SGLang"
    }

    fn release(&self) -> &'static str {
        "0.5.23"
    }

    fn flags(&self) -> &'static str {
        FLAGS
    }

    /// The share is that of weights and KV cache together: what else the engine needs lies outside of it.
    fn quantities(&self) -> &'static [(Quantity, &'static str)] {
        QUANTITIES
    }

    fn domains(&self) -> &'static [(&'static str, Domain)] {
        DOMAINS
    }

    /// Its counters, and the cached prompt tokens of each request in its usage.
    fn telling(&self) -> &'static [&'static str] {
        &["enable-metrics", "enable-cache-report"]
    }

    /// Its switches are off unless they are named; a few have a `--no-` form.
    fn off(&self, switch: &str) -> Option<String> {
        let off = format!("no-{switch}");
        self.flags().lines().any(|flag| flag == off).then(|| format!("--{off}"))
    }

    fn health(&self) -> &'static str {
        "/health_generate"
    }

    fn server_info(&self) -> &'static [&'static str] {
        &["/server_info", "/get_server_info"]
    }

    fn empties_cache(&self) -> Option<&'static str> {
        Some("/flush_cache")
    }

    fn of_log(&self, log: &str) -> Effective {
        let mut found = Effective::default();
        for line in log_lines::lines(log) {
            if let Some(dict) = after(&line.text, "server_args={") {
                let told = python_dict(dict).filter(|(name, _)| !holds_secret(name, name));
                told.for_each(|(name, value)| insert(&mut found, name, value));
            } else if line.text.starts_with("max_total_num_tokens=") {
                for (name, value) in line.text.split(", ").filter_map(|pair| pair.split_once('=')) {
                    match (name, scalar(value)) {
                        ("max_total_num_tokens", Some(Value::Int(tokens))) => {
                            found.kv_cache_tokens = u64::try_from(tokens).ok();
                        }
                        ("context_len", Some(value)) => insert(&mut found, "context_length", value),
                        (name, Some(value)) if !name.starts_with("available_") => insert(&mut found, name, value),
                        _ => {}
                    }
                }
            }
        }
        found
    }

    fn of_metrics(&self, page: &Page) -> Effective {
        let tokens = page.largest("sglang:max_total_num_tokens").map(|tokens| tokens as u64);
        Effective { kv_cache_tokens: tokens.filter(|tokens| *tokens > 0), ..Effective::default() }
    }

    fn of_server_info(&self, info: &Json) -> Effective {
        let mut found = Effective {
            kv_cache_tokens: info["max_total_num_tokens"].as_u64(),
            version: info["version"].as_str().map(str::to_owned),
            ..Effective::default()
        };
        let entries = info.as_object().into_iter().flatten();
        for (name, value) in entries.filter(|(name, _)| !NO_SETTINGS.contains(&name.as_str())) {
            let secret = holds_secret(name, value.as_str().unwrap_or_default());
            if let Some(value) = json_scalar(value).filter(|_| !secret) {
                insert(&mut found, name, value);
            }
        }
        // What it makes of the limit, given or not.
        if let Some(most) = info["internal_states"][0]["effective_max_running_requests_per_dp"].as_i64() {
            found.values.insert("max-running-requests".to_owned(), Value::Int(most));
        }
        found
    }

    fn sample(&self, page: &Page) -> EngineSample {
        EngineSample {
            running: page.total("sglang:num_running_reqs", "priority"),
            waiting: page.total("sglang:num_queue_reqs", "priority"),
            kv_usage: page.largest("sglang:token_usage"),
            preemptions: page.value("sglang:num_retracted_requests_total"),
            // Both count whole prompts once their requests have ended.
            prefix_queries: page.value("sglang:prompt_tokens_total"),
            prefix_hits: page.value("sglang:cached_tokens_total"),
            prompt_tokens: page.value("sglang:prompt_tokens_total"),
            generation_tokens: page.value("sglang:generation_tokens_total"),
            ..EngineSample::default()
        }
    }

    fn symptoms(&self) -> &'static [Symptom] {
        SYMPTOMS
    }

    fn echoes(&self) -> &'static [&'static str] {
        &["received sigquit from a child process", "initialization failed. please see the error messages above"]
    }

    /// `python -m sglang.launch_server` names itself by its file, or since Python 3.14 by its whole command.
    fn programs(&self) -> &'static [&'static str] {
        &["sglang", "python", "python3"]
    }

    /// As in `Scheduler or DataParallelController 77 terminated with -9`.
    fn tells_lost_process(&self, line: &str) -> bool {
        line.trim_end().ends_with("terminated with -9")
    }
}

/// Entries of the server information that are no settings.
const NO_SETTINGS: [&str; 8] = [
    "max_total_num_tokens",
    "max_req_input_len",
    "startup_time",
    "version",
    "frontend",
    "status",
    "launch_command",
    "random_seed",
];

/// Fields that are called otherwise than their flags; most flags have the short name, too.
const RENAMED: [(&str, &str); 5] = [
    ("tp_size", "tensor-parallel-size"),
    ("pp_size", "pipeline-parallel-size"),
    ("dp_size", "data-parallel-size"),
    ("ep_size", "expert-parallel-size"),
    ("enable_hierarchical_cache", "enable-hicache"),
];

fn insert(found: &mut Effective, field: &str, value: Value) {
    if let Some((_, flag)) = RENAMED.iter().find(|(name, _)| *name == field) {
        found.values.insert((*flag).to_owned(), value.clone());
    }
    found.values.insert(flag(field), value);
}

pub const QUANTITIES: &[(Quantity, &str)] = &[
    (Quantity::MemoryShare, "mem-fraction-static"),
    (Quantity::Sequences, "max-running-requests"),
    (Quantity::Tokens, "chunked-prefill-size"),
    (Quantity::Length, "context-length"),
];

#[rustfmt::skip]
const DOMAINS: &[(&str, Domain)] = &[
    // -1 is no chunks.
    ("chunked-prefill-size", Domain::Count(1)),
    ("context-length", Domain::Count(1)),
    ("max-prefill-tokens", Domain::Count(1)),
    ("max-running-requests", Domain::Count(1)),
    ("max-total-tokens", Domain::Count(1)),
    ("mem-fraction-static", Domain::Share),
    ("num-continuous-decode-steps", Domain::Count(1)),
    ("page-size", Domain::Count(1)),
    ("schedule-conservativeness", Domain::Amount),
    ("tp-size", Domain::Count(1)),
];

/// The pool of the KV cache was promised to more requests than it holds.
const POOL: &[&str] = &["schedule-conservativeness", "max-running-requests", "chunked-prefill-size"];
const POOL_SAYS: &str =
    "The KV cache was promised to more requests than it holds: raise schedule-conservativeness, or lower {sequences}.";

const SYMPTOMS: &[Symptom] = &[
    row(
        &["not enough memory", "mem-fraction-static"],
        KvCacheTooSmall,
        NeedsMoreMemory,
        "The model leaves no memory to the KV cache: raise {memory}.",
    ),
    row(&["out of memory. try to lower your batch size"], OutOfMemory, Blames(POOL), POOL_SAYS),
    row(&["alloc_req_slots runs out of memory"], OutOfMemory, Blames(&["max-running-requests"]), POOL_SAYS),
    row(
        &["chunked_prefill_size must be divisible by page_size"],
        BadArgument,
        Blames(&["chunked-prefill-size", "page-size"]),
        "The chunks of prompts must be whole pages: choose multiples of page-size for {tokens}.",
    ),
    row(
        &["context_length", "greater than the derived context_length"],
        BadArgument,
        Blames(&["context-length"]),
        "The model was not made for requests of this length: lower {length}.",
    ),
    row(
        &["memory capacity is unbalanced"],
        Environment,
        Retry,
        "Another process holds memory of one of the GPUs: leave the GPUs to the engine alone.",
    ),
];

#[cfg(test)]
mod tests {
    use super::super::super::diagnosis::{Consequence, Exit, diagnose};
    use super::super::super::known_flags::KnownFlags;
    use super::super::super::symptoms::Cause;
    use super::*;

    const METRICS: &str = include_str!("../../../../../../tests/data/sglang/metrics.txt");
    const SERVER_INFO: &str = include_str!("../../../../../../tests/data/sglang/server_info.json");
    const FAILURES: &str = include_str!("../../../../../../tests/data/sglang/failures.txt");
    const HELP: &str = include_str!("../../../../../../tests/data/sglang/help.txt");

    const TUNED: [&str; 3] = ["max-running-requests", "chunked-prefill-size", "mem-fraction-static"];

    #[test]
    fn the_page_of_its_own_collectors_tells_everything() {
        let page = Page::parse(METRICS);
        let expected = EngineSample {
            running: Some(31.0),
            waiting: Some(7.0),
            kv_usage: Some(0.62),
            preemptions: Some(3.0),
            prefix_queries: Some(7680.0),
            prefix_hits: Some(192.0),
            prompt_tokens: Some(7680.0),
            generation_tokens: Some(1943.0),
            ..EngineSample::default()
        };
        assert_eq!(Sglang.sample(&page), expected);
        assert_eq!(Sglang.of_metrics(&page).kv_cache_tokens, Some(382_880));
        let by_priority = "sglang:num_running_reqs{priority=\"\"} 3\nsglang:num_running_reqs{priority=\"1\"} 2\n";
        assert_eq!(Sglang.sample(&Page::parse(by_priority)).running, Some(3.0), "the first is the whole");
    }

    #[test]
    fn the_configuration_is_what_it_made_of_its_arguments() {
        let info = Sglang.of_server_info(&serde_json::from_str(SERVER_INFO).unwrap());
        assert_eq!((info.kv_cache_tokens, info.version.as_deref()), (Some(382_880), Some("0.5.23")));
        for (name, value) in [
            ("max-running-requests", Value::Int(2048)),
            ("mem-fraction-static", Value::Real(0.848)),
            ("chunked-prefill-size", Value::Int(8192)),
            ("tensor-parallel-size", Value::Int(1)),
            ("disable-radix-cache", Value::Bool(false)),
        ] {
            assert_eq!(info.values.get(name), Some(&value), "{name}");
        }
        assert!(!info.values.contains_key("api-key"), "a secret stays where it is");
        let log = "[2026-11-25 09:00:00] server_args={'model_path': 'm', 'api_key': 'planted', 'mem_fraction_static': 0.8, 'tp_size': 2}\n\
                   [2026-11-25 09:00:09 TP0] max_total_num_tokens=382880, chunked_prefill_size=8192, max_prefill_tokens=16384, \
                   max_running_requests=2048, context_len=131072, available_gpu_mem=9.12 GB\n";
        let log = Sglang.of_log(log);
        assert_eq!(log.kv_cache_tokens, Some(382_880));
        let told: Vec<String> = log.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = "chunked-prefill-size=8192 context-length=131072 max-prefill-tokens=16384 max-running-requests=2048 \
                        mem-fraction-static=0.8 model-path=m tensor-parallel-size=2 tp-size=2";
        assert_eq!(told.join(" "), expected);
    }

    #[test]
    fn its_failures_are_told_apart() {
        use Cause::*;
        let refused = |flag: &str| Consequence::ValueRefused { flag: Some(flag.to_owned()) };
        let expected = [
            ("kv-too-small", KvCacheTooSmall, Consequence::NeedsMoreMemory, "raise mem-fraction-static."),
            (
                "out-of-memory",
                OutOfMemory,
                Consequence::MemoryBound,
                "lower mem-fraction-static, max-running-requests or",
            ),
            ("pool-exhausted", OutOfMemory, Consequence::PointOnly, "raise schedule-conservativeness"),
            ("too-many-requests", OutOfMemory, refused("max-running-requests"), "lower max-running-requests."),
            ("page-size", BadArgument, refused("chunked-prefill-size"), "multiples of page-size"),
            ("too-long", BadArgument, Consequence::Abort, "lower context-length."),
            ("unbalanced", Environment, Consequence::Retry, "leave the GPUs"),
            ("bad-argument", BadArgument, Consequence::Abort, "an argument that it does not take"),
            ("port", PortTaken, Consequence::Retry, "listens on the port"),
        ];
        let cases: Vec<(&str, &str)> =
            FAILURES.split("=== ").skip(1).filter_map(|case| case.split_once('\n')).collect();
        assert_eq!(cases.len(), expected.len());
        for ((head, log), (name, cause, consequence, says)) in cases.into_iter().zip(expected) {
            assert!(head.ends_with(name), "{head}");
            let found = diagnose(&Sglang, log, Exit::Code(1), &TUNED);
            assert_eq!((found.cause, found.consequence), (cause, consequence), "{head}: {:?}", found.line);
            assert!(found.says.contains(says), "{head}: {}", found.says);
        }
        let lost = "[2026-11-25 09:00:01] Scheduler or DataParallelController 77 terminated with -9";
        assert!(diagnose(&Sglang, lost, Exit::Code(1), &TUNED).says.contains("was killed without a word"));
        // An engine that lives prints its whole configuration, and retracts requests.
        let calm = "[2026-11-25 09:00:01] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 9\n\
                    [2026-11-25 09:00:01] Prefill batch, #new-seq: 1, out of memory: none\n";
        assert_eq!(diagnose(&Sglang, calm, Exit::StillRunning, &TUNED).cause, Timeout);
    }

    #[test]
    fn its_parser_lists_what_stands_here() {
        let known = KnownFlags::of(&Sglang);
        let listed = KnownFlags::of_help(HELP, &crate::settings::OUR_FLAGS).unwrap();
        for (_, flag) in Sglang.quantities() {
            assert!(known.refuses(flag).is_none() && listed.refuses(flag).is_none(), "{flag}");
        }
        assert!(known.refuses("max-num-seqs").is_some());
        assert_eq!(Sglang.off("disable-radix-cache"), None);
        assert_eq!(Sglang.off("enable-tf32-matmul").as_deref(), Some("--no-enable-tf32-matmul"));
    }
}
