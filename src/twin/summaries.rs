//! The fit to aggregates: histories of servers with the means and quantiles of their runs -> the coefficients of the engine's steps.
//!
//! Where files hold no single requests, the paired fit has nothing to pair. This one replays whole histories and compares aggregates,
//! so it says less, takes longer, and tells no errors of its coefficients.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::aggregates::{Aggregate, Aggregates};
use super::coefficients::{self, COUNT};
use super::costs::StepCosts;
use super::history::History;
use crate::parallel;
use crate::simplex::minimize;

/// A ratio this far from one, in logarithms, counts little more when it is farther: a run deep in saturation is off by a factor soon.
const SCALE: f64 = 0.1;
/// How far the truth may be from a start, as a standard deviation of logarithms; it decides nothing that the data say anything about.
const SPREAD: f64 = 2.0;
/// The weights of the mean, p50, p95 and p99.
const OF_VALUES: [f64; 4] = [0.5, 1.0, 0.7, 1.0];
/// The same where the requests were drawn anew: a p99 hangs on the luck of a few of them, a mean and a median on that of all.
const OF_DRAWN: [f64; 4] = [1.0, 1.0, 0.5, 0.25];
/// The weights of TTFT, TPOT and ITL. TPOT repeats best from run to run, TTFT hangs on the luck of few requests, and ITL tells much the
/// same as TPOT again.
const OF_METRICS: [f64; 3] = [1.0, 3.0, 0.5];
/// The first edges of the simplexes, in logarithms.
const EDGES: [f64; 2] = [0.3, 0.15];

/// What aggregates say about an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SummaryFit {
    pub costs: StepCosts,
    /// The loss; comparable between fits to the same histories alone.
    pub loss: f64,
    /// How often the histories were replayed.
    pub replays: u64,
}

/// What a fit to aggregates goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryTerms<'a> {
    /// How often all histories are replayed, about; up to half more often.
    pub replays: u64,
    /// Whether the requests were drawn anew, since nobody tells when those that were measured came; p99 and p95 then count less.
    pub drawn: bool,
    /// The coefficients that may move, by their names; none for all that are not zero in a start.
    pub moving: Option<&'a [&'a str]>,
}

/// Why there is no fit to aggregates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryFitError {
    /// No run of any history was measured.
    NothingMeasured,
    /// There is nothing to start from.
    NoStart,
}

impl fmt::Display for SummaryFitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingMeasured => write!(f, "no run of these histories was measured"),
            Self::NoStart => write!(f, "a fit to aggregates starts from coefficients, and none were given"),
        }
    }
}

impl std::error::Error for SummaryFitError {}

/// Fits the engine's steps to the aggregates of these histories, from the best of the starts. A coefficient that is zero in a start stays
/// zero from there, and one that may not move stays as it is there.
///
/// # Errors
/// Nothing to fit to or to start from.
pub fn fit_summaries(
    histories: &[History],
    starts: &[StepCosts],
    terms: &SummaryTerms<'_>,
) -> Result<SummaryFit, SummaryFitError> {
    if histories.iter().all(|h| h.runs.iter().all(|run| run.measured.is_none())) {
        return Err(SummaryFitError::NothingMeasured);
    }
    let replays = terms.replays;
    let of_values = if terms.drawn { OF_DRAWN } else { OF_VALUES };
    let loss = Loss { histories, of_values, replays: std::cell::Cell::new(0) };
    // Each start gets a small part, the best of them the rest in two simplexes; a move is about one and a half replays.
    let part = replays / 4 / starts.len().max(1) as u64;
    let mut best: Option<Point> = None;
    for start in starts {
        let point = loss.search(&Point::at(start, terms.moving), EDGES[0], part);
        if best.as_ref().is_none_or(|best| point.loss < best.loss) {
            best = Some(point);
        }
    }
    let mut best = best.ok_or(SummaryFitError::NoStart)?;
    for edge in EDGES {
        best = loss.search(&best, edge, replays * 3 / 8);
    }
    Ok(SummaryFit { costs: best.costs(), loss: best.loss, replays: loss.replays.get() })
}

/// A place in the space of coefficients, which of them are not zero, which of these may move, and where they came from.
#[derive(Clone, Debug)]
struct Point {
    x: Vec<f64>,
    start: [f64; COUNT],
    there: [bool; COUNT],
    free: [bool; COUNT],
    loss: f64,
}

impl Point {
    fn at(start: &StepCosts, moving: Option<&[&str]>) -> Self {
        let nothing = coefficients::pack(&StepCosts::default());
        let packed = coefficients::pack(start);
        let there: [bool; COUNT] = std::array::from_fn(|i| packed[i] > nothing[i]);
        let may = |i: usize| moving.is_none_or(|moving| moving.contains(&coefficients::name(i)));
        let free = std::array::from_fn(|i| there[i] && may(i));
        Self { x: packed.to_vec(), start: packed, there, free, loss: f64::INFINITY }
    }

    /// The costs, with zeros where the start had them.
    fn costs(&self) -> StepCosts {
        coefficients::unpack_some(&self.x, self.there)
    }
}

struct Loss<'a> {
    histories: &'a [History],
    of_values: [f64; 4],
    replays: std::cell::Cell<u64>,
}

