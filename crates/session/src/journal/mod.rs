//! The journal: an append-only record of every step, and all the state that a resumed run needs.
//!
//! JSON lines. Each is one write, and is synced before the session goes on. A torn last line, which a kill leaves, is dropped; any other
//! damaged line is an error. [`read`] is pure; [`Writer`] alone writes to the disk.

mod entry;
mod kept;
mod reader;
mod writer;

pub use entry::{
    BUDGET_TOO_SMALL, COMMON_ERROR, Conclusion, Cost, Entry, ExpectedQuantile, FORMAT, Gain, Header, MeasuredAtRate,
    NO_CANDIDATE, PROOF_OF_DEFAULTS, PointResult, Purpose, RECORDS_FORMAT, Record, Status, names_budget,
    without_budget,
};
pub use kept::{keep_requests, requests_of, verify_digest};
pub use reader::{Journal, read};
pub use writer::{JournalError, Writer, in_use, open, put_aside};

/// The journal's name in the output folder.
pub const FILE: &str = "journal.jsonl";
