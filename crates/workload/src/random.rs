//! Independent requests with drawn lengths, optionally behind shared prefixes.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::content::{Ask, Content};
use super::draw::{Purpose, length, stream};
use super::pace::Pace;
use super::planned::Prompt;
use super::text::{Pen, Piece, less};
use autotune_plan::settings::RandomPlan;

pub(super) struct Random {
    plan: RandomPlan,
    pen: Pen,
    content_seed: u64,
    shared_seed: u64,
    lengths: ChaCha8Rng,
    next: u32,
}

impl Random {
    pub(super) fn new(plan: RandomPlan, pen: Pen, pace: &Pace) -> Self {
        let lengths = stream(pace.arrival_seed, Purpose::Lengths, 0);
        Self { plan, pen, content_seed: pace.content_seed, shared_seed: pace.shared_seed, lengths, next: 0 }
    }
}

impl Content for Random {
    fn open(&mut self) -> Option<Ask> {
        let input = length(&self.plan.input_tokens, &mut self.lengths);
        let output_tokens = length(&self.plan.output_tokens, &mut self.lengths);
        let which = self.lengths.random_range(0..self.plan.shared_prefixes.max(1));
        let mut rng = stream(self.content_seed, Purpose::Content, self.next);
        self.next += 1;
        let shared_tokens = self.plan.shared_prefix_tokens;
        let (prompt, prompt_tokens) = if shared_tokens == 0 {
            let own = less(input, self.pen.alone());
            (self.pen.draw(own, &mut rng).into_prompt("user"), own + self.pen.alone())
        } else {
            let prefix = prefix_words(&self.plan, &self.pen);
            let own = less(shared_tokens.saturating_add(input), prefix + self.pen.led());
            let mut prompt = self::prefix(&self.plan, &self.pen, self.shared_seed, which).into_prompt("system");
            prompt.push("user", self.pen.draw(own, &mut rng));
            (prompt, prefix + own + self.pen.led())
        };
        Some(Ask { prompt, prompt_tokens, shared_tokens, output_tokens, turn: None })
    }
}

/// Half of what the template adds to two messages lies within the prefix.
fn prefix_words(plan: &RandomPlan, pen: &Pen) -> u32 {
    less(plan.shared_prefix_tokens, pen.led() / 2)
}

fn prefix(plan: &RandomPlan, pen: &Pen, seed: u64, which: u32) -> Piece {
    pen.draw(prefix_words(plan, pen), &mut stream(seed, Purpose::Shared, which))
}

pub(super) fn shared(plan: &RandomPlan, pen: &Pen, seed: u64) -> Vec<Prompt> {
    if plan.shared_prefix_tokens == 0 {
        return Vec::new();
    }
    (0..plan.shared_prefixes.max(1)).map(|which| prefix(plan, pen, seed, which).into_prompt("system")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{exact, open, take_all};
    use super::*;
    use crate::{Message, Planned, Vocabulary};
    use autotune_plan::settings::{Endpoint, LengthShape, Lengths};

    fn plan() -> RandomPlan {
        RandomPlan {
            input_tokens: Lengths { shape: LengthShape::Uniform, min: 10, max: 20 },
            output_tokens: Lengths { shape: LengthShape::Uniform, min: 5, max: 9 },
            shared_prefix_tokens: 30,
            shared_prefixes: 2,
        }
    }

    fn all(content_seed: u64) -> Vec<Planned> {
        let pace = Pace { content_seed, ..open(20.0, 10.0) };
        let pen = Pen::new(Endpoint::Completions, &Vocabulary::default());
        take_all(Box::new(Random::new(plan(), pen, &pace)), &pace)
    }

    #[test]
    fn the_same_seeds_give_the_same_requests_and_fresh_content_keeps_arrivals() {
        let (a, b, fresh) = (all(2), all(2), all(9));
        assert_eq!(a, b);
        assert!(a.len() > 120 && a.iter().all(|p| p.due.0 < 10.0));
        assert!(a.iter().zip(&fresh).all(|(a, f)| a.due == f.due && a.output_tokens == f.output_tokens));
        assert!(a.iter().zip(&fresh).all(|(a, f)| a.prompt != f.prompt), "prompts are fresh in every probe");
    }

    #[test]
    fn prompts_begin_with_a_shared_prefix_and_nothing_else_is_shared() {
        let sent = all(2);
        let shared = shared(&plan(), &Pen::new(Endpoint::Completions, &Vocabulary::default()), 7);
        let ids = |p: &Prompt| if let Prompt::Tokens(ids) = p { ids.clone() } else { panic!("completions take ids") };
        for planned in &sent {
            let own = ids(&planned.prompt);
            assert!(shared.iter().any(|s| own.starts_with(&ids(s))));
            assert!((40..=50).contains(&own.len()));
            assert_eq!((planned.prompt_tokens as usize, planned.shared_tokens), (own.len(), 30));
        }
        let mut tails: Vec<Vec<u32>> = sent.iter().map(|p| ids(&p.prompt)[30..].to_vec()).collect();
        tails.sort();
        tails.dedup();
        assert_eq!(tails.len(), sent.len());
    }

    #[test]
    fn with_an_exact_vocabulary_the_template_is_part_of_the_length() {
        let words = |messages: &[Message]| messages.iter().map(|m| m.content.split(' ').count() as u32).sum::<u32>();
        let pace = open(20.0, 10.0);
        for (prefix, template) in [(0, 8), (30, 13)] {
            let plan = RandomPlan { shared_prefix_tokens: prefix, ..plan() };
            let drawn =
                take_all(Box::new(Random::new(plan.clone(), Pen::new(Endpoint::Completions, &exact()), &pace)), &pace);
            let sent = take_all(Box::new(Random::new(plan, Pen::new(Endpoint::Chat, &exact()), &pace)), &pace);
            assert!(!sent.is_empty());
            for (planned, drawn) in sent.iter().zip(&drawn) {
                let Prompt::Messages(messages) = &planned.prompt else { panic!("chat takes messages") };
                assert_eq!(words(messages) + template, drawn.prompt_tokens);
                assert_eq!(planned.prompt_tokens, drawn.prompt_tokens);
                assert!(messages.iter().all(|m| m.content.starts_with("the ") || m.content == "the"));
            }
        }
    }
}
