//! The session: baseline -> memory -> search -> certify -> conclusion; resumable at every step.
//!
//! It decides what is done next and why; what is done is the rig's, what it shows the verdict's, what is remembered the journal's.

mod answer;
mod certify;
mod cost;
mod launches;
mod long_run;
mod memory;
mod opening_burst;
mod predictor;
mod proof;
pub mod recorded;
mod served_as_meant;
mod session;
mod session_log;
mod session_twin;
mod stress;
mod trial_runner;
mod twin_fidelity;
mod worker;

pub use cost::forecast;
pub use session::Session;
pub use trial_runner::{Folder, RunnerError, TrialRunner};

#[cfg(test)]
mod tests;
