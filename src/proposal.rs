//! A space file for an engine that is deployed already. What it is started with is kept. What is not known is proposed and marked as proposed.
//!
//! It makes text of words. It reads no file and asks no server.

use std::fmt::Write;

use crate::engine::effective::Effective;
use crate::engine::programs::{basename, engine_in, is_image, of_image};
use crate::export::flags::is_placeholder;
use crate::export::shapes::Engine;
use crate::settings::{OUR_FLAGS, flag_name, holds_secret, redact_words, refuses, serves_for_others};
use crate::space::Value;
use crate::units::Seconds;

const MEMORY_KNOB: &str = "gpu-memory-utilization";
/// The parameters that are proposed, each with the values that it is searched over.
pub const TUNED: [&str; 3] = [MEMORY_KNOB, "max-num-seqs", "max-num-batched-tokens"];
const SEQUENCES: [i64; 7] = [16, 32, 64, 128, 256, 512, 1024];
const TOKENS: [i64; 5] = [2048, 4096, 8192, 16384, 32768];
/// Tokens of a proposed prompt and answer at most, where `max-model-len` does not ask for less.
const PROMPT: i64 = 1536;
const ANSWER: i64 = 256;
/// Flags of a server that others reach; the tuner's engine listens on the loopback address alone.
const OF_A_SERVER: [&str; 8] = [
    "uds",
    "ssl-keyfile",
    "ssl-certfile",
    "ssl-ca-certs",
    "ssl-cert-reqs",
    "root-path",
    "allowed-origins",
    "enable-ssl-refresh",
];

/// An engine as it is started today.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deployment {
    pub simulated: bool,
    /// The program with its leading words and the model.
    pub command: Vec<String>,
    pub flags: Vec<Vec<String>>,
    pub env: Vec<(String, String)>,
    /// What was not taken over, a sentence each.
    pub notes: Vec<String>,
}

impl Deployment {
    /// By the words of its command; `entry` says that an image starts `vllm serve` where they name no program.
    pub fn of_words(words: &[String], entry: bool) -> Result<Self, String> {
        let texts: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut it = Self::default();
        let rest = match engine_in(&texts) {
            Some((Engine::Vllm, first)) => {
                it.program(&words[..first]);
                &words[first..]
            }
            Some((other, _)) => {
                return Err(format!("`init` knows vLLM alone: write the space file of {} by hand", other.name()));
            }
            None if entry => {
                it.serve();
                words
            }
            None => {
                let first = texts.first().copied().unwrap_or_default();
                return Err(format!("`{first}` is not known to start an engine: write vllm serve MODEL and its flags"));
            }
        };
        it.arguments(rest);
        if it.command.last().is_some_and(|word| word == "serve") {
            it.notes.push("The model is not told there: add it behind serve.".to_owned());
        }
        Ok(it)
    }

    /// By what a server says of itself.
    pub fn of_server(model: &str, effective: &Effective) -> Self {
        const SHAPE: [&str; 5] =
            ["max-model-len", "tensor-parallel-size", "pipeline-parallel-size", "quantization", "kv-cache-dtype"];
        let mut it = Self::default();
        it.serve();
        it.command.push(model.to_owned());
        for name in SHAPE.into_iter().chain(TUNED) {
            let value = effective.values.get(name).map(ToString::to_string);
            // As the engine has it by itself.
            let usual = |value: &String| value == "auto" || (value == "1" && name.ends_with("parallel-size"));
            it.flags.extend(value.filter(|v| !usual(v)).map(|value| vec![format!("--{name}"), value]));
        }
        it.notes.push("A server does not tell every argument: add those that it was started with.".to_owned());
        it
    }

    fn serve(&mut self) {
        self.command = ["vllm", "serve"].map(str::to_owned).to_vec();
    }

