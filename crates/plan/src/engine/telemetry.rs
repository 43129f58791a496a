//! The few numbers of an engine that a probe watches, which its dialect reads from a page of metrics.

use serde::{Deserialize, Serialize};

/// The state of an engine at one scrape; what the page does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineSample {
    /// Requests in the running batch.
    pub running: Option<f64>,
    pub waiting: Option<f64>,
    /// The used share of the KV cache, 0 to 1; of the fullest engine where one server runs several.
    pub kv_usage: Option<f64>,
    pub preemptions: Option<f64>,
    /// Tokens looked up in the prefix cache since the start.
    pub prefix_queries: Option<f64>,
    /// Tokens found in the prefix cache since the start.
    pub prefix_hits: Option<f64>,
    /// Prompt tokens processed since the start.
    pub prompt_tokens: Option<f64>,
    /// Tokens generated since the start.
    pub generation_tokens: Option<f64>,
    /// Drafts of speculative decoding since the start; like the next two absent where nothing speculates.
    #[serde(default)]
    pub drafts: Option<f64>,
    /// Tokens of these drafts.
    #[serde(default)]
    pub draft_tokens: Option<f64>,
    /// How many of them were accepted.
    #[serde(default)]
    pub accepted_tokens: Option<f64>,
    /// Events of KV caches that a router of Dynamo took into its index since the start.
    #[serde(default)]
    pub kv_events: Option<f64>,
}
