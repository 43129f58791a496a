//! The engine's thread: the scheduler pinned to the wall clock.
//!
//! The end of a step is due at the end of the step before plus its seconds. So a hiccup of the machine is caught up instead of
//! accumulating. The thread sleeps in the command queue: `recv_timeout` wakes within some 0.1 ms, where tokio's timers round up
//! to whole milliseconds, and HTTP work cannot delay it.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::args::SimArgs;
use super::engine::{Command, EngineHandle, Order, Snapshot, Tokens};
use super::faults::{Death, Fault};
use super::live::LiveLimits;
use super::observations::{Life, Observations};
use super::prompt::mix;
use autotune_clock as clock;
use autotune_twin::{Launch, Limits, PromptShape, Scheduler, Speculation, Step, Unsteady};

/// What arrives before its time of admission.
struct Arriving {
    id: u64,
    ready_at: Instant,
    prompt: PromptShape,
    output_tokens: u32,
}

/// An answer in the engine, and who waits for it.
struct OpenAnswer {
    stream: mpsc::UnboundedSender<Tokens>,
    life: Life,
}

/// Starts the engine's thread; the receiver tells when it dies on its own.
pub(super) fn start(limits: Limits, args: &SimArgs) -> (EngineHandle, oneshot::Receiver<Death>) {
    let (commands, received) = channel();
    let (died, death) = oneshot::channel();
    let pacer = Pacer::new(limits, args, received);
    std::thread::spawn(move || {
        if let Some(how) = pacer.run() {
            let _ = died.send(how);
        }
    });
    (EngineHandle::new(commands), death)
}

/// The scheduler, its clock and the answers it works on.
struct Pacer {
    scheduler: Scheduler,
    commands: Receiver<Command>,
    arriving: VecDeque<Arriving>,
    answers: HashMap<u64, OpenAnswer>,
    /// The end of the step before: simulated time, at or a little before the wall clock's.
    clock: Instant,
    completed: u64,
    observed: Observations,
    unsteady: Unsteady,
    launched: Instant,
    speed: f64,
    /// Between the arrival of a request and the waiting queue: HTTP, tokenizer.
    overhead: Duration,
    /// Sequences that may run before the memory is exhausted.
    max_seqs_before_oom: u32,
    fault: Fault,
    /// Completed requests after which the faults of the load strike.
    fault_after: u64,
    /// Its limits, where they can be altered while it runs.
    live: Option<LiveLimits>,
}

impl Pacer {
    fn new(limits: Limits, args: &SimArgs, commands: Receiver<Command>) -> Self {
        let profile = &args.sim_profile;
        let flags = args.flags();
        // No two launches of a real engine are alike: the process has its own noise beside the seed.
        let noise_seed = mix(args.seed ^ u64::from(std::process::id()));
        let launch = profile.noise.map_or(Launch::MEDIAN, |noise| noise.of_launch(noise_seed));
        let speculation =
            args.draft_tokens().map(|tokens| Speculation::new(tokens, args.sim_acceptance, mix(args.seed)));
        Self {
            scheduler: Scheduler::new(profile.costs, limits).on(profile.kernels()).speculating(speculation),
            commands,
            arriving: VecDeque::new(),
            answers: HashMap::new(),
            clock: clock::now(),
            completed: 0,
            observed: Observations::default(),
            unsteady: Unsteady::new(profile.noise, launch, mix(noise_seed)),
            launched: clock::now(),
            speed: args.sim_speed,
            overhead: Duration::from_secs_f64(profile.costs.overhead / args.sim_speed),
            max_seqs_before_oom: profile.max_seqs_before_oom(&flags),
            fault: args.sim_fault,
            fault_after: args.sim_fault_after,
            // The start has seen that it can be opened.
            live: LiveLimits::of(args, limits).ok().flatten(),
        }
    }

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
            self.admit();
            if let Some(step) = self.step() {
                let age = self.clock.duration_since(self.launched).as_secs_f64() * self.speed;
                self.clock += Duration::from_secs_f64(self.unsteady.seconds(step.seconds, age) / self.speed);
                if !self.wait_until(self.clock) {
                    return None;
                }
                if let Some(death) = self.deliver(&step) {
                    if death == Death::Abrupt {
                        // Streams that ended here would still send an error event; a process that dies sends nothing.
                        std::mem::forget(std::mem::take(&mut self.answers));
                    }
                    return Some(death);
                }
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

    /// A step of the scheduler, under the limits of the moment.
    fn step(&mut self) -> Option<Step> {
        // A file that cannot be read any more alters nothing.
        self.live.take_if(|live| live.look(&mut self.scheduler).is_err());
        let step = self.scheduler.step()?;
        let running = self.scheduler.counters().running;
        self.live.take_if(|live| live.tell(running, &step).is_err());
        Some(step)
    }

    fn admit(&mut self) {
        while let Some(next) = self.arriving.pop_front_if(|next| next.ready_at <= self.clock) {
            if !self.scheduler.admit(next.id, next.prompt, next.output_tokens) {
                self.answers.remove(&next.id);
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
            Command::Submit { id, arrived, order, tokens } => self.take_in(id, arrived, order, tokens),
            Command::Abort(id) => {
                self.arriving.retain(|next| next.id != id);
                self.answers.remove(&id);
                self.scheduler.abort(id);
            }
            Command::Reset(reply) => drop(reply.send(self.scheduler.reset_prefix_cache())),
            Command::Observe(reply) => {
                let mut counters = self.scheduler.counters();
                counters.waiting += self.arriving.len() as u32;
                let drafted = self.scheduler.drafted().cloned();
                let observed = self.observed.clone();
                drop(reply.send(Snapshot { counters, completed: self.completed, observed, drafted }));
            }
            Command::Stop => return false,
        }
        true
    }

    /// A request arrived; it reaches the waiting queue after the profile's overhead.
    fn take_in(&mut self, id: u64, arrived: Instant, order: Order, stream: mpsc::UnboundedSender<Tokens>) {
        let Order { prompt, output_tokens } = order;
        let life = Life { arrived, tokens: None, generated: 0 };
        self.answers.insert(id, OpenAnswer { stream, life });
        self.arriving.push_back(Arriving { id, ready_at: arrived + self.overhead, prompt, output_tokens });
    }

    /// Sends the tokens of a step on their way.
    fn deliver(&mut self, step: &Step) -> Option<Death> {
        let now = clock::now();
        let mut finished = step.finished.iter().peekable();
        // Several tokens of one answer stand side by side.
        for same in step.emitted.chunk_by(|a, b| a == b) {
            let (id, count) = (same[0], same.len() as u32);
            let last = finished.next_if(|f| **f == id).is_some();
            self.completed += u64::from(last);
            let cached = self.scheduler.cached_tokens(id).unwrap_or(0);
            let Some(answer) = self.answers.get_mut(&id) else { continue };
            self.observed.tokens(&mut answer.life, count, self.clock, now);
            // A client that left is aborted by its ticket; nothing to do about a closed stream here.
            let _ = answer.stream.send(Tokens { count, cached, last });
            if last {
                self.observed.end(&answer.life, now);
                self.answers.remove(&id);
            }
        }
        if self.scheduler.counters().running > self.max_seqs_before_oom {
            return Some(Death::OutOfMemory);
        }
        self.fault.death().filter(|_| self.completed >= self.fault_after)
    }
}
