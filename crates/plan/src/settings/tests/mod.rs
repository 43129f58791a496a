//! Whole files: what a valid one means, and what every mistake is called.

mod mistakes;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::space::{Constraint, Parameter, Value};
use autotune_records::units::{Rate, Seconds};

/// Every key of a random workload.
pub const FULL: &str = r#"#:schema ./space.schema.json
[slo]
ttft_p99 = "1s"
tpot_p99 = "60ms"
"e2e_p99.9" = "1m30s"

[engine]
kind = "vllm"
command = ["vllm", "serve", "/models/x"]
args = ["--max-model-len", "16384", "-tp", "2"]
env = { HF_HUB_OFFLINE = "1" }
port = 8011
start_timeout = "12m"
stall_timeout = "30s"
stop_timeout = "25s"
start_estimate = "80s"
live = false

[workload]
kind = "random"
endpoint = "chat"
ignore_eos = false
input_tokens = { distribution = "lognormal", median = 800, sigma = 0.8, min = 16, max = 8000 }
output_tokens = 256
shared_prefix_tokens = 512
shared_prefixes = 4

[parameters]
gpu-memory-utilization = { min = 0.88, max = 0.91, step = 0.01, default = 0.9 }
max_num_batched_tokens = { min = 2048, max = 8192, step = 2048 }
max-num-seqs = { values = [64, 32, 48], default = 64 }
enable-prefix-caching = { values = [true, false] }
attention-backend = { values = ["FLASH_ATTN", "FLASHINFER"] }

[search]
strategy = "bisect"
precision = "2.5%"
min_gain = 0.02
candidates = 12
first_rate = 2.5
seed = 7
constraints = ["max-num-batched-tokens >= 4 * max-num-seqs"]

[probe]
ramp = "10s"
window = "60s"
certify_window = "5m"

[budget]
gpu_time = "2h"
"#;

pub const SMALL: &str = r#"[slo]
itl_p50 = "50ms"
[engine]
kind = "simulated"
[workload]
kind = "random"
input_tokens = { distribution = "uniform", min = 10, max = 20 }
output_tokens = { distribution = "normal", mean = 100, sd = 30, max = 400 }
[parameters]
max-num-seqs = { min = 4, max = 6 }
"#;

pub const CONVERSATIONS: &str = r#"[slo]
ttft_p99_9 = "1.5s"
[engine]
kind = "vllm"
command = ["vllm", "serve", "/models/x"]
[workload]
kind = "conversations"
starters = 20
starter_tokens = 2000
turns = 5
question_tokens = 60
output_tokens = 200
think_time = "2s"
[parameters]
max-num-seqs = { values = [8] }
[probe]
window = "20s"
"#;

/// The section of [`SMALL`] with another workload.
fn with_workload(keys: &str) -> String {
    let (start, end) = (SMALL.find("[workload]").unwrap(), SMALL.find("[parameters]").unwrap());
    format!("{}[workload]\n{keys}\n{}", &SMALL[..start], &SMALL[end..])
}

/// A file of every kind of workload, with every key of it at least once.
pub fn every_kind() -> Vec<String> {
    let mut files: Vec<String> = [FULL, SMALL, CONVERSATIONS].map(str::to_owned).to_vec();
    files.extend(
        [
            "kind = \"sharegpt\"\nfile = \"dialogues.json\"\narrivals = \"constant\"",
            "kind = \"sharegpt\"\nfile = \"dialogues.json\"\nturns = 20\nthink_time = \"2s\"\noutput_tokens = 100\nendpoint = \"completions\"",
            "kind = \"jsonl\"\nfile = \"x.jsonl\"\narrivals = \"gamma\"\nburstiness = 0.5",
            "kind = \"trace\"\nfile = \"x.jsonl\"\nblock_tokens = 16\ntime_unit = \"1s\"\narrivals = \"poisson\"",
            "kind = \"random\"\ninput_tokens = { distribution = \"histogram\", edges = [1, 128, 512], counts = [10, 5] }\n\
             output_tokens = 5",
        ]
        .map(with_workload),
    );
    files
}

