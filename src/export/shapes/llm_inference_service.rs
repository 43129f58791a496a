//! LLMInferenceService of `serving.kserve.io`: KServe's preset runs `vllm serve /mnt/models … ${VLLM_ADDITIONAL_ARGS} "$@"` in the container
//! `main`, whose `args` are `$@`.

use super::{Engine, Kind, Seat, Shape, is, named};
use crate::export::yaml::{Node, Path};

/// The row.
pub const SHAPE: Shape = Shape { name: "KServe LLMInferenceService", recognises, seats, kind: Kind::Custom };

fn recognises(root: &Node) -> bool {
    is(root, "serving.kserve.io", None, &["LLMInferenceService", "LLMInferenceServiceConfig"])
}

fn seats(root: &Node) -> Vec<Seat> {
    let spec = Path::default().key("spec");
    let pods = [("main", spec.key("template")), ("prefill", spec.key("prefill.template"))];
    let seat = |(name, pod): (&str, Path)| {
        let (_, main) = named(root, &pod.key("containers")).find(|(name, _)| name == "main")?;
        Some(Seat { model: Some(spec.key("model.uri")), engine: Some(Engine::Vllm), ..Seat::container(name, &main) })
    };
    pods.into_iter().filter_map(seat).collect()
}
