//! LLMInferenceService of `serving.kserve.io`: KServe's preset runs `vllm serve /mnt/models … ${VLLM_ADDITIONAL_ARGS} "$@"` in the container
//! `main`, whose `args` are `$@`.

use super::{ArgumentLocation, Engine, Kind, Shape, is, named};
use crate::export::arguments::variable::VariableLocation;
use crate::export::known::KSERVE_ARGS;
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "KServe LLMInferenceService", recognises, locations, kind: Kind::Custom };

fn recognises(root: &Node) -> bool {
    is(root, "serving.kserve.io", None, &["LLMInferenceService", "LLMInferenceServiceConfig"])
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let spec = Path::default().key("spec");
    let pods = [
        ("main", "decode", spec.key("template")),
        ("worker", "decode", spec.key("worker")),
        ("prefill", "prefill", spec.key("prefill.template")),
        ("prefill/worker", "prefill", spec.key("prefill.worker")),
    ];
    let is_service = root.text_at("kind") == Some("LLMInferenceService");
    let has_base = root.at(&spec.key("baseRefs")).is_some_and(|bases| !bases.items().is_empty());
    let location = |(name, group, pod): (&str, &'static str, Path)| {
        // The preset has all that is not there; another role than the main one exists where it is written.
        let role = root.at(&spec.key(if group == "prefill" { "prefill" } else { "template" })).is_some();
        let there = root.at(&pod).is_some() || (name == "main" && is_service) || (name == "prefill" && role);
        there.then_some(())?;
        let containers = pod.key("containers");
        let main = named(root, &containers).find(|(name, _)| name == "main").map(|(_, at)| at);
        let new_variable = match &main {
            Some(at) => VariableLocation { name: KSERVE_ARGS, list: at.key("env"), container: None },
            None => VariableLocation { name: KSERVE_ARGS, list: containers, container: Some("main") },
        };
        let made = ArgumentLocation { name: name.to_owned(), ..ArgumentLocation::default() };
        let container = main.map_or(made, |at| ArgumentLocation::container(name, &at));
        let there = |at: &Option<Path>| at.as_ref().and_then(|at| root.at(at));
        let replaced = there(&container.command).is_some();
        let args = there(&container.args).is_some_and(|args| !args.items().is_empty());
        Some(ArgumentLocation {
            model: Some(spec.key("model.uri")),
            engine: Some(Engine::Vllm),
            expands: &[KSERVE_ARGS],
            new_variable: Some(new_variable),
            group: Some(group),
            note: match (replaced, args) {
                (true, _) => None,
                (false, true) => Some(ARGS_REPLACE),
                (false, false) if has_base => Some(VARIABLE_REPLACES),
                (false, false) => Some(VARIABLE_UNKNOWN),
            },
            ..container
        })
    };
    pods.into_iter().filter_map(location).collect()
}

// The presets of KServe 0.16 have `command: [vllm, serve, /mnt/models]` and `args`, and merge lists of words as a whole.
const ARGS_REPLACE: (&str, &str) = (
    "in KServe 0.16, `args` replace those of the preset (--port, --served-model-name); later versions add them",
    "with KServe 0.16, write the preset's arguments here as well",
);
const VARIABLE_UNKNOWN: (&str, &str) = (
    "the presets of KServe 0.16 do not read VLLM_ADDITIONAL_ARGS; later versions do",
    "with KServe 0.16, write command and args of this container out",
);
const VARIABLE_REPLACES: (&str, &str) = (
    "this VLLM_ADDITIONAL_ARGS replaces one that `baseRefs` bring",
    "write the flags of the base's variable here as well",
);
