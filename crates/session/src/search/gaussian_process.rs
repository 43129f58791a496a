//! A Gaussian process over points and rates, with the error of each observation given (Rasmussen and Williams 2006, chapters 2 and 5).
//!
//! The kernel is a constant and a Matérn 5/2 with a length of its own in every dimension. The constant is what all observations have in common.
//! Hyper-parameters are those of the largest posterior density near the medians of their priors.

use autotune_numerics::linear::{Cholesky, Matrix, dot};
use autotune_numerics::simplex::minimize;

/// Added to the diagonal until the matrix can be factored, tenfold each time.
const JITTER: f64 = 1e-8;
/// A matrix that cannot be factored with this much added is none of ours.
const MOST_JITTER: f64 = 1e-2;
const MOVES: u64 = 90;

/// What is thought of a quantity before anything was seen: its logarithm is normal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogNormalPrior {
    pub median: f64,
    pub spread: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Datum {
    pub at: Vec<f64>,
    /// What was seen, relative to the mean of the process.
    pub value: f64,
    pub variance: f64,
}

#[derive(Clone, Debug)]
pub struct GaussianProcess {
    kernel: Kernel,
    data: Vec<Datum>,
    factor: Option<Cholesky>,
    weights: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Kernel {
    common: f64,
    amplitude: f64,
    lengths: Vec<(bool, f64)>,
}

impl Kernel {
    fn of(choices: &[bool], logs: &[f64]) -> Self {
        let lengths = choices.iter().zip(&logs[2..]).map(|(choice, log)| (*choice, log.exp())).collect();
        Self { common: logs[0].exp().powi(2), amplitude: logs[1].exp().powi(2), lengths }
    }

    fn covariance(&self, a: &[f64], b: &[f64]) -> f64 {
        let squared: f64 = self
            .lengths
            .iter()
            .zip(a.iter().zip(b))
            .map(|((choice, length), (a, b))| {
                let distance = if *choice { f64::from(a != b) } else { a - b };
                (distance / length).powi(2)
            })
            .sum();
        let r = (5.0 * squared).sqrt();
        self.common + self.amplitude * (1.0 + r + r * r / 3.0) * (-r).exp()
    }

    fn matrix(&self, data: &[Datum]) -> Matrix {
        let row = |a: &Datum| data.iter().map(|b| self.covariance(&a.at, &b.at)).collect();
        let mut matrix: Matrix = data.iter().map(row).collect();
        for (i, datum) in data.iter().enumerate() {
            matrix[i][i] += datum.variance;
        }
        matrix
    }
}

fn factored(mut matrix: Matrix) -> Option<Cholesky> {
    let mut jitter = JITTER;
    while jitter <= MOST_JITTER {
        for (i, row) in matrix.iter_mut().enumerate() {
            row[i] += jitter;
        }
        if let Some(factor) = Cholesky::of(&matrix) {
            return Some(factor);
        }
        jitter *= 10.0;
    }
    None
}

impl GaussianProcess {
    /// The priors: the standard deviation of what all values have in common, that of what they differ by, and the length scale of each coordinate. The values of a choice are equal or not, and never near.
    pub fn fit(priors: &[LogNormalPrior], choices: &[bool], data: Vec<Datum>) -> Self {
        let medians: Vec<f64> = priors.iter().map(|b| b.median.ln()).collect();
        let values: Vec<f64> = data.iter().map(|d| d.value).collect();
        // The negative logarithm of the posterior density.
        let cost = |logs: &[f64]| {
            let Some(factor) = factored(Kernel::of(choices, logs).matrix(&data)) else { return f64::INFINITY };
            let prior: f64 = priors.iter().zip(logs).map(|(b, log)| ((log - b.median.ln()) / b.spread).powi(2)).sum();
            0.5 * dot(&values, &factor.solve(&values)) + factor.half_log_determinant() + 0.5 * prior
        };
        let edges: Vec<f64> = priors.iter().map(|b| b.spread).collect();
        let best = if data.len() < 2 { medians } else { minimize(cost, &medians, &edges, MOVES).0 };
        Self::new(Kernel::of(choices, &best), data)
    }

