//! What is written from the journals of stored runs. After a change of its looks: `UPDATE=1 cargo test --test cli report`.

use std::path::Path;
use std::process::Command;

use autotune::journal::read;

use crate::workbench::{BINARY, project};

/// Compares files with those that are stored, or stores them.
fn as_stored(stored: &Path, written: &Path, files: &[&str]) {
    for file in files {
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(stored).unwrap();
            std::fs::copy(written.join(file), stored.join(file)).unwrap();
        }
        let [before, now] = [stored, written].map(|folder| std::fs::read_to_string(folder.join(file)).unwrap());
        assert!(before == now, "{}/{file} is not what the program writes: UPDATE=1 writes it anew", stored.display());
    }
}

/// Copies what a report is made from.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("requests")).unwrap();
    std::fs::copy(from.join("journal.jsonl"), to.join("journal.jsonl")).unwrap();
    for entry in std::fs::read_dir(from.join("requests")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join("requests").join(entry.file_name())).unwrap();
    }
}

#[test]
fn the_reports_of_stored_runs_are_what_the_program_writes() {
    let folder = tempfile::tempdir().unwrap();
    for run in ["results/h200-8b", "results/h200-70b", "results/h200-8b-two-gpus"] {
        let (stored, written) = (project().join(run), folder.path().join(run));
        copy(&stored, &written);
        let report = Command::new(BINARY).args(["report", run]).current_dir(folder.path()).output().unwrap();
        assert!(report.status.success(), "{run}: {}", String::from_utf8_lossy(&report.stderr));
        as_stored(&stored, &written, &["report.html", "report.md"]);
    }
}

#[test]
fn the_results_of_a_stored_journal_are_what_the_program_writes() {
    let folder = tempfile::tempdir().unwrap();
    let journal = read(&std::fs::read(project().join("results/h200-70b/journal.jsonl")).unwrap()).unwrap();
    autotune::report::write(folder.path(), &journal).unwrap();
    as_stored(&project().join("tests/data/reported"), folder.path(), &["outcome.json", "trials.csv", "args.txt"]);
}
