//! Every kind of manifest: what is written into the fixtures is what a careful colleague would have written.

use std::path::PathBuf;
use std::slice::from_ref;

use super::flags::{Flags, Setting};
use super::forms::{Target, annotate_command, diff, json_patch, kustomize};
use super::locate::Located;
use super::source::{Document, Source};
use super::write::{Exported, IntendedFlags, export};
use crate::report::Outcome;
use crate::settings::EngineKind;
use crate::space::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/manifests")
}

fn winner() -> Vec<Setting> {
    let setting = |name: &str, value| Setting { name: name.to_owned(), value };
    vec![
        setting("gpu-memory-utilization", Value::Real(0.93)),
        setting("max-num-batched-tokens", Value::Int(4096)),
        setting("max-num-seqs", Value::Int(96)),
    ]
}

fn wanted(containers: &[&str]) -> IntendedFlags {
    let annotations = [("autotune/version", "0.1.0"), ("autotune/certified-rate", "15.8 req/s, 97 % sure")];
    IntendedFlags {
        settings: winner(),
        annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec(),
        containers: containers.iter().map(|c| (*c).to_owned()).collect(),
        path: None,
    }
}

fn flags() -> Flags {
    let settings = winner();
    Flags::of(EngineKind::Vllm, settings.iter().map(|s| s.name.as_str()))
}

/// The same with the limits of an engine.
fn limits_of(kind: EngineKind, settings: Vec<Setting>) -> (IntendedFlags, Flags) {
    let flags = Flags::of(kind, settings.iter().map(|s| s.name.as_str()));
    (IntendedFlags { settings, ..IntendedFlags::default() }, flags)
}

fn tensorrt_llm() -> (IntendedFlags, Flags) {
    let setting = |name: &str, value| Setting { name: name.to_owned(), value };
    let settings = vec![
        setting("trtllm.kv_cache_config.free_gpu_memory_fraction", Value::Real(0.8)),
        setting("trtllm.max_batch_size", Value::Int(96)),
        setting("trtllm.max_num_tokens", Value::Int(4096)),
    ];
    limits_of(EngineKind::DynamoTrtllm, settings)
}

fn exported(text: &str, wanted: &IntendedFlags) -> Result<Exported, String> {
    exported_of(text, wanted, &flags())
}

fn exported_of(text: &str, wanted: &IntendedFlags, flags: &Flags) -> Result<Exported, String> {
    export("m.yaml", text, wanted, flags, &|_, _| Vec::new()).map_err(|problems| problems.render())
}

/// Fixtures with several engines, and which of them are set.
const SEVERAL: [(&str, &[&str]); 5] = [
    ("dgd-v1alpha1-disagg", &["VllmDecodeWorker"]),
    ("dgd-v1beta1-disagg", &["prefill", "decode"]),
    ("llminferenceservice-args", &["main", "prefill"]),
    ("stormservice", &["decode"]),
    ("values-llm-d", &["decode"]),
];

/// Every manifest that is edited: its name, its file, its text, and what is made of it.
fn fixtures() -> Vec<(String, PathBuf, String, Exported)> {
    let several = |name: &str| SEVERAL.iter().find(|(n, _)| *n == name).map_or(&[][..], |(_, c)| *c);
    let mut all = fixtures_in(&folder(), &|name| wanted(several(name)));
    all.extend(fixtures_in(&folder().join("environment"), &|_| with_environment()));
    all
}

fn fixtures_in(
    folder: &std::path::Path,
    wanted: &dyn Fn(&str) -> IntendedFlags,
) -> Vec<(String, PathBuf, String, Exported)> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_manifest = |path: &PathBuf| {
        path.is_file() && path.extension().is_some_and(|e| e != "diff") && !path.ends_with("validate.sh")
    };
    let exported = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let vllm = || (wanted(&name), flags());
        let (wanted, flags) = if name.starts_with("dgd-trtllm") { tensorrt_llm() } else { vllm() };
        let done = exported_of(&text, &wanted, &flags).unwrap_or_else(|e| panic!("{name}: {e}"));
        // The second time there is nothing left to do.
        let again = exported_of(&done.text, &wanted, &flags).unwrap();
        assert!(again.text == done.text && again.changed.is_empty(), "{name}: {:?}", again.changed);
        (name, path, text, done)
    };
    files.filter(is_manifest).map(exported).collect()
}

/// An outcome that changes, adds and takes out variables, and leaves flags out.
fn with_environment() -> IntendedFlags {
    let setting = |(name, word): (&str, &str)| Setting { name: name.to_owned(), value: Value::Text(word.to_owned()) };
    let settings = [
        ("env.OMP_NUM_THREADS", "8"),
        ("env.VLLM_ATTENTION_BACKEND", "FLASHINFER"),
        ("env.VLLM_LOGGING_LEVEL", "off"),
        ("env.VLLM_USE_FLASHINFER_SAMPLER", "off"),
        ("kv-cache-dtype", "off"),
        ("max-num-seqs", "96"),
        ("speculative-config", "off"),
    ];
    IntendedFlags { settings: settings.map(setting).to_vec(), ..IntendedFlags::default() }
}

#[test]
fn every_kind_of_manifest_is_changed_as_a_careful_colleague_would() {
    let all = fixtures();
    for (name, path, before, done) in &all {
        let file = path.file_name().unwrap().to_str().unwrap();
        let notes: String = done.notes.iter().map(|n| format!("# {}\n", n.message)).collect();
        let shown = notes + &diff(file, before, &done.text);
        let golden = path.with_extension("diff");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&golden, &shown).unwrap();
        }
        assert_eq!(shown, std::fs::read_to_string(&golden).unwrap(), "{name}: UPDATE=1 cargo test writes it anew");
    }
    assert_eq!(all.len(), 69);
}

/// What is refused, by fixture, and the words that say why and what to do.
const REFUSED: [(&str, &[&str]); 20] = [
    ("argo-value-files", &["values are elsewhere", "export into that values file"]),
    ("conditional-append", &["m.yaml:15:", "ARGS has this value only under a condition, or later"]),
    ("compose-shell", &["the shell before it takes the first one alone", "write it as a list"]),
    ("rayservice-code", &["RayService chat", "max_num_seqs: 96", "engine_kwargs"]),
    ("service", &["this object starts nothing"]),
    ("two-texts", &["data[\"a.sh\"] and data[\"b.sh\"]", "--path"]),
    ("unit-pipe", &["no shell reads this line", "bash -c"]),
    ("dgd-trtllm-no-file", &["TRTLLMWorker runs TensorRT-LLM", "measured on vLLM"]),
    ("sglang", &["chat runs SGLang", "measured on vLLM"]),
    ("args-alias", &["args is shared through an anchor", "write out"]),
    ("args-merge-key", &["merge key", "write out"]),
    ("duplicate-key", &["stands twice"]),
    ("invalid", &["not valid YAML", "m.yaml:"]),
    ("no-engine", &["no engine was found in this manifest. ", "--max-num-seqs 96"]),
    ("placeholder-value", &["placeholder", "${max_seqs}"]),
    ("template-in-args", &["template", "render"]),
    ("two-containers", &["--container"]),
    ("two-engines", &["--container"]),
    ("variable-in-args", &["$(LIMITS)", "write these flags into `args`"]),
    ("unknown-kind", &["ModelServer chat: a kind that is not known", "--path"]),
];

#[test]
fn what_cannot_be_changed_safely_is_refused_with_its_place_and_a_remedy() {
    for (name, words) in REFUSED {
        let text = std::fs::read_to_string(folder().join("refused").join(format!("{name}.yaml"))).unwrap();
        let says = exported(&text, &wanted(&[])).map(|done| diff("m", &text, &done.text)).unwrap_err();
        if std::env::var_os("SHOW").is_some() {
            println!("== {name}\n{says}\n");
        }
        for word in words {
            assert!(says.contains(word), "{name}: {word} is missing in\n{says}");
        }
    }
}

#[test]
fn where_no_engine_is_found_the_hint_says_where_this_kind_takes_the_flags() {
    const FLAGS: &str = "--gpu-memory-utilization 0.93 --max-num-batched-tokens 4096 --max-num-seqs 96";
    const KEYS: &str = "gpu_memory_utilization: 0.93, max_num_batched_tokens: 4096, max_num_seqs: 96";
    let object = |api: &str, spec: &str| {
        let (version, kind) = api.split_once(' ').unwrap();
        format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n")
    };
    let other = "{template: {spec: {containers: [{name: c, image: nginx}]}}}";
    let cases = [
        (
            object("apps/v1 Deployment", other),
            "start the engine by its name (vllm serve …), or paste FLAGS into the `args` of the container",
        ),
        (
            object("example.com/v1 Fleet", other),
            "start the engine by its name (vllm serve …), or paste FLAGS into the `args` of the container",
        ),
        (
            object("serving.knative.dev/v1 Service", other),
            "start the engine by its name (vllm serve …), or paste FLAGS into the `args` of the container",
        ),
        (
            object(
                "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet",
                "{leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c}]}}}}",
            ),
            "or paste FLAGS into the `args` of the leader, and of workers that run the engine",
        ),
        (
            object(
                "nvidia.com/v1beta1 DynamoGraphDeployment",
                "{components: [{name: w, podTemplate: {spec: {containers: [{name: main}]}}}]}",
            ),
            "paste FLAGS into the `args` of the worker's container `main`",
        ),
        (
            object(
                "nvidia.com/v1alpha1 DynamoGraphDeployment",
                "{services: {w: {extraPodSpec: {mainContainer: {image: x}}}}}",
            ),
            "paste FLAGS into extraPodSpec.mainContainer.args of the worker",
        ),
        (
            object("nvidia.com/v1beta1 DynamoGraphDeploymentRequest", "{model: m}"),
            "paste FLAGS into the worker's arguments in spec.overrides.dgd",
        ),
        (object("kubeai.org/v1 Model", "{engine: Infinity}"), "only `engine: VLLM` takes these flags: FLAGS"),
        (
            object("serving.kserve.io/v1beta1 InferenceService", "{predictor: {model: {runtime: r}}}"),
            "export into its ServingRuntime, or paste FLAGS into spec.predictor.model.args",
        ),
        (
            object("serving.kserve.io/v1alpha1 LLMInferenceServiceConfig", "{}"),
            "with the variable VLLM_ADDITIONAL_ARGS: FLAGS",
        ),
        (
            object("ray.io/v1 RayService", "{serveConfigV2: \"a: b\"}"),
            "paste KEYS into the `engine_kwargs` of the model in spec.serveConfigV2",
        ),
        (object("ray.io/v1 RayJob", "{entrypoint: python x.py}"), "paste KEYS where the Python code builds its engine"),
        (
            object("helm.toolkit.fluxcd.io/v2 HelmRelease", "{chart: {}}"),
            "export into that values file, or paste FLAGS into",
        ),
        (
            object("argoproj.io/v1alpha1 Application", "{source: {}}"),
            "export into that values file, or paste FLAGS into",
        ),
        (
            object("kustomize.config.k8s.io/v1beta1 Kustomization", "{}"),
            "export into the file of the workload or of the patch",
        ),
        (
            object("v1 ConfigMap", "{}"),
            "no text in it starts an engine: export into the file of the workload, or paste FLAGS into its script",
        ),
        (object("v1 Service", "{}"), "this object starts nothing: export into the file of the workload"),
        (
            object("example.com/v1 Whatever", "{}"),
            "paste FLAGS where this kind takes the engine's arguments, or point there with --path",
        ),
        (
            "services: {web: {image: nginx}}\n".to_owned(),
            "start the engine by its name (vllm serve …), or paste FLAGS into the `command` of the service",
        ),
        (
            "decode: {containers: [{name: c, image: x}]}\n".to_owned(),
            "paste FLAGS into the `args` of the container in `decode`",
        ),
        ("server: {args: [--x]}\n".to_owned(), "paste FLAGS into the list that holds the engine's arguments"),
        (
            "[Service]\nExecStart=/bin/true\n".to_owned(),
            "paste FLAGS behind the command of ExecStart, or of Exec in a quadlet",
        ),
        ("#!/bin/sh\ntrue\n".to_owned(), "paste FLAGS behind the command that starts it"),
        (
            "- {op: add, path: /spec/replicas, value: 2}\n".to_owned(),
            "paste FLAGS into the `args` of the container, as a whole list",
        ),
    ];
    for (text, hint) in &cases {
        let hint = hint.replace("FLAGS", FLAGS).replace("KEYS", KEYS);
        assert!(refusal(text).contains(&hint), "{hint} is missing in\n{}", refusal(text));
    }
}

