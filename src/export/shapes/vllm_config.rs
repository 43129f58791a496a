//! The file of `vllm serve --config`: a mapping of nothing but vLLM's flags.

use super::{ArgumentLocation, Engine, Kind, Shape};
use crate::engine::VLLM_FLAGS;
use crate::export::arguments::keys::Keys;
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "vllm serve --config", recognises, locations, kind: Kind::Values };

fn recognises(root: &Node) -> bool {
    let is_flag = |key: &str| VLLM_FLAGS.lines().any(|flag| flag == key.replace('_', "-"));
    let keys = root.entries().iter().map(|(key, _)| key.text().unwrap_or_default());
    !root.entries().is_empty() && keys.into_iter().all(is_flag)
}

fn locations(_: &Node) -> Vec<ArgumentLocation> {
    vec![ArgumentLocation {
        name: "the configuration".to_owned(),
        keys: Keys::Config,
        model: Some(Path::default().key("model")),
        engine: Some(Engine::Vllm),
        ..ArgumentLocation::default()
    }]
}
