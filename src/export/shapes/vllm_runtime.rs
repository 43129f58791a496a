//! VLLMRuntime of the vLLM production stack's operator: keys for some flags, a list for all others.

use super::{ArgumentLocation, Engine, Kind, Shape, is};
use crate::export::arguments::keys::{Key, Keys};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape { name: "production stack VLLMRuntime", recognises, locations, kind: Kind::Custom };

/// Those of operator/internal/controller/vllmruntime_controller.go.
const KEYS: [Key; 8] = [
    Key { flag: CHUNKED_PREFILL, path: "vllmConfig.enableChunkedPrefill", text: false },
    Key { flag: PREFIX_CACHING, path: "vllmConfig.enablePrefixCaching", text: false },
    Key { flag: "max-model-len", path: "model.maxModelLen", text: false },
    Key { flag: "dtype", path: "model.dtype", text: false },
    Key { flag: "tensor-parallel-size", path: "vllmConfig.tensorParallelSize", text: false },
    Key { flag: "max-num-seqs", path: "model.maxNumSeqs", text: false },
    Key { flag: "gpu-memory-utilization", path: "vllmConfig.gpuMemoryUtilization", text: true },
    Key { flag: "max-loras", path: "vllmConfig.maxLoras", text: false },
];

const CHUNKED_PREFILL: &str = "enable-chunked-prefill";
const PREFIX_CACHING: &str = "enable-prefix-caching";

fn recognises(root: &Node) -> bool {
    is(root, "production-stack.vllm.ai", None, &["VLLMRuntime"])
}

fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let spec = Path::default().key("spec");
    let name = root.text_at("metadata.name").unwrap_or("runtime");
    vec![ArgumentLocation {
        name: name.to_owned(),
        args: Some(spec.key("vllmConfig.extraArgs")),
        env: vec![spec.key("vllmConfig.env")],
        keys: Keys::Named(&KEYS),
        keys_at: spec.clone(),
        off: &[CHUNKED_PREFILL, PREFIX_CACHING],
        gpus: Some(spec.key("deploymentConfig.resources.gpu")),
        memory: Some(spec.key("deploymentConfig.resources.memory")),
        model: Some(spec.key("model.modelURL")),
        engine: Some(Engine::Vllm),
        ..ArgumentLocation::default()
    }]
}
