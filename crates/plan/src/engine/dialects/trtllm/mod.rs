//! TensorRT-LLM as a worker of Dynamo runs it (`python3 -m dynamo.trtllm`): the wheel of release 1.6.1 has the worker's flags and the order
//! in which settings win; TensorRT-LLM's own sources have its metrics and messages. It has not met a real engine.
//!
//! A setting is the flag `--trtllm.KEY VALUE`, with dots between nested keys. It wins over the worker's own flag (`--max-batch-size`) and over
//! the file of `--extra-engine-args`.

use super::super::effective::{Effective, after, leading_count, python_dict, scalar};
use super::super::log_lines;
use super::super::metrics::Page;
use super::super::symptoms::Cause::{BadArgument, KvCacheTooSmall, OutOfMemory};
use super::super::symptoms::Effect::{Blames, MemoryBound, NeedsMoreMemory};
use super::super::symptoms::{Symptom, row};
use super::super::telemetry::EngineSample;
use super::{Dialect, Quantity};
use crate::settings::{Domain, holds_secret};

pub struct Trtllm;

/// Every flag of `python3 -m dynamo.trtllm` without its dashes, one in each line; `trtllm` stands for all settings of the engine.
pub const FLAGS: &str = include_str!("flags-dynamo-1.6.1.txt");

/// The share is that of the memory which is free once the model is loaded.
pub const QUANTITIES: &[(Quantity, &str)] = &[
    (Quantity::MemoryShare, MEMORY),
    (Quantity::Sequences, "trtllm.max_batch_size"),
    (Quantity::Tokens, "trtllm.max_num_tokens"),
    (Quantity::Length, "trtllm.max_seq_len"),
];
const MEMORY: &str = "trtllm.kv_cache_config.free_gpu_memory_fraction";

/// The worker's own flags for settings. They lose against every other way to say the same.
const WEAKER: &[(&str, &str)] = &[
    ("max-batch-size", "trtllm.max_batch_size"),
    ("max-num-tokens", "trtllm.max_num_tokens"),
    ("max-seq-len", "trtllm.max_seq_len"),
    ("max-beam-width", "trtllm.max_beam_width"),
    ("free-gpu-memory-fraction", MEMORY),
];

