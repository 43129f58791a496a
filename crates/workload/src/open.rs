//! Open loop: requests arrive on a schedule, whatever the answers do. Later turns of a conversation follow the answers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rand::RngExt;
use rand_distr::{Distribution, Poisson as PoissonCount};

use super::content::Content;
use super::draw::{Purpose, stream};
use super::pace::Pace;
use super::planned::{Planned, SOON, Source, nanos};
use autotune_records::units::{Rate, Seconds};

/// A turn is assumed to last at most this many mean turns.
const LONGEST_TURN: f64 = 3.0;

pub(super) struct OpenLoop {
    content: Box<dyn Content>,
    arrivals: Box<dyn Iterator<Item = Seconds> + Send>,
    next_arrival: Option<Seconds>,
    horizon: Seconds,
    /// Conversations whose next turn is due, by time in whole nanoseconds: exact, and finer than any clock here.
    later: BinaryHeap<Reverse<(u64, u32)>>,
    /// The conversation of every request whose answer is awaited.
    asked: HashMap<u32, u32>,
    next_id: u32,
}

impl OpenLoop {
    /// Content that arrives at these times.
    pub(super) fn new(
        content: Box<dyn Content>,
        mut arrivals: Box<dyn Iterator<Item = Seconds> + Send>,
        horizon: Seconds,
    ) -> Self {
        let next_arrival = arrivals.next();
        Self { content, arrivals, next_arrival, horizon, later: BinaryHeap::new(), asked: HashMap::new(), next_id: 0 }
    }

    /// Adds the conversations that await an answer at time zero, so that the rate is right from the start. Their turns began at any moment before. A
    /// turn with a short answer is less likely to be still under way than one with a long answer, and has less time left.
    pub(super) fn populated(mut self, session_rate: Rate, pace: &Pace, mean_output: f64) -> Self {
        let think = self.content.think_time().0;
        let per_token = pace.answer_time.0 / mean_output;
        let before = LONGEST_TURN * (pace.answer_time.0 + think);
        let mut rng = stream(pace.arrival_seed, Purpose::Population, 0);
        for turn in 1..self.content.turns() {
            let expected = session_rate.0 * self.content.share_with(turn) * before;
            let count = PoissonCount::new(expected).map_or(0.0, |d| d.sample(&mut rng)) as u32;
            for _ in 0..count {
                let mut due = 0.0;
                let mut wanted = |tokens: u32| {
                    due = per_token * f64::from(tokens) + think - before * rng.random_range(0.0..1.0);
                    // Drop it if its next turn was due before time zero or is due after the horizon.
                    (0.0..pace.horizon.0).contains(&due)
                };
                if let Some(conversation) = self.content.begun(turn, &mut wanted) {
                    self.schedule(conversation, Seconds(due));
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
        if let Some(turn) = ask.turn {
            self.asked.insert(id, turn.conversation);
        }
        Some(ask.planned(id, due))
    }

    fn answered(&mut self, request: u32, at: Seconds, text: Option<&str>) {
        if let Some(conversation) = self.asked.remove(&request)
            && self.content.answered(conversation, text)
        {
            self.schedule(conversation, at + self.content.think_time());
        }
    }
    fn follows_answers(&self) -> bool {
        self.content.turns() > 1 && self.content.think_time() < SOON
    }
}
