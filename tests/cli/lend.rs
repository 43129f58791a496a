//! `--workers` and `--rank`: a process that lends its engine to the leader of a session.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command};
use std::thread::JoinHandle;
use std::time::Duration;

use autotune::rig::{JobMark, ProbeAsk, RemoteRig, Rig, Trial, Worker};
use autotune::settings::{Plan, parse};
use autotune::token::Token;
use autotune::units::{Rate, Seconds};
use autotune::verdict::{Awaited, Slack, Window};
use autotune::workload::Corpus;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::workbench::{Workbench, half_sent, said, started_in};

const TOKEN: &str = "0123456789-of-a-test";

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A second process of the bench's job, and what it says.
struct Second {
    child: Child,
    workers: String,
    url: String,
    said: Option<JoinHandle<Vec<String>>>,
}

impl Second {
    /// Started, and listening on loopback.
    fn start(bench: &Workbench) -> Self {
        Self::by(bench, Workbench::command, None)
    }

    /// Started by that command, with that token.
    fn by(bench: &Workbench, command: fn(&Workbench, &[&str]) -> Command, token: Option<&str>) -> Self {
        let url = format!("http://127.0.0.1:{}", free_port());
        let workers = format!("http://127.0.0.1:{},{url}", free_port());
        let mut command = command(bench, &["--workers", &workers, "--rank", "1"]);
        let mut child = command.envs(token.map(|token| ("AUTOTUNE_TOKEN", token))).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), format!("worker 1 lends its engine at {url}"));
        // A full pipe would stop it.
        let said = Some(std::thread::spawn(move || lines.collect()));
        Self { child, workers, url, said }
    }

    /// Its exit code, and what it said from its first line on.
    fn ended(mut self) -> (Option<i32>, Vec<String>) {
        let code = self.child.wait().unwrap().code();
        (code, self.said.take().unwrap().join().unwrap())
    }
}

impl Drop for Second {
    /// A test that failed leaves nothing running.
    fn drop(&mut self) {
        drop(self.child.kill());
    }
}

fn plan(bench: &Workbench) -> Plan {
    parse("space.toml", &std::fs::read_to_string(bench.path("space.toml")).unwrap()).unwrap()
}

