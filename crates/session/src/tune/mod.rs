//! The session: baseline -> memory -> search -> certify -> conclusion; resumable at every step.
//!
//! It decides what is done next and why; what is done is the rig's, what it shows the verdict's, what is remembered the journal's. Arrows between
//! its files go one way: session -> its steps -> context -> runner -> predictor -> session_twin.

mod answer;
mod batches;
mod certifier;
mod certify;
mod context;
mod cost;
mod memory;
mod predictor;
mod proving;
mod runner;
mod sample_sizes;
mod seeds;
mod session;
mod session_twin;
mod trial;

pub use cost::{forecast, least};
pub use predictor::stress_replay;
pub use runner::{Folder, RunnerError, TrialRunner};
pub use sample_sizes::SampleSizes;
pub use session::Session;
pub use session_twin::{Compared, FitProbe, Flights, Likeness, LongRunTraffic, SessionTwin, TrafficSource, TwinEngine};

#[cfg(test)]
mod tests;
