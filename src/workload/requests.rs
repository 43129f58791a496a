//! Requests from a file, drawn without replacement: every probe goes through the file in an order of its own.

use std::collections::HashSet;
use std::sync::Arc;

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::content::{Ask, Content};
use super::corpus::{Answer, Request, fnv};
use super::draw::{Purpose, length, mean_length, stream};
use super::{Pace, Prompt, Vocabulary};
use crate::settings::{Endpoint, Lengths};

pub(super) struct Requests {
    requests: Arc<[Request]>,
    output_tokens: Option<Lengths>,
    endpoint: Endpoint,
    vocabulary: Vocabulary,
    content_seed: u64,
    lengths: ChaCha8Rng,
    /// What is still to come of this pass, last first.
    order: Vec<u32>,
    passes: u32,
    /// Prompts that were sent, by their digest.
    sent: HashSet<u64>,
}

impl Requests {
    pub(super) fn new(
        requests: Arc<[Request]>,
        output_tokens: Option<Lengths>,
        endpoint: Endpoint,
        vocabulary: &Vocabulary,
        pace: &Pace,
    ) -> Self {
        Self {
            requests,
            output_tokens,
            endpoint,
            vocabulary: vocabulary.clone(),
            content_seed: pace.content_seed,
            lengths: stream(pace.arrival_seed, Purpose::Lengths, 0),
            order: Vec::new(),
            passes: 0,
            sent: HashSet::new(),
        }
    }

    fn shuffle(&mut self) {
        self.order = (0..u32::try_from(self.requests.len()).unwrap_or(u32::MAX)).collect();
        self.order.shuffle(&mut stream(self.content_seed, Purpose::Order, self.passes));
        self.passes += 1;
    }
}

impl Content for Requests {
    fn open(&mut self) -> Option<Ask> {
        if self.order.is_empty() {
            self.shuffle();
        }
        let request = self.requests.get(self.order.pop()? as usize)?;
        let output_tokens = match (request.answer, &self.output_tokens) {
            (Some(answer), _) => tokens_of(answer, &self.vocabulary),
            (None, Some(lengths)) => length(lengths, &mut self.lengths),
            (None, None) => 1,
        };
        let prompt_tokens = prompt_tokens(&request.prompt, self.endpoint, &self.vocabulary);
        let shared_tokens = if self.sent.insert(digest(&request.prompt)) { 0 } else { prompt_tokens };
        Some(Ask { prompt: request.prompt.clone(), prompt_tokens, shared_tokens, output_tokens, turn: None })
    }
}

fn tokens_of(answer: Answer, vocabulary: &Vocabulary) -> u32 {
    match answer {
        Answer::Tokens(tokens) => tokens,
        Answer::Characters(characters) => vocabulary.estimate(characters),
    }
}

/// The mean length of an answer.
pub(super) fn mean_output(requests: &[Request], drawn: Option<&Lengths>, vocabulary: &Vocabulary) -> f64 {
    let drawn = drawn.map_or(1.0, mean_length);
    let tokens = |r: &Request| r.answer.map_or(drawn, |answer| f64::from(tokens_of(answer, vocabulary)));
    requests.iter().map(tokens).sum::<f64>() / requests.len().max(1) as f64
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
    use super::super::tests::{jsonl, open, sharegpt};
    use super::super::{Corpus, Material, Planned, source};
    use super::*;
    use crate::settings::WorkloadPlan;

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
    fn a_prompt_sent_again_is_shared_whole() {
        let lines = "{\"prompt\": \"one of them\", \"output_tokens\": 3}\n".repeat(2)
            + "{\"prompt\": \"another text\", \"output_tokens\": 3}\n";
        let sent = sent(&jsonl(), &lines, 1);
        let shared: Vec<bool> = sent.iter().map(|p| p.shared_tokens == p.prompt_tokens).collect();
        assert_eq!(shared[..3].iter().filter(|shared| **shared).count(), 1, "a line stands twice");
        assert!(shared[3..].iter().all(|shared| *shared), "the file was wrapped");
        assert!(sent.iter().all(|p| p.shared_tokens == 0 || p.shared_tokens == p.prompt_tokens));
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
        if let crate::settings::WorkloadKind::Sharegpt(kind) = &mut plan.kind {
            kind.output_tokens = Some(super::super::tests::fixed(7));
        }
        assert_eq!(sent(&plan, &dialogue, 1)[0].output_tokens, 7);
    }
}
