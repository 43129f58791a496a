//! Whatever `export` edits: the command line that would run has exactly the intended flags, once, where the engine reads them. A shell runs it,
//! with a stand-in for the engine that writes down its words; another YAML parser than the program's reads the manifest.

use std::path::Path;
use std::process::Command;

use autotune::export::flags::{Flags, Setting};
use autotune::export::write::{IntendedFlags, export};
use autotune::space::Value as Setpoint;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use saphyr_parser::{Event, Parser};
use serde_json::Value;

const TUNED: [&str; 3] = ["gpu-memory-utilization", "max-num-batched-tokens", "max-num-seqs"];
const OTHERS: [(&str, Option<&str>); 5] = [
    ("max-model-len", Some("8192")),
    ("enable-prefix-caching", None),
    ("served-model-name", Some("größe")),
    ("speculative-config", Some("{\"method\":\"ngram\"}")),
    ("port", Some("80")),
];

/// Where a command line stands.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Args,
    Command,
    CommandAndArgs,
    Script,
    ScriptInCommand,
    Positional,
    Variable,
    ShellInShell,
    Rollout,
    LeaderAndWorker,
    ConfigMap,
    Compose,
    ComposeText,
    Unit,
    UnitWithShell,
    Quadlet,
    ShellScript,
    DockerRun,
    ScriptVariable,
    ScriptArray,
    ScriptValues,
    UnitEnvironment,
    PresetVariable,
    ConfigFile,
    RayServe,
    RayService,
    VllmRuntime,
    ProductionStack,
    /// One of [`LISTS`].
    List(usize),
}

const SHAPES: [Shape; 28] = [
    Shape::Args,
    Shape::Command,
    Shape::CommandAndArgs,
    Shape::Script,
    Shape::ScriptInCommand,
    Shape::Positional,
    Shape::Variable,
    Shape::ShellInShell,
    Shape::Rollout,
    Shape::LeaderAndWorker,
    Shape::ConfigMap,
    Shape::Compose,
    Shape::ComposeText,
    Shape::Unit,
    Shape::UnitWithShell,
    Shape::Quadlet,
    Shape::ShellScript,
    Shape::DockerRun,
    Shape::ScriptVariable,
    Shape::ScriptArray,
    Shape::ScriptValues,
    Shape::UnitEnvironment,
    Shape::PresetVariable,
    Shape::ConfigFile,
    Shape::RayServe,
    Shape::RayService,
    Shape::VllmRuntime,
    Shape::ProductionStack,
];

