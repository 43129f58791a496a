//! `[engine]`: how the engine is started and watched, and that nothing tuned is also fixed there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use toml::de::DeTable;

use super::declared::plan;
use super::domains;
use super::engine_kind::EngineKind;
use super::format::{Key, Kind, POSITIVE_TIME, Table, Variant};
use super::reader::{self, Fields, Place};
use crate::engine::live::LIVE_FILE;
use crate::engine::programs::Engine;
use crate::engine::programs::engine_in;
use crate::engine::{Quantity, dialect, variable};
use crate::problems::Problem;
use crate::space::{Value, plain_name as flag_name};

const WORDS: Kind = Kind::Texts { at_least: 0 };
const COMMAND: Kind = Kind::Texts { at_least: 1 };

pub static ENGINE: Table = Table {
    variant: Variant::Word("kind"),
    rows: &[
        ENGINE_ROWS,
        &[Key::required(Kind::Word(&["mocker", "vllm", "sglang", "trtllm"]))
            .named("backend", "The engine of each worker: `python3 -m dynamo.BACKEND`.")
            .within(&["dynamo"])],
        GRAPH_ROWS,
    ],
};

plan! {
    /// How the engine is started and watched.
    pub struct EnginePlan of &[], rows ENGINE_ROWS {
        /// Which engine is tuned.
        kind: EngineKind = [Key::required(Kind::Word(&["vllm", "sglang", "dynamo", "simulated"]))], read by kind;
        /// The program and its leading words.
        command: Vec<String> = [
            Key::required(COMMAND).within(&["vllm", "sglang"]),
            Key::default(WORDS, "[]").says("The program; empty for the embedded engine.").within(&["simulated"]),
            Key::default(COMMAND, "[\"python3\"]").says("The Python that has Dynamo.").within(&["dynamo"])
        ];
        /// Arguments that are the same for every trial.
        args: Vec<String> = [Key::default(WORDS, "[]")];
        /// Environment variables that are added to ours.
        env: BTreeMap<String, String> = [Key::default(Kind::TextTable, "{}")];
        /// A fixed port; without it each launch takes a free one.
        port: Option<u16> = [Key::optional(Kind::Integer { min: 1, max: 65_535 })];
        /// How long a start may take.
        start_timeout: Duration = [Key::default(POSITIVE_TIME, "\"10m\"")];
        /// How long no token may arrive while requests wait.
        stall_timeout: Duration = [Key::default(POSITIVE_TIME, "\"20s\"")];
        /// How long the engine may take to end before it is killed.
        stop_timeout: Duration = [Key::default(POSITIVE_TIME, "\"15s\"")];
        /// What a start is expected to take, until one was measured.
        start_estimate: Duration = [
            Key::default(POSITIVE_TIME, "\"60s\"").within(&["vllm", "sglang", "dynamo"]),
            Key::default(POSITIVE_TIME, "\"1s\"").within(&["simulated"])
        ];
        /// Whether the search changes the limits of a running engine instead of launching it for each point. The best point is launched for its proof, unless the engine that runs was launched with its values.
        live: bool where serde(default) = [
            Key::default(Kind::Switch, "true").within(&["vllm"]),
            Key::default(Kind::Switch, "false").within(&["simulated"])
        ], read by |fields: &Fields| Some(fields.get("live").unwrap_or(false));
        /// The processes of a graph; `None` if the engine is one.
        graph: Option<GraphPlan> where serde(default, skip_serializing_if = "Option::is_none") = [], read by graph;
    }
}

plan! {
    /// A frontend and its workers.
    pub struct GraphPlan of &["dynamo"], rows GRAPH_ROWS {
        /// How many workers the frontend routes to.
        workers: u32 = [Key::default(Kind::Integer { min: 1, max: 64 }, "1")];
        /// Arguments of `python3 -m dynamo.frontend` that are the same for every trial; `args` are those of each worker.
        frontend_args: Vec<String> = [Key::default(WORDS, "[]")];
        /// The Python module of a worker.
        module: String = [], read by |fields: &Fields| Some(format!("dynamo.{}", fields.word::<String>("backend")?));
    }
}

/// The processes of a graph, where the engine is one.
fn graph(fields: &Fields) -> Option<Option<GraphPlan>> {
    match fields.word::<String>("backend") {
        Some(_) => GraphPlan::read(fields).map(Some),
        None => Some(None),
    }
}

