//! The guardian: a process between the tuner and the engine that ends the engine with all its descendants.
//!
//! It writes JSON lines ([`Report`]) to standard output and reads orders (`term`, `kill`) from standard input; standard error is the engine's
//! output. It leads its own session, so that a terminal's signals do not reach the engine. When the pipe to the tuner closes, it ends the engine.
//! As a subreaper it inherits every orphan of the engine, also from other groups and sessions. When it has no child left, nothing of the
//! engine is left. It must stay small: no runtime, no clock but sleeping, no logic of trials.
//!
//! A keeper runs between guardian and engine, and ends the engine when the guardian is killed: tuner -> guardian -> keeper -> engine.

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
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::processes::descendants;
use autotune_plan::engine::diagnosis::Exit;

/// How often the guardian looks at its children.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often it asks those that are left, once the engine's first process has ended.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Time from SIGTERM to SIGKILL when the tuner is gone: two seconds after a kill no process of the engine may be left.
const ORPHANED_GRACE: Duration = Duration::from_secs(1);
/// How long the other processes of the engine may live once its first process has ended.
const FAMILY_GRACE: Duration = Duration::from_secs(1);
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
pub fn run(command: &[String], scratch: &Path, grace: Duration) -> Result<(), Box<dyn std::error::Error>> {
    nix::unistd::setsid()?;
    nix::sys::prctl::set_child_subreaper(true)?;
    let output = std::io::stderr().as_fd().try_clone_to_owned()?;
    let errors = output.try_clone()?;
    // `pkill autotune` must not match the guardian.
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
    // Each process of a graph ends by itself, and may take as long as an engine may.
    let is_graph = command.get(1).is_some_and(|word| word == "graph");
    let litter = watch(engine, orders, grace, if is_graph { grace } else { FAMILY_GRACE });
    for file in litter {
        drop(std::fs::remove_file(file));
    }
    drop(std::fs::remove_dir_all(scratch));
    say(&Report::Empty);
    Ok(())
}

/// The keeper: starts the engine, kills all its descendants as soon as the guardian is gone, and ends as the engine ends.
/// `PR_SET_PDEATHSIG` reaches children alone, and vLLM's workers, which hold the GPU, are children of its children.
pub fn keep(guardian: i32, command: &[String]) -> Result<u8, Box<dyn std::error::Error>> {
    nix::sys::prctl::set_child_subreaper(true)?;
    nix::sys::prctl::set_name(c"engine-keeper")?;
    block_signals()?;
    let asked_to_end =
        SignalFd::with_flags(&SigSet::from(Signal::SIGTERM), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
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
    // A SIGTERM that came before the engine was there reached the keeper alone.
    if asked_to_end.read_signal()?.is_some() {
        kill(engine, Signal::SIGTERM)?;
    }
    loop {
        if nix::unistd::getppid() != Pid::from_raw(guardian) {
            end_all(&mut BTreeSet::new());
            return Err("the guardian is gone".into());
        }
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            // The guardian inherits the processes that it leaves.
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
            // The engine may have dumped its core; the keeper must not add its own.
            let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
            let _ = SigSet::all().thread_unblock();
            // Rust's runtime handles the first SIGSEGV or SIGBUS itself.
            let _ = (nix::sys::signal::raise(signal), nix::sys::signal::raise(signal));
            128 + signal as u8
        }
        _ => 1,
    }
}

/// Becomes the engine by `exec`, in a process that the kernel kills as soon as its keeper is gone.
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
pub fn can_be_run(program: &str) -> bool {
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

/// Blocks the signals that end a program: the tuner decides, and gives orders by the pipe. To be called after the engine was spawned, which
/// would inherit the mask and ignore SIGTERM.
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
fn watch(engine: i32, orders: &AtomicU8, grace: Duration, of_family: Duration) -> BTreeSet<PathBuf> {
    let mut litter = BTreeSet::new();
    let (mut asked_for, mut ended_for) = (None, None);
    let mut told = BTreeSet::new();
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
        // Once the engine's first process has ended, the others are ended too.
        if order != STAY || ended_for.is_some() {
            let patience = if order == ORPHANED { grace.min(ORPHANED_GRACE) } else { grace };
            let asked = asked_for.get_or_insert(Duration::ZERO);
            // A process that was about to leave its group when the others were asked has not heard it.
            let again = ended_for.is_some() && asked.as_millis().is_multiple_of(ASK_AGAIN.as_millis());
            if asked.is_zero() || again {
                ask(&mut told);
            }
            *asked += LOOK_EVERY;
            let left_behind = ended_for.as_mut().is_some_and(|ended: &mut Duration| {
                *ended += LOOK_EVERY;
                *ended > of_family
            });
            if order == KILL || *asked > patience || left_behind {
                kill_all(engine, &mut litter);
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

/// Asks every process below us to end, each once: a second SIGTERM ends some without their tidying up.
fn ask(told: &mut BTreeSet<i32>) {
    // The keeper may start the engine between a list and its own signal, and then does not pass that on. The second list has the engine.
    for _ in 0..2 {
        for pid in descendants(std::process::id() as i32).into_iter().filter(|pid| told.insert(*pid)) {
            // It may have ended since it was listed. A stopped process takes its SIGTERM only once it is continued.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
        }
    }
}

/// Kills the engine's group, and every process below us.
fn kill_all(engine: i32, litter: &mut BTreeSet<PathBuf>) {
    let family = descendants(std::process::id() as i32);
    for pid in &family {
        shared_memory(*pid, litter);
    }
    // Any of them may have ended since it was listed.
    let _ = killpg(Pid::from_raw(engine), Signal::SIGKILL);
    for pid in family {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Notes the files of /dev/shm that a process has mapped and that Python's multiprocessing made.
fn shared_memory(pid: i32, litter: &mut BTreeSet<PathBuf>) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    for path in maps.lines().filter_map(|line| line.find("/dev/shm/").map(|at| &line[at..])) {
        let name = path.trim_start_matches("/dev/shm/");
        if SHARED_MEMORY_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !name.contains('/') {
            litter.insert(PathBuf::from(path));
        }
    }
}

/// Reports to the tuner. When the tuner is gone, the report is lost and the work goes on.
fn say(report: &Report) {
    let mut out = std::io::stdout().lock();
    if let Ok(line) = serde_json::to_string(report) {
        drop(writeln!(out, "{line}"));
        drop(out.flush());
    }
}