/// Files with a list of words in the place of LIST, and where it is. Behind `#` stands the place in a text that is a file of its own.
const LISTS: [(&str, &str); 17] = [
    (
        "apiVersion: v1\nkind: List\nitems:\n- {kind: Service}\n- kind: Pod\n  spec:\n    containers:\n    - name: e\n      image: vllm/vllm-openai:v1\n      args: LIST\n",
        "/items/1/spec/containers/0/args",
    ),
    (
        "apiVersion: batch/v1\nkind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {containers: [{name: e, image: 'vllm/vllm-openai:v1', args: LIST}]}}}}}\n",
        "/spec/jobTemplate/spec/template/spec/containers/0/args",
    ),
    (
        "apiVersion: serving.kserve.io/v1alpha1\nkind: ServingRuntime\nspec:\n  containers:\n  - name: kserve-container\n    command: [vllm, serve, m]\n    args: LIST\n",
        "/spec/containers/0/args",
    ),
    (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec: {predictor: {model: {modelFormat: {name: vLLM}, args: LIST}}}\n",
        "/spec/predictor/model/args",
    ),
    (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec:\n  predictor:\n    containers:\n    - name: kserve-container\n      image: vllm/vllm-openai:v1\n      args: LIST\n",
        "/spec/predictor/containers/0/args",
    ),
    (
        "apiVersion: serving.kserve.io/v1alpha1\nkind: LLMInferenceService\nspec:\n  template:\n    containers:\n    - name: main\n      args: LIST\n",
        "/spec/template/containers/0/args",
    ),
    ("apiVersion: kubeai.org/v1\nkind: Model\nspec:\n  engine: VLLM\n  args: LIST\n  url: hf://m\n", "/spec/args"),
    (
        "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nspec:\n  components:\n  - name: w\n    type: worker\n    podTemplate: {spec: {containers: [{name: main, command: [python3, -m, dynamo.vllm], args: LIST}]}}\n",
        "/spec/components/0/podTemplate/spec/containers/0/args",
    ),
    (
        "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nspec:\n  services:\n    W:\n      extraPodSpec:\n        mainContainer:\n          command: [python3, -m, dynamo.vllm]\n          args: LIST\n",
        "/spec/services/W/extraPodSpec/mainContainer/args",
    ),
    (
        "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nspec:\n  services:\n    W:\n      extraPodSpec:\n        mainContainer: {image: agent}\n        containers:\n        - name: e\n          command: [python3, -m, dynamo.vllm]\n          args: LIST\n",
        "/spec/services/W/extraPodSpec/containers/0/args",
    ),
    (
        "decode:\n  containers:\n  - name: vllm\n    modelCommand: vllmServe\n    args: LIST\n    env: []\n",
        "/decode/containers/0/args",
    ),
    ("server:\n  image: {repository: vllm/vllm-openai, tag: v1}\n  extraArgs: LIST\n", "/server/extraArgs"),
    (
        "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec:\n  values:\n    server:\n      image: {repository: vllm/vllm-openai}\n      args: LIST\n",
        "/spec/values/server/args",
    ),
    (
        "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nspec:\n  valuesContent: |\n    server:\n      image: {repository: vllm/vllm-openai}\n      args: LIST\n",
        "/spec/valuesContent#/server/args",
    ),
    ("- op: replace\n  path: /spec/template/spec/containers/0/args\n  value: LIST\n", "/0/value"),
    (
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\npatches:\n- target: {kind: Deployment}\n  patch: |-\n    - op: add\n      path: /spec/template/spec/containers/0/args\n      value: LIST\n",
        "/patches/0/patch#/0/value",
    ),
    (
        "spec:\n  template:\n    spec:\n      containers:\n      - name: vllm\n        image: vllm/vllm-openai:v1\n        args: LIST\n",
        "/spec/template/spec/containers/0/args",
    ),
];

