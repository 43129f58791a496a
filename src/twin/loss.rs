//! How well coefficients explain probes: log residuals of first and later tokens, their likelihood, and its slope.
//!
//! The likelihood is that of Laplace's distribution, whose widths for both latencies are fitted too: it weighs them as the data do, and
//! a stall counts with its logarithm alone.

use std::cell::{Cell, RefCell};

use super::coefficients::{self, COUNT};
use super::costs::StepCosts;
use super::fast::{Answered, FastReplay};
use super::linear::{self, Matrix};
use super::observed::Probe;

/// Log residuals well below this count as none: a step sooner or later makes about as much.
const RESOLUTION: f64 = 0.02;
/// A time per token is evidence from this many tokens on; below it, it is the jitter of two stamps.
const TOKENS_FOR_TPOT: u32 = 8;
/// The step of a numerical derivative, in logarithms: a request jumps from one step of the engine to the next, and only a wide step of ours
/// averages over such jumps.
const WIDTH: f64 = 0.25;

/// The log residuals of one request, measured over replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Residual {
    pub(super) probe: usize,
    pub(super) request: usize,
    /// Of the time from the send to the first token.
    pub(super) ttft: f64,
    /// Of the time from the first to the last token; none for a short answer.
    pub(super) tpot: Option<f64>,
}

/// The loss over some probes.
pub(super) struct Loss<'a> {
    probes: &'a [Probe],
    /// Where the coefficients are drawn to that the data are silent on.
    center: [f64; COUNT],
    spread: [f64; COUNT],
    memory: RefCell<(FastReplay, Vec<Answered>)>,
    replays: Cell<u64>,
}

/// The quadratic model of the loss at a point.
pub(super) struct Slope {
    pub(super) gradient: Vec<f64>,
    pub(super) curvature: Matrix,
}

impl<'a> Loss<'a> {
    pub(super) fn new(probes: &'a [Probe], center: [f64; COUNT], spread: [f64; COUNT]) -> Self {
        Self { probes, center, spread, memory: RefCell::default(), replays: Cell::new(0) }
    }

    /// How often the probes were replayed.
    pub(super) fn replays(&self) -> u64 {
        self.replays.get()
    }

    /// The residuals of the requests that have a whole answer.
    pub(super) fn residuals(&self, costs: &StepCosts) -> Vec<Residual> {
        let mut memory = self.memory.borrow_mut();
        let (replay, answers) = &mut *memory;
        self.replays.set(self.replays.get() + 1);
        let mut residuals = Vec::new();
        for (probe, p) in self.probes.iter().enumerate() {
            replay.run(costs, p.bounds(), p.sent(), answers);
            for (request, (r, a)) in p.requests().iter().zip(answers.iter()).enumerate() {
                let (false, Some(first), Some(last)) = (r.failed, r.first, r.last) else { continue };
                let over =
                    |measured: f64, replayed: f64| (measured.max(1e-6) / replayed.max(1e-6)).ln().clamp(-5.0, 5.0);
                let ttft = over(first.0 - r.sent.0, a.first - r.sent.0);
                let long = r.tokens_out >= TOKENS_FOR_TPOT && a.last.is_finite();
                let tpot = long.then(|| over(last.0 - first.0, a.last - a.first));
                residuals.push(Residual { probe, request, ttft, tpot });
            }
        }
        residuals
    }

    fn prior(&self, x: &[f64]) -> f64 {
        x.iter().zip(self.center).zip(self.spread).map(|((x, c), s)| 0.5 * ((x - c) / s).powi(2)).sum()
    }

    /// The loss at a point.
    pub(super) fn at(&self, x: &[f64]) -> f64 {
        self.likelihood(&coefficients::unpack(x)) + self.prior(x)
    }

    /// The negative log likelihood of these costs.
    pub(super) fn likelihood(&self, costs: &StepCosts) -> f64 {
        let (widths, counts) = widths(&self.residuals(costs));
        counts[0] * widths[0].ln() + counts[1] * widths[1].ln()
    }

