//! How well coefficients explain probes: log residuals of first and later tokens, their likelihood, and its slope.
//!
//! The likelihood is that of Laplace's distribution, whose widths for both latencies are fitted too. So it weighs them as the data do,
//! and a stall counts with its logarithm alone.

use std::cell::{Cell, RefCell};

use super::coefficients::{self, COUNT, Changes};
use super::costs::StepCosts;
use super::fast::{Answered, FastReplay, Left};
use super::observed::Probe;
use super::steps::SeenSteps;
use autotune_numerics::linear::{Cholesky, Matrix};

/// Log residuals well below this count as none: a step sooner or later makes about as much.
pub(super) const RESOLUTION: f64 = 0.02;
/// A time per token is evidence from this many tokens on; below it, it is the jitter of two stamps.
const TOKENS_FOR_TPOT: u32 = 8;
/// Steps of about the same content count as so many observations at most: the fit is to know all kinds, not the most frequent one.
const MOST_OF_A_CELL: f64 = 10.0;
/// The step of the numerical derivative of a step's duration, which is smooth.
const STEP_WIDTH: f64 = 0.01;
/// The step of a numerical derivative, in logarithms. A request jumps from one step of the engine to the next; only a wide step of ours
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

pub(super) struct ProbeReplay {
    /// The residuals of the requests that have a whole answer.
    pub(super) residuals: Vec<Residual>,
    /// The log residuals of the steps that were seen, each with its weight.
    steps: Vec<(f64, f64)>,
    left: Vec<Left>,
    most_tokens: u64,
}

/// By residual, latency and coefficient: how the residuals rise.
pub(super) type Derivatives = Vec<[[f64; COUNT]; 2]>;

/// The loss over some probes.
pub(super) struct Loss<'a> {
    probes: &'a [Probe],
    /// Where the coefficients are drawn to that the data are silent on.
    center: [f64; COUNT],
    spread: [f64; COUNT],
    /// Whether only the steps that were seen count, and nothing is replayed.
    steps_alone: bool,
    memory: RefCell<FastReplay>,
    replays: Cell<u64>,
}

/// The quadratic model of the loss at a point.
pub(super) struct Slope {
    pub(super) gradient: Vec<f64>,
    pub(super) curvature: Matrix,
}

/// A point with its loss, and the probes as it replays them.
struct Visited {
    x: Vec<f64>,
    loss: f64,
    replays: Vec<ProbeReplay>,
}

impl<'a> Loss<'a> {
    pub(super) fn new(probes: &'a [Probe], center: [f64; COUNT], spread: [f64; COUNT]) -> Self {
        Self { probes, center, spread, steps_alone: false, memory: RefCell::default(), replays: Cell::new(0) }
    }

    /// The loss of the steps that were seen alone: no replay is needed to know it.
    pub(super) fn of_steps(probes: &'a [Probe], center: [f64; COUNT], spread: [f64; COUNT]) -> Self {
        Self { steps_alone: true, ..Self::new(probes, center, spread) }
    }

    /// How often the probes were replayed.
    pub(super) fn replays(&self) -> u64 {
        self.replays.get().div_ceil(self.probes.len().max(1) as u64)
    }

    pub(super) fn replay_all(&self, costs: &StepCosts) -> Vec<ProbeReplay> {
        (0..self.probes.len()).map(|probe| self.replay_probe(probe, costs)).collect()
    }

    fn replay_probe(&self, probe: usize, costs: &StepCosts) -> ProbeReplay {
        let p = &self.probes[probe];
        let steps = steps(p, costs);
        if self.steps_alone {
            return ProbeReplay { residuals: Vec::new(), steps, left: Vec::new(), most_tokens: 0 };
        }
        self.replays.set(self.replays.get() + 1);
        let mut left = Vec::new();
        let pressure = self.memory.borrow_mut().left(costs, p.bounds(), p.sent(), &mut left);
        let residuals = self.residuals(probe, left.iter().zip(p.sent()).map(|(l, s)| l.answered(s, costs)));
        ProbeReplay { residuals, steps, left, most_tokens: pressure.most_tokens }
    }