    /// The words before the arguments.
    fn program(&mut self, words: &[String]) {
        let named = |name: &str| words.iter().any(|word| basename(word) == name);
        let module = words.last().map_or("", String::as_str);
        if named("docker") || named("podman") || named("nerdctl") {
            let image = words.iter().find(|word| is_image(word) && of_image(word).is_some());
            self.notes.extend(image.map(|image| format!("The engine ran in the container {image}: run autotune inside that image (docs/kubernetes.md). Options of the container are not taken over.")));
            return self.serve();
        }
        if named("autotune") && module == "sim-engine" {
            self.simulated = true;
            return;
        }
        if serves_for_others(module) {
            self.notes.push(format!("{module} is started by others: here vllm serve takes its arguments."));
            return self.serve();
        }
        for word in words {
            match word.split_once('=').filter(|(name, _)| !name.starts_with('-') && !name.contains('/')) {
                Some((name, _)) if self.command.is_empty() && holds_secret(name, word) => {
                    self.notes.push(format!("{name} holds a secret: the environment of autotune may have it."));
                }
                Some((name, value)) if self.command.is_empty() => self.env.push((name.to_owned(), value.to_owned())),
                None if self.command.is_empty() && ["exec", "nohup", "env"].contains(&word.as_str()) => {}
                _ => self.command.push(word.clone()),
            }
        }
    }

    fn arguments(&mut self, words: &[String]) {
        let is_flag = |word: &str| word.starts_with('-') && word.parse::<f64>().is_err();
        let mut groups: Vec<Vec<String>> = Vec::new();
        for (at, word) in words.iter().enumerate() {
            match groups.last_mut() {
                _ if is_flag(word) => groups.push(match word.split_once('=').filter(|_| word.starts_with("--")) {
                    Some((name, value)) => vec![name.to_owned(), value.to_owned()],
                    None => vec![word.clone()],
                }),
                Some(group) => group.push(word.clone()),
                None if at == 0 && !is_placeholder(word) => self.command.push(word.clone()),
                None => self.notes.push(format!("{word} is not known here: add what it stands for.")),
            }
        }
        let serves = self.command.iter().any(|word| word == "serve");
        for group in groups {
            let name = named(&group);
            if OUR_FLAGS.contains(&name.as_str()) || OF_A_SERVER.contains(&name.as_str()) {
                continue;
            }
            if redact_words(&group) != group {
                self.notes.push(format!("--{name} holds a secret and is left out."));
            } else if let Some(unknown) = group.iter().find(|word| is_placeholder(word)) {
                self.notes.push(format!("--{name} is {unknown} there: add its value."));
            } else if name == "model" && serves && group.len() == 2 {
                // `vllm serve` wants it without a flag.
                self.command.extend(group.into_iter().skip(1));
            } else {
                // The last of a switch and its opposite counts.
                let switch = |name: &str| name.strip_prefix("no-").unwrap_or(name).to_owned();
                self.flags.retain(|other| switch(&named(other)) != switch(&name));
                self.flags.push(group);
            }
        }
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.flags.iter().find(|group| named(group) == name)?.get(1).map(String::as_str)
    }

    fn has(&self, name: &str) -> bool {
        self.flags.iter().any(|group| named(group) == name)
    }
}

fn named(group: &[String]) -> String {
    flag_name(group.first().map_or("", |word| word.trim_start_matches('-')))
}

/// What a person asks for; what is left open is proposed.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Where the words are from.
    pub source: String,
    /// Promises as `[slo]` writes them: key and time.
    pub promises: Vec<(String, Seconds)>,
    /// The section `[workload]`, with its head.
    pub workload: Option<String>,
    pub gpu_time: Seconds,
    /// What is said beside the budget.
    pub of_budget: String,
    /// More notes about the deployment.
    pub notes: Vec<String>,
}

