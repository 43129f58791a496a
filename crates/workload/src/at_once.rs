//! Requests that are all due at time zero, without follow-ups: what an engine can do at most.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::content::Content;
use super::draw::{Purpose, stream};
use super::planned::{Planned, Source};
use autotune_records::units::Seconds;

/// A burst: all requests are due at time zero. A conversation comes at any of its turns, as often as it would be met there.
pub(super) struct AtOnce {
    content: Box<dyn Content>,
    count: u32,
    sent: u32,
    turns: ChaCha8Rng,
}

impl AtOnce {
    pub(super) fn new(content: Box<dyn Content>, count: u32, seed: u64) -> Self {
        Self { content, count, sent: 0, turns: stream(seed, Purpose::Population, 0) }
    }
}

impl Source for AtOnce {
    fn next_due(&self) -> Option<Seconds> {
        (self.sent < self.count).then_some(Seconds(0.0))
    }

    fn take(&mut self) -> Option<Planned> {
        let due = self.next_due()?;
        let turn = loop {
            let turn = self.turns.random_range(0..self.content.turns().max(1));
            // Deep turns are met as rarely as conversations reach them.
            let share = self.content.share_with(turn);
            if share >= 1.0 || self.turns.random_range(0.0..1.0) < share {
                break turn;
            }
        };
        let ask = match turn {
            0 => self.content.open(),
            turn => {
                self.content.begun(turn, &mut |_| true).and_then(|conversation| self.content.next_turn(conversation))
            }
        };
        let id = self.sent;
        self.sent += 1;
        Some(ask?.planned(id, due))
    }

    fn answered(&mut self, _request: u32, _at: Seconds, _text: Option<&str>) {}
}

#[cfg(test)]
mod tests {
    use super::super::tests::{conversations, drive, material, pace, random};
    use super::super::{Demand, source};

    #[test]
    fn exactly_so_many_are_due_at_zero_and_none_follows() {
        for plan in [random(), conversations()] {
            let sent = drive(source(&plan, &material(), pace(Demand::AllAtOnce(40), 5.0)), Some("fine"));
            assert!(sent.len() == 40 && sent.iter().all(|p| p.due.0 == 0.0));
        }
        let sent = drive(source(&conversations(), &material(), pace(Demand::AllAtOnce(40), 5.0)), Some("fine"));
        let turns = |turn| sent.iter().filter(|p| p.turn.is_some_and(|t| t.turn == turn)).count();
        assert!((0..4).all(|turn| turns(turn) > 2), "conversations are met at any turn");
    }
}