#[test]
fn each_refusal_says_what_to_do() {
    let merged = "    <<: {args: [--max-num-seqs, \"4\"]}\n";
    let quadlet = "[Container]\nImage=docker.io/vllm/vllm-openai:v1\n";
    let graph = "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nmetadata: {name: g}\nspec: {components: [{name: w, podTemplate: {spec: {containers: [{name: main, command: [python3, -m, dynamo.sglang]}]}}}]}\n";
    let words = "- {op: add, path: /spec/template/spec/containers/0/args/-, value: --max-num-seqs=4}\n";
    let unfolding = (1..20).fold("a0: &a0 [x]\n".to_owned(), |text, i| {
        text + &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 9].join(", "))
    });
    for (text, says, hint) in [
        (
            pod("    command: [/run.sh]\n    env: [{name: VLLM_ARGS, value: --max-num-seqs 4}]\n"),
            "not known whether /run.sh reads VLLM_ARGS",
            "add the ConfigMap with this script to the manifest, or start the engine by its name",
        ),
        (
            scripted("/start.sh"),
            "not clear how this script",
            "start the engine by its name in the script (vllm serve …)",
        ),
        (
            scripted("vllm serve m 'x"),
            "a quote without an end",
            "write the engine's arguments into `args` and use \"$@\"",
        ),
        (scripted("vllm serve m\nvllm serve n"), "starts two engines", "start each in a container of its own"),
        (scripted("vllm serve m {{ .x }}"), "a template adds to the arguments", "render the template first"),
        (pod(merged), "through the merge key", "write out the arguments of this container"),
        (
            quadlet.to_owned(),
            "cannot be changed",
            "paste --gpu-memory-utilization 0.93 --max-num-batched-tokens 4096 --max-num-seqs 96 behind the command",
        ),
        (graph.to_owned(), "w runs SGLang", "tune it by hand, or deploy vLLM"),
        (words.to_owned(), "no engine was found", "into the `args` of the container, as a whole list"),
        (unfolding, "unfold without end", "write some of them out"),
        ("a: [\n".to_owned(), "not valid YAML", "write valid YAML; templates around the arguments"),
        (
            pod("    args: [--max-num-seqs, $(SEQS)]\n"),
            "placeholder",
            "set the flag where the placeholder gets its value",
        ),
        (pod("    args: [--max-num, \"4\"]\n"), "the engine refuses it", "write the flag in full"),
        (
            pod("    args: [--model, m, \"--max-num-seqs 4\"]\n"),
            "one word to the engine",
            "write the flag and its value as two words",
        ),
        (pod("    args: [--max-num-seqs]\n"), "has no value", "give it one, or delete it"),
        (
            "servingEngineSpec: {modelSpec: [{name: m, vllmConfig: {maxNumSeqs: \"{{ .seqs }}\"}}]}\n".to_owned(),
            "the value of servingEngineSpec.modelSpec[0].vllmConfig.maxNumSeqs is the placeholder",
            "write a number there",
        ),
        (
            scripted("vllm serve m --max-num-seqs 5 $VLLM_ARGS")
                + "    env: [{name: VLLM_ARGS, value: --max-num-seqs 4}]\n",
            "--max-num-seqs stands in spec.containers[0].args[0] and in spec.containers[0].env[0].value",
            "delete one of them",
        ),
    ] {
        let refused = refusal(&text);
        assert!(refused.contains(says) && refused.contains(hint), "{says}: {hint}\n{refused}");
    }
    for (path, says, hint) in [
        ("spec.nowhere.args", "is not in this manifest", "dots between keys, [0] for an item"),
        ("spec.containers[1].args", "starts no engine that is known", "point to the arguments of a container"),
    ] {
        let text = pod("    args: [m]\n  - name: side\n    image: nginx\n    args: [x]\n");
        let refused = pointed(&text, path).unwrap_err();
        assert!(refused.contains(says) && refused.contains(hint), "{says}: {hint}\n{refused}");
    }
    let several = format!("{}---\n{}", pod("    args: [m]\n"), pod("    args: [n]\n"));
    assert!(pointed(&several, "spec.containers[0].args").unwrap_err().contains("keep one of them in the file"));
    // Several roles, of which none is named.
    for name in ["values-llm-d", "llminferenceservice-args"] {
        let text = std::fs::read_to_string(folder().join(name).with_extension("yaml")).unwrap();
        assert!(refusal(&text).contains("say which one was measured with --container"), "{name}");
    }
}

#[test]
fn every_kind_that_kubernetes_runs_is_known() {
    let template = "{template: {spec: {containers: [{name: e, image: 'vllm/vllm-openai:v1', args: [m]}]}}}";
    for kind in ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"] {
        let text = format!("apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: x}}\nspec: {template}\n");
        let (done, source) = (exported(&text, &wanted(&[])).unwrap(), Source::new(text).unwrap());
        // Containers are merged by name, and need no operations of a JSON patch.
        let component = kustomize(&source, &done).unwrap();
        assert!(component.contains("name: e\n") && !component.contains("op:"), "{kind}: {component}");
    }
    let drop_in = "[Service]\nExecStart=\nExecStart=/bin/vllm serve m --max-num-seqs 4\n";
    assert!(
        text_of(drop_in).contains("ExecStart=\nExecStart=/bin/vllm serve m --max-num-seqs 96"),
        "{}",
        text_of(drop_in)
    );
}

#[test]
fn what_has_no_patch_is_refused_with_the_reason() {
    use super::forms::NoSuchForm;
    let of = |text: &str, containers: &[&str]| {
        let (done, source) = (exported(text, &wanted(containers)).unwrap(), Source::new(text).unwrap());
        let patch = json_patch(&source, &done, Target::Cluster).map(|_| ());
        assert_eq!(kustomize(&source, &done).map(|_| ()), patch, "{text}");
        patch.unwrap_err()
    };
    let list = std::fs::read_to_string(folder().join("list.yaml")).unwrap();
    assert_eq!(of(&list, &[]), NoSuchForm::Nameless);
    assert_eq!(of("services: {chat: {image: 'vllm/vllm-openai:v1', command: [m]}}\n", &[]), NoSuchForm::File);
    let two = [pod("    args: [m]\n"), pod("    args: [n]\n").replace("name: p\n", "name: q\n")].join("---\n");
    assert_eq!(of(&two, &["p/engine", "q/engine"]), NoSuchForm::Objects(2));
}

#[test]
fn the_user_can_point_to_arguments_that_are_not_found() {
    let text = std::fs::read_to_string(folder().join("refused/unknown-kind.yaml")).unwrap();
    let pointed = IntendedFlags { path: Some("spec.args".parse().unwrap()), ..wanted(&[]) };
    let done = exported(&text, &pointed).unwrap();
    assert!(done.text.contains("    - --max-num-seqs\n    - \"96\"\n"), "{}", done.text);
    assert!(
        exported(&text, &IntendedFlags { path: Some("spec.arguments[3]".parse().unwrap()), ..wanted(&[]) }).is_err()
    );
}

fn pointed(text: &str, path: &str) -> Result<String, String> {
    exported(text, &IntendedFlags { path: Some(path.parse().unwrap()), ..wanted(&[]) }).map(|done| done.text)
}

#[test]
fn a_path_says_where_and_the_command_there_says_what() {
    // The words behind a script are no arguments of the engine: the script has them.
    let script = pod("    command: [sh, -c]\n    args: [\"vllm serve m\"]\n");
    let done = pointed(&script, "spec.containers[0].args").unwrap();
    assert!(done.contains("[\"vllm serve m --gpu-memory-utilization 0.93"), "{done}");
    assert!(pointed(&script, "spec.containers[0].command").unwrap_err().contains("that is spec.containers[0].args[0]"));
    let map =
        |data: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  run.sh: |\n{data}");
    for comment in ["    # vllm serve m\n    sleep 1\n", "    applications:\n    - command: vllm serve m\n"] {
        assert!(pointed(&map(comment), "data[\"run.sh\"]").unwrap_err().contains("starts no engine"), "{comment}");
    }
    let done = pointed(&map("    set -e\n    vllm serve m --max-num-seqs 4\n"), "data[\"run.sh\"]").unwrap();
    assert!(done.contains("vllm serve m --max-num-seqs 96 --gpu"), "{done}");
    for (command, engine) in [
        ("[python3, -m, sglang.launch_server]", "SGLang"),
        ("[trtllm-serve, m]", "TensorRT-LLM"),
        ("[sleep]", "no engine"),
    ] {
        let text = pod(&format!("    command: {command}\n    args: [--port, \"1\"]\n"));
        assert!(pointed(&text, "spec.containers[0].args").unwrap_err().contains(engine), "{command}");
    }
    let variable = pod("    args: [m]\n    env: [{name: VLLM_ARGS, value: --max-num-seqs 4}]\n");
    assert!(
        pointed(&variable, "spec.containers[0].env[0].value").unwrap_err().contains("that is spec.containers[0].args")
    );
}

