//! Leader and worker over a real loopback socket; behind it an engine that exists in arithmetic alone, and does what a test wants.

#![expect(clippy::disallowed_methods, reason = "the answers are our own, and end")]

use std::future::pending;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::quickstart::quickstart;
use crate::rig::protocol::JobMark;
use crate::rig::{
    Address, Failure, Measured, ProbeAsk, Ready, RemoteRig, RigError, SimulatedRig, Spawned, Trial, Worker, WorkerError,
};
use crate::verdict::{Slack, Window};
use autotune_load::{read_records, write_records};
use autotune_plan::engine::diagnosis::{Cause, Consequence, Diagnosis};
use autotune_plan::settings::Plan;
use autotune_plan::space::{Point, Value};
use autotune_records::units::Rate;
use autotune_twin::Profile;
use autotune_workload::{Corpus, Material, Vocabulary};

/// A launch with this number never comes to an end.
const ENDLESS: u32 = 99;
/// A launch with this number meets a machine that fails.
const BROKEN_MACHINE: u32 = 98;
/// A launch with this number fails.
const BROKEN_ENGINE: u32 = 97;
/// A probe at this rate never comes to an end.
const STALLED: Rate = Rate(77.0);
/// A probe at this rate has very many requests.
const CROWDED: Rate = Rate(78.0);
const CROWD: usize = 60_000;

/// Tests that wait for something wait so long at most.
const LONG: Duration = Duration::from_secs(60);

fn plan() -> Plan {
    quickstart(&[])
}

fn simulated() -> SimulatedRig {
    let material = Material { vocabulary: Vocabulary::default().with_ratio(1, 3), ..Material::default() };
    SimulatedRig::new(plan(), Profile::quickstart(), 1, material)
}

fn failure() -> Failure {
    let diagnosis = Diagnosis {
        cause: Cause::OutOfMemory,
        line: Some("torch.OutOfMemoryError: \"CUDA\" \u{2588}".into()),
        says: "too little memory".into(),
        consequence: Consequence::ValueRefused { flag: Some("max-num-seqs".into()) },
    };
    Failure { diagnosis, took: Seconds(0.1 + 0.2) }
}

/// A simulated rig that tells what is done with it.
struct Scripted {
    rig: SimulatedRig,
    live: bool,
    done: UnboundedSender<&'static str>,
}

impl Scripted {
    fn note(&self, what: &'static str) {
        // A test that has ended hears nothing.
        let _ = self.done.send(what);
    }
}

impl Rig for Scripted {
    async fn launch(
        &mut self,
        trial: Trial,
        point: &Point,
        spawned: &mut (dyn FnMut(&Spawned) + Send),
    ) -> Result<Ready, RigError> {
        self.note("launch");
        self.live = true;
        match trial.number {
            ENDLESS => pending().await,
            BROKEN_MACHINE => Err(RigError::Machine("the disk is full\u{7}".into())),
            BROKEN_ENGINE => Err(RigError::Engine(Box::new(failure()))),
            _ => self.rig.launch(trial, point, spawned).await,
        }
    }

    fn material(&self) -> &Material {
        self.rig.material()
    }

    async fn probe(&mut self, ask: &ProbeAsk) -> Result<Measured, RigError> {
        self.note("probe");
        if ask.rate == STALLED {
            pending::<()>().await;
        }
        let mut measured = self.rig.probe(ask).await?;
        if ask.rate == CROWDED {
            let first = measured.records[0].clone();
            measured.records = vec![first; CROWD];
        }
        Ok(measured)
    }

    async fn stop(&mut self) -> Result<Seconds, RigError> {
        if std::mem::take(&mut self.live) {
            self.note("stop");
        }
        self.rig.stop().await
    }

    async fn kill(&mut self) {
        self.live = false;
        self.note("kill");
    }
}

/// A worker with its address, and what its rig does.
struct Bench {
    lent: Lent,
    address: Address,
    done: UnboundedReceiver<&'static str>,
}

impl Bench {
    fn new() -> Self {
        Self::at("127.0.0.1:0", LONG * 10)
    }

