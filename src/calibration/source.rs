//! A source of measured probes: where it lies, what is said of it on the command line, and which of its forms it has.

use std::path::{Path, PathBuf};

use super::bench_file;
use super::configuration::{Configuration, ConfigurationError};
use super::journal;
use crate::journal::FILE;
use crate::load::{RecordsError, read_records};
use crate::settings::Plan;
use crate::twin::Observed;
use crate::units::Seconds;

/// A path, and the configuration that its file does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// A folder of a run, a CSV of requests, or a JSON result of `vllm bench serve`.
    pub path: PathBuf,
    /// What was said of it.
    pub given: Configuration,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// The file or the folder, without the path to it.
    pub name: String,
    pub probes: Vec<Recorded>,
    pub launches: Vec<Launched>,
    /// The engine, where the source tells.
    pub engine: Option<String>,
    /// The plan of a run.
    pub plan: Option<Box<Plan>>,
    /// What is in the source and does not count, in words without its name.
    pub left_out: Vec<String>,
    /// What its reader should know of it, in words without its name.
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
    /// What it said it runs.
    pub configuration: Configuration,
    /// From the start of its process until it served.
    pub starting: Seconds,
    /// What stopping it took, where it was stopped.
    pub stopping: Option<Seconds>,
}

/// Why a source tells nothing.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The disk does not give it.
    #[error("failed to read {path}: {source}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// It is no request file.
    #[error("{path}: {source}")]
    Records { path: PathBuf, source: RecordsError },
    /// It is none of the forms, or lacks what a replay needs.
    #[error("{path}: {why}")]
    Unusable {
        path: PathBuf,
        /// Why, and where there is one, a hint in a line of its own.
        why: String,
    },
    /// What was said of it is not so.
    #[error("{path}: {source}")]
    Configuration { path: PathBuf, source: ConfigurationError },
}

impl Source {
    /// Reads `PATH` or `PATH,FLAG=VALUE,FLAG=VALUE`; a comma that no `FLAG=VALUE` follows belongs to the path.
    ///
    /// # Errors
    /// An unknown flag, or a value that the flag does not take.
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        let (mut path, mut given) = (text, Configuration::default());
        while let Some((before, setting)) = path.rsplit_once(',').filter(|(_, setting)| setting.contains('=')) {
            given = given.or(&Configuration::parse(setting)?);
            path = before;
        }
        Ok(Self { path: path.into(), given })
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// The disk's, and those of a file that is none of the forms or lacks what a replay needs.
    pub fn read(&self) -> Result<Evidence, SourceError> {
        let path = self.path.as_path();
        let name = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let name = name.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut evidence = if path.is_dir() {
            let evidence = journal::read(path)?;
            let contradicted = |source| SourceError::Configuration { path: path.to_owned(), source };
            evidence.probes.iter().try_for_each(|p| p.configuration.agrees(&self.given)).map_err(contradicted)?;
            evidence
        } else {
            let text = std::fs::read(path).map_err(|source| unreadable(path, source))?;
            let is_json = text.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| b"{[".contains(byte));
            if path.file_name().is_some_and(|name| name == FILE) {
                return Err(unusable(path, "a journal is read with its request files\nhint: give its folder"));
            } else if is_json {
                bench_file::read(&name, &text).map_err(|why| unusable(path, &why))?
            } else {
                request_file(path, &name, &text)?
            }
        };
        evidence.name = name;
        evidence.configured(&self.given);
        Ok(evidence)
    }
}

impl Evidence {
    /// Adds what else is known of the engine.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_path_and_what_is_said_of_it() {
        let given = Configuration::parse("max-num-seqs=32,kv-tokens=919824").unwrap();
        let source = |path: &str, given: &Configuration| Source { path: path.into(), given: given.clone() };
        assert_eq!(Source::parse("a.csv,max-num-seqs=32,kv-tokens=919824").unwrap(), source("a.csv", &given));
        assert_eq!(Source::parse("a,b.csv").unwrap(), source("a,b.csv", &Configuration::default()));
        assert!(Source::parse("a.csv,block-size=32").unwrap_err().to_string().contains("max-num-seqs"));
    }

    #[test]
    fn files_that_are_no_source_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let said = |file: &str, content: Option<&str>| {
            let path = folder.path().join(file);
            if let Some(content) = content {
                std::fs::write(&path, content).unwrap();
            }
            Source { path, given: Configuration::default() }.read().unwrap_err().to_string()
        };
        assert!(said("nothing.csv", None).contains("nothing.csv"));
        assert!(said("", None).contains("journal.jsonl"));
        let header = "due,sent,first,last,tokens_in,tokens_out,error\n";
        assert!(said("empty.csv", Some(header)).contains("no request"));
        let column = said("other.csv", Some("a,b\n1,2\n"));
        assert!(column.contains("other.csv") && column.contains("`due`"), "{column}");
        assert!(said("journal.jsonl", Some("{}\n")).contains("folder"));
    }
}
