//! A handle on the engine's thread: requests go in, tokens come out.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::args::SimArgs;
use super::observations::Observations;
use super::pacer::Pacer;
use crate::clock;
use crate::twin::{Counters, Drafted, Limits, PromptShape};

/// Tokens of an answer that came from one step: several where a draft was accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens {
    /// Which of a request's answers they belong to.
    pub(super) choice: u32,
    pub(super) count: u32,
    /// Prompt tokens that came from the prefix cache.
    pub(super) cached: u32,
    /// No token of this answer comes after them.
    pub(super) last: bool,
}

/// How the engine ended on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    Abrupt,
    /// Out of memory: streams end with an error, then the server shuts itself down.
    OutOfMemory,
    /// Somebody, or its own fault, ended the core process.
    CoreGone {
        /// With a word in the log, as after a violation of memory.
        segfault: bool,
    },
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

/// What a request asks of the engine: `copies` answers to each of its prompts.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) prompts: Vec<PromptShape>,
    pub(super) copies: u32,
    pub(super) output_tokens: u32,
}

/// Commands to the engine thread.
pub(super) enum Command {
    /// The answers of a request have ids from `first` on.
    Submit {
        first: u64,
        arrived: Instant,
        order: Order,
        tokens: mpsc::UnboundedSender<Tokens>,
    },
    Abort(Range<u64>),
    Reset(oneshot::Sender<bool>),
    Observe(oneshot::Sender<Snapshot>),
    Stop,
}

/// A handle on the engine thread.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    commands: Sender<Command>,
    next_id: Arc<AtomicU64>,
}

impl Engine {
    /// Starts the thread; the receiver tells when it dies on its own.
    pub(super) fn start(limits: Limits, args: &SimArgs) -> (Self, oneshot::Receiver<Death>) {
        let (commands, received) = channel();
        let (died, death) = oneshot::channel();
        let pacer = Pacer::new(limits, args, received);
        std::thread::spawn(move || {
            if let Some(how) = pacer.run() {
                let _ = died.send(how);
            }
        });
        (Self { commands, next_id: Arc::default() }, death)
    }

    /// Sends a request on its way.
    pub(super) fn submit(&self, order: Order) -> Ticket {
        let answers = order.prompts.len() as u64 * u64::from(order.copies);
        let first = self.next_id.fetch_add(answers, Ordering::Relaxed);
        let (tokens, received) = mpsc::unbounded_channel();
        // A stopped engine drops the sender with the command, and the ticket sees the end of its tokens.
        drop(self.commands.send(Command::Submit { first, arrived: clock::now(), order, tokens }));
        Ticket { ids: first..first + answers, open: answers, tokens: received, commands: self.commands.clone() }
    }

    /// Forgets the prefix cache; false while requests run.
    pub(super) async fn reset_prefix_cache(&self) -> bool {
        let (reply, answer) = oneshot::channel();
        drop(self.commands.send(Command::Reset(reply)));
        answer.await.unwrap_or(false)
    }

    /// The state now; None when the engine is gone.
    pub(super) async fn observe(&self) -> Option<Snapshot> {
        let (reply, answer) = oneshot::channel();
        drop(self.commands.send(Command::Observe(reply)));
        tokio::time::timeout(Duration::from_secs(5), answer).await.ok()?.ok()
    }

    /// Ends the thread; the streams that are open see an early end.
    pub(super) fn stop(&self) {
        drop(self.commands.send(Command::Stop));
    }
}

/// A request in the engine. Dropping it before its last token aborts the request: this is how a disconnect frees its blocks.
#[derive(Debug)]
pub(super) struct Ticket {
    ids: Range<u64>,
    /// Answers that are not complete.
    open: u64,
    tokens: mpsc::UnboundedReceiver<Tokens>,
    commands: Sender<Command>,
}

impl Ticket {
    /// The next tokens of any of its answers; None when the engine is gone.
    pub(super) async fn next(&mut self) -> Option<Tokens> {
        let tokens = self.tokens.recv().await;
        self.open -= u64::from(tokens.is_some_and(|t| t.last));
        tokens
    }

    /// Whether every answer is complete.
    pub(super) fn complete(&self) -> bool {
        self.open == 0
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.open > 0 {
            drop(self.commands.send(Command::Abort(self.ids.clone())));
        }
    }
}
