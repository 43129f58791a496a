//! Helm values of the vLLM production stack: `servingEngineSpec.modelSpec[].vllmConfig` has keys for some flags and `extraArgs` for all
//! others.

use super::{ArgumentLocation, Engine, Kind, Shape, named};
use crate::export::arguments::keys::{Key, Keys};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "production stack Helm values", recognises, locations, kind: Kind::File };

const KEYS: [Key; 3] = [
    Key { flag: "max-num-seqs", path: "maxNumSeqs", text: false },
    Key { flag: "max-model-len", path: "maxModelLen", text: false },
    Key { flag: "gpu-memory-utilization", path: "gpuMemoryUtilization", text: false },
];

fn models() -> Path {
    Path::default().key("servingEngineSpec.modelSpec")
}

fn recognises(root: &Node) -> bool {
    root.get("kind").is_none() && root.at(&models()).is_some_and(|list| !list.items().is_empty())
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let location = |(name, at): (String, Path)| ArgumentLocation {
        name,
        args: Some(at.key("vllmConfig.extraArgs")),
        env: vec![at.key("env")],
        keys: Keys::Named(&KEYS),
        keys_at: at.key("vllmConfig"),
        gpus: Some(at.key("requestGPU")),
        memory: Some(at.key("limitMemory")),
        model: Some(at.key("modelURL")),
        engine: Some(Engine::Vllm),
        probes: Path::default().key("servingEngineSpec"),
        ..ArgumentLocation::default()
    };
    named(root, &models()).map(location).collect()
}
