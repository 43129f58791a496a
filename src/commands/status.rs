//! `autotune status DIR`: where a run stands that another process works on.

use std::path::Path;

use super::report::read_journal;
use super::{Failed, exit, print};
use crate::{clock, journal, report};

pub(super) fn status(folder: &Path) -> Result<u8, Failed> {
    let journal = read_journal(folder)?;
    print(&report::standing(&journal, folder, clock::unix_seconds(), journal::in_use(folder)))?;
    Ok(exit::FOUND)
}
