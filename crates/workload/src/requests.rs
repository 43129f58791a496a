//! Requests from a file, drawn without replacement. Every probe goes through the file in an order of its own, or begins at another place of one order.
//!
//! A dialogue goes on with its next question after the engine's own answer, so that every turn resends what the engine knows.

use std::collections::HashSet;
use std::sync::Arc;

use autotune_numerics::seeds::fnv;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::content::{Ask, Content};
use super::dialogue::{Dialogue, Dialogues, answered_tokens};
use super::draw::{Purpose, length, mean_length, stream};
use super::pace::Pace;
use super::parsed::{AnswerLength, Exchange, Request};
use super::planned::{Message, Prompt};
use super::vocabulary::Vocabulary;
use autotune_plan::settings::{Endpoint, Lengths, WorkloadPlan};
use autotune_records::units::Seconds;

pub(super) struct Requests {
    requests: Arc<[Request]>,
    output_tokens: Option<Lengths>,
    endpoint: Endpoint,
    /// Without it an answer may be shorter than was asked for.
    ignore_eos: bool,
    think_time: Seconds,
    vocabulary: Vocabulary,
    content_seed: u64,
    shared_seed: u64,
    first_place: Option<u32>,
    lengths: ChaCha8Rng,
    /// What is still to come of this pass, last first.
    order: Vec<u32>,
    passes: u32,
    /// Prompts that were sent, by their digest.
    sent: HashSet<u64>,
    /// The places of dialogues with later turns, the longest first.
    long: Vec<u32>,
    dialogues: Dialogues<Place>,
}

/// A place in the file.
type Place = u32;

impl Requests {
    pub(super) fn new(
        requests: Arc<[Request]>,
        output_tokens: Option<Lengths>,
        plan: &WorkloadPlan,
        vocabulary: &Vocabulary,
        pace: &Pace,
    ) -> Self {
        let mut long: Vec<u32> =
            (0..requests.len() as u32).filter(|i| !requests[*i as usize].later.is_empty()).collect();
        long.sort_by_key(|i| std::cmp::Reverse(requests[*i as usize].later.len()));
        Self {
            requests,
            output_tokens,
            endpoint: plan.endpoint,
            ignore_eos: plan.ignore_eos,
            think_time: Seconds(0.0),
            vocabulary: vocabulary.clone(),
            content_seed: pace.content_seed,
            shared_seed: pace.shared_seed,
            first_place: pace.first_place,
            lengths: stream(pace.arrival_seed, Purpose::Lengths, 0),
            order: Vec::new(),
            passes: 0,
            sent: HashSet::new(),
            long,
            dialogues: Dialogues::new(),
        }
    }

    /// Sets the pause after which dialogues go on.
    pub(super) fn thinking(self, think_time: Seconds) -> Self {
        Self { think_time, ..self }
    }

    fn shuffle(&mut self) {
        self.order = (0..u32::try_from(self.requests.len()).unwrap_or(u32::MAX)).collect();
        let (seed, pass) = self.first_place.map_or((self.content_seed, self.passes), |_| (self.shared_seed, 0));
        self.order.shuffle(&mut stream(seed, Purpose::Order, pass));
        // It is taken from its end.
        let taken = self.first_place.map_or(0, |first| first as usize % self.order.len().max(1));
        self.order.rotate_right(taken);
        self.passes += 1;
    }

    fn length(&mut self, answer: Option<AnswerLength>) -> u32 {
        match (answer, &self.output_tokens) {
            (Some(answer), _) => tokens_of(answer, &self.vocabulary),
            (None, Some(lengths)) => length(lengths, &mut self.lengths),
            (None, None) => 1,
        }
    }

    /// Dialogues with more than so many turns.
    fn longer_than(&self, turns: u32) -> &[u32] {
        let longer = |place: &u32| self.requests[*place as usize].later.len() + 1 > turns as usize;
        &self.long[..self.long.partition_point(longer)]
    }

