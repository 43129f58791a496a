//! What people and scripts read. Reports of a session are made from its journal and its requests, those of a benchmark from its records. Those of a
//! rehearsal are made from what it simulated, those of a calibration from what it fitted.

pub mod bench;
mod calibration;
mod compare;
pub mod comparison;
mod data;
mod html;
mod markdown;
mod outcome;
mod rehearsal;
mod standing;
mod summary;
mod trials;

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::engine::flags;
use crate::journal::Journal;

pub use calibration::calibration;
pub use compare::{Compared, compare};
pub use html::comparison_page;
pub use outcome::{Answer, Outcome, VERSION, last_words, of_last_words, outcome};
pub use rehearsal::rehearsal;
pub use standing::standing;
pub use summary::failed_start;
pub(crate) use summary::summary;

/// The JSON schema of `outcome.json`.
pub const OUTCOME_SCHEMA: &str = include_str!("outcome.schema.json");

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
#[error("failed to write {path}: {source}")]
pub struct ReportError {
    path: PathBuf,
    source: std::io::Error,
}

/// Writes `outcome.json`, `trials.csv` and, once there is an answer, `args.txt` and perhaps `env.txt` beside the journal. Each is replaced as a whole.
pub fn write(folder: &Path, journal: &Journal) -> Result<(), ReportError> {
    let outcome = outcome(journal);
    replace(&folder.join("outcome.json"), pretty_json(&outcome).as_bytes())?;
    let csv_path = folder.join("trials.csv");
    let csv = trials::trials_csv(journal).map_err(|source| ReportError { path: csv_path.clone(), source })?;
    replace(&csv_path, &csv)?;
    if let Some(best) = &outcome.best {
        replace(&folder.join("args.txt"), args_txt(&best.arguments).as_bytes())?;
        if !best.environment.is_empty() {
            replace(&folder.join("env.txt"), env_txt(best).as_bytes())?;
        }
    }
    Ok(())
}

/// Writes `report.html` and `report.md` beside the journal, from it and the requests that lie there. `rehearsed` is the profile of a session that
/// was rehearsed: its report says that nothing was measured.
pub fn write_report(folder: &Path, journal: &Journal, rehearsed: Option<&str>) -> Result<[PathBuf; 2], ReportError> {
    let data = data::ReportData::new(journal, folder).rehearsed(rehearsed);
    let paths = [folder.join("report.html"), folder.join("report.md")];
    replace(&paths[0], html::page(&data).as_bytes())?;
    replace(&paths[1], markdown::markdown(&data).as_bytes())?;
    Ok(paths)
}

/// The name of a value in JSON; empty where JSON has no text for it.
pub(crate) fn word(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// JSON for files and pipes, the same wherever it is written, so that its digest is too. Empty where a value cannot be JSON, which none of ours is.
pub fn pretty_json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// The winning flags, one a line with its value, ready to paste behind the engine's command in a shell.
fn args_txt(arguments: &[String]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in arguments {
        match lines.last_mut() {
            Some(line) if !word.starts_with("--") && line.starts_with("--") && !line.contains(' ') => {
                line.push(' ');
                line.push_str(&shell_quoted(word));
            }
            _ => lines.push(shell_quoted(word)),
        }
    }
    lines.join(" \\\n") + "\n"
}

/// The winning variables of the engine's environment, one a line.
fn env_txt(best: &Answer) -> String {
    best.environment.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// A word as a POSIX shell reads it back.
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The full list of arguments of a point: those fixed in the space file, then the point's.
fn arguments(journal: &Journal, point: &crate::space::Point) -> Vec<String> {
    let Some(engine) = journal.header().map(|header| &header.plan.engine) else { return Vec::new() };
    engine.args.iter().cloned().chain(flags(engine.kind, point)).collect()
}

/// Replaces a file as a whole: nobody ever reads half of it.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), ReportError> {
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().permissions(readable()).tempfile_in(folder)?;
        file.write_all(content)?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|source| ReportError { path: path.to_owned(), source })
}

/// Results are for everybody; temporary files are private by default.
fn readable() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::Permissions::from_mode(0o644)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_can_be_pasted_into_a_shell() {
        let words =
            ["--max-model-len", "8192", "--no-enable-prefix-caching", "--speculative-config", "{\"method\": \"it's\"}"];
        let expected = "--max-model-len 8192 \\\n--no-enable-prefix-caching \\\n--speculative-config '{\"method\": \"it'\\''s\"}'\n";
        assert_eq!(args_txt(&words.map(str::to_owned)), expected);
    }
}
