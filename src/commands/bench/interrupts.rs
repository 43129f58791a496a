//! Ctrl-C and SIGTERM: asked for once, from the first request to the last result.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::super::{Failed, complain, exit};

/// The two signals that end a benchmark early.
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(super) fn listen() -> Result<Self, Failed> {
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(interrupt), Ok(terminate)) => Ok(Self { interrupt, terminate }),
            _ => Err(Failed::own("error: failed to listen for signals")),
        }
    }

    /// Returns at the next of them.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// While a level runs.
pub(super) fn in_a_level() {
    complain("interrupted: what was measured so far follows, marked partial (interrupt again to leave this level out)");
}

pub(super) fn before_anything() -> Failed {
    Failed { code: exit::INTERRUPTED, message: "interrupted before anything was measured".into() }
}

pub(super) fn before_the_end() -> Failed {
    Failed { code: exit::INTERRUPTED, message: "interrupted: not all levels were measured to their end".into() }
}
