//! Independent requests with drawn lengths, optionally behind shared prefixes.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::arrivals::Poisson;
use super::draw::{Purpose, length, stream};
use super::text::Piece;
use super::{Pace, Planned, Prompt, Source};
use crate::settings::{Endpoint, RandomPlan};
use crate::units::Seconds;

/// The source.
pub(super) struct Random {
    plan: RandomPlan,
    endpoint: Endpoint,
    pace: Pace,
    arrivals: Poisson,
    next: Option<Seconds>,
    lengths: ChaCha8Rng,
    next_id: u32,
}

impl Random {
    pub(super) fn new(plan: RandomPlan, endpoint: Endpoint, pace: Pace) -> Self {
        let mut arrivals = Poisson::new(pace.rate, pace.arrival_seed);
        let next = arrivals.next();
        let lengths = stream(pace.arrival_seed, Purpose::Lengths, 0);
        Self { plan, endpoint, pace, arrivals, next, lengths, next_id: 0 }
    }
}

impl Source for Random {
    fn next_due(&self) -> Option<Seconds> {
        self.next.filter(|t| t.0 < self.pace.horizon.0)
    }

    fn take(&mut self) -> Option<Planned> {
        let due = self.next_due()?;
        self.next = self.arrivals.next();
        let id = self.next_id;
        self.next_id += 1;
        let input = length(&self.plan.input_tokens, &mut self.lengths);
        let output_tokens = length(&self.plan.output_tokens, &mut self.lengths);
        let which = self.lengths.random_range(0..self.plan.shared_prefixes.max(1));
        let own = Piece::draw(self.endpoint, input, &mut stream(self.pace.content_seed, Purpose::Content, id));
        let prompt = if self.plan.shared_prefix_tokens == 0 {
            own.into_prompt("user")
        } else {
            let mut prompt = prefix(&self.plan, self.endpoint, self.pace.shared_seed, which);
            prompt.push("user", own);
            prompt
        };
        Some(Planned { id, due, prompt, output_tokens, turn: None })
    }

    fn answered(&mut self, _request: u32, _at: Seconds, _text: Option<&str>) {}
}

fn prefix(plan: &RandomPlan, endpoint: Endpoint, seed: u64, which: u32) -> Prompt {
    Piece::draw(endpoint, plan.shared_prefix_tokens, &mut stream(seed, Purpose::Shared, which)).into_prompt("system")
}

pub(super) fn shared(plan: &RandomPlan, endpoint: Endpoint, seed: u64) -> Vec<Prompt> {
    if plan.shared_prefix_tokens == 0 {
        return Vec::new();
    }
    (0..plan.shared_prefixes.max(1)).map(|which| prefix(plan, endpoint, seed, which)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{LengthShape, Lengths};
    use crate::units::Rate;

    fn source(rate: f64, content_seed: u64) -> Random {
        let plan = RandomPlan {
            input_tokens: Lengths { shape: LengthShape::Uniform, min: 10, max: 20 },
            output_tokens: Lengths { shape: LengthShape::Uniform, min: 5, max: 9 },
            shared_prefix_tokens: 30,
            shared_prefixes: 2,
        };
        let pace = Pace {
            rate: Rate(rate),
            horizon: Seconds(10.0),
            arrival_seed: 1,
            content_seed,
            shared_seed: 3,
            answer_time: Seconds(0.0),
        };
        Random::new(plan, Endpoint::Completions, pace)
    }

    fn all(mut source: Random) -> Vec<Planned> {
        std::iter::from_fn(|| source.take()).collect()
    }

    #[test]
    fn the_same_seeds_give_the_same_requests_and_fresh_content_keeps_arrivals() {
        let (a, b, fresh) = (all(source(20.0, 2)), all(source(20.0, 2)), all(source(20.0, 9)));
        assert_eq!(a, b);
        assert!(a.len() > 120 && a.iter().all(|p| p.due.0 < 10.0));
        assert!(a.iter().zip(&fresh).all(|(a, f)| a.due == f.due && a.output_tokens == f.output_tokens));
        assert!(a.iter().zip(&fresh).all(|(a, f)| a.prompt != f.prompt), "prompts are fresh in every probe");
    }

    #[test]
    fn prompts_begin_with_a_shared_prefix_and_nothing_else_is_shared() {
        let sent = all(source(20.0, 2));
        let shared = shared(&source(1.0, 0).plan, Endpoint::Completions, 3);
        let ids = |p: &Prompt| match p {
            Prompt::Tokens(ids) => ids.clone(),
            Prompt::Messages(_) => panic!("completions take ids"),
        };
        for planned in &sent {
            let own = ids(&planned.prompt);
            assert!(shared.iter().any(|s| own.starts_with(&ids(s))));
            assert!((40..=50).contains(&own.len()));
        }
        let mut tails: Vec<Vec<u32>> = sent.iter().map(|p| ids(&p.prompt)[30..].to_vec()).collect();
        tails.sort();
        tails.dedup();
        assert_eq!(tails.len(), sent.len());
    }
}
