//! The engine's child process: a stand-in for vLLM's engine core, so that those who stop engines have a tree to stop.

use std::io;
use std::process::{Child, Command, Stdio};

use tokio::signal::unix::{SignalKind, signal};

use super::args::Fault;

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
