//! Processes: the known server as a child, and what it and this process used.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};

use crate::known::Known;

/// What the server noted of a request, in milliseconds from its reading.
pub struct Note {
    pub ttft: f64,
    pub gaps: Vec<f64>,
}

/// The known server in a process of its own: its CPU time is not ours.
pub struct Server {
    child: Child,
    pub url: String,
}

impl Server {
    pub fn start(noted: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--known-server").stdin(Stdio::piped()).stdout(Stdio::piped());
        if noted {
            command.arg("--noted");
        }
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }

    /// User and system seconds so far, which Linux tells in hundredths.
    pub fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.url.trim_start_matches("http://")).unwrap()
    }

    /// The notes since the last call, by the first number of the prompt.
    pub fn notes(&self) -> BTreeMap<u64, Note> {
        let mut stream = self.connect();
        stream.write_all(b"GET /served HTTP/1.1\r\nhost: known\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, lines) = answer.split_once("\r\n\r\n").unwrap();
        let note = |line: &str| {
            let mut fields = line.split(' ');
            let key = fields.next().unwrap().parse().unwrap();
            let mut spans = fields.map(|f| f.parse::<f64>().unwrap() / 1e3).skip(1);
            let ttft = spans.next().unwrap();
            // Tokens of one write share their instant, and are one arrival.
            (key, Note { ttft, gaps: spans.collect() })
        };
        lines.lines().map(note).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server ends with its standard input.
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// The child's whole life.
pub fn serve(noted: bool) {
    let server = Known::with(1, noted).unwrap();
    println!("{}", server.url());
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()).unwrap();
}

/// User and system seconds of this process.
pub fn own_cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    [usage.user_time(), usage.system_time()].iter().map(|t| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6).sum()
}

/// A line of `/proc/self/status` in KiB, such as `VmRSS`, or `VmHWM` for its highest value.
pub fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|l| l.strip_prefix(line)).unwrap();
    value.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
}

/// Thousands of streams need as many descriptors, here and in the child, which inherits the limit.
pub fn raise_open_files() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
}