/// Flags that the tuner sets for every launch.
pub const OUR_FLAGS: [&str; 2] = ["port", "host"];
/// Flags of Dynamo that would undo what a graph is started with. They set its addresses, how its processes find each other, what its counters
/// are called, and the engine that is simulated.
const FLAGS_OF_GRAPHS: [&str; 8] = [
    "http-port",
    "http-host",
    "namespace",
    "discovery-backend",
    "request-plane",
    "event-plane",
    "metrics-prefix",
    "engine-type",
];

/// Variables that a graph sets for its processes, for the same ends.
const VARIABLES_OF_GRAPHS: [&str; 12] = [
    "DYN_DISCOVERY_BACKEND",
    "DYN_FILE_KV",
    "DYN_REQUEST_PLANE",
    "DYN_EVENT_PLANE",
    "DYN_TCP_RPC_HOST",
    "DYN_TCP_RESPONSE_STREAM_HOST",
    "DYN_EVENT_PLANE_HOST",
    "DYN_SYSTEM_HOST",
    "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS",
    "DYN_SYSTEM_PORT",
    "DYN_HTTP_HOST",
    "DYN_HTTP_PORT",
];
/// Variables that every launch sets: folders that are removed with the engine, and the limits of a live one.
const OUR_VARIABLES: [&str; 3] = ["TMPDIR", "VLLM_RPC_BASE_PATH", LIVE_FILE];
/// The variable with the GPUs that CUDA may use.
pub const VISIBLE_GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// Reads the section's values; [`EnginePlan::read`] makes the plan of them.
pub fn read(place: &Place, table: &DeTable, problems: &mut Vec<Problem>) -> Fields {
    let fields = reader::fields(&ENGINE, place, table, problems);
    if let Some([(program, span), ..]) = fields.texts("command")
        && program.trim().is_empty()
    {
        let hint = "name the program first, such as \"vllm\"";
        problems.push(Problem::new(span, "`engine.command` names no program", "empty", hint));
    }
    let words = fields.texts("command").unwrap_or_default();
    // The words of a shell's script are words, too.
    let words: Vec<_> = words.iter().flat_map(|(word, span)| word.split_whitespace().map(move |w| (w, span))).collect();
    if let Some([_, (module, span)]) = words.windows(2).find(|pair| pair[0].0 == "-m" && serves_for_others(pair[1].0)) {
        let message = format!("`{module}` takes no --host and --port, which every launch sets");
        let hint = "write \"vllm\", \"serve\", MODEL and its flags; `autotune export` writes the answer into the manifest of such a worker; kind = \"dynamo\" with command = [\"python3\"] launches a graph of them";
        problems.push(Problem::new(span, message, "cannot be launched", hint));
        return fields;
    }
    let texts: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    if let (Some((started, first)), Some(kind)) = (engine_in(&texts), kind(&fields))
        && let Some((word, span)) = words.get(first.saturating_sub(1))
        // The simulated engine speaks as any of them.
        && *word != "sim-engine"
    {
        let (started, own) = (started.name(), Engine::of(kind).name());
        if fields.word::<String>("backend").is_some() {
            let message = format!("the command starts {started}, and a graph of Dynamo starts its workers itself");
            let hint = "write the interpreter alone, such as command = [\"python3\"], and the worker's flags into args";
            problems.push(Problem::new(span, message, "cannot be launched", hint));
        } else if started != own {
            let message = format!("the command starts {started}, and `engine.kind` is that of {own}");
            let hint = format!("write the kind of {started}, or a command that starts {own}");
            problems.push(Problem::new(span, message, "another engine", hint));
        }
    }
    fields
}

/// The kind of engine, with that of a graph's workers.
fn kind(fields: &Fields) -> Option<EngineKind> {
    let backend = fields.word::<String>("backend");
    match (fields.word("kind")?, backend.as_deref()) {
        (EngineKind::DynamoMocker, Some("vllm")) => Some(EngineKind::DynamoVllm),
        (EngineKind::DynamoMocker, Some("sglang")) => Some(EngineKind::DynamoSglang),
        (EngineKind::DynamoMocker, Some("trtllm")) => Some(EngineKind::DynamoTrtllm),
        (kind, _) => Some(kind),
    }
}

