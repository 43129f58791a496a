//! The highest value of a monotone parameter that starts, by bisection.

use crate::space::Value;

/// Which of ascending values is the highest that starts. The highest is tried first, because it usually does.
#[derive(Clone, Debug)]
pub struct HighestThatStarts {
    values: Vec<Value>,
    /// Index of the highest value known to start.
    starts: Option<usize>,
    /// Index of the lowest value known not to.
    fails: usize,
}

impl HighestThatStarts {
    /// Over ascending values.
    pub fn new(values: Vec<Value>) -> Self {
        let fails = values.len();
        Self { values, starts: None, fails }
    }

    /// The value to try next; none when the answer is known.
    pub fn next(&self) -> Option<&Value> {
        let from = self.starts.map_or(0, |s| s + 1);
        let last = self.values.len();
        match self.fails.checked_sub(from) {
            None | Some(0) => None,
            Some(_) if self.fails == last && self.starts.is_none() => self.values.last(),
            Some(open) => self.values.get(from + (open - 1) / 2),
        }
    }

    /// Whether that value started.
    pub fn tell(&mut self, value: &Value, started: bool) {
        let Some(index) = self.values.iter().position(|v| v.same(value)) else { return };
        if started {
            self.starts = Some(self.starts.map_or(index, |s| s.max(index)));
        } else {
            self.fails = self.fails.min(index);
        }
    }

    /// The highest value that started.
    pub fn found(&self) -> Option<&Value> {
        self.values.get(self.starts?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_boundary_is_found_in_logarithmically_many_starts() {
        let values: Vec<Value> = (0..10).map(Value::Int).collect();
        for boundary in 0..=10 {
            let mut search = HighestThatStarts::new(values.clone());
            let mut starts = 0;
            while let Some(value) = search.next().cloned() {
                search.tell(&value, value.number().unwrap() < f64::from(boundary));
                starts += 1;
                assert!(starts <= 5, "boundary {boundary}");
            }
            assert_eq!(search.found().and_then(Value::number), (boundary > 0).then(|| f64::from(boundary - 1)));
        }
    }

    #[test]
    fn one_start_is_enough_where_the_highest_value_works() {
        let mut search = HighestThatStarts::new((0..10).map(Value::Int).collect());
        assert_eq!(search.next(), Some(&Value::Int(9)));
        search.tell(&Value::Int(9), true);
        assert_eq!(search.next(), None);
    }
}
