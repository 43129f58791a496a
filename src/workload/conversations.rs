//! Conversations that arrive openly: each starts from one of a few shared documents, and every turn resends the history.
//!
//! Over `/v1/chat/completions` the history holds the engine's own answers; over `/v1/completions` it holds drawn ids of the
//! answer's length, since the engine's ids are not known to the client. A later turn is due a think time after the answer
//! before it ended: that is how people behave, and the reason why its time is not known in advance.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Poisson as PoissonCount};

use super::arrivals::Poisson;
use super::draw::{Purpose, length, stream};
use super::text::Piece;
use super::{Message, Pace, Planned, Prompt, Source, Turn};
use crate::settings::{ConversationsPlan, Endpoint};
use crate::units::{Rate, Seconds};

struct Conversation {
    number: u32,
    turn: u32,
    history: Prompt,
    lengths: ChaCha8Rng,
    content: ChaCha8Rng,
    output_tokens: u32,
}

/// The source.
pub(super) struct Conversations {
    plan: ConversationsPlan,
    endpoint: Endpoint,
    pace: Pace,
    arrivals: Poisson,
    next_arrival: Seconds,
    conversations: u32,
    waiting: HashMap<u32, Conversation>,
    due: BinaryHeap<Reverse<(u64, u32)>>,
    asked: HashMap<u32, Conversation>,
    next_id: u32,
}

/// Times order the heap as whole nanoseconds: exact, and finer than any clock here.
fn nanos(at: Seconds) -> u64 {
    (at.0.max(0.0) * 1e9) as u64
}

impl Conversations {
    pub(super) fn new(plan: ConversationsPlan, endpoint: Endpoint, pace: Pace) -> Self {
        let session_rate = Rate(pace.rate.0 / f64::from(plan.turns));
        let mut arrivals = Poisson::new(session_rate, pace.arrival_seed);
        let next_arrival = arrivals.next().unwrap_or(pace.horizon);
        let mut source = Self {
            plan,
            endpoint,
            pace,
            arrivals,
            next_arrival,
            conversations: 0,
            waiting: HashMap::new(),
            due: BinaryHeap::new(),
            asked: HashMap::new(),
            next_id: 0,
        };
        source.populate(session_rate);
        source
    }

    /// Conversations that would already be under way at time zero, so that the rate is the promised one from the start: for
    /// every later turn a Poisson number of them, due within the time that one turn takes.
    fn populate(&mut self, session_rate: Rate) {
        let turn_time = self.pace.answer_time.0 + Seconds::from(self.plan.think_time).0;
        let expected = session_rate.0 * turn_time;
        let mut rng = stream(self.pace.arrival_seed, Purpose::Population, 0);
        for turn in 1..self.plan.turns {
            let count = PoissonCount::new(expected).map_or(0.0, |d| d.sample(&mut rng)) as u32;
            for _ in 0..count {
                let due = Seconds(rng.random_range(0.0..1.0) * turn_time);
                let mut conversation = self.start();
                while conversation.turn < turn {
                    self.imagine_answer(&mut conversation);
                    self.advance(&mut conversation);
                }
                self.schedule(conversation, due);
            }
        }
    }

    fn start(&mut self) -> Conversation {
        let number = self.conversations;
        self.conversations += 1;
        let mut lengths = stream(self.pace.arrival_seed, Purpose::Lengths, number);
        let mut content = stream(self.pace.content_seed, Purpose::Content, number);
        let which = lengths.random_range(0..self.plan.starters);
        let mut history = starter(&self.plan, self.endpoint, self.pace.shared_seed, which);
        let question = length(&self.plan.question_tokens, &mut lengths);
        history.push("user", Piece::draw(self.endpoint, question, &mut content));
        let output_tokens = length(&self.plan.output_tokens, &mut lengths);
        Conversation { number, turn: 0, history, lengths, content, output_tokens }
    }

    fn imagine_answer(&self, conversation: &mut Conversation) {
        let answer = Piece::draw(self.endpoint, conversation.output_tokens, &mut conversation.content);
        conversation.history.push("assistant", answer);
    }

    /// The next turn's question, after the history already holds the answer.
    fn advance(&self, conversation: &mut Conversation) {
        conversation.turn += 1;
        let question = length(&self.plan.question_tokens, &mut conversation.lengths);
        let question = Piece::draw(self.endpoint, question, &mut conversation.content);
        conversation.history.push("user", question);
        conversation.output_tokens = length(&self.plan.output_tokens, &mut conversation.lengths);
    }

    fn schedule(&mut self, conversation: Conversation, due: Seconds) {
        if due.0 < self.pace.horizon.0 {
            self.due.push(Reverse((nanos(due), conversation.number)));
            self.waiting.insert(conversation.number, conversation);
        }
    }

    fn next_scheduled(&self) -> Option<Seconds> {
        self.due.peek().map(|Reverse((at, _))| Seconds(*at as f64 / 1e9))
    }

    fn arrival_is_next(&self) -> bool {
        self.next_arrival.0 < self.pace.horizon.0
            && self.next_scheduled().is_none_or(|scheduled| self.next_arrival.0 <= scheduled.0)
    }
}

impl Source for Conversations {
    fn next_due(&self) -> Option<Seconds> {
        if self.arrival_is_next() { Some(self.next_arrival) } else { self.next_scheduled() }
    }

