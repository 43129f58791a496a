//! `autotune bench` as its user runs it, against the simulated engine.

use std::io::{BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::sim_engine::ready_at;
use crate::workbench::{BINARY, said};

/// The simulated engine on a free port; it ends with the test.
pub struct Engine {
    process: Child,
    url: String,
}

impl Engine {
    pub fn start(flags: &[&str]) -> Self {
        let mut process = Command::new(BINARY)
            .args(["sim-engine", "tiny", "--port", "0", "--sim-start-seconds", "0.1"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let port = ready_at(&mut log);
        // A full pipe would stop it.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { process, url: format!("http://127.0.0.1:{port}") }
    }

    fn bench(&self, arguments: &str) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(["bench", "--url", &self.url, "--input-tokens", "150-250", "--output-tokens", "16-32"])
            .args(arguments.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn measure(&self, arguments: &str) -> Output {
        self.bench(arguments).output().unwrap()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // One that died by its fault is only waited for.
        let _ = kill(Pid::from_raw(self.process.id() as i32), Signal::SIGTERM);
        self.process.wait().unwrap();
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_level_gives_a_block_and_files() {
    let (engine, folder) = (Engine::start(&[]), tempfile::tempdir().unwrap());
    let out = folder.path().join("results");
    let run = engine.measure(&format!("--rate 20 --duration 2s --slo ttft_p99=2s --out {}", out.display()));
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let table = String::from_utf8(run.stdout).unwrap();
    for part in ["20.0 req/s", "ttft", "tpot", "goodput", "emptied before", "running", "pass"] {
        assert!(table.contains(part), "{part} is missing in\n{table}");
    }
    let result = json(&out.join("rate-20.json"));
    assert!(result["completed"].as_u64().unwrap() > 10 && result["failed"] == 0, "{result}");
    assert!(result["p99_ttft_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(result["autotune"]["partial"], false);
    let csv = std::fs::read_to_string(out.join("rate-20.requests.csv")).unwrap();
    assert!(csv.starts_with("id,due,sent,first,last,") && csv.lines().count() > 20);
    assert_eq!(json(&out.join("ladder.json"))["levels"].as_array().unwrap().len(), 1);
}

#[test]
fn a_ladder_marks_the_highest_level_that_keeps_the_promises() {
    let engine = Engine::start(&[]);
    // The engine can do some eighty a second.
    let run = engine.measure("--rates 10,400 --duration 2s --ramp 200ms --slo ttft_p99=1s --quiet --cool-down 1ms");
    let table = String::from_utf8_lossy(&run.stdout).into_owned();
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let marked: Vec<&str> = table.lines().filter(|l| l.contains("<- highest passing")).collect();
    assert!(marked.len() == 1 && marked[0].trim_start().starts_with("10.0"), "{table}");
    let users = engine.measure("--concurrency 1,8 --duration 1s --ramp 200ms --quiet --json --cool-down 1ms");
    let ladder: Value = serde_json::from_slice(&users.stdout).unwrap();
    let achieved = |level: usize| ladder["levels"][level]["achieved_rate"].as_f64().unwrap();
    assert!(achieved(1) > 1.5 * achieved(0), "more users get more done: {ladder}");
    assert_eq!(ladder["levels"][1]["peak_concurrency"], 8);
}

#[test]
fn promises_that_no_level_keeps_are_an_exit_code() {
    let run = Engine::start(&[]).measure("--rate 20 --duration 1s --slo ttft_p99=1ms --quiet");
    assert_eq!(run.status.code(), Some(3), "{}", said(&run));
}

#[test]
fn an_interrupt_gives_what_was_measured_so_far() {
    let engine = Engine::start(&[]);
    let bench = engine.bench("--rate 20 --duration 5m --json").spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    kill(Pid::from_raw(bench.id() as i32), Signal::SIGINT).unwrap();
    let run = bench.wait_with_output().unwrap();
    assert_eq!(run.status.code(), Some(5), "{}", said(&run));
    let result: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(result["autotune"]["partial"], true);
}

#[test]
fn a_server_that_dies_on_the_way_up_leaves_the_levels_below() {
    let engine = Engine::start(&["--sim-fault", "die-in-load"]);
    let folder = tempfile::tempdir().unwrap();
    // It dies after a hundred answers or so: somewhere on the way.
    let run = engine.measure(&format!(
        "--rates 10,200,10 --duration 1s --ramp 100ms --cool-down 1ms --quiet --out {}",
        folder.path().display()
    ));
    assert_eq!(run.status.code(), Some(1), "{}", said(&run));
    assert!(String::from_utf8_lossy(&run.stdout).contains("10.0"), "what was measured is shown: {}", said(&run));
    assert!(folder.path().join("rate-10.json").exists() && folder.path().join("ladder.json").exists());
    assert!(said(&run).contains("failed to load"), "{}", said(&run));
}

#[test]
fn find_answers_with_a_curve_of_users_and_its_file() {
    let (engine, folder) = (Engine::start(&[]), tempfile::tempdir().unwrap());
    let find = || {
        engine.measure(&format!(
            "--find users --slo ttft_p95=400ms,800ms --slo tpot_p99=1s --duration 700ms --cool-down 1ms --precision 30% --budget 3m --out {}",
            folder.path().display()
        ))
    };
    let run = find();
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(text.contains("the most users by ttft_p95, with tpot_p99 <= 1.0 s:"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let found = json(&folder.path().join("find.json"));
    let of = |answer: usize, key: &str| found["answers"][answer][key].as_f64().unwrap();
    for answer in [0, 1] {
        let (status, binding) = (&found["answers"][answer]["status"], &found["answers"][answer]["binding"]);
        assert_eq!((status, binding), (&"found".into(), &"ttft_p95".into()));
        assert!(of(answer, "from") <= of(answer, "level") && of(answer, "level") <= of(answer, "to"), "{text}");
    }
    // It answers eighty a second, and eleven at once without a queue: 400 ms are 32 more.
    assert!((15.0..=80.0).contains(&of(0, "level")) && of(1, "level") > of(0, "level"), "{text}");
    let level = &found["levels"][0];
    assert!(level["ttft"]["p99"].as_f64().unwrap() > 0.0 && level["cache"]["measured_share"].is_number(), "{level}");
    assert!(folder.path().join("users-8.json").exists() && said(&run).contains("find.json"), "{}", said(&run));
    let again = find();
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));
}

#[test]
fn find_refuses_what_cannot_be_bracketed() {
    let engine = Engine::start(&[]);
    for (arguments, code, part) in [
        ("--find users --slo ttft_p95=1ms", 3, "not even 1 user, the lowest level allowed, keeps ttft_p95 <= 1.0 ms"),
        ("--find rate --between 1,5 --slo ttft_p50=5s", 6, "5.00 req/s, the highest level allowed, still keeps"),
        ("--find users --between 1,2 --think 10s --slo ttft_p99=5s", 6, "says nothing with fewer than 100: --duration"),
        ("--find users", 2, "--find needs limits"),
        ("--find rate --between 5,1 --slo ttft_p95=1s", 2, "--between takes"),
        ("--find users --max-concurrency 4 --slo ttft_p95=1s", 2, "--max-concurrency holds back an open loop"),
        ("--find users --rate 4 --slo ttft_p95=1s", 2, "--find"),
    ] {
        let run = engine.measure(&format!("{arguments} --duration 300ms --cool-down 1ms --quiet"));
        let words = said(&run).split_whitespace().collect::<Vec<_>>().join(" ");
        // A machine that starves the client measures nothing, and then the words say so.
        let starved = run.status.code() == Some(1)
            && words.contains("the data do not show that it lies between 8 and 8 users, the ends of what was measured; our own client was too slow");
        let refused = run.status.code() == Some(code) && words.contains(part);
        assert!(refused || starved, "{arguments}: {:?} {words}", run.status);
    }
}

#[test]
fn a_rate_with_a_cap_on_concurrency_sends_what_the_cap_lets_through() {
    let run = Engine::start(&[]).measure("--rate 400 --max-concurrency 4 --duration 1s --ramp 300ms --json --quiet");
    let result: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(
        (&result["max_concurrent_requests"], &result["max_concurrency"]),
        (&4.into(), &4.into()),
        "{}",
        said(&run)
    );
    assert_eq!((&result["autotune"]["standing"], &result["failed"]), (&"saturated".into(), &0.into()));
    assert!(result["autotune"]["because"].as_str().unwrap().contains("--max-concurrency 4 held arrivals back"));
}

/// Without a limit, a first request is waited for as long as any: a minute.
#[test]
fn a_timeout_covers_the_first_request_too() {
    // Whoever connects waits for ever.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let begun = Instant::now();
    let mut bench = Command::new(BINARY);
    let run =
        bench.args(["bench", "--url", &url, "--model", "m", "--rate", "1", "--timeout", "700ms"]).output().unwrap();
    assert_eq!(run.status.code(), Some(1), "{}", said(&run));
    assert!(said(&run).contains("no answer to its first request within 700 ms"), "{}", said(&run));
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
}

/// The address of a server that gives one answer, whatever it is asked.
fn answering(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 4096];
        let _ = stream.read(&mut asked).unwrap();
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}").unwrap();
    });
    url
}

#[test]
fn results_are_not_overwritten_and_their_place_is_said() {
    let (engine, folder) = (Engine::start(&[]), tempfile::tempdir().unwrap());
    let bench = || engine.measure(&format!("--rate 20 --duration 1s --ramp 100ms --out {}", folder.path().display()));
    let first = bench();
    assert_eq!(first.status.code(), Some(0), "{}", said(&first));
    assert!(said(&first).contains(&format!("results: {}", folder.path().display())), "{}", said(&first));
    assert!(said(&first).contains("a p99 of fewer than 100 requests"), "{}", said(&first));
    let again = bench();
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));
    assert!(said(&again).contains("holds the results of an earlier benchmark; name another --out"), "{}", said(&again));
}

#[test]
fn the_default_request_fits_the_simulated_engine() {
    let engine = Engine::start(&[]);
    let mut command = Command::new(BINARY);
    let run = command.args(["bench", "--url", &engine.url, "--rate", "4", "--duration", "2s"]).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    assert!(said(&run).contains(" 0 failed"), "{}", said(&run));
}

#[test]
fn what_cannot_be_measured_is_said_with_its_remedy() {
    let refused = |url: &str, arguments: &str| {
        let mut command = Command::new(BINARY);
        let run = command.args(["bench", "--url", url]).args(arguments.split_whitespace()).output().unwrap();
        (run.status.code(), said(&run))
    };
    for (url, arguments, code, part) in [
        ("http://127.0.0.1:1", "--rate 1", 1, "nothing listens there"),
        ("http://no-such-host.invalid:1", "--rate 1", 1, "no host has this name"),
        (&answering("404 Not Found"), "--rate 1", 1, "no such path"),
        (&answering("401 Unauthorized"), "--rate 1", 1, "wants a key"),
        (&answering("200 OK"), "--rate 1", 1, "lists no model"),
        ("http://127.0.0.1:1", "--rate 1 --model m", 1, "refused-connection"),
        ("http://127.0.0.1:1", "", 2, "--rates 1,2,4"),
        ("http://127.0.0.1:1", "--rate 0", 2, "above 0"),
        ("http://127.0.0.1:1", "--rate 5,10", 2, "--rates takes several"),
        ("http://127.0.0.1:1", "--at-once 1000000 --input-tokens 10000000", 2, "do not fit into memory"),
        ("http://127.0.0.1:1", "--concurrency 1,100000 --input-tokens 10000000", 2, "do not fit into memory"),
        ("http://127.0.0.1:1", "--recorded", 2, "--dataset"),
        ("http://127.0.0.1:1", "--rate 1 --header nonsense", 2, "NAME: VALUE"),
        ("http://me:secret@127.0.0.1:1", "--rate 1", 2, "--header"),
        ("http://127.0.0.1:1", "--rate 1 --model m --extra-body 3", 2, "JSON object"),
        ("ftp://127.0.0.1", "--rate 1 --model m", 2, "http"),
        ("https://127.0.0.1:1", "--rate 1 --model m --ca-cert /nowhere.pem", 2, "/nowhere.pem"),
    ] {
        let (exit, words) = refused(url, arguments);
        assert!(exit == Some(code) && words.contains(part), "{url} {arguments}: {exit:?} {words}");
        assert!(!words.contains("secret"), "{words}");
    }
}
