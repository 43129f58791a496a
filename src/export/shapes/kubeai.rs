//! Model of `kubeai.org/v1`: arguments that KubeAI puts behind its own.

use super::{ArgumentLocation, Engine, Kind, Shape, is};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "KubeAI Model", recognises, locations, kind: Kind::Custom };

fn recognises(root: &Node) -> bool {
    is(root, "kubeai.org", None, &["Model"])
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let spec = Path::default().key("spec");
    let vllm = root.at(&spec.key("engine")).and_then(Node::text) == Some("VLLM");
    let name = root.text_at("metadata.name").unwrap_or("model");
    let location = ArgumentLocation {
        name: name.to_owned(),
        args: Some(spec.key("args")),
        env: vec![spec.key("env")],
        image: Some(spec.key("image")),
        model: Some(spec.key("url")),
        engine: Some(Engine::Vllm),
        ..ArgumentLocation::default()
    };
    if vllm { vec![location] } else { Vec::new() }
}
