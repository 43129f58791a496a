//! Prompts as sketches: names and lengths of their pieces instead of their words, for whoever asks only what prompts share.
//!
//! Two sketched prompts begin alike for as many tokens as the prompts themselves do, but for the rare words that agree by chance.

use autotune_numerics::seeds::mix;

use super::planned::Prompt;

/// Tokens that a sketch has for the template around a message.
pub const MESSAGE_TEMPLATE: u32 = 4;
/// Numbers of a piece in a sketch: two of its name, and its length.
const PIECE: usize = 3;

/// A piece of so many tokens, by its name.
pub(super) fn piece(name: u64, tokens: u32) -> [u32; PIECE] {
    [(name >> 32) as u32, name as u32, tokens]
}

/// The tokens of a sketched prompt. With a block size, also the hash of each full block, chained with those before it.
pub fn sketched_blocks(sketch: &Prompt, block_size: Option<u32>) -> (u32, Vec<u64>) {
    let Prompt::Tokens(numbers) = sketch else { return (0, Vec::new()) };
    let pieces = || numbers.chunks_exact(PIECE).map(|p| (u64::from(p[0]) << 32 | u64::from(p[1]), p[2]));
    let tokens: u32 = pieces().map(|(_, tokens)| tokens).sum();
    let Some(block_size) = block_size else { return (tokens, Vec::new()) };
    let mut blocks = Vec::with_capacity((tokens / block_size) as usize);
    let (mut hash, mut filled) = (0, 0);
    for (name, tokens) in pieces() {
        let mut at = 0;
        while at < tokens {
            let taken = (tokens - at).min(block_size - filled);
            hash = mix(hash, &[name ^ u64::from(at) << 32 ^ u64::from(taken)]);
            (at, filled) = (at + taken, filled + taken);
            if filled == block_size {
                blocks.push(hash);
                filled = 0;
            }
        }
    }
    (tokens, blocks)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{conversations, drive, material, open, random};
    use super::super::{Planned, sketched, source};
    use super::*;
    use autotune_plan::settings::{Endpoint, WorkloadPlan};

    /// The hashes of full blocks of ids, chained.
    fn blocks_of_ids(planned: &Planned, size: u32) -> (u32, Vec<u64>) {
        let Prompt::Tokens(ids) = &planned.prompt else { panic!("ids") };
        let chained = ids.chunks_exact(size as usize).scan(0, |hash, block| {
            *hash = block.iter().fold(*hash, |hash, id| mix(hash, &[u64::from(*id)]));
            Some(*hash)
        });
        (ids.len() as u32, chained.collect())
    }

    /// For every block the first request and place with the same hash.
    fn sharing(all: &[(u32, Vec<u64>)]) -> Vec<(u32, Vec<(usize, usize)>)> {
        let mut first = std::collections::HashMap::new();
        let of = |(i, (tokens, blocks)): (usize, &(u32, Vec<u64>))| {
            let places = blocks.iter().enumerate().map(|(b, hash)| *first.entry(*hash).or_insert((i, b)));
            (*tokens, places.collect())
        };
        all.iter().enumerate().map(of).collect()
    }

    #[test]
    fn sketches_share_what_the_prompts_share() {
        for plan in [random(), conversations()] {
            let whole = drive(source(&plan, &material(), open(4.0, 60.0)), Some(""));
            let sketches = drive(sketched(&plan, &material(), open(4.0, 60.0)).unwrap(), Some(""));
            for (whole, sketch) in whole.iter().zip(&sketches) {
                assert_eq!(Planned { prompt: sketch.prompt.clone(), ..whole.clone() }, *sketch);
            }
            let ids: Vec<_> = whole.iter().map(|p| blocks_of_ids(p, 8)).collect();
            let blocks: Vec<_> = sketches.iter().map(|p| sketched_blocks(&p.prompt, Some(8))).collect();
            assert!(ids.len() > 150 && sharing(&ids) == sharing(&blocks));
        }
    }

    #[test]
    fn a_message_has_its_template_and_an_answer_was_seen_by_its_engine() {
        let plan = WorkloadPlan { endpoint: Endpoint::Chat, ..conversations() };
        let whole = drive(source(&plan, &material(), open(4.0, 60.0)), Some("word"));
        let sketches = drive(sketched(&plan, &material(), open(4.0, 60.0)).unwrap(), Some("word"));
        for (whole, sketch) in whole.iter().zip(&sketches) {
            assert_eq!(
                (whole.due, whole.prompt_tokens, whole.shared_tokens),
                (sketch.due, sketch.prompt_tokens, sketch.shared_tokens)
            );
            let Prompt::Messages(messages) = &whole.prompt else { panic!("messages") };
            let template = messages.len() as u32 * MESSAGE_TEMPLATE;
            assert_eq!(sketched_blocks(&sketch.prompt, None).0, whole.prompt_tokens + template);
        }
    }
}
