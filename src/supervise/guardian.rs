//! The guardian: parent of the engine, reaper of its orphans, and the end of them all when the tuner is gone.
//!
//! It speaks JSON lines on its standard output (`Report`), takes words on its standard input (`term`, `kill`), and its standard error is
//! the engine's output. It leads its own session, so that no terminal signal reaches the engine before the tuner has decided.
//! As a subreaper it inherits every process that the engine leaves, also those that moved to another group or session; when it has
//! no child left, nothing of the engine is left. It must stay small: no runtime, no clock but sleeping, no logic of trials.
//!
//! Between it and the engine stands a keeper, so that a killed guardian leaves nothing either: tuner -> guardian -> keeper -> engine.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::{BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::processes::descendants;
use crate::engine::diagnosis::Exit;

/// How often the guardian looks at its children.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long the engine may take after SIGTERM when the tuner itself is gone: nobody waits for it any more.
const ORPHANED_GRACE: Duration = Duration::from_secs(5);
/// How long the rest of the family may live once the engine's first process has ended.
const FAMILY_GRACE: Duration = Duration::from_secs(2);
/// Shared memory by these names is made by Python's multiprocessing and stays behind when its owner is killed.
const SHARED_MEMORY_PREFIXES: [&str; 2] = ["psm_", "sem.mp-"];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// The engine runs; its process group has this number.
    Spawned(i32),
    /// The engine could not be started.
    NotSpawned(String),
    /// The engine's first process ended.
    Exited(Exit),
    Empty,
}

const STAY: u8 = 0;
const TERMINATE: u8 = 1;
const ORPHANED: u8 = 2;
const KILL: u8 = 3;

/// Starts `command` and stays until no process of it is left. `scratch` is removed at the end.
///
/// # Errors
/// Only what keeps a guardian from becoming one.
pub fn run(command: &[String], scratch: &Path, grace: Duration) -> Result<(), Box<dyn std::error::Error>> {
    nix::unistd::setsid()?;
    nix::sys::prctl::set_child_subreaper(true)?;
    let output = std::io::stderr().as_fd().try_clone_to_owned()?;
    let errors = output.try_clone()?;
    // Whoever ends every `autotune` by its name leaves us to our work.
    nix::sys::prctl::set_name(c"engine-guardian")?;
    let program = command.first().ok_or("no command")?;
    if !can_be_run(program) {
        say(&Report::NotSpawned(format!("{program}: there is no such program")));
        return Ok(());
    }
    #[expect(clippy::disallowed_methods, reason = "the guardian is the part of supervise that starts the engine")]
    let spawned = std::process::Command::new(std::env::current_exe()?)
        .args(["engine", "--guardian", &std::process::id().to_string(), "--"])
        .args(command)
        .env("TMPDIR", scratch)
        .env("VLLM_RPC_BASE_PATH", scratch)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0)
        .spawn();
    let engine = match spawned {
        Ok(child) => child.id() as i32,
        Err(error) => {
            say(&Report::NotSpawned(format!("{program}: {error}")));
            return Ok(());
        }
    };
    block_signals()?;
    say(&Report::Spawned(engine));
    let orders = listen();
    let litter = watch(engine, orders, grace);
    for file in litter {
        drop(std::fs::remove_file(file));
    }
    drop(std::fs::remove_dir_all(scratch));
    say(&Report::Empty);
    Ok(())
}

/// Stays between the guardian and the engine, ends every process of the engine as soon as the guardian is gone, and ends as the engine ends.
/// The kernel tells of a dead parent its children alone: vLLM's workers, which hold the GPU, are children of its children.
///
/// # Errors
/// Where the program cannot be run.
pub fn keep(guardian: i32, command: &[String]) -> Result<u8, Box<dyn std::error::Error>> {
    nix::sys::prctl::set_child_subreaper(true)?;
    nix::sys::prctl::set_name(c"engine-keeper")?;
    block_signals()?;
    let here = std::process::id().to_string();
    #[expect(
        clippy::disallowed_methods,
        reason = "the keeper is the part of supervise that has the engine as its child"
    )]
    let engine = std::process::Command::new(std::env::current_exe()?)
        .args(["engine", "--keeper", &here, "--"])
        .args(command)
        .spawn()?;
    let engine = Pid::from_raw(engine.id() as i32);
    loop {
        if nix::unistd::getppid() != Pid::from_raw(guardian) {
            end_all(&mut BTreeSet::new());
            return Err("the guardian is gone".into());
        }
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            // What else it leaves, the guardian inherits.
            Ok(status) if status.pid() == Some(engine) => return Ok(end_as(status)),
            Ok(WaitStatus::StillAlive) | Err(_) => std::thread::sleep(LOOK_EVERY),
            Ok(_) => {}
        }
    }
}

