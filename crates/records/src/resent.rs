//! What becomes of answers that later turns send back to the engine.

/// What later turns resend, as an engine was seen to get it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resent {
    /// Tokens of a resent answer over the tokens that it had when it was made.
    pub growth: f64,
    /// The share, 0 to 1, of the tokens of resent answers that the cache holds.
    pub found: f64,
    /// Whether the engine tells different documents of the workload apart. Then each takes room of its own in the cache.
    pub apart: bool,
}

impl Resent {
    /// Answers that come back as they were, to an engine that still has them.
    pub const WHOLE: Self = Self { growth: 1.0, found: 1.0, apart: true };

    /// Tokens that an answer of so many has when it is sent back.
    pub fn tokens(self, answer: u32) -> u32 {
        (f64::from(answer) * self.growth).round() as u32
    }
}
