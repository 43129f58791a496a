//! A source of measured probes: its path, the configuration that the command line gives, and its file format.

use std::path::PathBuf;

use super::configuration::{Configuration, ConfigurationError};
use super::evidence::{Evidence, SourceError, request_file, unreadable, unusable};
use super::{bench_file, journal};
use crate::journal::FILE;

/// A path, and the configuration that its file does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// A folder of a run, a CSV of requests, or a JSON result of `vllm bench serve`.
    pub path: PathBuf,
    /// What the command line says of its engine.
    pub given: Configuration,
}

impl Source {
    /// Reads `PATH` or `PATH,FLAG=VALUE,FLAG=VALUE`; a comma that no `FLAG=VALUE` follows belongs to the path.
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        let (mut path, mut given) = (text, Configuration::default());
        while let Some((before, setting)) = path.rsplit_once(',').filter(|(_, setting)| setting.contains('=')) {
            given = given.or(&Configuration::parse(setting)?);
            path = before;
        }
        Ok(Self { path: path.into(), given })
    }

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
            let bytes = std::fs::read(path).map_err(|source| unreadable(path, source))?;
            if path.file_name().is_some_and(|name| name == FILE) {
                let why = "a journal alone is not enough, its request files are needed too\n  = hint: give the folder of the run";
                return Err(unusable(path, why));
            }
            let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
            if first.is_some_and(|byte| b"{[".contains(byte)) {
                bench_file::read(&name, &bytes).map_err(|why| unusable(path, &why))?
            } else {
                request_file(path, &name, &bytes)?
            }
        };
        evidence.name = name;
        evidence.configured(&self.given);
        Ok(evidence)
    }
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
        assert!(said("journal.jsonl", Some("{}\n")).ends_with("\n  = hint: give the folder of the run"));
    }
}