/// A flag as it is written: joined to its value by `=`, with underscores.
type Arg = (&'static str, Option<String>, bool, bool);

fn words(args: &[Arg]) -> Vec<String> {
    let words = |(flag, value, glued, underscores): &Arg| {
        let name = format!("--{}", if *underscores { flag.replace('-', "_") } else { (*flag).to_owned() });
        match value {
            None => vec![name],
            Some(value) if *glued => vec![format!("{name}={value}")],
            Some(value) => vec![name, value.clone()],
        }
    };
    args.iter().flat_map(words).collect()
}

fn quoted(word: &str) -> String {
    if word.contains(['"', '{']) { format!("'{word}'") } else { word.to_owned() }
}

fn json(words: &[String]) -> String {
    serde_json::to_string(words).unwrap()
}

fn list(head: &[&str], tail: &[String]) -> String {
    json(&head.iter().map(|word| (*word).to_owned()).chain(tail.iter().cloned()).collect::<Vec<_>>())
}

fn pod(kind: &str, container: &str) -> String {
    format!(
        "{kind}\nmetadata: {{name: m}}\nspec:\n  template:\n    spec:\n      containers:\n      - name: proxy\n        image: envoy\n        args: [--model, \"7\"]\n      - name: engine\n        image: vllm/vllm-openai:v0.24.0\n{container}"
    )
}

fn render(shape: Shape, args: &[Arg]) -> String {
    const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment";
    let words = words(args);
    let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    let lines = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" \\\n          ");
    let block = |before: &str| {
        format!(
            "        command: [sh, -c]\n        args:\n        - |\n          {before}\n          exec vllm serve m \\\n          {lines} 2>&1\n"
        )
    };
    match shape {
        Shape::Args => pod(DEPLOYMENT, &format!("        args: {}\n", list(&["m"], &words))),
        Shape::Command => pod(DEPLOYMENT, &format!("        command: {}\n", list(&["vllm", "serve", "m"], &words))),
        Shape::CommandAndArgs => pod(
            DEPLOYMENT,
            &format!(
                "        command: [python3, -m, vllm.entrypoints.openai.api_server]\n        args: {}\n",
                json(&words)
            ),
        ),
        Shape::Rollout => {
            pod("apiVersion: argoproj.io/v1alpha1\nkind: Rollout", &format!("        args: {}\n", list(&["m"], &words)))
        }
        Shape::Script => {
            pod(DEPLOYMENT, &block("cat <<E >/dev/null\n          vllm serve m --max-num-seqs 1\n          E"))
        }
        Shape::ScriptInCommand => {
            pod(DEPLOYMENT, &format!("        command: {}\n", list(&["sh", "-c"], &[format!("vllm serve m {line}")])))
        }
        Shape::Positional => pod(
            DEPLOYMENT,
            &format!("        command: [sh, -c, 'vllm serve m \"$@\"', run]\n        args: {}\n", json(&words)),
        ),
        Shape::Variable => pod(
            DEPLOYMENT,
            &format!(
                "        command: [sh, -c, vllm serve m $VLLM_EXTRA_ARGS]\n        env:\n        - name: VLLM_EXTRA_ARGS\n          value: {}\n",
                serde_json::to_string(&words.join(" ")).unwrap()
            ),
        ),
        Shape::ShellInShell => {
            let inner = format!("exec vllm serve m {line}").replace('\\', "\\\\").replace('"', "\\\"");
            pod(DEPLOYMENT, &format!("        command: {}\n", list(&["sh", "-c"], &[format!("sh -c \"{inner}\"")])))
        }
        Shape::LeaderAndWorker => {
            let container = format!(
                "        spec:\n          containers:\n          - name: vllm\n            image: vllm/vllm-openai:v0.24.0\n            args: {}\n",
                list(&["m"], &words)
            );
            format!(
                "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {{name: m}}\nspec:\n  leaderWorkerTemplate:\n    size: 2\n    leaderTemplate:\n{container}    workerTemplate:\n{container}"
            )
        }
        Shape::ConfigMap => format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata:\n  run.sh: |\n    set -e\n    exec vllm serve m {line}\n"
        ),
        Shape::Compose => {
            format!("services:\n  chat:\n    image: vllm/vllm-openai:v0.24.0\n    command: {}\n", list(&["m"], &words))
        }
        Shape::ComposeText => format!(
            "services:\n  chat:\n    image: vllm/vllm-openai:v0.24.0\n    command: >-\n      m\n      {}\n",
            line.replace(" --", "\n      --")
        ),
        Shape::Unit => format!(
            "[Unit]\nDescription=vLLM\n[Service]\nExecStart=vllm serve m \\\n  {}\nRestart=no\n",
            lines.replace("          ", "  ")
        ),
        Shape::UnitWithShell => {
            let inner = format!("exec vllm serve m {line} 2>&1").replace('"', "\\\"");
            format!("[Service]\nExecStart=sh -c \"{inner}\"\nRestart=no\n")
        }
        Shape::Quadlet => {
            format!("[Container]\nImage=docker.io/vllm/vllm-openai:v0.24.0\nExec=m {line}\n[Service]\nRestart=no\n")
        }
        Shape::ShellScript => format!(
            "#!/bin/sh\nset -e\ncat <<'E' > /dev/null\nvllm serve m --max-num-seqs 1\nE\nM=m\nif true; then vllm serve \"$M\" {line}; fi\n"
        ),
        Shape::DockerRun => format!("docker run --rm --name vllm -p 80:80 vllm/vllm-openai:v0.24.0 m {line}\n"),
        // Half of them in the variable, half behind it.
        Shape::ScriptVariable => {
            let (kept, behind) = args.split_at(args.len().div_ceil(2));
            let (kept, behind) = (self::words(kept).join(" "), self::words(behind).join(" "));
            format!("#!/bin/sh\nLIMITS=\"{kept}\"\necho \"$LIMITS\"\nexec vllm serve m $LIMITS {behind}\n")
        }
        Shape::ScriptArray => pod(
            DEPLOYMENT,
            &format!(
                "        command: [bash, -c]\n        args:\n        - |\n          LIMITS=( # why\n            {}\n          )\n          exec vllm serve m \"${{LIMITS[@]}}\"\n",
                lines.replace(" \\\n", "\n").replace("          ", "            ")
            ),
        ),
        Shape::ScriptValues => {
            let (mut script, mut words) = ("#!/bin/sh\n".to_owned(), Vec::new());
            for (index, (flag, value, ..)) in args.iter().enumerate() {
                words.push(format!("--{flag}"));
                if let Some(value) = value {
                    script += &format!("V{index}={}\n", quoted(value));
                    words.push(format!("\"$V{index}\""));
                }
            }
            script + "exec vllm serve m " + &words.join(" ") + "\n"
        }
        Shape::UnitEnvironment => {
            format!("[Service]\nEnvironment=A=1 \"LIMITS={}\"\nExecStart=vllm serve m $LIMITS\n", words.join(" "))
        }
        Shape::PresetVariable => format!(
            "apiVersion: serving.kserve.io/v1alpha1\nkind: LLMInferenceService\nspec:\n  template:\n    containers:\n    - name: main\n      env:\n      - {{name: VLLM_ADDITIONAL_ARGS, value: '{}'}}\n",
            words.join(" ")
        ),
        Shape::ConfigFile => keys(args, "", "-"),
        Shape::RayServe => format!("applications:\n- args:\n    llm_configs:\n    - {}\n", ray(args, "      ")),
        Shape::RayService => format!(
            "apiVersion: ray.io/v1\nkind: RayService\nspec:\n  serveConfigV2: |\n    applications:\n    - args:\n        llm_configs:\n        - {}\n",
            ray(args, "          ")
        ),
        Shape::VllmRuntime => {
            let (named, rest) = named_keys(args);
            let key = |i: usize, name: &str| {
                named[i].as_ref().map_or(String::new(), |value| format!("    {name}: {value}\n"))
            };
            format!(
                "apiVersion: production-stack.vllm.ai/v1alpha1\nkind: VLLMRuntime\nspec:\n  model:\n    modelURL: m\n{}  vllmConfig:\n{}    extraArgs: {rest}\n",
                key(0, "maxNumSeqs"),
                key(1, "gpuMemoryUtilization").replace(": ", ": \"").replace('\n', "\"\n")
            )
        }
        Shape::ProductionStack => {
            let (named, rest) = named_keys(args);
            let key = |i: usize, name: &str| {
                named[i].as_ref().map_or(String::new(), |value| format!("      {name}: {value}\n"))
            };
            format!(
                "servingEngineSpec:\n  modelSpec:\n  - name: m\n    modelURL: m\n    vllmConfig:\n{}{}      extraArgs: {rest}\n",
                key(0, "maxNumSeqs"),
                key(1, "gpuMemoryUtilization")
            )
        }
        Shape::List(index) => LISTS[index].0.replace("LIST", &json(&words)),
    }
}

