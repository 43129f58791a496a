//! The bytes of an answer: server-sent events and whole bodies, written as vLLM writes them.

use std::ops::Range;

use bytes::Bytes;

use super::prompt::mix;
use super::request::Kind;

/// vLLM's mark of its build.
const FINGERPRINT: &str = "vllm-0.32.0-sim";
/// The fingerprint as a field: on the chunk with the usage, or on the last one where none follows.
const FINGERPRINT_FIELD: &str = r#","system_fingerprint":"vllm-0.32.0-sim""#;
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
    seed: u64,
    id: String,
    created: u64,
    /// The model's name as a JSON string.
    model: String,
    /// A chunk up to its choices.
    head: String,
    /// Whether a chunk with the usage comes at the end.
    usage_follows: bool,
}

impl Wire {
    pub(super) fn new(kind: Kind, model: &str, created: u64, request: u64, seed: u64) -> Self {
        let unique = mix(request ^ created << 20);
        let model = serde_json::Value::from(model).to_string();
        let (id, object) = match kind {
            Kind::Completion => (format!("cmpl-{unique:016x}"), "text_completion"),
            Kind::Chat => (format!("chatcmpl-{unique:016x}"), "chat.completion.chunk"),
        };
        let head =
            format!(r#"data: {{"id":"{id}","object":"{object}","created":{created},"model":{model},"choices":["#);
        Self { kind, seed, id, created, model, head, usage_follows: false }
    }

    /// Sets whether the stream ends with its usage.
    pub(super) fn with_usage(self, usage_follows: bool) -> Self {
        Self { usage_follows, ..self }
    }

    fn words(&self, positions: Range<u32>) -> String {
        let word = |at: u32| WORDS[(mix(self.seed.wrapping_add(u64::from(at))) % WORDS.len() as u64) as usize];
        positions.flat_map(|position| [" ", word(position)]).collect()
    }

    /// The chunk before the first token: chat's role, which is no token.
    pub(super) fn opening(&self) -> Option<Bytes> {
        (self.kind == Kind::Chat).then(|| {
            let head = &self.head;
            Bytes::from(format!(
                r#"{head}{{"index":0,"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}],"prompt_token_ids":null,"prompt_text":null}}"#
            ) + "\n\n")
        })
    }

    /// The chunk of these tokens of the answer, counted from 0.
    pub(super) fn tokens(&self, positions: Range<u32>, last: bool) -> Bytes {
        let before = match self.kind {
            Kind::Completion => r#"{"index":0,"text":""#,
            Kind::Chat => r#"{"index":0,"delta":{"content":""#,
        };
        let after = match (self.kind, last) {
            (Kind::Completion, false) => {
                r#"","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]"#
            }
            (Kind::Completion, true) => {
                r#"","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,"token_ids":null}]"#
            }
            (Kind::Chat, false) => r#""},"logprobs":null,"finish_reason":null,"token_ids":null}]"#,
            (Kind::Chat, true) => {
                r#""},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]"#
            }
        };
        let mark = if last && !self.usage_follows { FINGERPRINT_FIELD } else { "" };
        Bytes::from([&self.head, before, &self.words(positions), after, mark, "}\n\n"].concat())
    }

    /// The chunk without choices that carries the usage.
    pub(super) fn usage(&self, usage: Usage) -> Bytes {
        Bytes::from(format!("{}],\"usage\":{}{FINGERPRINT_FIELD}}}\n\n", self.head, usage.json()))
    }

    /// The whole answer to a request that is not streamed.
    pub(super) fn whole(&self, usage: Usage) -> String {
        let text = self.words(0..usage.completion);
        let (said, more) = match self.kind {
            Kind::Completion => (format!(r#""text":"{text}""#), r#","prompt_logprobs":null,"prompt_token_ids":null"#),
            Kind::Chat => (
                format!(
                    r#""message":{{"role":"assistant","content":"{text}","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}}"#
                ),
                "",
            ),
        };
        let Self { id, created, model, .. } = self;
        let object = match self.kind {
            Kind::Completion => "text_completion",
            Kind::Chat => "chat.completion",
        };
        format!(
            r#"{{"id":"{id}","object":"{object}","created":{created},"model":{model},"choices":[{{"index":0,{said},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null{more},"routed_experts":null}}],"service_tier":null,"system_fingerprint":"{FINGERPRINT}","usage":{},"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}}"#,
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
