//! The simulated engine as a process: its words, its exit codes, its child, and ways to fail that need one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::workbench::{BINARY, said};

fn command(flags: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["sim-engine", "some/model", "--port", "0", "--sim-start-seconds", "0.1"]).args(flags);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("VLLM_API_KEY");
    command
}

/// Runs an engine that ends by itself.
fn failing(flags: &[&str]) -> (Option<i32>, String) {
    let output: Output = command(flags).output().unwrap();
    (output.status.code(), said(&output))
}

/// The port of an engine that serves, by its log.
pub fn ready_at(log: &mut impl BufRead) -> u16 {
    let (mut port, mut line) = (0, String::new());
    while !line.contains("Application startup complete") {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "it ended before it was ready");
        if let Some((_, address)) = line.split_once("Starting vLLM server on http://127.0.0.1:") {
            port = address.trim().parse().unwrap();
        }
    }
    port
}

/// An engine that serves on a port of its own choice.
pub struct Engine {
    process: Child,
    log: BufReader<ChildStderr>,
    port: u16,
}

impl Engine {
    pub fn start(flags: &[&str]) -> Self {
        let mut process = command(flags).spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let port = ready_at(&mut log);
        Self { process, log, port }
    }

    /// The status of a GET; None where nobody answers.
    pub fn status(&self, path: &str) -> Option<u16> {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        write!(connection, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        answer.split(' ').nth(1)?.parse().ok()
    }

    /// The engine core.
    fn child(&self) -> i32 {
        let id = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.split_whitespace().next().unwrap().parse().unwrap()
    }

    fn terminate(&self) {
        kill(Pid::from_raw(self.process.id() as i32), Signal::SIGTERM).unwrap();
    }

    /// Waits for the end: the exit code and the rest of the log.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.process.wait().unwrap().code(), rest)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // After a failed assertion it still runs; one that ended was reaped, and is not touched.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn mistakes_of_the_command_line_end_it_with_code_2_and_vllms_words() {
    for (flags, says) in [
        (&["--max-num-sqes", "8"][..], "vllm: error: unrecognized arguments: --max-num-sqes 8"),
        (&["--max-num-seqs", "abc"], "vllm serve: error: argument --max-num-seqs: invalid int value: 'abc'"),
        (
            &["--tensor-parallel-size", "2"],
            "argument --tensor-parallel-size: the simulated engine knows 1 alone, not '2'",
        ),
        (&["--quantization=fp8"], "argument --quantization: the simulated engine does not know it, and vLLM does"),
        (&["--block-size", "7"], "argument --block-size: the simulated engine knows 16 alone, not '7'"),
        (&["--speculative-config", "{"], "argument --speculative-config: Value { cannot be converted"),
    ] {
        let (code, said) = failing(flags);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn starts_that_fail_end_with_vllms_code_and_words() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (flags, code, says) in [
        (&["--port", port.as_str()][..], 1, "OSError: [Errno 98] Address already in use"),
        (&["--gpu-memory-utilization", "1.5"], 1, "1 validation error for CacheConfig"),
        (&["--kv-cache-memory-bytes", "1M"], 1, "ValueError: "),
        (&["--gpu-memory-utilization", "0.999"], 1, "torch.OutOfMemoryError: CUDA out of memory"),
        (&["--speculative-config", r#"{"method": "ngram"}"#], 1, "1 validation error for SpeculativeConfig"),
        (&["--sim-fault", "model-missing"], 1, "HFValidationError: Repo id must be in the form"),
        (&["--sim-fault", "broken-weights"], 1, "SafetensorError: Error while deserializing header"),
        (
            &["--sim-fault", "oom-at-start"],
            1,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB",
        ),
        (&["--sim-fault", "exit-zero-at-start"], 0, "version 0.32.0"),
        (&["--sim-fault", "silent-death"], 1, ""),
    ] {
        let (ended, said) = failing(flags);
        assert_eq!(ended, Some(code), "{flags:?}: {said}");
        assert!(said.contains(says), "{flags:?}: {said}");
    }
}

#[test]
fn when_its_core_is_killed_it_says_so_and_ends_with_code_0() {
    let mut engine = Engine::start(&["--sim-speed", "4"]);
    assert_eq!(engine.status("/health"), Some(200));
    kill(Pid::from_raw(engine.child()), Signal::SIGKILL).unwrap();
    let since = Instant::now();
    while engine.status("/health") == Some(200) {
        assert!(since.elapsed() < Duration::from_secs(5), "nobody missed the core");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(engine.status("/health"), Some(503));
    let (code, log) = engine.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("engine core exited unexpectedly") && log.contains("EngineDeadError"), "{log}");
}

#[test]
fn a_slow_stop_serves_on_until_it_ends_with_its_child() {
    let mut engine = Engine::start(&["--sim-stop-seconds", "0.6"]);
    let child = engine.child();
    let since = Instant::now();
    engine.terminate();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(engine.status("/health"), Some(200), "it is deaf for a while");
    let (code, log) = engine.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(since.elapsed() > Duration::from_millis(600));
    assert!(!std::path::Path::new(&format!("/proc/{child}")).exists());
}

#[test]
fn arguments_of_a_real_engine_start_it() {
    let flags = "--dtype bfloat16 -tp 1 --trust-remote-code --enforce-eager --max_num_seqs 8 --load-format dummy --block-size 16 \
                 --no-enable-log-requests --async-scheduling --kv-cache-dtype auto --max-model-len 1k --api-key secret";
    let mut engine = Engine::start(&flags.split_whitespace().collect::<Vec<&str>>());
    assert_eq!((engine.status("/v1/models"), engine.status("/health")), (Some(401), Some(200)));
    engine.terminate();
    assert_eq!(engine.end().0, Some(0));
}