/// Flags as keys of a mapping, each once.
fn keys(args: &[Arg], indent: &str, joined: &str) -> String {
    let mut written = Vec::new();
    let mut text = String::new();
    for (flag, value, ..) in args {
        if !written.contains(flag) {
            let value = value.as_ref().map_or_else(|| "true".to_owned(), |value| quoted(value));
            text += &format!("{indent}{}: {value}\n", flag.replace('-', joined));
        }
        written.push(flag);
    }
    text
}

fn ray(args: &[Arg], indent: &str) -> String {
    format!(
        "model_loading_config: {{model_id: m}}\n{indent}engine_kwargs:\n{}",
        keys(args, &format!("{indent}  "), "_").trim_end()
    )
}

/// The values of the flags that have keys of their own in the production stack, and a list of all other words.
fn named_keys(args: &[Arg]) -> ([Option<String>; 2], String) {
    let value = |flag: &str| args.iter().find(|(name, ..)| *name == flag).and_then(|(_, value, ..)| value.clone());
    let rest: Vec<Arg> =
        args.iter().filter(|(name, ..)| !["max-num-seqs", "gpu-memory-utilization"].contains(name)).cloned().collect();
    ([value("max-num-seqs"), value("gpu-memory-utilization")], json(&words(&rest)))
}

