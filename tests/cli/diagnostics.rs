//! Lines for developers: what `RUST_LOG` asks for, and nothing without it.

use std::process::{Command, Output};

use crate::workbench::{BINARY, Workbench, said};

/// What a session says with that filter.
fn session(bench: &Workbench, filter: Option<&str>) -> String {
    let mut command = bench.command(&[]);
    command.envs(filter.map(|filter| ("RUST_LOG", filter)));
    let run = command.output().unwrap();
    bench.assert_nothing_left();
    assert!(bench.measured_nothing(run.status) || bench.has_answered(run.status), "{}", said(&run));
    String::from_utf8(run.stderr).unwrap()
}

/// Whether some line has all these parts.
fn has_line(text: &str, parts: &[&str]) -> bool {
    text.lines().any(|line| parts.iter().all(|part| line.contains(part)))
}

#[test]
fn a_filter_shows_each_trial_and_probe_with_what_it_took() {
    let diagnostics = session(&Workbench::with_budget("", "candidates = 1", "8s"), Some("autotune=debug"));
    for parts in [
        &["session{seed=1 strategy=\"bayes\"", "engine_time=", "status=", ": close "][..],
        &["trial{number=1 purpose=\"baseline\" point=max-num-seqs 4", "probes=", "engine_time=", ": close "],
        &["trial{number=1 ", "probe{number=1 rate=40.0 req/s", "outcome=", "engine_time=", ": close "],
        &["trial{number=1 ", "the engine is started guardian=", "command=", "sim-engine", "--port"],
        &["the guardian reports", "Exited("],
        &["trial{number=1 ", "warmed up", "burst_rate="],
        &["probe{number=1 ", "settled cache_emptied=true"],
        &["probe{number=1 ", "load ended requests=", "failed=0"],
        &["probe{number=1 ", "judged judge=PlainCount outcome=", "because="],
        &["ask{worker=0}", ": close "],
        &["asked worker=0 point=", "rate="],
        &["a record is written kind=\"probed\""],
    ] {
        assert!(has_line(&diagnostics, parts), "{parts:?} is missing in {diagnostics}");
    }
    assert!(!diagnostics.contains('\u{1b}'), "no colours: {diagnostics}");
    // Those of what users read are there too.
    assert!(has_line(&diagnostics, &["trial 1", "baseline"]), "{diagnostics}");
}

#[test]
fn nothing_is_shown_to_those_who_ask_for_nothing() {
    for filter in [None, Some("off,hyper=trace")] {
        let words = session(&Workbench::too_short(), filter);
        assert!(!words.contains("DEBUG") && !words.contains("trial{"), "{filter:?}: {words}");
    }
}

#[test]
fn a_filter_that_is_none_is_one_warning_and_no_failure() {
    let bench = Workbench::too_short();
    let check = |filter: &str| -> Output {
        let mut command = Command::new(BINARY);
        command.arg("check").arg(bench.path("space.toml")).env("RUST_LOG", filter).output().unwrap()
    };
    let run = check("autotune=loud");
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let words = String::from_utf8(run.stderr).unwrap();
    assert_eq!(words.matches("RUST_LOG").count(), 2, "{words}");
    assert!(words.starts_with("warning: RUST_LOG is ignored: ") && words.lines().count() == 1, "{words}");
    // The engine's own log is that of its words alone.
    let run = bench.command(&[]).env("RUST_LOG", "autotune=loud").output().unwrap();
    assert!(bench.measured_nothing(run.status), "{}", said(&run));
    assert_eq!(said(&run).matches("RUST_LOG is ignored").count(), 1, "{}", said(&run));
    let log = std::fs::read_to_string(bench.path("out/trials/t001-1/engine.log")).unwrap();
    assert!(!log.contains("RUST_LOG"), "{log}");
}
