//! A request's body: from JSON to what the engine needs, with vLLM's complaints.
//!
//! What shapes the words of an answer (sampling parameters, stop strings, tools) means nothing to a model that is not there, and is
//! accepted. What would shape the form of an answer is refused where it is not simulated. Unknown fields are accepted, as by vLLM.

use serde_json::Value;

use super::body::Body;
use super::engine::Order;
use super::prompt::{self, mix};
use super::refusal::Refusal;

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
    /// Tokens of a chunk, at least; the server may say more.
    pub(super) stream_interval: u32,
    /// Chooses the words of the answer: equal prompts get equal answers, as with greedy sampling.
    pub(super) answer_seed: u64,
}

/// Fields that would change the form of an answer.
const NOT_SIMULATED: [&str; 9] = [
    "n",
    "echo",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "use_beam_search",
    "structured_outputs",
    "prompt_embeds",
    "return_token_ids",
];

pub(super) fn read(kind: Kind, body: &[u8], rules: &Rules) -> Result<Asked, Refusal> {
    let body = Body::parse(body)?;
    check_form(&body)?;
    check_model(&body, rules)?;
    let stream = body.flag("stream")?;
    let options = body.inner("stream_options");
    let asked_tokens = match kind {
        Kind::Completion => Some(body.integer("max_tokens")?.unwrap_or(16)),
        Kind::Chat => body.integer("max_completion_tokens")?.or(body.integer("max_tokens")?),
    };
    if let Some(asked) = asked_tokens.filter(|asked| *asked < 1) {
        let message = format!("max_tokens must be at least 1, got {asked}. (parameter=max_tokens, value={asked})");
        return Err(Refusal::of("max_tokens", message));
    }
    let prompt = match kind {
        Kind::Completion => prompt::of_completion(body.get("prompt"), rules.block_size)?,
        Kind::Chat => prompt::of_chat(body.required("messages")?, rules.block_size)?,
    };
    let output_tokens = check_length(prompt.count, asked_tokens, rules.max_model_len)?;
    Ok(Asked {
        answer_seed: mix(prompt.hash() ^ rules.seed),
        order: Order { prompt: prompt.shape(rules.prefix_caching), output_tokens },
        stream,
        include_usage: options.flag("include_usage")?,
        stream_interval: body.integer("stream_interval")?.and_then(|i| u32::try_from(i).ok()).unwrap_or(1),
    })
}

/// A missing model is accepted, as by vLLM.
pub(super) fn check_model(body: &Body, rules: &Rules) -> Result<(), Refusal> {
    match body.get("model").and_then(Value::as_str) {
        Some(model) if model != rules.served_name => {
            let message = format!("The model `{model}` does not exist. Valid aliases: {}.", rules.served_name);
            Err(Refusal { status: 404, kind: "NotFoundError", ..Refusal::of("model", message) })
        }
        _ => Ok(()),
    }
}

/// Judges what would change the form of the answer.
fn check_form(body: &Body) -> Result<(), Refusal> {
    if body.get("stream_options").is_some() && !body.flag("stream")? {
        let message = "Stream options can only be defined when `stream=True`. (parameter=stream_options)";
        return Err(Refusal::of("stream_options", message));
    }
    if body.get("suffix").is_some() {
        return Err(Refusal::of("suffix", "suffix is only supported for models with FIM completion rendering"));
    }
    // Zero top log-probabilities are none; zero log-probabilities of a completion are those of its own tokens.
    let asked = |name: &&str| {
        let harmless = match *name {
            "n" => 1.into(),
            "top_logprobs" => 0.into(),
            _ => Value::Bool(false),
        };
        body.get(name).is_some_and(|value| *value != harmless && *value != Value::Bool(false))
    };
    let format = body.get("response_format").and_then(|f| f.get("type")).and_then(Value::as_str);
    let other_format = format.filter(|format| *format != "text").map(|_| "response_format");
    match NOT_SIMULATED.into_iter().find(asked).or(other_format) {
        Some(name) => {
            Err(Refusal::of(name, format!("the simulated engine does not know `{name}`. (parameter={name})")))
        }
        None => Ok(()),
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
        return Err(Refusal::of("max_tokens", message));
    }
    if prompt >= max_model_len {
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, your prompt contains {prompt} input tokens, \
             which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. \
             (parameter=input_tokens, value={prompt})"
        );
        return Err(Refusal::of("input_tokens", message));
    }
    let output_tokens = wish.unwrap_or(max_model_len - prompt);
    if prompt + output_tokens > max_model_len {
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, you requested {output_tokens} output tokens \
             and your prompt contains {prompt} input tokens, for a total of {} tokens. Please reduce the length of the input \
             prompt or the number of requested output tokens. (parameter=input_tokens, value={prompt})",
            prompt + output_tokens
        );
        return Err(Refusal::of("input_tokens", message));
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
    fn a_chat_counts_its_template_and_the_parts_of_its_messages() {
        let chat = r#"{"messages":[{"role":"user","content":"a b"},{"role":"user","content":[{"type":"text","text":"c"}]}],
            "n":1,"stream":true,"stream_options":{"include_usage":true}}"#;
        let chat = ask(Kind::Chat, chat).unwrap();
        assert_eq!(chat.order.prompt.tokens, 11);
        assert!(chat.stream && chat.include_usage);
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
            (r#"{"prompt":"x","max_tokens":"many"}"#, "'int_parsing', 'loc': 'body.max_tokens'"),
            (r#"{"prompt":"x","n":2}"#, "does not know `n`"),
            (r#"{"prompt":"x","stream_options":{"include_usage":true}}"#, "only be defined when `stream=True`"),
            (r#"{"prompt":"x","suffix":"y"}"#, "only supported for models with FIM"),
            (r#"{"prompt":[]}"#, "The decoder prompt cannot be empty"),
            (r#"{"prompt":["x","y"]}"#, "takes one prompt"),
            (r#"{"prompt":[1,-1]}"#, "'loc': 'body.prompt'"),
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
        let chat = |body: &str| ask(Kind::Chat, body).map(|_| ()).unwrap_err().1;
        assert!(chat(r#"{"messages":[]}"#).starts_with("Cannot apply chat template to an empty conversation."));
        assert!(chat("{}").contains("'missing', 'loc': 'body.messages', 'msg': 'Field required'"));
    }

    #[test]
    fn fields_without_a_meaning_here_are_accepted() {
        let body = r#"{"prompt":"x","echo":false,"logprobs":null,"top_logprobs":0,"ignore_eos":true,"min_tokens":3,"stop":["."],
            "response_format":{"type":"text"},"bogus":1}"#;
        assert_eq!(ask(Kind::Completion, body).unwrap().order.output_tokens, 16);
    }
}
