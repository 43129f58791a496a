//! The open loop: requests arrive by a clock that knows no answers; later turns of conversations follow theirs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rand::RngExt;
use rand_distr::{Distribution, Poisson as PoissonCount};

use super::content::Content;
use super::draw::{Purpose, stream};
use super::pace::Pace;
use super::planned::{Planned, SOON, Source, nanos};
use crate::units::{Rate, Seconds};

pub(super) struct OpenLoop {
    content: Box<dyn Content>,
    arrivals: Box<dyn Iterator<Item = Seconds> + Send>,
    next_arrival: Option<Seconds>,
    horizon: Seconds,
    /// Conversations whose next turn is due, by time in whole nanoseconds: exact, and finer than any clock here.
    later: BinaryHeap<Reverse<(u64, u32)>>,
    /// The conversation of every request whose answer is awaited, and when its next turn comes at the earliest.
    asked: HashMap<u32, (u32, Seconds)>,
    filling: Filling,
    next_id: u32,
}

/// The time in which the engine's batch fills. It answers sooner than in the steady state, so that turns would come too early and the batch would grow
/// larger than it is later: in 47 windows of a 70B engine, 16 % more requests came than asked 15 to 30 s after the start, and 13 % fewer in the 30 s
/// after that (`results/h200-70b-search` and those beside it).
#[derive(Clone, Copy, Debug, Default)]
struct Filling {
    /// It lasts as long as one turn.
    turn_time: f64,
    /// What a token of an answer takes in the steady state.
    per_token: f64,
    think: f64,
}

impl Filling {
    /// When the turn after a request comes at the earliest: when its answer would end in the steady state.
    fn next_from(self, due: Seconds, output_tokens: u32) -> Seconds {
        let fills = due.0 < self.turn_time;
        Seconds(if fills { due.0 + self.per_token * f64::from(output_tokens) + self.think } else { 0.0 })
    }
}

impl OpenLoop {
    /// Content that arrives at these times.
    pub(super) fn new(
        content: Box<dyn Content>,
        mut arrivals: Box<dyn Iterator<Item = Seconds> + Send>,
        horizon: Seconds,
    ) -> Self {
        let next_arrival = arrivals.next();
        let (later, asked, filling) = (BinaryHeap::new(), HashMap::new(), Filling::default());
        Self { content, arrivals, next_arrival, horizon, later, asked, filling, next_id: 0 }
    }

    /// Adds the conversations that are already under way at time zero, so that the rate is right from the start. For every later turn they are a
    /// Poisson number, due within the time of one turn. Answers have so many tokens in the mean.
    pub(super) fn populated(mut self, session_rate: Rate, pace: &Pace, mean_output: f64) -> Self {
        let think = self.content.think_time().0;
        let turn_time = pace.answer_time.0 + think;
        self.filling = Filling { turn_time, per_token: pace.answer_time.0 / mean_output, think };
        let expected = session_rate.0 * turn_time;
        let mut rng = stream(pace.arrival_seed, Purpose::Population, 0);
        for turn in 1..self.content.turns() {
            let count =
                PoissonCount::new(expected * self.content.share_with(turn)).map_or(0.0, |d| d.sample(&mut rng)) as u32;
            for _ in 0..count {
                let due = Seconds(rng.random_range(0.0..1.0) * turn_time);
                if let Some(conversation) = self.content.begun(turn) {
                    self.schedule(conversation, due);
                }
            }
        }
        self
    }

    fn schedule(&mut self, conversation: u32, due: Seconds) {
        if due.0 < self.horizon.0 {
            self.later.push(Reverse((nanos(due), conversation)));
        }
    }

    fn next_scheduled(&self) -> Option<Seconds> {
        self.later.peek().map(|Reverse((at, _))| Seconds(*at as f64 / 1e9))
    }

    /// The next arrival, if it comes before every scheduled turn.
    fn arrival(&self) -> Option<Seconds> {
        let arrival = self.next_arrival.filter(|at| at.0 < self.horizon.0)?;
        self.next_scheduled().is_none_or(|scheduled| arrival.0 <= scheduled.0).then_some(arrival)
    }
}

impl Source for OpenLoop {
    fn next_due(&self) -> Option<Seconds> {
        self.arrival().or_else(|| self.next_scheduled())
    }

    fn take(&mut self) -> Option<Planned> {
        let (ask, due) = if let Some(due) = self.arrival() {
            self.next_arrival = self.arrivals.next();
            (self.content.open()?, due)
        } else {
            let Reverse((at, conversation)) = self.later.pop()?;
            (self.content.next_turn(conversation)?, Seconds(at as f64 / 1e9))
        };
        let id = self.next_id;
        self.next_id += 1;
        let next_from = self.filling.next_from(due, ask.output_tokens);
        if let Some(turn) = ask.turn {
            self.asked.insert(id, (turn.conversation, next_from));
        }
        Some(Planned { next_from, ..ask.planned(id, due) })
    }

    fn answered(&mut self, request: u32, at: Seconds, text: Option<&str>) {
        if let Some((conversation, next_from)) = self.asked.remove(&request)
            && self.content.answered(conversation, text)
        {
            let soonest = at + self.content.think_time();
            self.schedule(conversation, Seconds(soonest.0.max(next_from.0)));
        }
    }
    fn follows_answers(&self) -> bool {
        self.content.turns() > 1 && self.content.think_time() < SOON
    }
}
