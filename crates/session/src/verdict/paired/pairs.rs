//! What was measured beside what the twin replayed, in blocks of time.

use super::quantile::log_quantile;
use crate::verdict::Window;
use crate::verdict::error_bar::{BLOCKS, block_of, sorted};
use autotune_plan::settings::Metric;
use autotune_twin::{Answered, FastReplay, Observed, Probe, StepCosts, replay_faithfully};

#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    pub(super) measured: Vec<f64>,
    pub(super) replayed: Vec<f64>,
}

/// A probe, those of its requests before the window included, beside its replay.
pub(super) struct Pairs<'a> {
    probe: &'a Probe,
    window: Window,
    answers: Vec<Answered>,
    /// Whether the replay left what the model knows.
    pub(super) out_of_scope: bool,
}

impl<'a> Pairs<'a> {
    pub(super) fn new(probe: &'a Probe, window: Window, costs: &StepCosts) -> Self {
        let mut answers = Vec::new();
        let sent = probe.sent_by_conversation();
        let fidelity = replay_faithfully(costs, probe.bounds(), &sent, &mut FastReplay::default(), &mut answers);
        Self { probe, window, answers, out_of_scope: fidelity.out_of_scope() }
    }

    /// The requests of the window, each with its replay.
    fn in_window(&self) -> impl Iterator<Item = (&Observed, &Answered)> {
        self.probe.requests().iter().zip(&self.answers).filter(|(r, _)| self.window.holds(r.due))
    }

    /// Requests of the window that have no whole answer; for the time to the first token, those that we cut behind it have one.
    pub(super) fn failures(&self, metric: Metric) -> usize {
        let known = |r: &Observed| metric == Metric::Ttft && r.cut && r.first.is_some();
        self.in_window().filter(|(r, _)| r.failed && !known(r)).count()
    }

    /// Both latencies of every answered request of the window, in blocks of time.
    pub(super) fn blocks(&self, metric: Metric) -> Vec<Block> {
        let mut blocks = vec![Block::default(); BLOCKS];
        for (r, a) in self.in_window() {
            let Some((measured, replayed)) = both(metric, r, a) else { continue };
            let block = &mut blocks[block_of(r.due, self.window)];
            block.measured.push(measured);
            block.replayed.push(replayed);
        }
        blocks.retain(|b| !b.measured.is_empty());
        blocks
    }
}

/// The two latencies of a request; `None` if it has no such latency.
fn both(metric: Metric, r: &Observed, a: &Answered) -> Option<(f64, f64)> {
    if !a.last.is_finite() {
        return None;
    }
    match metric {
        Metric::Ttft => Some((r.ttft()?, a.first - a.at + (r.sent - r.due).0)),
        Metric::Tpot => Some((r.tpot()?, a.tpot(r.tokens_out)?)),
        Metric::E2e => Some((r.e2e()?, a.last - a.at + (r.sent - r.due).0)),
        Metric::Itl => None,
    }
}

/// The log quantiles of the blocks but one: measured, and replayed.
pub(super) fn quantiles(blocks: &[Block], without: Option<usize>, q: f64) -> Option<[f64; 2]> {
    let of = |values: fn(&Block) -> &Vec<f64>| log_quantile(&sorted(blocks.iter().map(values), without), q);
    Some([of(|b| &b.measured)?, of(|b| &b.replayed)?])
}
