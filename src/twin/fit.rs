//! The fit: probes as they were sent and answered -> the coefficients of the engine's steps.
//!
//! The loss is the likelihood of a Laplace distribution of log residuals, whose widths for the first and for the later tokens are
//! fitted too: it weighs both as the data do, and a stall counts with its logarithm alone. Failed requests load the engine of the
//! replay and are no evidence of how fast it is.

use std::cell::RefCell;

use super::coefficients::{self, COUNT, PRIOR_SD};
use super::costs::StepCosts;
use super::fast::{Answered, FastReplay};
use super::observed::Probe;
use super::simplex::minimize;

/// Log residuals smaller than this count as none: arrivals are stamped no better than that.
const RESOLUTION: f64 = 0.01;
/// A time per token is evidence from this many tokens on; below it, it is the jitter of two stamps.
const TOKENS_FOR_TPOT: u32 = 8;

pub struct Lab { pub x: Vec<f64>, pub costs: StepCosts, pub loss: f64, pub evals: usize }

pub struct Loss<'a> { pub probes: &'a [Probe], pub center: [f64; COUNT], pub buf: RefCell<(FastReplay, Vec<Answered>, usize)> }

impl Loss<'_> {
    pub fn residuals(&self, costs: &StepCosts, mut each: impl FnMut(usize, usize, Option<f64>, Option<f64>)) {
        let mut buf = self.buf.borrow_mut();
        let (replay, answers, n) = &mut *buf;
        *n += 1;
        for (k, p) in self.probes.iter().enumerate() {
            replay.run(costs, p.bounds(), p.sent(), answers);
            for (i, (r, a)) in p.requests().iter().zip(answers.iter()).enumerate() {
                if r.failed { continue }
                let (Some(first), Some(last)) = (r.first, r.last) else { continue };
                let t = ((first.0 - r.sent.0).max(1e-6) / (a.first - r.sent.0)).ln();
                let d = (r.tokens_out >= TOKENS_FOR_TPOT).then(|| ((last.0 - first.0).max(1e-6) / (a.last - a.first)).ln());
                each(k, i, Some(t).filter(|t| t.is_finite()), d.filter(|t| t.is_finite()));
            }
        }
    }
    pub fn of(&self, x: &[f64]) -> f64 {
        let (mut st, mut sp, mut nt, mut np) = (0.0, 0.0, 0.0, 0.0);
        let rho = |r: f64| (r * r + RESOLUTION * RESOLUTION).sqrt();
        self.residuals(&coefficients::unpack(x), |_, _, t, d| {
            if let Some(t) = t { st += rho(t); nt += 1.0; }
            if let Some(d) = d { sp += rho(d); np += 1.0; }
        });
        let prior: f64 = x.iter().zip(&self.center).map(|(a, b)| ((a - b) / PRIOR_SD).powi(2)).sum::<f64>() * 0.5;
        nt * (st / f64::max(nt, 1.0)).ln() + np * (sp / f64::max(np, 1.0)).ln() + prior
    }
}

pub fn lab(probes: &[Probe], free: [bool; COUNT], moves: u64, rounds: usize) -> Lab {
    let guess = coefficients::guess(probes);
    let mut center = coefficients::pack(&guess);
    for i in 0..COUNT { if !free[i] { center[i] = if i < 10 { -30.0 } else { -20.0 } } }
    let loss = Loss { probes, center, buf: RefCell::default() };
    let mut best = (center.to_vec(), loss.of(&center));
    let edges = |size: f64| -> Vec<f64> { (0..COUNT).map(|i| if free[i] { if i % 2 == 0 { size } else { -size } } else { 0.0 }).collect() };
    for k in 0..rounds {
        let found = minimize(|x| loss.of(x), &best.0, &edges(0.6 / (1.0 + k as f64)), moves);
        if found.1 < best.1 { best = found; }
        if std::env::var_os("V").is_some() { eprintln!("round {k} loss {:.1} evals {}", best.1, loss.buf.borrow().2); }
    }
    let evals = loss.buf.borrow().2;
    Lab { costs: coefficients::unpack(&best.0), x: best.0, loss: best.1, evals }
}
