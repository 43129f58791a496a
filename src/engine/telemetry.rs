//! The few numbers of an engine that a probe watches, read from a page of metrics by vLLM's names.

use serde::{Deserialize, Serialize};

use super::metrics::Page;

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

impl From<&Page> for EngineSample {
    fn from(page: &Page) -> Self {
        // Clients of the OpenMetrics format append `_total` to counters, older ones do not.
        let counter = |name: &str| page.value(&format!("{name}_total")).or_else(|| page.value(name));
        Self {
            running: page.value("vllm:num_requests_running"),
            waiting: page.value("vllm:num_requests_waiting"),
            // Before the V1 engine had settled, the cache was called the GPU's.
            kv_usage: page.largest("vllm:kv_cache_usage_perc").or_else(|| page.largest("vllm:gpu_cache_usage_perc")),
            preemptions: counter("vllm:num_preemptions"),
            prefix_queries: counter("vllm:prefix_cache_queries").or_else(|| counter("vllm:gpu_prefix_cache_queries")),
            prefix_hits: counter("vllm:prefix_cache_hits").or_else(|| counter("vllm:gpu_prefix_cache_hits")),
            prompt_tokens: counter("vllm:prompt_tokens"),
            generation_tokens: counter("vllm:generation_tokens"),
            drafts: counter("vllm:spec_decode_num_drafts"),
            draft_tokens: counter("vllm:spec_decode_num_draft_tokens"),
            accepted_tokens: counter("vllm:spec_decode_num_accepted_tokens"),
            kv_events: page.value_with("dynamo_component_kv_cache_events_applied", ("status", "ok")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_engine_tells_everything() {
        let sample = EngineSample::from(&Page::parse(include_str!("../../tests/data/vllm/metrics_after_load.txt")));
        let expected = EngineSample {
            running: Some(0.0),
            waiting: Some(0.0),
            kv_usage: Some(0.0),
            preemptions: Some(0.0),
            prefix_queries: Some(7680.0),
            prefix_hits: Some(0.0),
            prompt_tokens: Some(7680.0),
            generation_tokens: Some(1943.0),
            ..EngineSample::default()
        };
        assert_eq!(sample, expected);
    }

    #[test]
    fn drafts_and_events_of_a_router_are_known() {
        let page = Page::parse(
            "vllm:spec_decode_num_drafts_total{engine=\"0\",model_name=\"tiny\"} 796.0\n\
             vllm:spec_decode_num_draft_tokens_total{engine=\"0\",model_name=\"tiny\"} 2108.0\n\
             vllm:spec_decode_num_accepted_tokens_total{engine=\"0\",model_name=\"tiny\"} 1570.0\n\
             dynamo_component_kv_cache_events_applied{event_type=\"stored\",status=\"ok\",worker_id=\"1\"} 40\n\
             dynamo_component_kv_cache_events_applied{event_type=\"removed\",status=\"ok\",worker_id=\"2\"} 2\n\
             dynamo_component_kv_cache_events_applied{event_type=\"stored\",status=\"invalid_block\",worker_id=\"1\"} 7\n",
        );
        let sample = EngineSample::from(&page);
        assert_eq!(
            (sample.drafts, sample.draft_tokens, sample.accepted_tokens),
            (Some(796.0), Some(2108.0), Some(1570.0))
        );
        assert_eq!(sample.kv_events, Some(42.0));
    }

    #[test]
    fn a_worker_that_tells_less_leaves_gaps() {
        let sample = EngineSample::from(&Page::parse(include_str!("../../tests/data/vllm/dynamo_worker_metrics.txt")));
        assert_eq!((sample.running, sample.kv_usage, sample.preemptions), (Some(0.0), Some(0.0), Some(0.0)));
        assert_eq!((sample.prefix_hits, sample.prompt_tokens), (None, None));
    }

    #[test]
    fn counters_without_total_and_several_engines_are_known() {
        let page = Page::parse(
            "vllm:num_preemptions{engine=\"0\"} 2\nvllm:num_preemptions{engine=\"1\"} 3\n\
             vllm:gpu_cache_usage_perc{engine=\"0\"} 0.2\nvllm:gpu_cache_usage_perc{engine=\"1\"} 0.9\n",
        );
        let sample = EngineSample::from(&page);
        assert_eq!((sample.preemptions, sample.kv_usage), (Some(5.0), Some(0.9)));
        assert_eq!(EngineSample::from(&Page::default()), EngineSample::default());
    }
}
