//! The engine's child process: a stand-in for vLLM's engine core, so that those who stop engines have a tree to stop.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

use super::faults::Fault;

/// How often the parent looks whether its child lives.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The running child. Dropping it closes its stdin, at which it ends by itself.
pub(super) struct CoreProcess {
    child: Child,
    orphan: bool,
}

impl CoreProcess {
    /// Starts this program once more with `--sim-core`.
    #[expect(
        clippy::disallowed_methods,
        reason = "an engine starts its own core, as vLLM does; nobody supervises it but us"
    )]
    pub(super) fn start(fault: Fault) -> io::Result<Self> {
        let orphan = fault == Fault::Orphan;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["sim-engine", "--sim-core"]);
        if orphan {
            command.args(["--sim-fault", "orphan"]);
        }
        // Like vLLM's children it keeps the log open: whoever reads our output to its end also waits for this process.
        let child = command.stdin(Stdio::piped()).stdout(Stdio::inherit()).stderr(Stdio::inherit()).spawn()?;
        Ok(Self { child, orphan })
    }

    /// Waits until the child is gone, which somebody else must have done. Only its end is noticed: a stopped child is not missed,
    /// as vLLM does not miss it.
    pub(super) async fn gone(&mut self) {
        while !matches!(self.child.try_wait(), Ok(Some(_))) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Ends the child as its fault has it.
    pub(super) fn kill(&mut self, segfault: bool) {
        let signal = if segfault { Signal::SIGSEGV } else { Signal::SIGKILL };
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
        }
    }

    /// Ends the child and reaps it; the orphan is left alone.
    pub(super) fn stop(mut self) {
        if !self.orphan {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// What the child does: wait until its parent is gone, or as an orphan for ever, deaf to SIGTERM.
pub(super) async fn be_core(fault: Fault) -> u8 {
    if fault == Fault::Orphan {
        let Ok(mut terminate) = signal(SignalKind::terminate()) else { return 1 };
        loop {
            terminate.recv().await;
        }
    }
    // Blocking the runtime is fine: this process has nothing else to do, and SIGTERM keeps its default action.
    drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
    0
}