#[test]
fn a_variable_counts_where_something_expands_it() {
    let env = "    env: [{name: VLLM_ADDITIONAL_ARGS, value: --max-num-seqs 4}]\n";
    let done = text_of(&pod(&format!("    args: [m]\n{env}")));
    assert!(done.contains("--max-num-seqs 4}") && done.contains("args: [m, --gpu"), "{done}");
    let script = pod(&format!("    command: [/scripts/run.sh]\n{env}"));
    assert!(refusal(&script).contains("not known whether /scripts/run.sh reads VLLM_ADDITIONAL_ARGS"));
    let map = |script: &str| {
        format!(
            "{}---\nkind: ConfigMap\ndata:\n  run.sh: {script}\n",
            pod(&format!("    command: [/scripts/run.sh]\n{env}"))
        )
    };
    assert!(text_of(&map("vllm serve m $VLLM_ADDITIONAL_ARGS")).contains("value: --max-num-seqs 96 --gpu"));
    assert!(refusal(&map("vllm serve m")).contains("not known whether"));
    let limits = scripted("vllm serve m $LIMITS") + "    env: [{name: LIMITS, value: --max-num-seqs 4}]\n";
    assert!(text_of(&limits).contains("value: --max-num-seqs 96}"), "{}", text_of(&limits));
    // A preset's variable, where a command replaces the preset.
    let service = std::fs::read_to_string(folder().join("llminferenceservice.yaml")).unwrap();
    let own = service.replace("      - name: main\n", "      - name: main\n        command: [vllm, serve, m]\n");
    let done = text_of(&own);
    assert!(done.contains("--max-num-seqs 128") && done.contains("--max-num-seqs, \"96\"]"), "{done}");
}

#[test]
fn a_sidecar_and_a_client_are_no_engines() {
    let graph = std::fs::read_to_string(folder().join("dgd-trtllm-flags.yaml")).unwrap();
    let side = "        - name: metrics\n          image: my/exporter:1\n          args: [--port, \"9\"]\n        - name: main\n";
    let text = graph.replace("        - name: main\n", side);
    assert!(refusal(&text).contains("TRTLLMWorker runs TensorRT-LLM"));
    for client in ["[vllm, bench, throughput, --max-num-seqs, \"4\"]", "[sh, -c, vllm bench serve --model m]"] {
        let text = pod(&format!(
            "    args: [--model, m]\n  - name: client\n    image: vllm/vllm-openai:v1\n    command: {client}\n"
        ));
        assert_eq!(exported(&text, &wanted(&[])).unwrap().engines, ["engine"], "{client}");
    }
    let service = std::fs::read_to_string(folder().join("kserve-inferenceservice.yaml")).unwrap();
    assert!(refusal(&service.replace("--backend=vllm", "--backend=huggingface")).contains("Hugging Face backend"));
}

#[test]
fn another_server_with_a_model_and_another_program_with_a_port_are_left_alone() {
    let server =
        pod("    args: [--model, /m.gguf, --port, \"80\"]\n").replace("vllm/vllm-openai", "ggml-org/llama.cpp");
    assert!(refusal(&server).contains("say so with --container engine"), "{}", refusal(&server));
    assert_eq!(exported(&server, &wanted(&["engine"])).unwrap().engines, ["engine"]);
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  app.yaml: |\n    model: m\n    port: 1\n";
    assert!(refusal(map).contains("no engine was found"), "{}", refusal(map));
}

#[test]
fn a_leader_and_workers_that_run_the_engine_are_set_together() {
    let text = std::fs::read_to_string(folder().join("leaderworkerset-headless.yaml")).unwrap();
    let done = exported(&text, &wanted(&[])).unwrap();
    assert_eq!(done.engines, ["leader/vllm", "worker/vllm"]);
    assert_eq!(done.text.matches("--max-num-seqs").count(), 2);
    assert_eq!(exported(&text, &wanted(&["worker/vllm"])).unwrap().engines, ["worker/vllm"]);
}

#[test]
fn flags_in_a_variable_are_set_where_a_script_keeps_them() {
    const NEW: &str = "--gpu-memory-utilization 0.93 --max-num-batched-tokens 4096";
    for (script, expected) in [
        // Where the variable is the command's last word, new flags stand in it as well.
        ("A=\"--max-num-seqs 4\"\nvllm serve m $A", "A=\"--max-num-seqs 96 NEW\"\nvllm serve m $A"),
        ("A='--max-num-seqs=4'; vllm serve m ${A} --x y", "A='--max-num-seqs=96'; vllm serve m ${A} --x y NEW"),
        ("A=--max-num-seqs=4; exec vllm serve m $A --x y", "A=--max-num-seqs=96; exec vllm serve m $A --x y NEW"),
        (
            "export A=\"--max-num-seqs 4\" B=1 && vllm serve m $A > l",
            "export A=\"--max-num-seqs 96 NEW\" B=1 && vllm serve m $A > l",
        ),
        (
            "f() { local A=\"--max-num-seqs 4\"; vllm serve m $A; }\nf",
            "f() { local A=\"--max-num-seqs 96 NEW\"; vllm serve m $A; }\nf",
        ),
        (
            "A=\"--x $(f --max 1) --max-num-seqs 4\"\nvllm serve m $A",
            "A=\"--x $(f --max 1) --max-num-seqs 96 NEW\"\nvllm serve m $A",
        ),
        ("A=(--max-num-seqs 4)\nvllm serve m \"${A[@]}\"", "A=(--max-num-seqs 96 NEW)\nvllm serve m \"${A[@]}\""),
        ("A=(--max-num-seqs '4')\nvllm serve m ${A[@]} --x y", "A=(--max-num-seqs 96)\nvllm serve m ${A[@]} --x y NEW"),
        // The engine takes the last of two.
        (
            "A=\"--max-num-seqs 4 --x\"\nvllm serve m $A --max-num-seqs 5",
            "A=\"--x\"\nvllm serve m $A --max-num-seqs 96 NEW",
        ),
        ("A=\"--max-num-seqs 4\"\nvllm serve m --max-num-seqs 5 $A", "A=\"--max-num-seqs 96 NEW\"\nvllm serve m $A"),
        // What is added to it, under a condition too, has none of them.
        (
            "A=(--max-num-seqs 4)\nif x; then A+=(--y); fi\nexec vllm serve m \"${A[@]}\"",
            "A=(--max-num-seqs 96)\nif x; then A+=(--y); fi\nexec vllm serve m \"${A[@]}\" NEW",
        ),
        (
            "A=(--x)\nA+=(--max-num-seqs 4)\nx && A+=(--y \"$Z\")\nvllm serve m \"${A[@]}\"",
            "A=(--x)\nA+=(--max-num-seqs 96)\nx && A+=(--y \"$Z\")\nvllm serve m \"${A[@]}\" NEW",
        ),
        (
            "A=\"--max-num-seqs 4\"\nA+=\" --x\"\nvllm serve m $A",
            "A=\"--max-num-seqs 96\"\nA+=\" --x\"\nvllm serve m $A NEW",
        ),
        // Values alone.
        ("S=4\nvllm serve m --max-num-seqs \"$S\"", "S=96\nvllm serve m --max-num-seqs \"$S\" NEW"),
        (
            "S=\"4\" T=5\necho $S\nvllm serve m --max-num-seqs $S --x $T",
            "S=\"96\" T=5\necho $S\nvllm serve m --max-num-seqs $S --x $T NEW",
        ),
        // A variable that the engine does not get is another program's.
        (
            "A=\"--max-num-seqs 4\"\nbench $A &\nvllm serve $M",
            "A=\"--max-num-seqs 4\"\nbench $A &\nvllm serve $M --max-num-seqs 96",
        ),
        (
            "A=\"--max-num-seqs 4\"\nif [ -n \"$A\" ]; then echo \"$A\"; fi\nvllm serve m $A",
            "A=\"--max-num-seqs 96 NEW\"\nif",
        ),
    ] {
        let all = format!("{NEW} --max-num-seqs 96");
        let expected = expected.replace("$M --max-num-seqs 96", &format!("$M {all}")).replace("NEW", NEW);
        let expected: Vec<String> = expected.lines().map(|line| format!("      {line}")).collect();
        let done = text_of(&scripted(script));
        assert!(done.contains(&expected.join("\n")), "{script}\n{done}");
    }
    // A value that something else computes with is a placeholder still.
    for other in ["let S=S+1", "((S++))", "T=$((4*S))", "T=$((4-S))", "export T=${S}0", "client $S"] {
        let script = scripted(&format!("S=4\n{other}\nvllm serve m --max-num-seqs $S"));
        assert!(refusal(&script).contains("is the placeholder `$S`"), "{other}");
    }
    let inner = "bash -c 'A=\"--max-num-seqs 4\"; exec vllm serve m $A'";
    assert!(text_of(&scripted(inner)).contains("'A=\"--max-num-seqs 96 --gpu"), "{}", text_of(&scripted(inner)));
}

#[test]
fn flags_in_a_variable_are_refused_where_nothing_shows_what_an_edit_would_do() {
    for (script, line, why) in [
        ("A=\"--max-num-seqs 4\"\nA=\"$A --x\"\nvllm serve m $A", 2, "A gets its value in several places"),
        ("A=\"--max-num-seqs 4\"\nA+=\"0 --x\"\nvllm serve m $A", 2, "A gets its value in several places"),
        ("A=\"--max-num-seqs 4\"\nA+=\" $A\"\nvllm serve m $A", 2, "A gets its value in several places"),
        ("A=(--max-num-seqs 4)\nA+=x\nvllm serve m \"${A[@]}\"", 2, "A gets its value in several places"),
        (
            "A=(--max-num-seqs 4)\nA+=(--max-num-seqs 5)\nvllm serve m \"${A[@]}\"",
            2,
            "A gets its value in several places",
        ),
        (
            "A=(--x)\nif x; then\nA+=(--max-num-seqs 4)\nfi\nvllm serve m \"${A[@]}\"",
            3,
            "A has this value only under a condition",
        ),
        (
            "S=4\nS+=0\nvllm serve m --max-num-seqs $S --x ${A:---max-num-seqs 4}",
            3,
            "they stand inside of an expansion",
        ),
        ("A+=\"--max-num-seqs 4\"\nvllm serve m $A", 1, "A is not given one value for all that follows"),
        ("A=\"--max-num-seqs 4\" true\nvllm serve m $A", 1, "A is not given one value for all that follows"),
        ("if x; then A=\"--max-num-seqs 4\"; fi\nvllm serve m $A", 1, "A has this value only under a condition"),
        ("x && A=\"--max-num-seqs 4\"\nvllm serve m $A", 1, "A has this value only under a condition"),
        (
            "f() {\n  vllm serve m $A\n}\nA=\"--max-num-seqs 4\"\nf",
            4,
            "A has this value only under a condition, or later",
        ),
        ("A=\"--max-num-seqs 4\"\nbench $A\nvllm serve m $A", 2, "A is read or changed here as well"),
        ("A=\"--max-num-seqs 4\"\nread A\nvllm serve m $A", 2, "A is read or changed here as well"),
        ("A=\"--max-num-seqs 4\"\nprintf -v A x\nvllm serve m $A", 2, "A is read or changed here as well"),
        ("A=(--max-num-seqs 4)\nA[1]=5\nvllm serve m \"${A[@]}\"", 2, "A is read or changed here as well"),
        ("A=\"--max-num-seqs 4\" B=$A\nvllm serve m $A", 1, "A is read or changed here as well"),
        ("IFS=,\nA=\"--max-num-seqs 4\"\nvllm serve m $A", 1, "IFS says how words are split"),
        ("A=\"--max-num-seqs,4\"\nvllm serve m $A", 1, "A has them inside of an expansion or in quotes"),
        ("A=\"--max-num-seqs 4\"\nvllm serve m $A --x=$A", 2, "A is read or changed here as well"),
        ("A=\"--max-num-seqs 4\"\nvllm serve m \"$A\"", 1, "A is one word to the engine"),
        ("A=(--max-num-seqs 4)\nvllm serve m $A", 1, "A is one word to the engine"),
        ("A=(--max-num-seqs 4 --x 'a b')\nvllm serve m ${A[@]}", 1, "A is split once more"),
        ("A=\"${A:---max-num-seqs 4}\"\nvllm serve m $A", 1, "A has them inside of an expansion"),
        ("A=\"${B:---max-num-seqs 4}\"\nvllm serve m $A", 1, "A has them inside of an expansion"),
        ("A=$(echo --max-num-seqs 4)\nvllm serve m $A", 1, "A has them inside of an expansion"),
        ("A=\"--max-num-seqs 4\"\nB=\"$A --x\"\nvllm serve m $B", 1, "A is not expanded as a word of its own"),
        ("A=\"--max-num-seqs 4\"\nvllm serve m ${A:-x}", 1, "A is not expanded as a word of its own"),
        ("set -- --max-num-seqs 4\nvllm serve m \"$@\"", 1, "`set` puts them there"),
        ("f() { vllm serve m \"$@\"; }\nf --max-num-seqs 4", 2, "`f` puts them there"),
        (": ${A:=--max-num-seqs 4}\nvllm serve m $A", 1, "`:` puts them there"),
        ("vllm serve m ${A:---max-num-seqs 4}", 1, "they stand inside of an expansion"),
        ("export A=\"--max-num-seqs 4\"\nbash -c 'vllm serve m $A'", 1, "a script within this one reads them"),
    ] {
        let text = scripted(script);
        let says = refusal(&text);
        let line = text[..text.find(script.lines().next().unwrap()).unwrap()].lines().count() + line - 1;
        assert!(says.contains(why) && says.contains(&format!("m.yaml:{line}:")), "{line}: {why}\n{says}");
        assert!(says.contains("write them into the engine's command, or into a variable that is set once"), "{says}");
    }
}

