//! Engines that fail in every way they do: each is seen, recorded with its cause, and nothing of it is left.

use std::process::{Command, ExitStatus};

use autotune::engine::diagnosis::Cause;
use autotune::journal::Record;

use crate::workbench::{BINARY, Workbench, said};

/// Runs a job whose engine has a fault, and returns its exit code and the recorded causes.
///
/// What a session makes of each failure is tested in virtual time. Here failures are real, and one of them is enough. The fault
/// strikes in the first probe, and the budget ends soon after.
fn run(fault: &str, engine: &str) -> (Workbench, ExitStatus, Vec<Cause>, String) {
    let engine = format!("args = [\"--sim-fault\", \"{fault}\", \"--sim-fault-after\", \"30\"]\n{engine}");
    let bench = Workbench::with_budget(&engine, "candidates = 1", "7s");
    let run = bench.run(&[]);
    let causes = bench
        .journal()
        .entries
        .iter()
        .filter_map(|e| match &e.record {
            Record::NotReady { failure, .. } | Record::Broken { failure, .. } => Some(failure.diagnosis.cause),
            _ => None,
        })
        .collect();
    bench.assert_nothing_left();
    (bench, run.status, causes, said(&run))
}

#[test]
fn an_engine_that_dies_under_load_is_recorded_and_the_run_goes_on() {
    let (bench, status, causes, said) = run("die-in-load", "");
    assert!(!causes.is_empty() && said.contains("the engine died under load: "), "{said}");
    assert!(bench.measured_nothing(status), "{status:?} {said}");
    let relaunched = bench.journal().entries.iter().any(|e| matches!(e.record, Record::Launching { attempt: 2, .. }));
    assert!(relaunched, "a death may be an accident: it is launched once more\n{said}");
}

#[test]
fn out_of_memory_under_load_is_told_apart_although_the_exit_code_is_0() {
    let (_, _, causes, said) = run("oom-in-load", "");
    assert!(causes.contains(&Cause::OutOfMemory), "{causes:?}\n{said}");
}

#[test]
fn an_engine_whose_core_is_killed_under_load_has_failed_although_streams_end_with_200_and_the_exit_code_is_0() {
    let (bench, _, causes, said) = run("core-killed-in-load", "");
    assert!(!causes.is_empty() && said.contains("the engine died under load: "), "{causes:?}\n{said}");
    let relaunched = bench.journal().entries.iter().any(|e| matches!(e.record, Record::Launching { attempt: 2, .. }));
    assert!(relaunched, "a death may be an accident: it is launched once more\n{said}");
}

#[test]
fn a_missing_model_ends_the_run_at_once() {
    let (bench, status, causes, said) = run("model-missing", "");
    assert_eq!((status.code(), causes.as_slice()), (Some(4), &[Cause::ModelMissing][..]), "{said}");
    assert_eq!(bench.journal().entries.iter().filter(|e| matches!(e.record, Record::Launching { .. })).count(), 1);
}

#[test]
fn an_engine_that_hangs_while_health_says_200_is_seen_by_its_silence() {
    let (_, status, causes, said) = run("hang-in-load", "");
    // Whichever comes first: a request of the load, or the single one before it.
    let hangs = [
        "the engine hangs: requests waited and no token came for ",
        "the engine hangs: it gave no answer to a single request",
    ];
    assert!(causes.contains(&Cause::Timeout) && hangs.iter().any(|words| said.contains(words)), "{causes:?}\n{said}");
    assert!(status.code().is_some(), "{said}");
}

#[test]
fn requests_that_do_not_fit_the_engine_are_said_at_the_first() {
    let bench = Workbench::with_budget("args = [\"--max-model-len\", \"64\"]", "candidates = 1", "2s");
    let run = bench.run(&[]);
    let said = said(&run).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(run.status.code(), Some(4), "{said}");
    let words = "the engine serves and refuses a request (HTTP 400: This model's maximum context length is 64 tokens.";
    assert!(said.contains(words) && !said.contains("hangs"), "{said}");
    let remedy =
        "Every point would refuse it: shorten the requests in [workload], or raise --max-model-len in engine.args.";
    assert!(said.contains(remedy), "{said}");
    let launched = bench.journal().entries.iter().filter(|e| matches!(e.record, Record::Launching { .. })).count();
    assert_eq!(launched, 1, "{said}");
    bench.assert_nothing_left();
}

