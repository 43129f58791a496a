//! Standard output and standard error that cannot be written: the files are the product, and the exit code tells of them.

use std::fs::OpenOptions;
use std::process::{Command, Output, Stdio};

use crate::workbench::{BINARY, Workbench, said};

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// The end of a pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn check(bench: &Workbench, stdout: Stdio) -> Output {
    let mut check = Command::new(BINARY);
    check.args(["check", "--space"]).arg(bench.path("space.toml")).stdout(stdout).stderr(Stdio::piped());
    check.output().unwrap()
}

#[test]
fn a_result_that_cannot_be_printed_is_a_failure_and_a_closed_pipe_is_none() {
    let bench = Workbench::new("", "");
    let unprinted = check(&bench, full());
    assert_eq!(unprinted.status.code(), Some(1), "{}", said(&unprinted));
    assert!(said(&unprinted).contains("failed to write to standard output"), "{}", said(&unprinted));
    let unread = check(&bench, closed());
    assert_eq!((unread.status.code(), said(&unread).as_str()), (Some(0), ""));
}

#[test]
fn a_session_that_nobody_can_be_told_of_leaves_its_answer_and_its_exit_code() {
    let bench = Workbench::with_budget("", "candidates = 1", "4s");
    for (stdout, stderr) in [(full(), closed()), (closed(), full())] {
        // The second run shows what the first one found.
        let status = bench.command(&[]).stdout(stdout).stderr(stderr).status().unwrap();
        assert!(bench.has_ended(status), "{status:?}");
    }
    // Without any standard stream at all.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" <&- >&- 2>&-", BINARY]);
    let bare = Workbench::with_budget("", "candidates = 1", "4s");
    let status = bare.through(shell, &[]).status().unwrap();
    assert!(bare.has_ended(status), "{status:?}");
    assert!(!bare.outcome().because.is_empty());
    bare.assert_nothing_left();
    bench.assert_nothing_left();
}
