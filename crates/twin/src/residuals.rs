//! What a fitted twin does not explain: the spread of its residuals, stalls, and the drift of the engine from probe to probe.

use autotune_records::quantiles::median;
use serde::{Deserialize, Serialize};

use super::coefficients;
use super::loss::{Loss, RESOLUTION, Residual};
use super::observed::Probe;
use autotune_numerics::simplex::minimize;
use autotune_numerics::spread::correlation;

/// Residuals beyond this many robust standard deviations are stalls or worse.
const OUTLIER: f64 = 6.0;
/// The median absolute deviation of a normal distribution, in standard deviations.
const MAD: f64 = 0.6745;

/// The residuals of a fit, as logarithms of measured over replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Residuals {
    /// Requests with a whole answer: those that count.
    pub answers: usize,
    /// Requests without a whole answer.
    pub failures: usize,
    /// Answers whose TTFT or TPOT residual exceeds [`OUTLIER`] robust standard deviations, each at least [`RESOLUTION`].
    pub outliers: usize,
    /// The robust standard deviation for the time to first token.
    pub ttft_sd: f64,
    /// The robust standard deviation for the time per token.
    pub tpot_sd: f64,
    /// The correlation of measured and replayed logarithms, for the time to first token.
    pub ttft_correlation: f64,
    /// The correlation of measured and replayed logarithms, for the time per token.
    pub tpot_correlation: f64,
    /// Each probe, in the order given.
    pub probes: Vec<Drift>,
}

/// Offsets of the log speed at which the loss is evaluated; symmetric.
const OFFSETS: [f64; 7] = [-0.045, -0.03, -0.015, 0.0, 0.015, 0.03, 0.045];

/// How one probe differs from the fit to all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// By which factor its steps took longer than the fit's; 1 means no drift.
    pub slower: f64,
}

impl Residuals {
    /// The residuals at a point.
    pub(super) fn of(loss: &Loss, x: &[f64], probes: &[Probe]) -> Self {
        let costs = coefficients::unpack(x);
        let all: Vec<Residual> = loss.replay_all(&costs).into_iter().flat_map(|replayed| replayed.residuals).collect();
        let ttft_sd = robust_sd(all.iter().map(|r| r.ttft));
        let tpot_sd = robust_sd(all.iter().filter_map(|r| r.tpot));
        let far = |r: &&Residual| {
            let beyond = |residual: f64, sd: f64| residual.abs() > OUTLIER * sd.max(RESOLUTION);
            beyond(r.ttft, ttft_sd) || r.tpot.is_some_and(|tpot| beyond(tpot, tpot_sd))
        };
        let measured = |r: &Residual| &probes[r.probe].requests()[r.request];
        let ttft = |r: &Residual| {
            let o = measured(r);
            let log = (o.first?.0 - o.sent.0).max(1e-6).ln();
            Some((log, log - r.ttft))
        };
        let tpot = |r: &Residual| {
            let log = measured(r).tpot()?.max(1e-6).ln();
            Some((log, log - r.tpot?))
        };
        let drift = |probe: usize| {
            let own = Loss::new(&probes[probe..=probe], coefficients::pack(&costs), coefficients::prior_sd());
            let of_speed = |s: &[f64]| own.likelihood(&costs.slower(s[0].exp()));
            let (speed, _) = minimize(of_speed, &[0.0], &[0.05], 30);
            Drift { slower: vertex(|speed| of_speed(&[speed]), speed[0]).exp() }
        };
        Self {
            answers: all.len(),
            failures: probes.iter().map(Probe::failures).sum(),
            outliers: all.iter().filter(far).count(),
            ttft_sd,
            tpot_sd,
            ttft_correlation: correlation(all.iter().filter_map(ttft)),
            tpot_correlation: correlation(all.iter().filter_map(tpot)),
            probes: (0..probes.len()).map(drift).collect(),
        }
    }
}

/// The minimum of the loss near `near`, by a parabola through [`OFFSETS`] (least squares). The loss jumps on the scale of a step of the engine, so a
/// descent would stop at a local minimum.
fn vertex(loss: impl Fn(f64) -> f64, near: f64) -> f64 {
    let points = OFFSETS.map(|x| (x, loss(near + x)));
    let n = points.len() as f64;
    let sum = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    let (x2, x4) = (sum(|p| p.0.powi(2)), sum(|p| p.0.powi(4)));
    let slope = sum(|p| p.0 * p.1) / x2;
    let curvature = (sum(|p| p.0.powi(2) * p.1) - x2 * sum(|p| p.1) / n) / (x4 - x2 * x2 / n);
    let offset = -slope / (2.0 * curvature);
    if curvature > 0.0 && offset.abs() <= OFFSETS[OFFSETS.len() - 1] { near + offset } else { near }
}

fn robust_sd(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    let center = typical(values.iter().copied());
    typical(values.iter().map(|v| (v - center).abs())) / MAD
}

/// The median; 0 if there are no values.
fn typical(residuals: impl Iterator<Item = f64>) -> f64 {
    median(residuals).unwrap_or(0.0)
}
