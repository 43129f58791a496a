//! The coefficients of a step as a vector without bounds, which is what a search for the best ones moves in.
//!
//! Times are logarithms, shares are log odds: a difference of 0.1 is about 10 % of the coefficient.

use super::costs::StepCosts;
use super::observed::Probe;

/// How many there are.
pub(super) const COUNT: usize = 12;

/// Their names, in the order of the vector.
pub(super) const NAMES: [&str; COUNT] = [
    "base",
    "per_decode",
    "per_context_token",
    "per_prefill_token",
    "overhead",
    "per_prefill_pair",
    "mixed",
    "above_16",
    "above_64",
    "above_128",
    "overlap",
    "ahead",
];

/// Where the shares begin; all before them are times.
const SHARES: usize = 10;
/// No time is shorter than this: its logarithm must exist.
const LEAST_TIME: f64 = 1e-13;
/// No share is nearer to 0 or 1 than this.
const LEAST_SHARE: f64 = 1e-3;

/// The vector of these coefficients.
pub(super) fn pack(c: &StepCosts) -> [f64; COUNT] {
    let all = [
        c.base,
        c.per_decode,
        c.per_context_token,
        c.per_prefill_token,
        c.overhead,
        c.per_prefill_pair,
        c.mixed,
        c.above_16,
        c.above_64,
        c.above_128,
        c.overlap,
        c.ahead,
    ];
    std::array::from_fn(|i| {
        if i < SHARES {
            all[i].max(LEAST_TIME).ln()
        } else {
            let share = all[i].clamp(LEAST_SHARE, 1.0 - LEAST_SHARE);
            (share / (1.0 - share)).ln()
        }
    })
}

/// The coefficients of this vector.
pub(super) fn unpack(x: &[f64]) -> StepCosts {
    let time = |i: usize| x[i].clamp(-30.0, 3.0).exp();
    let share = |i: usize| 1.0 / (1.0 + (-x[i]).exp());
    StepCosts {
        base: time(0),
        per_decode: time(1),
        per_context_token: time(2),
        per_prefill_token: time(3),
        overhead: time(4),
        per_prefill_pair: time(5),
        mixed: time(6),
        above_16: time(7),
        above_64: time(8),
        above_128: time(9),
        overlap: share(10),
        ahead: share(11),
    }
}

/// The value of one coefficient, in the unit of its field.
pub(super) fn value(x: &[f64], i: usize) -> f64 {
    if i < SHARES { x[i].exp() } else { 1.0 / (1.0 + (-x[i]).exp()) }
}

/// How far the truth may be from the first guess, as a standard deviation: seven times more or less. It decides nothing that the
/// data say anything about, and keeps at its guess what they are silent on.
pub(super) const PRIOR_SD: f64 = 2.0;

/// A first guess from the latencies alone: what the quickest answers took bounds the constants, the rest is shared out.
pub(super) fn guess(probes: &[Probe]) -> StepCosts {
    let mut tpot = Vec::new();
    let mut ttft = Vec::new();
    let (mut per_token, mut context) = (Vec::new(), Vec::new());
    let mut concurrency = Vec::new();
    for probe in probes {
        let (mut busy, mut begin, mut end) = (0.0, f64::INFINITY, 0.0_f64);
        for r in probe.requests().iter().filter(|r| !r.failed) {
            let (Some(first), Some(last)) = (r.first, r.last) else { continue };
            let wait = first.0 - r.sent.0;
            ttft.push(wait);
            per_token.push(wait / f64::from((r.tokens_in - r.cached.min(r.tokens_in)).max(1)));
            context.push(f64::from(r.tokens_in) + 0.5 * f64::from(r.tokens_out));
            tpot.extend(r.tpot());
            busy += last.0 - first.0;
            (begin, end) = (begin.min(r.sent.0), end.max(last.0));
        }
        if end > begin {
            concurrency.push(busy / (end - begin));
        }
    }
    let at = |values: &mut Vec<f64>, q: f64, otherwise: f64| {
        values.sort_by(f64::total_cmp);
        let i = (values.len() as f64 * q) as usize;
        values.get(i).copied().filter(|v| *v > 0.0).unwrap_or(otherwise)
    };
    let quick = at(&mut tpot, 0.02, 1e-2);
    let usual = at(&mut tpot, 0.5, 1e-2);
    let batch = at(&mut concurrency, 0.5, 10.0).max(1.0);
    let base = 0.8 * quick;
    let context = at(&mut context, 0.5, 1e3);
    // Half of what a batch adds to the base: the other half is prefill in between. Sequences and their context share that evenly.
    let per_decode = (0.25 * (usual - base).max(0.1 * base) / batch).max(1e-3 * base);
    let per_prefill_token = (0.5 * at(&mut per_token, 0.1, 1e-4)).max(1e-9);
    StepCosts {
        base,
        per_decode,
        per_context_token: per_decode / context,
        per_prefill_token,
        overhead: (0.3 * at(&mut ttft, 0.01, 1e-2)).max(1e-4),
        // Attention is a tenth of the work at the usual length.
        per_prefill_pair: 0.2 * per_prefill_token / context,
        mixed: 0.1 * base,
        above_16: 0.03 * base,
        above_64: 0.03 * base,
        above_128: 0.03 * base,
        overlap: 0.2,
        ahead: 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_brings_its_coefficients_back() {
        let costs = StepCosts { base: 5e-3, per_decode: 2e-5, overlap: 0.25, ahead: 0.9, ..StepCosts::default() };
        let back = unpack(&pack(&costs));
        assert!((back.base - costs.base).abs() < 1e-12 && (back.overlap - 0.25).abs() < 1e-12);
        assert!((back.ahead - 0.9).abs() < 1e-12 && back.mixed < 1e-12);
    }
}
