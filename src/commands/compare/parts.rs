//! Parts of a file of prompts: each window sends one that no window before it sent, as long as the file is long enough.

use super::order::Step;
use crate::report::bench::{Level, Offered};

/// The places of a file's requests, as windows share them.
pub(super) struct Parts {
    /// Of each level: heavier ones send more.
    sizes: Vec<f64>,
    sweeps: u32,
    /// Whether the sides may have the same engines: each has parts of its own then.
    shared: bool,
    /// Which places were sent to the engines of a side; those of the first stand for both where they are shared.
    sent: [Vec<bool>; 2],
    /// How many were sent, and how many of them again.
    requests: usize,
    again: usize,
}

impl Parts {
    /// Of a file with so many requests. One window at the lightest level, in which requirements are checked, comes beside the sweeps.
    pub(super) fn new(requests: usize, levels: &[Offered], sweeps: u32, shared: bool) -> Self {
        let sizes = levels.iter().map(|level| level.size().unwrap_or(1.0)).collect();
        let sent = [vec![false; requests], vec![false; requests]];
        Self { sizes, sweeps, shared, sent, requests: 0, again: 0 }
    }

    /// Where a window begins; none without a file.
    pub(super) fn first_place(&self, step: Step) -> Option<u32> {
        let sweep: f64 = self.sizes.iter().sum();
        let before = sweep * f64::from(step.sweep) + self.sizes[..step.level].iter().sum::<f64>();
        let all = sweep * f64::from(self.sweeps) + self.sizes.first()?;
        let own = if self.shared { self.sizes[step.level] / 2.0 * step.side as f64 } else { 0.0 };
        let requests = self.sent[0].len();
        (requests > 0).then(|| ((before + own) / all * requests as f64) as u32)
    }

    /// Notes what a window sent. Returns whether these are the first prompts that came again, although the cache still had what was sent before.
    pub(super) fn note(&mut self, step: Step, level: &Level) -> bool {
        let Some(first) = self.first_place(step) else { return false };
        if level.cache.reset {
            return false;
        }
        let mut dialogues: Vec<u32> = level.records.iter().filter_map(|r| r.turn.map(|turn| turn.0)).collect();
        dialogues.sort_unstable();
        dialogues.dedup();
        let begun = dialogues.len() + level.records.iter().filter(|r| r.turn.is_none()).count();
        let was = self.again;
        let sent = &mut self.sent[if self.shared { 0 } else { step.side }];
        for place in first as usize..first as usize + begun {
            let place = place % sent.len();
            self.again += usize::from(std::mem::replace(&mut sent[place], true));
        }
        self.requests += begun;
        was == 0 && self.again > 0
    }

    /// The engine of a side is stopped, and its cache is gone.
    pub(super) fn forget(&mut self, side: usize) {
        self.sent[side].fill(false);
    }

    /// What a reader must know of prompts that came again; `None` if none did.
    pub(super) fn warning(&self) -> Option<String> {
        let Self { again, requests, sent, .. } = self;
        (*again > 0).then(|| {
            format!(
                "the file's {} prompts are too few: {again} of {requests} had been sent to the same server before, and its cache may hold them; give a longer file, fewer --sweeps or a shorter --duration, or let the cache be emptied (VLLM_SERVER_DEV_MODE=1 of vLLM)",
                sent[0].len()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_begin_one_behind_the_other_and_heavier_levels_have_more() {
        let levels = [Offered::Users(10), Offered::Users(40)];
        let places = |shared: bool, sides: usize| -> Vec<u32> {
            let parts = Parts::new(1100, &levels, 2, shared);
            let sweep =
                |sweep: u32| (0..2).flat_map(move |level| (0..sides).map(move |side| Step { sweep, level, side }));
            let check = (0..sides).map(|side| Step { sweep: 2, level: 0, side });
            sweep(0).chain(sweep(1)).chain(check).map(|step| parts.first_place(step).unwrap()).collect()
        };
        assert_eq!(places(false, 1), [0, 100, 500, 600, 1000]);
        assert_eq!(places(true, 2), [0, 50, 100, 300, 500, 550, 600, 800, 1000, 1050]);
        let none = Parts::new(0, &levels, 2, false);
        assert_eq!(none.first_place(Step { sweep: 0, level: 0, side: 0 }), None);
    }
}