    /// Gradient and curvature at a point, as Gauss and Newton take them, with the weights of the Laplace distribution.
    pub(super) fn slope(&self, x: &[f64]) -> Slope {
        let here = self.residuals(&coefficients::unpack(x));
        let derivatives = self.derivatives(x);
        let (widths, _) = widths(&here);
        let mut gradient = vec![0.0; COUNT];
        let mut curvature = vec![vec![0.0; COUNT]; COUNT];
        for (i, r) in here.iter().enumerate() {
            for (which, value) in [(0, Some(r.ttft)), (1, r.tpot)] {
                let Some(value) = value else { continue };
                let weight = 1.0 / (magnitude(value) * widths[which]);
                for a in 0..COUNT {
                    let da = derivatives[a][i][which];
                    gradient[a] += weight * value * da;
                    for b in 0..COUNT {
                        curvature[a][b] += weight * da * derivatives[b][i][which];
                    }
                }
            }
        }
        for a in 0..COUNT {
            gradient[a] += (x[a] - self.center[a]) / self.spread[a].powi(2);
            curvature[a][a] += self.spread[a].powi(-2);
        }
        Slope { gradient, curvature }
    }

    /// By coefficient and request: the derivatives of its two log residuals.
    pub(super) fn derivatives(&self, x: &[f64]) -> Vec<Vec<[f64; 2]>> {
        let moved = |a: usize, by: f64| {
            let mut x = x.to_vec();
            x[a] += by;
            self.residuals(&coefficients::unpack(&x))
        };
        let rate = |high: f64, low: f64| (high - low) / (2.0 * WIDTH);
        let of = |a: usize| {
            let (high, low) = (moved(a, WIDTH), moved(a, -WIDTH));
            let pairs = high.iter().zip(&low);
            pairs.map(|(h, l)| [rate(h.ttft, l.ttft), rate(h.tpot.unwrap_or(0.0), l.tpot.unwrap_or(0.0))]).collect()
        };
        (0..COUNT).map(of).collect()
    }

    /// Goes downhill from a point by damped steps of Gauss and Newton (Levenberg 1944) until they gain nothing more.
    pub(super) fn descend(&self, start: &[f64], steps: usize) -> (Vec<f64>, f64) {
        let mut best = (start.to_vec(), self.at(start));
        let mut damping = 0.1;
        for _ in 0..steps {
            let slope = self.slope(&best.0);
            let before = best.1;
            for _ in 0..6 {
                let mut damped = slope.curvature.clone();
                (0..COUNT).for_each(|i| damped[i][i] *= 1.0 + damping);
                let Some(step) = linear::solve(&damped, &slope.gradient) else {
                    damping *= 10.0;
                    continue;
                };
                // Far from here the quadratic model says nothing.
                let next: Vec<f64> = best.0.iter().zip(&step).map(|(x, s)| x - s.clamp(-1.0, 1.0)).collect();
                let loss = self.at(&next);
                if loss < best.1 {
                    best = (next, loss);
                    damping = (damping * 0.3_f64).max(1e-4);
                    break;
                }
                damping *= 4.0;
            }
            if before - best.1 < 0.1 {
                break;
            }
        }
        best
    }
}

/// The magnitude of a residual, smooth at zero.
fn magnitude(residual: f64) -> f64 {
    residual.hypot(RESOLUTION)
}

/// The mean magnitude of both residuals, and how many there are.
fn widths(residuals: &[Residual]) -> ([f64; 2], [f64; 2]) {
    let (mut sums, mut counts) = ([0.0; 2], [0.0; 2]);
    for r in residuals {
        for (which, value) in [(0, Some(r.ttft)), (1, r.tpot)] {
            if let Some(value) = value {
                sums[which] += magnitude(value);
                counts[which] += 1.0;
            }
        }
    }
    ([0, 1].map(|i| if counts[i] > 0.0 { sums[i] / counts[i] } else { 1.0 }), counts)
}
