//! Dynamo: a frontend that routes to workers, each of which runs an engine of its own; as release 1.6.1 has it.
//!
//! The workers' flags, log lines and engine metrics are those of their engine. The frontend has the flags of the router, and tells what the
//! workers have registered.

use serde_json::Value as Json;

use super::super::effective::Effective;
use super::super::metrics::Page;
use super::super::symptoms::Symptom;
use super::super::telemetry::EngineSample;
use super::{Dialect, Quantity};
use crate::settings::Domain;
use crate::space::Value;

/// A graph whose workers run one kind of engine.
pub struct Dynamo {
    name: &'static str,
    /// What the workers' engine speaks.
    worker: &'static dyn Dialect,
    /// The flags of a worker and of the frontend.
    flags: &'static str,
    quantities: &'static [(Quantity, &'static str)],
    telling: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

/// A line for each request would cost more than the request.
const QUIET: &[(&str, &str)] = &[("DYN_LOG", "warn")];

/// The flags of the frontend, one in each line.
pub const FRONTEND: &str = include_str!("frontend-1.6.1.txt");

/// Workers that simulate vLLM's scheduler; their KV cache has as many blocks as they are told.
pub const MOCKER: Dynamo = Dynamo {
    name: "Dynamo's mocker",
    worker: &super::vllm::Vllm,
    flags: include_str!("mocker-1.6.1.txt"),
    quantities: &[
        (Quantity::Sequences, "max-num-seqs"),
        (Quantity::Tokens, "max-num-batched-tokens"),
        (Quantity::Length, "max-model-len"),
    ],
    telling: &[],
    environment: QUIET,
};
pub const VLLM: Dynamo = Dynamo {
    name: "vLLM behind Dynamo",
    worker: &super::vllm::Vllm,
    flags: super::vllm::FLAGS,
    quantities: super::vllm::QUANTITIES,
    telling: &[],
    environment: QUIET,
};
pub const SGLANG: Dynamo = Dynamo {
    name: "SGLang behind Dynamo",
    worker: &super::sglang::Sglang,
    flags: super::sglang::FLAGS,
    quantities: super::sglang::QUANTITIES,
    // A worker has no counters of its engine without it.
    telling: &["enable-metrics"],
    environment: QUIET,
};
pub const TRTLLM: Dynamo = Dynamo {
    name: "TensorRT-LLM behind Dynamo",
    worker: &super::trtllm::Trtllm,
    flags: super::trtllm::FLAGS,
    quantities: super::trtllm::QUANTITIES,
    // At some cost for each step, a worker has counters of its engine.
    telling: &["publish-metrics"],
    // The worker tells in one line of its start what came of all arguments.
    environment: &[("DYN_LOG", "warn,llm_worker=info")],
};

/// Whether a flag is the router's, which the frontend alone has.
pub fn is_of_frontend(flag: &str) -> bool {
    let known = FRONTEND.lines().any(|known| known == flag);
    known && (["router-", "active-", "migration-"].iter().any(|start| flag.starts_with(start)) || flag == "load-aware")
}

