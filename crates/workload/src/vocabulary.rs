//! The words that chat prompts are made of, and how many tokens the engine makes of them.
//!
//! Pure: the caller asks the engine to tokenize [`Vocabulary::candidates`] and [`Vocabulary::trials`].

use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;

use super::planned::Message;

/// Short words that byte-pair tokenizers keep whole with their leading space.
const WORDS: &str = "the of and to in is that for it as was with be by on not he his but at are this have from or had an they \
which one you were all her she there would their we him been has when who will no more if out so up said what its about than \
into them can only other time new some could these two may first then do any like my now over such our man me even most made \
after also did many off before must well back through years where much your way down should because long each just state those \
people too little good world still see own work men day get here between both life being under three never know same last \
another while us might great old year come since against go came right used take himself few house use place during high \
without again home around small however found school part once general upon every left number course war until always away \
something fact water less public put think almost hand enough far took head yet better set told nothing night end why find \
going look asked later point knew next city give group toward young days let room side social given present several order \
second possible rather face per among form important often things early white case large big need four within felt best";

/// The least number of whole words: prompts of fewer words hardly differ.
const FEWEST_WORDS: usize = 32;
/// Words of each message of a trial.
const TRIAL_WORDS: usize = 16;
/// English text has about four characters a token, in all tokenizers in use.
const TOKENS_PER_CHAR: f64 = 0.25;

/// The words that chat prompts are made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vocabulary {
    #[serde(serialize_with = "write_words", deserialize_with = "read_words")]
    words: Arc<[String]>,
    template: Option<Template>,
    tokens_per_char: f64,
}

/// Tokens that the chat template puts around messages, by their roles; `None` where the engine refuses such messages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Template {
    /// Around a user's message alone.
    alone: u32,
    /// Around a system message and a user's.
    led: Option<u32>,
    /// Around an answer and the user's message after it.
    exchange: Option<u32>,
}

fn write_words<S: Serializer>(words: &Arc<[String]>, to: S) -> Result<S::Ok, S::Error> {
    words.as_ref().serialize(to)
}

fn read_words<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[String]>, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    if words.is_empty() { Err(D::Error::custom("a vocabulary has words")) } else { Ok(words.into()) }
}

impl Default for Vocabulary {
    /// Common English words of about one token each, and no template.
    fn default() -> Self {
        let words = WORDS.split(' ').map(str::to_owned).collect();
        Self { words, template: None, tokens_per_char: TOKENS_PER_CHAR }
    }
}

impl Vocabulary {
    /// The text that tells, once tokenized without special tokens, which words are tokens of their own.
    pub fn candidates() -> String {
        WORDS.split(' ').flat_map(|word| [" ", word]).collect()
    }

    /// The words of [`Self::candidates`] that are one token with their leading space, as the answer's `token_strs` show;
    /// `None` where they are too few or cannot be recognised.
    pub fn whole_words(answer: &Json) -> Option<Vec<String>> {
        let mut tokens = answer.get("token_strs")?.as_array()?.iter().map(Json::as_str);
        let mut whole = Vec::new();
        for word in WORDS.split(' ') {
            let (mut text, mut parts) = (String::new(), 0);
            while text.trim_start() != word {
                let token = tokens.next()??;
                // Tokenizers write a space as a letter that no text has.
                text.push_str(&token.replace(['Ġ', '▁'], " "));
                parts += 1;
                // A token across two words belongs to neither.
                if !word.starts_with(text.trim_start()) {
                    return None;
                }
            }
            if parts == 1
                && text.starts_with(' ')
                && text.len() == word.len() + 1
                && !whole.iter().any(|other| other == word)
            {
                whole.push(word.to_owned());
            }
        }
        (whole.len() >= FEWEST_WORDS).then_some(whole)
    }

    /// Messages whose token counts, in this order, tell what the chat template adds.
    pub fn trials(whole: &[String]) -> [Vec<Message>; 3] {
        let say = |role| Message { role, content: whole[..TRIAL_WORDS.min(whole.len())].join(" ") };
        [vec![say("user")], vec![say("system"), say("user")], vec![say("user"), say("assistant"), say("user")]]
    }

    /// The vocabulary of an engine: whole words, and the `count` of each of [`Self::trials`] where it was answered. `None`
    /// where not even the first was, or where a message has fewer tokens than words.
    pub fn measured(whole: Vec<String>, counts: [Option<u32>; 3]) -> Option<Self> {
        let words = TRIAL_WORDS.min(whole.len()) as u32;
        let alone = counts[0]?.checked_sub(words)?;
        let led = counts[1].and_then(|count| count.checked_sub(2 * words));
        let exchange = counts[2].and_then(|count| count.checked_sub(3 * words + alone));
        let template = Some(Template { alone, led, exchange });
        Some(Self { words: whole.into(), template, tokens_per_char: TOKENS_PER_CHAR })
    }

    /// Sets the ratio of tokens to characters that the engine gave for a sample of texts. Zero counts change nothing.
    #[must_use]
    pub fn with_ratio(mut self, tokens: u64, characters: u64) -> Self {
        if tokens > 0 && characters > 0 {
            self.tokens_per_char = tokens as f64 / characters as f64;
        }
        self
    }

