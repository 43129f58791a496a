//! A histogram as Prometheus knows it: how many values were at most each bound, their number and their sum.

/// Counts by bounds in rising order, and beyond the last.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    bounds: Vec<f64>,
    /// Values at most the bound of the same place and above the one before; one count more for those beyond all bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub(super) fn new(bounds: &[f64]) -> Self {
        Self { bounds: bounds.to_vec(), counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(super) fn observe(&mut self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
        }
        self.sum += value;
    }

    /// Each bound with the number of values up to it; infinity, with all of them, is the last.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }))
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(super) fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_belongs_to_it_and_counts_are_cumulative() {
        let mut histogram = Histogram::new(&[1.0, 2.5]);
        [0.5, 1.0, 2.0, 9.0].into_iter().for_each(|value| histogram.observe(value));
        assert_eq!(histogram.cumulative().collect::<Vec<_>>(), [(1.0, 2), (2.5, 3), (f64::INFINITY, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (4, 12.5));
    }
}
