//! A request's body: from JSON to what the engine needs, with vLLM's complaints.
//!
//! What shapes the words of an answer (sampling parameters, stop strings, tools) means nothing to a model that is not there, and is
//! accepted. What would shape the form of an answer is refused where it is not simulated. Unknown fields are accepted, as by vLLM.

use serde_json::Value;

use super::body::Body;
use super::engine::Order;
use super::prompt::{self, Tokens, mix};
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
    /// Every chunk tells the usage so far.
    pub(super) continuous_usage: bool,
    /// Tokens of a chunk, at least; the server may say more.
    pub(super) stream_interval: u32,
    /// Chooses the words of each answer: equal prompts get equal answers, as with greedy sampling.
    pub(super) answer_seeds: Vec<u64>,
}

/// Fields that would change the form of an answer.
const NOT_SIMULATED: [&str; 8] = [
    "echo",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
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
    check_form(&body)?;
    check_model(&body, rules)?;
    let stream = body.flag("stream")?;
    let options = body.inner("stream_options");
    let asked_tokens = match kind {
        Kind::Completion => Some(body.integer("max_tokens")?.unwrap_or(16)),
        Kind::Chat => body.integer("max_completion_tokens")?.or(body.integer("max_tokens")?),
    };
    let copies = copies(&body)?;
    check_sampling(&body, asked_tokens)?;
    let prompts = match kind {
        Kind::Completion => prompt::of_completion(body.get("prompt"), rules.block_size)?,
        Kind::Chat => vec![prompt::of_chat(body.required("messages")?, rules.block_size)?],
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
        body.get(name).is_some_and(|value| *value != Value::Bool(false) && (*name != "top_logprobs" || *value != 0))
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

/// How many answers each prompt gets.
fn copies(body: &Body) -> Result<u32, Refusal> {
    let copies = body.integer("n")?.unwrap_or(1);
    match copies {
        ..1 => Err(Refusal::bad(format!("n must be at least 1, got {copies}."))),
        2.. if body.number("temperature")? == Some(0.0) => {
            Err(Refusal::bad(format!("n must be 1 when using greedy sampling, got {copies}.")))
        }
        1..=MOST_COPIES => Ok(copies as u32),
        _ => Err(Refusal::bad(format!(
            "n must be at most {MOST_COPIES}, got {copies}. To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable."
        ))),
    }
}

/// Judges the parameters of sampling that vLLM judges and that clients get wrong.
fn check_sampling(body: &Body, max_tokens: Option<i64>) -> Result<(), Refusal> {
    let wrong = |name: &str, says: &str, value: String| {
        Err(Refusal::of(name, format!("{name} {says}, got {value}. (parameter={name}, value={value})")))
    };
    if let Some(max_tokens) = max_tokens.filter(|max| *max < 1) {
        return wrong("max_tokens", "must be at least 1", max_tokens.to_string());
    }
    match body.number("temperature")? {
        Some(t) if t < 0.0 => return wrong("temperature", "must be non-negative", format!("{t:?}")),
        Some(t) if t > 2.0 => return wrong("temperature", "must be in [0, 2]", format!("{t:?}")),
        _ => {}
    }
    let min_tokens = body.integer("min_tokens")?.unwrap_or(0);
    if min_tokens < 0 {
        return Err(Refusal::bad(format!("min_tokens must be greater than or equal to 0, got {min_tokens}.")));
    }
    if let Some(max) = max_tokens.filter(|max| min_tokens > *max) {
        let message = format!("min_tokens must be less than or equal to max_tokens={max}, got {min_tokens}.");
        return Err(Refusal::bad(message));
    }
    let stop = body.get("stop").and_then(Value::as_array);
    if stop.is_some_and(|stop| stop.iter().any(|text| *text == "")) {
        return Err(Refusal::bad("stop cannot contain an empty string."));
    }
    Ok(())
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
            (r#"{"prompt":"x","max_tokens":"many"}"#, "'int_parsing', 'loc': 'body.max_tokens'"),
            (r#"{"prompt":"x","temperature":-1}"#, "non-negative, got -1.0. (parameter=temperature, value=-1.0)"),
            (r#"{"prompt":"x","min_tokens":17}"#, "min_tokens must be less than or equal to max_tokens=16, got 17."),
            (r#"{"prompt":"x","n":0}"#, "n must be at least 1, got 0."),
            (r#"{"prompt":"x","n":2,"temperature":0}"#, "n must be 1 when using greedy sampling, got 2."),
            (r#"{"prompt":"x","stream_options":{"include_usage":true}}"#, "only be defined when `stream=True`"),
            (r#"{"prompt":"x","stop":["."  ,""]}"#, "stop cannot contain an empty string."),
            (r#"{"prompt":"x","suffix":"y"}"#, "only supported for models with FIM"),
            (r#"{"prompt":[]}"#, "You must pass at least one prompt"),
            (r#"{"prompt":["x",""]}"#, "The decoder prompt cannot be empty"),
            (r#"{"prompt":[1,"a"]}"#, "'loc': 'body.prompt'"),
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