    /// Takes the next dialogue of this pass, or else of another, that has more than so many turns.
    fn next_of_more_turns(&mut self, turns: u32) -> Option<Place> {
        let requests = self.requests.clone();
        let has_more = |place: &u32| requests[*place as usize].later.len() >= turns as usize;
        if !self.order.iter().any(has_more) {
            self.shuffle();
        }
        let found = self.order.iter().rposition(has_more)?;
        Some(self.order.remove(found))
    }

    /// The first turn of a dialogue.
    fn start(&mut self, place: Place) -> Dialogue<Place> {
        let Request { prompt, answer, .. } = &self.requests[place as usize];
        let (prompt, answer, number) = (prompt.clone(), *answer, self.dialogues.number());
        let tokens = prompt_tokens(&prompt, self.endpoint, &self.vocabulary);
        let output_tokens = self.length(answer);
        Dialogue { number, turn: 0, prompt, tokens, seen: 0, output_tokens, origin: place }
    }

    /// The next turn, behind what was answered.
    fn advance(&mut self, dialogue: &mut Dialogue<Place>, answered: Option<&str>) {
        let Some(exchange) = self.requests[dialogue.origin as usize].later.get(dialogue.turn as usize) else { return };
        let Exchange { answered: recorded, question, answer } = exchange.clone();
        let estimate = |text: &str| self.vocabulary.estimate(text.chars().count() as u64);
        let text = answered.unwrap_or(&recorded);
        // A replay has no text; and where answers end when they want to, the text tells how long this one is.
        let whole = self.ignore_eos || text.is_empty();
        let made = answered_tokens(text, dialogue.output_tokens, whole, &self.vocabulary);
        let held = dialogue.tokens.saturating_add(made);
        dialogue.seen = if answered.is_some() { held } else { 0 };
        dialogue.tokens = held.saturating_add(estimate(&question));
        match &mut dialogue.prompt {
            Prompt::Messages(messages) => {
                dialogue.tokens = dialogue.tokens.saturating_add(self.vocabulary.exchange());
                messages.push(Message { role: "assistant", content: text.to_owned() });
                messages.push(Message { role: "user", content: question });
            }
            Prompt::Text(prompt) => prompt.extend([text, "\n\n", &question]),
            Prompt::Tokens(_) => {}
        }
        dialogue.turn += 1;
        dialogue.output_tokens = self.length(answer);
    }

    /// Asks a turn; a request of one turn is no dialogue.
    fn ask(&mut self, dialogue: Dialogue<Place>) -> Ask {
        let later = self.requests[dialogue.origin as usize].later.len() as u32;
        let ask = self.dialogues.ask(dialogue, later + 1);
        Ask { turn: ask.turn.filter(|_| later > 0), ..ask }
    }
}

impl Content for Requests {
    fn open(&mut self) -> Option<Ask> {
        if self.order.is_empty() {
            self.shuffle();
        }
        let place = self.order.pop()?;
        let mut dialogue = self.start(place);
        if !self.sent.insert(digest(&dialogue.prompt)) {
            dialogue.seen = dialogue.tokens;
        }
        Some(self.ask(dialogue))
    }

    fn turns(&self) -> u32 {
        self.long.first().map_or(1, |place| self.requests[*place as usize].later.len() as u32 + 1)
    }

    fn share_with(&self, turn: u32) -> f64 {
        if turn == 0 { 1.0 } else { self.longer_than(turn).len() as f64 / self.requests.len().max(1) as f64 }
    }

    fn think_time(&self) -> Seconds {
        self.think_time
    }

