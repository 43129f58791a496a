//! Helm values of the vLLM production stack: `servingEngineSpec.modelSpec[].vllmConfig` has keys for some flags and `extraArgs` for all
//! others.

use super::{ArgumentLocation, Engine, Kind, Shape, named};
use crate::export::arguments::keys::{Key, Keys};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "production stack Helm values", recognises, locations, kind: Kind::File };

/// Those of helm/templates/deployment-vllm-multi.yaml. An empty `vllmConfig` passes nothing.
const KEYS: [Key; 11] = [
    Key { flag: "enable-chunked-prefill", path: "enableChunkedPrefill", text: false },
    Key { flag: PREFIX_CACHING, path: "enablePrefixCaching", text: false },
    Key { flag: "max-model-len", path: "maxModelLen", text: false },
    Key { flag: "dtype", path: "dtype", text: false },
    Key { flag: "tensor-parallel-size", path: "tensorParallelSize", text: false },
    Key { flag: "max-num-seqs", path: "maxNumSeqs", text: false },
    Key { flag: "gpu-memory-utilization", path: "gpuMemoryUtilization", text: false },
    Key { flag: "max-loras", path: "maxLoras", text: false },
    Key { flag: "runner", path: "runner", text: false },
    Key { flag: "convert", path: "convert", text: false },
    Key { flag: "revision", path: "revision", text: false },
];

const PREFIX_CACHING: &str = "enable-prefix-caching";

fn models() -> Path {
    Path::default().key("servingEngineSpec.modelSpec")
}

fn recognises(root: &Node) -> bool {
    root.get("kind").is_none() && root.at(&models()).is_some_and(|list| !list.items().is_empty())
}

/// Whether helm/templates/ray-cluster.yaml starts a model. It passes `--enable-prefix-caching` or nothing.
fn by_ray(root: &Node, model: &Path) -> bool {
    root.at(&model.key("raySpec")).is_some_and(|ray| ray.text_at("enabled") != Some("false"))
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let location = |(name, at): (String, Path)| ArgumentLocation {
        name,
        args: Some(at.key("vllmConfig.extraArgs")),
        env: vec![at.key("env")],
        keys: Keys::Named(&KEYS),
        keys_at: at.key("vllmConfig"),
        off: if by_ray(root, &at) { &[] } else { &[PREFIX_CACHING] },
        gpus: Some(at.key("requestGPU")),
        memory: Some(at.key("limitMemory")),
        model: Some(at.key("modelURL")),
        engine: Some(Engine::Vllm),
        probes: Path::default().key("servingEngineSpec"),
        ..ArgumentLocation::default()
    };
    named(root, &models()).map(location).collect()
}
