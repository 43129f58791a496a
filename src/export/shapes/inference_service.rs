//! InferenceService of `serving.kserve.io/v1beta1`: a model server of KServe's that passes vLLM's flags on, or containers of one's own.

use super::{ArgumentLocation, Engine, Kind, Shape, containers, is};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "KServe InferenceService", recognises, locations, kind: Kind::Custom };

fn recognises(root: &Node) -> bool {
    is(root, "serving.kserve.io", None, &["InferenceService"])
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let predictor = Path::default().key("spec.predictor");
    let model = predictor.key("model");
    let format = root.at(&model.key("modelFormat.name")).and_then(Node::text);
    let ours = format.is_some_and(|name| name == "huggingface" || name.eq_ignore_ascii_case("vllm"));
    let served = ours.then(|| ArgumentLocation {
        model: Some(model.key("storageUri")),
        engine: Some(Engine::Vllm),
        ..ArgumentLocation::container("model", &model)
    });
    served.into_iter().chain(containers(root, &predictor)).collect()
}
