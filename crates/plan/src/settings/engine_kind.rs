//! The engines that a space file can name.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    #[default]
    Vllm,
    Sglang,
    /// Dynamo: a frontend, and workers with one of these engines.
    #[serde(rename = "dynamo-mocker", alias = "dynamo")]
    DynamoMocker,
    #[serde(rename = "dynamo-vllm")]
    DynamoVllm,
    #[serde(rename = "dynamo-sglang")]
    DynamoSglang,
    #[serde(rename = "dynamo-trtllm")]
    DynamoTrtllm,
    /// The embedded simulated engine, `autotune sim-engine`, a real process with vLLM's flags.
    Simulated,
}

impl EngineKind {
    /// Whether there is no model behind it: then no number is a measurement.
    pub fn is_simulated(self) -> bool {
        matches!(self, Self::Simulated | Self::DynamoMocker)
    }
}
