//! A handle on the engine's thread: requests go in, tokens come out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::observations::Observations;
use autotune_clock as clock;
use autotune_twin::{Counters, Drafted, PromptShape};

/// An engine that does not tell its state within this time counts as gone.
const ANSWER: Duration = Duration::from_secs(5);

/// Tokens of an answer that came from one step: several where a draft was accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens {
    pub(super) count: u32,
    /// Prompt tokens that came from the prefix cache.
    pub(super) cached: u32,
    /// No token of the answer comes after them.
    pub(super) last: bool,
}

/// The engine's state for `/metrics`.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) counters: Counters,
    /// Answers that were given in full.
    pub(super) completed: u64,
    pub(super) observed: Observations,
    /// Totals of speculative decoding, if it is on.
    pub(super) drafted: Option<Drafted>,
}

/// What a request asks of the engine.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) prompt: PromptShape,
    pub(super) output_tokens: u32,
}

/// Commands to the engine thread.
pub(super) enum Command {
    Submit {
        id: u64,
        arrived: Instant,
        order: Order,
        tokens: mpsc::UnboundedSender<Tokens>,
    },
    Abort(u64),
    /// Answers whether the prefix cache was emptied.
    Reset(oneshot::Sender<bool>),
    /// Answers with the state.
    Observe(oneshot::Sender<Snapshot>),
    Stop,
}

#[derive(Clone, Debug)]
pub(super) struct EngineHandle {
    commands: Sender<Command>,
    next_id: Arc<AtomicU64>,
}

impl EngineHandle {
    pub(super) fn new(commands: Sender<Command>) -> Self {
        Self { commands, next_id: Arc::default() }
    }

    /// Sends a request on its way.
    pub(super) fn submit(&self, order: Order) -> Ticket {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (tokens, received) = mpsc::unbounded_channel();
        // A stopped engine drops the sender with the command, and the ticket sees the end of its tokens.
        drop(self.commands.send(Command::Submit { id, arrived: clock::now(), order, tokens }));
        Ticket { id, complete: false, tokens: received, commands: self.commands.clone() }
    }

    /// Forgets the prefix cache; false while requests run.
    pub(super) async fn reset_prefix_cache(&self) -> bool {
        let (reply, answer) = oneshot::channel();
        drop(self.commands.send(Command::Reset(reply)));
        answer.await.unwrap_or(false)
    }

    /// The state now; `None` if the engine is gone or does not answer within 5 s.
    pub(super) async fn observe(&self) -> Option<Snapshot> {
        let (reply, answer) = oneshot::channel();
        drop(self.commands.send(Command::Observe(reply)));
        tokio::time::timeout(ANSWER, answer).await.ok()?.ok()
    }

    /// Ends the thread; open streams end early.
    pub(super) fn stop(&self) {
        drop(self.commands.send(Command::Stop));
    }
}

/// A request in the engine. Dropping it before its last token aborts the request: this is how a disconnect frees its blocks.
#[derive(Debug)]
pub(super) struct Ticket {
    id: u64,
    /// Its last token has come.
    complete: bool,
    tokens: mpsc::UnboundedReceiver<Tokens>,
    commands: Sender<Command>,
}

impl Ticket {
    /// The next tokens; None when the engine is gone.
    pub(super) async fn next(&mut self) -> Option<Tokens> {
        let tokens = self.tokens.recv().await;
        self.complete |= tokens.is_some_and(|t| t.last);
        tokens
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.complete {
            drop(self.commands.send(Command::Abort(self.id)));
        }
    }
}
