//! What a running level has come to: counted on the load generator's thread, read from another, and the word to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::load::{Open, RequestRecord, Tick, Watch};
use crate::units::Seconds;
use crate::verdict::Counter;

/// The counts. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Tally(Arc<Counts>);

#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    failed: AtomicU64,
    open: AtomicU64,
    stop: AtomicBool,
    broken: AtomicBool,
}

impl Tally {
    /// Whole answers, failures, and requests in flight.
    pub(super) fn read(&self) -> (u64, u64, u64) {
        let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (count(&self.0.answered), count(&self.0.failed), count(&self.0.open))
    }

    /// Ends the level at the next look.
    pub(super) fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the level ended because a promise was broken for certain.
    pub(super) fn broken(&self) -> bool {
        self.0.broken.load(Ordering::Relaxed)
    }

    /// The watch of a level that counts. It ends at that time even if answers are missing, or once its `counter` is certain that a promise is
    /// broken.
    pub(super) fn watch(&self, patience_ends: Seconds, counter: Option<Counter>) -> Box<dyn Watch> {
        Box::new(Counting { tally: self.clone(), patience_ends, counter })
    }
}

struct Counting {
    tally: Tally,
    patience_ends: Seconds,
    counter: Option<Counter>,
}

impl Watch for Counting {
    fn ended(&mut self, record: &RequestRecord) {
        let counts = &self.tally.0;
        let which = if record.complete() { &counts.answered } else { &counts.failed };
        which.fetch_add(1, Ordering::Relaxed);
        if let Some(counter) = &mut self.counter {
            counter.ended(record);
        }
    }

    fn tick(&mut self, now: Seconds, open: &mut dyn Iterator<Item = Open>) -> Tick {
        let open: Vec<Open> = open.collect();
        self.tally.0.open.store(open.len() as u64, Ordering::Relaxed);
        if let Some(counter) = &mut self.counter
            && counter.tick(now, &mut open.iter().copied()) == Tick::Decided
        {
            self.tally.0.broken.store(true, Ordering::Relaxed);
            return Tick::Decided;
        }
        let over = self.tally.0.stop.load(Ordering::Relaxed) || now.0 > self.patience_ends.0;
        if over { Tick::Decided } else { Tick::Continue }
    }
}