#[test]
fn an_engine_that_never_becomes_ready_is_given_up_after_its_timeout_and_one_more_try() {
    let (_, status, causes, said) = run("never-ready", "start_timeout = \"800ms\"\nstop_timeout = \"1s\"");
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(causes.len() >= 2 && causes.iter().all(|c| *c == Cause::Timeout), "{causes:?}");
    assert!(said.contains("The engine was not ready in time: allow it more time"), "{said}");
}

#[test]
fn an_engine_that_ends_with_code_0_at_its_start_has_failed() {
    let (_, status, causes, said) = run("exit-zero-at-start", "");
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(!causes.is_empty());
}

#[test]
fn an_engine_that_dies_without_a_word_is_silent_not_successful() {
    let (_, status, causes, said) = run("silent-death", "");
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(causes.iter().all(|c| *c == Cause::Silent), "{causes:?}");
}

#[test]
fn orphans_that_ignore_sigterm_are_ended_too() {
    let (bench, status, _, said) = run("orphan", "stop_timeout = \"1s\"");
    assert!(bench.has_answered(status), "{said}");
}

#[test]
fn an_unknown_argument_in_the_space_file_ends_the_run_at_once() {
    let bench = Workbench::new("args = [\"--max-num-sqes\", \"8\"]", "");
    let run = bench.run(&[]);
    assert_eq!(run.status.code(), Some(4), "{}", said(&run));
    assert!(said(&run).contains("--max-num-sqes"), "the log's line is quoted: {}", said(&run));
    assert_eq!(bench.journal().entries.iter().filter(|e| matches!(e.record, Record::Launching { .. })).count(), 1);
}

#[test]
fn a_program_that_is_not_there_is_said_so() {
    let bench = Workbench::new("command = [\"./no-such-engine\"]", "");
    let run = bench.run(&[]);
    assert_eq!(run.status.code(), Some(4), "{}", said(&run));
    let why = "there is no such program; is engine.command right, and the program on the PATH?";
    assert!(said(&run).contains("no-such-engine") && said(&run).contains(why), "{}", said(&run));
}

#[test]
fn what_an_engine_says_moves_no_terminal_wherever_it_is_quoted() {
    let script = r"printf 'ERROR: \\033]0;title\\007\\033[2J it broke \\000\\233\\n' >&2; exit 1";
    let bench = Workbench::with_budget(&format!("command = [\"sh\", \"-c\", \"{script}\"]"), "", "4s");
    let run = bench.run(&[]);
    let outcome = std::fs::read_to_string(bench.path("out/outcome.json")).unwrap();
    assert!(said(&run).contains("it broke") && outcome.contains("it broke"), "{}{outcome}", said(&run));
    let moves = |text: &str| text.contains(|c: char| c.is_control() && c != '\n' && c != '\t');
    assert!(!moves(&said(&run)), "{:?}", said(&run));
    assert!(!outcome.contains("\\u00"), "{outcome}");
}

#[test]
fn a_guardian_that_cannot_be_started_leaves_no_folder() {
    let bench = Workbench::with_budget("", "", "4s");
    // A program whose file is gone by the time that it starts itself again as a guardian.
    let script = "cp \"$0\" tuner && exec 3<tuner && rm tuner && exec /proc/self/fd/3 \"$@\"";
    let mut shell = Command::new("bash");
    shell.args(["-c", script, BINARY]);
    let run = bench.through(shell, &[]).output().unwrap();
    assert_eq!(run.status.code(), Some(1), "{}", said(&run));
    assert!(said(&run).contains("failed to start the guardian process"), "{}", said(&run));
    assert_eq!(std::fs::read_dir(bench.path("tmp")).unwrap().count(), 0);
}