/// The text of a space file.
pub fn space_file(deployment: &Deployment, wishes: &Wishes, file: &str) -> String {
    let mut text = String::new();
    let (mut notes, parameters) = (deployment.notes.clone(), parameters(deployment));
    notes.extend(parameters.notes.iter().cloned());
    notes.extend(wishes.notes.iter().cloned());
    // Writing to a String cannot fail, here and below.
    let _ = write!(
        text,
        "# From {}.\n#   autotune check {file}     says what it would do\n#   autotune {file}           does it\n# Every key: docs/space-file.md, or `autotune schema`.\n\n",
        wishes.source.replace(char::is_control, " ")
    );
    if wishes.promises.is_empty() {
        text += "[slo]  # proposed: write what you promise; metrics are ttft, tpot, itl and e2e, at any quantile\n\
                 ttft_p99 = \"1s\"  # 99 % of requests get their first token within this time\n\
                 tpot_p99 = \"50ms\"  # and then a token in this time or less\n";
    } else {
        text += "[slo]\n";
        for (key, at_most) in &wishes.promises {
            let whole = at_most.0 >= 1.0 && at_most.0.fract() == 0.0;
            let (number, unit) = if whole { (at_most.0, "s") } else { (at_most.millis(), "ms") };
            let _ = writeln!(text, "{key} = \"{number}{unit}\"");
        }
    }
    let _ = write!(text, "\n[engine]\nkind = \"{}\"\n", if deployment.simulated { "simulated" } else { "vllm" });
    if !deployment.simulated {
        let _ = writeln!(text, "command = [{}]", listed(&deployment.command));
    }
    let fixed: Vec<&Vec<String>> = deployment.flags.iter().filter(|group| !parameters.tunes(group)).collect();
    if !fixed.is_empty() {
        text += "args = [  # the same for every trial\n";
        for group in fixed {
            let _ = writeln!(text, "  {},", listed(group));
        }
        text += "]\n";
    }
    if !deployment.env.is_empty() {
        let env: Vec<String> = deployment.env.iter().map(|(n, v)| format!("{} = {}", quoted(n), quoted(v))).collect();
        let _ = writeln!(text, "env = {{ {} }}", env.join(", "));
    }
    if !deployment.simulated {
        text += "start_timeout = \"15m\"  # the first start may read the weights from cold storage\n\
                 start_estimate = \"60s\"  # what later ones take; for the forecast alone\n";
    }
    for note in &notes {
        let _ = writeln!(text, "# {}", note.replace(char::is_control, " "));
    }
    text += "\n";
    text += &wishes.workload.clone().unwrap_or_else(|| proposed_workload(deployment));
    text += "\n[parameters]  # any flag of the engine; `default` is what you run today, and without it the engine tells its own\n";
    for line in &parameters.lines {
        let _ = writeln!(text, "{line}");
    }
    if parameters.both {
        text += "\n[search]\nconstraints = [\"max-num-batched-tokens >= max-num-seqs\"]\n";
    }
    let minutes = (wishes.gpu_time.0 / 60.0).ceil().max(1.0);
    let _ = write!(text, "\n[budget]\ngpu_time = \"{minutes}m\"  # {}\n", wishes.of_budget);
    text
}

fn listed(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", ")
}

/// A basic string of TOML: JSON's escapes are among its own.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default().replace('\u{7f}', "\\u007f")
}

fn proposed_workload(deployment: &Deployment) -> String {
    let longest = deployment.value("max-model-len").and_then(|text| text.parse::<i64>().ok());
    // Prompt and answer fit, with room for a chat's template.
    let prompt = longest.map_or(PROMPT, |longest| PROMPT.min(longest / 2)).max(4);
    let answer = longest.map_or(ANSWER, |longest| ANSWER.min(longest / 4)).max(4);
    format!(
        "[workload]  # proposed: the answer is for this traffic, so make it yours. kind = \"jsonl\", \"sharegpt\" or \"trace\" reads a file\n\
         kind = \"random\"  # independent requests; kind = \"conversations\" resends what was said before\n\
         input_tokens = {{ distribution = \"uniform\", min = {}, max = {prompt} }}\n\
         output_tokens = {{ distribution = \"uniform\", min = {}, max = {answer} }}\n",
        prompt / 3,
        answer / 4,
    )
}

/// The lines of `[parameters]`.
#[derive(Default)]
struct Parameters {
    lines: Vec<String>,
    names: Vec<&'static str>,
    notes: Vec<String>,
    /// Whether both limits of the scheduler are tuned.
    both: bool,
}

impl Parameters {
    fn tunes(&self, group: &[String]) -> bool {
        self.names.contains(&named(group).as_str())
    }

    fn add(&mut self, name: &'static str, values: &str, default: Option<&str>) {
        let default = default.map_or(String::new(), |value| format!(", default = {value}"));
        self.lines.push(format!("{name} = {{ {values}{default} }}"));
        self.names.push(name);
    }
}

