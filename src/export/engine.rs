//! The engines whose arguments a manifest may hold.

use crate::settings::EngineKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// vLLM, by itself or under something that passes its flags on; the simulated engine takes the same ones.
    Vllm,
    /// KServe's server for models that vLLM does not run.
    HuggingFace,
    Sglang,
    TensorRtLlm,
}

impl Engine {
    /// The one that a kind of engine launches, by itself or as a worker.
    pub fn of(kind: EngineKind) -> Self {
        match kind {
            EngineKind::Sglang | EngineKind::DynamoSglang => Self::Sglang,
            EngineKind::DynamoTrtllm => Self::TensorRtLlm,
            EngineKind::Vllm | EngineKind::Simulated | EngineKind::DynamoVllm | EngineKind::DynamoMocker => Self::Vllm,
        }
    }

    /// Its name, as its authors write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::HuggingFace => "the Hugging Face backend",
            Self::Sglang => "SGLang",
            Self::TensorRtLlm => "TensorRT-LLM",
        }
    }
}