/// Whether a Python module starts vLLM behind the server of another program: a worker of Dynamo, KServe's server.
pub fn serves_for_others(module: &str) -> bool {
    module.starts_with("dynamo.") || module == "huggingfaceserver"
}

/// Reports fixed arguments that set a tuned parameter, or a flag that is the tuner's own.
pub fn check_fixed_flags(fields: &Fields, tuned: &[String], problems: &mut Vec<Problem>) {
    for key in ["command", "args", "frontend_args"] {
        let words = fields.texts(key).unwrap_or_default();
        for (place, (word, span)) in words.iter().enumerate() {
            let Some(flag) = word.strip_prefix("--") else { continue };
            let written = flag.split_once('=').map_or(flag, |(name, _)| name);
            let name = flag_name(written);
            let glued = flag.split_once('=').map(|(_, value)| (value, span));
            if let Some((value, span)) = glued.or_else(|| words.get(place + 1).map(|(value, span)| (&**value, span)))
                && let Some(takes) = number(value).and_then(|value| domains::refuses(&name, &value))
            {
                let message = format!("the engine cannot take `{name}` {value}");
                problems.push(Problem::new(span, message, "not a value of this flag", format!("write {takes}")));
            }
            let by_variable = |tuned: &str| variable(tuned).and_then(|variable| flag_of(fields, variable));
            let tuned =
                |name: &str| tuned.iter().find(|tuned| *tuned == name || by_variable(tuned).as_deref() == Some(name));
            // `--no-x` switches x off, unless an engine really has a flag of that name and it is tuned.
            let tuned = tuned(&name).or_else(|| name.strip_prefix("no-").and_then(tuned));
            if let Some(parameter) = tuned {
                let message = format!("`{parameter}` is tuned and also fixed in `engine.{key}`");
                let hint = format!("remove --{written} here, or remove `{parameter}` from `[parameters]`");
                problems.push(Problem::new(span, message, "fixed here", hint));
            } else if OUR_FLAGS.contains(&name.as_str()) {
                let hint = if name == "port" {
                    "remove it; use engine.port for a fixed port"
                } else {
                    "remove it; the engine listens on the loopback address, and engine.port fixes its port"
                };
                let message = format!("`engine.{key}` sets --{name}, which the tuner sets itself");
                problems.push(Problem::new(span, message, "set for every launch", hint));
            }
        }
    }
}

/// The flag of Dynamo that says the same as a variable.
fn flag_of(fields: &Fields, variable: &str) -> Option<String> {
    let is_graph = fields.word::<String>("backend").is_some();
    variable.strip_prefix("DYN_").filter(|_| is_graph).map(|name| flag_name(&name.to_lowercase()))
}

/// Reports variables that a launch sets itself, those that are tuned and also fixed, and those whose flag is tuned, too.
pub fn check_variables(
    fields: &Fields,
    variables: &[(String, Range<usize>)],
    tuned: &[(&String, &Range<usize>)],
    problems: &mut Vec<Problem>,
) {
    let is_graph = fields.word::<String>("backend").is_some();
    let ours = |name: &str| OUR_VARIABLES.contains(&name) || (is_graph && VARIABLES_OF_GRAPHS.contains(&name));
    let same = |parameter: &str, name: &str| {
        variable(parameter) == Some(name) || flag_of(fields, name).as_deref() == Some(parameter)
    };
    for (name, span) in variables {
        if ours(name) {
            let message = format!("`engine.env` sets {name}, and every launch has another value");
            problems.push(Problem::new(span, message, "set for every launch", "remove it"));
        } else if let Some((parameter, _)) = tuned.iter().find(|(parameter, _)| same(parameter, name)) {
            let message = format!("`{parameter}` is tuned and also fixed in `engine.env`");
            let hint = format!("remove it here, or remove `{parameter}` from `[parameters]`");
            problems.push(Problem::new(span, message, "fixed here", hint));
        }
    }
    let variables = || tuned.iter().filter_map(|(name, span)| Some((variable(name)?, *span)));
    for (name, span) in variables() {
        if let Some(flag) = flag_of(fields, name).filter(|flag| tuned.iter().any(|(tuned, _)| *tuned == flag)) {
            let message = format!("`env.{name}` and `{flag}` are both tuned, and set the same option");
            problems.push(Problem::new(span, message, "tuned twice", "remove one of them"));
        }
    }
    for (name, span) in variables().filter(|(name, _)| ours(name) || **name == *VISIBLE_GPUS) {
        let message = format!("`env.{name}` cannot be tuned: the tuner sets it for every launch");
        problems.push(Problem::new(span, message, "not tunable", "remove it"));
    }
}

