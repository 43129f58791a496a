//! The session: baseline -> memory -> search -> certify -> conclusion; resumable at every step.
//!
//! It decides what is done next and why; what is done is the rig's, what it shows the verdict's, what is remembered the journal's.

mod answer;
mod bench;
mod books;
mod certifier;
mod certify;
mod cost;
mod endurance;
mod foresight;
mod hours;
mod launches;
mod likeness;
mod meant;
mod memory;
mod opening;
mod pairing;
pub mod recorded;
mod session;
mod worker;

pub use bench::{Bench, BenchError, Folder};
pub use cost::forecast;
pub use session::Session;

#[cfg(test)]
mod tests;
