//! An engine of several processes: which of them ended, and another frontend beside workers that stay.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::workbench::{BINARY, said, started_in};

/// A graph in that folder, whose processes are shells.
fn graph(folder: &std::path::Path, workers: &str, frontend: &str, worker: &str) -> Command {
    let mut command = Command::new(BINARY);
    let change = folder.join("frontend");
    command.args(["graph", "--port", "4242", "--workers", workers, "--change"]).arg(change);
    command
        .args(["--", "sh", "-c", frontend, "---", "sh", "-c", worker])
        .env("TMPDIR", folder)
        .env("DYN_ROUTER_MODE", "kv");
    command
}

#[test]
fn a_graph_ends_as_the_first_of_its_processes_and_says_which() {
    let folder = tempfile::tempdir().unwrap();
    // The first worker to find no file is the only one to end; the others end with their input.
    let once = "mkdir \"$DYN_FILE_KV/taken\" 2>/dev/null || exec sleep 2; echo last words ${DYN_ROUTER_MODE-of its own}; exit 9";
    let output = graph(folder.path(), "2", "exec sleep 2", once).output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{}", said(&output));
    assert!(said(&output).contains(" of 2 of the graph ended: exit code 9"), "{}", said(&output));
    // A worker of Dynamo would overrule the frontend with the mode.
    assert!(said(&output).contains(") last words of its own\n"), "each line says who said it: {}", said(&output));
    let pages = said(&output).matches(": metrics at http://127.0.0.1:").count();
    assert_eq!(pages, 2);
    let output = graph(folder.path(), "1", "kill -9 $$", "exec sleep 2").output().unwrap();
    assert_eq!(output.status.code(), Some(137));
    assert!(said(&output).contains("the frontend of the graph ended: signal 9"), "{}", said(&output));
}

#[test]
fn a_frontend_is_started_anew_beside_its_workers() {
    let folder = tempfile::tempdir().unwrap();
    let worker = "echo worker; exec sleep 20";
    let mut running = graph(folder.path(), "1", "echo first $DYN_HTTP_PORT $DYN_ROUTER_MODE; exec sleep 20", worker)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("first 4242 kv")));
    // It appears whole.
    std::fs::write(folder.path().join("new"), "1\nsh\n-c\necho second; exit 7\n\n").unwrap();
    std::fs::rename(folder.path().join("new"), folder.path().join("frontend")).unwrap();
    let rest: Vec<String> = lines.collect();
    assert_eq!(running.wait().unwrap().code(), Some(7), "{rest:?}");
    assert!(rest.iter().any(|line| line.starts_with("(Frontend pid=") && line.ends_with(" second")), "{rest:?}");
    assert!(rest.iter().filter(|line| line.ends_with(" worker")).count() <= 1, "the worker stays: {rest:?}");
    let done = std::fs::read_to_string(folder.path().join("frontend.done")).unwrap();
    assert_eq!(done, "1");
}

/// What ends a graph while it starts.
#[derive(Clone, Copy, Debug)]
enum End {
    Order,
    /// The tuner is gone.
    Closed,
    /// SIGTERM to the whole group.
    Group,
    /// SIGTERM to the graph's own process.
    Graph,
    GuardianKilled,
}

/// Ends a graph of three workers so long after its guardian's start, and says how long its last process lived on.
fn ended_while_it_starts(end: End, after: Duration) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let scratch = folder.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    // A process that leaves the group, and one that does not.
    let sleeps = "setsid sleep 50 & sleep 50 & exec sleep 50";
    let mut guardian = Command::new(BINARY)
        .args(["guardian", "--grace-ms", "20000", "--scratch"])
        .arg(&scratch)
        .args(["--", BINARY, "graph", "--port", "4242", "--workers", "3"])
        .args(["--", "sh", "-c", sleeps, "---", "sh", "-c", sleeps])
        .env("TMPDIR", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut orders = guardian.stdin.take().unwrap();
    let mut reports = BufReader::new(guardian.stdout.take().unwrap()).lines().map(Result::unwrap);
    let spawned = reports.next().unwrap();
    let group: i32 = spawned.trim_end_matches('}').rsplit(':').next().unwrap().parse().unwrap();
    std::thread::sleep(after);
    let begun = Instant::now();
    let signal = |pid: i32, signal: &str| drop(Command::new("kill").args([signal, "--", &pid.to_string()]).output());
    match end {
        End::Order => writeln!(orders, "term").unwrap(),
        End::Closed => drop(orders),
        End::Group => signal(-group, "-TERM"),
        End::Graph => {
            let mut pids = started_in(folder.path()).into_iter();
            let is_graph = |pid: &i32| {
                let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&words).split('\0').nth(1) == Some("graph")
            };
            match pids.find(is_graph) {
                Some(pid) => signal(pid, "-TERM"),
                None => writeln!(orders, "term").unwrap(),
            }
        }
        End::GuardianKilled => guardian.kill().unwrap(),
    }
    while !started_in(folder.path()).is_empty() && begun.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let lived = begun.elapsed();
    guardian.wait().unwrap();
    lived
}

/// `KILLS=400` tries so many moments.
#[test]
fn a_graph_that_is_ended_while_it_starts_leaves_no_process() {
    let ends = [End::Order, End::Closed, End::Group, End::Graph, End::GuardianKilled];
    let count: usize = std::env::var("KILLS").map_or(20, |count| count.parse().unwrap());
    let one = &|number: usize| {
        // Moments of a low-discrepancy sequence within the first 300 ms.
        let after = Duration::from_micros((number as u64 * 185_410) % 300_000);
        let end = ends[number % ends.len()];
        let lived = ended_while_it_starts(end, after);
        (lived > Duration::from_secs(10)).then(|| format!("{end:?} after {after:?}: ended within {lived:?}"))
    };
    let late: Vec<String> = (0..count)
        .collect::<Vec<_>>()
        .chunks(4)
        .flat_map(|numbers| {
            std::thread::scope(|scope| {
                let running: Vec<_> = numbers.iter().map(|number| scope.spawn(move || one(*number))).collect();
                running.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            })
        })
        .collect();
    assert!(late.is_empty(), "SIGKILL ends after 20 s what SIGTERM did not: {late:#?}");
}
