//! The records of a probe in virtual time, and the watch that may end it.

use super::engine::ServeObserver;
use autotune_load::{ErrorClass, Open, RequestRecord, Tick, Watch};
use autotune_records::units::Seconds;
use autotune_workload::Planned;

/// How often, in virtual time, the watch looks at what is unanswered.
const LOOK_EVERY: f64 = 0.05;

/// Every request of a probe so far, by its number.
pub(super) struct Records<'a> {
    watch: &'a mut dyn Watch,
    window_ends: Seconds,
    looked: f64,
    all: Vec<RequestRecord>,
    /// Requests without a whole answer.
    open: Vec<u32>,
}

impl<'a> Records<'a> {
    pub(super) fn new(watch: &'a mut dyn Watch, window_ends: Seconds) -> Self {
        Self { watch, window_ends, looked: 0.0, all: Vec::new(), open: Vec::new() }
    }

    /// All of them in the order of their times; what is unanswered has no last token.
    pub(super) fn all(mut self) -> Vec<RequestRecord> {
        for id in self.open {
            let record = &mut self.all[id as usize];
            (record.last, record.tokens_out) = (None, None);
        }
        self.all.sort_by(|a, b| a.due.0.total_cmp(&b.due.0));
        self.all
    }
}

impl ServeObserver for Records<'_> {
    const EVERY_TOKEN: bool = true;

    fn sent(&mut self, planned: &Planned, tokens: u32) {
        debug_assert_eq!(planned.id as usize, self.all.len(), "requests are numbered in their order");
        self.open.push(planned.id);
        self.all.push(sent(planned, tokens));
    }

    fn refused(&mut self, id: u32, _now: f64) {
        let record = &mut self.all[id as usize];
        (record.error, record.tokens_out) = (Some(ErrorClass::Status), None);
        self.open.retain(|open| *open != id);
        self.watch.ended(record);
    }

    fn token(&mut self, id: u32, first: f64, later: f64) {
        let record = &mut self.all[id as usize];
        let arrives = match record.last {
            None => first,
            Some(last) => {
                let arrives = later.max(last.0);
                record.gaps.push((arrives - last.0) as f32);
                arrives
            }
        };
        record.first.get_or_insert(Seconds(arrives));
        record.last = Some(Seconds(arrives));
    }

    fn finished(&mut self, id: u32, cached: Option<u32>) -> u32 {
        let record = &mut self.all[id as usize];
        record.error = None;
        record.tokens_cached = cached;
        self.open.retain(|open| *open != id);
        self.watch.ended(record);
        record.asked_out
    }

    fn go_on(&mut self, now: f64, more_is_due: bool) -> Result<(), bool> {
        if now - self.looked < LOOK_EVERY {
            return Ok(());
        }
        self.looked = now;
        let all = &self.all;
        let of = |id: &u32| {
            let r = &all[*id as usize];
            Open { due: r.due, first: r.first, asked_out: r.asked_out }
        };
        match self.watch.tick(Seconds(now), &mut self.open.iter().map(of)) {
            Tick::Decided => Err(false),
            Tick::Settled if now >= self.window_ends.0 && !more_is_due => Err(true),
            Tick::Settled | Tick::Continue => Ok(()),
        }
    }
}

/// A request on its way; until it ends, it counts as cut.
fn sent(planned: &Planned, prompt_tokens: u32) -> RequestRecord {
    RequestRecord {
        id: planned.id,
        due: planned.due,
        sent: planned.due,
        first: None,
        last: None,
        tokens_in: Some(prompt_tokens),
        tokens_cached: None,
        tokens_out: Some(planned.output_tokens),
        asked_out: planned.output_tokens,
        asked_in: planned.prompt_tokens,
        shared_in: planned.shared_tokens,
        error: Some(ErrorClass::Cut),
        turn: planned.turn.map(|t| (t.conversation, t.turn)),
        why: None,
        gaps: Vec::with_capacity(planned.output_tokens as usize),
    }
}
