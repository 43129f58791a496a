//! A point -> the engine's command line.

use std::collections::BTreeMap;
use std::path::Path;

use super::dialects::{dialect, is_of_frontend};
use crate::settings::{EngineKind, EnginePlan, GraphPlan};
use crate::space::{Point, Value, plain_name};

/// The switches that a launch gets so that the engine tells more of itself: those that its own arguments do not name. The simulated engine
/// tells all that it knows.
pub fn telling(plan: &EnginePlan) -> Vec<&'static str> {
    let named = |flag: &&str| plan.command.iter().chain(&plan.args).any(|word| word.replace('_', "-").contains(*flag));
    let switches = if plan.kind == EngineKind::Simulated { &[] } else { dialect(plan.kind).telling() };
    switches.iter().filter(|flag| !named(flag)).copied().collect()
}

/// What stands before the name of a variable of the engine's environment, where that is a parameter.
const VARIABLE: &str = "env.";

/// The variable that a parameter is, if it is none of the engine's flags.
pub fn variable(parameter: &str) -> Option<&str> {
    parameter.strip_prefix(VARIABLE)
}

/// Whether a value is said by leaving the flag, or the variable, out of the launch: the word `off`.
pub fn is_left_out(value: &Value) -> bool {
    matches!(value, Value::Text(word) if word == "off")
}

/// The flags of a point, as the engine's command line takes them.
pub fn flags(kind: EngineKind, point: &Point) -> Vec<String> {
    let mut words = Vec::new();
    for (name, value) in point.0.iter().filter(|(name, value)| variable(name).is_none() && !is_left_out(value)) {
        match value {
            // A key within a flag has its value behind it.
            Value::Bool(on) if name.contains('.') => words.extend([format!("--{name}"), on.to_string()]),
            Value::Bool(true) => words.push(format!("--{name}")),
            Value::Bool(false) => words.extend(dialect(kind).off(name)),
            _ => words.extend([format!("--{name}"), value.to_string()]),
        }
    }
    words
}

/// The engine's program with its leading words.
pub fn program(plan: &EnginePlan, own_binary: &Path) -> Vec<String> {
    match (plan.kind, plan.command.is_empty()) {
        (EngineKind::Simulated, true) => vec![own_binary.display().to_string(), "sim-engine".to_owned()],
        _ => plan.command.clone(),
    }
}

/// The whole command line of a launch on a port of the loopback address.
pub fn command_line(plan: &EnginePlan, own_binary: &Path, port: u16, point: &Point) -> Vec<String> {
    let mut words = program(plan, own_binary);
    if let Some(graph) = &plan.graph {
        let (_, of_worker) = parts(point);
        let worker = ["-m".to_owned(), graph.module.clone()].into_iter().chain(plan.args.iter().cloned());
        let command = [own_binary.display().to_string(), "graph".to_owned()];
        let numbers = ["--port".to_owned(), port.to_string(), "--workers".to_owned(), graph.workers.to_string()];
        let frontend = frontend(plan, graph, point);
        let worker = words.into_iter().chain(worker).chain(flags(plan.kind, &of_worker));
        let all = command.into_iter().chain(numbers).chain(["--".to_owned()]).chain(frontend);
        return all.chain([PART.to_owned()]).chain(worker).collect();
    }
    words.extend(plan.args.iter().cloned());
    words.extend(flags(plan.kind, point));
    words.extend(["--host".to_owned(), "127.0.0.1".to_owned(), "--port".to_owned(), port.to_string()]);
    words
}

/// The word between the commands of a graph's frontend and of its workers.
pub const PART: &str = "---";

pub fn frontend(plan: &EnginePlan, graph: &GraphPlan, point: &Point) -> Vec<String> {
    let module = ["-m", "dynamo.frontend"].map(str::to_owned);
    let fixed = plan.command.iter().chain(&module).chain(&graph.frontend_args).cloned();
    fixed.chain(flags(plan.kind, &parts(point).0)).collect()
}

/// A point of a graph: the part of the frontend, and that of the workers.
fn parts(point: &Point) -> (Point, Point) {
    let (frontend, workers) = point.0.clone().into_iter().partition(|(name, _)| is_of_frontend(name));
    (Point(frontend), Point(workers))
}

/// Flags whose values together say how many GPUs an engine takes, with their other spellings.
const DEVICES: [&[&str]; 3] = [
    &["tensor-parallel-size", "tp-size", "tp", "trtllm.tensor_parallel_size"],
    &["pipeline-parallel-size", "pp-size", "pp", "trtllm.pipeline_parallel_size"],
    &["data-parallel-size", "dp-size", "dp"],
];

/// Whether a parameter says how many GPUs an engine takes.
pub fn is_parallel_size(name: &str) -> bool {
    DEVICES.iter().any(|names| names.contains(&name))
}

