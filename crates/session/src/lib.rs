//! A session, from a checked plan to a journal with its answer.
//!
//! Data flows one way: `tune` → (`search` asks, a `rig` answers, `verdict` judges, `journal` remembers). `rehearsal` runs whole sessions in virtual time.

pub mod digest;
pub mod events;
pub mod journal;
pub mod private;
#[cfg(test)]
mod quickstart;
pub mod rehearsal;
pub mod rig;
pub mod search;
pub mod supervise;
pub mod token;
pub mod tune;
pub mod verdict;
