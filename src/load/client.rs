//! One streamed request: what goes out, and what its bytes mean.
//!
//! Time is read when bytes arrive, before they are understood. Tokens are counted by the engine's usage, since a chunk may hold several
//! of them or none; a stream without `[DONE]`, usage or token is no answer.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::StreamExt;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::failures;
use super::health::Usage;
use super::record::ErrorClass;
use super::resolver::Resolver;
use super::sse::Framer;
use super::threads::{Lane, readers};
use crate::access::{Access, AccessError, sentence};
use crate::clock;
use crate::settings::Endpoint;
use crate::workload::Prompt;

/// Where requests go, and how they are asked.
#[derive(Clone, Debug)]
pub struct Target {
    /// Scheme, host and port, perhaps with the beginning of a path, such as `http://127.0.0.1:8000`.
    pub base_url: String,
    /// The served model's name.
    pub model: String,
    /// Completions or chat.
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
    /// The threads could not be started.
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
    url: String,
    pacer: Lane,
    readers: Vec<Reader>,
    next: AtomicUsize,
}

/// A reading thread and the connections that belong to it.
struct Reader {
    lane: Lane,
    http: reqwest::Client,
}

/// What one answer was, its times as clock readings.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) sent: Option<Instant>,
    pub(super) first: Option<Instant>,
    pub(super) last: Option<Instant>,
    pub(super) gaps: Vec<f32>,
    pub(super) text: String,
    pub(super) tokens_in: Option<u32>,
    pub(super) tokens_cached: Option<u32>,
    pub(super) tokens_out: Option<u32>,
    pub(super) error: Option<ErrorClass>,
    pub(super) why: Option<String>,
    pub(super) done: bool,
    pub(super) role_seen: bool,
    /// Whether the text is of use to somebody.
    pub(super) keep_text: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'a [crate::workload::Message]>,
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

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

// What we read of a chunk; texts are borrowed from it, since most are looked at and thrown away.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(default, borrow)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usages>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    role: Option<IgnoredAny>,
    #[serde(borrow)]
    content: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Usages {
    prompt_tokens: u32,
    #[serde(default)]
    completion_tokens: u32,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u32>,
}

impl Client {
    /// A client with its own threads and connections.
    ///
    /// # Errors
    /// Those of threads, certificates and headers.
    pub fn new(target: Target) -> Result<Self, ClientError> {
        let resolver = Arc::new(Resolver::default());
        let reader = |number: usize| {
            let http = target.access.builder(&target.base_url)?;
            let http = http.pool_max_idle_per_host(usize::MAX).dns_resolver(resolver.clone());
            let http = http.build().map_err(AccessError::from)?;
            let lane = Lane::start(&format!("load-read-{number}")).map_err(ClientError::Threads)?;
            Ok(Reader { lane, http })
        };
        let readers = (0..readers()).map(reader).collect::<Result<Vec<Reader>, ClientError>>()?;
        let pacer = Lane::start("load-pace").map_err(ClientError::Threads)?;
        let path = match target.endpoint {
            Endpoint::Completions => "/v1/completions",
            Endpoint::Chat => "/v1/chat/completions",
        };
        let url = format!("{}{path}", target.base_url);
        Ok(Self(Arc::new(Inner { target, url, pacer, readers, next: AtomicUsize::new(0) })))
    }

    /// The runtime that keeps time.
    pub(super) fn pacer(&self) -> &Handle {
        self.0.pacer.handle()
    }

    /// The runtimes that read.
    pub(super) fn readers(&self) -> impl Iterator<Item = &Handle> {
        self.0.readers.iter().map(|r| r.lane.handle())
    }

    /// The reader whose turn it is.
    pub(super) fn turn(&self) -> usize {
        self.0.next.fetch_add(1, Ordering::Relaxed) % self.0.readers.len()
    }

    /// The runtime of that reader.
    pub(super) fn reader(&self, number: usize) -> &Handle {
        self.0.readers[number].lane.handle()
    }

    /// What the threads have used since they began.
    pub(super) fn usage(&self) -> Usage {
        let ids: Vec<i32> =
            self.0.readers.iter().map(|r| &r.lane).chain([&self.0.pacer]).map(Lane::thread_id).collect();
        Usage::of(&ids)
    }

