//! Files in ShareGPT's form: one JSON list of dialogues, of which the first question and its answer's length are taken.
//!
//! Whatever cannot be used is counted by its reason; nothing is filtered by length.

use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::Value;

use super::corpus::{Answer, Mistake, Parsed, Request};
use super::{Message, Prompt};
use crate::settings::Endpoint;

const HINT: &str = "a ShareGPT file is one list: [{\"conversations\": [{\"from\": \"human\", \"value\": \"...\"}, {\"from\": \"gpt\", \"value\": \"...\"}]}]";

/// Reads dialogues one after another, so that only one at a time is held as JSON. `answers` says whether an answer is needed.
pub(super) fn parse(bytes: impl Read, endpoint: Endpoint, answers: bool) -> Result<Parsed<Request>, Mistake> {
    let mut parsed = Parsed::default();
    let mut json = serde_json::Deserializer::from_reader(bytes);
    let dialogues = Dialogues { parsed: &mut parsed, endpoint, answers };
    match dialogues.deserialize(&mut json).and_then(|()| json.end()) {
        Ok(()) => Ok(parsed),
        Err(error) if error.is_io() => Err(Mistake::Read(error.into())),
        Err(error) => Err(Mistake::Line { line: error.line().max(1), what: error.to_string(), hint: HINT }),
    }
}

struct Dialogues<'p> {
    parsed: &'p mut Parsed<Request>,
    endpoint: Endpoint,
    answers: bool,
}

impl<'de> DeserializeSeed<'de> for Dialogues<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Dialogues<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a list of dialogues")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(entry) = entries.next_element::<Value>()? {
            self.parsed.add(request(entry, self.endpoint, self.answers));
        }
        Ok(())
    }
}

/// The first question of a dialogue, and the length of the answer to it.
fn request(mut entry: Value, endpoint: Endpoint, answers: bool) -> Result<Request, &'static str> {
    let keys = ["conversations", "conversation", "messages", "items"];
    let key = keys.into_iter().find(|key| entry.get(key).is_some_and(Value::is_array)).ok_or("without a dialogue")?;
    let Some(Value::Array(turns)) = entry.get_mut(key) else { return Err("without a dialogue") };
    let mut turns = turns.iter_mut().skip_while(|turn| !spoken_by(turn, &["human", "user"]));
    let question = turns.next().ok_or("without a question")?;
    let question = said(question).ok_or("with a question that is no text")?;
    if question.trim().is_empty() {
        return Err("with an empty question");
    }
    let answer = turns.find(|turn| spoken_by(turn, &["gpt", "assistant", "chatgpt", "bing", "bard"])).and_then(said);
    let answer = match answer {
        _ if !answers => None,
        None => return Err("without an answer"),
        Some(answer) if answer.trim().is_empty() => return Err("with an empty answer"),
        Some(answer) => Some(Answer::Characters(answer.chars().count() as u64)),
    };
    let prompt = match endpoint {
        Endpoint::Completions => Prompt::Text(question),
        Endpoint::Chat => Prompt::Messages(vec![Message { role: "user", content: question }]),
    };
    Ok(Request { prompt, answer })
}

fn spoken_by(turn: &Value, roles: &[&str]) -> bool {
    let role = turn.get("from").or_else(|| turn.get("role")).and_then(Value::as_str);
    role.is_some_and(|role| roles.contains(&role))
}

/// Takes the text out of a turn.
fn said(turn: &mut Value) -> Option<String> {
    let key = if turn.get("value").is_some() { "value" } else { "content" };
    match turn.get_mut(key).map(Value::take) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = r#"[
        {"id": "a", "conversations": [{"from": "human", "value": "what is it?"}, {"from": "gpt", "value": "a file"}]},
        {"items": [{"from": "system", "value": "x"}, {"from": "user", "value": "second"}, {"from": "gpt", "value": "öö"}]},
        {"messages": [{"role": "user", "content": "third"}, {"role": "tool", "content": ""}, {"role": "assistant", "content": "3"}]},
        {"conversation": [{"role": "user", "content": "no answer"}]},
        {"conversations": []}, {"conversations": [{"from": "gpt", "value": "alone"}]}, {}, 7,
        {"conversations": [{"from": "human", "value": "  "}, {"from": "gpt", "value": "a"}]},
        {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": ""}]},
        {"conversations": [{"from": "human", "value": ["q"]}, {"from": "gpt", "value": "a"}]}
    ]"#;

    #[test]
    fn first_questions_are_taken_and_the_rest_is_counted_by_reason() {
        let parsed = parse(FILE.as_bytes(), Endpoint::Completions, true).unwrap();
        let taken: Vec<(Prompt, Option<Answer>)> = parsed.items.into_iter().map(|r| (r.prompt, r.answer)).collect();
        let expected = [("what is it?", 6), ("second", 2), ("third", 1)];
        assert_eq!(taken, expected.map(|(text, n)| (Prompt::Text(text.to_owned()), Some(Answer::Characters(n)))));
        let left_out: Vec<(&str, usize)> = parsed.left_out.into_iter().collect();
        let expected = [
            ("with a question that is no text", 1),
            ("with an empty answer", 1),
            ("with an empty question", 1),
            ("without a dialogue", 2),
            ("without a question", 2),
            ("without an answer", 1),
        ];
        assert_eq!(left_out, expected);
    }

    #[test]
    fn answers_are_not_needed_where_the_plan_says_their_length() {
        let parsed = parse(FILE.as_bytes(), Endpoint::Chat, false).unwrap();
        assert_eq!(parsed.items.len(), 5);
        assert!(parsed.items.iter().all(|r| r.answer.is_none() && matches!(r.prompt, Prompt::Messages(_))));
    }

    #[test]
    fn what_is_no_list_is_an_error_with_its_line() {
        for (text, line) in [("", 1), ("[{},\n{]", 2), ("{\"a\": 1}", 1), ("[]\n[]", 2), ("[{}", 1)] {
            let error = parse(text.as_bytes(), Endpoint::Chat, true).unwrap_err();
            assert!(matches!(error, Mistake::Line { line: found, .. } if found == line), "{text}: {error:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in "\\PC*|[\\[\\]{}:,\"a ]{0,40}", start in 0..FILE.len(), length in 0..60_usize,
        ) {
            let _ = parse(text.as_bytes(), Endpoint::Chat, true);
            let mut damaged = FILE.as_bytes().to_vec();
            damaged.drain(start..(start + length).min(FILE.len()));
            let _ = parse(damaged.as_slice(), Endpoint::Chat, true);
        }
    }

    #[test]
    fn fuzz_sharegpt() {
        crate::fuzz::fuzz(5, [FILE], |input, _| drop(parse(input, Endpoint::Chat, true)));
    }
}
