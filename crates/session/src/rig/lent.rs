//! A rig that another process drives over HTTP, as [`protocol`](super::protocol) says: the worker's side.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post, put};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::protocol::{Greeting, SAME_TOKEN, SESSION, Task, TaskAnswer, WAIT, foreign, unreasonable};
use super::{Rig, RigError};
use crate::token::Token;
use autotune_clock as clock;
use autotune_http::serving::{Limits, Serving, respond};
use autotune_plan::space::Space;
use autotune_records::units::Seconds;

/// How long an answer may still be read once the worker ends.
const GRACE: Duration = Duration::from_millis(200);

/// What a rig is lent for.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Who lends it, for which job.
    pub greeting: Greeting,
    /// The points that may be launched.
    pub space: Space,
    /// The token that a leader must show. Without one, every client of the port may lead.
    pub token: Option<Token>,
    /// The worker is free after so long without a request of its leader.
    pub silence: Duration,
}

/// Why lending a rig failed or ended.
#[derive(Debug, thiserror::Error)]
pub enum LentError {
    #[error("failed to listen: {0}")]
    Listen(#[from] io::Error),
    /// The worker itself failed, or the machine is not clean after a stop.
    #[error("{0}")]
    Rig(String),
}

/// A rig that is lent until it is ended.
pub struct Lent {
    shared: Arc<Shared>,
    work: JoinHandle<Result<(), RigError>>,
    listening: JoinHandle<()>,
    serving: Serving,
}

impl Lent {
    /// Lends a rig at a listener, on the current runtime. `say` hears in plain words what the rig does.
    pub fn start<R: Rig + 'static>(
        listener: TcpListener,
        rig: R,
        terms: Terms,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, LentError> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (orders, received) = unbounded_channel();
        let state =
            WorkerState { session: None, deposed: Vec::new(), task: None, engine: false, last_contact: clock::now() };
        let say = Box::new(say);
        let shared = Arc::new(Shared { terms, state: Mutex::new(state), orders, killed: Notify::new(), say });
        Ok(Self {
            work: tokio::spawn(work(rig, Arc::clone(&shared), received)),
            listening: tokio::spawn(listen_for_silence(Arc::clone(&shared))),
            serving: Serving::start(listener, router(Arc::clone(&shared)), Limits::OPEN),
            shared,
        })
    }

    /// Asks it to end: the engine is stopped, and [`Lent::ended`] returns.
    pub fn end(&self) {
        self.shared.order(Order::End);
    }

    /// Kills every process of the engine; to be called after [`Lent::end`].
    pub fn kill(&self) {
        self.shared.killed.notify_one();
    }

    /// Waits until it was asked to end, here or by its leader, and the engine is stopped.
    pub async fn ended(&mut self) -> Result<(), LentError> {
        let ended = (&mut self.work).await;
        ended.map_err(|e| LentError::Rig(e.to_string()))?.map_err(|e| LentError::Rig(e.to_string()))
    }

    pub async fn close(self) {
        self.listening.abort();
        self.serving.end(GRACE).await;
    }
}

/// What the handlers of requests share with the task that drives the rig.
struct Shared {
    terms: Terms,
    state: Mutex<WorkerState>,
    orders: UnboundedSender<Order>,
    killed: Notify,
    say: Box<dyn Fn(&str) + Send + Sync>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, WorkerState> {
        // A handler that panicked left no half-made change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, order: Order) {
        // A rig that has ended takes no orders.
        drop(self.orders.send(order));
    }

    fn say(&self, words: &str) {
        (self.say)(words);
    }
}

/// The session that the rig belongs to, and its latest task.
struct WorkerState {
    session: Option<String>,
    /// Sessions that lost the rig to another one. They stay refused; otherwise two leaders would take it from each other for ever.
    deposed: Vec<String>,
    /// The latest task, and its answer once there is one.
    task: Option<(u64, watch::Receiver<Option<Bytes>>)>,
    /// Whether the session's engine serves.
    engine: bool,
    last_contact: Instant,
}

/// How a session stands to the rig.
#[derive(PartialEq)]
enum Standing {
    Own,
    Deposed,
    Stranger,
}

impl WorkerState {
    /// Hears a word of a session.
    fn contact(&mut self, session: &str) -> Standing {
        if self.session.as_deref() == Some(session) {
            self.last_contact = clock::now();
            return Standing::Own;
        }
        let deposed = self.deposed.iter().any(|other| other == session);
        if deposed { Standing::Deposed } else { Standing::Stranger }
    }

    /// Belongs to a session from now on.
    fn take_over(&mut self, session: &str) {
        let before = self.session.replace(session.to_owned());
        self.deposed.extend(before);
        (self.task, self.engine, self.last_contact) = (None, false, clock::now());
    }

    fn free(&mut self) {
        (self.session, self.task, self.engine) = (None, None, false);
    }
}