    /// The same process with other data: finding hyper-parameters is what takes time.
    pub fn with(&self, data: Vec<Datum>) -> Self {
        Self::new(self.kernel.clone(), data)
    }

    fn new(kernel: Kernel, data: Vec<Datum>) -> Self {
        let values: Vec<f64> = data.iter().map(|d| d.value).collect();
        let factor = if data.is_empty() { None } else { factored(kernel.matrix(&data)) };
        let weights = factor.as_ref().map_or_else(Vec::new, |factor| factor.solve(&values));
        Self { kernel, data, factor, weights }
    }

    /// The mean and the variance of the value there, without the error of an observation.
    pub fn predict(&self, at: &[f64]) -> (f64, f64) {
        let own = self.kernel.covariance(at, at);
        let Some(factor) = &self.factor else { return (0.0, own) };
        let cross: Vec<f64> = self.data.iter().map(|d| self.kernel.covariance(at, &d.at)).collect();
        (dot(&cross, &self.weights), (own - dot(&cross, &factor.solve(&cross))).max(1e-9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_numerics::repeatable::uniform;

    fn fit(data: Vec<Datum>) -> GaussianProcess {
        let priors = [0.1, 0.3, 0.5, 0.5].map(|median| LogNormalPrior { median, spread: 0.7 });
        GaussianProcess::fit(&priors, &[false; 2], data)
    }

    fn surface(x: f64) -> f64 {
        0.4 * (3.0 * x).sin()
    }

    /// Observations of a function of the first coordinate alone.
    fn data(n: usize, error: f64) -> Vec<Datum> {
        let mut uniform = uniform(5);
        (0..n)
            .map(|_| {
                let at = vec![uniform(), uniform()];
                let value = surface(at[0]) + error * (uniform() + uniform() + uniform() - 1.5) * 2.0;
                Datum { at, value, variance: error * error }
            })
            .collect()
    }

    #[test]
    fn it_finds_a_function_and_says_how_sure_it_is() {
        let process = fit(data(30, 0.02));
        let far = process.predict(&[5.0, 0.5]).1;
        for x in [0.1, 0.4, 0.8] {
            let (mean, variance) = process.predict(&[x, 0.3]);
            assert!((mean - surface(x)).abs() < 0.05, "at {x}: {mean} for {}", surface(x));
            assert!(variance < far / 10.0);
        }
    }

    #[test]
    fn it_learns_that_a_dimension_does_not_matter() {
        let process = fit(data(40, 0.02));
        let [(_, matters), (_, dead)] = process.kernel.lengths[..] else { panic!() };
        assert!(dead > 1.5 * matters, "{dead} and {matters}");
    }

    #[test]
    fn an_observation_counts_as_much_as_its_error_allows() {
        let one = |variance| {
            let datum = Datum { at: vec![0.5, 0.5], value: 1.0, variance };
            GaussianProcess::new(Kernel::of(&[false; 2], &[-1.0, -1.0, -0.5, -0.5]), vec![datum]).predict(&[0.5, 0.5])
        };
        let (sure, doubtful) = (one(1e-4), one(1.0));
        assert!(sure.0 > 0.99 && doubtful.0 < 0.3 && doubtful.1 > sure.1);
    }

    #[test]
    fn choices_are_equal_or_not_and_never_near() {
        let kernel = Kernel { common: 0.0, amplitude: 1.0, lengths: vec![(true, 1.0)] };
        assert_eq!(kernel.covariance(&[0.0], &[1.0]), kernel.covariance(&[0.0], &[2.0]));
        assert!(kernel.covariance(&[2.0], &[2.0]) > kernel.covariance(&[0.0], &[1.0]));
    }
}
