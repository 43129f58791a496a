//! A temporary folder with a small job in it, and what is to be known of a run.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use autotune::journal::{FILE, Journal, Record, Status, read};
use autotune::report::Outcome;

/// The program.
pub const BINARY: &str = env!("CARGO_BIN_EXE_autotune");

/// A job in a folder of its own.
pub struct Workbench {
    folder: tempfile::TempDir,
}

impl Workbench {
    /// A job that takes some seconds; `engine` and `search` are added to those sections.
    pub fn new(engine: &str, search: &str) -> Self {
        // Windows this short seldom certify: what is left of a longer budget would go into trying.
        Self::with_budget(engine, search, "12s")
    }

    /// A job that certifies its best point in about 17 seconds of a busy machine.
    pub fn certifying(engine: &str) -> Self {
        let bench = Self::with_budget(engine, "candidates = 1", "60s");
        let space = std::fs::read_to_string(bench.path("space.toml")).unwrap();
        let space = space.replace("certify_window = \"1s\"", "certify_window = \"2s\"");
        std::fs::write(bench.path("space.toml"), space).unwrap();
        bench
    }

    /// A job whose budget has room for one launch and no probe: it ends uncertified on every machine.
    pub fn too_short() -> Self {
        Self::with_budget("", "candidates = 1", "2s")
    }

    /// [`Workbench::new`] with another budget of engine time.
    pub fn with_budget(engine: &str, search: &str, budget: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let space = format!(
            r#"
[slo]
ttft_p99 = "400ms"
tpot_p99 = "30ms"
[engine]
kind = "simulated"
stall_timeout = "1s"
start_estimate = "300ms"
{engine}
[workload]
kind = "random"
input_tokens = {{ distribution = "uniform", min = 150, max = 250 }}
output_tokens = {{ distribution = "uniform", min = 16, max = 32 }}
[parameters]
max-num-seqs = {{ values = [4, 16, 64], default = 4 }}
[search]
precision = "30%"
first_rate = 40.0
{search}
[probe]
ramp = "200ms"
window = "600ms"
certify_window = "1s"
[budget]
gpu_time = "{budget}"
"#
        );
        std::fs::write(folder.path().join("space.toml"), space).unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program of the folder that is a shell script.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.through(Command::new(BINARY), arguments)
    }

    /// [`Workbench::command`] where each process may have 128 files open.
    pub fn command_of_few_files(&self, arguments: &[&str]) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\"", BINARY]);
        self.through(shell, arguments)
    }

    /// [`Workbench::command`] by another program, which is given the words of ours.
    pub fn through(&self, mut command: Command, arguments: &[&str]) -> Command {
        command
            .args(["--space", "space.toml", "--out", "out"])
            .args(arguments)
            .current_dir(self.folder.path())
            .env("TMPDIR", self.path("tmp"))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn journal(&self) -> Journal {
        read(&std::fs::read(self.path("out").join(FILE)).unwrap_or_default()).unwrap()
    }

    pub fn outcome(&self) -> Outcome {
        serde_json::from_slice(&std::fs::read(self.path("out/outcome.json")).unwrap()).unwrap()
    }

    /// Whether the exit code is that of the outcome, for sessions whose engines are killed at random: any outcome may come of that.
    pub fn has_ended(&self, status: ExitStatus) -> bool {
        let of_outcome = match self.outcome().status {
            Status::Certified => 0,
            Status::NotReachable => 3,
            Status::NeverStarted => 4,
            Status::Interrupted => 5,
            Status::Uncertified => 6,
        };
        status.code() == Some(of_outcome)
    }

    /// Whether a session ended without any measurement that counts: its budget had no room for one, or the machine was too busy.
    pub fn measured_nothing(&self, status: ExitStatus) -> bool {
        let outcome = self.outcome();
        let says = outcome.because.starts_with("nothing was measured: ");
        status.code() == Some(6) && outcome.status == Status::Uncertified && outcome.best.is_none() && says
    }

    /// Whether a session ended with a point. If its budget has room for a proof depends on how fast the machine is: exit code, status and
    /// rate agree in both cases.
    pub fn has_answered(&self, status: ExitStatus) -> bool {
        let outcome = self.outcome();
        let Some(best) = outcome.best else { return false };
        match best.certified_rate {
            Some(_) => {
                status.code() == Some(0) && outcome.status == Status::Certified && self.path("out/args.txt").exists()
            }
            None => status.code() == Some(6) && outcome.status == Status::Uncertified,
        }
    }

    /// Processes that live in a session of one of the journal's guardians.
    pub fn living(&self) -> Vec<i32> {
        let guardians = self.journal().entries.into_iter().filter_map(|e| match e.record {
            Record::Spawned { spawned, .. } => Some(spawned.group.guardian),
            _ => None,
        });
        guardians.flat_map(session_of).collect()
    }

    /// Waits for the guardians to do their work after the program was killed, and asserts that nothing is left.
    pub fn assert_nothing_left(&self) {
        let mut left = self.living();
        for _ in 0..200 {
            if left.is_empty() && self.scratch_folders() == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
            left = self.living();
        }
        panic!("left behind: {left:?}, {} scratch folders", self.scratch_folders());
    }

    fn scratch_folders(&self) -> usize {
        std::fs::read_dir(self.path("tmp")).unwrap().count()
    }
}

/// Living processes of a session.
pub fn session_of(guardian: i32) -> Vec<i32> {
    let stats =
        std::fs::read_dir("/proc").unwrap().filter_map(|p| std::fs::read_to_string(p.ok()?.path().join("stat")).ok());
    let inside = stats.filter_map(|stat| {
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let lives = fields[0] != "Z" && fields[3].parse() == Ok(guardian);
        lives.then(|| stat.split(' ').next()?.parse().ok())?
    });
    inside.collect()
}

/// Living processes whose temporary files go to a folder or one in it.
pub fn started_in(folder: &Path) -> Vec<i32> {
    let folder = format!("TMPDIR={}", folder.display());
    let numbers = std::fs::read_dir("/proc").unwrap().filter_map(|p| p.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter(|pid: &i32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).split('\0').any(|word| word.starts_with(&folder))
        })
        .collect()
}

/// Requests that come to no end, so many that a port and its backlog have no room for them.
pub fn half_sent(address: &str) -> Vec<TcpStream> {
    let address = address.trim_start_matches("http://").parse().unwrap();
    // Where there is no room, the connection is not made.
    let connected = (0..200).filter_map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(20)).ok());
    let begun = connected.map(|mut stream| {
        stream.write_all(b"GET /hello HTTP/1.1\r\nHost:").unwrap();
        stream
    });
    begun.collect()
}

/// What a run said, for assertions that fail.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The project's folder.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