/// What the rig is to do next.
enum Order {
    Task(Job),
    /// Stop the engine: no leader uses it any more.
    Free,
    /// Stop the engine and end.
    End,
}

struct Job {
    session: String,
    number: u64,
    task: Task,
    answer: watch::Sender<Option<Bytes>>,
}

/// Follows the orders, one after the other. A launch or a probe is given up for a later order, a stop never is.
async fn work<R: Rig>(mut rig: R, shared: Arc<Shared>, mut orders: UnboundedReceiver<Order>) -> Result<(), RigError> {
    let mut next = None;
    let mut latest = String::new();
    loop {
        let order = match next.take() {
            Some(order) => Some(order),
            None => tokio::select! {
                order = orders.recv() => order,
                () = shared.killed.notified() => {
                    rig.kill().await;
                    continue;
                }
            },
        };
        let job = match order {
            None | Some(Order::End) => return stop(&mut rig, &shared).await.map(drop),
            Some(Order::Free) => {
                if let Err(error) = stop(&mut rig, &shared).await {
                    shared.say(&format!("failed to stop the engine: {error}"));
                }
                continue;
            }
            Some(Order::Task(job)) => job,
        };
        let taken_over = std::mem::replace(&mut latest, job.session.clone()) != job.session;
        let stopped = match &job.task {
            // The engine that runs may take the limits of this point.
            Task::Launch { trial, .. } if trial.on.is_some() && !taken_over => Ok(Seconds(0.0)),
            Task::Launch { .. } | Task::Stop => stop(&mut rig, &shared).await,
            Task::Probe(_) => Ok(Seconds(0.0)),
        };
        let answer = match (stopped, &job.task) {
            (Err(error), _) => Some(error.into()),
            (Ok(took), Task::Stop) => Some(TaskAnswer::Stopped(took)),
            (Ok(_), _) => tokio::select! {
                answer = perform(&mut rig, &shared, &job.task) => Some(answer),
                order = orders.recv() => {
                    next = Some(order.unwrap_or(Order::End));
                    None
                }
                () = shared.killed.notified() => {
                    rig.kill().await;
                    None
                }
            },
        };
        if let Some(answer) = answer {
            shared.say(&described(&answer));
            finish(&shared, &job, &answer);
        }
    }
}

/// Stops the engine, and kills it where a kill is asked for meanwhile.
async fn stop<R: Rig>(rig: &mut R, shared: &Shared) -> Result<Seconds, RigError> {
    let begun = clock::now();
    tokio::select! {
        stopped = rig.stop() => stopped,
        () = shared.killed.notified() => {
            rig.kill().await;
            Ok(begun.elapsed().into())
        }
    }
}

async fn perform<R: Rig>(rig: &mut R, shared: &Shared, task: &Task) -> TaskAnswer {
    let answer = match task {
        Task::Launch { trial, point } => {
            shared.say(&format!("launching {point} (trial {})", trial.number));
            let ready = rig.launch(*trial, point, &mut |_| {}).await;
            ready.map(|ready| TaskAnswer::Ready {
                ready: Box::new(ready),
                vocabulary: rig.material().vocabulary.clone(),
            })
        }
        Task::Probe(ask) => {
            shared.say(&format!("probing at {} for {}", ask.rate, ask.window.to));
            rig.probe(ask).await.map(|measured| TaskAnswer::Measured(Box::new(measured)))
        }
        Task::Stop => rig.stop().await.map(TaskAnswer::Stopped),
    };
    answer.unwrap_or_else(TaskAnswer::from)
}

/// What came of a task, in a line.
fn described(answer: &TaskAnswer) -> String {
    match answer {
        TaskAnswer::Ready { ready, .. } => format!("ready after {}", ready.took),
        TaskAnswer::Measured(measured) => format!("measured {} requests in {}", measured.records.len(), measured.took),
        TaskAnswer::Stopped(took) => format!("stopped after {took}"),
        TaskAnswer::Failed(failure) => format!("failed: {}", failure.diagnosis.says),
        TaskAnswer::Machine(what) => format!("failed: {what}"),
    }
}

/// Publishes the answer of a task, for the requests that wait for it.
fn finish(shared: &Shared, job: &Job, answer: &TaskAnswer) {
    let text = serde_json::to_vec(answer).or_else(|error| serde_json::to_vec(&TaskAnswer::Machine(error.to_string())));
    {
        let mut state = shared.state();
        let current = state.task.as_ref().is_some_and(|(number, _)| *number == job.number);
        if current && state.session.as_ref() == Some(&job.session) {
            state.engine = matches!(answer, TaskAnswer::Ready { .. } | TaskAnswer::Measured(_));
        }
    }
    // No request may wait for it any more.
    job.answer.send_replace(Some(text.unwrap_or_default().into()));
}