/// The next value of a YAML file; none at the end of a list or mapping.
fn value(events: &mut dyn Iterator<Item = Event<'_>>) -> Option<Value> {
    match events.next()? {
        Event::Scalar(text, ..) => Some(Value::String(text.into_owned())),
        Event::SequenceStart(..) => Some(Value::Array(std::iter::from_fn(|| value(events)).collect())),
        Event::MappingStart(..) => {
            let mut map = serde_json::Map::new();
            while let Some(key) = value(events) {
                map.insert(key.as_str().unwrap().to_owned(), value(events).unwrap());
            }
            Some(Value::Object(map))
        }
        Event::SequenceEnd | Event::MappingEnd | Event::StreamEnd | Event::DocumentEnd => None,
        _ => value(events),
    }
}

fn parsed(text: &str) -> Value {
    value(&mut Parser::new_from_str(text).map(|event| event.unwrap().0)).unwrap()
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// The last value of a unit's key, its lines joined.
fn of_unit(text: &str, key: &str) -> String {
    let joined = text.replace("\\\n", " ");
    joined.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).next_back().unwrap().to_owned()
}

/// A command line and its environment.
type Run = (Vec<String>, Vec<(String, String)>);

/// What a file would run.
fn runs(shape: Shape, text: &str) -> Vec<Run> {
    let shell = |script: String| vec![(vec!["sh".to_owned(), "-c".to_owned(), script], Vec::new())];
    let container = |container: &Value| {
        let entry = vec!["vllm".to_owned(), "serve".to_owned()];
        let command = strings(&container["command"]);
        let command = if command.is_empty() { entry } else { command };
        let pair = |v: &Value| (v["name"].as_str().unwrap().to_owned(), v["value"].as_str().unwrap().to_owned());
        let env = container["env"].as_array().into_iter().flatten().map(pair).collect();
        (command.into_iter().chain(strings(&container["args"])).collect(), env)
    };
    let engine = |words: Vec<String>| {
        let head = ["vllm", "serve", "m"].map(str::to_owned);
        vec![(head.into_iter().chain(words).collect::<Vec<_>>(), Vec::new())]
    };
    // A mapping of flags, as vLLM and Ray read it.
    let flags = |map: &Value| {
        let words = map.as_object().unwrap().iter().flat_map(|(key, value)| match value.as_str().unwrap() {
            "true" => vec![format!("--{key}")],
            value => vec![format!("--{key}"), value.to_owned()],
        });
        engine(words.collect())
    };
    let kwargs = |text: &str| flags(&parsed(text)["applications"][0]["args"]["llm_configs"][0]["engine_kwargs"]);
    // Keys of their own come before all other words.
    let named = |seqs: &Value, memory: &Value, rest: &Value| {
        let named = [("--max-num-seqs", seqs), ("--gpu-memory-utilization", memory)];
        let named = named.iter().filter_map(|(flag, value)| Some([(*flag).to_owned(), value.as_str()?.to_owned()]));
        engine(named.flatten().chain(strings(rest)).collect())
    };
    match shape {
        Shape::ScriptVariable | Shape::ScriptValues => shell(text.to_owned()),
        Shape::UnitEnvironment => {
            let value = of_unit(text, "Environment");
            let value = value.split("\"LIMITS=").nth(1).unwrap().trim_end_matches('"').to_owned();
            let command = format!("exec {}", of_unit(text, "ExecStart"));
            vec![(vec!["sh".into(), "-c".into(), command], vec![("LIMITS".into(), value)])]
        }
        Shape::PresetVariable => {
            let value = &parsed(text)["spec"]["template"]["containers"][0]["env"][0]["value"];
            engine(value.as_str().unwrap().split_whitespace().map(str::to_owned).collect())
        }
        Shape::ConfigFile => flags(&parsed(text)),
        Shape::RayServe => kwargs(text),
        Shape::RayService => kwargs(parsed(text)["spec"]["serveConfigV2"].as_str().unwrap()),
        Shape::VllmRuntime => {
            let spec = &parsed(text)["spec"];
            let config = &spec["vllmConfig"];
            named(&spec["model"]["maxNumSeqs"], &config["gpuMemoryUtilization"], &config["extraArgs"])
        }
        Shape::ProductionStack => {
            let config = &parsed(text)["servingEngineSpec"]["modelSpec"][0]["vllmConfig"];
            named(&config["maxNumSeqs"], &config["gpuMemoryUtilization"], &config["extraArgs"])
        }
        Shape::List(index) => {
            let (at, inner) =
                LISTS[index].1.split_once('#').map_or((LISTS[index].1, None), |(at, inner)| (at, Some(inner)));
            let there = parsed(text).pointer(at).unwrap().clone();
            let list = match inner {
                Some(inner) => parsed(there.as_str().unwrap()).pointer(inner).unwrap().clone(),
                None => there,
            };
            engine(strings(&list))
        }
        Shape::Unit | Shape::UnitWithShell => shell(format!("exec {}", of_unit(text, "ExecStart"))),
        Shape::Quadlet => shell(format!("exec vllm serve {}", of_unit(text, "Exec"))),
        Shape::ShellScript | Shape::DockerRun => shell(text.to_owned()),
        Shape::ConfigMap => shell(parsed(text)["data"]["run.sh"].as_str().unwrap().to_owned()),
        Shape::Compose => {
            let service = &parsed(text)["services"]["chat"];
            vec![container(&serde_json::json!({"args": service["command"]}))]
        }
        Shape::ComposeText => {
            let service = &parsed(text)["services"]["chat"];
            shell(format!("exec vllm serve {}", service["command"].as_str().unwrap()))
        }
        Shape::LeaderAndWorker => {
            let template = &parsed(text)["spec"]["leaderWorkerTemplate"];
            let one = |role: &str| container(&template[role]["spec"]["containers"][0]);
            vec![one("leaderTemplate"), one("workerTemplate")]
        }
        _ => vec![container(&parsed(text)["spec"]["template"]["spec"]["containers"][1])],
    }
}