    /// The body of a request, ready to be sent.
    pub(super) fn body(&self, prompt: &Prompt, output_tokens: u32) -> Vec<u8> {
        let target = &self.0.target;
        let (prompt, messages) = match prompt {
            Prompt::Tokens(ids) => (Some(ids.as_slice()), None),
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
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// Sends one request on that reader's connections and reads its answer to the end; to be run on that reader. `arrival` is called
    /// for every read that brought tokens, and told whether it was the first.
    pub(super) async fn ask(
        &self,
        reader: usize,
        body: Vec<u8>,
        keep_text: bool,
        mut arrival: impl FnMut(Instant, bool),
    ) -> Answer {
        let mut answer = Answer { sent: Some(clock::now()), keep_text, ..Answer::default() };
        let request = self.0.readers[reader]
            .http
            .post(&self.0.url)
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .body(body);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                (answer.error, answer.why) = (Some(failures::class(&error)), Some(sentence(&error)));
                return answer;
            }
        };
        answer.error = match response.status().as_u16() {
            200 => None,
            429 => Some(ErrorClass::TooManyRequests),
            503 => Some(ErrorClass::Unavailable),
            _ => Some(ErrorClass::Status),
        };
        if answer.error.is_some() {
            let status = response.status();
            let said = response.text().await.unwrap_or_default();
            answer.why = Some(format!("HTTP {status}: {}", said.chars().take(300).collect::<String>().trim()));
            return answer;
        }
        let mut framer = Framer::default();
        let mut bytes = response.bytes_stream();
        while let Some(read) = bytes.next().await {
            let at = clock::now();
            let Ok(read) = read else { break };
            let is_first = answer.first.is_none();
            answer.read(&mut framer, &read, at);
            if answer.last == Some(at) {
                arrival(at, is_first);
            }
        }
        answer.conclude();
        answer
    }

    /// One short request, for readiness, liveness and warming.
    ///
    /// # Errors
    /// What kept the whole answer from coming.
    pub async fn answers(&self, prompt: &Prompt, output_tokens: u32) -> Result<(), Unanswered> {
        let (client, reader) = (self.clone(), self.turn());
        let body = self.body(prompt, output_tokens);
        let mut asking = tokio::task::JoinSet::new();
        asking.spawn_on(async move { client.ask(reader, body, false, |_, _| {}).await }, self.reader(reader));
        let answer = asking.join_next().await.and_then(Result::ok).unwrap_or_default();
        match answer.error {
            Some(class) => Err(Unanswered { class, why: answer.why }),
            None if answer.sent.is_none() => Err(Unanswered { class: ErrorClass::Cut, why: None }),
            None => Ok(()),
        }
    }
}

/// A request without a whole answer.
#[derive(Clone, Debug)]
pub struct Unanswered {
    /// Its class.
    pub class: ErrorClass,
    /// What the server or the system said of it.
    pub why: Option<String>,
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.why {
            Some(why) => write!(f, "{}: {why}", self.class.name()),
            None => f.write_str(self.class.name()),
        }
    }
}

impl Answer {
    /// Understands one read. Tokens that arrive in one read are one arrival.
    fn read(&mut self, framer: &mut Framer, bytes: &[u8], at: Instant) {
        let mut token = false;
        framer.push(bytes, |event| token |= self.event(event));
        if token {
            if let Some(last) = self.last {
                self.gaps.push(at.duration_since(last).as_secs_f32());
            }
            self.first.get_or_insert(at);
            self.last = Some(at);
        }
    }

