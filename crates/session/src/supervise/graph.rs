//! A graph of processes behind one address, as one engine: a frontend and its workers. It runs as the engine of a guardian, which ends what
//! it leaves behind.
//!
//! Each line of its processes gets the name of who said it. It ends when one of them ends, and says which.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use autotune_clock as clock;

/// How long the last lines of a process that ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often its processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Where the search for the ports of workers begins, at the earliest.
const FIRST_PORT: u16 = 16_384;
/// What a frontend may take to end before another one is started.
const FRONTEND_GRACE: Duration = Duration::from_secs(3);

/// A worker tells its frontend the mode of this variable, and that wins over the frontend's own flag.
const ROUTER_MODE: &str = "DYN_ROUTER_MODE";
/// How the lines of the frontend begin.
const FRONTEND: &str = "Frontend";

#[derive(Clone, Debug)]
pub struct Graph {
    pub frontend: Vec<String>,
    pub worker: Vec<String>,
    pub workers: u32,
    pub port: u16,
    /// A file with another command for the frontend, a word a line behind the number of the change; `.done` beside it has the last number.
    pub change: Option<PathBuf>,
}

/// A process of it, with the threads that read what it says.
struct Part {
    child: Child,
    readers: Vec<JoinHandle<()>>,
}

impl Part {
    /// Waits until what an ended process said is passed on: its last lines tell why. A child of it may hold the pipe open for longer.
    fn hear_out(&self) {
        let begun = clock::now();
        while self.readers.iter().any(|reader| !reader.is_finished()) && begun.elapsed() < LAST_WORDS {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Graph {
    /// Runs it until one of its processes ends, and gives the exit code of that one.
    pub fn run(&self) -> io::Result<u8> {
        // The frontend, and then the workers.
        let mut processes = Vec::new();
        let ended = self.watch(&mut processes);
        for Part { child: process, .. } in &processes {
            // It may have ended meanwhile, and is not reaped yet: the number is still its own.
            let _ = kill(Pid::from_raw(process.id() as i32), Signal::SIGTERM);
        }
        ended
    }

    fn watch(&self, processes: &mut Vec<Part>) -> io::Result<u8> {
        let files = std::env::temp_dir().join("discovery");
        std::fs::create_dir_all(&files)?;
        let files = files.display().to_string();
        processes.push(start(FRONTEND, &self.frontend, &self.of_frontend(&files))?);
        // Many start at a time: each begins to look somewhere else.
        let mut port = FIRST_PORT + (std::process::id() % 8_192) as u16;
        for number in 1..=self.workers {
            port = free_from(port + 1)?;
            say(&format!("worker {number} of {}: metrics at http://127.0.0.1:{port}/metrics", self.workers));
            let env = shared(&files).into_iter().chain([("DYN_SYSTEM_PORT".to_owned(), port.to_string())]).collect();
            processes.push(start(&format!("Worker{number}"), &self.worker, &env)?);
        }
        let mut seen = String::new();
        loop {
            for number in 0..processes.len() {
                if processes[number].child.try_wait()?.is_none() {
                    continue;
                }
                let mut ended = processes.remove(number);
                ended.hear_out();
                let status = ended.child.wait()?;
                let who = match number {
                    0 => "the frontend".to_owned(),
                    number => format!("worker {number} of {}", self.workers),
                };
                say(&format!("{who} of the graph ended: {}", how(status)));
                return Ok(code(status));
            }
            if let Some((file, change, words)) = self.change.as_ref().and_then(|file| asked(file, &seen)) {
                // Its number is another's once it has ended.
                end(&mut processes.remove(0).child)?;
                processes.insert(0, start(FRONTEND, &words, &self.of_frontend(&files))?);
                std::fs::write(file.with_extension("done"), &change)?;
                seen = change;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn of_frontend(&self, files: &str) -> BTreeMap<String, String> {
        let address = [("DYN_HTTP_HOST", "127.0.0.1".to_owned()), ("DYN_HTTP_PORT", self.port.to_string())];
        shared(files).into_iter().chain(address.map(|(name, value)| (name.to_owned(), value))).collect()
    }
}

/// The first free port from that one on which Dynamo can read: it holds them in 16 bits with a sign.
fn free_from(port: u16) -> io::Result<u16> {
    let mut ports = port..i16::MAX as u16;
    ports
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .ok_or_else(|| io::Error::other("no port is free"))
}

/// The variables of every process: they find each other by files, and requests go over the loopback address. Dynamo 1.6.1 opens four ports of a
/// worker's events on every address all the same.
fn shared(files: &str) -> BTreeMap<String, String> {
    const HERE: &str = "127.0.0.1";
    // `VARIABLES_OF_GRAPHS` of the settings names all of them.
    [
        ("DYN_DISCOVERY_BACKEND", "file"),
        ("DYN_FILE_KV", files),
        ("DYN_REQUEST_PLANE", "tcp"),
        ("DYN_EVENT_PLANE", "zmq"),
        ("DYN_TCP_RPC_HOST", HERE),
        ("DYN_TCP_RESPONSE_STREAM_HOST", HERE),
        ("DYN_EVENT_PLANE_HOST", HERE),
        ("DYN_SYSTEM_HOST", HERE),
        ("DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS", "[\"generate\"]"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// The change that a file asks for, if it is another one than the last.
fn asked<'f>(file: &'f Path, seen: &str) -> Option<(&'f Path, String, Vec<String>)> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.strip_suffix("\n\n")?.lines().map(str::to_owned);
    let change = lines.next().filter(|change| change != seen)?;
    Some((file, change, lines.collect()))
}

fn start(name: &str, words: &[String], env: &BTreeMap<String, String>) -> io::Result<Part> {
    let program = words.first().ok_or_else(|| io::Error::other("no command"))?;
    #[expect(clippy::disallowed_methods, reason = "an engine of several processes starts them, under its guardian")]
    let mut command = Command::new(program);
    if name != FRONTEND {
        command.env_remove(ROUTER_MODE);
    }
    let mut child = command
        .args(&words[1..])
        .envs(env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::other(format!("{program}: {error}")))?;
    let prefix = format!("({name} pid={})", child.id());
    let outputs: [Option<Box<dyn Read + Send>>; 2] =
        [child.stdout.take().map(|out| Box::new(out) as _), child.stderr.take().map(|out| Box::new(out) as _)];
    let readers = outputs.into_iter().flatten().map(|output| {
        let prefix = prefix.clone();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                say(&format!("{prefix} {}", String::from_utf8_lossy(&line).trim_end()));
                line.clear();
            }
        })
    });
    Ok(Part { readers: readers.collect(), child })
}

fn end(frontend: &mut Child) -> io::Result<()> {
    let _ = kill(Pid::from_raw(frontend.id() as i32), Signal::SIGTERM);
    let begun = clock::now();
    while frontend.try_wait()?.is_none() {
        if begun.elapsed() > FRONTEND_GRACE {
            frontend.kill()?;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "lost".to_owned(),
    }
}

/// As a shell tells it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// One line of the engine's log. Losing it is no reason to stop.
fn say(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}
