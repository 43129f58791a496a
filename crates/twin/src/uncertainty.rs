//! How sure fitted coefficients are, and which the data cannot tell apart.
//!
//! Requests of one busy spell err together. A single request jumps from one step of the engine to the next, which makes its own
//! derivative mostly noise. So means are compared: of the requests of a block of time whose prompts are about as long. How far the
//! residuals of such groups scatter is what the coefficients can be trusted to.

use super::coefficients::{self, COUNT, name};
use super::loss::{Derivatives, Loss, Residual};
use super::observed::Probe;
use autotune_numerics::linear::{Cholesky, Matrix};

/// The length of a block of time in seconds; longer than most answers take.
const BLOCK: f64 = 5.0;
/// Groups of a block by the length of the prompt.
const GROUPS: usize = 4;
/// An error as near to the first guess's as this means that the data said nothing.
const SILENT: f64 = 0.7;
/// Correlated like this, two coefficients are one.
const APART: f64 = 0.9;
/// No group of requests is known better than this.
const FLOOR: f64 = 0.003;

/// The mean of a log residual over a group of requests, and its derivatives.
struct Group {
    residual: f64,
    derivatives: [f64; COUNT],
}

/// The covariance of the fitted vector.
pub(super) fn covariance(loss: &Loss, x: &[f64], probes: &[Probe]) -> Matrix {
    let mut information = vec![vec![0.0; COUNT]; COUNT];
    let replays = loss.replay_all(&coefficients::unpack(x));
    let derivatives = loss.derivatives(x, &replays);
    let residuals: Vec<Residual> = replays.into_iter().flat_map(|replayed| replayed.residuals).collect();
    for which in 0..2 {
        let groups = groups(&residuals, &derivatives, probes, which);
        let squares: f64 = groups.iter().map(|g| g.residual.powi(2)).sum();
        let variance = (squares / groups.len().max(1) as f64).max(FLOOR * FLOOR);
        for group in &groups {
            for (row, a) in information.iter_mut().zip(group.derivatives) {
                row.iter_mut().zip(group.derivatives).for_each(|(entry, b)| *entry += a * b / variance);
            }
        }
    }
    for (i, spread) in coefficients::prior_sd().iter().enumerate() {
        information[i][i] += spread.powi(-2);
    }
    // With the prior in it, it always has an inverse.
    Cholesky::of(&information).map_or(information, |factor| factor.inverse())
}

/// The groups of one latency: 0 to the first token, 1 per token.
fn groups(residuals: &[Residual], derivatives: &Derivatives, probes: &[Probe], which: usize) -> Vec<Group> {
    let block = |i: usize| {
        let r = &residuals[i];
        (r.probe, (probes[r.probe].requests()[r.request].sent.0 / BLOCK).floor() as i64)
    };
    let uncached = |i: &usize| {
        let request = &probes[residuals[*i].probe].requests()[residuals[*i].request];
        request.tokens_in.saturating_sub(request.cached)
    };
    let value = |i: usize| if which == 0 { Some(residuals[i].ttft) } else { residuals[i].tpot };
    let with_value: Vec<usize> = (0..residuals.len()).filter(|i| value(*i).is_some()).collect();
    let mut groups = Vec::new();
    for of_block in with_value.chunk_by(|a, b| block(*a) == block(*b)) {
        let mut by_length = of_block.to_vec();
        by_length.sort_by_key(uncached);
        for group in by_length.chunks(by_length.len().div_ceil(GROUPS)) {
            let mean = |of: &dyn Fn(usize) -> f64| group.iter().map(|i| of(*i)).sum::<f64>() / group.len() as f64;
            groups.push(Group {
                residual: mean(&|i| value(i).unwrap_or(0.0)),
                derivatives: std::array::from_fn(|a| mean(&|i| derivatives[i][which][a])),
            });
        }
    }
    groups
}

/// What this covariance leaves open, in words.
pub(super) fn open(covariance: &Matrix) -> Vec<String> {
    let spread = coefficients::prior_sd();
    let error = |i: usize| covariance[i][i].max(0.0).sqrt();
    let silent = |i: usize| error(i) > SILENT * spread[i];
    let mut open: Vec<String> = (0..COUNT)
        .filter(|i| silent(*i))
        .map(|i| format!("nothing in these probes shows {}: it stays near its first guess", name(i)))
        .collect();
    for (i, row) in covariance.iter().enumerate() {
        for (j, shared) in row.iter().enumerate().take(i) {
            let correlation = shared / (error(i) * error(j)).max(1e-300);
            if correlation.abs() > APART && !silent(i) && !silent(j) {
                let how = if correlation < 0.0 {
                    "more of one looks like less of the other"
                } else {
                    "they rise and fall together"
                };
                open.push(format!("{} and {} cannot be told apart: {how}", name(j), name(i)));
            }
        }
    }
    open
}
