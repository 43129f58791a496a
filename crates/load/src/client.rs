//! One streamed request: what goes out, and how its answer is read.

use std::cell::RefCell;
use std::fmt::Write;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, ready};
use std::time::Instant;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::runtime::Handle;

use super::answer::{Answer, LONGEST_WHY, words_of};
use super::connection::{Connection, Failed, Pool, Server};
use super::health::Usage;
use super::http1;
use super::lateness::Lateness;
use super::sse::{Framer, LONGEST_EVENT};
use super::threads::{Lane, Sending, readers};
use autotune_http::access::{Access, AccessError};
use autotune_plan::settings::{Endpoint, Secrets};
use autotune_records::ErrorClass;
use autotune_records::units::MOST_TOKENS;
use autotune_workload::Prompt;

/// Larger than what an engine writes at once, so that a read takes all that is there.
const READ: usize = 64 << 10;

thread_local! {
    // One room for the bytes of all the streams of a thread: they are understood before the next read.
    static BYTES: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// Where requests go, and how they are asked.
#[derive(Clone, Debug)]
pub struct Target {
    /// Scheme, host and port, perhaps with the beginning of a path, such as `http://127.0.0.1:8000`.
    pub base_url: String,
    pub model: String,
    pub endpoint: Endpoint,
    /// Ask for exactly the drawn number of tokens.
    pub ignore_eos: bool,
    /// How the connection is made.
    pub access: Access,
    /// More fields for every request's body.
    pub extra_body: serde_json::Map<String, serde_json::Value>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("failed to start the load generator's threads: {0}")]
    Threads(io::Error),
    /// The server cannot be reached that way.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// An HTTP client of one target with its own threads. Cloning shares them and their connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    target: Target,
    server: Server,
    /// Taken out of what the server says.
    secrets: Secrets,
    /// A request up to its length.
    head: String,
    pacer: Lane,
    readers: Vec<Reader>,
    next: AtomicUsize,
    lateness: Arc<Lateness>,
}

/// A reading thread and the connections that belong to it.
struct Reader {
    lane: Lane,
    pool: Pool,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<PromptBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'a [autotune_workload::Message]>,
    max_tokens: u32,
    // Greedy answers cost the engine least and are the same in every probe.
    temperature: f64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ignore_eos: bool,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(flatten)]
    extra: &'a serde_json::Map<String, serde_json::Value>,
}

