//! What was measured beside what the twin replayed, in blocks of time.

use super::quantile::log_quantile;
use crate::settings::Metric;
use crate::twin::{Answered, FastReplay, Observed, Probe, StepCosts, careful};
use crate::verdict::Window;

/// Blocks of one window, as many as the plain count takes.
const BLOCKS: usize = super::super::error_bar::BLOCKS;

/// One probe that was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// Its requests, those before the window included.
    pub probe: &'a Probe,
    pub window: Window,
}

/// The latencies of a block of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    pub(super) probe: usize,
    pub(super) measured: Vec<f64>,
    pub(super) replayed: Vec<f64>,
}

/// A replay of measured probes, ready to be asked for any metric.
pub(super) struct Pairs<'a> {
    measured: &'a [Measured<'a>],
    answers: Vec<Vec<Answered>>,
    /// Whether a replay left what the model knows.
    pub(super) out_of_scope: bool,
}

impl<'a> Pairs<'a> {
    pub(super) fn new(measured: &'a [Measured<'a>], costs: &StepCosts) -> Self {
        let mut memory = FastReplay::default();
        let mut out_of_scope = false;
        let mut each = |m: &Measured| {
            let mut answers = Vec::new();
            let care = careful(costs, m.probe.bounds(), &m.probe.sent_by_conversation(), &mut memory, &mut answers);
            out_of_scope |= care.out_of_scope();
            answers
        };
        let answers = measured.iter().map(&mut each).collect();
        Self { measured, answers, out_of_scope }
    }

    /// How many probes there are.
    pub(super) fn probes(&self) -> usize {
        self.measured.len()
    }

    /// Requests of the windows that have no whole answer; for the time to the first token, those that we cut behind it have one.
    pub(super) fn failures(&self, metric: Metric) -> usize {
        let known = |r: &Observed| metric == Metric::Ttft && r.cut && r.first.is_some();
        let failed = |r: &&Observed| r.failed && !known(r);
        let in_window =
            |m: &&Measured| m.probe.requests().iter().filter(failed).filter(|r| m.window.holds(r.due)).count();
        self.measured.iter().map(|m| in_window(&m)).sum()
    }

    /// Both latencies of every answered request of the windows, in blocks of time.
    pub(super) fn blocks(&self, metric: Metric) -> Vec<Block> {
        let mut blocks = Vec::new();
        for (probe, (m, answers)) in self.measured.iter().zip(&self.answers).enumerate() {
            let first = blocks.len();
            blocks.resize(first + BLOCKS, Block { probe, ..Block::default() });
            for (r, a) in m.probe.requests().iter().zip(answers).filter(|(r, _)| m.window.holds(r.due)) {
                let Some((measured, replayed)) = both(metric, r, a) else { continue };
                let share = (r.due - m.window.from).0 / m.window.length().0;
                let block = &mut blocks[first + ((share * BLOCKS as f64) as usize).min(BLOCKS - 1)];
                block.measured.push(measured);
                block.replayed.push(replayed);
            }
        }
        blocks.retain(|b| !b.measured.is_empty());
        blocks
    }
}

/// The two latencies of a request; none where it has no such latency.
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
    let of = |values: fn(&Block) -> &Vec<f64>| {
        let kept = blocks.iter().enumerate().filter(|(i, _)| Some(*i) != without);
        let mut all: Vec<f64> = kept.flat_map(|(_, b)| values(b).iter().copied()).collect();
        all.sort_by(f64::total_cmp);
        log_quantile(&all, q)
    };
    Some([of(|b| &b.measured)?, of(|b| &b.replayed)?])
}
