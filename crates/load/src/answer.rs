//! What the bytes of a streamed answer mean.
//!
//! Tokens are counted by the engine's usage, since a chunk may hold several of them or none. A stream without `[DONE]`, usage or token
//! is no answer.

use std::borrow::Cow;
use std::time::Instant;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::connection::Failed;
use super::sse::{Framer, LONGEST_EVENT};
use super::threads::note_gap;
use autotune_plan::printable::printable;
use autotune_records::ErrorClass;
use autotune_records::units::MOST_TOKENS;

/// Characters of a server's words that are kept.
pub(super) const LONGEST_WHY: usize = 300;

/// A stream ends after so many events with tokens for each token asked for, and so many more. vLLM sends at most one per token.
const MOST_EVENTS: (u64, u64) = (2, 1024);
/// No vocabulary has a longer token, in bytes.
const LONGEST_TOKEN: usize = 256;

/// What a refusal says: the message of an OpenAI-compatible server's error, or else all of it.
pub(super) fn words_of(refusal: &str) -> String {
    let said = serde_json::from_str::<serde_json::Value>(refusal).unwrap_or_default();
    let places = [&said["error"]["message"], &said["message"], &said["detail"], &said["error"]];
    places.into_iter().find_map(|place| place.as_str()).unwrap_or(refusal).trim().to_owned()
}

/// One answer, with its times as readings of the clock.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) first: Option<Instant>,
    pub(super) last: Option<Instant>,
    pub(super) gaps: Vec<f32>,
    pub(super) text: String,
    pub(super) tokens_in: Option<u32>,
    pub(super) tokens_cached: Option<u32>,
    pub(super) tokens_out: Option<u32>,
    pub(super) error: Option<ErrorClass>,
    pub(super) why: Option<String>,
    pub(super) done: bool,
    pub(super) role_seen: bool,
    /// Whether the text is kept, for the next turn of a conversation.
    pub(super) keep_text: bool,
    /// How many tokens were asked for at most.
    pub(super) asked: u32,
    /// Events that brought tokens.
    pub(super) events: u64,
}

// What we read of a chunk; texts are borrowed from it, since most are looked at and thrown away.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(default, borrow)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usages>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    role: Option<IgnoredAny>,
    #[serde(borrow)]
    content: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Usages {
    prompt_tokens: u32,
    #[serde(default)]
    completion_tokens: u32,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u32>,
}

impl Answer {
    /// Records that there is no answer, and why.
    pub(super) fn fail(&mut self, failed: Failed) {
        (self.error, self.why) = (Some(failed.class), Some(printable(&failed.why).into_owned()));
    }

    /// Understands a part of one read, and says whether it brought a token. Tokens that arrive in one read are one arrival.
    pub(super) fn read(&mut self, framer: &mut Framer, bytes: &[u8], at: Instant) -> bool {
        let mut tokens = 0;
        framer.push(bytes, |event| tokens += u32::from(self.event(event)));
        let token = tokens > 0;
        self.events += u64::from(tokens);
        if tokens > 1 || (token && self.last == Some(at)) {
            // Either the server sends them together or we came too late to tell them apart: the thread must rest less.
            note_gap(0.0);
        }
        if token && self.last != Some(at) {
            if let Some(last) = self.last {
                let gap = at.saturating_duration_since(last).as_secs_f32();
                note_gap(gap);
                self.gaps.push(gap);
            }
            self.first.get_or_insert(at);
            self.last = Some(at);
        }
        token
    }

    /// Whether more has come than an answer of the tokens that were asked for can hold: such a stream may never end.
    pub(super) fn is_too_long(&self) -> bool {
        let (each, more) = MOST_EVENTS;
        self.events > each * u64::from(self.asked) + more
            || self.text.len() > LONGEST_EVENT.max(LONGEST_TOKEN * self.asked as usize)
    }

