//! An engine of several processes: which of them ended, and another frontend beside workers that stay.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::workbench::{BINARY, said};

/// A graph in that folder, whose processes are shells.
fn graph(folder: &std::path::Path, workers: &str, frontend: &str, worker: &str) -> Command {
    let mut command = Command::new(BINARY);
    let change = folder.join("frontend");
    command.args(["graph", "--port", "4242", "--workers", workers, "--change"]).arg(change);
    command.args(["--", "sh", "-c", frontend, "---", "sh", "-c", worker]).env("TMPDIR", folder);
    command
}

#[test]
fn a_graph_ends_as_the_first_of_its_processes_and_says_which() {
    let folder = tempfile::tempdir().unwrap();
    // The first worker to find no file is the only one to end; the others end with their input.
    let once = "mkdir \"$DYN_FILE_KV/taken\" 2>/dev/null || exec sleep 2; echo last words; exit 9";
    let output = graph(folder.path(), "2", "exec sleep 2", once).output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{}", said(&output));
    assert!(said(&output).contains(" of 2 of the graph ended: exit code 9"), "{}", said(&output));
    assert!(said(&output).contains(") last words\n"), "each line says who said it: {}", said(&output));
    let pages = said(&output).matches(": metrics at http://127.0.0.1:").count();
    assert_eq!(pages, 2);
    let output = graph(folder.path(), "1", "kill -9 $$", "exec sleep 2").output().unwrap();
    assert_eq!(output.status.code(), Some(137));
    assert!(said(&output).contains("the frontend of the graph ended: signal 9"), "{}", said(&output));
}

#[test]
fn a_frontend_is_started_anew_beside_its_workers() {
    let folder = tempfile::tempdir().unwrap();
    let worker = "echo worker; exec sleep 20";
    let mut running = graph(folder.path(), "1", "echo first $DYN_HTTP_PORT; exec sleep 20", worker)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("first 4242")));
    // It appears whole.
    std::fs::write(folder.path().join("new"), "1\nsh\n-c\necho second; exit 7\n\n").unwrap();
    std::fs::rename(folder.path().join("new"), folder.path().join("frontend")).unwrap();
    let rest: Vec<String> = lines.collect();
    assert_eq!(running.wait().unwrap().code(), Some(7), "{rest:?}");
    assert!(rest.iter().any(|line| line.starts_with("(Frontend pid=") && line.ends_with(" second")), "{rest:?}");
    assert!(rest.iter().filter(|line| line.ends_with(" worker")).count() <= 1, "the worker stays: {rest:?}");
    let done = std::fs::read_to_string(folder.path().join("frontend.done")).unwrap();
    assert_eq!(done, "1");
}