/// How many GPUs an engine takes at a point, by what its arguments say of parallelism.
pub fn devices(plan: &EnginePlan, point: &Point) -> u64 {
    let words: Vec<&String> = plan.command.iter().chain(&plan.args).collect();
    let of = |names: &&[&str]| {
        let named = |flag: &str| names.contains(&plain_name(flag.trim_start_matches('-')).as_str());
        let tuned = names.iter().find_map(|name| point.get(name)?.number());
        let fixed = || {
            words.iter().enumerate().rev().find_map(|(i, word)| match word.split_once('=') {
                Some((flag, value)) if flag.starts_with('-') && named(flag) => value.parse().ok(),
                None if word.starts_with('-') && named(word) => words.get(i + 1)?.parse().ok(),
                _ => None,
            })
        };
        tuned.or_else(fixed).map_or(1, |size: f64| size.max(1.0) as u64)
    };
    // The attention of SGLang's data parallelism runs on the GPUs of its tensor parallelism.
    let counted = if plan.kind == EngineKind::Sglang { &DEVICES[..2] } else { &DEVICES[..] };
    counted.iter().map(of).fold(1, u64::saturating_mul)
}

pub fn environment(plan: &EnginePlan, point: &Point) -> BTreeMap<String, String> {
    let of_engine =
        dialect(plan.kind).environment().iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    of_engine.chain(plan.env.clone()).chain(variables(point)).collect()
}

pub fn variables(point: &Point) -> impl Iterator<Item = (String, String)> {
    let said = point.0.iter().filter(|(_, value)| !is_left_out(value));
    said.filter_map(|(name, value)| Some((variable(name)?.to_owned(), spelt(value))))
}

/// A value as a variable has it: of a switch 1 or 0.
pub fn spelt(value: &Value) -> String {
    match value {
        Value::Bool(on) => u8::from(*on).to_string(),
        other => other.to_string(),
    }
}

/// The key that the engine demands of its clients, if its arguments or environment name one.
pub fn api_key(plan: &EnginePlan) -> Option<String> {
    let words: Vec<&str> = plan.command.iter().chain(&plan.args).map(String::as_str).collect();
    let flag = words.iter().enumerate().find_map(|(i, word)| match word.split_once('=') {
        Some(("--api-key" | "--api_key", value)) => Some(value),
        None if *word == "--api-key" || *word == "--api_key" => words.get(i + 1).copied(),
        _ => None,
    });
    flag.map(str::to_owned).or_else(|| plan.env.get(dialect(plan.kind).api_key_variable()?).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parse;

    #[test]
    fn a_point_becomes_flags_and_switches() {
        let point = Point::default()
            .with("max-num-seqs", Value::Int(16))
            .with("gpu-memory-utilization", Value::Real(0.93))
            .with("enable-prefix-caching", Value::Bool(false));
        let expected = ["--no-enable-prefix-caching", "--gpu-memory-utilization", "0.93", "--max-num-seqs", "16"];
        assert_eq!(flags(EngineKind::Vllm, &point), expected);
        let point = Point::default().with("disable-radix-cache", Value::Bool(false));
        assert!(flags(EngineKind::Sglang, &point).is_empty(), "it is off unless it is named");
    }

    #[test]
    fn an_engine_takes_as_many_gpus_as_its_parallelism_says() {
        let text = include_str!("../../../../search-spaces/quickstart.toml");
        let plan = |args: &str| EnginePlan {
            args: args.split_whitespace().map(str::to_owned).collect(),
            ..parse("q", text).unwrap().engine
        };
        let four = Point::default().with("tensor-parallel-size", Value::Int(4));
        assert_eq!(devices(&plan("--max-model-len 8192"), &Point::default()), 1);
        assert_eq!(devices(&plan("-tp 2"), &Point::default()), 2);
        assert_eq!(devices(&plan("--pipeline-parallel-size=2 --tensor_parallel_size 2"), &Point::default()), 4);
        assert_eq!(devices(&plan("-pp 2"), &four), 8);
    }

    #[test]
    fn variables_of_a_point_are_the_launchs_and_what_is_off_is_left_out() {
        let text = include_str!("../../../../search-spaces/quickstart.toml");
        let plan = EnginePlan { env: [("A".to_owned(), "1".to_owned())].into(), ..parse("q", text).unwrap().engine };
        let with = |name: &str, value| Point::default().with(name, value);
        let text = |word: &str| Value::Text(word.to_owned());
        let point = with("env.BACKEND", text("FLASHINFER")).with("env.SWITCH", Value::Bool(true));
        assert!(flags(plan.kind, &point).is_empty());
        let env = environment(&plan, &point);
        assert_eq!((env["A"].as_str(), env["BACKEND"].as_str(), env["SWITCH"].as_str()), ("1", "FLASHINFER", "1"));
        let off = with("env.BACKEND", text("off")).with("speculative-config", text("off"));
        assert!(flags(plan.kind, &off).is_empty() && !environment(&plan, &off).contains_key("BACKEND"));
    }
}
