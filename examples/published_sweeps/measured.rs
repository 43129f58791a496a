//! What was measured: the rows of the file, and what the servers' logs say of their limits.

use std::collections::BTreeMap;
use std::path::Path;

use autotune::twin::{Answered, Limits};

const BLOCK: u32 = 16;

/// A server and its runs.
pub struct Configuration {
    pub name: &'static str,
    /// Whether the fit of the profile did not see it.
    pub held_out: bool,
    pub share: f64,
    pub max_num_seqs: u32,
    pub max_num_batched_tokens: u32,
    /// "GPU KV cache size" of its log.
    pub kv_tokens: u32,
    pub runs: Vec<Run>,
}

/// The median and the p99 of a latency, in seconds; none where the file does not tell.
#[derive(Clone, Copy)]
pub struct Aggregate {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

impl Aggregate {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { p50: percentile(&values, 0.5), p99: percentile(&values, 0.99) }
    }
}

/// The value at that share of the ranks, interpolated between neighbours as NumPy's `percentile` does it.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = share * sorted.len().checked_sub(1)? as f64;
    let low = sorted[rank as usize];
    Some(sorted.get(rank as usize + 1).map_or(low, |high| low + rank.fract() * (high - low)))
}

/// What a run took, by the rules of `vllm bench serve`.
#[derive(Clone, Copy)]
pub struct Aggregates {
    pub ttft: Aggregate,
    /// Per token of an answer after its first; an answer of one token has none and is left out.
    pub tpot: Aggregate,
}

impl Aggregates {
    /// Of a replay whose answers have so many tokens.
    pub fn of(requests: &[Answered], output_tokens: impl Iterator<Item = u32>) -> Self {
        let ttft = requests.iter().map(|r| r.first - r.at).collect();
        let tpot = requests.iter().zip(output_tokens).filter(|(_, tokens)| *tokens > 1);
        let tpot = tpot.map(|(r, tokens)| (r.last - r.first) / f64::from(tokens - 1)).collect();
        Self { ttft: Aggregate::of(ttft), tpot: Aggregate::of(tpot) }
    }
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
    /// The warm-up is part of the history; it is no point of the sweep.
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
        Aggregate { p50: of("p50"), p99: of("p99") }
    };
    Run {
        rate: number("request_rate").unwrap(),
        prompts: row["num_prompts"].parse().unwrap(),
        aggregates: Aggregates { ttft: aggregate("ttft"), tpot: aggregate("tpot") },
        most_at_once: number("max_concurrent_requests"),
    }
}
