//! The outcome of each engine in each kind of manifest: the table of docs/export.md says what this test does.

use std::fmt::Write as _;

use super::flags::{Flags, Setting};
use super::shapes::SHAPES;
use super::write::{IntendedFlags, export};
use crate::engine::dialect;
use crate::engine::programs::Engine;
use crate::settings::EngineKind;
use crate::space::Value;

/// An engine whose outcome is exported: its column, what starts it, and the image that has it.
struct Measured {
    column: &'static str,
    kind: EngineKind,
    start: &'static str,
    image: &'static str,
    settings: [(&'static str, &'static str); 3],
}

const VLLM: [(&str, &str); 3] =
    [("enable-prefix-caching", "true"), ("gpu-memory-utilization", "0.93"), ("max-num-seqs", "96")];
const SGLANG: [(&str, &str); 3] =
    [("chunked-prefill-size", "4096"), ("max-running-requests", "96"), ("mem-fraction-static", "0.87")];
const TRTLLM: [(&str, &str); 3] = [
    ("trtllm.kv_cache_config.free_gpu_memory_fraction", "0.87"),
    ("trtllm.max_batch_size", "96"),
    ("trtllm.max_num_tokens", "4096"),
];

const ENGINES: [Measured; 5] = [
    Measured {
        column: "vLLM",
        kind: EngineKind::Vllm,
        start: "vllm serve m",
        image: "vllm/vllm-openai:v0.24.0",
        settings: VLLM,
    },
    Measured {
        column: "SGLang",
        kind: EngineKind::Sglang,
        start: "python3 -m sglang.launch_server --model-path m",
        image: "lmsysorg/sglang:v0.5.6",
        settings: SGLANG,
    },
    Measured {
        column: "Dynamo, vLLM",
        kind: EngineKind::DynamoVllm,
        start: "python3 -m dynamo.vllm --model m",
        image: "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1",
        settings: VLLM,
    },
    Measured {
        column: "Dynamo, SGLang",
        kind: EngineKind::DynamoSglang,
        start: "python3 -m dynamo.sglang --model-path m",
        image: "nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.6.1",
        settings: SGLANG,
    },
    Measured {
        column: "Dynamo, TensorRT-LLM",
        kind: EngineKind::DynamoTrtllm,
        start: "python3 -m dynamo.trtllm --model-path m",
        image: "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.6.1",
        settings: TRTLLM,
    },
];

