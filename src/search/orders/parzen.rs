//! Parzen's window over the values of one parameter.

/// The weight of the prior, in observations.
const PRIOR: f64 = 1.0;
/// The narrowest kernel is the range over the number of kernels, but not below the range over this.
const MOST_KERNELS: f64 = 100.0;

/// How likely each of a parameter's values is.
#[derive(Clone, Debug)]
pub struct Parzen(Vec<f64>);

impl Parzen {
    /// Over the indices of ascending values: a normal kernel at each that was seen, as wide as the larger distance to its neighbours, and
    /// one over the whole range (Bergstra et al. 2011, section 4.2).
    pub fn of_numbers(values: usize, seen: &[usize]) -> Self {
        let range = values.saturating_sub(1).max(1) as f64;
        let narrowest = range / (seen.len() as f64 + 1.0).min(MOST_KERNELS);
        let middle = values.saturating_sub(1) as f64 / 2.0;
        let mut centres: Vec<f64> = seen.iter().map(|index| *index as f64).chain([middle]).collect();
        centres.sort_by(f64::total_cmp);
        let own = centres.iter().position(|centre| *centre == middle);
        let mut chances = vec![0.0; values];
        for (place, centre) in centres.iter().enumerate() {
            let below = place.checked_sub(1).map_or(0.0, |before| centre - centres[before]);
            let above = centres.get(place + 1).map_or(0.0, |next| next - centre);
            let (width, weight) =
                if Some(place) == own { (range, PRIOR) } else { (below.max(above).clamp(narrowest, range), 1.0) };
            let kernel = (0..values).map(|index| (-0.5 * ((index as f64 - centre) / width).powi(2)).exp());
            let kernel: Vec<f64> = kernel.collect();
            let mass: f64 = kernel.iter().sum();
            chances.iter_mut().zip(&kernel).for_each(|(chance, k)| *chance += weight * k / mass);
        }
        Self::normalised(chances)
    }

    /// Over words and switches: how often each was seen, and the prior once for each.
    pub fn of_words(values: usize, seen: &[usize]) -> Self {
        let count = |value| seen.iter().filter(|index| **index == value).count() as f64;
        Self::normalised((0..values).map(|value| count(value) + PRIOR).collect())
    }

    fn normalised(mut chances: Vec<f64>) -> Self {
        let sum: f64 = chances.iter().sum();
        chances.iter_mut().for_each(|chance| *chance /= sum);
        Self(chances)
    }

    /// How likely the value of that index is.
    pub fn chance(&self, index: usize) -> f64 {
        self.0[index]
    }

    /// The index that a number in [0, 1) draws.
    pub fn draw(&self, uniform: f64) -> usize {
        let mut left = uniform;
        let drawn = self.0.iter().position(|chance| {
            left -= chance;
            left < 0.0
        });
        drawn.unwrap_or(self.0.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_likelier_its_neighbours_too_and_nothing_is_impossible() {
        let window = Parzen::of_numbers(9, &[7, 7, 8]);
        let chances: Vec<f64> = (0..9).map(|index| window.chance(index)).collect();
        assert!((chances.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{chances:?}");
        assert!(chances.windows(2).take(7).all(|pair| pair[1] > pair[0]) && chances[0] > 0.01, "{chances:?}");
        assert_eq!((window.draw(0.0), window.draw(0.999_999)), (0, 8));
        assert_eq!(Parzen::of_numbers(1, &[0]).chance(0), 1.0);
        let even = Parzen::of_numbers(4, &[]);
        assert!((even.chance(0) - even.chance(3)).abs() < 1e-12, "{even:?}");
    }

    #[test]
    fn words_have_no_neighbours() {
        let window = Parzen::of_words(3, &[2, 2]);
        assert_eq!([0, 1, 2].map(|index| window.chance(index)), [0.2, 0.2, 0.6]);
        assert_eq!([0.1, 0.3, 0.5].map(|uniform| window.draw(uniform)), [0, 1, 2]);
    }
}
