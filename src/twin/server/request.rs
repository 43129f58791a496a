//! A request's body: from JSON to what the scheduler needs, with vLLM's complaints.

use serde_json::Value;

use crate::twin::PromptShape;

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
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) prompt: PromptShape,
    pub(super) output_tokens: u32,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    /// Chooses the words of the answer: equal prompts get equal answers, as with greedy sampling.
    pub(super) answer_seed: u64,
}

/// A refusal in OpenAI's form.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) param: Option<&'static str>,
    pub(super) message: String,
}

impl Refusal {
    fn bad(param: &'static str, message: String) -> Self {
        Self { status: 400, kind: "BadRequestError", param: Some(param), message }
    }

    /// The body that goes with the status.
    pub(super) fn body(&self) -> Value {
        serde_json::json!({"error":
            {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}})
    }
}

/// Reads and judges a body.
pub(super) fn read(kind: Kind, body: &[u8], rules: &Rules) -> Result<Asked, Refusal> {
    let Ok(Value::Object(body)) = serde_json::from_slice::<Value>(body) else {
        let message = "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.0', 'msg': 'JSON decode error', \
                       'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}}";
        return Err(Refusal { status: 400, kind: "Bad Request", param: Some("body.0"), message: message.to_owned() });
    };
    // A missing model is accepted, as by vLLM.
    if let Some(model) = body.get("model").and_then(Value::as_str)
        && model != rules.served_name
    {
        let message = format!("The model `{model}` does not exist. Valid aliases: {}.", rules.served_name);
        return Err(Refusal { status: 404, kind: "NotFoundError", param: Some("model"), message });
    }
    let max_tokens =
        body.get("max_completion_tokens").or_else(|| body.get("max_tokens")).and_then(Value::as_i64).unwrap_or(16);
    if max_tokens < 1 {
        let message =
            format!("max_tokens must be at least 1, got {max_tokens}. (parameter=max_tokens, value={max_tokens})");
        return Err(Refusal::bad("max_tokens", message));
    }
    if let Some(temperature) = body.get("temperature").and_then(Value::as_f64).filter(|t| *t < 0.0) {
        let message = format!(
            "temperature must be non-negative, got {temperature:?}. (parameter=temperature, value={temperature:?})"
        );
        return Err(Refusal::bad("temperature", message));
    }
    let mut tokens = Tokens::new(rules.block_size);
    match kind {
        Kind::Completion => completion_prompt(body.get("prompt"), &mut tokens)?,
        Kind::Chat => chat_prompt(body.get("messages"), &mut tokens)?,
    }
    let output_tokens = check_length(tokens.count, max_tokens, rules.max_model_len)?;
    let flag = |value: Option<&Value>| value.and_then(Value::as_bool).unwrap_or(false);
    Ok(Asked {
        output_tokens,
        stream: flag(body.get("stream")),
        include_usage: flag(body.get("stream_options").and_then(|o| o.get("include_usage"))),
        answer_seed: mix(tokens.chain ^ rules.seed),
        prompt: PromptShape {
            tokens: tokens.count,
            blocks: if rules.prefix_caching { tokens.blocks } else { Vec::new() },
        },
    })
}

