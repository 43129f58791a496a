//! What is known of each request that was sent, the file that keeps it, its units and its quantiles.

pub mod quantiles;
mod record;
mod record_reader;
mod resent;
pub mod units;

pub use record::{COLUMNS, ErrorClass, RequestRecord, as_kept, write_records};
pub use record_reader::{RecordsError, read_records};
pub use resent::Resent;