/// The flags and values that each engine of a file is started with, in their order.
fn started(folder: &Path, shape: Shape, text: &str) -> Vec<Vec<(String, Option<String>)>> {
    let record = folder.join("words");
    let mut engines = Vec::new();
    for (argv, env) in runs(shape, text) {
        std::fs::write(&record, "").unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.display());
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).envs(env).env("PATH", path).env("RECORD", &record);
        let output = command.output().unwrap_or_else(|e| panic!("{argv:?}: {e}"));
        assert!(output.status.success(), "{argv:?}: {output:?}");
        let recorded = std::fs::read_to_string(&record).unwrap();
        let words: Vec<&str> = recorded.lines().collect();
        // Of `docker run`, the words behind the image are the engine's.
        let image = words.iter().position(|word| word.starts_with("vllm/")).unwrap_or(0);
        let words = &words[image..];
        let mut flags = Vec::new();
        for (i, word) in words.iter().enumerate() {
            let Some(name) = word.strip_prefix("--") else { continue };
            let next = words.get(i + 1).filter(|next| !next.starts_with("--"));
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (name, next.copied()),
            };
            flags.push((name.replace('_', "-"), value.map(str::to_owned)));
        }
        engines.push(flags);
    }
    engines
}

fn arg() -> impl Strategy<Value = Arg> {
    let tuned =
        |(i, n): (usize, u32)| (TUNED[i], Some(if i == 0 { format!("0.{}", 5 + n % 5) } else { n.to_string() }));
    let which = prop_oneof![
        (0..TUNED.len(), 1..2000_u32).prop_map(tuned),
        (0..OTHERS.len()).prop_map(|i| (OTHERS[i].0, OTHERS[i].1.map(str::to_owned))),
    ];
    (which, any::<bool>(), any::<bool>())
        .prop_map(|((flag, value), glued, underscores)| (flag, value, glued, underscores))
}

