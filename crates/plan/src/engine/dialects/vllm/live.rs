//! Limits that a running vLLM takes anew, so that one launch serves many points.
//!
//! vLLM has no way to change them, but it lets its scheduler be replaced. `live_scheduler.py` is vLLM's own scheduler with limits that are
//! read from a file before each step. Launched at the largest limits of the space, it then serves any smaller ones. It decides step by step what
//! an engine launched with these would. That was seen with the scheduler classes of vLLM 0.24, 0.32 and 0.33, and on an H200, where two plain
//! launches differ as much. What is fixed at a launch stays. The KV cache has the size that the largest limits leave, which is a little smaller.
//! CUDA graphs are those of the launch, so a point whose own launch would capture fewer is launched for itself ([`serves`]). A best point other
//! than the defaults is launched plainly for its proof, unless its own limits are the largest.

use super::super::super::diagnosis::{Cause, Diagnosis};
use super::super::super::effective::Effective;
use super::super::is_of_frontend;
use crate::settings::Plan;
use crate::space::{Point, Value};

/// The module that a live engine loads.
pub const LIVE_MODULE: &str = include_str!("live_scheduler.py");
/// What the module is called.
pub const LIVE_MODULE_NAME: &str = "autotune_live";
/// What `--scheduler-cls` names for it.
pub const LIVE_SCHEDULER: &str = "autotune_live.Scheduler";
/// The variable with the path of the file of limits.
pub const LIVE_FILE: &str = "AUTOTUNE_LIVE_LIMITS";

const SEQUENCES: &str = "max-num-seqs";
/// The budget of tokens.
const TOKENS: &str = "max-num-batched-tokens";

/// The flag whose value is the largest step in tokens that has a CUDA graph.
pub(super) const LARGEST_GRAPH: &str = "max-cudagraph-capture-size";
/// Parts of arguments that fix which CUDA graphs are captured, whatever the limits of a step: flags, and keys of `--compilation-config`.
const FIX_GRAPHS: [&str; 2] = ["capture-size", "cuda-graph-sizes"];

/// Arguments with which the scheduler is another one, or limits also bound something that is fixed at the launch.
const STAY: [&str; 6] = [
    "scheduler-cls",
    "speculative",
    "data-parallel",
    "pipeline-parallel",
    "enable-expert-parallel",
    "no-enable-chunked-prefill",
];

/// Limits of a step: sequences and tokens; `None` if the point leaves them to the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveLimits {
    /// At most so many sequences run.
    pub sequences: Option<i64>,
    /// At most so many tokens are scheduled in a step.
    pub tokens: Option<i64>,
}

impl LiveLimits {
    pub fn of(point: &Point) -> Self {
        let limit = |name| match point.get(name) {
            Some(Value::Int(limit)) => Some(*limit),
            _ => None,
        };
        Self { sequences: limit(SEQUENCES), tokens: limit(TOKENS) }
    }

    /// By the parameters that have them.
    pub fn named(self) -> impl Iterator<Item = (&'static str, i64)> {
        [(SEQUENCES, self.sequences), (TOKENS, self.tokens)]
            .into_iter()
            .filter_map(|(name, limit)| Some((name, limit?)))
    }
}

