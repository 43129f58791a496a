//! The history of a server: runs one after another on one scheduler, whose prefix cache lives on from run to run.
//!
//! A bench that sends the same prompts again at another rate finds in the cache what the runs before it left there. Whoever replays
//! such a run alone takes the cache for colder than it was.

use super::aggregates::Aggregates;
use super::costs::StepCosts;
use super::profile::Limits;
use super::replay::{Arrival, Replayed, serve};
use super::scheduler::Scheduler;

/// One run of a history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistoryRun {
    /// Its requests, sorted by their due time, which counts from the start of the run.
    pub arrivals: Vec<Arrival>,
    /// What was measured; nothing for a run that only warmed the cache.
    pub measured: Option<Aggregates>,
}

/// A server and what it was sent since its start.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    pub limits: Limits,
    /// The runs in their order; each waits until the one before it is answered.
    pub runs: Vec<HistoryRun>,
}

/// What became of a run of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedRun {
    /// Its requests, in the order of the arrivals.
    pub requests: Vec<Replayed>,
    pub aggregates: Aggregates,
    /// The part of the prompt tokens that the prefix cache saved, 0 to 1.
    pub hit_rate: f64,
    pub preemptions: u64,
}

impl History {
    /// Replays the runs on a server that starts with an empty cache.
    pub fn replay(&self, costs: &StepCosts) -> Vec<ReplayedRun> {
        let mut scheduler = Scheduler::new(*costs, self.limits).sparing(true);
        self.runs.iter().map(|run| one(&mut scheduler, costs, run)).collect()
    }
}

fn one(scheduler: &mut Scheduler, costs: &StepCosts, run: &HistoryRun) -> ReplayedRun {
    let before = scheduler.counters();
    let mut gaps = Vec::new();
    let requests = serve(scheduler, costs, run.arrivals.iter().cloned(), |seconds, streams| {
        gaps.push((seconds, streams));
    });
    let after = scheduler.counters();
    let output_tokens: Vec<u32> = run.arrivals.iter().map(|a| a.output_tokens).collect();
    let queries = after.prefix_queries - before.prefix_queries;
    ReplayedRun {
        aggregates: Aggregates::of(&requests, &output_tokens, gaps),
        requests,
        hit_rate: (after.prefix_hits - before.prefix_hits) as f64 / queries.max(1) as f64,
        preemptions: after.preemptions - before.preemptions,
    }
}

#[cfg(test)]
mod tests {
    use super::super::PromptShape;
    use super::*;

    const COSTS: StepCosts =
        StepCosts { base: 0.01, per_prefill_token: 1e-4, overhead: 1e-3, ..super::super::NO_COSTS };

    fn history(num_blocks: u32) -> History {
        let arrival = |i: u64| Arrival {
            id: i,
            due_s: i as f64,
            prompt: PromptShape { tokens: 330, blocks: (0..20).map(|b| i * 100 + b).collect() },
            output_tokens: 2,
        };
        let run = HistoryRun { arrivals: (0..10).map(arrival).collect(), measured: None };
        let limits = Limits { max_num_seqs: 8, max_num_batched_tokens: 512, num_blocks, block_size: 16 };
        History { limits, runs: vec![run.clone(), run] }
    }

    #[test]
    fn a_second_run_of_the_same_prompts_finds_them_in_the_cache() {
        let runs = history(1000).replay(&COSTS);
        assert_eq!(runs[0].hit_rate, 0.0);
        assert!((runs[1].hit_rate - 320.0 / 330.0).abs() < 1e-9, "{}", runs[1].hit_rate);
        let (cold, warm) = (runs[0].aggregates.ttft.p50.unwrap(), runs[1].aggregates.ttft.p50.unwrap());
        assert!((cold - (0.011 + 330e-4)).abs() < 1e-9 && (warm - (0.011 + 10e-4)).abs() < 1e-9, "{cold} {warm}");
        assert_eq!(runs[1].aggregates.itl.p50, Some(0.01));
    }

    #[test]
    fn a_cache_smaller_than_the_prompts_has_evicted_them_by_then() {
        assert_eq!(history(150).replay(&COSTS)[1].hit_rate, 0.0);
    }
}