fn check_length(prompt: u32, max_tokens: i64, max_model_len: u32) -> Result<u32, Refusal> {
    let output_tokens = u32::try_from(max_tokens).unwrap_or(u32::MAX);
    if output_tokens > max_model_len {
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

/// A string, an array of token ids, or an array that holds just one of these.
pub(super) fn completion_prompt(prompt: Option<&Value>, tokens: &mut Tokens) -> Result<(), Refusal> {
    let missing = || {
        let message = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)";
        Refusal::bad("prompt", message.to_owned())
    };
    match prompt.ok_or_else(missing)? {
        Value::String(text) => tokens.words(text),
        Value::Array(items) => match items.as_slice() {
            [one @ (Value::String(_) | Value::Array(_))] => return completion_prompt(Some(one), tokens),
            ids => {
                for id in ids {
                    let several = || "the simulated engine takes one prompt per request (parameter=prompt)".to_owned();
                    tokens.push(mix(id.as_u64().ok_or_else(|| Refusal::bad("prompt", several()))?));
                }
            }
        },
        _ => return Err(missing()),
    }
    if tokens.count == 0 { Err(missing()) } else { Ok(()) }
}

/// The words of each message, and four tokens around it for the template.
pub(super) fn chat_prompt(messages: Option<&Value>, tokens: &mut Tokens) -> Result<(), Refusal> {
    let messages = messages.and_then(Value::as_array).filter(|m| !m.is_empty());
    let missing = || Refusal::bad("messages", "messages must be a non-empty list. (parameter=messages)".to_owned());
    for message in messages.ok_or_else(missing)? {
        let role = message.get("role").and_then(Value::as_str).unwrap_or("user");
        for part in 0..4 {
            tokens.push(hash_word(role) ^ part);
        }
        match message.get("content") {
            Some(Value::String(text)) => tokens.words(text),
            Some(Value::Array(parts)) => {
                parts.iter().filter_map(|p| p.get("text")?.as_str()).for_each(|text| tokens.words(text));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Counts tokens and chains their hashes block by block.
pub(super) struct Tokens {
    block_size: u32,
    pub(super) count: u32,
    chain: u64,
    blocks: Vec<u64>,
}

impl Tokens {
    pub(super) fn new(block_size: u32) -> Self {
        Self { block_size, count: 0, chain: 0, blocks: Vec::new() }
    }

    fn push(&mut self, hash: u64) {
        self.chain = mix(self.chain ^ hash);
        self.count += 1;
        if self.count.is_multiple_of(self.block_size) {
            self.blocks.push(self.chain);
        }
    }

    fn words(&mut self, text: &str) {
        text.split_whitespace().for_each(|word| self.push(hash_word(word)));
    }
}

/// FNV-1a.
fn hash_word(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The finalizer of SplitMix64: neighbouring inputs get unrelated outputs.
pub(super) fn mix(input: u64) -> u64 {
    let mut z = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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
    fn prompts_come_as_text_ids_and_messages() {
        let words = ask(Kind::Completion, r#"{"prompt":"a b  c\nd e","max_tokens":3}"#).unwrap();
        assert_eq!((words.prompt.tokens, words.prompt.blocks.len(), words.output_tokens), (5, 1, 3));
        let ids = ask(Kind::Completion, r#"{"prompt":[1,2,3,4,5,6,7,8]}"#).unwrap();
        assert_eq!((ids.prompt.tokens, ids.prompt.blocks.len(), ids.output_tokens), (8, 2, 16));
        let longer = ask(Kind::Completion, r#"{"prompt":[[1,2,3,4,5,6,7,9]]}"#).unwrap();
        assert_eq!(ids.prompt.blocks[0], longer.prompt.blocks[0]);
        assert_ne!(ids.prompt.blocks[1], longer.prompt.blocks[1]);
        let chat = r#"{"messages":[{"role":"user","content":"a b"},{"role":"user","content":[{"type":"text","text":"c"}]}],
            "stream":true,"stream_options":{"include_usage":true}}"#;
        let chat = ask(Kind::Chat, chat).unwrap();
        assert_eq!(chat.prompt.tokens, 11);
        assert!(chat.stream && chat.include_usage);
    }

    #[test]
    fn refusals_are_vllms() {
        let status = |body: &str| ask(Kind::Completion, body).map(|_| ()).unwrap_err();
        assert!(status("not json").1.contains("json_invalid"));
        assert_eq!(status(r#"{"model":"wrong","prompt":"x"}"#).0, 404);
        assert!(status(r#"{"prompt":"x","max_tokens":99}"#).1.starts_with("max_tokens=99 cannot be greater"));
        assert!(status(r#"{"prompt":"x","max_tokens":64}"#).1.contains("for a total of 65 tokens"));
        assert!(status(r#"{"prompt":"x","max_tokens":0}"#).1.contains("at least 1"));
        assert!(status(r#"{"max_tokens":5}"#).1.contains("non-empty"));
        assert!(status(r#"{"prompt":["a","b"]}"#).1.contains("one prompt"));
        let long = format!(r#"{{"prompt":"{}"}}"#, "x ".repeat(64));
        assert!(status(&long).1.contains("64 input tokens"));
        assert!(ask(Kind::Chat, r#"{"messages":[]}"#).is_err());
    }
}
