//! The engine loop: the scheduler pinned to the wall clock, on a thread of its own.
//!
//! The end of a step is due at the end of the step before plus its seconds, so that a hiccup of the machine is caught up instead
//! of accumulating. The thread sleeps in the command queue: `recv_timeout` wakes within some 0.1 ms, where tokio's timers round
//! up to whole milliseconds, and HTTP work cannot delay it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::args::{Fault, SimArgs};
use super::log;
use super::request::mix;
use crate::clock;
use crate::twin::{Counters, Limits, PromptShape, Scheduler, Step, Unsteady};

/// vLLM logs its throughput that often while it works.
const STATISTICS_EVERY: Duration = Duration::from_secs(10);

/// A token of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    /// Prompt tokens that came from the prefix cache.
    pub(super) cached: u32,
    /// No token comes after it.
    pub(super) last: bool,
}

/// How the engine ended on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    /// At once, connections cut.
    Abrupt,
    /// Out of memory: streams end with an error, then the server shuts itself down.
    OutOfMemory,
}

/// The engine's state for `/metrics`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) counters: Counters,
    /// Requests answered in full.
    pub(super) completed: u64,
}

enum Command {
    Submit { id: u64, ready_at: Instant, prompt: PromptShape, output_tokens: u32, tokens: mpsc::UnboundedSender<Token> },
    Abort(u64),
    Reset(oneshot::Sender<bool>),
    Observe(oneshot::Sender<Snapshot>),
    Stop,
}

/// A handle on the engine thread.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    commands: Sender<Command>,
    next_id: Arc<AtomicU64>,
    overhead: Duration,
}

impl Engine {
    /// Starts the thread; the receiver tells when it dies on its own.
    pub(super) fn start(limits: Limits, args: &SimArgs) -> (Self, oneshot::Receiver<Death>) {
        let profile = &args.sim_profile;
        let (commands, received) = channel();
        let (died, death) = oneshot::channel();
        let overhead = Duration::from_secs_f64(profile.costs.overhead / args.sim_speed);
        // No two launches of a real engine are alike: the process has its own noise beside the seed.
        let noise_seed = mix(args.seed ^ u64::from(std::process::id()));
        let launch_factor = profile.noise.map_or(1.0, |noise| noise.of_launch(noise_seed));
        let engine = Loop {
            scheduler: Scheduler::new(profile.costs, limits),
            unsteady: Unsteady::new(profile.noise, launch_factor, mix(noise_seed)),
            speed: args.sim_speed,
            borne: profile.sequences_borne(&args.flags()),
            fault: args.sim_fault,
            fault_after: args.sim_fault_after,
            commands: received,
            arriving: VecDeque::new(),
            streams: HashMap::new(),
            clock: clock::now(),
            completed: 0,
            statistics: (clock::now(), Counters::default()),
        };
        std::thread::spawn(move || {
            if let Some(how) = engine.run() {
                let _ = died.send(how);
            }
        });
        (Self { commands, next_id: Arc::default(), overhead }, death)
    }

    /// Sends a request; it reaches the waiting queue after the profile's overhead.
    pub(super) fn submit(&self, prompt: PromptShape, output_tokens: u32) -> Ticket {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (tokens, received) = mpsc::unbounded_channel();
        let ready_at = clock::now() + self.overhead;
        // A stopped engine drops the sender with the command, and the ticket sees the end of its tokens.
        drop(self.commands.send(Command::Submit { id, ready_at, prompt, output_tokens, tokens }));
        Ticket { id, tokens: received, commands: self.commands.clone(), finished: false }
    }

    /// Forgets the prefix cache; false while requests run.
    pub(super) async fn reset_prefix_cache(&self) -> bool {
        let (reply, answer) = oneshot::channel();
        drop(self.commands.send(Command::Reset(reply)));
        answer.await.unwrap_or(false)
    }

    /// The state now.
    pub(super) async fn observe(&self) -> Snapshot {
        let (reply, answer) = oneshot::channel();
        drop(self.commands.send(Command::Observe(reply)));
        answer.await.unwrap_or_default()
    }

    /// Ends the thread; the streams that are open see an early end.
    pub(super) fn stop(&self) {
        drop(self.commands.send(Command::Stop));
    }
}

/// A request in the engine. Dropping it before its last token aborts the request: this is how a disconnect frees its blocks.
#[derive(Debug)]
pub(super) struct Ticket {
    id: u64,
    tokens: mpsc::UnboundedReceiver<Token>,
    commands: Sender<Command>,
    finished: bool,
}

impl Ticket {
    /// The next token; None when the engine is gone.
    pub(super) async fn next(&mut self) -> Option<Token> {
        let token = self.tokens.recv().await;
        self.finished |= token.is_some_and(|t| t.last);
        token
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished {
            drop(self.commands.send(Command::Abort(self.id)));
        }
    }
}

/// What arrives before its time of admission.
struct Arriving {
    id: u64,
    ready_at: Instant,
    prompt: PromptShape,
    output_tokens: u32,
}

