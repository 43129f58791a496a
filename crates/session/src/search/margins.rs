//! The margins model: for each promise the mean that a twin expects, and a Gaussian process that learns where the twin is wrong.
//!
//! margin(point, rate) = mean + residual, with margin = log(p / limit). Where no twin is fitted, the mean only rises with the rate and the
//! process learns everything by itself.

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

use super::gaussian_process::{Datum, GaussianProcess, LogNormalPrior};
use super::{Expectation, ProbedRate};
use autotune_numerics::bent;
use autotune_plan::space::{self, Point, Space};
use autotune_records::units::Rate;

/// Margins beyond this are squashed: how far behind the limit a saturated engine is says nothing about where it crosses the limit.
const KNEE: f64 = 0.4;
/// How much more of a margin can show beyond it.
const REST: f64 = 0.4;
/// No observation is surer: the same requests sent again differ by so much (the floor of paired estimates).
const LEAST_ERROR: f64 = 0.02;
/// The error of a margin whose own is not known.
const UNKNOWN_ERROR: f64 = 0.25;
/// Without a twin: how a margin is thought to rise with the logarithm of the rate near the limit. On an H200 it were 1.1 (TTFT) and 1.9
/// (TPOT) near 15 req/s, and more where requests wait.
const RISE: f64 = 2.0;
/// The standard deviation of the log latency that a stress replay predicts. Near a collapse, 3 % of the rate change it as much.
const OF_A_COLLAPSE: f64 = 0.2;
/// No stress replay is made if the promises hold with less than this probability.
const LEAST_PROBABILITY: f64 = 0.01;

/// What was seen at a rate of a point.
pub type Sample = (Point, ProbedRate);

#[derive(Clone, Debug)]
pub struct Margins {
    space: Space,
    /// The rate around which margins are thought to cross zero where nothing is known.
    reference: Rate,
    /// Of the residuals of each promise.
    processes: Vec<GaussianProcess>,
}

impl Margins {
    /// From what was seen so far. `reference` is the rate at which margins are thought to cross zero before one was measured.
    pub fn learn(space: &Space, reference: Rate, samples: &[Sample], engine: &mut dyn Expectation) -> Self {
        let promises = samples.iter().map(|(_, h)| h.seen.limits.len()).max().unwrap_or(0);
        let reference = crossing(samples).unwrap_or(reference);
        let model = Self { space: space.clone(), reference, processes: Vec::new() };
        let means: Vec<Vec<(f64, bool)>> =
            samples.iter().map(|(point, h)| model.means(promises, point, h.rate, engine)).collect();
        let one = |l: usize| {
            let means: Vec<(f64, bool)> = means.iter().map(|mean| mean[l]).collect();
            model.one(l, samples, &means)
        };
        Self { processes: (0..promises).map(one).collect(), ..model }
    }

    fn one(&self, l: usize, samples: &[Sample], means: &[(f64, bool)]) -> GaussianProcess {
        let with_twin = means.iter().all(|(_, told)| *told);
        let (mut data, mut bounds) = (Vec::new(), Vec::new());
        for ((point, sample), (mean, _)) in samples.iter().zip(means) {
            let Some(seen) = sample.seen.limits.get(l) else { continue };
            let at = self.at(point, sample.rate);
            // If a queue grows, a broken promise tells a lower bound alone; if none is broken yet, each does.
            let first = sample.seen.limits.iter().all(|l| !l.broken);
            let saturated = sample.seen.saturated && (seen.broken || first);
            match seen.margin.filter(|_| !saturated) {
                Some(margin) => {
                    let error = if seen.error.is_finite() { seen.error } else { UNKNOWN_ERROR };
                    let error = (error * steepness(margin)).max(LEAST_ERROR);
                    data.push(Datum { at, value: squash(margin) - squash(*mean), variance: error * error });
                }
                // It was cut, or its queue grew: beyond its limit, and nobody knows how far.
                None if seen.broken || saturated => bounds.push((at, -squash(*mean))),
                None => {}
            }
        }
        let choices: Vec<bool> = self.space.parameters.iter().map(space::is_choice).chain([false]).collect();
        let process = GaussianProcess::fit(&self.priors(with_twin), &choices, data.clone());
        // A bound is the value that is expected of it, given what else is known (Hutter, Hoos and Leyton-Brown 2011, on censored runs).
        data.extend(bounds.into_iter().filter_map(|(at, bound)| beyond(&process, at, bound)));
        process.with(data)
    }

