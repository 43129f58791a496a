//! Answers: the engine's tokens as a stream of events, or as one body.

use std::collections::VecDeque;
use std::io;

use axum::body::Body;
use bytes::Bytes;

use super::engine::{Ticket, Tokens};
use super::refusal::Refusal;
use super::wire::{self, Usage, Wire};

/// How an answer is to be streamed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) include_usage: bool,
    pub(super) continuous_usage: bool,
    /// Tokens of a chunk behind the first, at least.
    pub(super) interval: u32,
    /// Tokens after which the connection is cut, by a fault.
    pub(super) cut_after: Option<u32>,
}

/// One answer of a request.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    received: u32,
    sent: u32,
}

/// A request whose answers are being streamed.
pub(super) struct Stream {
    ticket: Ticket,
    wire: Wire,
    manner: Manner,
    /// Prompt tokens of each prompt.
    prompts: Vec<u32>,
    cached: u32,
    choices: Vec<Choice>,
    /// Chunks that are due now: a token may bring more than its own.
    ready: VecDeque<Bytes>,
    opened: bool,
    over: bool,
}

impl Stream {
    pub(super) fn new(ticket: Ticket, wire: Wire, manner: Manner, prompts: Vec<u32>) -> Self {
        let choices = vec![Choice::default(); wire.choices() as usize];
        let ready = VecDeque::with_capacity(4);
        let wire = wire.with_usage(manner.include_usage);
        Self { ticket, wire, manner, prompts, cached: 0, choices, ready, opened: false, over: false }
    }

    /// The stream as the body of a response.
    pub(super) fn body(self) -> Body {
        Body::from_stream(futures_util::stream::unfold(self, async |mut stream| {
            let chunk = stream.next().await?;
            Some((chunk, stream))
        }))
    }

    /// The next chunk; an error cuts the connection.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        while self.ready.is_empty() && !self.over {
            let received: u32 = self.choices.iter().map(|choice| choice.received).sum();
            if self.manner.cut_after.is_some_and(|most| received >= most) {
                self.over = true;
                return Some(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let tokens = self.ticket.next().await;
            self.render(tokens);
        }
        self.ready.pop_front().map(Ok)
    }

    fn render(&mut self, tokens: Option<Tokens>) {
        let Some(tokens) = tokens else {
            self.over = true;
            self.ready.extend([wire::ENGINE_DEAD, wire::DONE]);
            return;
        };
        if !self.opened {
            (self.opened, self.cached) = (true, tokens.cached);
            for choice in 0..self.wire.choices() {
                let usage = self.usage_of(choice);
                self.ready.extend(self.wire.opening(choice, usage));
            }
        }
        let Some(choice) = self.choices.get_mut(tokens.choice as usize) else { return };
        choice.received += tokens.count;
        let Choice { received, sent } = *choice;
        if sent == 0 || received - sent >= self.manner.interval || tokens.last {
            choice.sent = received;
            let usage = self.usage_of(tokens.choice);
            self.ready.push_back(self.wire.tokens(tokens.choice, sent..received, tokens.last, usage));
        }
        if self.ticket.complete() {
            self.over = true;
            let completion = self.choices.iter().map(|choice| choice.received).sum();
            let usage = Usage { prompt: self.prompts.iter().sum(), completion, cached: self.cached };
            self.ready.extend(self.manner.include_usage.then(|| self.wire.usage(usage)));
            self.ready.push_back(wire::DONE);
        }
    }

    /// The usage of an answer so far, if its chunks tell it.
    fn usage_of(&self, choice: u32) -> Option<Usage> {
        let copies = self.choices.len() / self.prompts.len().max(1);
        let prompt = self.prompts.get(choice as usize / copies.max(1)).copied().unwrap_or_default();
        let completion = self.choices.get(choice as usize).map_or(0, |choice| choice.received);
        self.manner.continuous_usage.then_some(Usage { prompt, completion, cached: self.cached })
    }
}

/// Waits for the last token of every answer and puts them into one body.
pub(super) async fn whole(mut ticket: Ticket, wire: &Wire, prompt: u32) -> Result<String, Refusal> {
    let mut counts = vec![0; wire.choices() as usize];
    let mut cached = 0;
    while let Some(tokens) = ticket.next().await {
        cached = cached.max(tokens.cached);
        if let Some(count) = counts.get_mut(tokens.choice as usize) {
            *count += tokens.count;
        }
        if ticket.complete() {
            return Ok(wire.whole(&counts, Usage { prompt, completion: counts.iter().sum(), cached }));
        }
    }
    Err(Refusal::engine_dead())
}
