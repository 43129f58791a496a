//! The middle and the width of what many sessions showed.

use serde::Serialize;

/// The median and the range without the lowest and highest tenth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Half of the values lie below.
    pub median: f64,
    /// A tenth of the values lie below.
    pub low: f64,
    /// A tenth of the values lie above.
    pub high: f64,
}

impl Spread {
    /// Of these values; `None` if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values.get(((values.len() - 1) as f64 * share).round() as usize).copied();
        if values.is_empty() { None } else { Some(Self { median: at(0.5)?, low: at(0.1)?, high: at(0.9)? }) }
    }

    pub fn times(self, factor: f64) -> Self {
        Self { median: self.median * factor, low: self.low * factor, high: self.high * factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenths_at_both_ends_are_left_out() {
        let spread = Spread::of((0..=10).map(f64::from).collect()).unwrap();
        assert_eq!(spread, Spread { median: 5.0, low: 1.0, high: 9.0 });
        assert_eq!(Spread::of(vec![3.0]), Some(Spread { median: 3.0, low: 3.0, high: 3.0 }));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
