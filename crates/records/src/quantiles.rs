//! Order statistics: quantiles that are observations, never points between two.

/// The rank of the `q`-quantile among sorted values, from 1: the first value that at least a share `q` of all values do not exceed.
pub fn rank(values: usize, q: f64) -> usize {
    ((q * values as f64 - 1e-9).ceil() as usize).clamp(1, values.max(1))
}

/// The quantile of sorted values; `None` if there are none.
pub fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    sorted.get(rank(sorted.len(), q) - 1).copied()
}

/// The quantile of values in any order; `None` if there are none.
pub fn quantile(values: impl IntoIterator<Item = f64>, q: f64) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    quantile_of_sorted(&values, q)
}

/// The middle value, the upper one of two; `None` if there are none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
