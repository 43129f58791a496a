//! The bytes of an answer: server-sent events and whole bodies, written as vLLM writes them.

use std::ops::Range;

use bytes::Bytes;

use super::request::{Kind, mix};

/// vLLM's mark of its build.
const FINGERPRINT: &str = "vllm-0.32.0-sim";
/// What the imaginary model says. Plain ASCII without quotes, so that no word needs escaping in JSON.
const WORDS: [&str; 16] = [
    "river", "lamp", "seven", "under", "quick", "stone", "paper", "cloud", "among", "green", "wheel", "north", "table",
    "early", "voice", "small",
];

/// The counts at the end of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) prompt: u32,
    pub(super) completion: u32,
    pub(super) cached: u32,
}

impl Usage {
    fn json(self) -> String {
        let Self { prompt, completion, cached } = self;
        format!(
            r#"{{"prompt_tokens":{prompt},"total_tokens":{},"completion_tokens":{completion},"prompt_tokens_details":{{"cached_tokens":{cached}}}}}"#,
            prompt + completion
        )
    }
}

/// Renders the answer to one request. What its chunks have in common is rendered once.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    kind: Kind,
    answer_seed: u64,
    id: String,
    created: u64,
    /// The model's name as a JSON string.
    model: String,
    /// A chunk up to its choices.
    head: String,
}

impl Wire {
    pub(super) fn new(kind: Kind, model: &str, created: u64, request: u64, answer_seed: u64) -> Self {
        let unique = mix(request ^ created << 20);
        let model = serde_json::Value::from(model).to_string();
        let (id, object) = match kind {
            Kind::Completion => (format!("cmpl-{unique:016x}"), "text_completion"),
            Kind::Chat => (format!("chatcmpl-{unique:016x}"), "chat.completion.chunk"),
        };
        let head =
            format!(r#"data: {{"id":"{id}","object":"{object}","created":{created},"model":{model},"choices":["#);
        Self { kind, answer_seed, id, created, model, head }
    }

    fn word(&self, position: u32) -> &'static str {
        WORDS[(mix(self.answer_seed.wrapping_add(u64::from(position))) % WORDS.len() as u64) as usize]
    }

    /// The chunk before the first token: chat's role, which is no token.
    pub(super) fn opening(&self) -> Option<Bytes> {
        (self.kind == Kind::Chat).then(|| {
            let role = r#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}"#;
            Bytes::from([&self.head, role, "\n\n"].concat())
        })
    }

    /// The chunk of these tokens, counted from 0.
    pub(super) fn tokens(&self, positions: Range<u32>, last: bool) -> Bytes {
        let (before, after) = match (self.kind, last) {
            (Kind::Completion, false) => (
                r#"{"index":0,"text":""#,
                r#"","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}"#,
            ),
            (Kind::Completion, true) => (
                r#"{"index":0,"text":""#,
                r#"","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}"#,
            ),
            (Kind::Chat, false) => {
                (r#"{"index":0,"delta":{"content":""#, r#""},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#)
            }
            (Kind::Chat, true) => (
                r#"{"index":0,"delta":{"content":""#,
                r#""},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]}"#,
            ),
        };
        let words = positions.flat_map(|position| [" ", self.word(position)]);
        Bytes::from([self.head.as_str(), before].into_iter().chain(words).chain([after, "\n\n"]).collect::<String>())
    }

    /// The chunk without choices that carries the usage.
    pub(super) fn usage(&self, usage: Usage) -> Bytes {
        Bytes::from(format!("{}],\"usage\":{},\"system_fingerprint\":\"{FINGERPRINT}\"}}\n\n", self.head, usage.json()))
    }

    /// The whole answer of a request that is not streamed.
    pub(super) fn whole(&self, usage: Usage) -> String {
        let text: String = (0..usage.completion).flat_map(|i| [" ", self.word(i)]).collect();
        let Self { id, created, model, .. } = self;
        let (object, choice) = match self.kind {
            Kind::Completion => ("text_completion", format!(r#""text":"{text}""#)),
            Kind::Chat => ("chat.completion", format!(r#""message":{{"role":"assistant","content":"{text}"}}"#)),
        };
        format!(
            r#"{{"id":"{id}","object":"{object}","created":{created},"model":{model},"choices":[{{"index":0,{choice},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}}],"service_tier":null,"system_fingerprint":"{FINGERPRINT}","usage":{},"kv_transfer_params":null}}"#,
            usage.json()
        )
    }
}

/// The end of every stream.
pub(super) const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");

/// What a stream that had begun says when the engine is gone; vLLM sends it with status 200.
pub(super) const ENGINE_DEAD: Bytes = Bytes::from_static(
    b"data: {\"error\": {\"message\": \"EngineCore encountered an issue. See stack trace (above) for the root cause.\", \
      \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\n",
);