    fn at(socket: &str, silence: Duration) -> Self {
        let listener = TcpListener::bind(socket).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (tell, done) = unbounded_channel();
        let rig = Scripted { rig: simulated(), live: false, done: tell };
        let greeting = Greeting { rank: 1, job: job() };
        let terms = Terms { greeting, space: plan().space, token: Some(token()), silence };
        Self { lent: Lent::start(listener, rig, terms, |_| {}).unwrap(), address, done }
    }

    fn worker(&self, session: &str) -> Worker {
        Worker::new(1, self.address.clone(), session, Some(&token()), LONG).unwrap()
    }

    fn leader(&self, session: &str) -> RemoteRig {
        RemoteRig::new(self.worker(session), job(), Corpus::default())
    }

    /// The next thing that the rig does.
    async fn next(&mut self) -> &'static str {
        tokio::time::timeout(LONG, self.done.recv()).await.unwrap().unwrap()
    }

    /// All that it has done by now and was not asked for.
    fn since(&mut self) -> Vec<&'static str> {
        std::iter::from_fn(|| self.done.try_recv().ok()).collect()
    }

    /// Status and text of a request, sent once.
    async fn sent(&self, method: reqwest::Method, path: &str, session: &str, body: &str) -> (u16, String) {
        self.shown(Some(TOKEN), method, path, session, body).await
    }

    /// The same with another token.
    async fn shown(
        &self,
        token: Option<&str>,
        method: reqwest::Method,
        path: &str,
        session: &str,
        body: &str,
    ) -> (u16, String) {
        let access = autotune_http::access::Access { api_key: token.map(str::to_owned), ..Default::default() };
        let client = access.builder("http://x").unwrap().build().unwrap();
        let request = client.request(method, format!("{}/{path}", self.address)).header(SESSION, session);
        let response = request.body(body.to_owned()).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// Leaves the port, as a process that ends does.
    async fn end(mut self) {
        self.lent.end();
        self.lent.ended().await.unwrap();
        self.lent.close().await;
    }
}

const TOKEN: &str = "0123456789-of-a-test";

fn token() -> Token {
    Token::parse(TOKEN).unwrap()
}

fn job() -> JobMark {
    JobMark::of(&plan(), "quickstart.toml", 1, &Corpus::default())
}

fn trial(number: u32) -> Trial {
    Trial { number, attempt: 1, warmed: None, on: None }
}

fn ask(rate: Rate) -> ProbeAsk {
    let window = Window { from: Seconds(0.1), to: Seconds(1.0 + 0.1) };
    ProbeAsk { window, arrival_seed: u64::MAX, slack: Slack(1.5), ..ProbeAsk::at(rate) }
}

async fn launch<R: Rig>(rig: &mut R, number: u32) -> Result<Ready, RigError> {
    rig.launch(trial(number), &plan().space.baseline(), &mut |_| panic!("no process of another machine is told")).await
}

fn machine<T>(answer: Result<T, RigError>) -> String {
    match answer {
        Err(RigError::Machine(what)) => what,
        Err(RigError::Engine(failure)) => panic!("{failure:?}"),
        Ok(_) => panic!("it was done"),
    }
}

fn engine<T>(answer: Result<T, RigError>) -> Failure {
    match answer {
        Err(RigError::Engine(failure)) => *failure,
        Err(RigError::Machine(what)) => panic!("{what}"),
        Ok(_) => panic!("it was done"),
    }
}