    /// What is thought of residuals before anything was seen. A twin fitted to one configuration was off by 1 to 8 % at others on an H200.
    fn priors(&self, with_twin: bool) -> Vec<LogNormalPrior> {
        let belief = |median, spread| LogNormalPrior { median, spread };
        let (common, amplitude, of_rate) = if with_twin {
            (belief(0.05, 0.6), belief(0.035, 0.5), belief(0.5, 0.5))
        } else {
            (belief(0.4, 0.6), belief(0.3, 0.6), belief(0.6, 0.5))
        };
        let lengths = vec![belief(0.6, 0.6); self.space.parameters.len()];
        [vec![common, amplitude], lengths, vec![of_rate]].concat()
    }

    fn at(&self, point: &Point, rate: Rate) -> Vec<f64> {
        let coordinates = self.space.parameters.iter().map(|p| space::coordinate(p, point.get(&p.name)));
        coordinates.chain([(rate.0 / self.reference.0).ln()]).collect()
    }

    /// The mean of each margin, and whether a twin told it.
    fn means(&self, promises: usize, point: &Point, rate: Rate, engine: &mut dyn Expectation) -> Vec<(f64, bool)> {
        let expected = engine.margins(point, rate);
        let rise = RISE * (rate.0 / self.reference.0).ln();
        (0..promises).map(|l| expected.get(l).copied().flatten().map_or((rise, false), |m| (m, true))).collect()
    }

    /// The squashed margin of each promise there: its mean and its standard deviation.
    pub fn predict(&self, point: &Point, rate: Rate, engine: &mut dyn Expectation) -> Vec<(f64, f64)> {
        let at = self.at(point, rate);
        let means = self.means(self.processes.len(), point, rate, engine);
        let one = |(process, (mean, _)): (&GaussianProcess, (f64, bool))| {
            let (residual, variance) = process.predict(&at);
            (squash(mean) + residual, variance.sqrt())
        };
        self.processes.iter().zip(means).map(one).collect()
    }

    /// The probability that every promise holds there, and that the rate would be certified.
    pub fn holds(&self, point: &Point, rate: Rate, engine: &mut dyn Expectation) -> f64 {
        let Ok(normal) = Normal::new(0.0, 1.0) else { return 0.0 };
        let holds: f64 =
            self.predict(point, rate, engine).into_iter().map(|(mean, sd)| normal.cdf(-mean / sd)).product();
        if holds < LEAST_PROBABILITY {
            return holds;
        }
        holds * engine.collapse(point, rate).map_or(1.0, |beyond| normal.cdf(-beyond / OF_A_COLLAPSE))
    }
}

/// Where the margin that was measured nearest to its limit crosses zero. Around a reference far from there, the mean without a twin is squashed
/// flat. With 4 req/s the model put the limit of two H200 at 62 req/s, where it is about 30. With 18.9 it saw no limit of real vLLM on CPU cores, which
/// is about 8, and asked for 0.96 req/s.
fn crossing(samples: &[Sample]) -> Option<Rate> {
    let measured =
        samples.iter().filter(|(_, h)| !h.seen.saturated).filter_map(|(_, h)| Some((h.rate, h.seen.margin?)));
    let (rate, margin) = measured.min_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
    Some(Rate(rate.0 * (-margin / RISE).exp()))
}

/// The expected value of a residual that is known to be at least `bound`; `None` if that was expected anyway.
fn beyond(process: &GaussianProcess, at: Vec<f64>, bound: f64) -> Option<Datum> {
    let (mean, variance) = process.predict(&at);
    let sd = variance.sqrt();
    let normal = Normal::new(0.0, 1.0).ok()?;
    let alpha = (bound - mean) / sd;
    if alpha < -2.0 {
        return None;
    }
    let hazard = normal.pdf(alpha) / (1.0 - normal.cdf(alpha)).max(1e-9);
    let left = (variance * (1.0 + alpha * hazard - hazard * hazard)).max(LEAST_ERROR * LEAST_ERROR);
    Some(Datum { at, value: mean + sd * hazard, variance: left })
}

