//! What an engine's tokenizer makes of words, messages and texts, where it offers `POST /tokenize` (vLLM does).

use serde_json::{Value as Json, json};

use super::Endpoints;
use autotune_workload::Vocabulary;

impl Endpoints {
    /// The words of which the engine makes one token each, and what its chat template adds; `None` where it does not tell.
    pub async fn vocabulary(&self, model: &str) -> Option<Vocabulary> {
        let question = json!({
            "model": model,
            "prompt": Vocabulary::candidates(),
            "return_token_strs": true,
            "add_special_tokens": false,
        });
        let whole = Vocabulary::whole_words(&self.ask("/tokenize", &question).await?)?;
        let mut counts = [None; 3];
        for (count, messages) in counts.iter_mut().zip(Vocabulary::trials(&whole)) {
            *count = self.tokens(&json!({"model": model, "messages": messages})).await;
        }
        Vocabulary::measured(whole, counts)
    }

    /// How many tokens the engine makes of texts, and how many characters they have; texts that it refuses count for neither.
    pub async fn tokens_and_characters(&self, model: &str, texts: &[&str]) -> (u64, u64) {
        let (mut tokens, mut characters) = (0, 0);
        for text in texts {
            let question = json!({"model": model, "prompt": text, "add_special_tokens": false});
            let Some(count) = self.tokens(&question).await else { continue };
            tokens += u64::from(count);
            characters += text.chars().count() as u64;
        }
        (tokens, characters)
    }

    async fn tokens(&self, question: &Json) -> Option<u32> {
        u32::try_from(self.ask("/tokenize", question).await?.get("count")?.as_u64()?).ok()
    }
}
