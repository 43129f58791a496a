//! How many requests the replays of a session serve, and how much its fits may replay.

use autotune_twin::Effort;

/// Requests by kind of replay: with fewer, a session takes less time and its estimates scatter more.
#[derive(Clone, Copy, Debug)]
pub struct SampleSizes {
    /// A long-run replay of requests that nothing connects: fewer mislead near the limit, as fewer measured ones do.
    pub long_run: usize,
    /// A long-run replay of conversations. Their requests come together, so that as many say less. Two draws of 30,000 give times per token whose
    /// p99 differ by 5 % (70B on an H200, kernels timed by NVIDIA).
    pub long_run_of_conversations: usize,
    /// A long-run replay block by block: so many take a second, while an engine waits.
    pub long_run_in_blocks: u32,
    /// A stress replay of what is certified: two seconds on four cores.
    pub stress: Stress,
    /// A stress replay for the search, half a second on two cores. With streams of 10,000 requests all points of one simulated engine (L40S,
    /// multi-turn) had the same ceiling, though their limits differ by 10 %. Eight streams of 7,500 do not tell them apart either.
    pub stress_in_search: Stress,
    /// A replay that tells the search what a point is worth. All points see the same requests, so the Gaussian process corrects what these have in
    /// common.
    pub search: usize,
    /// How many draws of the arrivals of a window are replayed, to find a representative one.
    pub draws_of_arrivals: u64,
    /// A replay that tells what an answer takes.
    pub answer_time: usize,
    /// A fit, while an engine waits.
    pub fit: Effort,
}

/// How much a stress replay serves: streams of requests, each into an empty engine, so that cores share the work.
#[derive(Clone, Copy, Debug)]
pub struct Stress {
    pub requests: u32,
    /// Streams where the KV cache fills or some latency is far beyond its limit; elsewhere the first two tell.
    pub streams: u64,
}

impl Default for SampleSizes {
    fn default() -> Self {
        Self::FULL
    }
}

impl SampleSizes {
    pub const FULL: Self = Self {
        long_run: 100_000,
        long_run_of_conversations: 300_000,
        long_run_in_blocks: 30_000,
        stress: Stress { requests: 30_000, streams: 8 },
        stress_in_search: Stress { requests: 30_000, streams: 2 },
        search: 12_000,
        draws_of_arrivals: 32,
        answer_time: 6_000,
        fit: Effort::SESSION,
    };
}
