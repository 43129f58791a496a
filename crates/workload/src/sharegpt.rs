//! Files in ShareGPT's form: one JSON list of dialogues, of which questions and the lengths of their answers are taken.
//!
//! A dialogue ends before its first later turn that cannot be used. Whatever else cannot be used is counted by its reason; nothing is filtered by length.

use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::Value;

use super::parsed::{AnswerLength, Exchange, Mistake, Parsed, Request};
use super::planned::{Message, Prompt};
use autotune_plan::settings::Endpoint;

const HINT: &str = "a ShareGPT file is one list: [{\"conversations\": [{\"from\": \"human\", \"value\": \"...\"}, {\"from\": \"gpt\", \"value\": \"...\"}]}]";

/// Reads dialogues one after another, so that only one at a time is held as JSON. `answers` says whether answers are needed, and
/// how many `turns` of a dialogue are taken at most.
pub(super) fn parse(
    bytes: impl Read,
    endpoint: Endpoint,
    (answers, turns): (bool, u32),
) -> Result<Parsed<Request>, Mistake> {
    let mut parsed = Parsed::default();
    let mut json = serde_json::Deserializer::from_reader(bytes);
    let dialogues = Dialogues { parsed: &mut parsed, endpoint, answers, turns };
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
    turns: u32,
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
            self.parsed.add(request(entry, self.endpoint, self.answers, self.turns));
        }
        Ok(())
    }
}

/// The first question of a dialogue and the length of the answer to it, with the later turns that are asked for.
fn request(mut entry: Value, endpoint: Endpoint, answers: bool, turns: u32) -> Result<Request, &'static str> {
    let keys = ["conversations", "conversation", "messages", "items"];
    let key = keys.into_iter().find(|key| entry.get(key).is_some_and(Value::is_array)).ok_or("without a dialogue")?;
    let Some(Value::Array(said)) = entry.get_mut(key) else { return Err("without a dialogue") };
    let mut said = said.iter_mut();
    let question = question(&mut said)?;
    let (mut answered, answer) = answer(&mut said, answers)?;
    let mut later = Vec::new();
    while later.len() + 1 < turns as usize
        && let Some(text) = answered
        && let Ok(question) = self::question(&mut said)
        && let Ok((next, answer)) = self::answer(&mut said, answers)
    {
        later.push(Exchange { answered: text, question, answer });
        answered = next;
    }
    let prompt = match endpoint {
        Endpoint::Completions => Prompt::Text(question),
        Endpoint::Chat => Prompt::Messages(vec![Message { role: "user", content: question }]),
    };
    Ok(Request { prompt, answer, later })
}

fn question<'v>(said: &mut impl Iterator<Item = &'v mut Value>) -> Result<String, &'static str> {
    let question = said.find(|turn| spoken_by(turn, &["human", "user"])).ok_or("without a question")?;
    let question = text_of(question).ok_or("with a question that is no text")?;
    if question.trim().is_empty() { Err("with an empty question") } else { Ok(question) }
}

/// The answer to it, and its length where that is asked for.
fn answer<'v>(
    said: &mut impl Iterator<Item = &'v mut Value>,
    needed: bool,
) -> Result<(Option<String>, Option<AnswerLength>), &'static str> {
    let answer = said.find(|turn| spoken_by(turn, &["gpt", "assistant", "chatgpt", "bing", "bard"])).and_then(text_of);
    match answer {
        answer if !needed => Ok((answer, None)),
        None => Err("without an answer"),
        Some(answer) if answer.trim().is_empty() => Err("with an empty answer"),
        Some(answer) => {
            let length = AnswerLength::Characters(answer.chars().count() as u64);
            Ok((Some(answer), Some(length)))
        }
    }
}

fn spoken_by(turn: &Value, roles: &[&str]) -> bool {
    let role = turn.get("from").or_else(|| turn.get("role")).and_then(Value::as_str);
    role.is_some_and(|role| roles.contains(&role))
}

/// Takes the text out of a turn.
fn text_of(turn: &mut Value) -> Option<String> {
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
        let parsed = parse(FILE.as_bytes(), Endpoint::Completions, (true, 1)).unwrap();
        let taken: Vec<(Prompt, Option<AnswerLength>)> =
            parsed.items.into_iter().map(|r| (r.prompt, r.answer)).collect();
        let expected = [("what is it?", 6), ("second", 2), ("third", 1)];
        assert_eq!(taken, expected.map(|(text, n)| (Prompt::Text(text.to_owned()), Some(AnswerLength::Characters(n)))));
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
        let parsed = parse(FILE.as_bytes(), Endpoint::Chat, (false, 1)).unwrap();
        assert_eq!(parsed.items.len(), 5);
        assert!(parsed.items.iter().all(|r| r.answer.is_none() && matches!(r.prompt, Prompt::Messages(_))));
    }

    #[test]
    fn later_turns_follow_as_far_as_they_can_be_used() {
        let turn = |from, value| format!("{{\"from\": \"{from}\", \"value\": \"{value}\"}}");
        let said = [
            ("human", "a"),
            ("gpt", "bb"),
            ("human", "c"),
            ("gpt", "ddd"),
            ("human", "e"),
            ("gpt", "f"),
            ("human", ""),
            ("gpt", "g"),
        ];
        let dialogue = said.map(|(from, value)| turn(from, value)).join(",");
        let file = format!("[{{\"conversations\": [{dialogue}]}}]");
        let later = |turns| {
            let parsed = parse(file.as_bytes(), Endpoint::Chat, (true, turns)).unwrap();
            parsed.items[0]
                .later
                .iter()
                .map(|e| format!("{} {} {:?}", e.answered, e.question, e.answer))
                .collect::<Vec<_>>()
        };
        assert_eq!(later(1), Vec::<String>::new());
        assert_eq!(later(2), ["bb c Some(Characters(3))"]);
        assert_eq!(later(99), ["bb c Some(Characters(3))", "ddd e Some(Characters(1))"]);
    }

    #[test]
    fn what_is_no_list_is_an_error_with_its_line() {
        for (text, line) in [("", 1), ("[{},\n{]", 2), ("{\"a\": 1}", 1), ("[]\n[]", 2), ("[{}", 1)] {
            let error = parse(text.as_bytes(), Endpoint::Chat, (true, 9)).unwrap_err();
            assert!(matches!(error, Mistake::Line { line: found, .. } if found == line), "{text}: {error:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in "\\PC*|[\\[\\]{}:,\"a ]{0,40}", start in 0..FILE.len(), length in 0..60_usize,
        ) {
            let _ = parse(text.as_bytes(), Endpoint::Chat, (true, 9));
            let mut damaged = FILE.as_bytes().to_vec();
            damaged.drain(start..(start + length).min(FILE.len()));
            let _ = parse(damaged.as_slice(), Endpoint::Chat, (true, 9));
        }
    }

    #[test]
    fn fuzz_sharegpt() {
        autotune_fuzz::fuzz(5, [FILE], |input, _| drop(parse(input, Endpoint::Chat, (true, 9))));
    }
}