    /// The residuals of a probe that is answered like this.
    fn residuals(&self, probe: usize, answers: impl Iterator<Item = Answered>) -> Vec<Residual> {
        let over = |measured: f64, replayed: f64| (measured.max(1e-6) / replayed.max(1e-6)).ln().clamp(-5.0, 5.0);
        let requests = self.probes[probe].requests();
        let mut residuals = Vec::with_capacity(requests.len());
        for (request, (r, a)) in requests.iter().zip(answers).enumerate() {
            let (false, Some(first), Some(last)) = (r.failed, r.first, r.last) else { continue };
            let ttft = over(first.0 - r.sent.0, a.first - r.sent.0);
            let long = r.tokens_out >= TOKENS_FOR_TPOT && a.last.is_finite();
            let tpot = long.then(|| over(last.0 - first.0, a.last - a.first));
            residuals.push(Residual { probe, request, ttft, tpot });
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
        likelihood(&self.replay_all(costs))
    }

    fn visit(&self, x: Vec<f64>) -> Visited {
        let replays = self.replay_all(&coefficients::unpack(&x));
        Visited { loss: likelihood(&replays) + self.prior(&x), x, replays }
    }

    /// Gradient and curvature at a point, as Gauss and Newton take them, with the weights of the Laplace distribution.
    fn slope(&self, Visited { x, replays, .. }: &Visited) -> Slope {
        let derivatives = self.derivatives(x, replays);
        let (widths, _) = widths(replays);
        let mut gradient = vec![0.0; COUNT];
        let mut curvature = vec![vec![0.0; COUNT]; COUNT];
        for (r, derivatives) in replays.iter().flat_map(|g| &g.residuals).zip(&derivatives) {
            for (which, value) in [(0, Some(r.ttft)), (1, r.tpot)] {
                let Some(value) = value else { continue };
                let weight = 1.0 / (magnitude(value) * widths[which]);
                let derivatives = &derivatives[which];
                for ((da, gradient), row) in derivatives.iter().zip(&mut gradient).zip(&mut curvature) {
                    *gradient += weight * value * da;
                    row.iter_mut().zip(derivatives).for_each(|(entry, db)| *entry += weight * da * db);
                }
            }
        }
        let derivatives = self.derivatives_of_steps(x);
        let all = replays.iter().flat_map(|g| &g.steps);
        for ((of_step, value), derivatives) in all.zip(&derivatives) {
            let weight = of_step / (magnitude(*value) * widths[2]);
            for ((da, gradient), row) in derivatives.iter().zip(&mut gradient).zip(&mut curvature) {
                *gradient += weight * value * da;
                row.iter_mut().zip(derivatives).for_each(|(entry, db)| *entry += weight * da * db);
            }
        }
        for a in 0..COUNT {
            gradient[a] += (x[a] - self.center[a]) / self.spread[a].powi(2);
            curvature[a][a] += self.spread[a].powi(-2);
        }
        Slope { gradient, curvature }
    }

    /// How the residuals of the steps that were seen change at a point.
    fn derivatives_of_steps(&self, x: &[f64]) -> Vec<[f64; COUNT]> {
        let mut derivatives = vec![[0.0; COUNT]; self.probes.iter().map(|p| p.steps().len()).sum()];
        for a in 0..COUNT {
            let moved = |by: f64| {
                let mut x = x.to_vec();
                x[a] += by;
                let costs = coefficients::unpack(&x);
                self.probes.iter().flat_map(move |p| steps(p, &costs)).map(|(_, residual)| residual)
            };
            let both = moved(STEP_WIDTH).zip(moved(-STEP_WIDTH));
            derivatives.iter_mut().zip(both).for_each(|(own, (h, l))| own[a] = (h - l) / (2.0 * STEP_WIDTH));
        }
        derivatives
    }

    /// How the two residuals of every request change at a point with these replays of its probes. A probe is replayed again only where a coefficient
    /// changes what its engine does.
    pub(super) fn derivatives(&self, x: &[f64], replays: &[ProbeReplay]) -> Derivatives {
        let mut derivatives = vec![[[0.0; COUNT]; 2]; replays.iter().map(|g| g.residuals.len()).sum()];
        let rate = |high: f64, low: f64| (high - low) / (2.0 * WIDTH);
        for a in 0..COUNT {
            let moved = |by: f64| {
                let mut x = x.to_vec();
                x[a] += by;
                coefficients::unpack(&x)
            };
            let (high, low) = (moved(WIDTH), moved(-WIDTH));
            let mut rest = &mut derivatives[..];
            for (probe, replayed) in replays.iter().enumerate() {
                let (own, others) = rest.split_at_mut(replayed.residuals.len());
                rest = others;
                let moved = |costs: &StepCosts| match coefficients::changes(a) {
                    Changes::Steps => Some(self.replay_probe(probe, costs).residuals),
                    Changes::StepsAbove(tokens) if replayed.most_tokens <= tokens => None,
                    Changes::StepsAbove(_) => Some(self.replay_probe(probe, costs).residuals),
                    Changes::Delivery => {
                        let sent = self.probes[probe].sent();
                        let answers = replayed.left.iter().zip(sent).map(|(l, s)| l.answered(s, costs));
                        Some(self.residuals(probe, answers))
                    }
                };
                let Some((high, low)) = moved(&high).zip(moved(&low)) else { continue };
                for (own, (h, l)) in own.iter_mut().zip(high.iter().zip(&low)) {
                    own[0][a] = rate(h.ttft, l.ttft);
                    own[1][a] = rate(h.tpot.unwrap_or(0.0), l.tpot.unwrap_or(0.0));
                }
            }
        }
        derivatives
    }

    /// Goes downhill from a point by damped steps of Gauss and Newton (Levenberg 1944) until they gain nothing more.
    pub(super) fn descend(&self, start: &[f64], steps: usize) -> (Vec<f64>, f64) {
        let mut best = self.visit(start.to_vec());
        let mut damping = 0.1;
        for _ in 0..steps {
            let slope = self.slope(&best);
            let before = best.loss;
            for _ in 0..6 {
                let mut damped = slope.curvature.clone();
                (0..COUNT).for_each(|i| damped[i][i] *= 1.0 + damping);
                let Some(step) = Cholesky::of(&damped).map(|factor| factor.solve(&slope.gradient)) else {
                    damping *= 10.0;
                    continue;
                };
                // Far from here the quadratic model says nothing.
                let next = self.visit(best.x.iter().zip(&step).map(|(x, s)| x - s.clamp(-1.0, 1.0)).collect());
                if next.loss < best.loss {
                    best = next;
                    damping = (damping * 0.3_f64).max(1e-4);
                    break;
                }
                damping *= 4.0;
            }
            if before - best.loss < 0.1 {
                break;
            }
        }
        (best.x, best.loss)
    }
}

fn likelihood(replays: &[ProbeReplay]) -> f64 {
    let (widths, counts) = widths(replays);
    counts.iter().zip(widths).map(|(count, width)| count * width.ln()).sum()
}

/// The log residuals of the steps that were seen of a probe, each with its weight.
fn steps(probe: &Probe, costs: &StepCosts) -> Vec<(f64, f64)> {
    let residual = |seen: &SeenSteps| {
        let weight = f64::from(seen.count).min(MOST_OF_A_CELL);
        (weight, (seen.seconds.max(1e-6) / costs.seconds(&seen.work).max(1e-6)).ln().clamp(-5.0, 5.0))
    };
    probe.steps().iter().map(residual).collect()
}

/// The magnitude of a residual, smooth at zero.
fn magnitude(residual: f64) -> f64 {
    residual.hypot(RESOLUTION)
}

/// The mean magnitude of the residuals of first tokens, of later ones and of steps, and how many there are.
fn widths(replays: &[ProbeReplay]) -> ([f64; 3], [f64; 3]) {
    let (mut sums, mut counts) = ([0.0; 3], [0.0; 3]);
    for (weight, value) in replays.iter().flat_map(|g| &g.steps) {
        sums[2] += weight * magnitude(*value);
        counts[2] += weight;
    }
    for r in replays.iter().flat_map(|g| &g.residuals) {
        for (which, value) in [(0, Some(r.ttft)), (1, r.tpot)] {
            if let Some(value) = value {
                sums[which] += magnitude(value);
                counts[which] += 1.0;
            }
        }
    }
    ([0, 1, 2].map(|i| if counts[i] > 0.0 { sums[i] / counts[i] } else { 1.0 }), counts)
}
