//! The journal: an append-only record of every step, and the only state that a resumed run needs.
//!
//! JSON lines, one write each, synced before the step is acted on. A torn last line is what a kill leaves, and is dropped; a damaged
//! earlier one is an error. Reading is pure; [`Writer`] alone touches the disk.

mod entry;
mod kept;
mod reader;
mod writer;

pub use entry::{
    COMMON_ERROR, Conclusion, Entry, FORMAT, Forecast, Gain, Header, MeasuredAtRate, PointResult, Purpose,
    RECORDS_FORMAT, Record, Status,
};
pub use kept::{requests_of, whole};
pub use reader::{Cost, Journal, ReadError, read};
pub use writer::{JournalError, Opened, Writer, open, put_aside};

/// The journal's name in the output folder.
pub const FILE: &str = "journal.jsonl";
