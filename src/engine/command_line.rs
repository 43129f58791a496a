//! A point -> the engine's command line, and what the engine's flags mean to the search.

use std::collections::BTreeMap;
use std::path::Path;

use crate::settings::{EngineKind, EnginePlan};
use crate::space::{Point, Value};

/// The parameter whose highest working value is found by bisection before the search: more of it never serves worse.
pub const MEMORY_KNOB: &str = "gpu-memory-utilization";
/// Parameters that ask for more GPU memory the larger they are.
pub const DEMANDING: [&str; 4] = [MEMORY_KNOB, "max-num-seqs", "max-num-batched-tokens", "max-model-len"];

/// Every flag of `vllm serve` 0.32 without its dashes, one in each line.
pub const VLLM_FLAGS: &str = include_str!("vllm-0.32-flags.txt");

/// The flag with which vLLM tells the cached prompt tokens of each request in its usage.
pub const CACHED_TOKENS_FLAG: &str = "enable-prompt-tokens-details";

/// Whether the engine may be asked to tell cached tokens: it is a vLLM whose own arguments say nothing of that.
pub fn may_tell_cached_tokens(plan: &EnginePlan) -> bool {
    let names = |word: &String| word.replace('_', "-").contains(CACHED_TOKENS_FLAG);
    plan.kind == EngineKind::Vllm && !plan.command.iter().chain(&plan.args).any(names)
}

/// The flags of a point, as the engine's command line takes them.
pub fn flags(point: &Point) -> Vec<String> {
    let mut words = Vec::new();
    for (name, value) in &point.0 {
        match value {
            Value::Bool(true) => words.push(format!("--{name}")),
            Value::Bool(false) => words.push(format!("--no-{name}")),
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
    words.extend(plan.args.iter().cloned());
    words.extend(flags(point));
    words.extend(["--host".to_owned(), "127.0.0.1".to_owned(), "--port".to_owned(), port.to_string()]);
    words
}

/// The environment of a launch. Developer mode opens `/reset_prefix_cache` and `/server_info` on the loopback address, which change
/// nothing in how requests are served; the space file may say otherwise.
pub fn environment(plan: &EnginePlan) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([("VLLM_SERVER_DEV_MODE".to_owned(), "1".to_owned())]);
    env.extend(plan.env.clone());
    env
}

/// The key that the engine demands of its clients, if its arguments or environment name one.
pub fn api_key(plan: &EnginePlan) -> Option<String> {
    let words: Vec<&str> = plan.command.iter().chain(&plan.args).map(String::as_str).collect();
    let flag = words.iter().enumerate().find_map(|(i, word)| match word.split_once('=') {
        Some(("--api-key" | "--api_key", value)) => Some(value),
        None if *word == "--api-key" || *word == "--api_key" => words.get(i + 1).copied(),
        _ => None,
    });
    flag.map(str::to_owned).or_else(|| plan.env.get("VLLM_API_KEY").cloned())
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
        assert_eq!(flags(&point), expected);
    }
}
