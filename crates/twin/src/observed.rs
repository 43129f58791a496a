//! What a fit learns from: the requests of a probe as they were really sent, and when they were answered.

use std::collections::HashMap;

use super::costs::StepCosts;
use super::fast::{Answered, Bounds, FastReplay, Sent};
use super::served::Served;
use super::steps::SeenSteps;
use autotune_records::units::Seconds;
use autotune_records::{ErrorClass, RequestRecord, as_kept};

/// One request of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// When it was to be sent.
    pub due: Seconds,
    pub sent: Seconds,
    /// Tokens of its prompt, cached ones included.
    pub tokens_in: u32,
    /// Those of them that the prefix cache held.
    pub cached: u32,
    /// Those of the cached ones that other conversations share.
    pub shared: u32,
    /// The number of the document that they are of, zero where nobody knows.
    pub document: u32,
    /// Its conversation and turn, where it has one.
    pub turn: Option<(u32, u32)>,
    /// Tokens of its answer; those that were asked for where it has none. Zero for one that the engine never saw.
    pub tokens_out: u32,
    /// When its first token arrived.
    pub first: Option<Seconds>,
    /// When its last token arrived.
    pub last: Option<Seconds>,
    /// Whether it has no whole answer.
    pub failed: bool,
    /// Whether we cut it ourselves, because the probe had ended.
    pub cut: bool,
}

impl Observed {
    /// Seconds from the intended send to the first token.
    pub fn ttft(&self) -> Option<f64> {
        self.first.filter(|_| !self.failed).map(|first| first.0 - self.due.0)
    }

    /// Seconds per token of the answer after the first; none for an answer of one token.
    pub fn tpot(&self) -> Option<f64> {
        let (first, last) = (self.first.filter(|_| !self.failed)?, self.last?);
        (self.tokens_out > 1).then(|| (last.0 - first.0) / f64::from(self.tokens_out - 1))
    }

    /// Seconds from the intended send to the last token.
    pub fn e2e(&self) -> Option<f64> {
        self.last.filter(|_| !self.failed).map(|last| last.0 - self.due.0)
    }
}

impl From<&RequestRecord> for Observed {
    fn from(r: &RequestRecord) -> Self {
        let unseen = matches!(
            r.error,
            Some(
                ErrorClass::Dns
                    | ErrorClass::RefusedConnection
                    | ErrorClass::Tls
                    | ErrorClass::Connection
                    | ErrorClass::TooManyRequests
                    | ErrorClass::Unavailable
                    | ErrorClass::Status
            )
        );
        Self {
            due: r.due,
            sent: r.sent,
            tokens_in: r.tokens_in.unwrap_or(r.asked_in),
            cached: r.tokens_cached.unwrap_or(0),
            shared: r.tokens_cached.unwrap_or(0),
            document: 0,
            turn: r.turn,
            tokens_out: if unseen { 0 } else { r.tokens_out.unwrap_or(r.asked_out) },
            first: r.first,
            last: r.last,
            failed: r.error.is_some(),
            cut: r.error == Some(ErrorClass::Cut),
        }
    }
}

/// One probe: its requests in the order of their sends, under the limits that were in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    requests: Vec<Observed>,
    sent: Vec<Sent>,
    bounds: Bounds,
    steps: Vec<SeenSteps>,
}

impl Probe {
    /// A probe; the requests may come in any order. Those before the window belong to it: the engine's state at its begin is theirs.
    pub fn new(mut requests: Vec<Observed>, bounds: Bounds) -> Self {
        requests.sort_by(|a, b| a.sent.0.total_cmp(&b.sent.0));
        let sent = requests.iter().map(as_sent).collect();
        Self { requests, sent, bounds, steps: Vec::new() }
    }

    /// Adds the steps of its engine that were seen.
    #[must_use]
    pub fn with_steps(self, steps: Vec<SeenSteps>) -> Self {
        Self { steps, ..self }
    }

    /// The steps of its engine that were seen; empty if its client kept no time of each token.
    pub fn steps(&self) -> &[SeenSteps] {
        &self.steps
    }

    /// A probe from the records of the load generator, with the tokens that the engine really had in its cache. Times are rounded as in the
    /// request file, so that a reader of the file learns the same.
    pub fn served(records: &[RequestRecord], served: &Served, bounds: Bounds) -> Self {
        let observed = |(i, r): (usize, &RequestRecord)| {
            let seen = Observed::from(r);
            Observed {
                due: as_kept(seen.due),
                sent: as_kept(seen.sent),
                first: seen.first.map(as_kept),
                last: seen.last.map(as_kept),
                cached: served.cached[i],
                shared: served.shared[i],
                document: served.document[i],
                ..seen
            }
        };
        Self::new(records.iter().enumerate().map(observed).collect(), bounds)
    }

    /// A probe of an engine that is itself a model, for whoever wants to know whether a fit finds it again.
    pub fn replayed(engine: &StepCosts, bounds: Bounds, sent: &[Sent]) -> Self {
        let mut answers = Vec::new();
        FastReplay::default().run(engine, bounds, sent, &mut answers);
        let of = |(s, a): (&Sent, &Answered)| Observed {
            due: Seconds(s.at),
            sent: Seconds(s.at),
            tokens_in: s.prompt,
            cached: s.cached,
            shared: s.shared,
            document: s.document,
            turn: None,
            tokens_out: s.output,
            first: Some(Seconds(a.first)),
            last: Some(Seconds(a.last)),
            failed: false,
            cut: false,
        };
        Self::new(sent.iter().zip(&answers).map(of).collect(), bounds)
    }

    /// The requests, in the order of their sends.
    pub fn requests(&self) -> &[Observed] {
        &self.requests
    }

    /// The requests as the fast replay takes them.
    pub fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// The requests, where a turn follows the replay's own answer to the turn before it, after the time that passed in between.
    pub fn sent_by_conversation(&self) -> Vec<Sent> {
        let places: HashMap<(u32, u32), usize> =
            self.requests.iter().enumerate().filter_map(|(i, r)| Some((r.turn?, i))).collect();
        let follow = |(r, sent): (&Observed, &Sent)| {
            let (conversation, turn) = r.turn?;
            let before = *places.get(&(conversation, turn.checked_sub(1)?))?;
            let answered =
                self.requests[before].last.filter(|last| !self.requests[before].failed && last.0 <= sent.at)?;
            Some(Sent { at: sent.at - answered.0, follows: Some(before as u32), ..*sent })
        };
        self.requests.iter().zip(&self.sent).map(|pair| follow(pair).unwrap_or(*pair.1)).collect()
    }

    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Requests per second between the first send and the last.
    pub fn rate(&self) -> f64 {
        let ends = self.sent.first().zip(self.sent.last());
        ends.map_or(0.0, |(first, last)| self.sent.len() as f64 / (last.at - first.at).max(1e-9))
    }

    /// Requests without a whole answer.
    pub fn failures(&self) -> usize {
        self.requests.iter().filter(|r| r.failed).count()
    }
}

fn as_sent(r: &Observed) -> Sent {
    let Observed { cached, shared, document, .. } = *r;
    Sent { at: r.sent.0, follows: None, prompt: r.tokens_in, cached, shared, document, output: r.tokens_out }
}
