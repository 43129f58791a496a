//! LLMInferenceService of `serving.kserve.io`: KServe's preset runs `vllm serve /mnt/models … ${VLLM_ADDITIONAL_ARGS} "$@"` in the container
//! `main`, whose `args` are `$@`.

use super::{Engine, Kind, ArgumentLocation, Shape, is, named};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "KServe LLMInferenceService", recognises, locations, kind: Kind::Custom };

fn recognises(root: &Node) -> bool {
    is(root, "serving.kserve.io", None, &["LLMInferenceService", "LLMInferenceServiceConfig"])
}

/// The variable that KServe's preset puts behind `vllm serve`: config-llm-template.yaml and its siblings in KServe's config/llmisvcconfig.
const PRESET: &[&str] = &["VLLM_ADDITIONAL_ARGS"];

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let spec = Path::default().key("spec");
    let pods = [
        ("main", "decode", spec.key("template")),
        ("worker", "decode", spec.key("worker")),
        ("prefill", "prefill", spec.key("prefill.template")),
        ("prefill/worker", "prefill", spec.key("prefill.worker")),
    ];
    let location = |(name, group, pod): (&str, &'static str, Path)| {
        let (_, main) = named(root, &pod.key("containers")).find(|(name, _)| name == "main")?;
        Some(ArgumentLocation {
            model: Some(spec.key("model.uri")),
            engine: Some(Engine::Vllm),
            expands: PRESET,
            group: Some(group),
            ..ArgumentLocation::container(name, &main)
        })
    };
    pods.into_iter().filter_map(location).collect()
}