/// The point to launch an engine with that shall later take the limits of others. It is this one, with limits as large as the space has them. It
/// stays as it is where a limit is left to the engine, which then tells its own. `None` if no limit is tuned, or the engine's arguments make it
/// another one.
///
/// Where the share of the memory is tuned, the defaults are launched as they are. That engine proves them too where no other share is tried. Larger
/// limits leave less room for the KV cache. A 70B model on an H200 has 166,368 tokens with the largest
/// limits of the space, and 182,272 with the defaults. That lowers the limit of the defaults by 4 % (by a twin of `results/h200-70b-search-eighth`).
///
/// `graph` is what [`largest_graph`] told of an earlier launch. With it, a cap on sequences that leaves fewer CUDA graphs is kept as it stands.
pub fn widest(plan: &Plan, graph: Option<i64>, point: &Point) -> Option<Point> {
    if plan.engine.graph.is_some() {
        // A frontend is started anew for any arguments of its own, beside workers that stay.
        let mut tuned = plan.space.parameters.iter().filter(|p| p.values.len() > 1);
        return tuned.all(|p| is_of_frontend(&p.name)).then(|| point.clone());
    }
    let stays =
        |word: &String| STAY.iter().any(|stay| word.trim_start_matches('-').replace('_', "-").starts_with(stay));
    let words = || plan.engine.command.iter().chain(&plan.engine.args);
    if !plan.engine.live || words().any(stays) || point.0.keys().any(stays) {
        return None;
    }
    let tuned = plan.space.parameters.iter().filter(|p| is_limit(&p.name));
    let is_choice = tuned.clone().any(|p| p.values.len() > 1);
    if tuned.clone().any(|p| point.get(&p.name).is_none()) {
        return is_choice.then(|| point.clone());
    }
    if *point == plan.space.baseline() && plan.tuned_memory().is_some() {
        return (is_choice && serves(point, None, point)).then(|| point.clone());
    }
    let mut widest = point.clone();
    for parameter in tuned.clone() {
        let (Some(Value::Int(_)), Some(largest @ Value::Int(_))) =
            (point.get(&parameter.name), parameter.values.last())
        else {
            return None;
        };
        if parameter.name == TOKENS || has_graphs(graph, point) {
            widest = widest.with(&parameter.name, largest.clone());
        }
    }
    let widest = if plan.space.admits(&widest) { widest } else { point.clone() };
    (is_choice && serves(&widest, None, point)).then_some(widest)
}

/// The tokens of the largest step that has a CUDA graph, by the configuration that a live engine tells. `None` if it captures none, as on a CPU,
/// or if the arguments fix them for every point.
pub fn largest_graph(plan: &Plan, effective: &Effective) -> Option<i64> {
    let fixes = |word: &str| FIX_GRAPHS.iter().any(|part| word.replace('_', "-").contains(part));
    let mut words = plan.engine.command.iter().chain(&plan.engine.args);
    let mut tuned = plan.space.parameters.iter();
    match effective.values.get(LARGEST_GRAPH) {
        Some(Value::Int(tokens)) if *tokens > 0 => {
            let fixed = words.any(|word| fixes(word)) || tuned.any(|parameter| fixes(&parameter.name));
            (!fixed).then_some(*tokens)
        }
        _ => None,
    }
}

/// Whether a launch of this point has every CUDA graph that its steps find in an engine with graphs up to `graph` tokens.
///
/// vLLM captures them for steps of up to `2 * max-num-seqs` tokens, and for 512 or `max-num-batched-tokens` at most. Larger steps run without
/// one (`VllmConfig._set_cudagraph_sizes` of 0.24 and 0.32). On an H200, an engine with graphs up to 512 ran an 8B model with 64 sequences and
/// steps of 256 tokens. It was expected to keep its promises at 14 req/s. Its own launches broke them at 5.3 (`results/h200-8b-gain-seventh`).
pub fn has_graphs(graph: Option<i64>, point: &Point) -> bool {
    let LiveLimits { sequences, tokens } = LiveLimits::of(point);
    let missing = |(graph, sequences): (i64, i64)| 2 * sequences < tokens.map_or(graph, |tokens| graph.min(tokens));
    !graph.zip(sequences).is_some_and(missing)
}

