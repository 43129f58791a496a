//! A prompt as the scheduler sees it: its number of tokens and its blocks, from its words or from its sketch.

use autotune_numerics::seeds::{FNV_OFFSET, fnv};

use autotune_twin::PromptShape;
use autotune_workload::{self as workload, MESSAGE_TEMPLATE, Prompt};

/// The tokens of a prompt as numbers: ids as they are, words by their hash, and some for the template around each message.
fn tokens(prompt: &Prompt) -> Vec<u64> {
    let words = |text: &str| -> Vec<u64> { text.split_ascii_whitespace().map(hash_word).collect() };
    match prompt {
        Prompt::Tokens(ids) => ids.iter().map(|id| u64::from(*id)).collect(),
        Prompt::Text(text) => words(text),
        Prompt::Messages(messages) => {
            let template = |role: &str| {
                let role = hash_word(role);
                (0..u64::from(MESSAGE_TEMPLATE)).map(move |part| role ^ part)
            };
            messages.iter().flat_map(|m| template(m.role).chain(words(&m.content))).collect()
        }
    }
}

fn hash_word(word: &str) -> u64 {
    fnv(FNV_OFFSET, word.as_bytes())
}

/// The prompt's length and, where prefixes are cached, the chained hashes of its full blocks.
pub fn prompt_shape(prompt: &Prompt, block_size: u32, prefix_caching: bool) -> PromptShape {
    let tokens = tokens(prompt);
    let chained = tokens.chunks_exact(block_size as usize).scan(0, |hash, block| {
        *hash = workload::mix(*hash, block);
        Some(*hash)
    });
    let blocks = if prefix_caching { chained.collect() } else { Vec::new() };
    PromptShape { tokens: (tokens.len() as u32).max(1), blocks }
}

/// The shape of a sketched prompt.
pub(super) fn sketched_shape(sketch: &Prompt, block_size: u32, prefix_caching: bool) -> PromptShape {
    let (tokens, blocks) = workload::sketched_blocks(sketch, prefix_caching.then_some(block_size));
    PromptShape { tokens: tokens.max(1), blocks }
}
