//! Helm values of the vLLM production stack: `servingEngineSpec.modelSpec[].vllmConfig` has keys for some flags and `extraArgs` for all
//! others.

use super::{Engine, Kind, Seat, Shape, named};
use crate::export::homes::keys::Key;
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "production stack Helm values", recognises, seats, kind: Kind::Values };

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

fn seats(root: &Node) -> Vec<Seat> {
    let seat = |(name, at): (String, Path)| Seat {
        name,
        args: Some(at.key("vllmConfig.extraArgs")),
        env: vec![at.key("env")],
        keys: &KEYS,
        keys_at: at.key("vllmConfig"),
        gpus: Some(at.key("requestGPU")),
        memory: Some(at.key("limitMemory")),
        model: Some(at.key("modelURL")),
        engine: Some(Engine::Vllm),
        probes: Path::default().key("servingEngineSpec"),
        ..Seat::default()
    };
    named(root, &models()).map(seat).collect()
}
