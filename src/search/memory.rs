//! The highest value of a monotone parameter that starts, by bisection.

use crate::space::Value;

/// Which of ascending values is the highest that starts. The highest is tried first, because it usually does.
#[derive(Clone, Debug)]
pub struct HighestThatStarts {
    values: Vec<Value>,
    /// Index of the highest value known to start.
    starts: Option<usize>,
    /// Index of the lowest value that is not known to be too low to start.
    floor: usize,
    /// Index of the lowest value known not to.
    fails: usize,
}

impl HighestThatStarts {
    pub fn new(values: Vec<Value>) -> Self {
        let fails = values.len();
        Self { values, starts: None, floor: 0, fails }
    }

    /// The values to try next, at most so many at the same time: those that divide what is open into equal parts. None when the answer is known.
    pub fn next(&self, at_once: usize) -> Vec<Value> {
        let from = self.starts.map_or(self.floor, |s| self.floor.max(s + 1));
        let open = self.fails.saturating_sub(from);
        if open == self.values.len() {
            return self.values.last().cloned().into_iter().collect();
        }
        let parts = at_once.min(open) + 1;
        (1..parts).filter_map(|part| self.values.get(from + part * (open + 1) / parts - 1)).cloned().collect()
    }

    pub fn tell(&mut self, value: &Value, started: bool) {
        let Some(index) = self.values.iter().position(|v| v.same(value)) else { return };
        if started {
            self.starts = Some(self.starts.map_or(index, |s| s.max(index)));
        } else {
            self.fails = self.fails.min(index);
        }
    }

    pub fn too_low(&mut self, value: &Value) {
        let index = self.values.iter().position(|v| v.same(value));
        self.floor = index.map_or(self.floor, |index| self.floor.max(index + 1));
    }

    pub fn found(&self) -> Option<&Value> {
        self.values.get(self.starts?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_boundary_is_found_in_logarithmically_many_rounds() {
        let values: Vec<Value> = (0..10).map(Value::Int).collect();
        for (boundary, (at_once, most)) in (0..=10).flat_map(|b| [(1, 5), (2, 4), (9, 2), (20, 2)].map(|r| (b, r))) {
            let mut search = HighestThatStarts::new(values.clone());
            let mut rounds = 0;
            loop {
                let tried = search.next(at_once);
                if tried.is_empty() {
                    break;
                }
                assert!(rounds > 0 || tried == [Value::Int(9)], "the highest, because it usually does");
                assert!(tried.len() <= at_once && tried.windows(2).all(|pair| pair[0].number() < pair[1].number()));
                for value in tried {
                    search.tell(&value, value.number().unwrap() < f64::from(boundary));
                }
                rounds += 1;
                assert!(rounds <= most, "boundary {boundary}, {at_once} at once");
            }
            assert!(boundary < 10 || rounds == 1, "one start is enough where the highest value works");
            assert_eq!(search.found().and_then(Value::number), (boundary > 0).then(|| f64::from(boundary - 1)));
        }
    }

    #[test]
    fn values_that_are_too_low_are_not_the_answer_and_end_nothing() {
        for (lowest, boundary) in (0..=10).flat_map(|lowest| (0..=10).map(move |boundary| (lowest, boundary))) {
            let mut search = HighestThatStarts::new((0..10).map(Value::Int).collect());
            for _ in 0..5 {
                for value in search.next(2) {
                    match value.number().unwrap() {
                        v if v < f64::from(lowest) => search.too_low(&value),
                        v => search.tell(&value, v < f64::from(boundary)),
                    }
                }
            }
            assert_eq!(search.next(2), []);
            let highest = (boundary > lowest).then(|| f64::from(boundary - 1));
            assert_eq!(search.found().and_then(Value::number), highest, "from {lowest} to {boundary}");
        }
    }
}
