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
    let bench = Workbench::too_short();
    for (stdout, stderr) in [(full(), closed()), (closed(), full())] {
        // The second run shows what the first one found.
        let status = bench.command(&[]).stdout(stdout).stderr(stderr).status().unwrap();
        assert!(bench.measured_nothing(status), "{status:?}");
    }
    // Without any standard stream at all.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" <&- >&- 2>&-", BINARY]);
    let bare = Workbench::too_short();
    let status = bare.through(shell, &[]).status().unwrap();
    assert!(bare.measured_nothing(status), "{status:?}");
    bare.assert_nothing_left();
    bench.assert_nothing_left();
}

#[test]
fn colour_is_for_those_who_force_it_and_never_for_those_who_refuse_it() {
    let bench = Workbench::new("", "candidates = 1");
    let forced = bench.command(&[]).env("CLICOLOR_FORCE", "1").output().unwrap();
    let (shown, progress) = (String::from_utf8_lossy(&forced.stdout), String::from_utf8_lossy(&forced.stderr));
    assert!(
        shown.contains("\u{1b}[1mNext:\u{1b}[0m") && progress.contains("\u{1b}[2mengine time: "),
        "{progress}\n{shown}"
    );
    // What the first run found is shown again.
    let refused = bench.command(&[]).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").output().unwrap();
    assert!(!said(&refused).contains('\u{1b}') && said(&refused).contains("Next:"), "{}", said(&refused));
    bench.assert_nothing_left();
}

#[test]
fn every_line_of_a_json_log_is_an_object() {
    let bench = Workbench::new("", "candidates = 1");
    let run = bench.run(&["--log", "json", "-v"]);
    let lines: Vec<serde_json::Value> = String::from_utf8(run.stderr)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let events: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(events.len(), lines.len(), "{lines:?}");
    for event in ["message", "begun", "launching", "ready", "probing", "probed"] {
        assert!(events.contains(&event), "{event} is missing in {events:?}");
    }
    let probed = lines.iter().find(|line| line["event"] == "probed" && !line["rate"].is_null()).unwrap();
    assert!(probed["trial"].is_u64() && probed["outcome"].is_string() && probed["at"].is_string(), "{probed}");
    bench.assert_nothing_left();
}
