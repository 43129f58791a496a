//! One streamed request: what goes out, and what its bytes mean.
//!
//! Time is read when bytes arrive, before they are understood. Tokens are counted by the engine's usage, since a chunk may hold several
//! of them or none; a stream without `[DONE]`, usage or token is no answer.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use super::record::ErrorClass;
use super::sse::Framer;
use crate::clock;
use crate::settings::Endpoint;
use crate::workload::Prompt;

/// vLLM's server drops a connection that idled for 5 s; we give it up before, so that no request meets a closing one.
const IDLE_CONNECTION: Duration = Duration::from_secs(3);
/// An engine on this machine answers a connection at once; one that does not is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where requests go, and how they are asked.
#[derive(Clone, Debug)]
pub struct Target {
    /// Such as `http://127.0.0.1:8000`.
    pub base_url: String,
    /// The served model's name.
    pub model: String,
    /// Completions or chat.
    pub endpoint: Endpoint,
    /// Ask for exactly the drawn number of tokens.
    pub ignore_eos: bool,
    /// Sent as a bearer token.
    pub api_key: Option<String>,
}

/// A pooled HTTP client of one target. Cloning shares the pool.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    target: Target,
}

/// What one answer was, its times as clock readings.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) first: Option<Instant>,
    pub(super) last: Option<Instant>,
    pub(super) gaps: Vec<f32>,
    pub(super) text: String,
    pub(super) tokens_in: Option<u32>,
    pub(super) tokens_cached: Option<u32>,
    pub(super) tokens_out: Option<u32>,
    pub(super) error: Option<ErrorClass>,
    pub(super) done: bool,
    pub(super) role_seen: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<PromptBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'a [crate::workload::Message]>,
    max_tokens: u32,
    // Greedy answers cost the engine least and are the same in every probe.
    temperature: f64,
    ignore_eos: bool,
    stream: bool,
    stream_options: StreamOptions,
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

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<String>,
    delta: Option<Delta>,
    finish_reason: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Delta {
    role: Option<String>,
    content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
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
    /// A client with its own connections.
    ///
    /// # Errors
    /// Those of the HTTP library's set-up.
    pub fn new(target: Target) -> reqwest::Result<Self> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .pool_max_idle_per_host(usize::MAX)
            .pool_idle_timeout(IDLE_CONNECTION)
            .connect_timeout(CONNECT_TIMEOUT)
            .retry(reqwest::retry::never())
            .build()?;
        Ok(Self { http, target })
    }

    /// The body of a request, ready to be sent.
    pub(super) fn body(&self, prompt: &Prompt, output_tokens: u32) -> Vec<u8> {
        let (prompt, messages) = match prompt {
            Prompt::Tokens(ids) => (Some(PromptBody::Tokens(ids)), None),
            Prompt::Text(text) => (Some(PromptBody::Text(text)), None),
            Prompt::Messages(messages) => (None, Some(messages.as_slice())),
        };
        let body = Body {
            model: &self.target.model,
            prompt,
            messages,
            max_tokens: output_tokens,
            temperature: 0.0,
            ignore_eos: self.target.ignore_eos,
            stream: true,
            stream_options: StreamOptions { include_usage: true },
        };
        // Strings and numbers alone always serialise.
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// Sends one request and reads its answer to the end; `arrival` is called for every read that brought tokens, and told
    /// whether it was the first.
    pub(super) async fn ask(&self, body: Vec<u8>, mut arrival: impl FnMut(Instant, bool)) -> Answer {
        let path = match self.target.endpoint {
            Endpoint::Completions => "/v1/completions",
            Endpoint::Chat => "/v1/chat/completions",
        };
        let mut request = self
            .http
            .post(format!("{}{path}", self.target.base_url))
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .body(body);
        if let Some(key) = &self.target.api_key {
            request = request.bearer_auth(key);
        }
        let mut answer = Answer::default();
        let response = match request.send().await {
            Ok(response) => response,
            Err(_) => {
                answer.error = Some(ErrorClass::Connection);
                return answer;
            }
        };
        match response.status().as_u16() {
            200 => {}
            429 | 503 => answer.error = Some(ErrorClass::Refused),
            _ => answer.error = Some(ErrorClass::Status),
        }
        if answer.error.is_some() {
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
    pub async fn answers(&self, prompt: &Prompt, output_tokens: u32) -> Result<(), ErrorClass> {
        let answer = self.ask(self.body(prompt, output_tokens), |_, _| {}).await;
        answer.error.map_or(Ok(()), Err)
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
        if chunk.error.is_some_and(|e| !e.is_null()) {
            self.error = Some(ErrorClass::InStream);
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
                    let content = delta.content.unwrap_or_default();
                    // A chat opens with a role and no content: the answer is announced, no token is there yet.
                    let announcement = delta.role.is_some()
                        && content.is_empty()
                        && choice.finish_reason.is_none_or(|r| r.is_null())
                        && !self.role_seen;
                    self.role_seen |= delta.role.is_some();
                    self.text.push_str(&content);
                    !announcement
                }
                (None, Some(text)) => {
                    self.text.push_str(&text);
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
    use super::*;

    /// Feeds each slice as one read, ten milliseconds apart.
    fn answer(reads: &[&str]) -> Answer {
        let (mut answer, mut framer, start) = (Answer::default(), Framer::default(), clock::now());
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
