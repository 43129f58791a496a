//! A point -> the engine's command line.

use std::collections::BTreeMap;
use std::path::Path;

use super::dialects::{dialect, is_of_frontend};
use crate::settings::{EngineKind, EnginePlan, GraphPlan};
use crate::space::{Point, Value};

/// The switches that a launch gets so that the engine tells more of itself: those that its own arguments do not name. The simulated engine
/// tells all that it knows.
pub fn telling(plan: &EnginePlan) -> Vec<&'static str> {
    let named = |flag: &&str| plan.command.iter().chain(&plan.args).any(|word| word.replace('_', "-").contains(*flag));
    let switches = if plan.kind == EngineKind::Simulated { &[] } else { dialect(plan.kind).telling() };
    switches.iter().filter(|flag| !named(flag)).copied().collect()
}

/// The flags of a point, as the engine's command line takes them.
pub fn flags(kind: EngineKind, point: &Point) -> Vec<String> {
    let mut words = Vec::new();
    for (name, value) in &point.0 {
        match value {
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

/// The command of a graph's frontend at a point.
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

/// The environment of a launch.
pub fn environment(plan: &EnginePlan) -> BTreeMap<String, String> {
    let of_engine =
        dialect(plan.kind).environment().iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    of_engine.chain(plan.env.clone()).collect()
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
}
