//! What was measured: the rows of the file, and what the servers' logs say of their limits.

use std::collections::BTreeMap;
use std::path::Path;

use autotune::twin::{Aggregate, Aggregates, Limits};

const BLOCK: u32 = 16;

/// A server and its runs.
pub struct Configuration {
    pub name: &'static str,
    /// Whether the fit must not see it.
    pub held_out: bool,
    pub share: f64,
    pub max_num_seqs: u32,
    pub max_num_batched_tokens: u32,
    /// "GPU KV cache size" of its log.
    pub kv_tokens: u32,
    pub runs: Vec<Run>,
}

/// A run: the first prompts of the list at a rate.
pub struct Run {
    pub rate: f64,
    pub prompts: usize,
    pub aggregates: Aggregates,
    /// The most requests at once, as the client counted them by the second.
    pub most_at_once: Option<f64>,
}

impl Configuration {
    pub fn limits(&self) -> Limits {
        let Self { max_num_seqs, max_num_batched_tokens, .. } = *self;
        Limits { max_num_seqs, max_num_batched_tokens, num_blocks: self.kv_tokens / BLOCK, block_size: BLOCK }
    }

    /// Whether requests waited for a place in that run: TTFT is then a queue that grows until the prompts are out.
    pub fn saturated(&self, run: &Run) -> bool {
        run.most_at_once.is_some_and(|most| most > f64::from(self.max_num_seqs))
    }
}

impl Run {
    /// The warm-up is part of the history and of the fit; it is no point of the sweep.
    pub fn warm_up(&self) -> bool {
        self.most_at_once.is_none()
    }
}

pub fn read(file: &Path) -> Vec<Configuration> {
    let rows: Vec<BTreeMap<String, String>> =
        csv::Reader::from_path(file).unwrap().deserialize().map(|row| row.unwrap()).collect();
    let one = |name, held_out, share, max_num_seqs, max_num_batched_tokens, kv_tokens| {
        let runs = rows.iter().filter(|row| row["configuration"] == name).map(run).collect();
        Configuration { name, held_out, share, max_num_seqs, max_num_batched_tokens, kv_tokens, runs }
    };
    vec![
        one("phase0", false, 0.90, 1024, 8192, 348_304),
        one("baseline-rerun", false, 0.90, 1024, 8192, 348_304),
        one("mem095", false, 0.95, 1024, 8192, 394_128),
        one("batch16k", false, 0.90, 1024, 16_384, 347_488),
        one("seqs128", false, 0.90, 128, 8192, 369_568),
        one("moderate", true, 0.95, 128, 16_384, 404_928),
        one("aggressive", true, 0.95, 256, 32_768, 372_560),
    ]
}

fn run(row: &BTreeMap<String, String>) -> Run {
    let number = |column: &str| row[column].parse::<f64>().ok();
    let aggregate = |metric: &str| {
        let of = |name: &str| number(&format!("{name}_{metric}_ms")).map(|ms| ms / 1e3);
        Aggregate { mean: of("mean"), p50: of("p50"), p95: of("p95"), p99: of("p99") }
    };
    Run {
        rate: number("request_rate").unwrap(),
        prompts: row["num_prompts"].parse().unwrap(),
        aggregates: Aggregates { ttft: aggregate("ttft"), tpot: aggregate("tpot"), itl: aggregate("itl") },
        most_at_once: number("max_concurrent_requests"),
    }
}
