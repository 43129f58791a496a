//! The leader's client of a worker. It repeats a request until the worker answers or the patience ends.

use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, StatusCode};

use super::Address;
use super::protocol::{Greeting, JobMark, SESSION, Task, TaskAnswer, WAIT};
use crate::token::Token;
use autotune_clock as clock;
use autotune_http::access::{Access, AccessError, sentence};
use autotune_http::body::{BodyError, body};
use autotune_plan::printable::{printable, read_json};
use autotune_records::units::Seconds;

/// How long a worker may be out of reach: a pod that is moved pulls its image first.
pub const WORKER_AWAY: Duration = Duration::from_secs(600);
/// How long a stop is repeated: a worker that cannot be reached stops its engine by itself after [`super::SILENCE`].
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two attempts to reach a worker.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// The limit for a request that the worker answers at once.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Beyond [`WAIT`], for an answer of many requests over a slow network.
const TRANSFER: Duration = Duration::from_secs(60);
/// Bytes of a greeting or an error message.
const LONGEST_GREETING: usize = 1 << 20;
/// Bytes of an answer with the requests of a probe, some hundred bytes each.
const LONGEST_ANSWER: usize = 512 << 20;
/// The limit for the requests that end a session, which are not repeated.
const FAREWELL: Duration = Duration::from_secs(3);

/// A process that lends its engine. Clones are the same worker in the same session.
#[derive(Clone, Debug)]
pub struct Worker {
    rank: usize,
    address: Address,
    patience: Duration,
    http: Client,
}

/// Why a worker cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// It was started for another job, or something else answers at the address.
    #[error("{0}")]
    Unfit(String),
    #[error("{0}")]
    Away(String),
}

/// What a worker replies when it is asked for the answer of a task.
pub(super) enum TaskReply {
    Done(Box<TaskAnswer>),
    /// The worker does not know it: it was started again, or had given the session up.
    Unknown,
    /// The worker refused it, or cannot be reached: a sentence that names the worker.
    Nothing(String),
}

impl Worker {
    /// A client of the worker of that rank. It tolerates a worker that is out of reach for as long as `patience`.
    pub fn new(
        rank: usize,
        address: Address,
        session: &str,
        token: Option<&Token>,
        patience: Duration,
    ) -> Result<Self, AccessError> {
        let headers = vec![(SESSION.to_owned(), session.to_owned())];
        let access = Access { api_key: token.map(|token| token.as_str().to_owned()), headers, ..Access::default() };
        let http = access.builder(&address.to_string())?.build()?;
        Ok(Self { rank, address, patience, http })
    }

    /// A new, unique name of a session.
    pub fn new_session() -> String {
        format!("{:x}-{:x}", std::process::id(), clock::since_epoch().as_nanos())
    }

    /// `worker 1 at http://10.0.0.2:7787`.
    pub fn name(&self) -> String {
        format!("worker {} at {}", self.rank, self.address)
    }

    /// Waits until it answers, and makes sure that it was started for that job; `waiting` is called once if it does not answer at once.
    pub async fn greet(&self, job: &JobMark, mut waiting: impl FnMut(&str)) -> Result<(), WorkerError> {
        let name = self.name();
        let mut first = true;
        let waiting = |why: &str| {
            if std::mem::take(&mut first) {
                waiting(&format!("waiting for {name}: {why}"));
            }
        };
        let request = || self.request(Method::GET, "hello").timeout(AT_ONCE);
        let (status, body) =
            self.persist(self.patience, LONGEST_GREETING, request, waiting).await.map_err(WorkerError::Away)?;
        if status == StatusCode::UNAUTHORIZED {
            return Err(WorkerError::Unfit(self.refusal(status, &body)));
        }
        let greeting = read_json::<Greeting>(&body).ok().filter(|_| status == StatusCode::OK);
        let Some(greeting) = greeting else {
            return Err(WorkerError::Unfit(format!(
                "{name} is no worker of autotune: it answered with status {status}"
            )));
        };
        if let Some(why) = job.refuses(&greeting.job) {
            return Err(WorkerError::Unfit(format!("{name} {why}")));
        }
        if greeting.rank != self.rank {
            return Err(WorkerError::Unfit(format!(
                "{name} has rank {}; give all the same --workers, and each the rank of its own URL",
                greeting.rank
            )));
        }
        Ok(())
    }

    /// Gives it a task and waits for the answer.
    pub(super) async fn ask(&self, number: u64, task: &Task) -> TaskReply {
        let patience = if *task == Task::Stop { self.patience.min(STOP_TIMEOUT) } else { self.patience };
        let path = format!("tasks/{number}");
        let begin = || self.request(Method::PUT, &path).json(task).timeout(AT_ONCE);
        let follow = || self.request(Method::GET, &path).timeout(WAIT + TRANSFER);
        let mut reply = self.persist(patience, LONGEST_GREETING, begin, |_| {}).await;
        loop {
            let (status, body) = match reply {
                Ok(reply) => reply,
                Err(away) => return TaskReply::Nothing(away),
            };
            match status {
                StatusCode::ACCEPTED | StatusCode::NO_CONTENT => {}
                StatusCode::NOT_FOUND => return TaskReply::Unknown,
                StatusCode::OK => match read_json(&body) {
                    Ok(answer) => return TaskReply::Done(Box::new(answer)),
                    Err(error) => {
                        return TaskReply::Nothing(format!("{} gave an answer that is none: {error}", self.name()));
                    }
                },
                _ => return TaskReply::Nothing(self.refusal(status, &body)),
            }
            reply = self.persist(patience, LONGEST_ANSWER, follow, |_| {}).await;
        }
    }

    /// Tells it that its leader is still there.
    pub(super) async fn sign_of_life(&self) {
        drop(self.request(Method::GET, "hello").timeout(AT_ONCE).send().await);
    }

    /// Kills its engine, if it can be reached.
    pub(super) async fn kill(&self) {
        drop(self.request(Method::POST, "kill").timeout(FAREWELL).send().await);
    }

    /// Asks its process to end, if it can be reached: the job is done.
    pub async fn dismiss(&self) {
        drop(self.request(Method::POST, "end").timeout(FAREWELL).send().await);
    }

    /// What it said instead of an answer.
    fn refusal(&self, status: StatusCode, body: &[u8]) -> String {
        let why = String::from_utf8_lossy(body);
        format!("{} refused with status {status}: {}", self.name(), printable(why.trim()))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}/{path}", self.address))
    }

    /// Repeats a request until it is answered; the worker, or a proxy before it, may fail meanwhile.
    async fn persist(
        &self,
        patience: Duration,
        at_most: usize,
        request: impl Fn() -> RequestBuilder,
        mut waiting: impl FnMut(&str),
    ) -> Result<(StatusCode, Vec<u8>), String> {
        let begun = clock::now();
        loop {
            let why = match request().send().await {
                Ok(response) if response.status().is_server_error() => {
                    format!("it answers with status {}", response.status())
                }
                Ok(response) => {
                    let status = response.status();
                    match body(response, at_most).await {
                        Ok(bytes) => return Ok((status, bytes)),
                        // It would be as long the next time.
                        Err(error @ BodyError::TooLong { .. }) => return Err(format!("{}: {error}", self.name())),
                        Err(error) => error.to_string(),
                    }
                }
                Err(error) => sentence(&error.without_url()),
            };
            if begun.elapsed() >= patience {
                let silent = Seconds::from(begun.elapsed());
                return Err(format!("{} has not answered for {silent}: {why}", self.name()));
            }
            waiting(&why);
            tokio::time::sleep(AGAIN_AFTER.min(patience)).await;
        }
    }
}
