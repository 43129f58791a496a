//! The first requests of a stream, all due at once: a warm-up that also shows what the engine can do.

use super::{Planned, Source};
use crate::units::Seconds;

/// Requests that are due at time zero, without follow-ups.
pub(super) struct Burst(Vec<Planned>);

impl Burst {
    /// The first `count` requests of a source.
    pub(super) fn new(mut source: Box<dyn Source>, count: usize) -> Self {
        let mut requests: Vec<Planned> = std::iter::from_fn(|| source.take()).take(count).collect();
        requests.iter_mut().for_each(|r| r.due = Seconds(0.0));
        requests.reverse();
        Self(requests)
    }
}

impl Source for Burst {
    fn next_due(&self) -> Option<Seconds> {
        self.0.last().map(|r| r.due)
    }

    fn take(&mut self) -> Option<Planned> {
        self.0.pop()
    }

    fn answered(&mut self, _request: u32, _at: Seconds, _text: Option<&str>) {}
}
