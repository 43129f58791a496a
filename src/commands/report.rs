//! `autotune report DIR`: the report of a run, made anew from what its folder holds; with another folder, two runs side by side.

use std::path::Path;

use super::export::read_outcome;
use super::{Failed, complain, exit, print};
use crate::journal::{self, Journal};
use crate::report;

pub(super) fn report(folder: &Path, other: Option<&Path>) -> Result<u8, Failed> {
    if let Some(other) = other {
        print(&report::compare(&compared(folder)?, &compared(other)?))?;
        return Ok(exit::FOUND);
    }
    let journal = read_journal(folder)?;
    let paths = report::write_report(folder, &journal, None).map_err(|e| Failed::own(format!("error: {e}")))?;
    print(&paths.iter().map(|path| format!("{}\n", path.display())).collect::<String>())?;
    Ok(exit::FOUND)
}

fn compared(place: &Path) -> Result<report::Compared, Failed> {
    let (outcome, _) = read_outcome(place)?;
    let folder = if place.is_dir() { place } else { place.parent().unwrap_or(Path::new("")) };
    let header = folder.join(journal::FILE).exists().then(|| read_journal(folder)).transpose()?;
    let header = header.and_then(|journal| journal.header().cloned());
    Ok(report::Compared { name: place.display().to_string(), outcome, header })
}

pub(super) fn read_journal(folder: &Path) -> Result<Journal, Failed> {
    let path = folder.join(journal::FILE);
    let bytes = std::fs::read(&path).map_err(|e| {
        Failed::usage(format!("error: failed to read {}: {e}; DIR is the folder that a run wrote into", path.display()))
    })?;
    let journal = journal::read(&bytes).map_err(|e| Failed::usage(format!("error: {}: {e}", path.display())))?;
    if journal.header().is_none() {
        return Err(Failed::usage(format!("error: {} records no run: its first line is no header", path.display())));
    }
    Ok(journal)
}

/// Writes the report of a run that ends. The answer is in other files: a report that cannot be written is a warning.
pub(super) fn beside(folder: &Path, journal: &Journal) {
    let written = std::panic::catch_unwind(|| report::write_report(folder, journal, None));
    let why = match written {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "this is a fault of the program".to_owned(),
    };
    complain(&format!("warning: report.html and report.md are not up to date: {why}"));
}