#[test]
fn flags_that_a_unit_keeps_in_its_environment_are_set_there() {
    let unit =
        |environment: &str, words: &str| format!("[Service]\n{environment}\nExecStart=/bin/vllm serve m {words}\n");
    let done = text_of(&unit("Environment=\"A=--max-num-seqs 9 --x\"", "--y $A"));
    assert!(done.contains("\"A=--max-num-seqs 96 --x\"\n") && done.contains(" m --y $A --gpu-memory"), "{done}");
    let shell = "[Service]\nEnvironment='A=--max-num-seqs 9'\nExecStart=bash -c 'exec vllm serve m ${A} 2>&1'\n";
    assert!(text_of(shell).contains("'A=--max-num-seqs 96'\n"), "{}", text_of(shell));
    // A variable that nobody reads.
    let unread = text_of(&unit("Environment=\"A=--max-num-seqs 9\"", "--max-num-seqs 4 $B"));
    assert!(unread.contains("A=--max-num-seqs 9\"") && unread.contains("--max-num-seqs 96 $B --gpu"), "{unread}");
    for (environment, words) in [
        ("Environment=\"A=--max-num-seqs 9\"\nEnvironment=A=", "$A"),
        // One word to systemd.
        ("Environment=\"A=--max-num-seqs 9\"", "${A}"),
        ("Environment=\"A=--max-num-seqs 9\"", "$A --x=${A}"),
    ] {
        let says = refusal(&unit(environment, words));
        assert!(says.contains("A is not given once in [Service] and expanded once, as $A"), "{says}");
        assert!(says.contains("write them into the engine's command"), "{says}");
    }
    let quadlet = "[Container]\nImage=vllm/vllm-openai:v1\nExec=m $A\nEnvironment=\"A=--max-num-seqs 9\"\n";
    assert!(refusal(quadlet).contains("A is not given once in [Service]"), "{}", refusal(quadlet));
    let of_service = text_of(&quadlet.replace("Environment", "[Service]\nEnvironment"));
    assert!(of_service.contains("Exec=m $A --gpu") && of_service.contains("\"A=--max-num-seqs 96\""), "{of_service}");
    // systemd reads a space where a line is continued, a shell reads nothing.
    let joined = refusal(&unit("", "--max-num-seqs 4\\\n--x"));
    assert!(joined.contains("where a line is continued") && joined.contains("write a space before the backslash"));
}

#[test]
fn half_of_a_group_is_not_written() {
    let text = std::fs::read_to_string(folder().join("llminferenceservice-multinode.yaml")).unwrap();
    let done = exported(&text, &wanted(&[])).unwrap();
    assert_eq!(done.engines, ["main", "worker"]);
    assert_eq!(done.text.matches("--max-num-seqs 96").count(), 2);
    assert_eq!(exported(&text, &wanted(&["worker"])).unwrap().engines, ["worker"]);
    // One of the two cannot be edited.
    let text = std::fs::read_to_string(folder().join("leaderworkerset-headless.yaml")).unwrap();
    let half = text.replace("org/moe --headless", "org/moe {{ .Values.more }} --headless");
    assert!(half != text && refusal(&half).contains("a template adds to the arguments"), "{}", refusal(&half));
}

#[test]
fn a_path_into_a_text_leads_to_the_file_in_it() {
    let service = std::fs::read_to_string(folder().join("rayservice.yaml")).unwrap();
    let done = pointed(&service, "spec.serveConfigV2").unwrap();
    assert!(
        done.contains("                max_num_seqs: 96\n                max_num_batched_tokens: 4096\n"),
        "{done}"
    );
    let code = std::fs::read_to_string(folder().join("refused/rayservice-code.yaml")).unwrap();
    assert!(pointed(&code, "spec.serveConfigV2").is_err());
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a.yaml: |\n    model: m\n    max-num-seqs: 4\n  b.yaml: |\n    model: n\n";
    assert!(pointed(map, "data[\"a.yaml\"]").unwrap().contains("    max-num-seqs: 96\n"));
}

#[test]
fn a_switch_of_a_configuration_file_is_written_as_vllm_reads_it() {
    // vLLM passes over `false` in this file.
    let off = IntendedFlags {
        settings: vec![Setting { name: "enable-prefix-caching".into(), value: Value::Bool(false) }],
        ..IntendedFlags::default()
    };
    assert_eq!(
        exported("model: m\nmax-model-len: 1\n", &off).unwrap().text,
        "model: m\nmax-model-len: 1\nno-enable-prefix-caching: true\n"
    );
    let opposite = exported("model: m\nenable_prefix_caching: true\n", &off).map(|done| done.text).unwrap_err();
    assert!(opposite.contains("enable_prefix_caching says the opposite"), "{opposite}");
    let ray = "llm_configs:\n- model_loading_config: {model_id: a}\n  engine_kwargs: {enable_prefix_caching: true}\n";
    assert!(exported(ray, &off).unwrap().text.contains("{enable_prefix_caching: false}"));
}

#[test]
fn a_placeholder_is_named_with_the_line_that_gives_its_value() {
    let args = "    args: [--max-num-seqs, $(SEQS)]\n    env:\n    - name: SEQS\n      value: \"4\"\n";
    assert!(refusal(&pod(args)).contains("it gets its value in line 11"), "{}", refusal(&pod(args)));
    let script = scripted("SEQS=${SEQS:-4}\nvllm serve m --max-num-seqs \"$SEQS\"");
    assert!(refusal(&script).contains("it gets its value in line 12"), "{}", refusal(&script));
    let chart = refusal(&pod("    args: [--max-num-seqs, \"{{ .Values.seqs }}\"]\n"));
    assert!(chart.contains("set seqs in the chart's values"), "{chart}");
}

#[test]
fn a_template_counts_where_it_touches_the_arguments() {
    let args = |script: &str| exported(&scripted(script), &wanted(&[])).map(|done| done.text);
    let done = args("{{- if .Values.proxy }}\nexport P={{ .Values.proxy | quote }}\n{{- end }}\nvllm serve {{ .Values.model | quote }} --port {{ .Values.port | int }}\n").unwrap();
    assert!(done.contains("--port {{ .Values.port | int }} --gpu-memory-utilization 0.93"), "{done}");
    for script in [
        "vllm serve m {{ .Values.extra }}",
        "vllm serve m --x y\n{{- if .Values.more }} --more{{ end }}",
        "vllm serve m \\\n  {{- if .Values.more }}\n  --more \\\n  {{- end }}\n  --x y",
    ] {
        assert!(args(script).unwrap_err().contains("template"), "{script}");
    }
    let runtime = pod(
        "    args:\n    - --port=8080\n    - --served-model-name={{.Name}}\n    - --model\n    - \"{{ .Model }}\"\n",
    );
    assert!(text_of(&runtime).contains("    - \"{{ .Model }}\"\n    - --gpu-memory"), "{}", text_of(&runtime));
}

/// What RFC 6902 makes of an object.
fn patched(mut object: serde_json::Value, operations: &[serde_json::Value]) -> Result<serde_json::Value, String> {
    for operation in operations {
        let path = operation["path"].as_str().unwrap();
        if operation["op"] == "test" {
            if object.pointer(path) != Some(&operation["value"]) {
                return Err(format!("{path} is not what is tested"));
            }
            continue;
        }
        let (above, key) = path.rsplit_once('/').unwrap();
        let (key, value) = (key.replace("~1", "/").replace("~0", "~"), operation["value"].clone());
        if operation["op"] == "replace" && object.pointer(path).is_none() {
            return Err(format!("{path} is not there"));
        }
        match object.pointer_mut(above) {
            Some(serde_json::Value::Object(map)) => drop(map.insert(key, value)),
            Some(serde_json::Value::Array(list)) => list[key.parse::<usize>().unwrap()] = value,
            _ => return Err(format!("{above} is no place to write to")),
        }
    }
    Ok(object)
}

