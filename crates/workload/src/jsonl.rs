//! Files with one request a line: its prompt or messages, and the length of its answer. A wrong line is an error, never skipped.

use std::io::BufRead;

use serde_json::{Map, Value};

use super::parsed::{AnswerLength, Mistake, Parsed, Request};
use super::planned::{Message, Prompt};
use autotune_plan::settings::Endpoint;
use autotune_records::units::MOST_TOKENS;

const FORM: &str = "write one object a line, such as {\"prompt\": \"...\", \"output_tokens\": 128}";
const MESSAGE: &str =
    "write {\"role\": \"user\", \"content\": \"...\"}; the roles are system, developer, user, assistant and tool";

/// What is wrong with a line, and what to do.
type Wrong = (String, &'static str);

/// Reads every line. `answers` says whether a line must tell the length of its answer.
pub(super) fn parse(bytes: impl BufRead, endpoint: Endpoint, answers: bool) -> Result<Parsed<Request>, Mistake> {
    let mut parsed = Parsed::default();
    for_each_line(bytes, |object| {
        parsed.items.push(request(object, endpoint, answers)?);
        Ok(())
    })?;
    Ok(parsed)
}

/// Calls with the object of every line that is not blank; a refusal becomes a mistake with its line.
pub(super) fn for_each_line(
    bytes: impl BufRead,
    mut take: impl FnMut(Map<String, Value>) -> Result<(), Wrong>,
) -> Result<(), Mistake> {
    for (number, line) in bytes.split(b'\n').enumerate() {
        let line = line.map_err(Mistake::Read)?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let object = match serde_json::from_slice::<Value>(&line) {
            Ok(Value::Object(object)) => Ok(object),
            Ok(_) => Err(("not a JSON object".to_owned(), FORM)),
            Err(error) => Err((format!("not JSON: {error}"), FORM)),
        };
        object.and_then(&mut take).map_err(|(what, hint)| Mistake::Line { line: number + 1, what, hint })?;
    }
    Ok(())
}

fn request(mut object: Map<String, Value>, endpoint: Endpoint, answers: bool) -> Result<Request, Wrong> {
    let answer = output_tokens(&object)?;
    if answer.is_none() && answers {
        let hint = "add \"output_tokens\" to the line, or `output_tokens` to `[workload]` for lines without";
        return Err(("the line has no `output_tokens`".to_owned(), hint));
    }
    let mut given = |key| object.remove(key).filter(|value| !value.is_null());
    let prompt = match (given("prompt"), given("messages")) {
        (Some(_), Some(_)) => {
            return Err(("the line has both `prompt` and `messages`".to_owned(), "keep one of them"));
        }
        (None, None) => return Err(("the line has neither `prompt` nor `messages`".to_owned(), FORM)),
        (Some(prompt), None) => prompt_of(prompt, endpoint)?,
        (None, Some(_)) if endpoint == Endpoint::Completions => {
            let hint = "set endpoint = \"chat\" in `[workload]`, or write a `prompt`";
            return Err(("`messages` need the chat endpoint".to_owned(), hint));
        }
        (None, Some(messages)) => messages_of(messages)?,
    };
    Ok(Request { prompt, answer, later: Vec::new() })
}

fn output_tokens(object: &Map<String, Value>) -> Result<Option<AnswerLength>, Wrong> {
    for key in ["output_tokens", "max_tokens", "output_len"] {
        let Some(value) = object.get(key).filter(|value| !value.is_null()) else { continue };
        let tokens = value.as_u64().and_then(|tokens| u32::try_from(tokens).ok());
        let tokens = tokens.filter(|tokens| (1..=MOST_TOKENS).contains(tokens));
        let wrong =
            || (format!("`{key}` is no count of tokens"), "write an integer from 1 to 10000000, without quotes");
        return Ok(Some(AnswerLength::Tokens(tokens.ok_or_else(wrong)?)));
    }
    Ok(None)
}

fn prompt_of(prompt: Value, endpoint: Endpoint) -> Result<Prompt, Wrong> {
    match prompt {
        Value::String(text) if text.is_empty() => Err(("`prompt` is empty".to_owned(), FORM)),
        Value::String(text) => Ok(match endpoint {
            Endpoint::Completions => Prompt::Text(text),
            Endpoint::Chat => Prompt::Messages(vec![Message { role: "user", content: text }]),
        }),
        Value::Array(ids) if endpoint == Endpoint::Chat => {
            let hint = "set endpoint = \"completions\" in `[workload]`, or write the prompt as text";
            let what = if ids.is_empty() { "`prompt` is empty" } else { "token ids need the completions endpoint" };
            Err((what.to_owned(), hint))
        }
        Value::Array(ids) => {
            let ids: Option<Vec<u32>> = ids.iter().map(|id| u32::try_from(id.as_u64()?).ok()).collect();
            match ids {
                Some(ids) if !ids.is_empty() => Ok(Prompt::Tokens(ids)),
                _ => Err(("`prompt` is no list of token ids".to_owned(), "write it as [101, 2023], or as text")),
            }
        }
        _ => Err(("`prompt` is neither text nor a list of token ids".to_owned(), FORM)),
    }
}

fn messages_of(messages: Value) -> Result<Prompt, Wrong> {
    let Value::Array(messages) = messages else { return Err(("`messages` is no list".to_owned(), MESSAGE)) };
    if messages.is_empty() {
        return Err(("`messages` is empty".to_owned(), MESSAGE));
    }
    let message = |mut message: Value| {
        let role = message.get("role").and_then(Value::as_str).and_then(role);
        let role = role.ok_or_else(|| ("a message has no known `role`".to_owned(), MESSAGE))?;
        match message.get_mut("content").map(Value::take) {
            Some(Value::String(content)) => Ok(Message { role, content }),
            _ => Err(("a message has no text as its `content`".to_owned(), MESSAGE)),
        }
    };
    messages.into_iter().map(message).collect::<Result<_, _>>().map(Prompt::Messages)
}

fn role(name: &str) -> Option<&'static str> {
    ["system", "developer", "user", "assistant", "tool"].into_iter().find(|role| *role == name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, endpoint: Endpoint) -> Result<Vec<Request>, (usize, String)> {
        parse(text.as_bytes(), endpoint, true).map(|parsed| parsed.items).map_err(|mistake| match mistake {
            Mistake::Line { line, what, hint } => (line, format!("{what}; {hint}")),
            Mistake::Read(error) => panic!("{error}"),
        })
    }

    #[test]
    fn prompts_are_texts_ids_or_messages() {
        let text =
            "{\"prompt\": \"a b\", \"output_tokens\": 3}\n\n{\"prompt\": [7, 8], \"max_tokens\": 4, \"id\": 1}\r\n";
        let requests = read(text, Endpoint::Completions).unwrap();
        let request =
            |prompt, tokens| Request { prompt, answer: Some(AnswerLength::Tokens(tokens)), later: Vec::new() };
        assert_eq!(requests, [request(Prompt::Text("a b".into()), 3), request(Prompt::Tokens(vec![7, 8]), 4)]);
        let text = "{\"prompt\": \"a\", \"output_len\": 1, \"messages\": null}\n\
            {\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"}], \"output_tokens\": 2}";
        let message = |role, content: &str| Message { role, content: content.into() };
        let expected = [
            request(Prompt::Messages(vec![message("user", "a")]), 1),
            request(Prompt::Messages(vec![message("system", "s"), message("user", "u")]), 2),
        ];
        assert_eq!(read(text, Endpoint::Chat).unwrap(), expected);
        let without = parse("{\"prompt\": \"a\"}".as_bytes(), Endpoint::Chat, false).unwrap();
        assert_eq!(without.items[0].answer, None);
    }

    #[test]
    fn every_wrong_line_is_named_with_a_remedy() {
        use Endpoint::{Chat, Completions};
        for (line, endpoint, says) in [
            ("nonsense", Chat, "not JSON"),
            ("[1]", Chat, "not a JSON object"),
            ("{\"prompt\": \"a\"}", Chat, "no `output_tokens`; add"),
            ("{\"prompt\": \"a\", \"output_tokens\": 0}", Chat, "`output_tokens` is no count"),
            ("{\"prompt\": \"a\", \"output_tokens\": 4000000000}", Chat, "from 1 to 10000000"),
            ("{\"prompt\": \"a\", \"max_tokens\": \"9\"}", Chat, "`max_tokens` is no count"),
            ("{\"output_tokens\": 1}", Chat, "neither `prompt` nor `messages`"),
            ("{\"output_tokens\": 1, \"prompt\": \"a\", \"messages\": []}", Chat, "both"),
            ("{\"output_tokens\": 1, \"prompt\": \"\"}", Chat, "`prompt` is empty"),
            ("{\"output_tokens\": 1, \"prompt\": 5}", Chat, "neither text nor"),
            ("{\"output_tokens\": 1, \"prompt\": [1]}", Chat, "set endpoint = \"completions\""),
            ("{\"output_tokens\": 1, \"prompt\": [1.5]}", Completions, "no list of token ids"),
            ("{\"output_tokens\": 1, \"prompt\": []}", Completions, "no list of token ids"),
            ("{\"output_tokens\": 1, \"messages\": []}", Completions, "set endpoint = \"chat\""),
            ("{\"output_tokens\": 1, \"messages\": []}", Chat, "`messages` is empty"),
            (
                "{\"output_tokens\": 1, \"messages\": [{\"role\": \"boss\", \"content\": \"\"}]}",
                Chat,
                "no known `role`",
            ),
            ("{\"output_tokens\": 1, \"messages\": [{\"role\": \"user\"}]}", Chat, "no text as its `content`"),
        ] {
            let good = "{\"prompt\": \"a\", \"output_tokens\": 1}";
            let (number, said) = read(&format!("{good}\n\n{line}\n{good}\n"), endpoint).unwrap_err();
            assert!(number == 3 && said.contains(says), "{line}: {number}: {said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*|([\\[\\]{}:,\"a1\n]|\"prompt\"|\"output_tokens\"){0,30}") {
            let _ = parse(text.as_bytes(), Endpoint::Chat, true);
            let _ = parse(text.as_bytes(), Endpoint::Completions, false);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(bytes.as_slice(), Endpoint::Chat, true);
        }
    }

    #[test]
    fn fuzz_jsonl() {
        let chat = r#"{"messages": [{"role": "user", "content": "what?"}], "output_tokens": 7}"#;
        let valid = [
            format!("{chat}\n{chat}\n"),
            "{\"prompt\": \"a b\", \"output_tokens\": 3}\n{\"prompt\": [1, 2]}\n".to_owned(),
        ];
        autotune_fuzz::fuzz(5, valid, |input, _| {
            let _ = parse(input, Endpoint::Chat, true);
            let _ = parse(input, Endpoint::Completions, false);
        });
    }
}
