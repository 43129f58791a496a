//! `POST /tokenize`: how many tokens a prompt or messages have, and which; a word is a token here.

use serde_json::{Value, json};

use super::body::Body;
use super::prompt::{self, hash_word};
use super::refusal::Refusal;
use super::request::{Rules, check_model};

/// Ids are below this, as in a large vocabulary.
const VOCABULARY: u64 = 128_000;

/// The count as the engine itself would count the request, with ids and, if they are wanted, words.
pub(super) fn tokenize(body: &[u8], rules: &Rules) -> Result<Value, Refusal> {
    let body = Body::parse(body)?;
    check_model(&body, rules)?;
    let count = match body.get("messages") {
        Some(messages) => prompt::of_chat(messages, rules.block_size)?.count,
        None => prompt::of_completion(body.get("prompt"), rules.block_size)?.count,
    };
    let text = body.get("prompt").and_then(Value::as_str).unwrap_or_default();
    let wants_strings = body.get("return_token_strs").and_then(Value::as_bool).unwrap_or(false);
    let strings = wants_strings.then(|| token_strings(text));
    // What is no text has tokens without words: any number stands for one.
    let mut ids: Vec<u64> = text.split_whitespace().map(|word| hash_word(word) % VOCABULARY).collect();
    ids.extend(ids.len() as u64..u64::from(count));
    Ok(json!({"count": count, "max_model_len": rules.max_model_len, "tokens": ids, "token_strs": strings}))
}

/// The words of a text as a byte-pair tokenizer spells them: a space before a word belongs to it.
fn token_strings(text: &str) -> Vec<String> {
    let spaced = |(i, word): (usize, &str)| {
        if i == 0 && !text.starts_with(char::is_whitespace) { word.to_owned() } else { format!("\u{120}{word}") }
    };
    text.split_whitespace().enumerate().map(spaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules { served_name: "tiny".to_owned(), max_model_len: 64, block_size: 4, prefix_caching: true, seed: 0 }
    }

    fn ask(body: &str) -> Value {
        tokenize(body.as_bytes(), &rules()).unwrap()
    }

    #[test]
    fn texts_ids_and_messages_are_counted_as_their_requests_would_be() {
        let words = ask(r#"{"prompt": " the of and", "return_token_strs": true}"#);
        assert_eq!((&words["count"], &words["max_model_len"]), (&json!(3), &json!(64)));
        assert_eq!(words["token_strs"], json!(["\u{120}the", "\u{120}of", "\u{120}and"]));
        assert_eq!(
            ask(r#"{"prompt": "the of", "return_token_strs": true}"#)["token_strs"],
            json!(["the", "\u{120}of"])
        );
        assert_eq!(ask(r#"{"prompt": [7, 8]}"#)["count"], 2);
        let chat = ask(r#"{"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b c"}]}"#);
        assert_eq!((&chat["count"], chat["tokens"].as_array().unwrap().len()), (&json!(11), 11));
        assert_eq!(chat["token_strs"], Value::Null);
        assert!(tokenize(b"nonsense", &rules()).is_err());
        assert_eq!(tokenize(br#"{"model": "other", "prompt": "a"}"#, &rules()).unwrap_err().status, 404);
    }
}