/// What Kubernetes makes of an object and a patch: mappings are merged, containers by name, all else is replaced.
fn merged(object: &mut serde_json::Value, patch: &serde_json::Value) {
    use serde_json::Value;
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                merged(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(items), Value::Array(patch)) if patch.iter().all(|item| item.get("name").is_some()) => {
            for item in patch {
                let at = items.iter().position(|there| there["name"] == item["name"]);
                match (at, item["$patch"] == "delete") {
                    (Some(at), true) => drop(items.remove(at)),
                    (Some(at), false) => merged(&mut items[at], item),
                    (None, _) => items.push(item.clone()),
                }
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}

/// What a unified diff makes of a text.
fn applied(text: &str, diff: &str) -> String {
    let (mut lines, mut result) = (text.split_inclusive('\n'), String::new());
    let (mut at, mut open) = (1, false);
    for change in diff.split_inclusive('\n') {
        if let Some(place) = change.strip_prefix("@@ -") {
            let first: usize = place.split([',', ' ']).next().unwrap().parse().unwrap();
            while at < first {
                result += lines.next().unwrap();
                at += 1;
            }
            open = true;
        } else if change.starts_with(['-', ' ']) && open {
            let line = lines.next().unwrap();
            assert_eq!(line.trim_end(), change[1..].trim_end());
            at += 1;
            result += if change.starts_with(' ') { line } else { "" };
        } else if change.starts_with('+') && open {
            result += &change[1..];
        }
    }
    result + &lines.collect::<String>()
}

#[test]
fn every_form_can_be_applied_and_says_the_same_as_the_file() {
    use super::{forms::json, yaml::meaning};
    let (mut patches, mut components) = (0, 0);
    for (name, _, text, done) in fixtures() {
        let by_diff = applied(&text, &diff("m", &text, &done.text));
        assert_eq!(by_diff.trim_end(), done.text.trim_end(), "{name}");
        let (before, after) = (Source::new(text).unwrap(), Source::new(done.text.clone()).unwrap());
        let index = done.changed[0].document;
        let object = |source: &Source| json(&meaning(&source.documents[index]).unwrap());
        for target in [Target::File, Target::Cluster] {
            let Ok(operations) = json_patch(&before, &done, target) else { continue };
            let mut is = patched(object(&before), &operations).unwrap_or_else(|e| panic!("{name}: {e}"));
            let mut should = object(&after);
            if annotate_command(&before, &done).is_some() && target == Target::Cluster {
                should["metadata"].as_object_mut().unwrap().remove("annotations");
                is["metadata"].as_object_mut().unwrap().remove("annotations");
            }
            assert_eq!(is, should, "{name}");
            patches += 1;
        }
        let Ok(component) = kustomize(&before, &done) else { continue };
        let component = Source::new(component).unwrap();
        let text = component.documents[0].at(&"patches[0].patch".parse().unwrap()).unwrap().text().unwrap();
        let patch = json(&meaning(&Source::new(text).unwrap().documents[0]).unwrap());
        let mut is = object(&before);
        match patch.as_array() {
            Some(operations) => is = patched(is, operations).unwrap_or_else(|e| panic!("{name}: {e}")),
            None => merged(&mut is, &patch),
        }
        assert_eq!(is, object(&after), "{name}");
        components += 1;
    }
    assert!(patches > 60 && components > 30, "{patches} {components}");
}

#[test]
fn one_of_two_engines_can_be_named() {
    for name in ["two-engines", "two-containers"] {
        let text = std::fs::read_to_string(folder().join("refused").join(format!("{name}.yaml"))).unwrap();
        let says = exported(&text, &wanted(&[])).map(|_| ()).unwrap_err();
        let hint = says.split("--container ").nth(1).unwrap().split([' ', ';', '\n']).next().unwrap();
        let done = exported(&text, &wanted(&[hint])).unwrap();
        assert_eq!(done.engines.len(), 1);
        assert!(
            exported(&text, &wanted(&["nobody"])).map(|_| ()).unwrap_err().contains("no engine is called `nobody`")
        );
    }
}

#[test]
fn placeholders_in_scripts_are_seen_and_kept() {
    let says = refusal(&scripted("vllm serve ${MODEL} --max-num-seqs ${SEQS}"));
    assert!(says.contains("placeholder `${SEQS}`"), "{says}");
    let done = exported(&scripted("exec vllm serve ${MODEL} --port $${PORT:-80} && true"), &wanted(&[])).unwrap();
    let line = "exec vllm serve ${MODEL} --port $${PORT:-80} --gpu-memory-utilization 0.93 --max-num-batched-tokens 4096 --max-num-seqs 96 && true\n";
    assert!(done.text.contains(line), "{}", done.text);
    assert_eq!(done.changed.iter().filter(|c| c.after.text() == Some(line)).count(), 1);
}

/// A pod with an engine's image; what more it says stands at the depth of a container's keys.
fn pod(container: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - name: engine\n    image: vllm/vllm-openai:v0.24.0\n{container}"
    )
}

fn scripted(script: &str) -> String {
    let lines: String = script.lines().map(|line| format!("      {line}\n")).collect();
    pod(&format!("    command: [sh, -c]\n    args:\n    - |\n{lines}"))
}

fn refusal(text: &str) -> String {
    exported(text, &wanted(&[])).map(|done| diff("m", text, &done.text)).unwrap_err()
}

fn text_of(text: &str) -> String {
    exported(text, &wanted(&[])).unwrap_or_else(|e| panic!("{text}\n{e}")).text
}

#[test]
fn arguments_never_go_where_the_engine_does_not_see_them() {
    // Words behind a script are no arguments of what it starts.
    for script in ["eval \"vllm serve m\"", "C=\"vllm serve m\"\nexec $C", "/start.sh", "\"$(which vllm)\" serve m"] {
        let folded = scripted(script).replace("- |\n", "- >-\n");
        for text in [scripted(script), folded] {
            assert!(refusal(&text).contains("not clear how this script of engine starts the engine"), "{text}");
        }
    }
    // Another program in the engine's image.
    for command in ["[sleep, infinity]", "[vllm, bench, serve, --model, m]", "[/start.sh]"] {
        assert!(refusal(&pod(&format!("    command: {command}\n"))).contains("no engine was found"), "{command}");
    }
    // A sidecar with a flag that many programs have.
    for sidecar in ["args: [--model, x]", "env: [{name: BENCH_ARGS, value: --model x}]"] {
        let text = pod(&format!("    args: [Qwen/Q]\n  - name: loader\n    image: my/loader\n    {sidecar}\n"));
        let done = exported(&text, &wanted(&[])).unwrap();
        assert_eq!(done.engines, ["engine"]);
        assert!(done.text.contains(sidecar), "{}", done.text);
    }
    // A variable that nobody reads.
    let variable = "    env: [{name: VLLM_ARGS, value: --max-num-seqs 4}]\n";
    for text in [scripted("vllm serve m") + variable, pod("    command: [vllm, serve, m]\n") + variable] {
        let done = text_of(&text);
        assert!(done.contains("value: --max-num-seqs 4}") && done.contains("96"), "{done}");
    }
    let done = text_of(&(scripted("vllm serve m ${VLLM_ARGS}") + variable));
    assert!(done.contains("value: --max-num-seqs 96}"), "{done}");
}

#[test]
fn shells_are_followed_to_the_engine() {
    for shell in ["[bash, --login, -c]", "[bash, -O, extglob, +x, -c]", "[tini, --, bash, -euo, pipefail, -c]"] {
        let text = scripted("exec vllm serve m --max-num-seqs 4").replace("[sh, -c]", shell);
        assert!(text_of(&text).contains("exec vllm serve m --max-num-seqs 96 --gpu-memory"), "{shell}");
    }
    let ends = |script: &str, line: &str| {
        let done = text_of(&scripted(script));
        assert!(done.contains(line), "{line} is missing in\n{done}");
    };
    let new = "--gpu-memory-utilization 0.93 --max-num-batched-tokens 4096 --max-num-seqs 96";
    ends("echo now vllm serve starts\nvllm serve m", &format!("serve starts\n      vllm serve m {new}\n"));
    ends("vllm serve --config <(cat c) --port 1 > >(tee l)", &format!("<(cat c) --port 1 {new} > >(tee l)\n"));
    // A backslash at the end of a script escapes nothing.
    ends("vllm serve m \\\n  --x y \\", "--x y \\\n        --gpu-memory-utilization 0.93 \\\n");
    ends("vllm serve m --max-num-seqs 96 \\\n  --x y \\", "4096 \\\n");
    // Nor does one in the last word, with an expansion before it or in it.
    for word in ["m\\", "m$\\", "m\\ \\"] {
        drop(exported(&scripted(&format!("exec vllm serve {word}")), &wanted(&[])));
        drop(exported(&scripted(&format!("exec vllm serve m $X{word}")), &wanted(&[])));
    }
    // What two redirections stand between stays between them.
    ends(
        "vllm serve m --max-num-seqs 5 > /l --max-num-seqs 6 2> /e --max-num-seqs 7",
        "4096 > /l  2> /e --max-num-seqs 96\n",
    );
    // The words behind a script that runs them.
    let behind = "    - --\n    - vllm\n    - serve\n    - --max-num-seqs\n    - \"4\"\n";
    assert!(text_of(&(scripted("setup; exec \"$@\"") + behind)).contains("    - \"96\"\n"));
    let behind = "    - --\n    - --max-num-seqs\n    - \"4\"\n";
    assert!(text_of(&(scripted("vllm serve m \"$@\"") + behind)).contains("    - \"96\"\n    - --gpu-memory"));
}

#[test]
fn words_that_the_engine_would_not_understand_are_refused() {
    let list = |args: &str| refusal(&pod(&format!("    args: [--model, m, {args}]\n")));
    assert!(list("\"--max-num-seqs 64\"").contains("one word to the engine"));
    assert!(list("\"--x y --max-num-seqs 64\"").contains("one word to the engine"));
    assert!(list("\"--max-num-seqs=\", \"5\"").contains("has no value"));
    assert!(refusal(&scripted("vllm serve m \"--max-num-seqs 64\"")).contains("one word to the engine"));
}

#[test]
fn lists_that_are_not_there_yet_are_made_and_notes_stay() {
    for (before, after) in [
        ("    args: null # c\n", "    args: [--gpu-memory-utilization, \"0.93\", "),
        ("    args: ~\n", "    args: [--gpu-memory-utilization, \"0.93\", "),
        ("    args: # c\n    # d\n    env: []\n", "    args: # c\n    - --gpu-memory-utilization\n"),
        ("    args: [ # c\n    ]\n", "    args: [--gpu-memory-utilization, \"0.93\", "),
    ] {
        let done = text_of(&pod(before));
        assert!(done.contains(after) && done.matches("# c").count() == before.matches("# c").count(), "{done}");
    }
}

#[test]
fn annotations_of_an_alias_are_not_lost() {
    let text =
        pod("    args: [--model, m]\n").replace("  name: p\n", "  name: p\n  labels: &l {a: b}\n  annotations: *l\n");
    assert!(refusal(&text).contains("--no-annotations"));
}

#[test]
fn templates_that_write_arguments_are_refused() {
    let items = "    args:\n      - --model\n      - m\n";
    for (text, refused) in [
        ("    args:\n      {{- toYaml .Values.args | nindent 6 }}\n".to_owned(), true),
        (format!("{items}      {{{{- toYaml .Values.more | nindent 6 }}}}\n"), true),
        (format!("{items}{{{{- toYaml .Values.more | nindent 6 }}}}\n"), true),
        (format!("{items}    {{{{- include \"x.env\" . | nindent 4 }}}}\n"), false),
        (
            format!(
                "{items}    {{{{- with .Values.env }}}}\n    env:\n      {{{{- toYaml . | nindent 6 }}}}\n    {{{{- end }}}}\n"
            ),
            false,
        ),
    ] {
        let done = exported(&pod(&text), &wanted(&[])).map(|done| done.text);
        assert_eq!(done.is_err(), refused, "{text}{done:?}");
        assert!(done.err().is_none_or(|says| says.contains("template")));
    }
    let says = refusal(&pod("    args:\n      - --model\n      {{- toYaml .Values.args | nindent 6 }}\n      - m\n"));
    assert!(says.contains("args holds a template"), "{says}");
}

#[test]
fn patches_leave_what_others_wrote() {
    let text = pod("    args: [--model, m]\n");
    let text = text.replace("  containers:\n", "  containers:\n  - name: proxy\n    image: nginx\n");
    let done = exported(&text, &wanted(&[])).unwrap();
    let source = Source::new(text.clone()).unwrap();
    let paths = |target| -> Vec<String> {
        let operations = json_patch(&source, &done, target).unwrap();
        operations.iter().filter_map(|o| Some(o["path"].as_str()?.to_owned())).collect()
    };
    // The object in the cluster has annotations of its own.
    assert!(!paths(Target::Cluster).iter().any(|path| path.starts_with("/metadata/annotations")));
    let command = annotate_command(&source, &done).unwrap();
    assert!(command.starts_with("kubectl annotate Pod p autotune/version=0.1.0 "), "{command}");
    assert!(paths(Target::File).contains(&"/metadata/annotations".to_owned()));
    let knative = std::fs::read_to_string(folder().join("knative-service.yaml")).unwrap();
    let of_knative = exported(&knative, &wanted(&[])).unwrap();
    let command = annotate_command(&Source::new(knative).unwrap(), &of_knative).unwrap();
    assert!(command.starts_with("kubectl annotate Service.v1.serving.knative.dev "), "{command}");
    // Kustomize keeps the order of containers that a patch names.
    let component = kustomize(&source, &done).unwrap();
    assert!(component.find("- name: proxy") < component.find(" name: engine"), "{component}");
    assert!(component.contains("- name: proxy"), "{component}");
    // A list of words is replaced as a whole: the shell before the script stays.
    let text = pod("    command:\n    - sh\n    - -c\n    - vllm serve m\n");
    let component = kustomize(&Source::new(text.clone()).unwrap(), &exported(&text, &wanted(&[])).unwrap()).unwrap();
    assert!(component.contains("- sh\n              - -c\n              - vllm serve m --gpu"), "{component}");
    let nameless = text.replace("name: p\n", "name: ${NAME}\n");
    let done = exported(&nameless, &wanted(&[])).unwrap();
    assert!(json_patch(&Source::new(nameless).unwrap(), &done, Target::Cluster).is_err());
}

/// What is said of a manifest beside an outcome that differs from a plain one in some keys.
fn contradictions(text: &str, of: &serde_json::Value) -> Vec<String> {
    let mut outcome = serde_json::json!({
        "version": 1, "status": "certified", "because": "", "simulated": false, "gpus": [], "space_file": "s", "seed": 1,
        "cost": {"launches": 1, "probes": 1, "engine_seconds": 1.0}, "left_out": [],
    });
    for (key, value) in of.as_object().unwrap() {
        outcome[key] = value.clone();
    }
    let outcome: Outcome = serde_json::from_value(outcome).unwrap();
    let visit = |document: Document<'_>, engine: &Located<'_>| {
        super::contradictions::contradictions(&outcome, document, engine)
    };
    let done = export("m.yaml", text, &wanted(&[]), &flags(), &visit).unwrap_or_else(|e| panic!("{}", e.render()));
    done.notes.into_iter().map(|note| note.message).collect()
}

#[test]
fn another_image_than_the_measured_one_is_named() {
    let says = |image: &str| {
        let text = pod("    command: [vllm, serve]\n    args: [m]\n").replace("vllm/vllm-openai:v0.24.0", image);
        contradictions(&text, &serde_json::json!({"engine_version": "0.24.0"})).join("\n")
    };
    for moving in ["", ":latest", ":nightly", ":latest-cu129", ":x86_64-latest"] {
        assert!(says(&format!("vllm/vllm-openai{moving}")).contains("the image's tag moves"), "{moving}");
    }
    assert!(says("registry:5000/vllm/vllm-openai").contains("the image's tag moves"));
    for other in ["v0.24.1", "v0.25.0-cu129", "0.9"] {
        assert!(says(&format!("registry:5000/x/vllm-openai:{other}")).contains("0.24.0 was measured"), "{other}");
    }
    for same in [
        "vllm/vllm-openai:v0.24.0",
        "vllm/vllm-openai:v0.24.0-cu129",
        "vllm/vllm-openai@sha256:aa",
        "vllm/vllm-openai:latest@sha256:aa",
        "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1",
        "${IMAGE}",
        "vllm/vllm-openai:${TAG}",
    ] {
        assert_eq!(says(same), "", "{same}");
    }
}

#[test]
fn another_model_than_the_measured_one_is_named() {
    let says = |words: &str, model: &str| {
        let text = scripted(&format!("vllm serve {words}"));
        contradictions(&text, &serde_json::json!({"model": model})).join("\n")
    };
    assert!(says("Qwen/Qwen3-8B", "Qwen/Qwen3-4B").contains("serves Qwen/Qwen3-8B, and Qwen/Qwen3-4B was measured"));
    assert!(says("--model=/models/a", "b").contains("serves /models/a"));
    for (words, model) in [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("/models/qwen3-8b/", "Qwen/Qwen3-8B"),
        ("--port 80 --model hf://Qwen/Qwen3-8B", "Qwen3-8B"),
        ("Qwen/Qwen3-8B --served-model-name chat", "chat"),
        ("$MODEL", "Qwen/Qwen3-8B"),
    ] {
        assert_eq!(says(words, model), "", "{words}");
    }
}

#[test]
fn other_gpus_and_too_little_memory_or_time_are_named() {
    let of = serde_json::json!({
        "gpus": ["H100", "H100", "H100", "H100"], "fixed_arguments": ["--tensor-parallel-size", "2"],
        "host_memory": 8_u64 << 30, "slowest_start": 120.0,
    });
    let says = |container: &str| {
        contradictions(&pod(&format!("    args: [--model, m, --tensor-parallel-size, \"2\"]\n{container}")), &of)
    };
    let limits = |limits: &str| says(&format!("    resources: {{limits: {{{limits}}}}}\n"));
    assert!(limits("nvidia.com/gpu: 4")[0].contains("asks for 4 GPUs, and the engine that was measured used 2"));
    assert!(limits("memory: 4Gi")[0].contains("the limit of memory is 4Gi, and the engine held 8.0 GiB"));
    for fits in
        ["nvidia.com/gpu: \"2\"", "memory: 8Gi", "memory: 9e9", "nvidia.com/gpu: ${GPUS}", "memory: {{ .m }}", "cpu: 1"]
    {
        assert_eq!(limits(fits), Vec::<String>::new(), "{fits}");
    }
    let startup = says("    startupProbe: {periodSeconds: 10, failureThreshold: 6}\n");
    assert!(startup[0].contains("the startupProbe gives the engine 60"), "{startup:?}");
    // Kubernetes' own defaults are three failures ten seconds apart.
    let liveness = says("    livenessProbe: {initialDelaySeconds: 60}\n");
    assert!(liveness[0].contains("the livenessProbe gives the engine 90"), "{liveness:?}");
    for fits in [
        "    startupProbe: {periodSeconds: 10, failureThreshold: 12}\n    livenessProbe: {periodSeconds: 1}\n",
        "    livenessProbe: {initialDelaySeconds: 90}\n",
        "    readinessProbe: {periodSeconds: 1}\n",
        "    startupProbe: null\n",
        "    startupProbe:\n",
        "    startupProbe: {failureThreshold: ${FAILURES}}\n",
    ] {
        assert_eq!(says(fits), Vec::<String>::new(), "{fits}");
    }
}

#[test]
fn a_size_of_the_cache_that_overrules_the_share_of_memory_is_named() {
    let best = serde_json::json!({"best": {"arguments": [], "parameters": {"gpu-memory-utilization": 0.9}}});
    let says = |flag: &str, of: &serde_json::Value| contradictions(&scripted(&format!("vllm serve m {flag} 9")), of);
    for flag in ["--kv-cache-memory-bytes", "--num_gpu_blocks_override"] {
        assert!(says(flag, &best)[0].contains("decides the size of the KV cache here"), "{flag}");
    }
    assert!(says("--port", &best).is_empty());
}

#[test]
fn arguments_that_were_fixed_and_differ_are_named() {
    let fixed = serde_json::json!({"fixed_arguments": [
        "--tensor-parallel-size", "2", "--enforce-eager", "--swap-space=0.5", "--port", "8000", "--max-model-len", "4096",
    ]});
    let says = |args: &str| contradictions(&scripted(&format!("vllm serve m {args}")), &fixed);
    let all = "--tensor-parallel-size=2 --enforce-eager --swap-space 0.50 --max_model_len 4096";
    assert_eq!(says(all), Vec::<String>::new());
    assert_eq!(says(&all.replace("--tensor-parallel-size=", "-tp ")), Vec::<String>::new());
    assert_eq!(says(&all.replace("0.50", "$SPACE")), Vec::<String>::new());
    assert!(says(&all.replace("=2", "=4"))[0].contains("measured with --tensor-parallel-size 2, and here is 4"));
    assert!(says(&all.replace("--enforce-eager ", ""))[0].contains("--enforce-eager, which is not here"));
    // In a variable that the script reads.
    let text = scripted("vllm serve m $VLLM_ARGS") + &format!("    env: [{{name: VLLM_ARGS, value: '{all}'}}]\n");
    assert_eq!(contradictions(&text, &fixed), Vec::<String>::new());
    // As a key of its own.
    let runtime = std::fs::read_to_string(folder().join("vllmruntime.yaml")).unwrap();
    let length = |there: &str| {
        let of = serde_json::json!({"fixed_arguments": ["--max-model-len", there]});
        contradictions(&runtime, &of).into_iter().filter(|note| note.contains("max-model-len")).count()
    };
    let there = runtime.split("maxModelLen: ").nth(1).unwrap().lines().next().unwrap();
    assert_eq!((length(there), length("17")), (0, 1));
}

/// Values of the production stack with one model, and more of what it says.
fn values(model: &str) -> String {
    format!("servingEngineSpec:\n  modelSpec:\n  - name: m\n    modelURL: m\n{model}")
}

#[test]
fn flags_go_into_the_keys_of_the_production_stack() {
    let setting = |name: &str, value| Setting { name: name.to_owned(), value };
    let settings = vec![
        setting("dtype", Value::Text("float16".to_owned())),
        setting("enable-chunked-prefill", Value::Bool(false)),
        setting("enable-prefix-caching", Value::Bool(true)),
        setting("max-loras", Value::Int(4)),
        setting("tensor-parallel-size", Value::Int(2)),
    ];
    let (wanted, flags) = limits_of(EngineKind::Vllm, settings);
    let after = |text: &str| exported_of(text, &wanted, &flags).unwrap().text;
    let config = |size: u32, chunks: bool, cache: bool| {
        format!(
            "      tensorParallelSize: {size}\n      enableChunkedPrefill: {chunks}\n      enablePrefixCaching: {cache}\n"
        )
    };
    let before = values(&format!("    vllmConfig:\n{}", config(1, true, false)));
    let keys =
        values(&format!("    vllmConfig:\n{}      dtype: \"float16\"\n      maxLoras: 4\n", config(2, false, true)));
    assert_eq!(after(&before), keys);
    let runtime = |model: &str, config: &str| {
        format!(
            "apiVersion: production-stack.vllm.ai/v1alpha1\nkind: VLLMRuntime\nmetadata: {{name: r}}\nspec:\n  model: {{modelURL: m{model}}}\n  vllmConfig:\n{config}"
        )
    };
    let keys = runtime(", dtype: \"float16\"", &(config(2, false, true) + "      maxLoras: 4\n"));
    assert_eq!(after(&runtime("", &config(1, true, false))), keys);
}

#[test]
fn a_new_mapping_of_the_production_stack_leaves_the_prefix_cache_on() {
    let list =
        "extraArgs: [--gpu-memory-utilization, \"0.93\", --max-num-batched-tokens, \"4096\", --max-num-seqs, \"96\"]";
    for (config, after) in [
        ("    vllmConfig: {}\n", format!("    vllmConfig: {{enablePrefixCaching: true, {list}}}\n")),
        ("    vllmConfig: ~\n", format!("    vllmConfig: {{enablePrefixCaching: true, {list}}}\n")),
        (
            "    vllmConfig: { # c\n    }\n",
            format!("    vllmConfig: {{enablePrefixCaching: true, {list} # c\n    }}\n"),
        ),
    ] {
        assert_eq!(text_of(&values(config)), values(&after));
    }
    let block = "    vllmConfig:\n      enablePrefixCaching: true\n      extraArgs:\n      - --gpu";
    for config in ["", "    vllmConfig:\n      # c\n", "    vllmConfig:\n    requestGPU: 1\n"] {
        assert!(text_of(&values(config)).contains(block), "{}", text_of(&values(config)));
    }
    // Ray's template passes nothing for a key that is missing.
    let ray = text_of(&values("    raySpec: {enabled: true}\n    vllmConfig:\n      # c\n"));
    assert!(ray.contains("    vllmConfig:\n      extraArgs:\n      - --gpu"), "{ray}");
    // What was measured is a key as well, and alone.
    for on in [true, false] {
        let setting = Setting { name: "enable-prefix-caching".to_owned(), value: Value::Bool(on) };
        let (wanted, flags) = limits_of(EngineKind::Vllm, vec![setting]);
        let done = exported_of(&values("    vllmConfig: {}\n"), &wanted, &flags).unwrap().text;
        assert_eq!(done, values(&format!("    vllmConfig: {{enablePrefixCaching: {on}}}\n")));
    }
    // A variable alone needs none.
    let variable = Setting { name: "env.OMP_NUM_THREADS".to_owned(), value: Value::Int(8) };
    let (wanted, flags) = limits_of(EngineKind::Vllm, vec![variable]);
    let done = exported_of(&values(""), &wanted, &flags).unwrap().text;
    assert!(done.contains("OMP_NUM_THREADS") && !done.contains("vllmConfig"), "{done}");
}

#[test]
fn switches_that_the_production_stack_turns_off_are_named() {
    let fixed = |words: &[&str]| serde_json::json!({"fixed_arguments": words});
    let says = |config: &str, words: &[&str]| contradictions(&values(config), &fixed(words));
    const OFF: &str = "the engine gets --no-enable-prefix-caching here, and was measured without";
    assert_eq!(says("    vllmConfig: {dtype: auto}\n", &[]), [OFF]);
    assert_eq!(says("    vllmConfig: {enablePrefixCaching: false}\n", &[]), [OFF]);
    for on in [
        "",
        "    vllmConfig: {}\n",
        "    vllmConfig: {enablePrefixCaching: true}\n",
        "    vllmConfig: {extraArgs: [--enable-prefix-caching]}\n",
        "    raySpec: {enabled: true}\n    vllmConfig: {dtype: auto}\n",
    ] {
        assert_eq!(says(on, &[]), [""; 0], "{on}");
    }
    assert_eq!(says("    vllmConfig: {dtype: auto}\n", &["--no-enable-prefix-caching"]), [""; 0]);
    assert!(says("    vllmConfig: {dtype: auto}\n", &["--enable-prefix-caching"])[0].contains("which is not here"));
    let sizes = ["--tensor-parallel-size", "1", "--dtype", "auto"];
    let keys = "    vllmConfig: {enablePrefixCaching: true, tensorParallelSize: 1, dtype: auto}\n";
    assert_eq!(says(keys, &sizes), [""; 0]);
    assert!(
        says(&keys.replace(": 1", ": 2"), &sizes)[0].contains("measured with --tensor-parallel-size 1, and here is 2")
    );
    let best = serde_json::json!({"best": {"arguments": [], "parameters": {"enable-prefix-caching": true}}});
    assert_eq!(contradictions(&values("    vllmConfig: {dtype: auto}\n"), &best), [""; 0]);
    let runtime = std::fs::read_to_string(folder().join("vllmruntime.yaml")).unwrap();
    let off =
        |text: &str| contradictions(text, &fixed(&[])).iter().filter(|note| note.contains("gets --no-enable")).count();
    let without =
        runtime.replace("    enableChunkedPrefill: true\n", "").replace("enablePrefixCaching: true", "v1: false");
    assert_eq!((off(&runtime), off(&without.replace("    v1: true\n", ""))), (0, 2));
}

#[test]
fn what_is_appended_before_a_redirection_is_no_file_descriptor() {
    let done = text_of(&pod("    command: [sh, -c, 'vllm serve org/model>/tmp/log']\n"));
    assert!(done.contains("--max-num-seqs 96 >/tmp/log"), "{done}");
    // Where something would be understood differently the next time, nothing is written.
    refusal(&pod("    command: [sh, -c, 'vllm serve org/model --max-num-seqs 2>&1']\n"));
}

#[test]
fn fuzz_manifests() {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let manifests =
        files.filter(|path| path.is_file() && path.extension().is_none_or(|e| e != "diff")).map(std::fs::read);
    let valid: Vec<Vec<u8>> = manifests.map(Result::unwrap).collect();
    autotune_fuzz::fuzz(10, valid, |input, _| {
        let before = String::from_utf8_lossy(input);
        drop(exported(&before, &wanted(&[])));
    });
}

/// The limits of SGLang go into manifests of SGLang, and into no other; a switch that is off is left out.
#[test]
fn each_engine_gets_its_own_limits() {
    let sglang = include_str!("../../tests/data/manifests/refused/sglang.yaml");
    let setting = |name: &str, value| Setting { name: name.to_owned(), value };
    let settings = vec![
        setting("max-running-requests", Value::Int(96)),
        setting("mem-fraction-static", Value::Real(0.9)),
        setting("disable-radix-cache", Value::Bool(false)),
    ];
    let flags = Flags::of(EngineKind::Sglang, settings.iter().map(|s| s.name.as_str()));
    let wanted = IntendedFlags { settings, ..IntendedFlags::default() };
    let export = |text: &str| {
        let done = export("m.yaml", text, &wanted, &flags, &|_, _| Vec::new());
        done.map(|done| done.text).map_err(|problems| problems.render())
    };
    let args = |text: &str| text.lines().find(|line| line.contains("args:")).unwrap().trim().to_owned();
    let expected = r#"args: [--model-path, Qwen/Qwen3-8B, --max-running-requests, "96", --mem-fraction-static, "0.9"]"#;
    assert_eq!(args(&export(sglang).unwrap()), expected);
    let off = sglang.replace("Qwen/Qwen3-8B,", "Qwen/Qwen3-8B, --disable-radix-cache,");
    assert_eq!(args(&export(&off).unwrap()), expected, "it was on");
    let graph = sglang.replace("sglang.launch_server", "dynamo.sglang");
    assert_eq!(args(&export(&graph).unwrap()), expected, "a worker of Dynamo passes the flags on");
    let vllm = sglang.replace("sglang.launch_server", "vllm.entrypoints.openai.api_server");
    let refused = export(&vllm).unwrap_err();
    assert!(refused.contains("chat runs vLLM, and these limits were measured on SGLang"), "{refused}");
    // Both engines have --tensor-parallel-size.
    let setting = |name: &str, value| Setting { name: name.to_owned(), value };
    let share = setting("mem-fraction-static", Value::Real(0.9));
    let (wanted, flags) = limits_of(EngineKind::Sglang, vec![share, setting("tensor-parallel-size", Value::Int(2))]);
    let pod = |args: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\nspec:\n  containers:\n  - name: chat\n    image: my/llm:1\n    args: [{args}]\n"
        )
    };
    let of = |args: &str| exported_of(&pod(args), &wanted, &flags).map(|done| done.text);
    let refused = of(r#"--model, m, --max-num-seqs, "64", --tensor-parallel-size, "2""#).unwrap_err();
    assert!(refused.contains("chat runs vLLM"), "{refused}");
    assert!(of(r#"--model-path, m, --mem-fraction-static, "0.8""#).unwrap().contains("0.9"));
}

#[test]
fn what_tensorrt_llm_would_not_obey_is_refused_with_a_remedy() {
    let (wanted, flags) = tensorrt_llm();
    let refused = |text: &str| exported_of(text, &wanted, &flags).map(|done| done.text).unwrap_err();
    let file = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap();
    let config = file("dgd-trtllm-config.yaml");
    let map = config.split("---\n").next().unwrap().replace("trt-chat-engine", "another");
    assert!(refused(&format!("{map}---\n{config}")).contains("several ConfigMaps"));
    let says = refused(&file("refused/dgd-trtllm-no-file.yaml"));
    assert!(says.contains("./engine/agg.yaml may set") && says.contains("add its ConfigMap to the manifest"), "{says}");
    let plain = file("dgd-trtllm-flags.yaml");
    assert!(refused(&plain.replace("dynamo.trtllm", "tensorrt_llm.commands.serve")).contains("does not start"));
    assert!(refused(&plain.replace("dynamo.trtllm", "dynamo.vllm")).contains("measured on TensorRT-LLM"));
    let from_outside = plain.replace(
        "          envFrom:",
        "          env: [{name: DYN_TRTLLM_OVERRIDE_ENGINE_ARGS, value: '{}'}]\n          envFrom:",
    );
    assert!(
        refused(&from_outside).contains("DYN_TRTLLM_OVERRIDE_ENGINE_ARGS may overrule"),
        "{}",
        refused(&from_outside)
    );
    let json = file("dgd-trtllm-override.yaml");
    assert!(refused(&json.replace("0.90}}", "0.90}")).contains("no JSON object"));

    let setting = |name: &str, value| vec![Setting { name: name.to_owned(), value }];
    let (reuse, flags) =
        limits_of(EngineKind::DynamoTrtllm, setting("trtllm.kv_cache_config.enable_block_reuse", Value::Bool(false)));
    let says = exported_of(&plain, &reuse, &flags).map(|done| done.text).unwrap_err();
    assert!(says.contains("would drop what --free-gpu-memory-fraction says"), "{says}");
    let done = exported_of(&json, &reuse, &flags).unwrap().text;
    assert!(done.contains(r#""free_gpu_memory_fraction":0.90, "enable_block_reuse": false}}'"#), "{done}");
    let off = Value::Text("off".into());
    let (without, flags) = limits_of(EngineKind::DynamoTrtllm, setting("trtllm.enable_chunked_prefill", off));
    let says = exported_of(&json, &without, &flags).map(|done| done.text).unwrap_err();
    assert!(says.contains("`enable_chunked_prefill` is set here, and was measured without"), "{says}");
    assert_eq!(exported_of(&plain, &without, &flags).unwrap().text, plain);
    let (chunked, flags) =
        limits_of(EngineKind::DynamoTrtllm, setting("trtllm.enable_chunked_prefill", Value::Bool(false)));
    let done = exported_of(&plain, &chunked, &flags).unwrap().text;
    assert!(done.contains("- --trtllm.enable_chunked_prefill\n          - \"false\"\n"), "{done}");
    let again = exported_of(&done.replace("\"false\"", "\"true\""), &chunked, &flags).unwrap().text;
    assert_eq!(again, done, "what stands there already is changed in place");
}

#[test]
fn settings_of_tensorrt_llm_are_written_where_they_win() {
    let setting = |(name, value): &(&str, Value)| Setting { name: format!("trtllm.{name}"), value: value.clone() };
    let done = |text: &str, settings: &[(&str, Value)]| {
        let (wanted, flags) = limits_of(EngineKind::DynamoTrtllm, settings.iter().map(setting).collect());
        exported_of(text, &wanted, &flags)
    };
    let pod = |args: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\nspec:\n  containers:\n  - name: chat\n    command: [python3, -m, dynamo.trtllm]\n    args: [--model-path, m{args}]\n"
        )
    };
    let map = |file: &str| format!("---\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  e.yaml: |\n{file}");
    let (batch, off) = (("max_batch_size", Value::Int(96)), Value::Text("off".into()));
    let share = ("kv_cache_config.free_gpu_memory_fraction", Value::Real(0.8));
    let reuse = ("kv_cache_config.enable_block_reuse", Value::Bool(false));

    let json = r#", --override-engine-args, '{"max_batch_size": 64, "kv_cache_config": {}}'"#;
    let both = done(&pod(json), &[reuse.clone(), share.clone(), batch.clone()]).unwrap().text;
    let expected =
        r#"{"max_batch_size": 96, "kv_cache_config": {"enable_block_reuse": false, "free_gpu_memory_fraction": 0.8}}"#;
    assert!(both.contains(expected), "{both}");
    let graphs = ("cuda_graph_config.max_batch_size", Value::Int(96));
    let json = r#", --override-engine-args, '{"max_batch_size": 64, "cuda_graph_config": {"max_batch_size": 64}}'"#;
    assert_eq!(done(&pod(json), &[batch.clone(), graphs]).unwrap().notes, [], "the graphs are raised as well");
    assert_eq!(done(&pod(json), from_ref(&batch)).unwrap().notes.len(), 1);

    let refused = |text: &str, settings: &[(&str, Value)]| done(text, settings).map(|done| done.text).unwrap_err();
    let flag = r#", --trtllm.max_seq_len, "64""#;
    let says = refused(&pod(&format!("{json}{flag}")), from_ref(&batch));
    assert!(says.contains("no --trtllm.max_seq_len beside") && says.contains("`max_seq_len` into its JSON"), "{says}");
    let json = r#", --override-engine-args, '{}', --free-gpu-memory-fraction, "0.9""#;
    let says = refused(&pod(json), from_ref(&reuse));
    assert!(says.contains("`kv_cache_config.free_gpu_memory_fraction` into the JSON"), "{says}");

    let without = [("max_batch_size", off.clone())];
    let weak = r#", --max-batch-size, "64""#;
    let strong = r#", --trtllm.max_batch_size, "32""#;
    assert_eq!(done(&pod(weak), &without).unwrap().text, pod(""));
    assert_eq!(done(&pod(&format!("{weak}{strong}")), &without).unwrap().text, pod(""));

    let with_file = |file: &str| pod(", --extra-engine-args, /e/e.yaml") + &map(file);
    for file in ["    a: [\n", "    - a\n", "    b: &b {max_batch_size: 8}\n    <<: *b\n"] {
        for settings in [&[batch.clone()][..], &without] {
            let says = refused(&with_file(file), settings);
            assert!(says.contains("e.yaml may set `max_batch_size`") && says.contains("merge keys"), "{says}");
        }
    }
    let merged = with_file("    b: &b {free_gpu_memory_fraction: 0.5}\n    kv_cache_config: {<<: *b, dtype: fp8}\n");
    assert!(refused(&merged, from_ref(&share)).contains("without anchors"));
    let done_beside = done(&merged, from_ref(&batch)).unwrap().text;
    assert!(done_beside.contains("--max-batch-size, \"96\""), "{done_beside}");
    assert!(done(&with_file("    # nothing\n"), from_ref(&batch)).unwrap().text.contains("--max-batch-size"));
    let says = refused(&with_file("    max_batch_size: ${BATCH}\n"), from_ref(&batch));
    assert!(says.contains("the value of `max_batch_size` is the placeholder `${BATCH}`"), "{says}");

    let two = with_file("    max_batch_size: 8\n");
    let second = "  - name: other\n    command: [python3, -m, dynamo.trtllm]\n    args: [--model-path, n, --extra-engine-args=/x/e.yaml]\n---\n";
    let two = two.replacen("---\n", second, 1);
    let (wanted, flags) = limits_of(EngineKind::DynamoTrtllm, [batch].iter().map(setting).collect());
    let of = |containers: &[&str]| {
        let containers = containers.iter().map(|name| (*name).to_owned()).collect();
        exported_of(&two, &IntendedFlags { containers, ..wanted.clone() }, &flags).map(|done| done.text)
    };
    let says = of(&["chat"]).unwrap_err();
    assert!(says.contains("chat and other read this file") && says.contains("--container other"), "{says}");
    assert!(of(&["chat", "other"]).unwrap().contains("max_batch_size: 96"));
}

fn with_variables(text: &str, settings: &[(&str, &str)]) -> Result<Exported, String> {
    let setting = |(name, word): &(&str, &str)| Setting { name: (*name).into(), value: Value::Text((*word).into()) };
    let settings: Vec<Setting> = settings.iter().map(setting).collect();
    let flags = Flags::of(EngineKind::Vllm, settings.iter().map(|s| s.name.as_str()));
    let wanted = IntendedFlags { settings, ..IntendedFlags::default() };
    export("m.yaml", text, &wanted, &flags, &|_, _| Vec::new()).map_err(|problems| problems.render())
}

#[test]
fn tuned_variables_are_set_where_the_engine_has_its_environment() {
    let pod = |env: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\nspec:\n  containers:\n  - name: vllm\n    command: [vllm, serve, m]\n{env}"
        )
    };
    let set = |text: &str| with_variables(text, &[("env.BACKEND", "FLASHINFER")]).unwrap().text;
    let there = set(&pod("    env:\n    - name: BACKEND # kept\n      value: FLASH_ATTN\n"));
    assert_eq!(there, pod("    env:\n    - name: BACKEND # kept\n      value: FLASHINFER\n"));
    let beside = set(&pod("    env:\n    - name: A\n      value: \"1\"\n"));
    assert_eq!(
        beside,
        pod("    env:\n    - name: A\n      value: \"1\"\n    - name: BACKEND\n      value: \"FLASHINFER\"\n")
    );
    let new = set(&pod(""));
    assert!(
        new.contains("env:\n") && new.contains("name: BACKEND\n") && new.contains("value: \"FLASHINFER\""),
        "{new}"
    );
    let compose = |environment: &str| format!("services:\n  x:\n    command: [vllm, serve, m]\n{environment}");
    assert_eq!(
        set(&compose("    environment:\n      - BACKEND=FLASH_ATTN\n")),
        compose("    environment:\n      - BACKEND=FLASHINFER\n")
    );
    assert_eq!(
        set(&compose("    environment:\n      A: b\n")),
        compose("    environment:\n      A: b\n      BACKEND: \"FLASHINFER\"\n")
    );
    assert_eq!(set(&compose("")), compose("    environment:\n      BACKEND: \"FLASHINFER\"\n"));
    let two = [("env.BACKEND", "FLASHINFER"), ("env.OTHER", "2")];
    let both = with_variables(&pod("    env:\n    - name: BACKEND\n      value: FLASH_ATTN\n"), &two).unwrap().text;
    assert_eq!(
        both,
        pod("    env:\n    - name: BACKEND\n      value: FLASHINFER\n    - name: OTHER\n      value: \"2\"\n")
    );
    let dynamo = std::fs::read_to_string(folder().join("dgd-v1beta1-agg.yaml"));
    if let Ok(text) = dynamo {
        assert!(with_variables(&text, &[("env.BACKEND", "FLASHINFER")]).unwrap().text.contains("BACKEND"));
    }
}