/// A manifest of each kind, its command as LINE or as a list WORDS. A kind that runs one engine alone has none of both.
const MANIFESTS: [(&str, &str); 22] = [
    (
        "Kubernetes workload",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: c}, spec: {template: {spec: {containers: [{name: c, image: IMAGE, command: WORDS}]}}}}\n",
    ),
    (
        "DynamoGraphDeployment v1beta1",
        "{apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, metadata: {name: c}, spec: {components: [{name: w, type: worker, podTemplate: {spec: {containers: [{name: main, image: IMAGE, command: WORDS}]}}}]}}\n",
    ),
    (
        "DynamoGraphDeployment v1alpha1",
        "{apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeployment, metadata: {name: c}, spec: {services: {w: {componentType: worker, extraPodSpec: {mainContainer: {image: IMAGE, command: WORDS}}}}}}\n",
    ),
    (
        "KubeAI Model",
        "{apiVersion: kubeai.org/v1, kind: Model, metadata: {name: c}, spec: {engine: VLLM, url: hf://m, args: [--seed=1]}}\n",
    ),
    (
        "KServe InferenceService",
        "{apiVersion: serving.kserve.io/v1beta1, kind: InferenceService, metadata: {name: c}, spec: {predictor: {containers: [{name: c, image: IMAGE, command: WORDS}]}}}\n",
    ),
    (
        "KServe LLMInferenceService",
        "{apiVersion: serving.kserve.io/v1alpha1, kind: LLMInferenceService, metadata: {name: c}, spec: {model: {uri: hf://m}, template: {containers: [{name: main, image: IMAGE, command: WORDS}]}}}\n",
    ),
    (
        "LeaderWorkerSet",
        "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: c}, spec: {leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, image: IMAGE, command: WORDS}]}}}}}\n",
    ),
    (
        "production stack VLLMRuntime",
        "{apiVersion: production-stack.vllm.ai/v1alpha1, kind: VLLMRuntime, metadata: {name: c}, spec: {model: {modelURL: m, maxNumSeqs: 8}, vllmConfig: {extraArgs: [--seed, '1']}}}\n",
    ),
    (
        "production stack Helm values",
        "{servingEngineSpec: {modelSpec: [{name: c, modelURL: m, vllmConfig: {maxNumSeqs: 8, extraArgs: [--seed, '1']}}]}}\n",
    ),
    ("llm-d Helm values", "{decode: {containers: [{name: c, image: IMAGE, modelCommand: custom, command: WORDS}]}}\n"),
    ("Docker Compose", "{services: {c: {image: IMAGE, command: WORDS}}}\n"),
    (
        "RayService",
        "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: c}\nspec:\n  serveConfigV2: |\n    applications: [{args: {llm_configs: [{model_loading_config: {model_id: c}, llm_engine: RAY, engine_kwargs: {seed: 1}}]}}]\n",
    ),
    (
        "Ray Serve configuration",
        "{applications: [{args: {llm_configs: [{model_loading_config: {model_id: c}, llm_engine: RAY, engine_kwargs: {seed: 1}}]}}]}\n",
    ),
    (
        "Helm values in an object",
        "{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: c}, spec: {values: {server: {image: IMAGE, args: WORDS}}}}\n",
    ),
    ("systemd unit", "[Service]\nExecStart=/usr/bin/env LINE\n"),
    ("Podman quadlet", "[Container]\nImage=IMAGE\nEntrypoint=/usr/bin/env\nExec=LINE\n"),
    ("shell script", "#!/bin/sh\nexec LINE\n"),
    ("JSON patch", "- {op: replace, path: /spec/template/spec/containers/0/command, value: WORDS}\n"),
    ("vllm serve --config", "max-model-len: 8192\nmax-num-batched-tokens: 512\n"),
    (
        "pod template",
        "{apiVersion: serving.kserve.io/v1alpha1, kind: ServingRuntime, metadata: {name: c}, spec: {containers: [{name: c, image: IMAGE, command: WORDS}]}}\n",
    ),
    ("Helm values", "{server: {image: IMAGE, args: WORDS}}\n"),
    ("ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  run.sh: |\n    exec LINE\n"),
];

fn manifest(text: &str, engine: &Measured) -> String {
    let words = engine.start.split(' ').collect::<Vec<_>>().join(", ");
    let ray = if engine.settings == SGLANG { "SGLang" } else { "vLLM" };
    let filled = text.replace("IMAGE", engine.image).replace("WORDS", &format!("[{words}]"));
    filled.replace("LINE", engine.start).replace("RAY", ray)
}

fn exported(text: &str, engine: &Measured) -> Result<String, String> {
    let value = |text: &str| match text {
        "true" => Value::Bool(true),
        number if number.contains('.') => Value::Real(number.parse().unwrap()),
        number => Value::Int(number.parse().unwrap()),
    };
    let settings = engine.settings.map(|(name, text)| Setting { name: name.to_owned(), value: value(text) });
    let flags = Flags::of(engine.kind, engine.settings.iter().map(|(name, _)| *name));
    let wanted = IntendedFlags { settings: settings.to_vec(), ..IntendedFlags::default() };
    let done = export("m.yaml", text, &wanted, &flags, &|_, _| Vec::new());
    done.map(|done| done.text).map_err(|problems| problems.render())
}