/// Reports what a graph of Dynamo cannot be launched with.
pub fn check_graph(fields: &Fields, problems: &mut Vec<Problem>) {
    let Some(backend) = fields.word::<String>("backend") else { return };
    if let Some(span) = fields.span("workers").filter(|_| backend != "mocker" && fields.get::<u32>("workers") > Some(1))
    {
        let message = format!("several workers with `backend = \"{backend}\"` would share one GPU");
        let hint = "write workers = 1: GPUs are not shared out among workers yet";
        problems.push(Problem::new(&span, message, "cannot be launched", hint));
    }
    for key in ["args", "frontend_args"] {
        for (word, span) in fields.texts(key).unwrap_or_default() {
            let Some(flag) = word.strip_prefix("--").map(|flag| flag.split('=').next().unwrap_or_default()) else {
                continue;
            };
            if FLAGS_OF_GRAPHS.contains(&flag_name(flag).as_str()) {
                let message = format!("`engine.{key}` sets --{flag}, and a graph is launched with another value");
                problems.push(Problem::new(span, message, "cannot be set", "remove it"));
            }
        }
    }
}

/// Reports what this engine cannot be asked. That is flags of another engine, flags that do not go together, tuned switches that every launch
/// has, and `probe.twin` without a model.
pub fn check_dialect(
    fields: &Fields,
    variables: &[(String, Range<usize>)],
    tuned: &[(&String, &Range<usize>)],
    probe: &Fields,
    problems: &mut Vec<Problem>,
) {
    let Some(kind) = kind(fields) else { return };
    let own = dialect(kind);
    let words = ["command", "args"].into_iter().filter_map(|key| fields.texts(key)).flatten();
    let knows = |name: &str| own.flags().lines().any(|flag| flag == name);
    let flags = words.filter_map(|(word, span)| Some((flag_name(word.strip_prefix("--")?.split('=').next()?), span)));
    let flags: Vec<_> = flags.chain(tuned.iter().map(|(name, span)| ((*name).clone(), *span))).collect();
    let all: Vec<&str> = flags.iter().map(|(name, _)| name.as_str()).collect();
    let said = flags.iter().map(|(name, span)| (name, *span)).chain(variables.iter().map(|(name, span)| (name, span)));
    for (name, span) in said {
        if let Some((message, hint)) = own.refuses(variable(name).unwrap_or(name), &all) {
            problems.push(Problem::new(span, message, "not here", hint));
        }
    }
    for (name, span) in flags {
        let Some(quantity) = Quantity::of(&name).filter(|quantity| own.flag(*quantity) != Some(&name) && !knows(&name))
        else {
            continue;
        };
        let message = format!("{} has no flag `--{name}`", own.name());
        let hint = match own.flag(quantity) {
            Some(flag) => {
                format!("write `{flag}`, with values for {}: those of another engine do not carry over", own.name())
            }
            None => "remove it".to_owned(),
        };
        problems.push(Problem::new(span, message, "another engine's", hint));
    }
    for (name, span) in tuned.iter().filter(|(name, _)| own.telling().contains(&name.as_str())) {
        let message = format!("`{name}` cannot be tuned: the tuner sets it for every launch");
        problems.push(Problem::new(span, message, "not tunable", "remove it, or fix it in engine.args"));
    }
    if let Some(span) = probe.span("twin").filter(|_| !own.is_modelled() && probe.get("twin") == Some(true)) {
        let message = format!("there is no model of {}, which `probe.twin` needs", own.name());
        problems.push(Problem::new(&span, message, "cannot be switched on", "remove it: violations are counted"));
    }
}

/// The number that a word of a command line is, if it is one.
fn number(word: &str) -> Option<Value> {
    word.parse().map(Value::Int).ok().or_else(|| word.parse().map(Value::Real).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_one_spelling() {
        assert_eq!(flag_name("max_num_seqs"), "max-num-seqs");
        assert_eq!(flag_name("speculative_config.num_tokens"), "speculative-config.num_tokens");
    }
}
