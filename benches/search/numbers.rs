//! What rows say together: shares, quantiles, calibration, and what the minutes went into.

use autotune::quantiles;
use autotune::rehearsal::Spending;
use autotune::units::Seconds;
use autotune_numerics::Z_95;

use crate::sessions::{CertifiedRate, Row};

/// A point within this of the best is as good as the best.
pub const AS_GOOD: f64 = 0.97;
/// A rate above this many times its limit was certified wrongly.
pub const OVER: f64 = 1.03;

/// The `q`-quantile; NaN if there are no values.
fn quantile(values: impl IntoIterator<Item = f64>, q: f64) -> f64 {
    quantiles::quantile(values, q).unwrap_or(f64::NAN)
}

/// The share of the items for which something holds; NaN where there are none.
pub fn share<T>(items: impl IntoIterator<Item = T>, holds: impl Fn(&T) -> bool) -> f64 {
    let (mut all, mut held) = (0.0, 0.0);
    for item in items {
        all += 1.0;
        held += f64::from(u8::from(holds(&item)));
    }
    held / all
}

/// The numbers of an arm's rows, on one surface or on all.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub runs: usize,
    /// The share of runs whose point is as good as the best.
    pub as_good: f64,
    pub median_quality: f64,
    /// The 5 % quantile.
    pub low_quality: f64,
    /// Certified rates of chosen points and of defaults.
    pub certified: usize,
    /// The share of them that lie too far above their limit.
    pub over: f64,
    /// The chosen points' certified rates over their limits, the median.
    pub median_certified: f64,
    /// The share of runs that certified something.
    pub proven: f64,
    /// Median.
    pub launches: f64,
    /// Minutes of GPUs: median, and the tenths at both ends.
    pub minutes: [f64; 3],
    /// Minutes from begin to end, the median.
    pub elapsed: f64,
    /// Mean wall time that a session took on this machine.
    pub millis: f64,
}

impl Summary {
    pub fn of(rows: &[&Row]) -> Self {
        let rates = certified_rates(rows);
        let minutes = |at| quantile(rows.iter().map(|r| r.gpu_minutes), at);
        Self {
            runs: rows.len(),
            as_good: share(rows, |r| r.quality >= AS_GOOD),
            median_quality: quantile(rows.iter().map(|r| r.quality), 0.5),
            low_quality: quantile(rows.iter().map(|r| r.quality), 0.05),
            certified: rates.len(),
            over: share(&rates, |s| s.of_truth > OVER),
            median_certified: quantile(rows.iter().filter_map(|r| r.best).map(|s| s.of_truth), 0.5),
            proven: share(rows, |r| r.best.is_some()),
            launches: quantile(rows.iter().map(|r| f64::from(r.launches)), 0.5),
            minutes: [minutes(0.5), minutes(0.1), minutes(0.9)],
            elapsed: quantile(rows.iter().map(|r| r.minutes), 0.5),
            millis: rows.iter().map(|r| r.millis).sum::<f64>() / rows.len().max(1) as f64,
        }
    }
}

/// The share of the stated limits whose 90 % interval holds the true one.
pub fn limits_held(rates: &[CertifiedRate]) -> f64 {
    share(rates.iter().filter_map(|s| s.limit), |(of_truth, error)| of_truth.ln().abs() <= Z_95 * error)
}

/// The share of the stated gains whose interval holds the true one.
pub fn gains_held(rows: &[&Row]) -> f64 {
    share(rows.iter().filter_map(|r| r.gain), |g| (g.stated.from..=g.stated.to).contains(&g.truth))
}

/// Everything that was certified.
pub fn certified_rates(rows: &[&Row]) -> Vec<CertifiedRate> {
    rows.iter().flat_map(|r| r.best.into_iter().chain(r.baseline)).collect()
}

/// Stated confidences from here on, up to the next.
pub const BINS: [f64; 6] = [0.0, 0.8, 0.9, 0.95, 0.98, 0.995];

/// The rates whose stated confidence lies in one of [`BINS`].
pub struct Bin {
    pub from: f64,
    pub to: f64,
    pub rates: usize,
    pub mean_stated: f64,
    /// The share of the rates that are not above the truth.
    pub not_above: f64,
    /// The share that is not above it by more than 1 %.
    pub nearly_not_above: f64,
}

/// The bins that hold rates.
pub fn calibration(rates: &[CertifiedRate]) -> Vec<Bin> {
    let bins = BINS.iter().enumerate().map(|(i, from)| (*from, BINS.get(i + 1).copied().unwrap_or(1.0)));
    bins.map(|(from, to)| {
        let last = to >= 1.0;
        let within = |rate: &&CertifiedRate| rate.confidence >= from && (rate.confidence < to || last);
        let bin: Vec<&CertifiedRate> = rates.iter().filter(within).collect();
        Bin {
            from,
            to,
            rates: bin.len(),
            mean_stated: bin.iter().map(|s| s.confidence).sum::<f64>() / bin.len() as f64,
            not_above: share(&bin, |s| s.of_truth <= 1.0),
            nearly_not_above: share(&bin, |s| s.of_truth <= 1.01),
        }
    })
    .filter(|bin| bin.rates > 0)
    .collect()
}

/// The mean minutes of a session by what they went into: launches, probes and bursts of the search, then of the proofs.
pub fn minutes_by_purpose(rows: &[&Row]) -> [f64; 6] {
    let mean = |of: fn(&Spending) -> Seconds| {
        rows.iter().map(|r| of(&r.spending).0 / 60.0).sum::<f64>() / rows.len().max(1) as f64
    };
    [
        mean(|s| s.launches),
        mean(|s| s.probes),
        mean(|s| s.bursts),
        mean(|s| s.proof_launches),
        mean(|s| s.proof_probes),
        mean(|s| s.proof_bursts),
    ]
}
