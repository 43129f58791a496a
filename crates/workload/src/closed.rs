//! The closed loop: so many users, each of whom waits for an answer before asking again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::content::Content;
use super::planned::{Planned, SOON, Source, nanos};
use autotune_records::units::Seconds;

pub(super) struct ClosedLoop {
    content: Box<dyn Content>,
    think: Seconds,
    horizon: Seconds,
    /// Who asks next: the time in whole nanoseconds, the user, and the conversation that goes on.
    due: BinaryHeap<Reverse<(u64, u32, Option<u32>)>>,
    /// The user, and the conversation if it is one, of every request whose answer is awaited.
    asked: HashMap<u32, (u32, Option<u32>)>,
    next_id: u32,
}

impl ClosedLoop {
    pub(super) fn new(content: Box<dyn Content>, users: u32, think: Seconds, horizon: Seconds) -> Self {
        let due = if horizon.0 > 0.0 { (0..users).map(|user| Reverse((0, user, None))).collect() } else { [].into() };
        Self { content, think, horizon, due, asked: HashMap::new(), next_id: 0 }
    }
}

impl Source for ClosedLoop {
    fn next_due(&self) -> Option<Seconds> {
        self.due.peek().map(|Reverse((at, ..))| Seconds(*at as f64 / 1e9))
    }

    fn take(&mut self) -> Option<Planned> {
        let Reverse((at, user, conversation)) = self.due.pop()?;
        let ask = match conversation {
            Some(conversation) => self.content.next_turn(conversation)?,
            None => self.content.open()?,
        };
        let id = self.next_id;
        self.next_id += 1;
        self.asked.insert(id, (user, ask.turn.map(|turn| turn.conversation)));
        Some(ask.planned(id, Seconds(at as f64 / 1e9)))
    }

    fn answered(&mut self, request: u32, at: Seconds, text: Option<&str>) {
        let Some((user, conversation)) = self.asked.remove(&request) else { return };
        // A conversation that failed or is at its end gives way to a new one.
        let conversation = conversation.filter(|conversation| self.content.answered(*conversation, text));
        let pause = if conversation.is_some() { self.content.think_time() } else { Seconds(0.0) };
        let due = at + self.think + pause;
        if due.0 < self.horizon.0 {
            self.due.push(Reverse((nanos(due), user, conversation)));
        }
    }

    fn follows_answers(&self) -> bool {
        self.think < SOON
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{conversations, drive, material, pace, random};
    use super::super::{Demand, source};
    use super::*;

    fn closed(users: u32, think: f64) -> Demand {
        Demand::Closed { users, think: Seconds(think) }
    }

    #[test]
    fn every_user_asks_again_a_think_time_after_the_answer() {
        let plan = random();
        let sent = drive(source(&plan, &material(), pace(closed(3, 0.5), 9.9)), Some("fine"));
        // Two seconds of answer and half a second of thought: four rounds begin before the horizon.
        let dues: Vec<f64> = sent.iter().map(|p| p.due.0).collect();
        assert_eq!(dues, [0.0, 2.5, 5.0, 7.5].iter().flat_map(|due| [*due; 3]).collect::<Vec<_>>());
        let ids: Vec<u32> = sent.iter().map(|p| p.id).collect();
        assert_eq!(ids, (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn failures_do_not_silence_a_user() {
        let sent = drive(source(&random(), &material(), pace(closed(2, 0.0), 9.0)), None);
        assert_eq!(sent.len(), 10);
        let conversations = drive(source(&conversations(), &material(), pace(closed(2, 0.0), 9.0)), None);
        assert_eq!(conversations.len(), 10);
        assert!(conversations.iter().all(|p| p.turn.is_some_and(|t| t.turn == 0)), "each failure ends a conversation");
    }

    #[test]
    fn a_user_holds_one_conversation_at_a_time() {
        // Four turns, a second of the plan's think time and half a second of the loop's.
        let sent = drive(source(&conversations(), &material(), pace(closed(1, 0.5), 30.0)), Some("fine"));
        let turns: Vec<(u32, u32)> = sent.iter().filter_map(|p| p.turn.map(|t| (t.conversation, t.turn))).collect();
        assert_eq!(turns[..6], [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]);
        let dues: Vec<f64> = sent.iter().map(|p| p.due.0).collect();
        assert_eq!(dues[..6], [0.0, 3.5, 7.0, 10.5, 13.0, 16.5]);
    }
}