struct Loop {
    scheduler: Scheduler,
    commands: Receiver<Command>,
    arriving: VecDeque<Arriving>,
    streams: HashMap<u64, mpsc::UnboundedSender<Token>>,
    /// The end of the step before: simulated time, at or a little before the wall clock's.
    clock: Instant,
    completed: u64,
    unsteady: Unsteady,
    speed: f64,
    /// Sequences that may run before the memory is exhausted.
    borne: u32,
    fault: Fault,
    /// Completed requests after which the faults of the load strike.
    fault_after: u64,
    statistics: (Instant, Counters),
}

impl Loop {
    /// Runs until it is stopped (None) or dies of its fault.
    fn run(mut self) -> Option<Death> {
        loop {
            if !self.wait_until(self.clock) {
                return None;
            }
            if self.fault == Fault::HangInLoad && self.completed >= self.fault_after {
                // Commands are still answered, so `/metrics` and `/health` look alive; tokens never come.
                if !self.wait_for_command() {
                    return None;
                }
                continue;
            }
            while let Some(next) = self.arriving.pop_front_if(|next| next.ready_at <= self.clock) {
                if !self.scheduler.admit(next.id, next.prompt, next.output_tokens) {
                    self.streams.remove(&next.id);
                }
            }
            if let Some(step) = self.scheduler.step() {
                self.clock += Duration::from_secs_f64(self.unsteady.seconds(step.seconds) / self.speed);
                if !self.wait_until(self.clock) {
                    return None;
                }
                if let Some(death) = self.deliver(&step) {
                    if death == Death::Abrupt {
                        // Streams that ended here would still send an error event; a process that dies sends nothing.
                        std::mem::forget(std::mem::take(&mut self.streams));
                    }
                    return Some(death);
                }
                self.log_statistics();
            } else if let Some(next) = self.arriving.front() {
                self.clock = next.ready_at.max(self.clock);
            } else {
                if !self.wait_for_command() {
                    return None;
                }
                self.clock = self.clock.max(clock::now());
            }
        }
    }

    /// Obeys commands until that time, at least those that are there; false when it is to stop.
    fn wait_until(&mut self, deadline: Instant) -> bool {
        loop {
            let left = deadline.saturating_duration_since(clock::now());
            match self.commands.recv_timeout(left) {
                Ok(command) => {
                    if !self.obey(command) {
                        return false;
                    }
                }
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    fn wait_for_command(&mut self) -> bool {
        self.commands.recv().is_ok_and(|command| self.obey(command))
    }

    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Submit { id, ready_at, prompt, output_tokens, tokens } => {
                self.streams.insert(id, tokens);
                self.arriving.push_back(Arriving { id, ready_at, prompt, output_tokens });
            }
            Command::Abort(id) => {
                self.streams.remove(&id);
                self.arriving.retain(|next| next.id != id);
                self.scheduler.abort(id);
            }
            Command::Reset(reply) => drop(reply.send(self.scheduler.reset_prefix_cache())),
            Command::Observe(reply) => {
                let mut counters = self.scheduler.counters();
                counters.waiting += self.arriving.len() as u32;
                let _ = reply.send(Snapshot { counters, completed: self.completed });
            }
            Command::Stop => return false,
        }
        true
    }

    /// Sends the tokens of a step on their way.
    fn deliver(&mut self, step: &Step) -> Option<Death> {
        let mut finished = step.finished.iter().peekable();
        for id in &step.emitted {
            let last = finished.next_if(|f| *f == id).is_some();
            self.completed += u64::from(last);
            let cached = self.scheduler.cached_tokens(*id).unwrap_or(0);
            // A client that left is aborted by its ticket; nothing to do about a closed stream here.
            if let Some(stream) = self.streams.get(id) {
                let _ = stream.send(Token { cached, last });
            }
            if last {
                self.streams.remove(id);
            }
        }
        match self.fault {
            _ if self.scheduler.counters().running > self.borne => Some(Death::OutOfMemory),
            Fault::DieInLoad if self.completed >= self.fault_after => Some(Death::Abrupt),
            Fault::OomInLoad if self.completed >= self.fault_after => Some(Death::OutOfMemory),
            _ => None,
        }
    }

    fn log_statistics(&mut self) {
        let (since, before) = self.statistics;
        let span = self.clock.saturating_duration_since(since);
        if span < STATISTICS_EVERY {
            return;
        }
        let now = self.scheduler.counters();
        let per_second = |after: u64, before: u64| (after - before) as f64 / span.as_secs_f64();
        let hit_rate = 100.0 * now.prefix_hits as f64 / now.prefix_queries.max(1) as f64;
        log::info(
            log::Source::Api,
            "loggers.py:273",
            &format!(
                "Engine 000: Avg prompt throughput: {:.1} tokens/s, Avg generation throughput: {:.1} tokens/s, Running: {} reqs, \
                 Waiting: {} reqs, GPU KV cache usage: {:.1}%, Prefix cache hit rate: {hit_rate:.1}%",
                per_second(now.prompt_tokens, before.prompt_tokens),
                per_second(now.generation_tokens, before.generation_tokens),
                now.running,
                now.waiting,
                100.0 * now.kv_usage,
            ),
        );
        self.statistics = (self.clock, now);
    }
}
