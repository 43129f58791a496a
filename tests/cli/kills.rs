//! The tuner dies at any moment: nothing is left, nothing is lost, nothing is paid twice.

use std::process::{Child, ExitStatus};
use std::time::Duration;

use autotune::journal::{Journal, Record};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::workbench::{BINARY, Workbench, said, started_in};

/// Numbers that differ from run to run: a kill shall hit another moment each time.
fn moments(count: usize, longest_ms: u64) -> Vec<Duration> {
    use std::hash::{BuildHasher, RandomState};
    (0..count).map(|i| Duration::from_millis(RandomState::new().hash_one(i) % longest_ms)).collect()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

/// Kills the program at each of the moments, resumes it each time, and lets the last run end.
fn interrupted(bench: &Workbench, with: Signal, moments: &[Duration]) -> ExitStatus {
    for moment in moments {
        let mut child = bench.command(&["--resume", "--quiet"]).spawn().unwrap();
        std::thread::sleep(*moment);
        if child.try_wait().unwrap().is_none() {
            signal(&child, with);
        }
        let status = child.wait().unwrap();
        bench.assert_nothing_left();
        if with == Signal::SIGTERM && !matches!(status.code(), Some(0 | 6)) {
            // In the first milliseconds nobody listens yet, and the signal simply ends the program.
            assert!(status.code() == Some(5) || status.code().is_none(), "{status:?}");
        }
    }
    let last = bench.run(&["--resume"]);
    bench.assert_nothing_left();
    println!("{}", said(&last));
    last.status
}

/// Every probe was paid for once.
fn assert_nothing_paid_twice(journal: &Journal) {
    let mut paid: Vec<(u32, u32)> = journal
        .entries
        .iter()
        .filter_map(|e| match &e.record {
            Record::Probed { trial, probe, .. } => Some((*trial, *probe)),
            _ => None,
        })
        .collect();
    let all = paid.len();
    paid.sort_unstable();
    paid.dedup();
    assert_eq!(paid.len(), all, "a probe stands twice in the journal");
}

#[test]
fn sigkill_at_any_moment_leaves_nothing_behind_and_the_journal_resumes() {
    let bench = Workbench::new("", "");
    let status = interrupted(&bench, Signal::SIGKILL, &moments(4, 2000));
    assert!(matches!(status.code(), Some(0 | 6)), "{status:?}");
    assert_nothing_paid_twice(&bench.journal());
}

#[test]
fn sigterm_stops_the_engine_first_and_says_how_to_resume() {
    let bench = Workbench::new("", "");
    let child = bench.command(&[]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    signal(&child, Signal::SIGTERM);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    assert!(said(&output).contains("--resume"), "{}", said(&output));
    assert!(bench.living().is_empty(), "the engine is gone before the program is");
    let without = bench.run(&[]);
    assert_eq!(without.status.code(), Some(2));
    assert!(said(&without).contains("--resume") && said(&without).contains("--fresh"));
    let status = interrupted(&bench, Signal::SIGTERM, &moments(2, 2000));
    assert!(matches!(status.code(), Some(0 | 6)), "{status:?}");
    assert_nothing_paid_twice(&bench.journal());
}

#[test]
fn a_second_interrupt_is_immediate_even_if_the_engine_ignores_the_first() {
    let bench = Workbench::new("args = [\"--sim-fault\", \"orphan\"]\nstop_timeout = \"60s\"", "");
    let child = bench.command(&[]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    signal(&child, Signal::SIGINT);
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, Signal::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    bench.assert_nothing_left();
}

/// The guardian of the bench's engine, once one runs.
fn guardian(bench: &Workbench) -> Pid {
    for _ in 0..600 {
        let serves = |entry: &autotune::journal::Entry| matches!(entry.record, Record::Ready { .. });
        let journal = bench.journal();
        if journal.entries.iter().any(serves)
            && let Some(spawned) = journal.unstopped().last()
        {
            return Pid::from_raw(spawned.group.guardian);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("no engine ever served");
}

#[test]
fn a_tuner_and_a_guardian_that_are_killed_together_leave_no_engine() {
    // As vLLM does, whose workers are children of the process that was started.
    let engine = format!("command = [\"setsid\", \"--fork\", \"--wait\", \"{BINARY}\", \"sim-engine\"]");
    let bench = Workbench::with_budget(&engine, "", "60s");
    let mut child = bench.command(&["--quiet"]).spawn().unwrap();
    let guardian = guardian(&bench);
    assert_eq!(std::fs::read_to_string(format!("/proc/{guardian}/comm")).unwrap().trim(), "engine-guardian");
    signal(&child, Signal::SIGKILL);
    kill(guardian, Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    let left = |bench: &Workbench| started_in(&bench.path("tmp")).len();
    for _ in 0..200 {
        if left(&bench) == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} processes are left", left(&bench));
}

#[test]
fn an_engine_in_a_session_of_its_own_does_not_outlive_its_guardian() {
    let engine = format!("command = [\"setsid\", \"--fork\", \"--wait\", \"{BINARY}\", \"sim-engine\"]");
    let bench = Workbench::with_budget(&engine, "candidates = 1", "8s");
    let child = bench.command(&["--quiet"]).spawn().unwrap();
    kill(guardian(&bench), Signal::SIGKILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.code().is_some(), "{}", said(&output));
    assert_eq!(started_in(&bench.path("tmp")), Vec::<i32>::new(), "{}", said(&output));
}

/// The whole quickstart, ten kills, against the undisturbed run: `cargo test --release -- --ignored`, about four minutes.
#[test]
#[ignore = "takes minutes; .ci/run runs it"]
fn ten_kills_of_a_quickstart_give_the_answer_of_the_undisturbed_run() {
    let quickstart = crate::workbench::project().join("search-spaces/quickstart.toml");
    let rate = |bench: &Workbench| {
        let best = bench.outcome().best.unwrap();
        best.certified_rate.or(best.estimated_rate).unwrap().0
    };
    let undisturbed = Workbench::new("", "");
    std::fs::copy(&quickstart, undisturbed.path("space.toml")).unwrap();
    let run = undisturbed.run(&["--quiet"]);
    assert!(matches!(run.status.code(), Some(0 | 6)), "{}", said(&run));
    for with in [Signal::SIGKILL, Signal::SIGTERM] {
        let bench = Workbench::new("", "");
        std::fs::copy(&quickstart, bench.path("space.toml")).unwrap();
        let status = interrupted(&bench, with, &moments(10, 7000));
        assert!(matches!(status.code(), Some(0 | 6)), "{status:?}");
        assert_nothing_paid_twice(&bench.journal());
        let (disturbed, undisturbed) = (rate(&bench), rate(&undisturbed));
        println!("{with}: {disturbed} against {undisturbed} req/s undisturbed");
        // Measurement noise on a shared machine: both are readings of an engine whose best points lie within a tenth.
        assert!((disturbed / undisturbed).ln().abs() < 0.3, "{disturbed} against {undisturbed}");
    }
}