/// Frees the rig when its leader has been silent for too long.
async fn listen_for_silence(shared: Arc<Shared>) {
    let silence = shared.terms.silence;
    loop {
        let left = {
            let mut state = shared.state();
            let silent = state.last_contact.elapsed();
            if state.session.is_some() && silent >= silence {
                state.free();
                shared.say(&format!("free: the leader has been silent for {}", Seconds::from(silence)));
                shared.order(Order::Free);
            }
            if state.session.is_some() { silence.saturating_sub(silent) } else { silence }
        };
        // A session that takes the rig meanwhile is not silent before this ends.
        tokio::time::sleep(left.max(Duration::from_millis(1))).await;
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/hello", get(hello))
        .route("/tasks/{number}", put(begin).get(follow))
        .route("/kill", post(kill))
        .route("/end", post(end))
        .with_state(Arc::clone(&shared))
        .layer(from_fn_with_state(shared, admit))
}

/// Refuses a request without the token, before anything else of it is read.
async fn admit(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    if shared.terms.token.as_ref().is_none_or(|token| shown.is_some_and(|shown| token.is(shown))) {
        return next.run(request).await;
    }
    let mut refused = says(401, format!("this worker asks for the token of its run: {SAME_TOKEN}"));
    refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    refused
}

fn session(headers: &HeaderMap) -> &str {
    headers.get(SESSION).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn json(body: impl Into<Body>) -> Response {
    respond(200, Some("application/json"), body.into())
}

fn says(status: u16, words: impl Into<String>) -> Response {
    respond(status, Some("text/plain; charset=utf-8"), Body::from(words.into() + "\n"))
}

fn accepted() -> Response {
    respond(202, None, Body::empty())
}

fn unknown() -> Response {
    says(404, "this worker knows no such task, and runs no engine for this session")
}

fn nameless() -> Response {
    says(400, format!("the header {SESSION} is missing"))
}

fn deposed() -> Response {
    says(409, "another leader has taken this worker over; end one of the two")
}

async fn hello(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    shared.state().contact(session(&headers));
    match serde_json::to_vec(&shared.terms.greeting) {
        Ok(greeting) => json(greeting),
        Err(error) => says(500, error.to_string()),
    }
}

async fn begin(
    State(shared): State<Arc<Shared>>,
    Path(number): Path<u64>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let session = session(&headers);
    if session.is_empty() {
        return nameless();
    }
    let task: Task = match serde_json::from_slice(&body) {
        Ok(task) => task,
        Err(error) => return says(400, format!("no task: {error}")),
    };
    let refused = match &task {
        Task::Launch { point, .. } => foreign(point, &shared.terms.space),
        Task::Probe(ask) => unreasonable(ask),
        Task::Stop => None,
    };
    if let Some(why) = refused {
        return says(400, format!("{why} in {}", shared.terms.greeting.job.space_file));
    }
    let mut state = shared.state();
    let standing = state.contact(session);
    let latest = state.task.as_ref().map_or(0, |(number, _)| *number);
    match standing {
        Standing::Deposed => return deposed(),
        Standing::Own if number == latest => return accepted(),
        Standing::Own if number < latest => return says(409, "a later task was begun meanwhile"),
        _ if matches!(task, Task::Probe(_)) && !(standing == Standing::Own && state.engine) => return unknown(),
        Standing::Own => {}
        Standing::Stranger => state.take_over(session),
    }
    let (answer, answered) = watch::channel(None);
    state.task = Some((number, answered));
    state.engine = matches!(task, Task::Probe(_));
    shared.order(Order::Task(Job { session: session.to_owned(), number, task, answer }));
    accepted()
}

async fn follow(State(shared): State<Arc<Shared>>, Path(number): Path<u64>, headers: HeaderMap) -> Response {
    let mut answered = {
        let mut state = shared.state();
        match state.contact(session(&headers)) {
            Standing::Deposed => return deposed(),
            Standing::Stranger => return unknown(),
            Standing::Own => {}
        }
        match &state.task {
            Some((latest, answered)) if *latest == number => answered.clone(),
            _ => return unknown(),
        }
    };
    // A leader that waits is not silent: the answer comes well before that time is over.
    let wait = WAIT.min(shared.terms.silence / 4);
    match tokio::time::timeout(wait, answered.wait_for(Option::is_some)).await {
        Ok(Ok(answer)) => json(answer.clone().unwrap_or_default()),
        // The task was given up.
        Ok(Err(_)) => unknown(),
        Err(_) => respond(204, None, Body::empty()),
    }
}

async fn kill(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let mut state = shared.state();
    if state.contact(session(&headers)) != Standing::Own {
        return unknown();
    }
    state.engine = false;
    shared.killed.notify_one();
    accepted()
}

/// A leader that was started again after its answer has a session of which this worker has not heard.
async fn end(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if session(&headers).is_empty() {
        return nameless();
    }
    if shared.state().contact(session(&headers)) == Standing::Deposed {
        return deposed();
    }
    shared.order(Order::End);
    accepted()
}

#[cfg(test)]
mod tests;