/// A margin as it is near zero, and bent to an end where it is far. One that is far past the limit must not bend the model near it.
fn squash(margin: f64) -> f64 {
    bent(margin, KNEE, REST)
}

fn steepness(margin: f64) -> f64 {
    let past = margin.abs() - KNEE;
    if past <= 0.0 { 1.0 } else { 1.0 - (past / REST).tanh().powi(2) }
}

#[cfg(test)]
mod tests {
    use super::super::curve::{Curve, DOWN};
    use super::super::tests::known::{Known, observation, point, space};
    use super::super::{Observation, PromiseMargin};
    use super::*;
    use autotune_plan::space::{Parameter, Value};

    fn sample(seqs: i64, rate: f64, margin: f64, error: f64) -> Sample {
        (point(seqs), ProbedRate { rate: Rate(rate), seen: observation(Some(margin), error) })
    }

    #[test]
    fn a_twin_that_is_off_everywhere_by_as_much_is_corrected_where_nothing_was_seen() {
        // The engine's margin is a tenth above what is expected.
        let mut twin = Known::twin(|point, rate| (rate / point).ln());
        let samples = [sample(8, 8.0, 0.1, 0.02), sample(8, 9.0, (9.0_f64 / 8.0).ln() + 0.1, 0.02)];
        let model = Margins::learn(&space(), Rate(8.0), &samples, &mut twin);
        let (mean, sd) = model.predict(&point(16), Rate(15.0), &mut twin)[0];
        assert!((mean - ((15.0_f64 / 16.0).ln() + 0.1)).abs() < 0.05, "{mean}");
        assert!(sd < 0.1, "{sd}");
        assert!(model.holds(&point(16), Rate(12.0), &mut twin) > 0.95);
        assert!(model.holds(&point(16), Rate(18.0), &mut twin) < 0.05);
    }

    #[test]
    fn without_a_twin_far_points_are_unknown() {
        let mut nothing = Known::nothing();
        let samples = [sample(8, 8.0, -0.2, 0.02), sample(8, 9.0, 0.1, 0.02)];
        let model = Margins::learn(&space(), Rate(8.0), &samples, &mut nothing);
        let near = model.predict(&point(8), Rate(8.5), &mut nothing)[0];
        let far = model.predict(&point(64), Rate(8.5), &mut nothing)[0];
        assert!(near.1 < 0.15 && far.1 > 2.0 * near.1, "{near:?} {far:?}");
    }

    /// A session on two H200 (`results/h200-8b-tp`) by its probes of one GPU and the first of two. Its proof keeps 25.6 req/s on two.
    #[test]
    fn without_a_twin_the_limit_of_two_gpus_is_looked_for_near_what_was_seen() {
        let parameter = |name: &str, values: [i64; 2]| Parameter {
            name: name.into(),
            values: values.map(Value::Int).to_vec(),
            default: None,
            when: None,
        };
        let (tokens, gpus) = ("max-num-batched-tokens", "tensor-parallel-size");
        let parameters = vec![parameter(tokens, [2048, 8192]), parameter(gpus, [1, 2])];
        let space = Space { parameters, constraints: Vec::new() };
        let point = |t, g| Point::default().with(tokens, Value::Int(t)).with(gpus, Value::Int(g));
        let sample = |t, g, rate, ttft: Option<(f64, f64)>, tpot: Option<(f64, f64)>| {
            let kept = tpot.is_some();
            let seen = |of: Option<(f64, f64)>, broken| {
                let margin = of.map(|of| of.0);
                PromiseMargin { margin, error: of.map_or(f64::NAN, |of| of.1), broken }
            };
            let seen = Observation::expected(vec![seen(ttft, false), seen(tpot, !kept)]);
            (point(t, g), ProbedRate { rate: Rate(rate), seen })
        };
        let samples = [
            sample(8192, 1, 4.0, Some((-1.516, 0.777)), Some((-1.003, 0.34))),
            sample(8192, 1, 10.4, Some((-0.651, 0.542)), Some((-0.542, 0.237))),
            sample(8192, 1, 20.8, None, None),
            sample(8192, 1, 14.78, Some((-0.512, 0.464)), Some((-0.224, 0.203))),
            sample(8192, 1, 17.22, None, None),
            sample(8192, 1, 15.72, Some((-0.306, 0.443)), Some((-0.105, 0.194))),
            sample(8192, 1, 16.08, None, None),
            sample(2048, 1, 15.46, Some((-0.464, 0.452)), Some((-0.129, 0.198))),
            sample(2048, 2, 15.45, Some((-1.02, 0.452)), Some((-0.851, 0.198))),
        ];
        let mut nothing = Known::nothing();
        let model = Margins::learn(&space, Rate(4.0), &samples, &mut nothing);
        for (tokens, gpus, from, to) in [(2048, 2, 18.0, 36.0), (8192, 2, 16.0, 40.0), (8192, 1, 14.0, 17.0)] {
            let curve = Curve::walk((Rate(15.45), DOWN), Rate(4.0), &model, &point(tokens, gpus), &mut nothing);
            let limit = curve.root().unwrap().rate.0;
            assert!((from..to).contains(&limit), "{limit} req/s with {tokens} tokens on {gpus} GPUs");
        }
    }