    fn take(&mut self) -> Option<Planned> {
        let (conversation, due) = if self.arrival_is_next() {
            let due = self.next_arrival;
            self.next_arrival = self.arrivals.next().unwrap_or(self.pace.horizon);
            (self.start(), due)
        } else {
            let Reverse((at, number)) = self.due.pop()?;
            (self.waiting.remove(&number)?, Seconds(at as f64 / 1e9))
        };
        let id = self.next_id;
        self.next_id += 1;
        let planned = Planned {
            id,
            due,
            prompt: conversation.history.clone(),
            output_tokens: conversation.output_tokens,
            turn: Some(Turn { conversation: conversation.number, turn: conversation.turn }),
        };
        if conversation.turn + 1 < self.plan.turns {
            self.asked.insert(id, conversation);
        }
        Some(planned)
    }

    fn answered(&mut self, request: u32, at: Seconds, text: Option<&str>) {
        // A failed turn ends its conversation, as it does for a person.
        let (Some(mut conversation), Some(text)) = (self.asked.remove(&request), text) else { return };
        match &mut conversation.history {
            Prompt::Messages(messages) => messages.push(Message { role: "assistant", content: text.to_owned() }),
            Prompt::Tokens(_) => self.imagine_answer(&mut conversation),
        }
        self.advance(&mut conversation);
        self.schedule(conversation, at + Seconds::from(self.plan.think_time));
    }
}

fn starter(plan: &ConversationsPlan, endpoint: Endpoint, seed: u64, which: u32) -> Prompt {
    let mut rng = stream(seed, Purpose::Shared, which);
    let tokens = length(&plan.starter_tokens, &mut rng);
    Piece::draw(endpoint, tokens, &mut rng).into_prompt("system")
}

pub(super) fn shared(plan: &ConversationsPlan, endpoint: Endpoint, seed: u64) -> Vec<Prompt> {
    (0..plan.starters).map(|which| starter(plan, endpoint, seed, which)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::settings::{LengthShape, Lengths};

    fn fixed(tokens: u32) -> Lengths {
        Lengths { shape: LengthShape::Fixed, min: tokens, max: tokens }
    }

    fn plan() -> ConversationsPlan {
        ConversationsPlan {
            starters: 3,
            starter_tokens: fixed(100),
            turns: 4,
            question_tokens: fixed(10),
            output_tokens: fixed(20),
            think_time: Duration::from_secs(1),
        }
    }

    fn pace(rate: f64, horizon: f64) -> Pace {
        Pace {
            rate: Rate(rate),
            horizon: Seconds(horizon),
            arrival_seed: 5,
            content_seed: 6,
            shared_seed: 7,
            answer_time: Seconds(2.0),
        }
    }

    /// Answers every request two seconds after it was due.
    fn drive(mut source: Conversations) -> Vec<Planned> {
        let mut open: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
        let mut sent = Vec::new();
        loop {
            let next_end = open.peek().map(|Reverse((at, _))| Seconds(*at as f64 / 1e9));
            match (source.next_due(), next_end) {
                (Some(due), end) if end.is_none_or(|end| due.0 < end.0) => {
                    let planned = source.take().unwrap();
                    open.push(Reverse((nanos(planned.due + Seconds(2.0)), planned.id)));
                    sent.push(planned);
                }
                (_, Some(end)) => {
                    let Reverse((_, id)) = open.pop().unwrap();
                    source.answered(id, end, Some("a word or two"));
                }
                (None, None) => return sent,
                (Some(_), None) => unreachable!("the first arm takes it"),
            }
        }
    }

    #[test]
    fn turns_resend_their_history_after_a_think_time() {
        let sent = drive(Conversations::new(plan(), Endpoint::Completions, pace(4.0, 60.0)));
        let ids = |p: &Planned| match &p.prompt {
            Prompt::Tokens(ids) => ids.clone(),
            Prompt::Messages(_) => panic!("completions take ids"),
        };
        let mut later_turns = 0;
        for (i, first) in sent.iter().enumerate() {
            let turn = first.turn.unwrap();
            assert_eq!(ids(first).len(), 100 + 10 + 30 * turn.turn as usize);
            let follow_up =
                |p: &&Planned| p.turn == Some(Turn { conversation: turn.conversation, turn: turn.turn + 1 });
            if let Some(next) = sent[i..].iter().find(follow_up) {
                assert!(ids(next).starts_with(&ids(first)), "the history is resent");
                assert!((next.due.0 - first.due.0 - 3.0).abs() < 1e-6, "two seconds of answer, one of thought");
                later_turns += 1;
            }
        }
        assert!(later_turns > 100);
    }

    #[test]
    fn the_rate_is_that_of_requests_and_holds_from_the_first_second() {
        let sent = drive(Conversations::new(plan(), Endpoint::Completions, pace(20.0, 200.0)));
        let rate =
            |from: f64, to: f64| sent.iter().filter(|p| (from..to).contains(&p.due.0)).count() as f64 / (to - from);
        assert!((rate(0.0, 200.0) - 20.0).abs() < 2.0, "{}", rate(0.0, 200.0));
        assert!((rate(0.0, 10.0) - 20.0).abs() < 6.0, "{}", rate(0.0, 10.0));
    }

    #[test]
    fn chat_histories_hold_the_engines_own_answers_and_failures_end_a_conversation() {
        let mut source = Conversations::new(plan(), Endpoint::Chat, pace(1.0, 60.0));
        let first = source.take().unwrap();
        source.answered(first.id, first.due, Some("forty two"));
        let conversation = first.turn.unwrap().conversation;
        let next = loop {
            let planned = source.take().unwrap();
            if planned.turn.unwrap().conversation == conversation {
                break planned;
            }
        };
        let Prompt::Messages(messages) = &next.prompt else { panic!("chat takes messages") };
        assert!(messages.iter().any(|m| m.role == "assistant" && m.content == "forty two"));
        source.answered(next.id, next.due, None);
        let later: Vec<u32> = std::iter::from_fn(|| source.take()).map(|p| p.turn.unwrap().conversation).collect();
        assert!(!later.contains(&conversation));
    }
}