fn fixed(count: u32) -> Lengths {
    Lengths { shape: LengthShape::Fixed, min: count, max: count }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn parameter(name: &str, values: Vec<Value>, default: Option<Value>) -> Parameter {
    Parameter { name: name.into(), values, default, when: None }
}

#[test]
fn a_full_file_is_a_plan() {
    let plan = parse("space.toml", FULL).unwrap();
    let limit = |metric, quantile, seconds| Limit { metric, quantile, at_most: Seconds(seconds) };
    let ints = |values: &[i64]| values.iter().map(|v| Value::Int(*v)).collect::<Vec<_>>();
    let texts = |values: &[&str]| values.iter().map(|v| Value::Text((*v).into())).collect::<Vec<_>>();
    let expected = Plan {
        slo: vec![limit(Metric::Ttft, 0.99, 1.0), limit(Metric::Tpot, 0.99, 0.06), limit(Metric::E2e, 0.999, 90.0)],
        engine: EnginePlan {
            kind: EngineKind::Vllm,
            command: words(&["vllm", "serve", "/models/x"]),
            args: words(&["--max-model-len", "16384", "-tp", "2"]),
            env: BTreeMap::from([("HF_HUB_OFFLINE".to_owned(), "1".to_owned())]),
            port: Some(8011),
            start_timeout: Duration::from_mins(12),
            stall_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(25),
            start_estimate: Duration::from_secs(80),
            live: false,
            graph: None,
        },
        workload: WorkloadPlan {
            endpoint: Endpoint::Chat,
            ignore_eos: false,
            arrivals: ArrivalProcess::Poisson,
            kind: WorkloadKind::Random(RandomPlan {
                input_tokens: Lengths {
                    shape: LengthShape::Lognormal { median: 800.0, sigma: 0.8 },
                    min: 16,
                    max: 8000,
                },
                output_tokens: fixed(256),
                shared_prefix_tokens: 512,
                shared_prefixes: 4,
            }),
        },
        space: Space {
            parameters: vec![
                parameter(
                    "gpu-memory-utilization",
                    [0.88, 0.89, 0.9, 0.91].map(Value::Real).to_vec(),
                    Some(Value::Real(0.9)),
                ),
                parameter("max-num-batched-tokens", ints(&[2048, 4096, 6144, 8192]), None),
                parameter("max-num-seqs", ints(&[32, 48, 64]), Some(Value::Int(64))),
                parameter("enable-prefix-caching", vec![Value::Bool(true), Value::Bool(false)], None),
                parameter("attention-backend", texts(&["FLASH_ATTN", "FLASHINFER"]), None),
            ],
            constraints: vec![Constraint::parse("max-num-batched-tokens >= 4 * max-num-seqs").unwrap()],
        },
        probe: ProbePlan {
            ramp: Duration::from_secs(10),
            window: Duration::from_secs(60),
            certify_window: Duration::from_mins(5),
            twin: true,
            acceptance_length: 1.1,
        },
        search: SearchPlan {
            strategy: StrategyKind::Bisect,
            precision: 0.025,
            min_gain: 0.02,
            candidates: 12,
            first_rate: Some(Rate(2.5)),
            seed: 7,
        },
        budget: Budget { gpu_time: Duration::from_hours(2) },
    };
    assert_eq!(plan, expected);
    // The journal's identity is this JSON; it must give the same plan back.
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
}

#[test]
fn a_small_file_gets_the_documented_defaults() {
    let plan = parse("space.toml", SMALL).unwrap();
    let engine = &plan.engine;
    assert_eq!((engine.kind, engine.command.len(), engine.args.len()), (EngineKind::Simulated, 0, 0));
    assert_eq!((engine.port, engine.env.len()), (None, 0));
    let seconds = [engine.start_timeout, engine.stall_timeout, engine.stop_timeout, engine.start_estimate];
    assert_eq!(seconds.map(|d| d.as_secs()), [600, 20, 15, 1]);
    assert_eq!((plan.workload.endpoint, plan.workload.ignore_eos), (Endpoint::Completions, true));
    let WorkloadKind::Random(random) = plan.workload.kind else { panic!("not random") };
    assert_eq!(random.input_tokens, Lengths { shape: LengthShape::Uniform, min: 10, max: 20 });
    let normal = LengthShape::Normal { mean: 100.0, sd: 30.0 };
    assert_eq!(random.output_tokens, Lengths { shape: normal, min: 1, max: 400 });
    assert_eq!((random.shared_prefix_tokens, random.shared_prefixes), (0, 1));
    assert_eq!(plan.space.parameters[0].values, [4, 5, 6].map(Value::Int));
    let probe = &plan.probe;
    assert_eq!([probe.ramp, probe.window, probe.certify_window].map(|d| d.as_secs()), [10, 60, 180]);
    let search = &plan.search;
    assert_eq!((search.precision, search.min_gain, search.candidates), (0.03, 0.01, 24));
    assert_eq!((search.first_rate, search.seed, search.strategy), (None, 1, StrategyKind::Bayes));
    assert_eq!(plan.budget.gpu_time, Duration::from_mins(90));
}

#[test]
fn conversations_have_their_own_keys_and_defaults() {
    let plan = parse("space.toml", CONVERSATIONS).unwrap();
    assert_eq!(plan.slo[0].key(), "ttft_p99_9");
    assert_eq!(plan.workload.endpoint, Endpoint::Chat);
    let expected = ConversationsPlan {
        starters: 20,
        starter_tokens: fixed(2000),
        turns: 5,
        question_tokens: fixed(60),
        output_tokens: fixed(200),
        think_time: Duration::from_secs(2),
    };
    assert_eq!(plan.workload.kind, WorkloadKind::Conversations(expected));
    assert_eq!(plan.probe.certify_window, Duration::from_secs(60));
    assert_eq!(plan.engine.start_estimate, Duration::from_secs(60));
}

#[test]
fn workloads_from_files_have_their_own_keys_and_defaults() {
    let workload = |keys: &str| parse("space.toml", &with_workload(keys)).unwrap().workload;
    let sharegpt = workload("kind = \"sharegpt\"\nfile = \"a/b.json\"");
    assert_eq!((sharegpt.endpoint, sharegpt.arrivals), (Endpoint::Chat, ArrivalProcess::Poisson));
    assert_eq!(
        sharegpt.kind,
        WorkloadKind::Sharegpt(SharegptPlan {
            file: "a/b.json".into(),
            output_tokens: None,
            turns: 1,
            think_time: Duration::ZERO
        })
    );
    let jsonl = workload("kind = \"jsonl\"\nfile = \"b\"\noutput_tokens = 9\narrivals = \"gamma\"\nburstiness = 2");
    assert_eq!((jsonl.endpoint, jsonl.arrivals), (Endpoint::Chat, ArrivalProcess::Gamma { burstiness: 2.0 }));
    assert_eq!(jsonl.kind, WorkloadKind::Jsonl(JsonlPlan { file: "b".into(), output_tokens: Some(fixed(9)) }));
    let trace = workload("kind = \"trace\"\nfile = \"c\"");
    assert_eq!((trace.endpoint, trace.arrivals), (Endpoint::Completions, ArrivalProcess::Recorded));
    let expected = TracePlan { file: "c".into(), block_tokens: 512, time_unit: Duration::from_millis(1) };
    assert_eq!(trace.kind, WorkloadKind::Trace(expected));
}

#[test]
fn a_histogram_needs_no_bounds() {
    let keys = "kind = \"random\"\noutput_tokens = 1\n\
        input_tokens = { distribution = \"histogram\", edges = [1, 128, 512], counts = [10, 5] }";
    let WorkloadKind::Random(random) = parse("space.toml", &with_workload(keys)).unwrap().workload.kind else {
        panic!("not random")
    };
    let shape = LengthShape::Histogram { edges: vec![1, 128, 512], counts: vec![10, 5] };
    assert_eq!(random.input_tokens, Lengths { shape, min: 1, max: 512 });
}

#[test]
fn a_journal_from_before_arrivals_could_be_chosen_still_fits() {
    let plan = parse("space.toml", FULL).unwrap();
    let mut json = serde_json::to_value(&plan).unwrap();
    json["workload"].as_object_mut().unwrap().remove("arrivals").unwrap();
    assert_eq!(serde_json::from_value::<Plan>(json).unwrap(), plan);
}

#[test]
fn subtables_and_dotted_keys_mean_the_same() {
    let inline = parse("space.toml", FULL).unwrap();
    let env = "env = { HF_HUB_OFFLINE = \"1\" }\n";
    let subtable = FULL.replace(env, "").replace("[workload]", "[engine.env]\nHF_HUB_OFFLINE = \"1\"\n[workload]");
    assert_eq!(parse("space.toml", &subtable).unwrap(), inline);
    let dotted = FULL.replace(env, "env.HF_HUB_OFFLINE = \"1\"\n");
    assert_eq!(parse("space.toml", &dotted).unwrap(), inline);
    assert_eq!(parse("space.toml", &FULL.replace('\n', "\r\n")).unwrap(), inline);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        if let Err(problems) = parse("space.toml", &text) {
            prop_assert!(!problems.render().is_empty());
        }
    }

    #[test]
    fn any_damage_to_a_file_is_read_or_refused(
        start in 0..FULL.len(), length in 0..40_usize, insert in "[\\[\\]{}=\"'#a-z0-9.,\\-\n é\u{1b}]{0,8}",
    ) {
        // The file is ASCII, so that every offset is a boundary.
        let end = (start + length).min(FULL.len());
        let text = format!("{}{insert}{}", &FULL[..start], &FULL[end..]);
        if let Err(problems) = parse("space.toml", &text) {
            prop_assert!(problems.render().contains("space.toml:"));
            prop_assert!(problems.list.iter().all(|problem| !problem.hint.is_empty()));
        }
    }

    #[test]
    fn any_number_is_read_or_refused(
        min in any::<f64>(), max in any::<f64>(), step in any::<f64>(), seed in any::<i64>(),
    ) {
        let range = format!("{{ min = {min:?}, max = {max:?}, step = {step:?} }}").replace("NaN", "nan");
        let text = SMALL.replace("{ min = 4, max = 6 }", &range) + &format!("[search]\nseed = {seed}\n");
        if let Err(problems) = parse("space.toml", &text) {
            prop_assert!(!problems.render().is_empty());
        }
    }
}