/// Whether an engine that was launched with the values of `widest` serves those of `point` by changing its limits. `graph` is its largest step
/// with a CUDA graph ([`largest_graph`]).
pub fn serves(widest: &Point, graph: Option<i64>, point: &Point) -> bool {
    let fits = |(name, value): (&String, &Value)| match (widest.get(name), value) {
        (Some(Value::Int(most)), Value::Int(limit)) if is_limit(name) => limit <= most,
        (Some(_), _) if is_of_frontend(name) => true,
        (Some(same), value) => same.same(value),
        (None, _) => false,
    };
    let LiveLimits { sequences, tokens } = LiveLimits::of(point);
    // vLLM refuses to start with a budget that is smaller than the cap.
    let starts = sequences.zip(tokens).is_none_or(|(sequences, tokens)| tokens >= sequences);
    starts && widest.0.len() == point.0.len() && point.0.iter().all(fits) && has_graphs(graph, point)
}

/// What to say where that engine could take the limits of a point, and a launch of the point has fewer CUDA graphs. `most` is the largest graph of
/// the first launch, which is that of the defaults.
pub fn fewer_graphs(widest: &Point, graph: Option<i64>, most: i64, point: &Point) -> Option<String> {
    let graph = graph.filter(|_| serves(widest, None, point) && !has_graphs(graph, point))?;
    Some(format!(
        "{point} gets a launch of its own: the running engine has CUDA graphs for steps of up to {graph} tokens, its own launch has fewer. `--{LARGEST_GRAPH} {most}` in engine.args gives every point the same graphs, and saves such launches"
    ))
}

/// Whether a point may start plainly whose engine failed at its start with the values of `widest`, and the class of live limits. What else
/// keeps an engine from starting does so either way.
pub fn may_start_plainly(failure: &Diagnosis, widest: &Point, point: &Point) -> bool {
    let is_memory = [Cause::OutOfMemory, Cause::KvCacheTooSmall].contains(&failure.cause);
    let elsewhere = [Cause::Timeout, Cause::Environment, Cause::PortTaken, Cause::ModelMissing];
    if is_memory { widest != point } else { !elsewhere.contains(&failure.cause) }
}

/// Whether an engine that runs may take other values of this parameter.
pub fn alters(name: &str) -> bool {
    is_limit(name) || is_of_frontend(name)
}

