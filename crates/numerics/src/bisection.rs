//! Bisection of rates by their logarithm.

/// Narrows two rates, of which something holds at the lower and not at the higher, until they differ by at most that factor. None where
/// `holds` cannot tell.
pub fn narrowed(
    (mut low, mut high): (f64, f64),
    within: f64,
    mut holds: impl FnMut(f64) -> Option<bool>,
) -> Option<(f64, f64)> {
    while high / low > within {
        let middle = f64::sqrt(low * high);
        if holds(middle)? { low = middle } else { high = middle }
    }
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_for_stays_between() {
        let (low, high) = narrowed((1.0, 100.0), 1.01, |rate| Some(rate < 7.0)).unwrap();
        assert!(low < 7.0 && 7.0 <= high && high / low <= 1.01, "{low} {high}");
        assert_eq!(narrowed((1.0, 2.0), 2.0, |_| None), Some((1.0, 2.0)), "near enough already");
        assert_eq!(narrowed((1.0, 3.0), 2.0, |_| None), None);
    }
}
