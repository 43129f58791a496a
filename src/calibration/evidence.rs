//! What a source of measured probes tells: probes, launches, the engine, and what is wrong with the source.

use std::path::{Path, PathBuf};

use super::configuration::{Configuration, ConfigurationError};
use crate::load::{RecordsError, read_records};
use crate::settings::Plan;
use crate::twin::Observed;
use crate::units::Seconds;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// The file or the folder, without the path to it.
    pub name: String,
    pub probes: Vec<Recorded>,
    pub launches: Vec<Launched>,
    /// The engine, where the source tells.
    pub engine: Option<String>,
    pub plan: Option<Box<Plan>>,
    /// What the source holds and calibration does not use, in words.
    pub left_out: Vec<String>,
    /// What a reader should know of the source, in words.
    pub notes: Vec<String>,
}

/// A probe as its source tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    pub name: String,
    pub requests: Vec<Observed>,
    /// What is known of the engine.
    pub configuration: Configuration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Launched {
    /// The configuration that it says it runs.
    pub configuration: Configuration,
    /// From the start of its process until it served.
    pub starting: Seconds,
    /// What stopping it took, where it was stopped.
    pub stopping: Option<Seconds>,
}

/// Why a source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("failed to read {path}: {source}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{path}: {source}")]
    Records { path: PathBuf, source: RecordsError },
    /// It has none of the known forms, or lacks what a replay needs.
    #[error("{path}: {why}")]
    Unusable {
        path: PathBuf,
        /// Why, and where there is one, a hint in a line of its own.
        why: String,
    },
    #[error("{path}: {source}")]
    Configuration { path: PathBuf, source: ConfigurationError },
}

impl Evidence {
    /// Completes the configuration of every probe by what else is known of the engine.
    pub fn configured(&mut self, given: &Configuration) {
        for Recorded { configuration, .. } in &mut self.probes {
            *configuration = std::mem::take(configuration).or(given);
        }
    }
}

/// The requests of one probe in a CSV of ours.
pub(super) fn request_file(path: &Path, name: &str, text: &[u8]) -> Result<Evidence, SourceError> {
    let records = read_records(text).map_err(|source| SourceError::Records { path: path.to_owned(), source })?;
    if records.is_empty() {
        return Err(unusable(path, "there is no request in it"));
    }
    let shared = records.iter().any(|r| r.shared_in > 0) && records.iter().all(|r| r.tokens_cached.is_none());
    let note = "prompts are shared and cached tokens not told: all are replayed as computed".to_owned();
    Ok(Evidence {
        probes: vec![Recorded {
            name: name.to_owned(),
            requests: records.iter().map(Observed::from).collect(),
            configuration: Configuration::default(),
        }],
        notes: shared.then_some(note).into_iter().collect(),
        ..Evidence::default()
    })
}

pub(super) fn unreadable(path: &Path, source: std::io::Error) -> SourceError {
    SourceError::Unreadable { path: path.to_owned(), source }
}

pub(super) fn unusable(path: &Path, why: &str) -> SourceError {
    SourceError::Unusable { path: path.to_owned(), why: why.to_owned() }
}