impl Dialect for Trtllm {
    fn name(&self) -> &'static str {
        "TensorRT-LLM"
    }

    fn release(&self) -> &'static str {
        "of Dynamo 1.6.1"
    }

    fn flags(&self) -> &'static str {
        FLAGS
    }

    fn quantities(&self) -> &'static [(Quantity, &'static str)] {
        QUANTITIES
    }

    fn domains(&self) -> &'static [(&'static str, Domain)] {
        &[
            (MEMORY, Domain::Share),
            ("trtllm.max_batch_size", Domain::Count(1)),
            ("trtllm.max_num_tokens", Domain::Count(1)),
            ("trtllm.max_seq_len", Domain::Count(1)),
        ]
    }

    fn weaker(&self) -> &'static [(&'static str, &'static str)] {
        WEAKER
    }

    fn refuses(&self, flag: &str, all: &[&str]) -> Option<(String, String)> {
        // Each flag has a variable, too.
        let flag =
            flag.strip_prefix("DYN_TRTLLM_").map_or(flag.to_owned(), |name| name.to_lowercase().replace('_', "-"));
        let says = |says: &str, hint: String| Some((says.replace("{}", &flag), hint));
        let nested = || all.iter().find(|name| name.starts_with("trtllm.") && name.matches('.').count() > 1);
        match (flag.as_str(), WEAKER.iter().find(|(weaker, _)| *weaker == flag)) {
            (_, Some((_, setting))) => {
                says("the engine's other arguments overrule --{}", format!("write `{setting}`, which wins"))
            }
            ("override-engine-args", _) => {
                says("a worker takes no --{} beside --trtllm.…", "write its keys as --trtllm.KEY VALUE".to_owned())
            }
            ("extra-engine-args", _) => {
                let nested = nested()?;
                let says = format!("`{nested}` may drop what the file of --{flag} says beside it");
                Some((says, "write the file's keys as --trtllm.KEY VALUE in engine.args".to_owned()))
            }
            _ => None,
        }
    }

    fn health(&self) -> &'static str {
        "/health"
    }

    fn of_log(&self, log: &str) -> Effective {
        let mut found = Effective::default();
        for line in log_lines::lines(log) {
            if let Some(dict) = after(&line.text, "TensorRT-LLM engine args: {") {
                let told = python_dict(dict).filter(|(name, _)| !holds_secret(name, name));
                found.values.extend(told.map(|(name, value)| (format!("trtllm.{name}"), value)));
                // As a dictionary, or as an object prints itself.
                let share =
                    after(dict, "free_gpu_memory_fraction").map(|rest| rest.trim_start_matches(['\'', ':', '=', ' ']));
                let share = share.and_then(|rest| scalar(rest.split([',', '}', ')', ' ']).next()?));
                found.values.extend(share.map(|share| (MEMORY.to_owned(), share)));
            } else if let Some(tokens) = after(&line.text, "for max tokens in paged KV cache (") {
                found.kv_cache_tokens = leading_count(tokens);
            } else if let Some(version) =
                after(&line.text, "[TensorRT-LLM] TensorRT").and_then(|v| after(v, "version: "))
            {
                found.version = Some(version.trim().to_owned());
            }
        }
        found
    }

    /// With the names of the engine, or else of Dynamo's mocker, which simulates it.
    fn sample(&self, page: &Page) -> EngineSample {
        let either = |engine: &str, mocker: &str| page.value(engine).or_else(|| page.value(mocker));
        let usage = page.largest("trtllm_kv_cache_utilization");
        EngineSample {
            running: either("trtllm_num_requests_running", "trtllm:num_requests_running"),
            waiting: either("trtllm_num_requests_waiting", "trtllm:num_requests_waiting"),
            kv_usage: usage.or_else(|| page.largest("trtllm:kv_cache_usage_perc")),
            preemptions: page.value("trtllm:num_preemptions_total"),
            prompt_tokens: page.value("trtllm_prompt_tokens_total"),
            generation_tokens: page.value("trtllm_generation_tokens_total"),
            ..EngineSample::default()
        }
    }

    fn symptoms(&self) -> &'static [Symptom] {
        SYMPTOMS
    }

    fn echoes(&self) -> &'static [&'static str] {
        &["executor worker returned error", "executor worker died during initialization", "error in engine context"]
    }

    fn programs(&self) -> &'static [&'static str] {
        &["python", "python3", "dynamo.trtllm"]
    }

    fn tells_lost_process(&self, _line: &str) -> bool {
        false
    }
}

const SYMPTOMS: &[Symptom] = &[
    row(
        &["executor creation failed due to insufficient gpu memory"],
        OutOfMemory,
        MemoryBound,
        "The device ran out of memory: lower {memory}, {sequences} or {tokens}.",
    ),
    row(
        &["impossible to fit in any sequence in kvcache"],
        KvCacheTooSmall,
        NeedsMoreMemory,
        "The KV cache does not hold one request: raise {memory}.",
    ),
    row(
        &["maxtokensinpagedkvcache", "must be large enough"],
        KvCacheTooSmall,
        NeedsMoreMemory,
        "The KV cache does not hold one request: raise {memory}.",
    ),
    row(
        &["are mutually exclusive", "override-engine-args"],
        BadArgument,
        Blames(&[]),
        "The worker takes --override-engine-args or --trtllm.…, not both: remove the former, also from the environment.",
    ),
    row(
        &["unrecognized argument: --"],
        BadArgument,
        Blames(&[]),
        "The worker does not know an argument: correct the space file.",
    ),
];

#[cfg(test)]
mod tests {
    use super::super::super::diagnosis::{Consequence, Exit, diagnose};
    use super::super::super::symptoms::Cause;
    use super::super::dynamo::TRTLLM;
    use super::*;
    use crate::space::{Point, Value};

