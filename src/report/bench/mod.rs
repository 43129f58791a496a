//! The results of `autotune bench`: from the records of requests to a summary, a table, JSON and a ladder's highest level.
//!
//! Pure: nothing here sends a request, reads a clock or writes a file. Two rules hold throughout. Latencies are those of the requests
//! *due* within the window, counted from the intended send, wherever their answers end. Leaving out the slow ones would flatter. Rates
//! are those of the answers that *ended* within the window, whenever they were due. What the drain finishes took time that no rate
//! divides by. And what was not observed is absent, never zero: a benchmark whose requests all failed must not look fast.

mod block;
pub(super) mod find;
mod goodput;
mod ladder;
mod level;
pub(super) mod peaks;
pub mod spread;
mod standing;
mod summary;
pub(super) mod table;
pub(super) mod text;
mod vllm;

#[cfg(test)]
pub(super) mod fixtures;

pub use block::block;
pub use find::{Answer, Finding, Known, Status, found};
pub use ladder::Ladder;
pub use level::{Level, Meta, Offered};
pub use spread::Spread;
pub use standing::Standing;
pub use summary::Summary;
pub use table::table;
pub use vllm::vllm_keys;

/// The version of what stands under `"autotune"` in a result file, and of a ladder's file.
pub const VERSION: u32 = 1;