#[tokio::test]
async fn a_remote_rig_answers_exactly_as_the_rig_behind_it() {
    let bench = Bench::new();
    let (mut there, mut here) = (bench.leader("a"), simulated());
    assert_eq!(there.material().vocabulary, Vocabulary::default());
    assert_eq!(launch(&mut there, 1).await.unwrap(), launch(&mut here, 1).await.unwrap());
    assert_eq!(there.material().vocabulary, here.material().vocabulary, "the engine's own words");
    let (remote, local) = (there.probe(&ask(Rate(40.0))).await.unwrap(), here.probe(&ask(Rate(40.0))).await.unwrap());
    let mut file = Vec::new();
    write_records(&local.records, &mut file).unwrap();
    assert_eq!(remote.records, read_records(&*file).unwrap(), "as a resumed session reads them");
    assert_eq!((remote.ended, remote.complete, remote.took), (local.ended, local.complete, local.took));
    assert_eq!((remote.telemetry, remote.cache, remote.client), (local.telemetry, local.cache, local.client));
    let many = there.probe(&ask(CROWDED)).await.unwrap();
    assert_eq!(many.records.len(), CROWD, "answers have no limit");
    assert_eq!(there.stop().await.unwrap(), Seconds(0.0));
    assert_eq!(there.material().vocabulary, Vocabulary::default());
    assert_eq!(engine(launch(&mut there, BROKEN_ENGINE).await), failure());
    let says = machine(launch(&mut there, BROKEN_MACHINE).await);
    assert_eq!(says, format!("worker 1 at {}: the disk is full\u{fffd}", bench.address), "but for what rings a bell");
}

#[tokio::test]
async fn a_request_that_is_repeated_starts_once() {
    let mut bench = Bench::new();
    let task = Task::Launch { trial: trial(1), point: Point::default() };
    let body = serde_json::to_string(&task).unwrap();
    for _ in 0..3 {
        assert_eq!(bench.sent(reqwest::Method::PUT, "tasks/5", "a", &body).await.0, 202);
    }
    let (status, answer) = bench.sent(reqwest::Method::GET, "tasks/5", "a", "").await;
    assert!(status == 200 && answer.contains("kv_cache_tokens"), "{status} {answer}");
    assert_eq!(bench.sent(reqwest::Method::GET, "tasks/5", "a", "").await.1, answer, "it can be asked for again");
    assert_eq!(bench.sent(reqwest::Method::PUT, "tasks/5", "a", &body).await.0, 202);
    assert_eq!(
        bench.sent(reqwest::Method::PUT, "tasks/4", "a", &body).await.0,
        409,
        "one that was on its way too long"
    );
    assert_eq!(bench.sent(reqwest::Method::GET, "tasks/6", "a", "").await.0, 404);
    assert_eq!(bench.sent(reqwest::Method::PUT, "tasks/6", "", &body).await.0, 400);
    assert_eq!(bench.sent(reqwest::Method::PUT, "tasks/6", "a", "{\"command\": [\"sh\"]}").await.0, 400);
    assert_eq!((bench.next().await, bench.since()), ("launch", vec![]));
}

#[tokio::test]
async fn a_worker_that_was_replaced_lost_its_engine_and_is_tried_again() {
    let bench = Bench::new();
    let socket = bench.address.to_string().replace("http://", "");
    let mut leader = bench.leader("a");
    launch(&mut leader, 1).await.unwrap();
    bench.end().await;
    let mut bench = Bench::at(&socket, LONG);
    let failure = engine(leader.probe(&ask(Rate(40.0))).await);
    assert_eq!(failure.diagnosis.consequence, Consequence::Retry);
    assert!(failure.diagnosis.says.contains("worker 1") && failure.diagnosis.says.contains("replaced"), "{failure:?}");
    assert_eq!(bench.since(), Vec::<&str>::new());
    launch(&mut leader, 1).await.unwrap();
    leader.probe(&ask(Rate(40.0))).await.unwrap();
    assert_eq!(bench.since(), ["launch", "probe"]);

    // In the middle of a launch: the leader asks until the next worker says that it knows nothing of it.
    let mut bench = bench;
    let (failed, bench) = tokio::join!(launch(&mut leader, ENDLESS), async {
        assert_eq!((bench.next().await, bench.next().await), ("stop", "launch"));
        bench.end().await;
        Bench::at(&socket, LONG)
    });
    assert_eq!(engine(failed).diagnosis.consequence, Consequence::Retry);
    leader.stop().await.unwrap();
    bench.end().await;
}