    fn begun(&mut self, turn: u32, wanted: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        if self.longer_than(turn).is_empty() {
            return None;
        }
        let place = if self.first_place.is_some() {
            self.next_of_more_turns(turn)?
        } else {
            let mut rng = stream(self.content_seed, Purpose::Population, self.dialogues.begun);
            let longer = self.longer_than(turn);
            longer[rng.random_range(0..longer.len())]
        };
        // Its history was never sent.
        let (mut dialogue, mut awaited) = (self.start(place), 0);
        while dialogue.turn < turn {
            awaited = dialogue.output_tokens;
            self.advance(&mut dialogue, None);
        }
        wanted(awaited).then(|| self.dialogues.keep(dialogue))
    }

    fn answered(&mut self, conversation: u32, text: Option<&str>) -> bool {
        // A failed turn ends its dialogue, as it does for a person.
        let (Some(mut dialogue), Some(text)) = (self.dialogues.take(conversation), text) else { return false };
        self.advance(&mut dialogue, Some(text));
        self.dialogues.keep(dialogue);
        true
    }

    fn next_turn(&mut self, conversation: u32) -> Option<Ask> {
        let dialogue = self.dialogues.take(conversation)?;
        Some(self.ask(dialogue))
    }
}

fn tokens_of(answer: AnswerLength, vocabulary: &Vocabulary) -> u32 {
    match answer {
        AnswerLength::Tokens(tokens) => tokens,
        AnswerLength::Characters(characters) => vocabulary.estimate(characters),
    }
}

/// The mean length of an answer.
pub(super) fn mean_output(requests: &[Request], drawn: Option<&Lengths>, vocabulary: &Vocabulary) -> f64 {
    let drawn = drawn.map_or(1.0, mean_length);
    let tokens = |answer: Option<AnswerLength>| answer.map_or(drawn, |answer| f64::from(tokens_of(answer, vocabulary)));
    let answers = || requests.iter().flat_map(|r| std::iter::once(r.answer).chain(r.later.iter().map(|e| e.answer)));
    answers().map(tokens).sum::<f64>() / answers().count().max(1) as f64
}

/// Tokens of a prompt: counted for ids, estimated for texts.
fn prompt_tokens(prompt: &Prompt, endpoint: Endpoint, vocabulary: &Vocabulary) -> u32 {
    let tokens = |text: &str| vocabulary.estimate(text.chars().count() as u64);
    match prompt {
        Prompt::Tokens(ids) => u32::try_from(ids.len()).unwrap_or(u32::MAX),
        Prompt::Text(text) => tokens(text),
        Prompt::Messages(messages) => {
            let template = if endpoint == Endpoint::Chat {
                let more = messages.len().saturating_sub(1) as u32;
                vocabulary.alone().saturating_add(vocabulary.exchange() / 2 * more)
            } else {
                0
            };
            messages.iter().fold(template, |sum, message| sum.saturating_add(tokens(&message.content)))
        }
    }
}

