//! The ways to fail, for tests of those who supervise engines. Each was seen on a real engine.

use clap::ValueEnum;

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

/// A way to fail.
///
/// Failures that flags cause are no faults: too little memory for the cache, a refused value, a taken port, an unknown flag. A slow start is
/// `--sim-start-seconds`, a slow stop `--sim-stop-seconds`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// None.
    #[default]
    None,
    /// Exits with code 0 before it is ready.
    ExitZeroAtStart,
    /// Exits with code 1 without a word.
    SilentDeath,
    /// Does not find its model: exits with code 1.
    ModelMissing,
    /// Cannot read its weights: the core says so, and the engine exits with code 1.
    BrokenWeights,
    /// Runs out of memory after it logged the size of its cache: exits with code 1.
    OomAtStart,
    /// Lives, and answers 503 to `/health` for ever.
    NeverReady,
    /// Exits with code 1 in the middle of the load.
    DieInLoad,
    /// Sends no token any more in the middle of the load, while `/health` stays 200.
    HangInLoad,
    /// Runs out of memory in the middle of the load, and exits with code 0 as vLLM does.
    OomInLoad,
    /// Loses its core to a SIGKILL in the middle of the load: `/health` says 503, then it exits with code 0.
    CoreKilledInLoad,
    /// Loses its core to a violation of memory in the middle of the load, and exits with code 0.
    CoreSegfaultInLoad,
    /// Answers every request with status 500 from the middle of the load on.
    ErrorsInLoad,
    /// Cuts the connection in the middle of every streamed answer from the middle of the load on.
    CutStreams,
    /// Leaves its child alive, which ignores SIGTERM.
    Orphan,
}

impl Fault {
    /// How the engine dies when enough requests are answered.
    pub(super) fn death(self) -> Option<Death> {
        match self {
            Self::DieInLoad => Some(Death::Abrupt),
            Self::OomInLoad => Some(Death::OutOfMemory),
            Self::CoreKilledInLoad => Some(Death::CoreGone { segfault: false }),
            Self::CoreSegfaultInLoad => Some(Death::CoreGone { segfault: true }),
            _ => None,
        }
    }
}
