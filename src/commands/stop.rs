//! Being asked to stop: SIGINT from a person, SIGTERM from a cluster.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears both signals, however often.
pub(super) struct Stop {
    interrupts: Signal,
    terminations: Signal,
}

impl Stop {
    /// Begins to listen; from now on the signals end nothing by themselves.
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupts: signal(SignalKind::interrupt())?, terminations: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one.
    pub(super) async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupts.recv() => {}
            _ = self.terminations.recv() => {}
        }
    }
}