#[test]
fn what_is_off_is_taken_out_and_what_cannot_be_is_said() {
    let pod = |args: &str, env: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\nspec:\n  containers:\n  - name: vllm\n    args: [vllm, serve, m{args}]\n{env}"
        )
    };
    let off = |text: &str, name: &str| with_variables(text, &[(name, "off")]).map(|done| done.text);
    let drafts = pod(", --speculative-config, '{\"method\": \"ngram\"}'", "");
    assert_eq!(off(&drafts, "speculative-config").unwrap(), pod("", ""));
    let first = pod(", --speculative-config, '{\"method\": \"ngram\"}', --seed, \"1\"", "");
    assert_eq!(off(&first, "speculative-config").unwrap(), pod(", --seed, \"1\"", ""));
    assert_eq!(off(&pod("", ""), "speculative-config").unwrap(), pod("", ""));
    let env = "    env:\n    - name: BACKEND\n      value: FLASH_ATTN\n    - name: A\n      value: b\n";
    assert_eq!(off(&pod("", env), "env.BACKEND").unwrap(), pod("", "    env:\n    - name: A\n      value: b\n"));
    let refused = |text: &str| with_variables(text, &[("env.BACKEND", "FLASHINFER")]).map(|_| ()).unwrap_err();
    let from = "    env:\n    - name: BACKEND\n      valueFrom: {configMapKeyRef: {name: c, key: b}}\n";
    assert!(refused(&pod("", from)).contains("BACKEND is given in a way that cannot be changed"));
    let twice = "    env:\n    - {name: BACKEND, value: a}\n    - {name: BACKEND, value: b}\n";
    assert!(refused(&pod("", twice)).contains("BACKEND is set twice"));
    let unit = "[Service]\nExecStart=/usr/bin/vllm serve m\n";
    let says = refused(unit);
    assert!(says.contains("no place for the variable BACKEND") && says.contains("BACKEND=FLASHINFER"), "{says}");
    let script = pod("", "")
        .replace("[vllm, serve, m]", "[\"export BACKEND=x; vllm serve m\"]")
        .replace("    args", "    command: [sh, -c]\n    args");
    assert!(refused(&script).contains("the script sets BACKEND itself, to `x`"), "{}", refused(&script));
    let by_hand = "[Service]\nEnvironment=BACKEND=FLASHINFER\nExecStart=/usr/bin/vllm serve m\n";
    let kept = with_variables(by_hand, &[("env.BACKEND", "FLASHINFER")]).unwrap().text;
    assert_eq!(kept, by_hand, "what is set by hand is not asked for again");
}