/// What is said where a manifest runs the one engine, and the outcome is that of the other.
fn both(runs: &Measured, measured: &Measured) -> String {
    let [runs, measured] = [runs, measured].map(|engine| Engine::of(engine.kind).name());
    format!("runs {runs}, and these limits were measured on {measured}")
}

/// Whether a manifest gives a flag its value, as a word, a text or a key.
fn says(text: &str, name: &str, value: &str) -> bool {
    let camel = name.split('-').enumerate().map(|(i, word)| match word.split_at(1) {
        (first, rest) if i > 0 => first.to_uppercase() + rest,
        _ => word.to_owned(),
    });
    let plain = text.replace(['"', '\'', ','], "").replace(['=', ':'], " ");
    let words: Vec<&str> =
        plain.split(|c: char| c.is_whitespace() || "[]{}".contains(c)).filter(|w| !w.is_empty()).collect();
    let names = [format!("--{name}"), name.to_owned(), name.replace('-', "_"), camel.collect()];
    let named = |word: &&str| names.iter().any(|name| name == word);
    let at = words.iter().position(named);
    at.is_some_and(|at| (value == "true" && words[at].starts_with("--")) || words.get(at + 1) == Some(&value))
}

#[test]
fn the_outcome_of_each_engine_goes_into_each_kind_of_manifest_that_runs_it() {
    let shapes = SHAPES.iter().map(|shape| shape.name).filter(|name| !MANIFESTS.iter().any(|(row, _)| row == name));
    assert_eq!(shapes.collect::<Vec<_>>(), [""; 0], "kinds without a row");
    let mut table = String::from("| kind |");
    ENGINES.iter().for_each(|engine| write!(table, " {} |", engine.column).unwrap());
    table += &format!("\n|---|{}\n", "---|".repeat(ENGINES.len()));
    for (name, text) in MANIFESTS {
        write!(table, "| {name} |").unwrap();
        let fixed = !["WORDS", "LINE", "RAY"].iter().any(|command| text.contains(command));
        for engine in &ENGINES {
            let before = manifest(text, engine);
            // A graph has workers of Dynamo alone.
            let before = if name.starts_with("DynamoGraph") {
                before
                    .replace("vllm, serve, m", "python3, -m, dynamo.vllm")
                    .replace("sglang.launch_server", "dynamo.sglang")
            } else {
                before
            };
            match exported(&before, engine) {
                Ok(after) => {
                    let weaker = dialect(engine.kind).weaker();
                    for (setting, value) in engine.settings {
                        let flag =
                            weaker.iter().find(|(_, strong)| *strong == setting).map_or(setting, |(weak, _)| weak);
                        assert!(says(&after, flag, value), "{name}, {}: {flag} in\n{after}", engine.column);
                    }
                    table += " yes |";
                    for other in ENGINES.iter().filter(|other| other.settings != engine.settings) {
                        let refused = exported(&before, other).unwrap_err();
                        assert!(refused.contains(&both(engine, other)), "{name}, {}: {refused}", other.column);
                    }
                }
                Err(refused) => {
                    // A kind without a command has an engine of its own; Ray has two.
                    let is_rays = text.contains("RAY") && engine.settings == TRTLLM;
                    assert!(fixed || is_rays, "{name}, {}: {refused}\n{before}", engine.column);
                    assert!(refused.contains(&both(&ENGINES[0], engine)), "{name}: {refused}");
                    table += if fixed { " runs vLLM alone |" } else { " runs vLLM or SGLang |" };
                }
            }
        }
        table.push('\n');
    }
    let path = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/export.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once("<!-- the table of src/export/matrix.rs -->\n\n").unwrap();
    let tail = rest.find("\n\n").map_or("", |end| &rest[end..]);
    let new = format!("{head}<!-- the table of src/export/matrix.rs -->\n\n{}{tail}", table.trim_end());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &new).unwrap();
    }
    assert!(new == std::fs::read_to_string(&path).unwrap(), "UPDATE=1 cargo test writes the table anew");
}