    /// Of a real `dynamo.mocker --engine-type trtllm`.
    const MOCKER: &str = include_str!("../../../../../../tests/data/trtllm/mocker_metrics.txt");
    /// The names of TensorRT-LLM's own collector; values by hand.
    const METRICS: &str = include_str!("../../../../../../tests/data/trtllm/metrics.txt");
    const FAILURES: &str = include_str!("../../../../../../tests/data/trtllm/failures.txt");
    const START: &str = include_str!("../../../../../../tests/data/trtllm/start.log");

    #[test]
    fn counters_are_the_engines_or_the_mockers() {
        let sample = Trtllm.sample(&Page::parse(METRICS));
        assert_eq!((sample.running, sample.waiting, sample.kv_usage), (Some(31.0), Some(7.0), Some(0.62)));
        let mocked = TRTLLM.sample(&Page::parse(MOCKER));
        assert_eq!((mocked.running, mocked.waiting, mocked.preemptions), (Some(3.0), Some(0.0), Some(0.0)));
        assert!(mocked.kv_usage.is_some_and(|usage| usage > 0.0), "{mocked:?}");
    }

    #[test]
    fn the_log_tells_what_came_of_all_arguments() {
        let told = TRTLLM.of_log(START);
        assert_eq!((told.kv_cache_tokens, told.version.as_deref()), (Some(1_656_704), Some("1.3.0rc21")));
        for (name, value) in [
            ("trtllm.max_batch_size", Value::Int(64)),
            ("trtllm.max_num_tokens", Value::Int(4096)),
            ("trtllm.enable_chunked_prefill", Value::Bool(true)),
            (MEMORY, Value::Real(0.85)),
        ] {
            assert_eq!(told.values.get(name), Some(&value), "{name}");
        }
        let printed = START.replace(
            "{'free_gpu_memory_fraction': 0.85}",
            "KvCacheConfig(enable_block_reuse=True, free_gpu_memory_fraction=0.7, dtype='auto')",
        );
        let launched = Point::default().with(MEMORY, Value::Real(0.85)).with("trtllm.max_batch_size", Value::Int(64));
        assert_eq!(TRTLLM.of_log(START).mismatches(&launched), []);
        let lost = TRTLLM.of_log(&printed).mismatches(&launched);
        assert_eq!(lost, [(MEMORY.to_owned(), Value::Real(0.85), Value::Real(0.7))]);
    }

    #[test]
    fn its_failures_are_told_apart() {
        use Cause::*;
        let tuned = [MEMORY, "trtllm.max_batch_size"];
        let refused = |flag: &str| Consequence::ValueRefused { flag: Some(flag.to_owned()) };
        let expected = [
            (
                "out-of-memory",
                OutOfMemory,
                Consequence::MemoryBound,
                "lower trtllm.kv_cache_config.free_gpu_memory_fraction",
            ),
            ("kv-too-small", KvCacheTooSmall, Consequence::NeedsMoreMemory, "raise trtllm.kv_cache_config.free"),
            ("both-ways", BadArgument, Consequence::Abort, "not both"),
            ("unknown", BadArgument, Consequence::Abort, "does not know an argument"),
            ("bad-value", BadArgument, refused("trtllm.max_batch_size"), "correct the values of trtllm.max_batch_size"),
        ];
        let cases = FAILURES.split("=== ").skip(1).filter_map(|case| case.split_once('\n'));
        let cases: Vec<(&str, &str)> = cases.collect();
        assert_eq!(cases.len(), expected.len());
        for ((head, log), (name, cause, consequence, says)) in cases.into_iter().zip(expected) {
            assert!(head.ends_with(name), "{head}");
            let found = diagnose(&TRTLLM, log, Exit::Code(1), &tuned);
            assert_eq!((found.cause, found.consequence), (cause, consequence), "{head}: {:?}", found.line);
            assert!(found.says.contains(says), "{head}: {}", found.says);
        }
        let calm = "[11/25/2026-19:47:15] [TRT-LLM] [W] Out of memory was met while tuning kernels; a smaller workspace is used\n";
        assert_eq!(diagnose(&TRTLLM, calm, Exit::StillRunning, &tuned).cause, Timeout);
    }
}
