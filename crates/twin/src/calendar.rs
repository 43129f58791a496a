//! A calendar queue: the requests that end in each step, in a ring with one slot for each step that the longest answer may take.
//!
//! Steps are whole numbers, so a request is noted and taken out without a comparison with others. A bit for each slot says whether a request
//! ends there, so that the next such slot is found quickly.

const NONE: u32 = u32::MAX;
/// Slots whose bits are in one word.
const WORD: usize = u64::BITS as usize;

#[derive(Clone, Debug, Default)]
pub(super) struct Calendar {
    /// By slot, the last request that was noted there.
    latest: Vec<u32>,
    /// By request, the one that was noted before it on the same slot.
    before: Vec<u32>,
    /// By slot, whether a request ends there.
    busy: Vec<u64>,
    len: usize,
}

impl Calendar {
    /// Forgets everything, and makes room for so many requests that end within so many steps.
    pub(super) fn clear(&mut self, requests: usize, steps: u32) {
        let slots = (steps as usize + 1).next_power_of_two().max(WORD);
        self.latest.clear();
        self.latest.resize(slots, NONE);
        self.busy.clear();
        self.busy.resize(slots / WORD, 0);
        self.before.resize(self.before.len().max(requests), NONE);
        self.len = 0;
    }

    /// How many requests are noted.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn slot(&self, step: u64) -> usize {
        step as usize & (self.latest.len() - 1)
    }

    /// Notes that a request ends in that step.
    pub(super) fn note(&mut self, step: u64, request: u32) {
        let slot = self.slot(step);
        self.before[request as usize] = std::mem::replace(&mut self.latest[slot], request);
        self.busy[slot / WORD] |= 1 << (slot % WORD);
        self.len += 1;
    }

    /// Takes out a request that ends in that step.
    pub(super) fn take(&mut self, step: u64) -> Option<u32> {
        let slot = self.slot(step);
        let request = self.latest[slot];
        if request == NONE {
            return None;
        }
        self.latest[slot] = self.before[request as usize];
        if self.latest[slot] == NONE {
            self.busy[slot / WORD] &= !(1 << (slot % WORD));
        }
        self.len -= 1;
        Some(request)
    }

    /// The first step from that one on in which somebody ends.
    pub(super) fn next(&self, from: u64) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let now = self.slot(from);
        let (word, bit) = (now / WORD, now % WORD);
        let words = self.busy.len();
        let ahead = self.busy[word] >> bit;
        if ahead != 0 {
            return Some(from + u64::from(ahead.trailing_zeros()));
        }
        // The first word comes again at the end: its slots before the present one lie a whole round ahead.
        let (away, busy) =
            (1..=words).map(|away| (away, self.busy[(word + away) & (words - 1)])).find(|(_, b)| *b != 0)?;
        Some(from + (away * WORD - bit) as u64 + u64::from(busy.trailing_zeros()))
    }

    /// Takes out the request with the highest number, and tells the step in which it would have ended; none ends before `from`.
    pub(super) fn take_newest(&mut self, from: u64) -> Option<(u64, u32)> {
        let (mut newest, mut at, mut step) = (None, from, self.next(from));
        let mut left = self.len;
        while let Some(found) = step {
            let mut request = self.latest[self.slot(found)];
            while request != NONE {
                left -= 1;
                if newest.is_none_or(|newest| request > newest) {
                    (newest, at) = (Some(request), found);
                }
                request = self.before[request as usize];
            }
            step = if left > 0 { self.next(found + 1) } else { None };
        }
        let newest = newest?;
        self.forget(at, newest);
        Some((at, newest))
    }

    /// Takes out a request that ends in that step, whoever was noted before and after it.
    fn forget(&mut self, step: u64, request: u32) {
        let mut others = Vec::new();
        while let Some(other) = self.take(step).filter(|other| *other != request) {
            others.push(other);
        }
        others.into_iter().for_each(|other| self.note(step, other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_numerics::repeatable::uniform;

    #[test]
    fn requests_come_out_in_the_step_in_which_they_end() {
        let mut calendar = Calendar::default();
        calendar.clear(4, 200);
        assert_eq!((calendar.next(0), calendar.take_newest(0)), (None, None));
        for (step, request) in [(70, 2), (300, 1), (120, 0), (120, 3)] {
            // The first is of an earlier round.
            calendar.note(step, request);
        }
        assert_eq!((calendar.len(), calendar.next(65), calendar.next(71)), (4, Some(70), Some(120)));
        assert_eq!((calendar.take(69), calendar.take(70), calendar.take(70)), (None, Some(2), None));
        assert_eq!(calendar.take_newest(71), Some((120, 3)));
        assert_eq!((calendar.take(120), calendar.next(121), calendar.take(300)), (Some(0), Some(300), Some(1)));
        assert!(calendar.is_empty());
    }

    #[test]
    fn it_does_what_a_sorted_list_does() {
        let (mut uniform, mut calendar, mut list) = (uniform(3), Calendar::default(), Vec::<(u64, u32)>::new());
        calendar.clear(5000, 700);
        for (step, request) in (0..).zip(0..5000) {
            let end = step + (uniform() * 701.0) as u64;
            calendar.note(end, request);
            list.push((end, request));
            if uniform() < 0.05 {
                let newest = list.iter().copied().max_by_key(|(_, request)| *request).unwrap();
                assert_eq!(calendar.take_newest(step), Some(newest));
                list.retain(|other| *other != newest);
            }
            assert_eq!(calendar.next(step), list.iter().map(|(end, _)| *end).min());
            let mut ended: Vec<u32> = std::iter::from_fn(|| calendar.take(step)).collect();
            ended.sort_unstable();
            assert_eq!(ended, list.extract_if(.., |(end, _)| *end == step).map(|(_, r)| r).collect::<Vec<u32>>());
            assert_eq!(calendar.len(), list.len());
        }
    }
}
