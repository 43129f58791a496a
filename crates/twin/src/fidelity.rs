//! A replay as exact as the load asks for: by sums, or block by block where the KV cache is what limits.

use super::costs::StepCosts;
use super::fast::{Answered, Bounds, DEFAULT_BLOCK, FastReplay, Pressure, Sent};
use super::replay::{Arrival, replay};
use super::scheduler::PromptShape;

/// Where this share of the prompts' tokens is cached, the blocks that requests share are not known from their numbers.
const MUCH_CACHED: f64 = 0.05;
/// Block by block takes many times as long: so many requests at most.
const MOST_BY_BLOCKS: usize = 30_000;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplayFidelity {
    /// The load on the engine in the replay by sums; up to the first full KV cache where it was then repeated block by block.
    pub pressure: Pressure,
    pub by_blocks: bool,
}

impl ReplayFidelity {
    /// Whether the KV cache was the limit and the replay does not know what that does.
    pub fn out_of_scope(&self) -> bool {
        !self.by_blocks && self.pressure.by_cache()
    }
}

/// Serves the requests, sorted by their time, and tells when each was answered, in their order. Where the KV cache limits and hardly
/// anything is shared, the first 30,000 are served block by block. There are no answers for the others.
pub fn replay_faithfully(
    costs: &StepCosts,
    bounds: Bounds,
    requests: &[Sent],
    memory: &mut FastReplay,
    answers: &mut Vec<Answered>,
) -> ReplayFidelity {
    let follow = || requests.iter().any(|r| r.follows.is_some());
    let blocks = bounds.limits(DEFAULT_BLOCK).filter(|_| cached_share(requests) <= MUCH_CACHED && !follow());
    let pressure = match blocks {
        // What the sums say of a cache that limits is thrown away.
        Some(_) => memory.run_until_cache_full(costs, bounds, requests, answers),
        None => memory.run(costs, bounds, requests, answers),
    };
    let Some(limits) = blocks.filter(|_| pressure.by_cache()) else {
        return ReplayFidelity { pressure, by_blocks: false };
    };
    let arrivals = requests.iter().take(MOST_BY_BLOCKS).map(|r| Arrival {
        due_s: r.at,
        prompt: PromptShape { tokens: r.prompt.max(1), blocks: Vec::new() },
        output_tokens: r.output.max(1),
    });
    *answers = replay(*costs, limits, arrivals);
    ReplayFidelity { pressure, by_blocks: true }
}

fn cached_share(requests: &[Sent]) -> f64 {
    let sums = requests.iter().fold((0, 0), |(c, a), r| (c + u64::from(r.cached), a + u64::from(r.prompt)));
    sums.0 as f64 / sums.1.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::Profile;
    use super::*;

    fn requests(cached: u32) -> Vec<Sent> {
        let at = |i: u32| f64::from(i) * 0.02 + f64::from(i % 7) * 0.002;
        (0..600)
            .map(|i| Sent {
                at: at(i),
                prompt: 150 + i % 90,
                cached,
                shared: cached,
                document: 0,
                output: 16 + i % 17,
                follows: None,
            })
            .collect()
    }

    #[test]
    fn a_cache_that_limits_is_replayed_block_by_block_and_a_large_one_by_sums() {
        let p = Profile::quickstart();
        let bounds = |kv| Bounds { max_num_seqs: 64, max_num_batched_tokens: 2048, kv_tokens: Some(kv) };
        let run = |bounds, requests: &[Sent]| {
            let mut answers = Vec::new();
            (replay_faithfully(&p.costs, bounds, requests, &mut FastReplay::default(), &mut answers), answers)
        };
        let (roomy, by_sums) = run(bounds(100_000), &requests(0));
        assert!(!roomy.by_blocks && !roomy.out_of_scope());
        let (tight, by_blocks) = run(bounds(640), &requests(0));
        assert!(tight.by_blocks && !tight.out_of_scope() && tight.pressure.kv_full > 0, "{tight:?}");
        assert_eq!((by_sums.len(), by_blocks.len()), (600, 600));
        assert!(by_blocks.last().unwrap().first > by_sums.last().unwrap().first, "requests wait for room");
        let (shared, _) = run(bounds(640), &requests(100));
        assert!(shared.out_of_scope(), "which blocks are shared is not known");
    }
}
