//! The generator's own threads: one that paces, and a few that read. Whatever else the program does, it does elsewhere.
//!
//! Each thread has a runtime of its own and shares nothing with the others: a burst of tokens on a reader never delays the pacer, and
//! a stream stays on the thread that opened it.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Between this many polls of tasks a runtime looks at what came from other threads: a request that is due waits for no more than
/// so many reads, some tens of microseconds.
const LOOK_OUTSIDE_EVERY: u32 = 8;

/// A thread with its runtime; both end when it is dropped.
pub(super) struct Lane {
    handle: Handle,
    thread_id: Arc<AtomicI32>,
    // Dropped with the lane, which ends the thread.
    _open: oneshot::Sender<()>,
}

impl Lane {
    /// Starts a thread of that name.
    ///
    /// # Errors
    /// Where the system gives no thread or no event queue.
    pub(super) fn start(name: &str) -> io::Result<Self> {
        let (open, closed) = oneshot::channel::<()>();
        let (ready, started) = mpsc::channel();
        let thread_id = Arc::new(AtomicI32::new(0));
        let own_id = thread_id.clone();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            own_id.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
            let runtime = Builder::new_current_thread()
                .enable_all()
                .global_queue_interval(LOOK_OUTSIDE_EVERY)
                .event_interval(LOOK_OUTSIDE_EVERY)
                .build();
            match runtime {
                Ok(runtime) => {
                    drop(ready.send(Ok(runtime.handle().clone())));
                    drop(runtime.block_on(closed));
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        let handle = started.recv().map_err(|_| io::Error::other("the thread ended at once"))??;
        Ok(Self { handle, thread_id, _open: open })
    }

    /// Where tasks are spawned.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The kernel's number of the thread.
    pub(super) fn thread_id(&self) -> i32 {
        self.thread_id.load(Ordering::Relaxed)
    }
}

/// How many threads read: one keeps up with several hundred thousand tokens a second (`cargo bench --bench load`), and every further
/// one would take a core from an engine on the same machine.
pub(super) fn readers() -> usize {
    thread::available_parallelism().map_or(1, |cores| (cores.get() / 32).clamp(1, 4))
}
