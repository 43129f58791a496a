//! The error of a measured quantile, from blocks of time.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::Window;
use autotune_numerics::spread::jackknife;
use autotune_plan::settings::Metric;
use autotune_records::quantiles::quantile_of_sorted;
use autotune_records::units::Seconds;

/// Blocks of time in a window. With so many the error has an error of about a quarter, and a burst stays in one block.
pub(super) const BLOCKS: usize = 10;
/// The degrees of freedom of an error from so many blocks. Where some are empty there are fewer, and the confidence is slightly too high.
pub(super) const FREEDOM: f64 = (BLOCKS - 1) as f64;
/// The standard deviation of log p99 between runs with other arrivals, times the root of the violations allowed, where waiting decides the latency.
/// The jackknife sees less of it: a busy spell outlives a block. Measured near the knee on one H200 (vLLM 0.24, Llama-3.1-8B): six probes of 40 s at
/// 15.2 req/s and five at 17.4 req/s. Their 0.13 to 0.30, with six to seven violations allowed, give 0.3 to 0.8.
const WAITING: f64 = 0.8;
/// The same constant for latencies that every step adds to, such as TPOT. On the same probes stated intervals held in 8 of 13 without it, and
/// in all with it.
const EVERY_STEP: f64 = 0.35;
/// The same requests sent again give a p99 within about 3 % (measured on an H200 with vLLM 0.24): no measurement is surer.
pub(super) const FLOOR: f64 = 0.03;

pub(super) fn block_of(due: Seconds, window: Window) -> usize {
    let share = (due - window.from).0 / window.length().0;
    ((share * BLOCKS as f64) as usize).min(BLOCKS - 1)
}

/// The values of all blocks, or of all but `without`, in ascending order.
pub(super) fn sorted<'b>(blocks: impl Iterator<Item = &'b Vec<f64>>, without: Option<usize>) -> Vec<f64> {
    let kept = blocks.enumerate().filter(|(i, _)| Some(*i) != without);
    let mut all: Vec<f64> = kept.flat_map(|(_, block)| block.iter().copied()).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The quantile over all blocks, or over all but `without`.
pub(super) fn quantile(blocks: &[Vec<f64>], without: Option<usize>, q: f64) -> Option<f64> {
    quantile_of_sorted(&sorted(blocks.iter(), without), q)
}

/// The standard error of the logarithm of a quantile, from what it would be without each block of time.
pub(super) fn log_error(blocks: &[Vec<f64>], q: f64, metric: Metric) -> Option<f64> {
    let used = (0..blocks.len()).filter(|i| !blocks[*i].is_empty());
    let without = |i| quantile(blocks, Some(i), q).filter(|v| v.is_finite()).map(|v| v.max(1e-6).ln());
    let logs: Vec<f64> = used.map(without).collect::<Option<_>>()?;
    let observations: usize = blocks.iter().map(Vec::len).sum();
    let spread = if metric.includes_waiting() { WAITING } else { EVERY_STEP };
    let between_runs = spread / (observations as f64 * (1.0 - q)).sqrt();
    Some(jackknife(&logs)?.max(between_runs).max(FLOOR))
}

/// One-sided confidence that the true margin is not positive, by Student's t.
pub(super) fn confidence(margin: f64, error: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(0.0, |t| t.cdf(-margin / error))
}
