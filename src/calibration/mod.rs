//! Calibration: probes of an engine that were measured -> the twin's profile of it, and how well that predicts them.
//!
//! `source` finds out what a path is; `journal`, `bench_file` and the request files are its forms, and a new one is a file beside them
//! that returns [`Evidence`]. `calibrate` fits requests, and is pure; so is what it is made of: `compared`, `memory`, `meaning` and
//! `profile_file`. Results without requests are `bench_summary`s: `drawn` makes requests for them, `redrawn` replays these, and
//! `from_summaries` fits from where `outset` says.

mod bench_file;
mod bench_summary;
mod calibrate;
mod coefficient_words;
mod compared;
mod configuration;
mod drawn;
mod first_guess;
mod from_summaries;
mod journal;
mod memory;
mod profile_file;
mod redrawn;
mod source;
mod warnings;

pub use bench_summary::Summary;
pub use calibrate::{Calibration, CalibrationError, Start, calibrate};
pub use coefficient_words::{MEANINGS, Unit};
pub use compared::{Beside, Compared};
pub use configuration::{Configuration, ConfigurationError, KV_TOKENS, Resolved};
pub use drawn::{Asked, DRAWS, DrawError};
pub use from_summaries::{Estimated, SummaryCalibration, calibrate_summaries, predict_summaries};
pub use memory::CacheSize;
pub use profile_file::{profile, summary_profile, summary_to_toml, to_toml};
pub use source::{Evidence, Launched, Recorded, Source, SourceError, Summarized};
