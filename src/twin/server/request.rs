//! A request's body: from JSON to what the engine needs, with vLLM's complaints.
//!
//! What shapes the words of an answer (sampling parameters, stop strings, tools) means nothing to a model that is not there, and is
//! accepted. What would shape the form of an answer is refused where it is not simulated. Unknown fields are accepted, as by vLLM.

use serde_json::{Map, Value};

use super::engine::Order;
use super::prompt::{self, Tokens, mix};
use super::refusal::Refusal;

/// Which endpoint was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Completion,
    Chat,
}

/// What requests are judged by.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) served_name: String,
    pub(super) max_model_len: u32,
    pub(super) block_size: u32,
    pub(super) prefix_caching: bool,
    pub(super) seed: u64,
}

/// A request that will be served.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) order: Order,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    /// Every chunk tells the usage so far.
    pub(super) continuous_usage: bool,
    /// Tokens of a chunk, at least; the server may say more.
    pub(super) stream_interval: u32,
    /// Chooses the words of each answer: equal prompts get equal answers, as with greedy sampling.
    pub(super) answer_seeds: Vec<u64>,
}

/// Fields that would change the form of an answer.
const NOT_SIMULATED: [&str; 9] = [
    "echo",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "suffix",
    "use_beam_search",
    "structured_outputs",
    "prompt_embeds",
    "return_token_ids",
];
/// Answers to one prompt, at most, as in vLLM.
const MOST_COPIES: i64 = 16384;

/// Reads and judges a body.
pub(super) fn read(kind: Kind, body: &[u8], rules: &Rules) -> Result<Asked, Refusal> {
    let body = Body::parse(body)?;
    body.check_form()?;
    body.check_model(rules)?;
    let stream = body.flag("stream")?;
    let options = Body(body.0.get("stream_options").and_then(Value::as_object).cloned().unwrap_or_default());
    let asked_tokens = match kind {
        Kind::Completion => Some(body.integer("max_tokens")?.unwrap_or(16)),
        Kind::Chat => body.integer("max_completion_tokens")?.or(body.integer("max_tokens")?),
    };
    let copies = body.copies()?;
    body.check_sampling(asked_tokens)?;
    let prompts = match kind {
        Kind::Completion => prompt::of_completion(body.0.get("prompt"), rules.block_size)?,
        Kind::Chat => vec![prompt::of_chat(body.0.get("messages"), rules.block_size)?],
    };
    let mut output_tokens = u32::MAX;
    for tokens in &prompts {
        output_tokens = output_tokens.min(check_length(tokens.count, asked_tokens, rules.max_model_len)?);
    }
    let seed = |tokens: &Tokens, copy: u32| mix(tokens.hash() ^ rules.seed).wrapping_add(mix(copy.into()));
    Ok(Asked {
        answer_seeds: prompts.iter().flat_map(|p| (0..copies).map(move |copy| seed(p, copy))).collect(),
        order: Order {
            prompts: prompts.into_iter().map(|tokens| tokens.shape(rules.prefix_caching)).collect(),
            copies,
            output_tokens,
        },
        stream,
        include_usage: options.flag("include_usage")?,
        continuous_usage: options.flag("include_usage")? && options.flag("continuous_usage_stats")?,
        stream_interval: body.integer("stream_interval")?.and_then(|i| u32::try_from(i).ok()).unwrap_or(1),
    })
}

/// The fields of a body.
pub(super) struct Body(pub(super) Map<String, Value>);