    /// Whether the event brings a token.
    fn event(&mut self, event: &[u8]) -> bool {
        if event == b"[DONE]" {
            self.done = true;
            return false;
        }
        let Ok(chunk) = serde_json::from_slice::<Chunk>(event) else {
            self.error.get_or_insert(ErrorClass::Malformed);
            return false;
        };
        if let Some(error) = chunk.error {
            self.error = Some(ErrorClass::InStream);
            self.why.get_or_insert_with(|| error["message"].as_str().map_or(error.to_string(), str::to_owned));
        }
        if let Some(usage) = chunk.usage {
            self.tokens_in = Some(usage.prompt_tokens);
            self.tokens_out = Some(usage.completion_tokens);
            self.tokens_cached = usage.prompt_tokens_details.and_then(|d| d.cached_tokens).or(self.tokens_cached);
        }
        let mut token = false;
        for choice in chunk.choices {
            token |= match (choice.delta, choice.text) {
                (Some(delta), _) => {
                    let content = delta.content.as_ref().map_or("", |text| &text.0);
                    // A chat opens with a role and no content: the answer is announced, no token is there yet.
                    let announcement =
                        delta.role.is_some() && content.is_empty() && choice.finish_reason.is_none() && !self.role_seen;
                    self.role_seen |= delta.role.is_some();
                    if self.keep_text {
                        self.text.push_str(content);
                    }
                    !announcement
                }
                (None, Some(text)) => {
                    if self.keep_text {
                        self.text.push_str(&text.0);
                    }
                    true
                }
                (None, None) => false,
            };
        }
        token
    }

    fn conclude(&mut self) {
        if self.error.is_none() && (!self.done || self.tokens_out.unwrap_or(0) == 0 || self.first.is_none()) {
            self.error = Some(ErrorClass::Truncated);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Feeds each slice as one read, ten milliseconds apart.
    fn answer(reads: &[&str]) -> Answer {
        let mut answer = Answer { keep_text: true, ..Answer::default() };
        let (mut framer, start) = (Framer::default(), clock::now());
        for (i, read) in reads.iter().enumerate() {
            answer.read(&mut framer, read.as_bytes(), start + Duration::from_millis(10 * i as u64));
        }
        answer.conclude();
        answer
    }

    const ROLE: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n";
    const EMPTY: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":null}]}\n\n";
    const WORD: &str =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" mouse\"},\"finish_reason\":\"length\"}]}\n\n";
    const USAGE: &str =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":6,\"total_tokens\":8,\"completion_tokens\":2}}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    #[test]
    fn a_role_chunk_is_no_token_and_an_empty_token_is_one() {
        let answer = answer(&[ROLE, EMPTY, WORD, USAGE, DONE]);
        assert_eq!(answer.error, None);
        assert_eq!(answer.gaps.len(), 1, "two tokens, ten milliseconds apart");
        assert!((answer.gaps[0] - 0.01).abs() < 1e-4);
        assert_eq!((answer.tokens_in, answer.tokens_out, answer.text.as_str()), (Some(6), Some(2), " mouse"));
    }

    #[test]
    fn tokens_in_one_read_are_one_arrival() {
        let joined = [EMPTY, WORD, USAGE, DONE].concat();
        let answer = answer(&[ROLE, &joined]);
        assert_eq!(answer.error, None);
        assert!(answer.gaps.is_empty());
        assert_eq!(answer.first, answer.last);
    }

    #[test]
    fn an_error_inside_a_200_stream_is_an_error_even_with_done() {
        let error = "data: {\"error\": {\"message\": \"EngineCore encountered an issue.\", \"code\": 500}}\n\n";
        assert_eq!(answer(&[EMPTY, error, DONE]).error, Some(ErrorClass::InStream));
    }

    #[test]
    fn a_stream_without_done_usage_or_token_is_truncated() {
        assert_eq!(answer(&[EMPTY, WORD, USAGE]).error, Some(ErrorClass::Truncated));
        assert_eq!(answer(&[EMPTY, WORD, DONE]).error, Some(ErrorClass::Truncated));
        assert_eq!(answer(&[ROLE, USAGE, DONE]).error, Some(ErrorClass::Truncated));
        assert_eq!(answer(&["data: nonsense\n\n", DONE]).error, Some(ErrorClass::Malformed));
    }

    #[test]
    fn recorded_streams_of_vllm_are_whole_answers() {
        let raw = include_str!("../../tests/data/vllm/sse_completions_spec_multitoken.txt");
        let body: String = raw.lines().filter(|l| l.starts_with("data:")).map(|l| format!("{l}\n\n")).collect();
        let answer = answer(&[&body]);
        assert_eq!(answer.error, None);
        let chunks = body.matches("\"text\"").count() as u32;
        assert!(answer.tokens_out.unwrap() > chunks, "several tokens share a chunk, usage counts them");
    }
}
