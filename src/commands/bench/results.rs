//! The files of a benchmark: their folder is made before the first request, so that a long run cannot fail at its end.

use std::path::{Path, PathBuf};

use super::super::Failed;
use super::super::load::fresh_folder;
use crate::load::write_records;
use crate::private::create_file;
use crate::report::bench::{Level, Offered, Summary, vllm_keys};
use crate::report::replace;

pub(super) struct Folder {
    path: PathBuf,
    /// Names of levels that were written: a load that is measured twice has two files.
    names: Vec<String>,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, Failed> {
        fresh_folder(path, &["ladder.json", "find.json"], "benchmark")?;
        Ok(Self { path: path.to_owned(), names: Vec::new() })
    }

    /// Writes what a level was: `rate-2.json` and `rate-2.requests.csv`, or the like.
    pub(super) fn keep(&mut self, level: &Level, summary: &Summary) -> Result<(), Failed> {
        let name = match level.offered {
            Offered::Rate(rate) => format!("rate-{}", rate.0),
            Offered::Users(users) => format!("users-{users}"),
            Offered::AllAtOnce(requests) => format!("at-once-{requests}"),
            Offered::Recorded => "recorded".to_owned(),
        };
        self.names.push(name.clone());
        let before = self.names.iter().filter(|other| **other == name).count();
        let name = if before > 1 { format!("{name}-again-{before}") } else { name };
        self.write(&format!("{name}.json"), format!("{:#}\n", vllm_keys(level, summary)).as_bytes())?;
        let csv = self.path.join(format!("{name}.requests.csv"));
        let written = create_file(&csv).and_then(|file| write_records(&level.records, file));
        written.map_err(|e| Failed::own(format!("error: failed to write {}: {e}", csv.display())))
    }

    pub(super) fn says(&self) -> String {
        let whole = if self.path.join("find.json").exists() { "find.json" } else { "ladder.json" };
        format!("results: {} ({whole}, and a .json and a .requests.csv for each level)", self.path.display())
    }

    /// Writes a file that is made to be shared.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<(), Failed> {
        replace(&self.path.join(name), content).map_err(|e| Failed::own(format!("error: {e}")))
    }
}