impl Dialect for Dynamo {
    fn name(&self) -> &'static str {
        self.name
    }

    fn release(&self) -> &'static str {
        "1.6.1"
    }

    fn flags(&self) -> &'static str {
        self.flags
    }

    fn quantities(&self) -> &'static [(Quantity, &'static str)] {
        self.quantities
    }

    fn domains(&self) -> &'static [(&'static str, Domain)] {
        self.worker.domains()
    }

    fn weaker(&self) -> &'static [(&'static str, &'static str)] {
        self.worker.weaker()
    }

    fn refuses(&self, flag: &str, all: &[&str]) -> Option<(String, String)> {
        self.worker.refuses(flag, all)
    }

    fn telling(&self) -> &'static [&'static str] {
        self.telling
    }

    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        self.environment
    }

    fn off(&self, switch: &str) -> Option<String> {
        if is_of_frontend(switch) { Some(format!("--no-{switch}")) } else { self.worker.off(switch) }
    }

    fn health(&self) -> &'static str {
        "/health"
    }

    /// It says that it is healthy before any worker is there: all of them must be registered.
    fn serves(&self, health: &str, workers: u32) -> bool {
        let told: Json = serde_json::from_str(health).unwrap_or_default();
        let instances = told["instances"].as_array().map_or(&[][..], Vec::as_slice);
        instances.iter().filter(|instance| instance["endpoint"] == "generate").count() >= workers as usize
    }

    fn pages(&self, log: &str) -> Vec<String> {
        let of_worker = |line: &str| Some(line.strip_prefix("worker ")?.split_once(": metrics at ")?.1.to_owned());
        log.lines().filter_map(of_worker).collect()
    }

    fn of_log(&self, log: &str) -> Effective {
        self.worker.of_log(log)
    }

    /// What the workers have registered with the frontend; the cache is that of one of them.
    fn of_metrics(&self, page: &Page) -> Effective {
        let told = |name: &str| page.largest(&format!("dynamo_frontend_model_{name}")).filter(|value| *value > 0.0);
        let mut found = Effective::default();
        let limits = [("max_num_seqs", Quantity::Sequences), ("max_num_batched_tokens", Quantity::Tokens)];
        for (name, quantity) in limits {
            if let (Some(value), Some(flag)) = (told(name), self.flag(quantity)) {
                found.values.insert(flag.to_owned(), Value::Int(value as i64));
            }
        }
        let tokens = told("total_kv_blocks").zip(told("kv_cache_block_size")).map(|(blocks, size)| blocks * size);
        Effective { kv_cache_tokens: tokens.map(|tokens| tokens as u64), ..found }
    }

    /// Hits and tokens from the frontend, which every request passes; the rest from the workers.
    fn sample(&self, page: &Page) -> EngineSample {
        let workers = self.worker.sample(page);
        let queued = page.value("dynamo_frontend_router_queue_pending_requests");
        let prompts = page.value("dynamo_frontend_input_sequence_tokens_sum");
        EngineSample {
            waiting: workers.waiting.map(|waiting| waiting + queued.unwrap_or(0.0)),
            prefix_queries: prompts,
            prefix_hits: page.value("dynamo_frontend_cached_tokens_sum"),
            prompt_tokens: prompts,
            generation_tokens: page.value("dynamo_frontend_output_tokens_total"),
            kv_events: page.value_with("dynamo_component_kv_cache_events_applied", ("status", "ok")),
            ..workers
        }
    }

    fn symptoms(&self) -> &'static [Symptom] {
        self.worker.symptoms()
    }

    fn echoes(&self) -> &'static [&'static str] {
        self.worker.echoes()
    }

    fn programs(&self) -> &'static [&'static str] {
        &["python", "python3", "__main__.py"]
    }

    fn tells_lost_process(&self, line: &str) -> bool {
        self.worker.tells_lost_process(line)
    }

    fn part(&self, log: &str) -> Option<String> {
        let line = log.lines().find(|line| line.contains(" of the graph ended: "))?;
        line.split(" of the graph").next().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::diagnosis::{Cause, Exit, diagnose};
    use super::*;

    /// Of a real frontend with two mocked workers.
    const HEALTH: &str = include_str!("../../../../../../tests/data/dynamo/frontend_health.json");
    const FRONTEND_PAGE: &str = include_str!("../../../../../../tests/data/dynamo/frontend_metrics.txt");
    const WORKER_PAGE: &str = include_str!("../../../../../../tests/data/vllm/dynamo_worker_metrics.txt");

    #[test]
    fn a_frontend_serves_once_every_worker_is_registered() {
        assert!(MOCKER.serves(HEALTH, 2) && !MOCKER.serves(HEALTH, 3));
        assert!(!MOCKER.serves(r#"{"status":"healthy","endpoints":[],"instances":[]}"#, 1), "it is healthy alone, too");
        assert!(!MOCKER.serves("", 1));
    }

    #[test]
    fn hits_are_the_frontends_and_batches_the_workers() {
        let sample = MOCKER.sample(&Page::parse(&format!("{FRONTEND_PAGE}{WORKER_PAGE}{WORKER_PAGE}")));
        assert_eq!((sample.running, sample.waiting, sample.preemptions), (Some(0.0), Some(0.0), Some(0.0)));
        assert!(sample.prefix_hits.is_some() && sample.prefix_hits < sample.prefix_queries, "{sample:?}");
        let told = MOCKER.of_metrics(&Page::parse(FRONTEND_PAGE));
        assert_eq!(
            told.values.keys().map(String::as_str).collect::<Vec<_>>(),
            ["max-num-batched-tokens", "max-num-seqs"]
        );
        assert!(told.kv_cache_tokens.is_some_and(|tokens| tokens > 0));
        let log =
            "worker 1 of 2: metrics at http://127.0.0.1:9801/metrics\n(Worker1 pid=7) worker x: metrics at nowhere\n";
        assert_eq!(MOCKER.pages(log), ["http://127.0.0.1:9801/metrics"]);
    }

    #[test]
    fn a_worker_that_dies_is_named() {
        let log = "(Worker2 pid=77) 2026-11-25T12:15:08.639207Z  WARN dynamo: slow, out of memory: no\n\
                   worker 2 of 4 of the graph ended: signal 9\n";
        let found = diagnose(&MOCKER, log, Exit::Code(137), &["max-num-seqs"]);
        assert!(found.says.contains("killed by signal 9"), "{found:?}");
        assert_eq!(found.line.as_deref(), Some("worker 2 of 4 of the graph ended: signal 9"));
        assert_eq!(MOCKER.part(log).as_deref(), Some("worker 2 of 4"));
        let told = "(Worker1 pid=7) torch.OutOfMemoryError: CUDA out of memory.\nworker 1 of 4 of the graph ended: exit code 1\n";
        assert_eq!(diagnose(&VLLM, told, Exit::Code(1), &["max-num-seqs"]).cause, Cause::OutOfMemory);
    }

    #[test]
    fn knobs_of_the_router_are_the_frontends() {
        for flag in ["router-mode", "router-temperature", "router-queue-threshold", "active-decode-blocks-threshold"] {
            assert!(is_of_frontend(flag), "{flag}");
        }
        assert!(
            !is_of_frontend("max-num-seqs") && !is_of_frontend("model-path") && !is_of_frontend("router-of-another")
        );
        assert_eq!(MOCKER.off("router-kv-events").as_deref(), Some("--no-router-kv-events"));
    }
}