#[tokio::test]
async fn another_session_takes_over_and_the_old_engine_is_stopped_first() {
    let mut bench = Bench::new();
    let (mut old, mut new) = (bench.leader("old"), bench.leader("new"));
    launch(&mut old, 1).await.unwrap();
    assert!(engine(new.probe(&ask(Rate(40.0))).await).diagnosis.says.contains("gone"), "a probe takes nothing over");
    launch(&mut new, 2).await.unwrap();
    assert_eq!(bench.since(), ["launch", "stop", "launch"]);
    let says = machine(old.probe(&ask(Rate(40.0))).await);
    assert!(says.contains("another leader"), "{says}");
    assert!(machine(launch(&mut old, 3).await).contains("another leader"), "it does not take it back");
    old.stop().await.unwrap();
    old.kill().await;
    new.probe(&ask(Rate(40.0))).await.unwrap();
    assert_eq!(bench.since(), ["probe"]);
    // A leader that died in the middle of a launch.
    let mut third = bench.leader("third");
    let (_, ready) = tokio::join!(tokio::time::timeout(LONG, launch(&mut new, ENDLESS)), async {
        assert_eq!((bench.next().await, bench.next().await), ("stop", "launch"));
        let ready = launch(&mut third, 4).await;
        assert_eq!((bench.next().await, bench.next().await), ("stop", "launch"));
        ready
    });
    ready.unwrap();
}

#[tokio::test]
async fn a_leader_that_falls_silent_frees_the_worker() {
    let mut bench = Bench::at("127.0.0.1:0", Duration::from_millis(200));
    let body = serde_json::to_string(&Task::Launch { trial: trial(1), point: Point::default() }).unwrap();
    assert_eq!(bench.sent(reqwest::Method::PUT, "tasks/1", "a", &body).await.0, 202);
    assert_eq!((bench.next().await, bench.next().await), ("launch", "stop"));
    assert_eq!(bench.sent(reqwest::Method::GET, "tasks/1", "a", "").await.0, 404);
    // It was not taken over: its leader may come back.
    assert_eq!(bench.sent(reqwest::Method::PUT, "tasks/2", "a", &body).await.0, 202);
    assert_eq!(bench.next().await, "launch");
}

#[tokio::test]
async fn a_leader_that_waits_for_an_answer_is_not_silent() {
    let mut bench = Bench::at("127.0.0.1:0", Duration::from_secs(5));
    let mut leader = bench.leader("a");
    let launching = tokio::time::timeout(Duration::from_secs(7), launch(&mut leader, ENDLESS));
    assert!(launching.await.is_err(), "an endless launch ends with its leader's patience alone");
    assert_eq!(bench.since(), ["launch"]);
}

#[tokio::test]
async fn a_worker_for_another_job_is_refused_and_so_is_a_foreign_point() {
    let mut bench = Bench::new();
    let greet = async |rank, job: &JobMark| {
        let worker = Worker::new(rank, bench.address.clone(), "a", Some(&token()), LONG).unwrap();
        match worker.greet(job, |_| {}).await {
            Err(WorkerError::Unfit(says)) => says,
            other => panic!("{other:?}"),
        }
    };
    let other = JobMark { autotune: "9.9.9".into(), ..job() };
    let says = greet(1, &other).await;
    assert!(says.contains("worker 1 at") && says.contains("9.9.9") && says.contains("same program"), "{says}");
    assert!(greet(2, &job()).await.contains("has rank 1"), "the order of the addresses is another one there");
    bench.worker("a").greet(&job(), |_| panic!("it answers at once")).await.unwrap();
    let mut stranger = RemoteRig::new(bench.worker("a"), other, Corpus::default());
    assert!(machine(launch(&mut stranger, 1).await).contains("9.9.9"), "also one that was replaced meanwhile");

    let mut leader = bench.leader("a");
    let point = Point::default().with("host", Value::Text("0.0.0.0".into()));
    let says = machine(leader.launch(trial(1), &point, &mut |_| {}).await);
    assert!(says.contains("`host`") && says.contains("quickstart.toml"), "{says}");
    assert_eq!(bench.since(), Vec::<&str>::new());
}

