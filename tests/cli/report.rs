//! The reports of stored runs. After a change of their looks: `UPDATE=1 cargo test --test cli report`.

use std::path::Path;
use std::process::Command;

use crate::workbench::{BINARY, project};

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
        for file in ["report.html", "report.md"] {
            if std::env::var_os("UPDATE").is_some() {
                std::fs::copy(written.join(file), stored.join(file)).unwrap();
            }
            let [stored, written] =
                [&stored, &written].map(|folder| std::fs::read_to_string(folder.join(file)).unwrap());
            assert!(stored == written, "{run}/{file} is not what the program writes: write it anew with UPDATE=1");
        }
    }
}
