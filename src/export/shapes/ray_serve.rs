//! The configuration of Ray Serve: `engine_kwargs` of each model are vLLM's arguments by their Python names.

use super::{ArgumentLocation, Engine, Kind, Shape, walk};
use crate::export::arguments::keys::Keys;
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "Ray Serve configuration", recognises, locations, kind: Kind::File };

fn recognises(root: &Node) -> bool {
    root.get("kind").is_none() && !locations(root).is_empty()
}

/// Mappings of `ray.serve.llm.LLMConfig`; its `llm_engine` is vLLM unless it says otherwise.
fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let mut found = Vec::new();
    walk(root, &Path::default(), &mut |node, at| {
        let model = node.get("model_loading_config");
        if model.is_none() && node.get("engine_kwargs").is_none() {
            return;
        }
        let engine = match node.get("llm_engine").and_then(Node::text) {
            Some(name) if name.eq_ignore_ascii_case("sglang") => Engine::Sglang,
            Some(name) if !name.eq_ignore_ascii_case("vllm") => return,
            _ => Engine::Vllm,
        };
        let name = model.and_then(|model| model.get("model_id")?.text()).unwrap_or("engine_kwargs");
        found.push(ArgumentLocation {
            name: name.to_owned(),
            keys: Keys::Python,
            keys_at: at.key("engine_kwargs"),
            model: Some(at.key("model_loading_config.model_source")),
            engine: Some(engine),
            ..ArgumentLocation::default()
        });
    });
    found
}
