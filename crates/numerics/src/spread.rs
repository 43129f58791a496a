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
}