    /// The first nine probes of a session of real vLLM on two CPU cores: sequences, rate, and the margins of TTFT and TPOT p99 with their errors. None
    /// where a probe was cut.
    #[test]
    fn without_a_twin_a_limit_far_below_the_first_rate_is_found_near_what_was_seen() {
        let probes = [
            (64, 18.9, None),
            (64, 9.62, Some([(-0.89, 0.04), (0.33, 0.14)])),
            (64, 7.22, Some([(-0.81, 0.17), (0.07, 0.34)])),
            (8, 11.66, Some([(0.2, 0.17), (0.02, 0.34)])),
            (8, 8.59, Some([(-0.7, 0.18), (-0.21, 0.34)])),
            (8, 8.95, None),
            (4, 8.44, Some([(-0.9, 0.78), (-0.22, 0.34)])),
            (4, 12.02, None),
            (4, 7.67, Some([(-0.86, 0.18), (-0.05, 0.34)])),
        ];
        let cut = PromiseMargin { margin: None, error: f64::NAN, broken: true };
        let seen = probes.map(|(seqs, rate, margins)| {
            let limits = margins.map_or([PromiseMargin { broken: false, ..cut }, cut], |margins| {
                margins.map(|(margin, error)| PromiseMargin::expected(margin, error))
            });
            (point(seqs), ProbedRate { rate: Rate(rate), seen: Observation::expected(limits.to_vec()) })
        });
        let mut nothing = Known::nothing();
        let model = Margins::learn(&space(), Rate(18.9), &seen, &mut nothing);
        let curve = Curve::walk((Rate(7.67), DOWN), Rate(18.9), &model, &point(4), &mut nothing);
        let limit = curve.root().map_or(0.0, |root| root.rate.0);
        assert!((5.0..12.0).contains(&limit), "{limit}");
    }

    #[test]
    fn a_probe_that_was_cut_raises_what_is_expected_and_is_no_value() {
        let mut twin = Known::twin(|point, rate| (rate / point).ln());
        let cut = |rate| (point(8), ProbedRate { rate: Rate(rate), seen: observation(None, 0.02) });
        let seen = [sample(8, 8.0, 0.0, 0.02), cut(7.0)];
        let mean = |samples: &[Sample], twin: &mut Known| {
            Margins::learn(&space(), Rate(8.0), samples, twin).predict(&point(8), Rate(7.5), twin)[0].0
        };
        let without = mean(&seen[..1], &mut twin);
        let with = mean(&seen, &mut twin);
        assert!(with > without + 0.003, "{with} after {without}");
        // The same bound where the limit is surely broken anyway says nothing.
        let far = [sample(8, 8.0, 0.0, 0.02), cut(14.0)];
        assert!((mean(&far, &mut twin) - without).abs() < 0.005);
    }

    #[test]
    fn squashing_keeps_the_sign_and_what_is_near_the_limit() {
        assert_eq!((squash(0.3), squash(-0.2), squash(0.0)), (0.3, -0.2, 0.0));
        assert!(squash(5.0) < 0.81 && squash(-5.0) > -0.81 && squash(0.6) > squash(0.5));
        assert!(steepness(5.0) < 1e-3 && steepness(0.1) == 1.0);
    }
}