/// Kills every process below this one, and those that they start meanwhile, until none is left.
fn end_all(litter: &mut BTreeSet<PathBuf>) {
    while waitpid(None, Some(WaitPidFlag::WNOHANG)) != Err(nix::errno::Errno::ECHILD) {
        for pid in descendants(std::process::id() as i32) {
            shared_memory(pid, litter);
            // It may have ended since it was listed.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    for file in litter.iter() {
        drop(std::fs::remove_file(file));
    }
}

/// Dies of the signal of which that process died, or returns the code with which it ended.
fn end_as(status: WaitStatus) -> u8 {
    match status {
        WaitStatus::Exited(_, code) => code as u8,
        WaitStatus::Signaled(_, signal, _) => {
            // The engine may have left a core; nobody needs ours.
            let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
            let _ = SigSet::all().thread_unblock();
            // The runtime takes the first of some signals for itself.
            let _ = (nix::sys::signal::raise(signal), nix::sys::signal::raise(signal));
            128 + signal as u8
        }
        _ => 1,
    }
}

/// Becomes the engine, in the process that its keeper started for it: one that the kernel kills as soon as the keeper is gone.
///
/// # Errors
/// Where the program cannot be run.
pub fn become_engine(keeper: i32, command: &[String]) -> Result<Infallible, Box<dyn std::error::Error>> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // It may have died before it was watched.
    if nix::unistd::getppid() != Pid::from_raw(keeper) {
        return Err("the keeper is gone".into());
    }
    SigSet::all().thread_unblock()?;
    let (program, arguments) = command.split_first().ok_or("no command")?;
    #[expect(clippy::disallowed_methods, reason = "this process becomes the engine")]
    let error = std::process::Command::new(program).args(arguments).exec();
    Err(format!("failed to run {program}: {error}").into())
}

/// Whether a program is there, where `exec` looks for it.
fn can_be_run(program: &str) -> bool {
    let is_program = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return is_program(Path::new(program));
    }
    // Without a PATH, `exec` has a list of its own.
    std::env::var_os("PATH")
        .is_none_or(|all| std::env::split_paths(&all).any(|folder| is_program(&folder.join(program))))
}

/// The tuner decides what a signal means; the guardian outlives it to carry that out. Only after the engine was spawned, which
/// would inherit the mask and be deaf to SIGTERM.
fn block_signals() -> nix::Result<()> {
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block()
}

fn listen() -> &'static AtomicU8 {
    static ORDERS: AtomicU8 = AtomicU8::new(STAY);
    std::thread::spawn(|| {
        for line in std::io::stdin().lock().lines() {
            match line.as_deref() {
                Ok("term") => ORDERS.fetch_max(TERMINATE, Ordering::SeqCst),
                Ok("kill") => ORDERS.fetch_max(KILL, Ordering::SeqCst),
                Ok(_) => continue,
                Err(_) => break,
            };
        }
        // The pipe closed: the tuner is gone.
        ORDERS.fetch_max(ORPHANED, Ordering::SeqCst);
    });
    &ORDERS
}

/// Reaps until nothing is left; returns the shared memory that killed processes may have left.
fn watch(engine: i32, orders: &AtomicU8, grace: Duration) -> BTreeSet<PathBuf> {
    let mut litter = BTreeSet::new();
    let (mut asked_for, mut ended_for) = (None, None);
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(nix::errno::Errno::ECHILD) => return litter,
            Ok(WaitStatus::StillAlive) | Err(_) => {}
            Ok(status) => {
                if status.pid() == Some(Pid::from_raw(engine))
                    && let Some(exit) = exit_of(status)
                {
                    say(&Report::Exited(exit));
                    ended_for = Some(Duration::ZERO);
                }
                continue;
            }
        }
        let order = orders.load(Ordering::SeqCst);
        // An engine whose first process ended on its own has no use for the rest of its family.
        if order != STAY || ended_for.is_some() {
            let patience = if order == ORPHANED { grace.min(ORPHANED_GRACE) } else { grace };
            let asked = asked_for.get_or_insert_with(|| {
                strike(engine, Signal::SIGTERM, &mut litter);
                // A stopped process takes its SIGTERM only once it is continued.
                strike(engine, Signal::SIGCONT, &mut litter);
                Duration::ZERO
            });
            *asked += LOOK_EVERY;
            let left_behind = ended_for.as_mut().is_some_and(|ended: &mut Duration| {
                *ended += LOOK_EVERY;
                *ended > FAMILY_GRACE
            });
            if order == KILL || *asked > patience || left_behind {
                strike(engine, Signal::SIGKILL, &mut litter);
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn exit_of(status: WaitStatus) -> Option<Exit> {
    match status {
        WaitStatus::Exited(_, code) => Some(Exit::Code(code)),
        WaitStatus::Signaled(_, signal, _) => Some(Exit::Signal(signal as i32)),
        _ => None,
    }
}

/// Signals the engine's group, and every process below us that left it.
fn strike(engine: i32, signal: Signal, litter: &mut BTreeSet<PathBuf>) {
    let family = descendants(std::process::id() as i32);
    if signal == Signal::SIGKILL {
        for pid in &family {
            shared_memory(*pid, litter);
        }
    }
    // Any of them may have ended since it was listed.
    let _ = killpg(Pid::from_raw(engine), signal);
    for pid in family {
        if signal == Signal::SIGKILL || nix::unistd::getpgid(Some(Pid::from_raw(pid))) != Ok(Pid::from_raw(engine)) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// Notes what a process has mapped from /dev/shm, as far as Python's multiprocessing made it.
fn shared_memory(pid: i32, litter: &mut BTreeSet<PathBuf>) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    for path in maps.lines().filter_map(|line| line.find("/dev/shm/").map(|at| &line[at..])) {
        let name = path.trim_start_matches("/dev/shm/");
        if SHARED_MEMORY_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !name.contains('/') {
            litter.insert(PathBuf::from(path));
        }
    }
}

/// Reports to the tuner; where it is gone, nobody listens, and that is no reason to stop.
fn say(report: &Report) {
    let mut out = std::io::stdout().lock();
    if let Ok(line) = serde_json::to_string(report) {
        drop(writeln!(out, "{line}"));
        drop(out.flush());
    }
}