    /// Whether the event brings a token.
    fn event(&mut self, event: &[u8]) -> bool {
        if event == b"[DONE]" {
            self.done = true;
            return false;
        }
        let Ok(chunk) = serde_json::from_slice::<Chunk>(event) else {
            self.error.get_or_insert(ErrorClass::Malformed);
            return false;
        };
        if let Some(error) = chunk.error {
            self.error = Some(ErrorClass::InStream);
            let said = error["message"].as_str().map_or(error.to_string(), str::to_owned);
            self.why.get_or_insert_with(|| printable(&said).into_owned());
        }
        if let Some(usage) = chunk.usage {
            self.tokens_in = Some(usage.prompt_tokens);
            self.tokens_out = Some(usage.completion_tokens);
            self.tokens_cached = usage.prompt_tokens_details.and_then(|d| d.cached_tokens).or(self.tokens_cached);
        }
        let mut token = false;
        for choice in chunk.choices {
            token |= match (choice.delta, choice.text) {
                (Some(delta), _) => {
                    let content = delta.content.as_ref().map_or("", |text| &text.0);
                    // A chat opens with a role and no content: the answer is announced, no token is there yet.
                    let announcement =
                        delta.role.is_some() && content.is_empty() && choice.finish_reason.is_none() && !self.role_seen;
                    self.role_seen |= delta.role.is_some();
                    if self.keep_text {
                        self.text.push_str(content);
                    }
                    !announcement
                }
                (None, Some(text)) => {
                    if self.keep_text {
                        self.text.push_str(&text.0);
                    }
                    true
                }
                (None, None) => false,
            };
        }
        token
    }