#[tokio::test]
async fn without_the_token_no_route_does_anything() {
    let mut bench = Bench::new();
    let mut leader = bench.leader("a");
    launch(&mut leader, 1).await.unwrap();
    let task = serde_json::to_string(&Task::Launch { trial: trial(2), point: Point::default() }).unwrap();
    let near = format!("{}?", &TOKEN[..TOKEN.len() - 1]);
    for shown in [None, Some(""), Some(&TOKEN[1..]), Some(near.as_str())] {
        for (method, path) in [
            (reqwest::Method::GET, "hello"),
            (reqwest::Method::PUT, "tasks/2"),
            (reqwest::Method::GET, "tasks/1"),
            (reqwest::Method::POST, "kill"),
            (reqwest::Method::POST, "end"),
            (reqwest::Method::DELETE, "hello"),
            (reqwest::Method::GET, "nowhere"),
        ] {
            let (status, says) = bench.shown(shown, method, path, "b", &task).await;
            assert!(status == 401 && says.contains("--token-file"), "{shown:?} {path}: {status} {says}");
        }
    }
    leader.probe(&ask(Rate(40.0))).await.unwrap();
    assert_eq!(bench.since(), ["launch", "probe"], "the engine is still its leader's");

    let other = Token::parse("another-token-0123456789").unwrap();
    for token in [None, Some(&other)] {
        let stranger = Worker::new(1, bench.address.clone(), "b", token, LONG).unwrap();
        let says = stranger.greet(&job(), |_| panic!("it answers at once")).await.unwrap_err().to_string();
        assert!(says.contains("worker 1 at") && says.contains("--token-file"), "{says}");
        let mut stranger = RemoteRig::new(stranger, job(), Corpus::default());
        assert!(machine(launch(&mut stranger, 1).await).contains("--token-file"));
    }
    assert!(!format!("{:?}", bench.worker("a")).contains(TOKEN));
}

#[tokio::test]
async fn a_worker_that_does_not_answer_is_waited_for_and_then_named() {
    let bench = Bench::new();
    let (socket, address) = (bench.address.to_string().replace("http://", ""), bench.address.clone());
    bench.end().await;
    let job = job();
    let patient = |patience| Worker::new(1, address.clone(), "a", Some(&token()), patience).unwrap();
    let mut leader = RemoteRig::new(patient(Duration::from_millis(300)), job.clone(), Corpus::default());
    let says = machine(launch(&mut leader, 1).await);
    assert!(says.contains(&format!("worker 1 at {address} has not answered for")), "{says}");
    leader.stop().await.unwrap();

    let (noted, mut notes) = unbounded_channel();
    let worker = patient(LONG);
    let greeted = worker.greet(&job, |note| noted.send(note.to_owned()).unwrap());
    let (greeted, _bench) = tokio::join!(greeted, async {
        let note = notes.recv().await.unwrap();
        assert!(note.starts_with(&format!("waiting for worker 1 at {address}")), "{note}");
        Bench::at(&socket, LONG)
    });
    greeted.unwrap();
    assert!(notes.try_recv().is_err(), "it is said once");
}

#[tokio::test]
async fn a_stop_comes_between_a_probe_and_a_kill_between_everything() {
    let mut bench = Bench::new();
    let mut leader = bench.leader("a");
    launch(&mut leader, 1).await.unwrap();
    assert_eq!(bench.next().await, "launch");
    let stalled = ask(STALLED);
    tokio::select! {
        _ = leader.probe(&stalled) => panic!("it never ends"),
        probed = bench.next() => assert_eq!(probed, "probe"),
    }
    leader.stop().await.unwrap();
    assert_eq!(bench.since(), ["stop"]);
    tokio::select! {
        _ = launch(&mut leader, ENDLESS) => panic!("it never ends"),
        launched = bench.next() => assert_eq!(launched, "launch"),
    }
    leader.kill().await;
    assert_eq!(bench.next().await, "kill");
    launch(&mut leader, 1).await.unwrap();
    bench.worker("a").dismiss().await;
    bench.lent.ended().await.unwrap();
    assert_eq!(bench.since(), ["launch", "stop"], "a worker that is dismissed ends without its engine");
    bench.lent.close().await;
}
