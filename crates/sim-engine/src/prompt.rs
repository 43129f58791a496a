//! Prompts: from JSON to tokens and to the hashes of their blocks. A word is a token here.

use autotune_numerics::seeds::{self, FNV_OFFSET, fnv};
use serde_json::Value;

use super::refusal::Refusal;
use autotune_twin::PromptShape;

/// A string or an array of token ids, as a completion takes them.
pub(super) fn of_completion(prompt: Option<&Value>, block_size: u32) -> Result<Tokens, Refusal> {
    let missing = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)";
    let prompt = prompt.filter(|prompt| **prompt != "").ok_or_else(|| Refusal::of("prompt", missing))?;
    let mut tokens = Tokens::new(block_size);
    let ids = |ids: &Vec<Value>| ids.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
    match prompt {
        Value::String(text) => tokens.words(text),
        Value::Array(items) if items.iter().any(|item| item.is_string() || item.is_array()) => {
            return Err(Refusal::of("prompt", "the simulated engine takes one prompt. (parameter=prompt)"));
        }
        prompt => {
            let no_prompt = || Refusal::invalid("string_type", "body.prompt", "Input should be a valid string", prompt);
            let ids = prompt.as_array().and_then(ids).ok_or_else(no_prompt)?;
            ids.into_iter().for_each(|id| tokens.push(mix(id)));
        }
    }
    if tokens.count == 0 { Err(Refusal::bad("The decoder prompt cannot be empty")) } else { Ok(tokens) }
}

/// The words of each message, and four tokens around it for the template.
pub(super) fn of_chat(messages: &Value, block_size: u32) -> Result<Tokens, Refusal> {
    let no_list = || Refusal::invalid("list_type", "body.messages", "Input should be a valid list", messages);
    let list = messages.as_array().ok_or_else(no_list)?;
    if list.is_empty() {
        let message = "Cannot apply chat template to an empty conversation. Provide at least one message.";
        return Err(Refusal::bad(message));
    }
    let mut tokens = Tokens::new(block_size);
    for message in list {
        let role = message.get("role").and_then(Value::as_str).unwrap_or("user");
        for part in 0..4 {
            tokens.push(hash_word(role) ^ part);
        }
        match message.get("content") {
            Some(Value::String(text)) => tokens.words(text),
            Some(Value::Array(parts)) => {
                parts.iter().filter_map(|p| p.get("text")?.as_str()).for_each(|text| tokens.words(text));
            }
            _ => {}
        }
    }
    Ok(tokens)
}

/// Counts tokens and chains their hashes block by block.
pub(super) struct Tokens {
    block_size: u32,
    pub(super) count: u32,
    chain: u64,
    blocks: Vec<u64>,
}

impl Tokens {
    fn new(block_size: u32) -> Self {
        Self { block_size, count: 0, chain: 0, blocks: Vec::new() }
    }

    fn push(&mut self, hash: u64) {
        self.chain = mix(self.chain ^ hash);
        self.count += 1;
        if self.count.is_multiple_of(self.block_size) {
            self.blocks.push(self.chain);
        }
    }

    fn words(&mut self, text: &str) {
        text.split_whitespace().for_each(|word| self.push(hash_word(word)));
    }

    /// A number that equal prompts share.
    pub(super) fn hash(&self) -> u64 {
        self.chain
    }

    /// What the scheduler needs to know.
    pub(super) fn shape(self, prefix_caching: bool) -> PromptShape {
        PromptShape { tokens: self.count, blocks: if prefix_caching { self.blocks } else { Vec::new() } }
    }
}

pub(super) fn hash_word(word: &str) -> u64 {
    fnv(FNV_OFFSET, word.as_bytes())
}

/// Neighbouring inputs get unrelated outputs.
pub(super) fn mix(input: u64) -> u64 {
    seeds::mix(input, &[0])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prompts_come_as_text_and_as_ids() {
        let count = |prompt: Value| of_completion(Some(&prompt), 4).ok().map(|tokens| tokens.count);
        assert_eq!(count(json!("a b  c\nd e")), Some(5));
        assert_eq!(count(json!([1, 2, 3])), Some(3));
        for wrong in
            [json!(null), json!(7), json!(""), json!([]), json!(["a", "b"]), json!([1, "a"]), json!([[1]]), json!([-1])]
        {
            assert_eq!(count(wrong.clone()), None, "{wrong}");
        }
    }

    #[test]
    fn prompts_share_the_blocks_of_their_common_prefix() {
        let blocks = |ids: Value| of_completion(Some(&ids), 4).unwrap().shape(true).blocks;
        let (one, other) = (blocks(json!([1, 2, 3, 4, 5, 6, 7, 8])), blocks(json!([1, 2, 3, 4, 5, 6, 7, 9])));
        assert_eq!((one.len(), one[0]), (2, other[0]));
        assert_ne!(one[1], other[1]);
    }
}
