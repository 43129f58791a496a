//! The search for a minimum without derivatives: Nelder and Mead's simplex, and the only file that knows argmin.

use std::cell::RefCell;

use argmin::core::{CostFunction, Executor};
use argmin::solver::neldermead::NelderMead;

struct RememberingBest<F> {
    cost: F,
    best: RefCell<(Vec<f64>, f64)>,
}

impl<F: Fn(&[f64]) -> f64> CostFunction for &RememberingBest<F> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, x: &Vec<f64>) -> Result<f64, argmin::core::Error> {
        // The start is also the first corner; its cost is known already.
        let known = Some(self.best.borrow().1).filter(|_| self.best.borrow().0 == *x);
        let cost = known.unwrap_or_else(|| (self.cost)(x));
        // A cost that is no number must lose every comparison.
        let cost = if cost.is_nan() { f64::INFINITY } else { cost };
        let mut best = self.best.borrow_mut();
        if cost < best.1 {
            *best = (x.clone(), cost);
        }
        Ok(cost)
    }
}

/// The best point found in at most `moves` iterations, and its cost. `edge[i]` is the initial step in coordinate i; 0 keeps that coordinate fixed.
pub fn minimize(cost: impl Fn(&[f64]) -> f64, start: &[f64], edge: &[f64], moves: u64) -> (Vec<f64>, f64) {
    let first = cost(start);
    let first = if first.is_nan() { f64::INFINITY } else { first };
    let remembering = RememberingBest { best: RefCell::new((start.to_vec(), first)), cost };
    let mut corners = vec![start.to_vec()];
    for (i, length) in edge.iter().enumerate().filter(|(_, length)| **length != 0.0) {
        let mut corner = start.to_vec();
        corner[i] += length;
        corners.push(corner);
    }
    // In many dimensions the classic moves collapse the simplex; these depend on their number (Gao and Han 2012).
    let n = (corners.len() - 1).max(2) as f64;
    let solver = NelderMead::new(corners)
        .with_gamma(1.0 + 2.0 / n)
        .and_then(|s| s.with_rho((0.75 - 0.5 / n).min(0.5)))
        .and_then(|s| s.with_sigma(1.0 - 1.0 / n))
        .and_then(|s| s.with_sd_tolerance(1e-5));
    if let Ok(solver) = solver {
        // Whatever ends it early, the best point so far is kept.
        drop(Executor::new(&remembering, solver).configure(|state| state.max_iters(moves)).run());
    }
    remembering.best.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_the_bottom_of_a_valley_and_leaves_a_fixed_coordinate_alone() {
        let cost = |x: &[f64]| (x[0] - 1.0).powi(2) + 10.0 * (x[1] - x[0] * x[0]).powi(2) + x[2];
        let (x, c) = minimize(cost, &[-1.0, 2.0, 0.0], &[0.3, 0.3, 0.0], 400);
        assert!(c < 1e-3 && (x[0] - 1.0).abs() < 0.1 && x[2] == 0.0, "{x:?} {c}");
    }

    #[test]
    fn a_cost_that_is_no_number_is_avoided() {
        let (x, _) = minimize(|x| if x[0] < 0.0 { f64::NAN } else { x[0] }, &[1.0], &[-0.5], 100);
        assert!((0.0..0.2).contains(&x[0]), "{x:?}");
        let (x, c) = minimize(|x| if x[0] > 0.5 { f64::NAN } else { x[0].abs() }, &[1.0], &[-0.6], 100);
        assert!(c < 0.1 && x[0].abs() < 0.1, "{x:?} {c}");
    }
}