/// The parser of toml 1.2.1 called itself for each of these lines, until its stack was full.
#[test]
fn open_tables_without_end_are_mistakes() {
    let text = "a = [\"x\"]\nb = {\"]\n".repeat(8_000);
    assert!(parse("space.toml", &text).is_err());
}

#[test]
fn fuzz_space_files() {
    autotune_fuzz::fuzz(
        5,
        [FULL, include_str!("../../../../../search-spaces/quickstart.toml")],
        |input, _| match parse("space.toml", &String::from_utf8_lossy(input)) {
            Ok(plan) => drop(redact_plan(&plan)),
            Err(problems) => drop(problems.render()),
        },
    );
}

#[test]
fn parameters_may_be_variables_and_have_conditions() {
    let text = FULL
        .replace(
            "enable-prefix-caching = { values = [true, false] }",
            r#""env.VLLM_ATTENTION_BACKEND" = { values = ["off", "FLASHINFER"], default = "off" }
block-size = { values = [16, 32], default = 16, when = "env.VLLM_ATTENTION_BACKEND == FLASHINFER or max-num-seqs < 48" }"#,
        )
        .replace("\"max-num-batched-tokens >= 4", "\"env.VLLM_ATTENTION_BACKEND == off or max-num-seqs <= 48\", \"max-num-batched-tokens >= 4");
    let plan = parse("space.toml", &text).unwrap();
    assert!(plan.space.baseline().get("block-size").is_none());
    let flashinfer =
        plan.space.changed(&plan.space.baseline(), "env.VLLM_ATTENTION_BACKEND", Value::Text("FLASHINFER".into()));
    assert_eq!(flashinfer.get("block-size"), Some(&Value::Int(16)));
    assert!(!plan.space.admits(&flashinfer), "64 sequences are too many for it");
    assert_eq!(plan.without_term(), ["env.VLLM_ATTENTION_BACKEND", "attention-backend"]);
    let read: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(read, plan);
}
