//! Speculative decoding: how many tokens a draft proposes in a step, how many of them are right, and their totals.
//!
//! For simulated engines and their true limits alone; a fitted twin does not speculate.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Totals since the start, as `/metrics` shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drafted {
    /// Drafts that were verified, one for each sequence and step.
    pub drafts: u64,
    /// Tokens of these drafts.
    pub tokens: u64,
    /// How many of them were accepted.
    pub accepted: u64,
    /// Accepted tokens by their position in a draft.
    pub accepted_at: Vec<u64>,
}

/// A draft of so many tokens for every decoding sequence in every step, each right with the same chance once those before it are.
#[derive(Clone, Debug)]
pub struct Speculation {
    tokens: u32,
    acceptance: f64,
    draw: ChaCha8Rng,
    totals: Drafted,
}

impl Speculation {
    /// Drafts of `tokens` tokens, of which each is accepted with the chance `acceptance`, 0 to 1.
    pub fn new(tokens: u32, acceptance: f64, seed: u64) -> Self {
        let totals = Drafted { accepted_at: vec![0; tokens as usize], ..Drafted::default() };
        Self { tokens, acceptance, draw: ChaCha8Rng::seed_from_u64(seed), totals }
    }

    /// Tokens of a draft, at most.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Verifies a draft of that many tokens: how many of them are accepted.
    pub fn verify(&mut self, tokens: u32) -> u32 {
        let mut accepted = 0;
        while accepted < tokens && self.draw.random::<f64>() < self.acceptance {
            if let Some(at) = self.totals.accepted_at.get_mut(accepted as usize) {
                *at += 1;
            }
            accepted += 1;
        }
        self.totals.drafts += u64::from(tokens > 0);
        self.totals.tokens += u64::from(tokens);
        self.totals.accepted += u64::from(accepted);
        accepted
    }

    pub fn drafted(&self) -> &Drafted {
        &self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_accepted_with_its_chance_once_those_before_it_are() {
        let mut speculation = Speculation::new(3, 0.6, 7);
        let accepted: u32 = (0..20_000).map(|_| speculation.verify(3)).sum();
        let totals = speculation.drafted();
        assert_eq!((totals.drafts, totals.tokens, totals.accepted), (20_000, 60_000, u64::from(accepted)));
        for (position, chance) in [0.6, 0.36, 0.216].iter().enumerate() {
            let rate = totals.accepted_at[position] as f64 / 20_000.0;
            assert!((rate - chance).abs() < 0.015, "position {position}: {rate}");
        }
    }

    #[test]
    fn nothing_is_drafted_where_nothing_may_follow_and_extremes_are_exact() {
        let mut never = Speculation::new(4, 0.0, 1);
        assert_eq!((never.verify(4), never.verify(0)), (0, 0));
        assert_eq!(never.drafted(), &Drafted { drafts: 1, tokens: 4, accepted: 0, accepted_at: vec![0; 4] });
        assert_eq!(Speculation::new(4, 1.0, 1).verify(2), 2);
    }
}