#[test]
fn the_engine_is_started_with_the_intended_flags_once() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    for name in ["vllm", "python3", "docker"] {
        let path = folder.path().join(name);
        std::fs::write(&path, "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >> \"$RECORD\"\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let config = Config { failure_persistence: None, cases: 400, ..Config::default() };
    let values = (501..999_u32, 2001..9000_u32, 2001..9000_u32);
    let shapes: Vec<Shape> = SHAPES.into_iter().chain((0..LISTS.len()).map(Shape::List)).collect();
    let strategy = (prop::sample::select(shapes), prop::collection::vec(arg(), 0..7), values);
    let case = |(shape, mut args, values): (Shape, Vec<Arg>, (u32, u32, u32))| {
        if matches!(shape, Shape::Variable | Shape::ScriptVariable | Shape::UnitEnvironment | Shape::PresetVariable) {
            // Words of a variable have no quotes.
            args.retain(|(flag, ..)| *flag != "speculative-config");
        }
        // A variable or a line that holds no flag is no place for arguments.
        args.insert(0, ("max-model-len", Some("1".to_owned()), false, false));
        let numbers = [f64::from(values.0) / 1000.0, values.1.into(), values.2.into()];
        let setpoints = [Setpoint::Real(numbers[0]), Setpoint::Int(values.1.into()), Setpoint::Int(values.2.into())];
        let settings = TUNED.iter().zip(setpoints).map(|(name, value)| Setting { name: (*name).to_owned(), value });
        let intended = IntendedFlags { settings: settings.collect(), ..IntendedFlags::default() };
        let before = render(shape, &args);
        let after =
            export("m", &before, &intended, &Flags::of(autotune::settings::EngineKind::Vllm, TUNED), &|_, _| {
                Vec::new()
            });
        let after = after.map_err(|problems| TestCaseError::fail(format!("{shape:?}\n{}", problems.render())))?.text;
        let tuned = |(name, _): &(String, Option<String>)| TUNED.contains(&name.as_str());
        let (old, new) = (started(folder.path(), shape, &before), started(folder.path(), shape, &after));
        prop_assert_eq!(old.len(), new.len());
        for (old, new) in old.iter().zip(&new) {
            let mut set: Vec<(String, f64)> = new
                .iter()
                .filter(|flag| tuned(flag))
                .map(|(name, value)| (name.clone(), value.as_ref().unwrap().parse().unwrap()))
                .collect();
            set.sort_by(|a, b| a.0.cmp(&b.0));
            let expected: Vec<(String, f64)> =
                TUNED.iter().zip(numbers).map(|(name, value)| ((*name).to_owned(), value)).collect();
            prop_assert_eq!(set, expected, "{:?}\n{}", shape, &after);
            let others =
                |flags: &[(String, Option<String>)]| flags.iter().filter(|f| !tuned(f)).cloned().collect::<Vec<_>>();
            prop_assert_eq!(others(old), others(new), "{:?}\n{}", shape, &after);
        }
        Ok(())
    };
    TestRunner::new(config).run(&strategy, case).unwrap_or_else(|failure| panic!("{failure}"));
}
