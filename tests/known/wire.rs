//! The bytes of requests and answers, in the forms that vLLM 0.32 writes (recorded with uvicorn on a real server).

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

pub const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ndate: Sat, 21 Nov 2026 05:46:26 GMT\r\nserver: uvicorn\r\n\
    content-type: text/event-stream; charset=utf-8\r\nvary: Origin\r\ntransfer-encoding: chunked\r\n\r\n";
pub const DONE: &[u8] = b"e\r\ndata: [DONE]\n\n\r\n";
pub const END: &[u8] = b"0\r\n\r\n";

/// The head of a request.
pub struct Head {
    /// Bytes up to the body.
    pub length: usize,
    pub method: String,
    pub path: String,
    pub body: usize,
    pub close: bool,
}

/// The head at the front of what was read, once it is whole.
pub fn head(bytes: &[u8]) -> Option<Head> {
    let length = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..length]);
    let mut lines = text.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (first.next().unwrap_or_default().to_owned(), first.next().unwrap_or_default().to_owned());
    let (mut body, mut close) = (0, false);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            body = value.parse().unwrap_or(0);
        } else if name.eq_ignore_ascii_case("connection") {
            close = value.eq_ignore_ascii_case("close");
        }
    }
    Some(Head { length, method, path, body, close })
}

/// What of a request's body matters.
#[derive(Deserialize)]
pub struct Body {
    pub model: String,
    pub prompt: Option<Prompt>,
    pub messages: Option<Vec<Message>>,
    pub max_tokens: Option<usize>,
    pub max_completion_tokens: Option<usize>,
    #[serde(default)]
    pub stream: bool,
    pub stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
pub struct Message {
    pub content: Prompt,
}

#[derive(Deserialize)]
pub struct StreamOptions {
    #[serde(default)]
    pub include_usage: bool,
}

impl Body {
    pub fn tokens(&self) -> usize {
        self.max_completion_tokens.or(self.max_tokens).unwrap_or(16)
    }

    pub fn usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|o| o.include_usage)
    }

    /// The number of prompt tokens, and the number that the prompt begins with.
    pub fn prompt(&self) -> Prompt {
        let messages = self.messages.iter().flatten().map(|m| m.content);
        let parts = self.prompt.into_iter().chain(messages);
        parts.fold(Prompt::default(), |all, p| Prompt { tokens: all.tokens + p.tokens, key: all.key.or(p.key) })
    }
}

/// A prompt, counted while it is parsed and not kept: a list of token ids, or text, whose words count.
#[derive(Clone, Copy, Default)]
pub struct Prompt {
    pub tokens: usize,
    pub key: Option<u64>,
}

impl<'de> Deserialize<'de> for Prompt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counter;
        impl<'de> Visitor<'de> for Counter {
            type Value = Prompt;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("token ids or text")
            }
            fn visit_str<E>(self, text: &str) -> Result<Prompt, E> {
                let mut words = text.split_whitespace();
                let key = words.clone().next().and_then(|w| w.parse().ok());
                Ok(Prompt { tokens: words.by_ref().count(), key })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut ids: A) -> Result<Prompt, A::Error> {
                let key = ids.next_element::<u64>()?;
                let mut tokens = usize::from(key.is_some());
                while ids.next_element::<IgnoredAny>()?.is_some() {
                    tokens += 1;
                }
                Ok(Prompt { tokens, key })
            }
        }
        deserializer.deserialize_any(Counter)
    }
}

/// The events of one answer, rendered once: all tokens but the last share their bytes.
pub struct Events {
    pub role: Vec<u8>,
    pub token: Vec<u8>,
    pub empty: Vec<u8>,
    pub last: Vec<u8>,
    pub usage: Vec<u8>,
}

impl Events {
    pub fn new(chat: bool, number: u64, model: &str, prompt_tokens: usize, tokens: usize) -> Self {
        let (id, object) = if chat { ("chatcmpl", "chat.completion.chunk") } else { ("cmpl", "text_completion") };
        // The model's name is one of ours, which needs no escapes.
        let open = format!(
            "{{\"id\":\"{id}-{number:016x}\",\"object\":\"{object}\",\"created\":1795239986,\"model\":\"{model}\",\"choices\":["
        );
        let token = |text: &str, reason: &str, stop: &str| {
            let choice = if chat {
                format!(
                    "\"delta\":{{\"content\":\"{text}\"}},\"logprobs\":null,\"finish_reason\":{reason}{stop},\"token_ids\":null"
                )
            } else {
                format!(
                    "\"text\":\"{text}\",\"logprobs\":null,\"finish_reason\":{reason},\"stop_reason\":null,\
                     \"prompt_token_ids\":null,\"token_ids\":null"
                )
            };
            chunk(&format!("{open}{{\"index\":0,{choice}}}]}}"))
        };
        Self {
            role: chunk(&format!(
                "{open}{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\
                 \"finish_reason\":null}}],\"prompt_token_ids\":null,\"prompt_text\":null}}"
            )),
            token: token(" mouse", "null", ""),
            empty: token("", "null", ""),
            last: token(" mouse", "\"length\"", ",\"stop_reason\":null"),
            usage: chunk(&format!(
                "{open}],\"usage\":{{\"prompt_tokens\":{prompt_tokens},\"total_tokens\":{},\"completion_tokens\":{tokens},\
                 \"prompt_tokens_details\":{{\"cached_tokens\":0}}}},\"system_fingerprint\":\"vllm-0.32.0-584e6c26\"}}",
                prompt_tokens + tokens
            )),
        }
    }
}

/// What vLLM writes into a stream when its engine died.
pub fn stream_error() -> Vec<u8> {
    let message = "EngineCore encountered an issue. See stack trace (above) for the root cause.";
    chunk(&format!(
        "{{\"error\": {{\"message\": \"{message}\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}}}"
    ))
}

/// An event as an HTTP chunk of its own.
fn chunk(json: &str) -> Vec<u8> {
    format!("{:x}\r\ndata: {json}\n\n\r\n", json.len() + 8).into_bytes()
}

/// A whole answer of known length.
pub fn whole(status: u16, kind: &str, body: &str) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    };
    let length = body.len();
    format!(
        "HTTP/1.1 {status} {reason}\r\nserver: uvicorn\r\ncontent-length: {length}\r\ncontent-type: {kind}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// An error in vLLM's words, outside of a stream.
pub fn refusal(status: u16, message: &str) -> Vec<u8> {
    let body =
        format!("{{\"error\":{{\"message\":\"{message}\",\"type\":\"Error\",\"param\":null,\"code\":{status}}}}}");
    whole(status, "application/json", &body)
}
