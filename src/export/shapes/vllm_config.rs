//! The file of `vllm serve --config`: a mapping of nothing but vLLM's flags.

use super::{ArgumentLocation, Engine, Kind, Shape};
use crate::engine::VLLM_FLAGS;
use crate::export::arguments::keys::Keys;
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "vllm serve --config", recognises, locations, kind: Kind::File };

/// Every key is a flag of vLLM's, and one is no other program's: `model`, `host` and `port` are keys of many files.
fn recognises(root: &Node) -> bool {
    let keys = root.entries().iter().map(|(key, _)| key.text().unwrap_or_default().replace('_', "-"));
    let keys: Vec<String> = keys.collect();
    let is_flag = |key: &String| VLLM_FLAGS.lines().any(|flag| flag == key);
    keys.iter().all(is_flag) && keys.iter().any(|key| key.matches('-').count() >= 2)
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
