//! Calibration: probes of an engine that were measured -> the twin's profile of it, and how well that predicts them.
//!
//! `source` finds out what a path is; `journal`, `bench_file` and the request files are its forms, and a new one is a file beside them
//! that returns [`Evidence`]. `calibrate` fits requests, and is pure; so is what it is made of: `compared`, `memory`, `coefficient_words`
//! and `profile_file`.

mod bench_file;
mod calibrate;
mod coefficient_words;
mod compared;
mod configuration;
mod evidence;
mod journal;
mod memory;
mod profile_file;
mod source;
mod warnings;

pub use calibrate::{Calibration, Start, calibrate};
pub use coefficient_words::{MEANINGS, Unit};
pub use compared::{Beside, Compared};
pub use configuration::{Configuration, KV_TOKENS};
pub use evidence::Evidence;
pub use memory::CacheSize;
pub use profile_file::{profile, to_toml};
pub use source::Source;