impl Body {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        match serde_json::from_slice::<Value>(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            _ => {
                let context = "'<dict of 0 items>', 'ctx': {'error': 'Expecting value'}";
                Err(Refusal::invalid(None, "json_invalid", "body.0", "JSON decode error", context))
            }
        }
    }

    /// A missing model is accepted, as by vLLM.
    pub(super) fn check_model(&self, rules: &Rules) -> Result<(), Refusal> {
        match self.0.get("model").and_then(Value::as_str) {
            Some(model) if model != rules.served_name => {
                let message = format!("The model `{model}` does not exist. Valid aliases: {}.", rules.served_name);
                let param = Some("model".to_owned());
                Err(Refusal { status: 404, kind: "NotFoundError", param, message })
            }
            _ => Ok(()),
        }
    }

    fn check_form(&self) -> Result<(), Refusal> {
        let given = |name: &str| self.0.get(name).is_some_and(|v| !matches!(v, Value::Null | Value::Bool(false)));
        if given("stream_options") && !self.flag("stream")? {
            let message = "Value error, Stream options can only be defined when `stream=True`.";
            let context = format!("'<dict of {} items>'", self.0.len());
            return Err(Refusal::invalid(Some("stream_options"), "value_error", "body", message, &context));
        }
        // Zero top log-probabilities are none; zero log-probabilities of a completion are those of its own tokens.
        let not_simulated = |name: &&&str| given(name) && (**name != "top_logprobs" || self.0[**name] != 0);
        let format = self.0.get("response_format").and_then(|f| f.get("type")).and_then(Value::as_str);
        let name = NOT_SIMULATED.iter().find(not_simulated).copied();
        match name.or(format.filter(|format| *format != "text").map(|_| "response_format")) {
            Some(name) => {
                Err(Refusal::bad(name, format!("the simulated engine does not know `{name}`. (parameter={name})")))
            }
            None => Ok(()),
        }
    }

    fn copies(&self) -> Result<u32, Refusal> {
        let copies = self.integer("n")?.unwrap_or(1);
        let problem = match copies {
            ..1 => format!("n must be at least 1, got {copies}."),
            2.. if self.number("temperature")? == Some(0.0) => {
                format!("n must be 1 when using greedy sampling, got {copies}.")
            }
            1..=MOST_COPIES => return Ok(copies as u32),
            _ => format!("n must be at most {MOST_COPIES}, got {copies}."),
        };
        Err(Refusal::bad("n", problem))
    }

    fn check_sampling(&self, max_tokens: Option<i64>) -> Result<(), Refusal> {
        let wrong = |name: &str, says: &str, value: String| {
            Err(Refusal::bad(name, format!("{name} {says}, got {value}. (parameter={name}, value={value})")))
        };
        if let Some(max_tokens) = max_tokens.filter(|max| *max < 1) {
            return wrong("max_tokens", "must be at least 1", max_tokens.to_string());
        }
        match self.number("temperature")? {
            Some(t) if t < 0.0 => return wrong("temperature", "must be non-negative", format!("{t:?}")),
            Some(t) if t > 2.0 => return wrong("temperature", "must be in [0, 2]", format!("{t:?}")),
            _ => {}
        }
        let min_tokens = self.integer("min_tokens")?.unwrap_or(0);
        let problem = match max_tokens {
            _ if min_tokens < 0 => format!("min_tokens must be greater than or equal to 0, got {min_tokens}."),
            Some(max) if min_tokens > max => {
                format!("min_tokens must be less than or equal to max_tokens={max}, got {min_tokens}.")
            }
            _ => return Ok(()),
        };
        Err(Refusal::bad("min_tokens", problem))
    }

    /// A whole number, written as such or as `5.0`; null is absent.
    fn integer(&self, name: &str) -> Result<Option<i64>, Refusal> {
        self.typed(name, "int_type", "Input should be a valid integer", |value| {
            let whole = |number: f64| (number.fract() == 0.0 && number.abs() < 1e15).then_some(number as i64);
            value.as_i64().or_else(|| value.as_f64().and_then(whole))
        })
    }

    fn number(&self, name: &str) -> Result<Option<f64>, Refusal> {
        self.typed(name, "float_type", "Input should be a valid number", Value::as_f64)
    }

    fn flag(&self, name: &str) -> Result<bool, Refusal> {
        self.typed(name, "bool_type", "Input should be a valid boolean", Value::as_bool).map(|f| f.unwrap_or(false))
    }

    fn typed<T>(
        &self,
        name: &str,
        kind: &str,
        says: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let wrong = |value: &Value| Refusal::invalid(None, kind, &format!("body.{name}"), says, &value.to_string());
        let given = self.0.get(name).filter(|value| !value.is_null());
        given.map(|value| read(value).ok_or_else(|| wrong(value))).transpose()
    }
}

