//! The engine of a trial as the twin sees it: the limits of its scheduler, and what it caches.

use crate::rig::{self, Ready};
use autotune_plan::engine::is_left_out;
use autotune_plan::settings::Plan;
use autotune_plan::space::{Point, Value};
use autotune_records::units::{Rate, Seconds};
use autotune_twin::{Bounds, DEFAULT_BLOCK, EngineFlags, Launch, Sent, StepCosts};
use autotune_workload::{Outline, Resent};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwinEngine {
    pub bounds: Bounds,
    /// Tokens of a KV block; `None` if prefixes are not reused.
    pub reused_block: Option<u32>,
    /// Whether others may use its machine.
    pub shared: bool,
}

impl TwinEngine {
    /// By what the engine reports, and otherwise by what it was asked for. `None` if the limits of its scheduler are not known, or the twin
    /// does not model its scheduler.
    pub fn of(plan: &Plan, point: &Point, ready: &Ready) -> Option<Self> {
        let value = |name: &str| ready.effective.values.get(name).or_else(|| point.get(name));
        let count = |name| match value(name) {
            Some(Value::Int(count)) => u32::try_from(*count).ok(),
            _ => None,
        };
        let speculates = |word: &String| word.trim_start_matches('-').starts_with("speculative");
        let drafts = |(name, value): (&String, &Value)| speculates(name) && !is_left_out(value);
        if !plan.with_twin()
            || plan.engine.args.iter().any(speculates)
            || point.0.iter().any(drafts)
            || value("enable-chunked-prefill") == Some(&Value::Bool(false))
        {
            return None;
        }
        let bounds = Bounds {
            max_num_seqs: count("max-num-seqs")?,
            max_num_batched_tokens: count("max-num-batched-tokens")?,
            kv_tokens: ready.effective.kv_cache_tokens,
        };
        let reuses = value("enable-prefix-caching") != Some(&Value::Bool(false));
        let block = count("block-size").unwrap_or(DEFAULT_BLOCK);
        Some(Self { bounds, reused_block: reuses.then_some(block), shared: ready.shared })
    }

    /// As it would be with the values of another point; what that point leaves out stays.
    pub fn at(&self, point: &Point) -> Self {
        let count = |name, now| match point.get(name) {
            Some(Value::Int(count)) => u32::try_from(*count).unwrap_or(now),
            _ => now,
        };
        let reused_block = match point.get("enable-prefix-caching") {
            Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => self.reused_block.or(Some(DEFAULT_BLOCK)),
            _ => self.reused_block,
        };
        let bounds = Bounds {
            max_num_seqs: count("max-num-seqs", self.bounds.max_num_seqs),
            max_num_batched_tokens: count("max-num-batched-tokens", self.bounds.max_num_batched_tokens),
            ..self.bounds
        };
        Self { bounds, reused_block, ..*self }
    }

    /// The same engine with a KV cache so many times as large.
    pub fn with_cache(&self, times: u64) -> Self {
        let kv_tokens = self.bounds.kv_tokens.map(|tokens| tokens.saturating_mul(times));
        Self { bounds: Bounds { kv_tokens, ..self.bounds }, ..*self }
    }

    /// The same engine simulated block by block, with these step times; `None` if the size of its KV cache is not known.
    pub fn in_blocks(&self, costs: &StepCosts, resent: Option<Resent>) -> Option<rig::SimulatedEngine> {
        let limits = self.bounds.limits(self.reused_block.unwrap_or(DEFAULT_BLOCK))?;
        let flags = EngineFlags {
            max_num_seqs: limits.max_num_seqs,
            max_num_batched_tokens: limits.max_num_batched_tokens,
            gpu_memory_utilization: 1.0,
            max_model_len: u32::MAX,
            kv_cache_memory_bytes: None,
            prefix_caching: self.reuses(),
            draft_tokens: 0,
            acceptance: 0.0,
        };
        Some(rig::SimulatedEngine {
            costs: *costs,
            kernels: None,
            flags,
            limits,
            max_seqs_before_oom: u32::MAX,
            noise: None,
            launch: Launch::MEDIAN,
            age: 0.0,
            misses: resent.map_or(0.0, |resent| 1.0 - resent.found),
        })
    }

    pub fn reuses(&self) -> bool {
        self.reused_block.is_some()
    }

    /// Requests that were drawn at one a second, as they are sent to this engine at a rate. A later turn comes `think` after the answer before it.
    /// With `apart`, each document takes its own room in the cache.
    pub fn sent(&self, outlines: &[Outline], rate: Rate, think: Option<Seconds>, apart: bool) -> Vec<Sent> {
        let mut sent: Vec<Sent> = Vec::with_capacity(outlines.len());
        for outline in outlines {
            let cached = self.cached(outline.prompt_tokens, outline.shared_tokens);
            let before = outline.follows.and_then(|before| sent.get(before as usize));
            sent.push(Sent {
                at: if before.is_some() { think.unwrap_or_default().0 } else { outline.due.0 / rate.0 },
                follows: outline.follows,
                prompt: outline.prompt_tokens,
                cached,
                // What a conversation has said is its own; the document that it is about is not.
                shared: before.map_or(cached, |before| before.shared),
                // Documents of the same length are rare.
                document: before.map_or(if apart { cached } else { 0 }, |before| before.document),
                output: outline.output_tokens,
            });
        }
        sent
    }

    /// Tokens that the cache holds of a prompt of which so many are shared: whole blocks, and never the last token.
    fn cached(&self, prompt: u32, shared: u32) -> u32 {
        self.reused_block.map_or(0, |block| shared.min(prompt.saturating_sub(1)) / block * block)
    }
}
