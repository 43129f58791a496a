//! Means, and how values scatter around them.

/// Not a number where there are no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sum of the squared distances from the mean.
pub fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// The standard error of a statistic by the grouped jackknife, from its values without each block of time. For quantiles, deleting groups is
/// consistent and deleting single values is not (Efron and Tibshirani 1993, section 11.5). None for fewer than two blocks.
pub fn jackknife(without: &[f64]) -> Option<f64> {
    let groups = without.len() as f64;
    (without.len() > 1).then(|| ((groups - 1.0) / groups * squares(without)).sqrt())
}

/// The correlation of pairs; 0 if one side does not vary.
pub fn correlation(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let pairs: Vec<(f64, f64)> = pairs.collect();
    let n = pairs.len().max(1) as f64;
    let mean = pairs.iter().fold((0.0, 0.0), |m, p| (m.0 + p.0 / n, m.1 + p.1 / n));
    let sum = |f: fn(f64, f64) -> f64| pairs.iter().map(|p| f(p.0 - mean.0, p.1 - mean.1)).sum::<f64>();
    sum(|a, b| a * b) / (sum(|a, _| a * a) * sum(|_, b| b * b)).sqrt().max(1e-300)
}

/// The standard error of a sum of independent terms and its degrees of freedom (Satterthwaite 1946, Welch 1947). Each term is given as
/// (standard error, degrees of freedom).
pub fn combined(terms: &[(f64, f64)]) -> (f64, f64) {
    let variance: f64 = terms.iter().map(|(error, _)| error.powi(2)).sum();
    let over_freedom: f64 = terms.iter().map(|(error, freedom)| error.powi(4) / freedom.max(1.0)).sum();
    let freedom = if over_freedom > 0.0 && variance.is_finite() { variance.powi(2) / over_freedom } else { 1.0 };
    (variance.sqrt(), freedom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jackknife_of_a_mean_is_its_standard_error() {
        let values = [1.0, 2.0, 4.0, 9.0];
        let sum: f64 = values.iter().sum();
        let without: Vec<f64> = values.iter().map(|value| (sum - value) / 3.0).collect();
        let error = (squares(&values) / 3.0 / 4.0).sqrt();
        assert!((jackknife(&without).unwrap() - error).abs() < 1e-12);
        assert_eq!(jackknife(&[1.0]), None);
    }

    #[test]
    fn a_side_that_does_not_vary_has_no_correlation() {
        assert!((correlation([(1.0, 2.0), (2.0, 4.0)].into_iter()) - 1.0).abs() < 1e-12);
        assert_eq!(correlation([(1.0, 2.0), (1.0, 4.0)].into_iter()), 0.0);
    }

    #[test]
    fn a_sum_of_errors_has_the_freedom_of_what_dominates_it() {
        let (error, freedom) = combined(&[(3.0, 5.0), (4.0, 5.0)]);
        assert!((error - 5.0).abs() < 1e-12 && (5.0..10.0).contains(&freedom), "{freedom}");
        assert!((combined(&[(1.0, 7.0), (1.0, 7.0)]).1 - 14.0).abs() < 1e-9);
        assert!((combined(&[(1.0, 3.0), (0.01, 30.0)]).1 - 3.0).abs() < 0.01);
        assert!((combined(&[(0.01, 3.0), (1.0, 30.0)]).1 - 30.0).abs() < 0.1);
        assert_eq!(combined(&[(0.0, 3.0)]), (0.0, 1.0));
        assert_eq!(combined(&[(f64::INFINITY, 3.0)]), (f64::INFINITY, 1.0));
    }
}