    /// Classifies the answer, once it has ended.
    pub(super) fn conclude(&mut self) {
        let (tokens_in, tokens_out) = (self.tokens_in.unwrap_or(0), self.tokens_out.unwrap_or(0));
        if self.error.is_none() && (tokens_out > self.asked || tokens_in > MOST_TOKENS) {
            let why =
                format!("its usage tells {tokens_in} tokens in and {tokens_out} out, of {} asked for", self.asked);
            (self.error, self.why) = (Some(ErrorClass::Malformed), Some(why));
        }
        if self.error.is_none() && (!self.done || self.tokens_out.unwrap_or(0) == 0 || self.first.is_none()) {
            self.error = Some(ErrorClass::Truncated);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use autotune_clock as clock;

    /// Feeds each slice as one read, ten milliseconds apart.
    fn answer(reads: &[&str]) -> Answer {
        let mut answer = Answer { keep_text: true, asked: 1_000, ..Answer::default() };
        let (mut framer, start) = (Framer::default(), clock::now());
        for (i, read) in reads.iter().enumerate() {
            answer.read(&mut framer, read.as_bytes(), start + Duration::from_millis(10 * i as u64));
        }
        answer.conclude();
        answer
    }

    const ROLE: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n";
    const EMPTY: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":null}]}\n\n";
    const WORD: &str =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" mouse\"},\"finish_reason\":\"length\"}]}\n\n";
    const USAGE: &str =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":6,\"total_tokens\":8,\"completion_tokens\":2}}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    #[test]
    fn a_role_chunk_is_no_token_and_an_empty_token_is_one() {
        let answer = answer(&[ROLE, EMPTY, WORD, USAGE, DONE]);
        assert_eq!(answer.error, None);
        assert_eq!(answer.gaps.len(), 1, "two tokens, ten milliseconds apart");
        assert!((answer.gaps[0] - 0.01).abs() < 1e-4);
        assert_eq!((answer.tokens_in, answer.tokens_out, answer.text.as_str()), (Some(6), Some(2), " mouse"));
    }

    #[test]
    fn tokens_in_one_read_are_one_arrival() {
        let joined = [EMPTY, WORD, USAGE, DONE].concat();
        let answer = answer(&[ROLE, &joined]);
        assert_eq!(answer.error, None);
        assert!(answer.gaps.is_empty());
        assert_eq!(answer.first, answer.last);
    }

    #[test]
    fn an_error_inside_a_200_stream_is_an_error_even_with_done() {
        let error = "data: {\"error\": {\"message\": \"EngineCore encountered an issue.\", \"code\": 500}}\n\n";
        assert_eq!(answer(&[EMPTY, error, DONE]).error, Some(ErrorClass::InStream));
    }

    #[test]
    fn a_stream_without_done_usage_or_token_is_truncated() {
        assert_eq!(answer(&[EMPTY, WORD, USAGE]).error, Some(ErrorClass::Truncated));
        assert_eq!(answer(&[EMPTY, WORD, DONE]).error, Some(ErrorClass::Truncated));
        assert_eq!(answer(&[ROLE, USAGE, DONE]).error, Some(ErrorClass::Truncated));
        assert_eq!(answer(&["data: nonsense\n\n", DONE]).error, Some(ErrorClass::Malformed));
    }

    #[test]
    fn a_usage_of_more_than_was_asked_for_is_no_usage() {
        for tokens in [1_001, u32::MAX] {
            let usage = USAGE.replace("\"completion_tokens\":2", &format!("\"completion_tokens\":{tokens}"));
            let answer = answer(&[ROLE, EMPTY, WORD, &usage, DONE]);
            assert_eq!(answer.error, Some(ErrorClass::Malformed));
            assert!(answer.why.unwrap().contains(&tokens.to_string()));
        }
        let usage = USAGE.replace("\"prompt_tokens\":6", "\"prompt_tokens\":4294967295");
        assert_eq!(answer(&[ROLE, EMPTY, WORD, &usage, DONE]).error, Some(ErrorClass::Malformed));
    }

    #[test]
    fn what_a_server_says_moves_no_terminal() {
        let error = "data: {\"error\": {\"message\": \"\\u001b[2Jgone\\u0007\"}}\n\n";
        assert_eq!(answer(&[EMPTY, error, DONE]).why.unwrap(), "\u{fffd}[2Jgone\u{fffd}");
    }

    #[test]
    fn recorded_streams_of_vllm_are_whole_answers() {
        let raw = include_str!("../../../tests/data/vllm/sse_completions_spec_multitoken.txt");
        let body: String = raw.lines().filter(|l| l.starts_with("data:")).map(|l| format!("{l}\n\n")).collect();
        let answer = answer(&[&body]);
        assert_eq!(answer.error, None);
        let chunks = body.matches("\"text\"").count() as u32;
        assert!(answer.tokens_out.unwrap() > chunks, "several tokens share a chunk, usage counts them");
    }

    #[test]
    fn fuzz_answers() {
        use super::super::http1::Reader;
        let events = [ROLE, EMPTY, WORD, USAGE, DONE].concat();
        let chunked: String =
            [ROLE, WORD, USAGE, DONE].iter().map(|part| format!("{:x}\r\n{part}\r\n", part.len())).collect();
        let ok = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
        let valid = [
            format!("{ok}connection: close\r\n\r\n{events}"),
            format!("{ok}content-length: {}\r\n\r\n{events}", events.len()),
            format!("{ok}transfer-encoding: chunked\r\n\r\n{chunked}0\r\nTrailer: t\r\n\r\n"),
            "HTTP/1.1 429 Too Many\r\ncontent-length: 3\r\n\r\nno!".to_owned(),
            format!("{ok}\r\n{}", include_str!("../../../tests/data/vllm/sse_completions_spec_multitoken.txt")),
            format!(
                "{ok}\r\n{WORD}data: {{\"error\": {{\"message\": \"EngineCore encountered an issue.\", \"code\": 500}}}}\n\n"
            ),
        ];
        autotune_fuzz::fuzz(25, valid, |input, random| {
            let (mut http, mut framer) = (Reader::default(), Framer::default());
            let mut answer = Answer { keep_text: true, asked: 1_000, ..Answer::default() };
            for piece in random.pieces(input) {
                if http
                    .push(piece, |body| {
                        answer.read(&mut framer, body, clock::now());
                    })
                    .is_err()
                    || http.is_over()
                {
                    break;
                }
            }
            answer.conclude();
        });
    }
}
