//! The tuner dies at any moment: nothing is left, nothing is lost, nothing is paid twice.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use autotune::journal::{Journal, Record};
use autotune::rehearsal::{Job, Truth};
use autotune::settings::parse;
use autotune::twin::Profile;
use autotune::workload::{Material, mix};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::workbench::{BINARY, Workbench, said, session_of, started_in};

/// A number that the environment gives.
fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// The seed of the moments: another one each time, so that a kill hits another moment. `KILLS_SEED` draws those of an earlier run again.
fn seed_of_kills() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let seed = given("KILLS_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("KILLS_SEED={seed}");
    seed
}

fn moments(count: u64, longest_ms: u64) -> Vec<Duration> {
    let seed = seed_of_kills();
    (0..count).map(|i| Duration::from_millis(mix(seed, &[i]) % longest_ms)).collect()
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
        match (status.code(), status.signal()) {
            // SIGKILL, or SIGTERM in the first milliseconds, when nobody listens yet.
            (None, Some(signal)) => assert_eq!(signal, with as i32),
            (Some(5), _) => assert_eq!(with, Signal::SIGTERM),
            // The session had ended before the moment came.
            _ => assert!(bench.measured_nothing(status) || bench.has_answered(status), "{status:?}"),
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
    let bench = Workbench::certifying("");
    let status = interrupted(&bench, Signal::SIGKILL, &moments(4, 2000));
    assert_eq!(status.code(), Some(0), "killed at other moments it certifies");
    assert_nothing_paid_twice(&bench.journal());
}

#[test]
fn sigterm_stops_the_engine_first_and_says_how_to_resume() {
    let bench = Workbench::certifying("");
    let child = bench.command(&[]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    signal(&child, Signal::SIGTERM);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    let ended = "interrupted; the engine is stopped. To continue:\n  ";
    assert!(said(&output).contains(ended) && said(&output).contains("--resume"), "{}", said(&output));
    assert!(bench.living().is_empty(), "the engine is gone before the program is");
    let without = bench.run(&[]);
    assert_eq!(without.status.code(), Some(2));
    let refused =
        "holds an interrupted run of this job; add --resume to continue it, or --fresh to put it aside and start again";
    assert!(said(&without).contains(refused), "{}", said(&without));
    let status = interrupted(&bench, Signal::SIGTERM, &moments(2, 2000));
    assert_eq!(status.code(), Some(0), "interrupted at other moments it certifies");
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
    assert_none_is_left_soon(&bench);
}

/// Nothing is left after the two seconds that are allowed, and as much again for a busy machine.
fn assert_none_is_left_soon(bench: &Workbench) {
    let left = || started_in(&bench.path("tmp"));
    for _ in 0..200 {
        if left().is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{:?} are left", left());
}

#[test]
fn an_engine_that_ignores_sigterm_does_not_outlive_a_killed_tuner() {
    let bench = Workbench::with_budget("args = [\"--sim-fault\", \"orphan\"]\nstop_timeout = \"60s\"", "", "60s");
    let mut child = bench.command(&["--quiet"]).spawn().unwrap();
    guardian(&bench);
    signal(&child, Signal::SIGKILL);
    child.wait().unwrap();
    assert_none_is_left_soon(&bench);
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

/// True limits of the quickstart's points, by the model of its engine.
fn truth_of_the_quickstart() -> Truth {
    let plan = parse("quickstart.toml", include_str!("../../search-spaces/quickstart.toml")).unwrap();
    Truth::of(Job::of(&plan, &Profile::named("quickstart").unwrap(), &Material::default(), 20_000)).unwrap()
}

/// The whole quickstart, ten kills with each signal, beside an undisturbed run: `cargo test --release -- --ignored`, about four minutes.
#[test]
#[ignore = "takes minutes; tests/real/all.sh runs it"]
fn ten_kills_of_a_quickstart_give_an_answer_as_true_as_that_of_the_undisturbed_run() {
    let quickstart = crate::workbench::project().join("search-spaces/quickstart.toml");
    let truth = truth_of_the_quickstart();
    let answers_truly = |bench: &Workbench, name: &str| {
        let best = bench.outcome().best.unwrap();
        let (rate, limit) =
            (best.certified_rate.or(best.estimated_rate).unwrap().0, truth.limit(&best.parameters).unwrap().0);
        println!("{name}: {rate:.1} req/s, true limit {limit:.1}, highest {:.1}", truth.best().unwrap().1.0);
        // Other work on the machine slows this engine, which lowers its rates. Nothing raises them.
        assert!(rate <= limit * 1.05, "{name}: {rate} above {limit}");
        assert!(rate >= limit * 0.5, "{name}: {rate} far below {limit}");
    };
    let undisturbed = Workbench::new("", "");
    std::fs::copy(&quickstart, undisturbed.path("space.toml")).unwrap();
    let run = undisturbed.run(&["--quiet"]);
    assert!(undisturbed.has_answered(run.status), "{}", said(&run));
    answers_truly(&undisturbed, "undisturbed");
    for with in [Signal::SIGKILL, Signal::SIGTERM] {
        let bench = Workbench::new("", "");
        std::fs::copy(&quickstart, bench.path("space.toml")).unwrap();
        let status = interrupted(&bench, with, &moments(10, 7000));
        assert!(bench.has_answered(status), "{status:?}");
        assert_nothing_paid_twice(&bench.journal());
        answers_truly(&bench, with.as_str());
    }
}

/// Who is killed: the tuner, the guardian, the engine's first process.
const VICTIMS: [[bool; 3]; 6] = [
    [true, false, false],
    [false, true, false],
    [false, false, true],
    [true, true, false],
    [true, false, true],
    [false, true, true],
];

/// The guardian and the first process of the engine that the journal knows to run, if both live.
fn engine_of(journal: &Journal) -> Option<(Pid, Pid)> {
    let group = &journal.unstopped().last()?.group;
    let stat = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let session = |stat: String| stat.rsplit(')').next()?.split_whitespace().nth(3)?.parse::<i32>().ok();
    let lives = stat(group.guardian)?.contains("(engine-guardian)");
    (lives && session(stat(group.engine)?)? == group.guardian)
        .then(|| (Pid::from_raw(group.guardian), Pid::from_raw(group.engine)))
}

/// `KILLS=100 cargo test --test cli random_kills -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes; tests/real/all.sh runs a hundred"]
fn random_kills_of_tuner_guardian_and_engine_alone_and_in_pairs_leave_no_process() {
    let seed = seed_of_kills();
    let kills = given("KILLS").unwrap_or(10) as usize;
    let mut slept = 0;
    let (mut bench, mut running) = (Workbench::new("", ""), None::<Child>);
    let (mut slowest, mut served, mut codes) = ([Duration::ZERO; VICTIMS.len()], [0; VICTIMS.len()], Vec::new());
    let mut hits = [0; VICTIMS.len()];
    // A session whose engines were killed may end in any way. Its journal holds what was paid.
    let mut ended = |bench: &Workbench, status: ExitStatus| {
        assert!(bench.has_ended(status), "{status:?}");
        assert_nothing_paid_twice(&bench.journal());
        bench.assert_nothing_left();
        codes.push(status.code().unwrap());
    };
    while hits.iter().sum::<usize>() < kills {
        let kind = hits.iter().sum::<usize>() % VICTIMS.len();
        let [tuner, guardian, engine] = VICTIMS[kind];
        let mut child = running.take().unwrap_or_else(|| bench.command(&["--resume", "--quiet"]).spawn().unwrap());
        slept += 1;
        std::thread::sleep(Duration::from_millis(mix(seed, &[slept]) % 1500));
        if let Some(status) = child.try_wait().unwrap() {
            ended(&bench, status);
            bench = Workbench::new("", "");
            continue;
        }
        let runs = engine_of(&bench.journal());
        if !tuner && runs.is_none() {
            // Nobody to kill at this moment; the next one is another.
            running = Some(child);
            continue;
        }
        hits[kind] += 1;
        served[kind] += usize::from(runs.is_some());
        let strike = |pid: Pid| kill(pid, Signal::SIGKILL).unwrap_or_default();
        let begun = Instant::now();
        if tuner {
            signal(&child, Signal::SIGKILL);
        }
        if let Some((guardian_of, engine_of)) = runs {
            [(guardian, guardian_of), (engine, engine_of)]
                .iter()
                .filter(|(dies, _)| *dies)
                .for_each(|(_, pid)| strike(*pid));
        }
        if tuner {
            child.wait().unwrap();
        } else {
            running = Some(child);
        }
        let left = || match runs {
            _ if tuner => started_in(&bench.path("tmp")),
            Some((guardian, _)) => session_of(guardian.as_raw()),
            None => Vec::new(),
        };
        // The two seconds that are allowed, and as much again for a busy machine.
        for round in 0.. {
            if left().is_empty() {
                break;
            }
            assert!(round < 400, "{:?} of {:?} are left", left(), VICTIMS[kind]);
            std::thread::sleep(Duration::from_millis(10));
        }
        slowest[kind] = slowest[kind].max(begun.elapsed());
        // Every line but a torn last one is whole, or this panics.
        assert_nothing_paid_twice(&bench.journal());
    }
    let status = match running {
        Some(mut child) => child.wait().unwrap(),
        None => bench.run(&["--resume"]).status,
    };
    ended(&bench, status);
    for (kind, [tuner, guardian, engine]) in VICTIMS.iter().enumerate() {
        println!(
            "tuner {tuner:5}, guardian {guardian:5}, engine {engine:5}: {} kills, {} of them with an engine; none left after {:?} at most",
            hits[kind], served[kind], slowest[kind]
        );
    }
    println!("exit codes of sessions that ended by themselves: {codes:?}");
}