fn digest(prompt: &Prompt) -> u64 {
    match prompt {
        Prompt::Tokens(ids) => ids.iter().fold(1, |digest, id| fnv(digest, &id.to_le_bytes())),
        Prompt::Text(text) => fnv(2, text.as_bytes()),
        // No text holds the byte that ends a role or a content here.
        Prompt::Messages(messages) => messages.iter().fold(3, |digest, message| {
            fnv(fnv(fnv(fnv(digest, message.role.as_bytes()), &[0xff]), message.content.as_bytes()), &[0xff])
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{drive, jsonl, open, sharegpt};
    use super::super::{Corpus, Material, Planned, Turn, source};
    use super::*;
    use autotune_plan::settings::WorkloadPlan;

    fn sent(plan: &WorkloadPlan, text: &str, content_seed: u64) -> Vec<Planned> {
        let corpus = Corpus::parse(plan, text.as_bytes()).unwrap();
        let material = Material { corpus, ..Material::default() };
        let mut source = source(plan, &material, Pace { content_seed, ..open(20.0, 5.0) });
        std::iter::from_fn(|| source.take()).collect()
    }

    fn text(planned: &Planned) -> &str {
        match &planned.prompt {
            Prompt::Text(text) => text,
            Prompt::Messages(messages) => &messages[0].content,
            Prompt::Tokens(_) => panic!("texts"),
        }
    }

    #[test]
    fn every_probe_draws_without_replacement_in_its_own_order() {
        let lines: String =
            (0..40).map(|i| format!("{{\"prompt\": \"prompt {i}\", \"output_tokens\": 3}}\n")).collect();
        let (a, b, fresh) = (sent(&jsonl(), &lines, 1), sent(&jsonl(), &lines, 1), sent(&jsonl(), &lines, 2));
        assert_eq!(a, b);
        assert!(a.len() > 80, "more than two passes");
        assert_ne!(
            text(&a[0]).to_owned() + text(&a[1]) + text(&a[2]),
            text(&fresh[0]).to_owned() + text(&fresh[1]) + text(&fresh[2])
        );
        for pass in [0..40, 40..80] {
            let mut prompts: Vec<&str> = a[pass].iter().map(text).collect();
            prompts.sort_unstable();
            prompts.dedup();
            assert_eq!(prompts.len(), 40);
        }
        assert_ne!(a[..40].iter().map(text).collect::<Vec<_>>(), a[40..80].iter().map(text).collect::<Vec<_>>());
    }

    #[test]
    fn other_places_of_one_order_begin_other_requests() {
        let lines: String =
            (0..40).map(|i| format!("{{\"prompt\": \"prompt {i}\", \"output_tokens\": 3}}\n")).collect();
        let corpus = Corpus::parse(&jsonl(), lines.as_bytes()).unwrap();
        let material = Material { corpus, ..Material::default() };
        let from = |place, content_seed| {
            let pace = Pace { content_seed, first_place: Some(place), ..open(20.0, 5.0) };
            let mut source = source(&jsonl(), &material, pace);
            std::iter::from_fn(|| source.take()).map(|planned| text(&planned).to_owned()).collect::<Vec<_>>()
        };
        let all = from(0, 1);
        assert_eq!(all, from(0, 2), "one order for every content seed");
        assert_eq!(all[..40], all[40..80], "and for every pass");
        assert_eq!((&all[13..50], &all[..10]), (&from(13, 1)[..37], &from(40, 1)[..10]));
    }

    #[test]
    fn dialogues_under_way_are_the_next_ones_of_the_order() {
        let mut plan = sharegpt();
        if let autotune_plan::settings::WorkloadKind::Sharegpt(kind) = &mut plan.kind {
            kind.turns = 9;
        }
        let Corpus { items: super::super::corpus::Items::Requests(requests), .. } =
            Corpus::parse(&plan, dialogues().as_bytes()).unwrap()
        else {
            panic!("requests")
        };
        let pace = Pace { first_place: Some(1), ..open(1.0, 1.0) };
        let mut content = Requests::new(requests, None, &plan, &Vocabulary::default(), &pace);
        let mut begun = |turn| {
            let number = content.begun(turn, &mut |_| true).unwrap();
            let dialogue = content.dialogues.take(number).unwrap();
            (dialogue.turn, dialogue.origin)
        };
        let [(first, a), (second, b)] = [begun(2), begun(1)];
        assert_eq!((first, second), (2, 1));
        assert_ne!(a, b, "the two long ones, each once");
        assert_eq!(begun(2).0, 2, "then another pass");
    }

    #[test]
    fn a_prompt_sent_again_is_shared_whole() {
        let lines = "{\"prompt\": \"one of them\", \"output_tokens\": 3}\n".repeat(2)
            + "{\"prompt\": \"another text\", \"output_tokens\": 3}\n";
        let sent = sent(&jsonl(), &lines, 1);
        let shared: Vec<bool> = sent.iter().map(|p| p.shared_tokens == p.prompt_tokens).collect();
        assert_eq!(shared[..3].iter().filter(|shared| **shared).count(), 1, "a line stands twice");
        assert!(shared[3..].iter().all(|shared| *shared), "the file was wrapped");
        assert!(sent.iter().all(|p| p.shared_tokens == 0 || p.shared_tokens == p.prompt_tokens));
    }

    /// Two dialogues of three turns, two of one.
    fn dialogues() -> String {
        let turn = |from, value: &str| format!("{{\"from\": \"{from}\", \"value\": \"{value}\"}}");
        let of = |name: &str, turns: u32| {
            let said = (0..turns).flat_map(|i| [turn("human", &format!("{name} asks {i}")), turn("gpt", "recorded")]);
            format!("{{\"conversations\": [{}]}}", said.collect::<Vec<_>>().join(","))
        };
        format!("[{}, {}, {}, {}]", of("a", 3), of("b", 1), of("c", 3), of("d", 1))
    }

    #[test]
    fn whole_dialogues_resend_the_engines_answers_turn_by_turn() {
        let mut plan = sharegpt();
        let autotune_plan::settings::WorkloadKind::Sharegpt(kind) = &mut plan.kind else { panic!("ShareGPT") };
        (kind.turns, kind.think_time) = (9, std::time::Duration::from_secs(1));
        let material =
            Material { corpus: Corpus::parse(&plan, dialogues().as_bytes()).unwrap(), ..Material::default() };
        let sent = drive(source(&plan, &material, open(4.0, 200.0)), Some("the engine's own"));
        let of = |conversation, turn| sent.iter().find(|p| p.turn == Some(Turn { conversation, turn }));
        let mut thirds = 0;
        for last in sent.iter().filter(|p| p.turn.is_some_and(|t| t.turn == 2)) {
            let conversation = last.turn.unwrap().conversation;
            let (Some(first), Some(second)) = (of(conversation, 0), of(conversation, 1)) else { continue };
            let Prompt::Messages(messages) = &last.prompt else { panic!("a chat") };
            let roles: Vec<&str> = messages.iter().map(|m| m.role).collect();
            assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
            assert_eq!((&*messages[1].content, &messages[4].content[1..]), ("the engine's own", " asks 2"));
            assert_eq!(second.shared_tokens, first.prompt_tokens + first.output_tokens);
            assert!(last.shared_tokens > second.shared_tokens && last.shared_tokens < last.prompt_tokens);
            // Two seconds of answer, one of thought.
            assert!((last.due.0 - second.due.0 - 3.0).abs() < 1e-6);
            thirds += 1;
        }
        // Two turns in the mean, a quarter of the requests are third ones, and the rate is that of requests.
        assert!((150..=250).contains(&thirds), "{thirds}");
        let rate = |to: f64| sent.iter().filter(|p| p.due.0 < to).count() as f64 / to;
        assert!((rate(200.0) - 4.0).abs() < 0.5 && (rate(20.0) - 4.0).abs() < 1.5, "{} {}", rate(200.0), rate(20.0));
        let one = sent.iter().filter(|p| p.turn.is_none()).count();
        assert!((150..=250).contains(&one), "{one} dialogues of one turn");
    }

    #[test]
    fn lengths_are_estimated_from_characters_or_drawn() {
        let question = "q".repeat(400);
        let dialogue = format!(
            "[{{\"conversations\": [{{\"from\": \"human\", \"value\": \"{question}\"}}, {{\"from\": \"gpt\", \"value\": \"{}\"}}]}}]",
            "a".repeat(80)
        );
        let first = &sent(&sharegpt(), &dialogue, 1)[0];
        assert_eq!((first.prompt_tokens, first.output_tokens), (100, 20));
        let mut plan = sharegpt();
        if let autotune_plan::settings::WorkloadKind::Sharegpt(kind) = &mut plan.kind {
            kind.output_tokens = Some(super::super::tests::fixed(7));
        }
        assert_eq!(sent(&plan, &dialogue, 1)[0].output_tokens, 7);
    }
}