/// Token ids or text.
#[derive(Serialize)]
#[serde(untagged)]
enum PromptBody<'a> {
    Tokens(&'a [u32]),
    Text(&'a str),
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

impl Client {
    /// A client with its own threads and connections.
    pub fn new(target: Target) -> Result<Self, ClientError> {
        allow_many_connections();
        let server = Server::new(&target.base_url, &target.access)?;
        let head = head(&server, &target)?;
        let reader = |number: usize| {
            let lane = Lane::thrifty(&format!("load-read-{number}")).map_err(ClientError::Threads)?;
            Ok(Reader { lane, pool: Pool::default() })
        };
        let readers = (0..readers()).map(reader).collect::<Result<Vec<Reader>, ClientError>>()?;
        let pacer = Lane::punctual("load-pace").map_err(ClientError::Threads)?;
        let (next, lateness) = (AtomicUsize::new(0), Arc::default());
        let secrets = target.access.secrets();
        Ok(Self(Arc::new(Inner { target, server, secrets, head, pacer, readers, next, lateness })))
    }

    pub fn target(&self) -> &Target {
        &self.0.target
    }

    /// The runtime that keeps time.
    pub(super) fn pacer(&self) -> &Handle {
        self.0.pacer.handle()
    }

    /// The reader whose turn it is.
    pub(super) fn turn(&self) -> usize {
        self.0.next.fetch_add(1, Ordering::Relaxed) % self.0.readers.len()
    }

    pub(super) fn reader(&self, number: usize) -> &Lane {
        &self.0.readers[number].lane
    }

    /// Whether its reads may wait for each other.
    pub(super) fn set_hurry(&self, hurry: bool) {
        self.0.readers.iter().for_each(|reader| reader.lane.set_hurry(hurry));
    }

    /// How late its reads came until now.
    pub(super) fn lateness(&self) -> Vec<u64> {
        self.0.lateness.counts()
    }

    /// What the threads have used since they began.
    pub(super) fn usage(&self) -> Usage {
        let ids: Vec<i32> =
            self.0.readers.iter().map(|r| &r.lane).chain([&self.0.pacer]).map(Lane::thread_id).collect();
        Usage::of(&ids)
    }

    /// The bytes of a request, ready to be sent.
    pub(super) fn request(&self, prompt: &Prompt, output_tokens: u32) -> Vec<u8> {
        let target = &self.0.target;
        let (prompt, messages) = match prompt {
            Prompt::Tokens(ids) => (Some(PromptBody::Tokens(ids)), None),
            Prompt::Text(text) => (Some(PromptBody::Text(text)), None),
            Prompt::Messages(messages) => (None, Some(messages.as_slice())),
        };
        let body = Body {
            model: &target.model,
            prompt,
            messages,
            max_tokens: output_tokens,
            temperature: 0.0,
            ignore_eos: target.ignore_eos,
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            extra: &target.extra_body,
        };
        // Strings and numbers alone always serialise.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut request = format!("{}{}\r\n\r\n", self.0.head, body.len()).into_bytes();
        request.extend_from_slice(&body);
        request
    }

    /// Sends one request on that reader's connections and reads its answer to the end; to be run on that reader. `arrival` is called
    /// for every read that brought tokens, and told whether it was the first.
    pub(super) async fn ask(
        &self,
        reader: usize,
        request: Vec<u8>,
        (asked, keep_text): (u32, bool),
        arrival: impl FnMut(Instant, bool),
    ) -> Answer {
        // --extra-body may ask for other lengths.
        let lengths = ["max_tokens", "max_completion_tokens", "n"];
        let rewritten = lengths.iter().any(|field| self.0.target.extra_body.contains_key(*field));
        let asked = if rewritten { MOST_TOKENS } else { asked };
        let mut answer = Answer { keep_text, asked, ..Answer::default() };
        let sending = Sending::begin();
        let pool = &self.0.readers[reader].pool;
        let mut connection = match pool.take(&self.0.server, &self.0.lateness).await {
            Ok(connection) => connection,
            Err(failed) => {
                answer.fail(failed);
                return answer;
            }
        };
        // TLS keeps what the socket did not take, and only a flush sends it.
        let sent = match connection.write_all(&request).await {
            Ok(()) => connection.flush().await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            answer.fail(Failed::new(ErrorClass::Connection, format!("failed to send the request: {error}")));
            return answer;
        }
        drop((request, sending));
        let reusable = read_answer(&mut connection, &mut answer, arrival).await;
        // Shortened last: of a secret that was cut, the rest would not be known.
        let shown = |why: String| self.0.secrets.redact(&why).chars().take(LONGEST_WHY).collect();
        answer.why = answer.why.map(shown);
        if reusable {
            pool.give(connection);
        }
        answer
    }

    /// One short request, for readiness, liveness and warming.
    pub async fn answers(&self, prompt: &Prompt, output_tokens: u32) -> Result<(), Unanswered> {
        let (client, reader) = (self.clone(), self.turn());
        let request = self.request(prompt, output_tokens);
        let mut asking = tokio::task::JoinSet::new();
        asking.spawn_on(
            async move { client.ask(reader, request, (output_tokens, false), |_, _| {}).await },
            self.reader(reader).handle(),
        );
        self.reader(reader).wake();
        match asking.join_next().await.and_then(Result::ok) {
            Some(Answer { error: None, .. }) => Ok(()),
            Some(Answer { error: Some(class), why, .. }) => Err(Unanswered { class, why }),
            None => Err(Unanswered { class: ErrorClass::Cut, why: None }),
        }
    }
}

/// A request without a whole answer.
#[derive(Clone, Debug)]
pub struct Unanswered {
    pub class: ErrorClass,
    /// What the server or the system said of it.
    pub why: Option<String>,
}

impl Unanswered {
    /// What the server refused the request with, where it did so for what was asked: it would refuse it again.
    pub fn refusal(&self) -> Option<&str> {
        self.why.as_deref().filter(|why| self.class == ErrorClass::Status && why.starts_with("HTTP 4"))
    }
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.why {
            Some(why) => write!(f, "{}: {why}", self.class.name()),
            None => f.write_str(self.class.name()),
        }
    }
}

/// Thousands of streams are thousands of files, and many systems allow a process 1,024 until it asks for more.
fn allow_many_connections() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // Where it is refused, requests beyond the limit will fail and say why.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// The head of every request, up to the number of bytes of its body.
fn head(server: &Server, target: &Target) -> Result<String, AccessError> {
    let path = match target.endpoint {
        Endpoint::Completions => "/v1/completions",
        Endpoint::Chat => "/v1/chat/completions",
    };
    let mut head = format!("POST {}{path} HTTP/1.1\r\nhost: {}\r\n", server.prefix, server.authority);
    head.push_str("content-type: application/json\r\naccept: text/event-stream\r\n");
    for (name, value) in &target.access.header_map()? {
        let value = value.to_str().map_err(|_| AccessError::Header(name.to_string()))?;
        // Writing to a String cannot fail.
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("content-length: ");
    Ok(head)
}

/// Reads until the answer is over, and says whether its connection can be used again.
async fn read_answer(connection: &mut Connection, answer: &mut Answer, mut arrival: impl FnMut(Instant, bool)) -> bool {
    let (mut http, mut framer) = (http1::Reader::default(), Framer::default());
    let mut refusal = Vec::new();
    // One read of the connection and what it means; none at the connection's end.
    let mut read = |connection: &mut Connection, answer: &mut Answer, bytes: &[u8]| {
        let at = connection.arrived();
        let is_first = answer.first.is_none();
        let mut token = false;
        // The first bytes may hold head and body: the status decides how the body is understood.
        let mut body = Vec::new();
        let mut rest = bytes;
        if http.head_read().is_none() {
            http.push(rest, |part| body.extend_from_slice(part)).map_err(|e| e.to_string())?;
            rest = &[];
        }
        let ok = http.head_read().is_none_or(|head| head.status == 200);
        let mut take = |part: &[u8]| {
            if ok {
                token |= answer.read(&mut framer, part, at);
            } else if refusal.len() < READ {
                refusal.extend_from_slice(part);
            }
        };
        take(&body);
        http.push(rest, take).map_err(|e| e.to_string())?;
        if token {
            arrival(at, is_first);
        }
        if framer.overflowed() {
            return Err(format!("an event of the stream has more than {} MiB", LONGEST_EVENT >> 20));
        }
        if answer.is_too_long() {
            return Err(format!("the stream goes on behind the {} tokens that were asked for", answer.asked));
        }
        Ok::<bool, String>(http.is_over())
    };
    let ended = poll_fn(|cx| {
        BYTES.with_borrow_mut(|bytes| {
            loop {
                let mut buffer = ReadBuf::new(bytes);
                let done = ready!(Pin::new(&mut *connection).poll_read(cx, &mut buffer));
                let ended = match done {
                    Err(error) => Err(error.to_string()),
                    Ok(()) if buffer.filled().is_empty() => Ok(false),
                    Ok(()) => match read(connection, answer, buffer.filled()) {
                        Ok(false) => continue,
                        Ok(true) => Ok(true),
                        Err(why) => {
                            answer.error = Some(ErrorClass::Malformed);
                            Err(why)
                        }
                    },
                };
                return Poll::Ready(ended);
            }
        })
    })
    .await;
    let Some(head) = http.head_read() else {
        let why = ended.err().unwrap_or_else(|| "the connection was closed before any answer".into());
        answer.fail(Failed::new(answer.error.unwrap_or(ErrorClass::Connection), why));
        return false;
    };
    if head.status == 200 {
        if let Err(why) = &ended {
            answer.why.get_or_insert_with(|| why.clone());
        }
        answer.conclude();
    } else {
        let class = match head.status {
            429 => ErrorClass::TooManyRequests,
            503 => ErrorClass::Unavailable,
            _ => ErrorClass::Status,
        };
        let said = words_of(&String::from_utf8_lossy(&refusal));
        answer.fail(Failed::new(class, format!("HTTP {}: {said}", head.status)));
    }
    ended == Ok(true) && head.keep_alive
}