fn is_limit(name: &str) -> bool {
    [SEQUENCES, TOKENS].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::diagnosis::Consequence;
    use crate::settings::parse;

    fn plan(more: &str) -> Plan {
        let text =
            include_str!("../../../../../../search-spaces/phase1.toml").replace("args = [", &format!("args = [{more}"));
        parse("phase1.toml", &text).unwrap()
    }

    fn point(share: f64, sequences: i64, tokens: i64) -> Point {
        let point = Point::default().with("gpu-memory-utilization", Value::Real(share));
        point.with(SEQUENCES, Value::Int(sequences)).with(TOKENS, Value::Int(tokens))
    }

    #[test]
    fn one_engine_serves_all_that_asks_for_less_of_the_limits() {
        let widest = widest(&plan(""), None, &point(0.9, 64, 2048)).unwrap();
        assert_eq!(widest, point(0.9, 1024, 32768));
        assert!(serves(&widest, None, &point(0.9, 32, 2048)) && serves(&widest, None, &widest));
        assert!(!serves(&widest, None, &point(0.92, 32, 2048)), "the KV cache is sized at the launch");
        assert!(!serves(&widest, None, &point(0.9, 1024, 512)), "vLLM refuses a budget below the cap");
        assert!(!serves(&point(0.9, 32, 2048), None, &point(0.9, 64, 2048)));
        assert!(!serves(&widest, None, &Point::default().with(SEQUENCES, Value::Int(32))));
    }

    #[test]
    fn a_point_whose_own_launch_captures_fewer_graphs_is_launched_for_itself() {
        let wide = point(0.9, 1024, 32768);
        let served = |sequences, tokens| serves(&wide, Some(512), &point(0.9, sequences, tokens));
        assert!(served(256, 8192) && served(128, 256) && served(64, 128), "every step has its graph");
        assert!(!served(64, 256) && !served(128, 8192), "steps above 2 * max-num-seqs have none");
        assert!(serves(&wide, None, &point(0.9, 64, 256)), "no engine on a CPU has one");
        let launched = |graph| widest(&plan(""), graph, &point(0.92, 64, 2048));
        assert_eq!(launched(Some(512)), Some(point(0.92, 64, 32768)));
        assert_eq!(launched(None), Some(point(0.92, 1024, 32768)));
        assert!(serves(&point(0.92, 64, 32768), Some(128), &point(0.92, 64, 4096)));
        let says = |point: Point| fewer_graphs(&wide, Some(256), 512, &point);
        assert!(says(point(0.9, 64, 256)).unwrap().contains("`--max-cudagraph-capture-size 512` in engine.args"));
        assert_eq!((says(point(0.9, 256, 8192)), says(point(0.92, 64, 256))), (None, None));
    }

    #[test]
    fn arguments_that_fix_the_graphs_fix_them_for_every_point() {
        let told = |tokens| Effective {
            values: [(LARGEST_GRAPH.to_owned(), Value::Int(tokens))].into(),
            ..Effective::default()
        };
        assert_eq!(largest_graph(&plan(""), &told(512)), Some(512));
        assert_eq!(largest_graph(&plan(""), &told(0)), None);
        assert_eq!(largest_graph(&plan(""), &Effective::default()), None);
        for fixed in
            ["--max-cudagraph-capture-size=512", "--cudagraph_capture_sizes", "-O.max_cudagraph_capture_size=512"]
        {
            assert_eq!(largest_graph(&plan(&format!("\"{fixed}\", ")), &told(512)), None, "{fixed}");
        }
        for other in ["--model=deepseek-ai/DeepSeek-OCR", "--cudagraph-metrics", "-O3"] {
            assert_eq!(largest_graph(&plan(&format!("\"{other}\", ")), &told(512)), Some(512), "{other}");
        }
    }

    #[test]
    fn the_defaults_are_launched_as_they_are_and_take_smaller_limits() {
        let (plan, defaults) = (plan(""), point(0.9, 1024, 8192));
        assert_eq!(plan.space.baseline(), defaults);
        let launched = widest(&plan, None, &defaults).unwrap();
        assert_eq!(launched, defaults);
        assert!(serves(&launched, None, &point(0.9, 64, 2048)) && !serves(&launched, None, &point(0.9, 1024, 16384)));
    }

    #[test]
    fn memory_that_does_not_suffice_for_a_point_itself_is_no_fault_of_the_class() {
        let failed = |cause| Diagnosis { cause, line: None, says: String::new(), consequence: Consequence::PointOnly };
        let (wide, narrow) = (point(0.9, 1024, 8192), point(0.9, 64, 8192));
        assert!(may_start_plainly(&failed(Cause::OutOfMemory), &wide, &narrow));
        assert!(!may_start_plainly(&failed(Cause::OutOfMemory), &wide, &wide));
        assert!(may_start_plainly(&failed(Cause::Crashed), &wide, &wide), "the class may not load");
        assert!(!may_start_plainly(&failed(Cause::Timeout), &wide, &narrow));
    }

    #[test]
    fn engines_whose_limits_bind_more_than_the_scheduler_stay_as_they_are() {
        let asked = point(0.9, 64, 2048);
        for stay in ["--speculative-config", "--data-parallel-size=2", "--scheduler_cls", "--enable-expert-parallel"] {
            assert_eq!(widest(&plan(&format!("\"{stay}\", ")), None, &asked), None, "{stay}");
        }
        let chosen = Point::default();
        assert_eq!(
            widest(&plan(""), None, &chosen),
            Some(chosen),
            "what the engine chooses bounds what it takes later"
        );
        assert_eq!(
            widest(&plan(""), None, &point(0.9, 1024, 512)),
            None,
            "what the engine refuses, it is asked to start with"
        );
    }
}
