//! The journal on disk: locked, appended, synced.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tracing::debug;

use super::FILE;
use super::entry::{Entry, Header, Record};
use super::reader::{Journal, ReadError, read};
use crate::private::create_folder;
use autotune_clock as clock;
use autotune_plan::settings::redact_plan;

/// Why a journal could not be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("failed to write {path}: {source}")]
    Disk { path: PathBuf, source: std::io::Error },
    #[error("{0} is in use by another run of autotune; wait for it, or use another --out")]
    Locked(PathBuf),
    #[error("failed to read {path}: {source}; restore it from a copy, or start again with --fresh")]
    Unread { path: PathBuf, source: ReadError },
    #[error("{path} belongs to another job: {difference}; use another --out, or --fresh to put it aside")]
    OtherJob { path: PathBuf, difference: String },
    #[error(
        "{path} holds an interrupted run of this job; add --resume to continue it, or --fresh to put it aside and start again"
    )]
    Unfinished { path: PathBuf },
}

pub struct Writer {
    file: File,
    path: PathBuf,
}

pub struct Opened {
    /// For the records to come.
    pub writer: Writer,
    pub journal: Journal,
}

impl Writer {
    /// Appends a record and syncs it.
    pub fn append(&mut self, record: Record) -> Result<Entry, JournalError> {
        let entry = Entry { at: clock::unix_seconds(), record };
        let disk = |source| JournalError::Disk { path: self.path.clone(), source };
        let mut line = serde_json::to_vec(&entry).map_err(|e| disk(e.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).and_then(|()| self.file.sync_data()).map_err(disk)?;
        // {"at":1.0,"record":{"ready": or {"at":1.0,"record":"interrupted"
        let kind = line.split(|byte| *byte == b'"').nth(5).map(String::from_utf8_lossy);
        debug!(kind = kind.as_deref(), bytes = line.len(), "a record is written");
        Ok(entry)
    }
}

/// Opens the journal of a folder, making both where they are not there; `resume` says that an unfinished one shall be continued.
pub fn open(folder: &Path, header: Header, resume: bool) -> Result<Opened, JournalError> {
    let path = folder.join(FILE);
    let disk = |source| JournalError::Disk { path: path.clone(), source };
    create_folder(folder).map_err(disk)?;
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path).map_err(disk)?;
    lock(&file, &path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(disk)?;
    let journal = read(&bytes).map_err(|source| JournalError::Unread { path: path.clone(), source })?;
    if journal.whole_bytes < bytes.len() as u64 {
        file.set_len(journal.whole_bytes).map_err(disk)?;
    }
    let mut opened = Opened { writer: Writer { file, path: path.clone() }, journal };
    match opened.journal.header() {
        Some(found) => {
            if let Some(difference) = difference(found, &header) {
                return Err(JournalError::OtherJob { path, difference });
            }
            // A journal with a header alone has nothing to lose.
            if opened.journal.entries.len() > 1 && opened.journal.conclusion().is_none() && !resume {
                return Err(JournalError::Unfinished { path });
            }
        }
        None if !opened.journal.entries.is_empty() => {
            let source = ReadError::Damaged { line: 1, what: "the header is missing".into() };
            return Err(JournalError::Unread { path, source });
        }
        None => {
            let entry = opened.writer.append(Record::Header(Box::new(header)))?;
            opened.journal.entries.push(entry);
            // Syncs the folder's entry of the new file, which a power cut could lose.
            File::open(folder).and_then(|f| f.sync_all()).map_err(disk)?;
        }
    }
    Ok(opened)
}

/// Whether a run works in the folder: it holds the lock of the journal to itself. This asks for a shared lock, which several readers can have at
/// once, and gives it back before it returns.
pub fn in_use(folder: &Path) -> bool {
    let opened = File::open(folder.join(FILE));
    opened.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Takes the lock of a journal, and makes sure that no other run has moved the file since it was opened.
fn lock(file: &File, path: &Path) -> Result<(), JournalError> {
    let disk = |source| JournalError::Disk { path: path.to_owned(), source };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(JournalError::Locked(path.to_owned())),
        Err(TryLockError::Error(source)) => return Err(disk(source)),
    }
    let place = |found: Metadata| (found.dev(), found.ino());
    let ours = file.metadata().map(place).map_err(disk)?;
    match std::fs::metadata(path).map(place) {
        Ok(there) if there == ours => Ok(()),
        // Another run put it aside between our opening and our lock.
        _ => Err(JournalError::Locked(path.to_owned())),
    }
}

/// Moves a folder with a journal to `NAME.previous-N` beside it: hours of GPU time are never deleted. A folder without one stays. Returns what
/// could be read of the journal.
pub fn put_aside(folder: &Path) -> Result<Option<Journal>, JournalError> {
    let path = folder.join(FILE);
    let disk = |source| JournalError::Disk { path: path.clone(), source };
    // Held until the folder has its new name.
    let mut file = match OpenOptions::new().read(true).append(true).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(disk)?,
    };
    lock(&file, &path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(disk)?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut numbered = (1_u32..).map(|number| folder.with_file_name(format!("{name}.previous-{number}")));
    let aside = numbered.find(|aside| !aside.exists()).unwrap_or_default();
    std::fs::rename(folder, aside).map_err(disk)?;
    Ok(read(&bytes).ok())
}

/// What differs between two jobs, as paths into the plan. The budget may differ, since a resumed run may be given more, and so may the port, which
/// may be taken by then.
fn difference(found: &Header, wanted: &Header) -> Option<String> {
    let json = |header: &Header| {
        // Earlier versions took other texts for secrets.
        let mut plan = serde_json::to_value(redact_plan(&header.plan)).unwrap_or_default();
        if let Some(plan) = plan.as_object_mut() {
            plan.remove("budget");
            plan.get_mut("engine").and_then(|engine| engine.as_object_mut()).map(|engine| engine.remove("port"));
            plan.insert("seed".into(), header.seed.into());
            plan.insert("digest of the workload's file".into(), header.workload_digest.into());
            plan.insert("workers".into(), header.workers.into());
        }
        plan
    };
    let mut differences = Vec::new();
    differ("", &json(found), &json(wanted), &mut differences);
    let more = differences.len().saturating_sub(3);
    differences.truncate(3);
    let mut text = differences.join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    (!text.is_empty()).then_some(text)
}

fn differ(path: &str, found: &serde_json::Value, wanted: &serde_json::Value, out: &mut Vec<String>) {
    match (found, wanted) {
        (serde_json::Value::Object(a), serde_json::Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let null = serde_json::Value::Null;
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                differ(&path, a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null), out);
            }
        }
        (a, b) if a != b => out.push(format!("{path} was {a}, is now {b}")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(workload_digest: Option<u64>) -> Header {
        Header {
            format: super::super::FORMAT,
            records_format: super::super::RECORDS_FORMAT,
            autotune: "0.1.0".into(),
            space_file: "x.toml".into(),
            seed: 1,
            plan: crate::quickstart::quickstart(&[]),
            workload_digest,
            workers: 1,
        }
    }

    #[test]
    fn a_changed_workload_file_is_another_job() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), header(Some(7)), false).unwrap());
        assert!(open(folder.path(), header(Some(7)), true).is_ok());
        let Err(error) = open(folder.path(), header(Some(8)), true) else { panic!("another file was accepted") };
        assert!(error.to_string().contains("digest of the workload's file was 7, is now 8"), "{error}");
    }

    #[test]
    fn a_run_on_another_port_is_the_same_job() {
        let folder = tempfile::tempdir().unwrap();
        let on_a_port = || {
            let mut header = header(None);
            header.plan.engine.port = Some(8011);
            header
        };
        drop(open(folder.path(), on_a_port(), false).unwrap());
        assert!(open(folder.path(), header(None), true).is_ok());
    }

    #[test]
    fn a_folder_in_which_a_run_is_at_work_is_not_put_aside() {
        let parent = tempfile::tempdir().unwrap();
        let (folder, aside) = (parent.path().join("d"), parent.path().join("d.previous-1"));
        put_aside(&folder).unwrap();
        let at_work = open(&folder, header(None), false).unwrap();
        let error = put_aside(&folder).err().unwrap().to_string();
        assert!(error.ends_with(" is in use by another run of autotune; wait for it, or use another --out"), "{error}");
        assert!(folder.join(FILE).exists() && !aside.exists());
        drop(at_work);
        assert_eq!(put_aside(&folder).unwrap().unwrap().entries.len(), 1);
        assert!(!folder.exists() && aside.join(FILE).exists());
    }

    #[test]
    fn a_journal_that_was_moved_before_it_was_locked_is_not_taken() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("d");
        drop(open(&folder, header(None), false).unwrap());
        let opened = File::open(folder.join(FILE)).unwrap();
        put_aside(&folder).unwrap();
        assert!(matches!(lock(&opened, &folder.join(FILE)), Err(JournalError::Locked(_))));
    }

    #[test]
    fn a_run_with_another_number_of_workers_is_another_job() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), Header { workers: 2, ..header(None) }, false).unwrap());
        let Err(error) = open(folder.path(), header(None), true) else { panic!("one worker was accepted") };
        assert!(error.to_string().contains("workers was 2, is now 1"), "{error}");
    }

    #[test]
    fn a_header_from_before_there_were_workload_files_and_workers_is_one_without() {
        let mut json = serde_json::to_value(header(None)).unwrap();
        json.as_object_mut().unwrap().remove("workload_digest").unwrap();
        json.as_object_mut().unwrap().remove("workers").unwrap();
        assert_eq!(serde_json::from_value::<Header>(json).unwrap(), header(None));
    }
}