/// The length of the answer to a prompt; without a wish, as long as the model allows.
fn check_length(prompt: u32, max_tokens: Option<i64>, max_model_len: u32) -> Result<u32, Refusal> {
    let wish = max_tokens.map(|max| u32::try_from(max).unwrap_or(u32::MAX));
    if let Some(max_tokens) = wish.filter(|wish| *wish > max_model_len) {
        let message = format!(
            "max_tokens={max_tokens} cannot be greater than max_model_len={max_model_len}. Please request fewer output tokens. \
             (parameter=max_tokens, value={max_tokens})"
        );
        return Err(Refusal::bad("max_tokens", message));
    }
    if prompt >= max_model_len {
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, your prompt contains {prompt} input tokens, \
             which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. \
             (parameter=input_tokens, value={prompt})"
        );
        return Err(Refusal::bad("input_tokens", message));
    }
    let output_tokens = wish.unwrap_or(max_model_len - prompt);
    if prompt + output_tokens > max_model_len {
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, you requested {output_tokens} output tokens \
             and your prompt contains {prompt} input tokens, for a total of {} tokens. Please reduce the length of the input \
             prompt or the number of requested output tokens. (parameter=input_tokens, value={prompt})",
            prompt + output_tokens
        );
        return Err(Refusal::bad("input_tokens", message));
    }
    Ok(output_tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules { served_name: "tiny".to_owned(), max_model_len: 64, block_size: 4, prefix_caching: true, seed: 0 }
    }

    fn ask(kind: Kind, body: &str) -> Result<Asked, (u16, String)> {
        read(kind, body.as_bytes(), &rules()).map_err(|r| (r.status, r.message))
    }

    #[test]
    fn what_is_absent_is_as_in_vllm() {
        let tokens = |kind, body: &str| ask(kind, body).unwrap().order.output_tokens;
        assert_eq!(tokens(Kind::Completion, r#"{"prompt":"a b","max_tokens":3}"#), 3);
        assert_eq!(tokens(Kind::Completion, r#"{"prompt":"a b"}"#), 16);
        assert_eq!(tokens(Kind::Completion, r#"{"prompt":"a b","max_tokens":null,"max_completion_tokens":3}"#), 16);
        let chat = |more: &str| format!(r#"{{"messages":[{{"role":"user","content":"a b"}}]{more}}}"#);
        assert_eq!(tokens(Kind::Chat, &chat("")), 64 - 6, "a chat may go on to the model's end");
        assert_eq!(tokens(Kind::Chat, &chat(r#","max_completion_tokens":null,"max_tokens":5.0"#)), 5);
        assert_eq!(tokens(Kind::Chat, &chat(r#","max_completion_tokens":4,"max_tokens":5"#)), 4);
    }

    #[test]
    fn several_prompts_and_several_answers_are_one_order() {
        let asked = ask(Kind::Completion, r#"{"prompt":["a b","c"],"n":2,"stream":true,"best_of":7}"#).unwrap();
        assert_eq!((asked.order.prompts.len(), asked.order.copies, asked.answer_seeds.len()), (2, 2, 4));
        assert_eq!(asked.answer_seeds.iter().collect::<std::collections::HashSet<_>>().len(), 4);
        let chat = r#"{"messages":[{"role":"user","content":"a b"},{"role":"user","content":[{"type":"text","text":"c"}]}],
            "stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}"#;
        let chat = ask(Kind::Chat, chat).unwrap();
        assert_eq!(chat.order.prompts[0].tokens, 11);
        assert!(chat.stream && chat.include_usage && chat.continuous_usage);
    }

    #[test]
    fn refusals_are_vllms() {
        let refused = |body: &str| ask(Kind::Completion, body).map(|_| ()).unwrap_err();
        assert!(refused("not json").1.contains("json_invalid"));
        assert_eq!(refused(r#"{"model":"wrong","prompt":"x"}"#).0, 404);
        for (body, says) in [
            (r#"{"prompt":"x","max_tokens":99}"#, "max_tokens=99 cannot be greater"),
            (r#"{"prompt":"x","max_tokens":64}"#, "for a total of 65 tokens"),
            (
                r#"{"prompt":"x","max_tokens":0}"#,
                "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
            ),
            (
                r#"{"prompt":"x","max_tokens":"many"}"#,
                "'loc': 'body.max_tokens', 'msg': 'Input should be a valid integer'",
            ),
            (r#"{"prompt":"x","temperature":-1}"#, "non-negative, got -1.0. (parameter=temperature, value=-1.0)"),
            (r#"{"prompt":"x","min_tokens":17}"#, "min_tokens must be less than or equal to max_tokens=16, got 17."),
            (r#"{"prompt":"x","n":0}"#, "n must be at least 1, got 0."),
            (r#"{"prompt":"x","n":2,"temperature":0}"#, "n must be 1 when using greedy sampling, got 2."),
            (r#"{"prompt":"x","stream_options":{"include_usage":true}}"#, "only be defined when `stream=True`"),
            (r#"{"max_tokens":5}"#, "non-empty"),
            (r#"{"prompt":"x","echo":true}"#, "does not know `echo`"),
            (r#"{"prompt":"x","logprobs":0}"#, "does not know `logprobs`"),
            (r#"{"prompt":"x","response_format":{"type":"json_object"}}"#, "does not know `response_format`"),
        ] {
            let (status, message) = refused(body);
            assert_eq!(status, 400);
            assert!(message.contains(says), "{body}: {message}");
        }
        let long = format!(r#"{{"prompt":"{}"}}"#, "x ".repeat(64));
        assert!(refused(&long).1.contains("64 input tokens"));
        assert!(ask(Kind::Chat, r#"{"messages":[]}"#).is_err());
    }

    #[test]
    fn fields_without_a_meaning_here_are_accepted() {
        let body = r#"{"prompt":"x","echo":false,"logprobs":null,"top_logprobs":0,"ignore_eos":true,"min_tokens":3,"stop":["."],
            "response_format":{"type":"text"},"bogus":1}"#;
        assert_eq!(ask(Kind::Completion, body).unwrap().order.output_tokens, 16);
    }
}