    /// Tokens of a text, as the ratio of tokens to characters has it.
    pub fn estimate(&self, characters: u64) -> u32 {
        // Beyond u32 no engine follows.
        (characters as f64 * self.tokens_per_char).round().clamp(1.0, f64::from(u32::MAX)) as u32
    }

    pub(super) fn words(&self) -> &[String] {
        &self.words
    }

    /// The word that every message begins with. The first word has no space before it and may be another token than it is
    /// elsewhere. It is always the same one, so that the template's share includes what it costs.
    pub(super) fn lead(&self) -> Option<&str> {
        self.template.and_then(|_| self.words.first()).map(String::as_str)
    }

    /// Tokens around a user's message alone.
    pub(super) fn alone(&self) -> u32 {
        self.template.map_or(0, |template| template.alone)
    }

    /// Tokens around a system message and a user's.
    pub(super) fn led(&self) -> u32 {
        self.template.map_or(0, |template| template.led.unwrap_or(template.alone))
    }

    /// Tokens around an answer and the user's message after it.
    pub(super) fn exchange(&self) -> u32 {
        self.template.and_then(|template| template.exchange).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn answer(tokens: &[String]) -> Json {
        json!({"count": tokens.len(), "tokens": [], "token_strs": tokens})
    }

    fn whole(mark: &str) -> Vec<String> {
        WORDS.split(' ').map(|word| format!("{mark}{word}")).collect()
    }

    #[test]
    fn every_spelling_of_a_space_is_understood() {
        for mark in ["Ġ", "▁", " "] {
            let kept = Vocabulary::whole_words(&answer(&whole(mark))).unwrap();
            assert_eq!(kept[..3], ["the", "of", "and"]);
            let mut distinct: Vec<&str> = WORDS.split(' ').collect();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(kept.len(), distinct.len(), "a word that is listed twice is kept once");
        }
        let mut stray = whole("▁");
        stray.insert(0, "▁".to_owned());
        assert_eq!(
            Vocabulary::whole_words(&answer(&stray)).unwrap()[0],
            "of",
            "a stray space makes two tokens of one word"
        );
    }

    #[test]
    fn words_of_several_tokens_are_left_out_and_too_few_are_none() {
        let mut split = whole("Ġ");
        split.splice(1..2, ["Ġo".to_owned(), "f".to_owned()]);
        assert_eq!(Vocabulary::whole_words(&answer(&split)).unwrap()[..2], ["the", "and"]);
        let letters: Vec<String> = Vocabulary::candidates().chars().map(String::from).collect();
        assert_eq!(Vocabulary::whole_words(&answer(&letters)), None);
        assert_eq!(Vocabulary::whole_words(&answer(&["Ġthe of".to_owned()])), None);
        assert_eq!(Vocabulary::whole_words(&json!({"error": "no"})), None);
    }

    #[test]
    fn the_templates_share_comes_from_the_trials() {
        let words: Vec<String> = WORDS.split(' ').take(40).map(str::to_owned).collect();
        let trials = Vocabulary::trials(&words);
        let roles: Vec<Vec<&str>> = trials.iter().map(|t| t.iter().map(|m| m.role).collect()).collect();
        assert_eq!(roles, [vec!["user"], vec!["system", "user"], vec!["user", "assistant", "user"]]);
        // A template that puts 3 tokens before everything and 5 around each message.
        let exact = Vocabulary::measured(words.clone(), [Some(16 + 8), Some(32 + 13), Some(48 + 18)]).unwrap();
        assert_eq!((exact.alone(), exact.led(), exact.exchange()), (8, 13, 10));
        assert_eq!(exact.lead(), Some("the"));
        let refused = Vocabulary::measured(words.clone(), [Some(24), None, None]).unwrap();
        assert_eq!((refused.alone(), refused.led(), refused.exchange()), (8, 8, 0));
        assert_eq!(Vocabulary::measured(words.clone(), [None, Some(45), None]), None);
        assert_eq!(Vocabulary::measured(words, [Some(9), None, None]), None, "fewer tokens than words");
    }

    #[test]
    fn texts_are_estimated_by_a_ratio_that_can_be_measured() {
        assert_eq!(Vocabulary::default().estimate(400), 100);
        assert_eq!(Vocabulary::default().estimate(0), 1);
        assert_eq!(Vocabulary::default().with_ratio(50, 100).estimate(400), 200);
        assert_eq!(Vocabulary::default().with_ratio(0, 100).estimate(400), 100);
    }

    #[test]
    fn a_vocabulary_is_the_same_behind_a_wire() {
        let words: Vec<String> = WORDS.split(' ').take(40).map(str::to_owned).collect();
        let measured = Vocabulary::measured(words, [Some(24), Some(45), None]).unwrap().with_ratio(1, 3);
        for vocabulary in [Vocabulary::default(), measured] {
            let text = serde_json::to_string(&vocabulary).unwrap();
            assert_eq!(serde_json::from_str::<Vocabulary>(&text).unwrap(), vocabulary);
        }
        assert!(serde_json::from_str::<Vocabulary>(r#"{"words":[],"template":null,"tokens_per_char":0.25}"#).is_err());
    }

    proptest! {
        #[test]
        fn any_tokens_are_understood_or_refused(tokens in proptest::collection::vec("[ĠtheoĠf▁ ]{0,4}", 0..40)) {
            let _ = Vocabulary::whole_words(&answer(&tokens));
        }
    }
}
