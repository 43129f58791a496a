//! The highest value of a monotone parameter that starts: by bisection, and by what a failure says is missing.

use autotune_plan::space::Value;

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
    /// Whether the last failure told how much was missing, so that the highest value that is left probably starts.
    told: bool,
}

impl HighestThatStarts {
    pub fn new(values: Vec<Value>) -> Self {
        let fails = values.len();
        Self { values, starts: None, floor: 0, fails, told: false }
    }

    /// The value to try next: that in the middle of what is open. It is the highest before any was tried, and where a failure told how much was
    /// missing. `None` when the answer is known.
    pub fn next(&self) -> Option<Value> {
        let from = self.starts.map_or(self.floor, |s| self.floor.max(s + 1));
        let open = self.fails.checked_sub(from).filter(|open| *open > 0)?;
        let highest = open == self.values.len() || self.told;
        self.values.get(if highest { self.fails - 1 } else { from + open.div_ceil(2) - 1 }).cloned()
    }

    pub fn tell(&mut self, value: &Value, started: bool) {
        let Some(index) = self.values.iter().position(|v| v.same(value)) else { return };
        if started {
            self.starts = Some(self.starts.map_or(index, |s| s.max(index)));
        } else {
            self.fails = self.fails.min(index);
            self.told = false;
        }
    }

    /// The value does not start, since more is needed: `missing` where that is known, as a share of the same whole. So no value above `value - missing`
    /// starts. The engine may need more than that. So a second failure in a row is followed by a bisection.
    pub fn lacks(&mut self, value: &Value, missing: Option<f64>) {
        let told_before = self.told;
        self.tell(value, false);
        let Some((number, missing)) = value.number().zip(missing) else { return };
        let fits = |v: &Value| v.number().is_some_and(|v| v <= number - missing);
        self.fails = self.fails.min(self.values.iter().take_while(|v| fits(v)).count());
        self.told = !told_before;
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
    fn every_boundary_is_found_in_logarithmically_many_starts() {
        let values: Vec<Value> = (0..10).map(Value::Int).collect();
        for boundary in 0..=10 {
            let (mut search, mut starts) = (HighestThatStarts::new(values.clone()), 0);
            while let Some(value) = search.next() {
                assert!(starts > 0 || value == Value::Int(9), "the highest, because it usually does");
                search.tell(&value, value.number().unwrap() < f64::from(boundary));
                starts += 1;
                assert!(starts <= 5, "boundary {boundary}");
            }
            assert!(boundary < 10 || starts == 1, "one start is enough where the highest value works");
            assert_eq!(search.found().and_then(Value::number), (boundary > 0).then(|| f64::from(boundary - 1)));
        }
    }

    #[test]
    fn a_failure_that_tells_what_is_missing_leads_to_the_highest_value_that_has_it() {
        let percent = |tried: Option<Value>| tried.map(|v| (v.number().unwrap() * 100.0).round());
        let share = |percent: i32| Value::Real(f64::from(percent) / 100.0);
        let mut search = HighestThatStarts::new((88..=97).map(share).collect());
        assert_eq!(percent(search.next()), Some(97.0));
        // An H200 with 0.53 GiB of 139.8 too few.
        search.lacks(&share(97), Some(0.0038));
        assert_eq!(percent(search.next()), Some(96.0));
        let mut works = search.clone();
        works.tell(&share(96), true);
        assert_eq!((works.next(), works.found()), (None, Some(&share(96))));
        // It fails again: what is left is divided.
        search.lacks(&share(96), Some(0.0001));
        assert_eq!(percent(search.next()), Some(91.0));
        let mut search = HighestThatStarts::new((88..=97).map(share).collect());
        search.lacks(&share(97), Some(0.2));
        assert_eq!((search.next(), search.found()), (None, None), "none of them has it");
    }

    #[test]
    fn values_that_are_too_low_are_not_the_answer_and_end_nothing() {
        for (lowest, boundary) in (0..=10).flat_map(|lowest| (0..=10).map(move |boundary| (lowest, boundary))) {
            let mut search = HighestThatStarts::new((0..10).map(Value::Int).collect());
            for _ in 0..5 {
                let Some(value) = search.next() else { break };
                match value.number().unwrap() {
                    v if v < f64::from(lowest) => search.too_low(&value),
                    v => search.tell(&value, v < f64::from(boundary)),
                }
            }
            assert_eq!(search.next(), None);
            let highest = (boundary > lowest).then(|| f64::from(boundary - 1));
            assert_eq!(search.found().and_then(Value::number), highest, "from {lowest} to {boundary}");
        }
    }
}