/// Processes that were started with the bench's temporary folder or one in it: the program, guardians, engines.
fn processes(bench: &Workbench) -> usize {
    started_in(&bench.path("tmp")).len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_worker_launches_probes_and_leaves_nothing_behind() {
    let bench = Workbench::new("", "");
    let second = Second::by(&bench, Workbench::command, Some(TOKEN));
    let plan = plan(&bench);
    let token = Token::parse(TOKEN).unwrap();
    let job = JobMark::of(&plan, "space.toml", plan.search.seed, &Corpus::default());
    let worker = Worker::new(1, second.url.parse().unwrap(), "test", Some(&token), Duration::from_secs(60)).unwrap();
    worker.greet(&job, |_| {}).await.unwrap();
    let mut rig = RemoteRig::new(worker, job, Corpus::default());
    assert_eq!(processes(&bench), 1, "nothing is started before it is asked for");

    let trial = Trial { number: 1, attempt: 1, warmed: None, on: None };
    let mut no_process_of_ours = |_: &autotune::rig::Spawned| panic!("a process of another machine");
    let ready = rig.launch(trial, &plan.space.baseline(), &mut no_process_of_ours).await.unwrap();
    assert_eq!(ready.model, "sim-model");
    let all = started_in(&bench.path("tmp"));
    assert!(all.len() >= 3, "the program, a guardian, an engine");
    let environment = |pid: &i32| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let told = all.iter().filter(|pid| String::from_utf8_lossy(&environment(pid)).contains(TOKEN)).count();
    assert_eq!(told, 1, "an engine is not told the token");
    let window = Window { from: Seconds(0.2), to: Seconds(0.8) };
    let (rate, answer_time) = (Rate(40.0), ready.warmed.answer_time);
    let ask = ProbeAsk {
        rate,
        window,
        arrival_seed: 1,
        content_seed: 2,
        answer_time,
        growth: 1.0,
        slack: Slack::UNBOUNDED,
        awaited: Awaited::All,
    };
    let measured = rig.probe(&ask).await.unwrap();
    assert!(measured.complete && measured.records.iter().any(|r| r.complete()), "{measured:?}");

    kill(Pid::from_raw(second.child.id() as i32), Signal::SIGTERM).unwrap();
    let (code, words) = second.ended();
    assert_eq!(code, Some(5), "the leader still wants it: {words:?}");
    for part in ["launching max-num-seqs 4 (trial 1)", "ready after", "probing at 40.0 req/s", "measured"] {
        assert!(words.iter().any(|line| line.contains(part)), "{part} is missing in {words:?}");
    }
    assert_eq!(processes(&bench), 0, "the engine is gone before the program is");
    bench.assert_nothing_left();
    assert!(bench.path("out/trials/t001-1/engine.log").exists());
    assert!(!bench.path("out/journal.jsonl").exists(), "the journal is the leader's");
}

#[test]
fn the_leader_ends_the_others_with_its_answer() {
    let bench = Workbench::with_budget("", "", "3s");
    let second = Second::by(&bench, Workbench::command, Some(TOKEN));
    for (name, token) in [("token", TOKEN), ("other", "another-0123456789")] {
        std::fs::write(bench.path(name), format!("{token}\n")).unwrap();
    }
    let refused = bench.run(&["--workers", &second.workers, "--rank", "0", "--token-file", "other"]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("same --token-file"), "{}", said(&refused));
    let lead = bench.run(&["--workers", &second.workers, "--rank", "0", "--token-file", "token", "--resume"]);
    assert!(bench.measured_nothing(lead.status) || bench.has_answered(lead.status), "{}", said(&lead));
    let (code, words) = second.ended();
    assert_eq!(code, Some(0), "{words:?}");
    assert_eq!(processes(&bench), 0);
    bench.assert_nothing_left();
}

#[test]
fn a_worker_for_another_job_and_a_port_that_is_taken_are_mistakes_of_the_command_line() {
    let bench = Workbench::new("", "");
    let second = Second::start(&bench);
    let taken = bench.run(&["--workers", &second.workers, "--rank", "1"]);
    assert_eq!(taken.status.code(), Some(2), "{}", said(&taken));
    assert!(said(&taken).contains(&second.url) && said(&taken).contains("in use"), "{}", said(&taken));
    let other = bench.run(&["--workers", &second.workers, "--rank", "0", "--seed", "12345"]);
    assert_eq!(other.status.code(), Some(2), "{}", said(&other));
    for part in ["worker 1 at", "same space file and --seed"] {
        assert!(said(&other).contains(part), "{part} is missing in {}", said(&other));
    }
    kill(Pid::from_raw(second.child.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(second.ended().0, Some(5));
}

#[test]
fn an_engine_is_lent_to_a_network_with_a_token_alone() {
    let bench = Workbench::new("", "");
    // An address that others may reach us by.
    let workers = format!("http://192.0.2.1:1,http://192.0.2.2:{}", free_port());
    let lend = |more: &[&str]| bench.command(&[&["--workers", &workers, "--rank", "1"][..], more].concat());
    let open = lend(&[]).output().unwrap();
    assert_eq!(open.status.code(), Some(2), "{}", said(&open));
    assert!(said(&open).contains("to whoever reaches that port") && said(&open).contains("--token-file"));
    std::fs::write(bench.path("short"), "hush").unwrap();
    for (file, part) in [("short", "16 to 1024 characters"), ("missing", "failed to read --token-file missing")] {
        let wrong = lend(&["--token-file", file]).output().unwrap();
        assert_eq!(wrong.status.code(), Some(2), "{}", said(&wrong));
        assert!(said(&wrong).contains(part) && !said(&wrong).contains("hush"), "{}", said(&wrong));
    }
    let mut lent = lend(&[]).env("AUTOTUNE_TOKEN", TOKEN).spawn().unwrap();
    let first = BufReader::new(lent.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    kill(Pid::from_raw(lent.id() as i32), Signal::SIGTERM).unwrap();
    lent.wait().unwrap();
    assert!(first.starts_with("worker 1 lends its engine at http://0.0.0.0:"), "{first}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_that_come_to_no_end_do_not_deafen_a_worker_with_few_files() {
    let bench = Workbench::new("", "");
    let second = Second::by(&bench, Workbench::command_of_few_files, None);
    let half = half_sent(&second.url);
    assert!(half.len() > 100, "{}", half.len());
    let plan = plan(&bench);
    let job = JobMark::of(&plan, "space.toml", plan.search.seed, &Corpus::default());
    let worker = Worker::new(1, second.url.parse().unwrap(), "test", None, Duration::from_secs(120)).unwrap();
    worker.greet(&job, |_| {}).await.unwrap();
    kill(Pid::from_raw(second.child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(second.ended().0, Some(5));
    drop(half);
}
