//! The coefficients of a step as a vector without bounds, which is what a search for the best ones moves in.
//!
//! Times are logarithms, shares are log odds: a difference of 0.1 is about 10 % of the coefficient.

use super::costs::StepCosts;
use super::observed::Probe;

/// A coefficient: its name, what it changes, and where it stands in [`StepCosts`].
struct Term {
    name: &'static str,
    changes: Changes,
    of: fn(&mut StepCosts) -> &mut f64,
}

/// The terms, times first, then shares.
const TERMS: [Term; COUNT] = [
    Term { name: "base", changes: Changes::Steps, of: |c| &mut c.base },
    Term { name: "per_decode", changes: Changes::Steps, of: |c| &mut c.per_decode },
    Term { name: "per_context_token", changes: Changes::Steps, of: |c| &mut c.per_context_token },
    Term { name: "per_prefill_token", changes: Changes::Steps, of: |c| &mut c.per_prefill_token },
    Term { name: "overhead", changes: Changes::Steps, of: |c| &mut c.overhead },
    Term { name: "per_prefill_pair", changes: Changes::Steps, of: |c| &mut c.per_prefill_pair },
    Term { name: "mixed", changes: Changes::Steps, of: |c| &mut c.mixed },
    Term { name: "above_16", changes: Changes::StepsAbove(16), of: |c| &mut c.above_16 },
    Term { name: "above_64", changes: Changes::StepsAbove(64), of: |c| &mut c.above_64 },
    Term { name: "above_128", changes: Changes::StepsAbove(128), of: |c| &mut c.above_128 },
    Term { name: "per_256", changes: Changes::StepsAbove(256), of: |c| &mut c.per_256 },
    Term { name: "delivery", changes: Changes::Delivery, of: |c| &mut c.delivery },
    Term { name: "per_delivery", changes: Changes::Delivery, of: |c| &mut c.per_delivery },
    Term { name: "per_prefill_square", changes: Changes::Steps, of: |c| &mut c.per_prefill_square },
    Term { name: "overlap", changes: Changes::Steps, of: |c| &mut c.overlap },
    Term { name: "ahead", changes: Changes::Steps, of: |c| &mut c.ahead },
    Term { name: "fall", changes: Changes::StepsAbove(128), of: |c| &mut c.fall },
];

pub(super) const COUNT: usize = 17;
pub(super) const OVERHEAD: usize = 4;
pub(super) const AHEAD: usize = 15;
const PAIR: usize = 5;
/// Where the shares begin; all before them are times.
const SHARES: usize = 14;
/// No time is shorter than this: its logarithm must exist.
const LEAST_TIME: f64 = 1e-13;
/// No share is nearer to 0 or 1 than this.
const LEAST_SHARE: f64 = 1e-3;

/// The name of the coefficient with that number.
pub(super) fn name(i: usize) -> &'static str {
    TERMS[i].name
}

/// What a coefficient changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changes {
    /// When steps begin and end.
    Steps,
    /// Steps of more tokens than that.
    StepsAbove(u64),
    /// Only when tokens arrive that have left the engine.
    Delivery,
}

pub(super) fn changes(coefficient: usize) -> Changes {
    TERMS[coefficient].changes
}

impl StepCosts {
    /// The same engine with every step `factor` times as long.
    #[must_use]
    pub fn slower(mut self, factor: f64) -> Self {
        let of_steps = |i: &usize| *i != OVERHEAD && changes(*i) != Changes::Delivery;
        for i in (0..SHARES).filter(of_steps) {
            *(TERMS[i].of)(&mut self) *= factor;
        }
        self
    }
}

/// The vector of these coefficients.
pub(super) fn pack(c: &StepCosts) -> [f64; COUNT] {
    let mut costs = *c;
    std::array::from_fn(|i| {
        let value = *(TERMS[i].of)(&mut costs);
        if i < SHARES {
            value.max(LEAST_TIME).ln()
        } else {
            let share = value.clamp(LEAST_SHARE, 1.0 - LEAST_SHARE);
            (share / (1.0 - share)).ln()
        }
    })
}

/// The coefficients of this vector.
pub(super) fn unpack(x: &[f64]) -> StepCosts {
    let mut costs = StepCosts::default();
    for (i, term) in TERMS.iter().enumerate() {
        *(term.of)(&mut costs) = if i < SHARES { value(&[x[i].clamp(-30.0, 3.0)], 0) } else { value(x, i) };
    }
    costs
}

/// The value of one coefficient, in the unit of its field.
pub(super) fn value(x: &[f64], i: usize) -> f64 {
    if i < SHARES { x[i].exp() } else { 1.0 / (1.0 + (-x[i]).exp()) }
}

/// The standard deviations of the prior around the first guess. The data outweigh it where they say anything. Elsewhere it keeps a time within
/// a factor of seven of the guess, and within 1.6 the ratio that the shape of decoders fixes.
pub(super) fn prior_sd() -> [f64; COUNT] {
    let mut sd = [2.0; COUNT];
    sd[PAIR] = 0.5;
    sd
}

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
    let per_prefill_token = (0.7 * at(&mut per_token, 0.1, 1e-4)).max(1e-9);
    StepCosts {
        base,
        per_decode,
        per_context_token: per_decode / context,
        per_prefill_token,
        overhead: (0.2 * at(&mut ttft, 0.01, 1e-2)).max(1e-4),
        // 2 d L operations for a pair against 12 d² L for a token: a decoder of ordinary shape with width d = 5,000.
        per_prefill_pair: per_prefill_token / 30_000.0,
        mixed: 0.1 * base,
        above_16: 0.03 * base,
        above_64: 0.03 * base,
        above_128: 0.03 * base,
        per_256: 0.03 * base,
        fall: 0.3,
        delivery: (0.1 * at(&mut ttft, 0.01, 1e-2)).max(1e-4),
        per_delivery: 0.003 * base,
        // A step of 8,192 tokens is slower by a tenth.
        per_prefill_square: per_prefill_token * 1.2e-5,
        overlap: 0.1,
        ahead: 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbered_coefficients_are_those_that_are_meant() {
        assert_eq!([OVERHEAD, PAIR, SHARES, AHEAD].map(name), ["overhead", "per_prefill_pair", "overlap", "ahead"]);
    }

    #[test]
    fn a_vector_brings_its_coefficients_back() {
        let costs = StepCosts { base: 5e-3, per_decode: 2e-5, overlap: 0.25, ahead: 0.9, ..StepCosts::default() };
        let back = unpack(&pack(&costs));
        assert!((back.base - costs.base).abs() < 1e-12 && (back.overlap - 0.25).abs() < 1e-12);
        assert!((back.ahead - 0.9).abs() < 1e-12 && back.mixed < 1e-12);
    }
}
