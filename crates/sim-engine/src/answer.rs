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
    /// Tokens of a chunk behind the first, at least.
    pub(super) interval: u32,
    /// Tokens after which the connection is cut, by a fault.
    pub(super) cut_after: Option<u32>,
}

/// An answer that is being streamed.
pub(super) struct Stream {
    ticket: Ticket,
    wire: Wire,
    manner: Manner,
    prompt: u32,
    cached: u32,
    received: u32,
    sent: u32,
    /// Chunks that are due now: a token may bring more than its own.
    ready: VecDeque<Bytes>,
    over: bool,
}

impl Stream {
    pub(super) fn new(ticket: Ticket, wire: Wire, manner: Manner, prompt: u32) -> Self {
        let ready = VecDeque::with_capacity(4);
        let wire = wire.with_usage(manner.include_usage);
        Self { ticket, wire, manner, prompt, cached: 0, received: 0, sent: 0, ready, over: false }
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
            if self.manner.cut_after.is_some_and(|most| self.received >= most) {
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
        if self.received == 0 {
            self.cached = tokens.cached;
            self.ready.extend(self.wire.opening());
        }
        self.received += tokens.count;
        if self.sent == 0 || self.received - self.sent >= self.manner.interval || tokens.last {
            self.ready.push_back(self.wire.tokens(self.sent..self.received, tokens.last));
            self.sent = self.received;
        }
        if tokens.last {
            self.over = true;
            let usage = Usage { prompt: self.prompt, completion: self.received, cached: self.cached };
            self.ready.extend(self.manner.include_usage.then(|| self.wire.usage(usage)));
            self.ready.push_back(wire::DONE);
        }
    }
}

/// Waits for the last token and puts the answer into one body.
pub(super) async fn whole(mut ticket: Ticket, wire: &Wire, prompt: u32) -> Result<String, Refusal> {
    let (mut completion, mut cached) = (0, 0);
    while let Some(tokens) = ticket.next().await {
        cached = cached.max(tokens.cached);
        completion += tokens.count;
        if tokens.last {
            return Ok(wire.whole(Usage { prompt, completion, cached }));
        }
    }
    Err(Refusal::engine_dead())
}