impl Loss<'_> {
    fn search(&self, from: &Point, edge: f64, replays: u64) -> Point {
        let edges = from.free.map(|free| if free { edge } else { 0.0 });
        let cost = |x: &[f64]| {
            let drawn = x.iter().zip(from.start).map(|(x, c)| ((x - c) / SPREAD).powi(2)).sum::<f64>();
            self.of(&coefficients::unpack_some(x, from.there)) + 1e-3 * drawn
        };
        let free = from.free.iter().filter(|free| **free).count() as u64;
        let (x, loss) = minimize(cost, &from.x, &edges, (replays.saturating_sub(free) * 2 / 3).max(1));
        Point { x, loss, ..from.clone() }
    }

    /// The weighted mean over all that was measured.
    fn of(&self, costs: &StepCosts) -> f64 {
        self.replays.set(self.replays.get() + 1);
        let of_values = self.of_values;
        let each = parallel::map(self.histories, |history| of_history(history, costs, of_values), |_| ());
        let (loss, weight) = each.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        loss / weight
    }
}

/// The loss of a history and its weight.
fn of_history(history: &History, costs: &StepCosts, of_values: [f64; 4]) -> (f64, f64) {
    let mut sum = (0.0, 0.0);
    for (run, replayed) in history.runs.iter().zip(history.replay(costs)) {
        if let Some(measured) = &run.measured {
            for (weight, metric) in OF_METRICS.into_iter().zip(pairs(measured, &replayed.aggregates)) {
                add(&mut sum, weight, of_values, metric);
            }
        }
    }
    sum
}

fn pairs(measured: &Aggregates, replayed: &Aggregates) -> [(Aggregate, Aggregate); 3] {
    [(measured.ttft, replayed.ttft), (measured.tpot, replayed.tpot), (measured.itl, replayed.itl)]
}

fn add(sum: &mut (f64, f64), weight: f64, of_values: [f64; 4], (measured, replayed): (Aggregate, Aggregate)) {
    for ((measured, replayed), of_value) in measured.values().into_iter().zip(replayed.values()).zip(of_values) {
        if let (Some(measured), Some(replayed)) = (measured, replayed) {
            let log = (measured.max(1e-6) / replayed.clamp(1e-6, 1e6)).ln();
            sum.0 += weight * of_value * (log / SCALE).powi(2).ln_1p();
            sum.1 += weight * of_value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Arrival, HistoryRun, Limits, NO_COSTS, PromptShape, StepWork};
    use super::*;

    const TRUTH: StepCosts = StepCosts {
        base: 0.02,
        per_decode: 3e-4,
        per_prefill_token: 1.2e-4,
        overhead: 0.01,
        above_16: 0.006,
        ..NO_COSTS
    };

    /// Fifty prompts in fives that share a beginning, sent again at rising rates.
    fn history(num_blocks: u32) -> History {
        let prompt = |i: u64| {
            let tokens = 400 + 37 * (i % 9) as u32;
            let block = |b: u32| if b < 15 { i % 10 * 1000 } else { 100_000 + i * 1000 } + u64::from(b);
            PromptShape { tokens, blocks: (0..tokens / 16).map(block).collect() }
        };
        let arrival = |i: u64, rate: f64| {
            let jitter = ((i * 7919) % 13) as f64 / 13.0;
            Arrival { id: i, due_s: (i as f64 + jitter) / rate, prompt: prompt(i), output_tokens: 10 + (i % 40) as u32 }
        };
        let run = |rate: f64| HistoryRun { arrivals: (0..50).map(|i| arrival(i, rate)).collect(), measured: None };
        let limits = Limits { max_num_seqs: 64, max_num_batched_tokens: 2048, num_blocks, block_size: 16 };
        let mut history = History { limits, runs: [3.0, 10.0, 25.0, 50.0].map(run).to_vec() };
        let measured = history.replay(&TRUTH);
        history.runs.iter_mut().zip(measured).for_each(|(run, m)| run.measured = Some(m.aggregates));
        history
    }

    fn terms(replays: u64) -> SummaryTerms<'static> {
        SummaryTerms { replays, drawn: false, moving: None }
    }

    #[test]
    fn a_fit_finds_the_coefficients_that_made_the_aggregates() {
        let start = StepCosts {
            base: 0.03,
            per_decode: 2e-4,
            per_prefill_token: 2e-4,
            overhead: 0.006,
            above_16: 0.003,
            ..NO_COSTS
        };
        let found = fit_summaries(&[history(800), history(2000)], &[start], &terms(220)).unwrap();
        let c = found.costs;
        let decoding = |costs: &StepCosts, n| costs.seconds(&StepWork { decoding: n, ..StepWork::default() });
        for (found, truth) in [
            (decoding(&c, 4), decoding(&TRUTH, 4)),
            (decoding(&c, 40), decoding(&TRUTH, 40)),
            (c.per_prefill_token, TRUTH.per_prefill_token),
        ] {
            assert!((found / truth).ln().abs() < 0.05, "{found} is not {truth}: {c:?}");
        }
        assert_eq!((c.mixed, c.overlap, c.ahead), (0.0, 0.0, 0.0), "what the start leaves out stays out");
    }

    #[test]
    fn without_measurements_or_a_start_there_is_no_fit() {
        let mut history = history(800);
        assert_eq!(fit_summaries(&[history.clone()], &[], &terms(10)), Err(SummaryFitError::NoStart));
        history.runs.iter_mut().for_each(|run| run.measured = None);
        assert_eq!(fit_summaries(&[history], &[TRUTH], &terms(10)), Err(SummaryFitError::NothingMeasured));
    }
    #[test]
    fn what_may_not_move_stays_as_it_was() {
        let start = StepCosts { base: 0.03, ..TRUTH };
        let terms = SummaryTerms { replays: 24, drawn: true, moving: Some(&["base", "mixed"]) };
        let c = fit_summaries(&[history(800)], &[start], &terms).unwrap().costs;
        assert!((c.base / TRUTH.base).ln().abs() < 0.05, "{c:?}");
        assert!((c.per_decode / TRUTH.per_decode - 1.0).abs() < 1e-9 && c.mixed == 0.0, "{c:?}");
    }
}