fn parameters(deployment: &Deployment) -> Parameters {
    let mut all = Parameters::default();
    let sized = ["kv-cache-memory-bytes", "num-gpu-blocks-override"].into_iter().find(|flag| deployment.has(flag));
    let given = |name: &str| deployment.value(name);
    match (sized, given(MEMORY_KNOB).map(str::parse::<f64>)) {
        (Some(flag), _) => {
            all.notes.push(format!("{MEMORY_KNOB} is not tuned: --{flag} fixes the size of the KV cache."));
        }
        (None, Some(now)) if now.as_ref().map_or(true, |now| refuses(MEMORY_KNOB, &Value::Real(*now)).is_some()) => {
            all.notes.push(format!("{MEMORY_KNOB} is not tuned: the engine does not take its value."));
        }
        (None, None) => all.add(MEMORY_KNOB, "min = 0.88, max = 0.97, step = 0.01", None),
        (None, Some(now)) => {
            let now = now.unwrap_or_default();
            let mut values: Vec<f64> = (88..=97).map(|percent| f64::from(percent) / 100.0).collect();
            if !values.iter().any(|value| Value::Real(*value).same(&Value::Real(now))) {
                values.push(now);
                values.sort_by(f64::total_cmp);
            }
            let values: Vec<String> = values.into_iter().map(real).collect();
            all.add(MEMORY_KNOB, &format!("values = [{}]", values.join(", ")), Some(&real(now)));
        }
    }
    let whole = deployment.has("no-enable-chunked-prefill") || given("enable-chunked-prefill") == Some("false");
    let longest = given("max-model-len").and_then(|text| text.parse::<i64>().ok());
    for (name, usual, fewest) in [("max-num-seqs", &SEQUENCES[..], 16), ("max-num-batched-tokens", &TOKENS, 2048)] {
        let now = given(name).map(str::parse::<i64>);
        let now = match now {
            Some(Ok(now)) if refuses(name, &Value::Int(now)).is_none() => Some(now),
            Some(_) => {
                all.notes.push(format!("{name} is not tuned: its value is no plain number that the engine takes."));
                continue;
            }
            None => None,
        };
        // Without chunks, a step takes whole prompts.
        let least = if whole && name == "max-num-batched-tokens" { longest } else { Some(1) };
        let Some(least) = least else {
            all.notes.push(format!("{name} is not tuned: without chunked prefill it must be max-model-len or more."));
            continue;
        };
        let mut values: Vec<i64> = usual.iter().copied().filter(|value| *value >= least).collect();
        if let Some(now) = now {
            values.extend([now, now / 4, now / 2].into_iter().filter(|v| *v == now || (now < fewest && *v >= 1)));
        }
        values.sort_unstable();
        values.dedup();
        if values.len() < 2 {
            values.extend([least, 2 * least]);
            values.sort_unstable();
            values.dedup();
        }
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        all.add(name, &format!("values = [{}]", values.join(", ")), now.map(|now| now.to_string()).as_deref());
    }
    all.both = TUNED[1..].iter().all(|name| all.names.contains(name));
    all
}

