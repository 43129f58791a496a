//! The load generator's threads: one sends, and a few read. Nothing else runs on them.
//!
//! Each thread has a runtime of its own and shares nothing. A burst of tokens on a reader never delays the pacer, and a stream stays on the thread
//! that opened it.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use autotune_clock as clock;

/// After this many polls, a runtime looks for work from other threads. So a request that is due waits for at most this many reads, some tens
/// of microseconds.
const LOOK_OUTSIDE_EVERY: u32 = 8;

/// The longest pause between two bunches of reads.
const LONGEST_PAUSE: Duration = Duration::from_millis(4);
/// The longest pause, as a share of the shortest time between two tokens of a stream: one read must never bring both.
const PAUSE_SHARE: f32 = 0.25;
/// The shortest gap is forgotten over about this many gaps.
const MEMORY: f32 = 1000.0;

thread_local! {
    /// The shortest time in seconds between two tokens of one stream on this thread, lately; zero until something is known.
    static SHORTEST_GAP: Cell<f32> = const { Cell::new(0.0) };
    /// Requests of this thread that are not wholly sent yet.
    static SENDING: Cell<u32> = const { Cell::new(0) };
    /// The pause before the last bunch of reads.
    static PAUSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A request that is being sent: meanwhile its thread does not pause, so that it delays neither a connection nor a long prompt.
pub(super) struct Sending(());

impl Sending {
    pub(super) fn begin() -> Self {
        SENDING.set(SENDING.get() + 1);
        Self(())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        SENDING.set(SENDING.get().saturating_sub(1));
    }
}

/// Tells the thread the seconds between two tokens of one of its streams.
pub(super) fn note_gap(gap: f32) {
    SHORTEST_GAP.set(SHORTEST_GAP.get().min(gap) + (gap - SHORTEST_GAP.get()).max(0.0) / MEMORY);
}

/// How long this thread paused on purpose before its last read.
pub(super) fn paused() -> Duration {
    PAUSED.get()
}

/// A thread with its runtime; both end when it is dropped.
pub(super) struct Lane {
    handle: Handle,
    thread_id: Arc<AtomicI32>,
    thread: thread::Thread,
    hurry: Arc<AtomicBool>,
    // Dropped with the lane, which ends the thread.
    _open: oneshot::Sender<()>,
}

impl Lane {
    /// Starts a thread that never pauses, for sending.
    pub(super) fn punctual(name: &str) -> io::Result<Self> {
        Self::start(name, &mut Builder::new_current_thread())
    }

    /// Starts a thread that pauses between reads. A wake-up costs several times as much CPU as reading a token, so at thousands of tokens per
    /// second they are read in small batches. The time stamps are the kernel's and stay exact. A token after a silence is read at once, and
    /// so is every token while the lane is in a hurry.
    pub(super) fn thrifty(name: &str) -> io::Result<Self> {
        let hurry = Arc::new(AtomicBool::new(false));
        let in_a_hurry = hurry.clone();
        let slept = Mutex::new(clock::now());
        let rest = move || {
            let mut slept = slept.lock().unwrap_or_else(PoisonError::into_inner);
            let most = LONGEST_PAUSE.min(Duration::from_secs_f32(SHORTEST_GAP.get() * PAUSE_SHARE));
            let restless = in_a_hurry.load(Ordering::Relaxed) || SENDING.get() > 0;
            let pause = if restless { Duration::ZERO } else { most.saturating_sub(slept.elapsed()) };
            PAUSED.set(pause);
            if !pause.is_zero() {
                // `wake` ends the pause when a request is due.
                thread::park_timeout(pause);
            }
            *slept = clock::now();
        };
        let lane = Self::start(name, Builder::new_current_thread().on_thread_park(rest))?;
        Ok(Self { hurry, ..lane })
    }

    fn start(name: &str, builder: &mut Builder) -> io::Result<Self> {
        let (open, closed) = oneshot::channel::<()>();
        let thread_id = Arc::new(AtomicI32::new(0));
        let own_id = thread_id.clone();
        let runtime = builder.enable_all().global_queue_interval(LOOK_OUTSIDE_EVERY).build()?;
        let handle = runtime.handle().clone();
        let running = thread::Builder::new().name(name.to_owned()).spawn(move || {
            own_id.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
            drop(runtime.block_on(closed));
        })?;
        Ok(Self { handle, thread_id, thread: running.thread().clone(), hurry: Arc::default(), _open: open })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends a pause between two bunches of reads, for a request that is due.
    pub(super) fn wake(&self) {
        self.thread.unpark();
    }

    /// Reads without pauses, for traffic whose next request waits for the end of an answer.
    pub(super) fn set_hurry(&self, hurry: bool) {
        self.hurry.store(hurry, Ordering::Relaxed);
    }

    /// The kernel's number of the thread.
    pub(super) fn thread_id(&self) -> i32 {
        self.thread_id.load(Ordering::Relaxed)
    }
}

/// How many threads read. One keeps up with several hundred thousand tokens a second (`cargo bench --bench load`), and each further one
/// takes a core from an engine on the same machine.
pub(super) fn readers() -> usize {
    thread::available_parallelism().map_or(1, |cores| (cores.get() / 32).clamp(1, 4))
}
