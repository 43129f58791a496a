//! How sure fitted coefficients are, and which the data cannot tell apart.
//!
//! Requests of one busy spell err together, so the scores are summed over blocks of time before they are squared (the sandwich of
//! Huber 1967, clustered): the errors are as wide as the blocks say, whatever the likelihood believes.

use super::coefficients::{self, COUNT, NAMES};
use super::linear::{self, Matrix};
use super::loss::{self, Loss};
use super::observed::Probe;

/// The length of a block in seconds; longer than most answers take.
const BLOCK: f64 = 5.0;
/// An error as near to the first guess's as this means that the data said nothing.
const SILENT: f64 = 0.7;
/// Correlated like this, two coefficients are one.
const APART: f64 = 0.9;

/// The covariance of the fitted vector.
pub(super) fn covariance(loss: &Loss, x: &[f64], probes: &[Probe]) -> Matrix {
    let curvature = loss.slope(x).curvature;
    let derivatives = loss.derivatives(x);
    let residuals = loss.residuals(&coefficients::unpack(x));
    let (widths, _) = loss::widths(&residuals);
    let mut blocks: Vec<((usize, i64), Vec<f64>)> = Vec::new();
    for (i, r) in residuals.iter().enumerate() {
        let key = (r.probe, (probes[r.probe].requests()[r.request].sent.0 / BLOCK).floor() as i64);
        if blocks.last().is_none_or(|(last, _)| *last != key) {
            blocks.push((key, vec![0.0; COUNT]));
        }
        let Some((_, score)) = blocks.last_mut() else { continue };
        for (which, value) in [(0, Some(r.ttft)), (1, r.tpot)] {
            let Some(value) = value else { continue };
            let weight = value / (loss::magnitude(value) * widths[which]);
            (0..COUNT).for_each(|a| score[a] += weight * derivatives[a][i][which]);
        }
    }
    let mut meat = vec![vec![0.0; COUNT]; COUNT];
    for (_, score) in &blocks {
        for (row, a) in meat.iter_mut().zip(score) {
            row.iter_mut().zip(score).for_each(|(entry, b)| *entry += a * b);
        }
    }
    for (i, spread) in coefficients::spread().iter().enumerate() {
        meat[i][i] += spread.powi(-2);
    }
    let wide = || (0..COUNT).map(|i| (0..COUNT).map(|j| if i == j { 4.0 } else { 0.0 }).collect()).collect();
    linear::inverse(&curvature).map_or_else(wide, |bread| linear::product(&linear::product(&bread, &meat), &bread))
}

/// What this covariance leaves open, in words.
pub(super) fn open(covariance: &Matrix) -> Vec<String> {
    let spread = coefficients::spread();
    let error = |i: usize| covariance[i][i].max(0.0).sqrt();
    let silent = |i: usize| error(i) > SILENT * spread[i];
    let mut open: Vec<String> = (0..COUNT)
        .filter(|i| silent(*i))
        .map(|i| format!("nothing in these probes shows {}: it stays near its first guess", NAMES[i]))
        .collect();
    for i in 0..COUNT {
        for j in 0..i {
            let correlation = covariance[i][j] / (error(i) * error(j)).max(1e-300);
            if correlation.abs() > APART && !silent(i) && !silent(j) {
                let how = if correlation < 0.0 {
                    "more of one looks like less of the other"
                } else {
                    "they rise and fall together"
                };
                open.push(format!("{} and {} cannot be told apart: {how}", NAMES[j], NAMES[i]));
            }
        }
    }
    open
}