/// A real number of TOML.
fn real(number: f64) -> String {
    format!("{number:?}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::settings::{Plan, parse};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn proposed(deployment: &Deployment) -> String {
        let wishes = Wishes { gpu_time: Seconds(1800.0), of_budget: "proposed".into(), ..Wishes::default() };
        space_file(deployment, &wishes, "space.toml")
    }

    fn plan(line: &str) -> (Plan, String) {
        let text = proposed(&Deployment::of_words(&words(line), false).unwrap());
        (parse("space.toml", &text).unwrap_or_else(|problems| panic!("{}", problems.render())), text)
    }

    #[test]
    fn what_runs_today_is_the_baseline_and_what_is_tuned_is_not_fixed() {
        let (plan, text) = plan(
            "VLLM_USE_V1=1 exec vllm serve org/model --host 0.0.0.0 --port 8000 --max_num_seqs=96 --max-model-len 4096 --gpu-memory-utilization 0.85 --enable-prefix-caching",
        );
        assert_eq!(plan.engine.command, ["vllm", "serve", "org/model"]);
        assert_eq!(plan.engine.args, ["--max-model-len", "4096", "--enable-prefix-caching"]);
        assert_eq!(plan.engine.env["VLLM_USE_V1"], "1");
        let baseline = plan.space.baseline();
        assert_eq!(baseline.get("max-num-seqs"), Some(&Value::Int(96)));
        assert_eq!(baseline.get(MEMORY_KNOB), Some(&Value::Real(0.85)));
        assert_eq!(baseline.get("max-num-batched-tokens"), None, "{text}");
        assert!(text.contains("constraints") && text.contains("proposed"), "{text}");
    }

    #[test]
    fn the_last_of_a_switch_and_its_opposite_counts() {
        let (plan, text) = plan("vllm serve m --no-enable-prefix-caching --enforce-eager --enable-prefix-caching");
        assert_eq!(plan.engine.args, ["--enforce-eager", "--enable-prefix-caching"], "{text}");
    }

    #[test]
    fn other_ways_to_start_vllm_are_read_too() {
        let (docker, text) =
            plan("docker run --gpus all docker.io/vllm/vllm-openai:v0.24.0 --model org/model --max-num-seqs 8");
        assert_eq!(docker.engine.command, ["vllm", "serve", "org/model"]);
        assert!(
            text.contains("ran in the container docker.io/vllm/vllm-openai:v0.24.0: run autotune inside"),
            "{text}"
        );
        let (module, _) = plan("python3 -m vllm.entrypoints.openai.api_server --model m --no-enable-chunked-prefill");
        assert_eq!(module.engine.command, ["python3", "-m", "vllm.entrypoints.openai.api_server"]);
        assert!(module.space.parameter("max-num-batched-tokens").is_none());
        let (small, text) = plan("vllm serve m --max-model-len 512 --kv-cache-memory-bytes 1G --max-num-seqs 4");
        assert!(
            small.space.parameter(MEMORY_KNOB).is_none() && text.contains("--kv-cache-memory-bytes fixes"),
            "{text}"
        );
        assert!(text.contains("max = 256 }") && text.contains("values = [1, 2, 4, 16"), "{text}");
        assert!(
            Deployment::of_words(&words("python3 -m sglang.launch_server --x"), false).unwrap_err().contains("SGLang")
        );
        let unknown = Deployment::of_words(&words("nginx -g daemon"), false).unwrap_err();
        assert_eq!(unknown, "`nginx` is not known to start an engine: write vllm serve MODEL and its flags");
        assert_eq!(Deployment::of_words(&words("--model m"), true).unwrap().command, ["vllm", "serve", "m"]);
    }

    #[test]
    fn secrets_and_what_is_set_elsewhere_are_named_and_left_out() {
        let (plan, text) =
            plan("HF_TOKEN=hf_plantedplantedplanted vllm serve m --api-key planted-secret-key --max-num-seqs $SEQS");
        assert!(!text.contains("planted"), "{text}");
        assert_eq!(plan.engine.args, Vec::<String>::new());
        assert!(text.contains("--api-key holds a secret") && text.contains("--max-num-seqs is $SEQS there"), "{text}");
    }

    #[test]
    fn a_server_tells_its_shape() {
        let mut effective = Effective::default();
        for (name, value) in [
            ("max-model-len", Value::Int(8192)),
            ("tensor-parallel-size", Value::Int(1)),
            ("max-num-seqs", Value::Int(256)),
            (MEMORY_KNOB, Value::Real(0.92)),
        ] {
            effective.values.insert(name.to_owned(), value);
        }
        let text = proposed(&Deployment::of_server("org/model", &effective));
        let plan = parse("space.toml", &text).unwrap();
        assert_eq!((plan.engine.args.len(), plan.space.baseline().0.len()), (2, 2), "{text}");
    }

    #[test]
    fn every_manifest_that_an_export_edits_becomes_a_valid_space_file() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/manifests");
        let mut told = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_manifest = path.extension().is_none_or(|e| e != "diff");
            let Some(text) = std::fs::read_to_string(&path).ok().filter(|_| is_manifest) else { continue };
            match crate::export::deployed::deployed("m", &text, None, &TUNED) {
                Ok(engine) => {
                    told += 1;
                    let deployment =
                        Deployment::of_words(&engine.words, true).unwrap_or_else(|e| panic!("{path:?}: {e}"));
                    let text = proposed(&deployment);
                    assert!(!deployment.command.is_empty(), "{path:?}");
                    parse("space.toml", &text).unwrap_or_else(|p| panic!("{path:?}\n{}\n{text}", p.render()));
                }
                Err(problems) => assert!(problems.render().contains("hint:"), "{path:?}\n{}", problems.render()),
            }
        }
        assert!(told > 20, "{told}");
    }

    proptest! {
        #[test]
        fn whatever_the_words_are_the_file_is_valid(words in prop::collection::vec("[ -~é\\n]{0,12}|--[a-z-]{1,20}(=[0-9a-z.]{0,6})?", 0..8)) {
            let mut line = vec!["vllm".to_owned(), "serve".to_owned(), "m".to_owned()];
            line.extend(words);
            let text = proposed(&Deployment::of_words(&line, false).unwrap());
            // A flag that vLLM refuses is refused here too, with its place; nothing else may be wrong.
            if let Err(problems) = parse("space.toml", &text) {
                let said = problems.render();
                prop_assert!(said.contains("engine"), "{said}\n{text}");
            }
        }
    }
}
