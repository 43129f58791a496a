//! The flags that the model understands, by vLLM's names: what it does with a point of the space and with fixed arguments.

use serde::{Deserialize, Serialize};

/// The values an engine takes for the flags that are not given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineDefaults {
    /// Sequences that run at the same time, at most.
    pub max_num_seqs: u32,
    /// The token budget of a step.
    pub max_num_batched_tokens: u32,
    /// The fraction of the accelerator's memory that the engine plans with.
    pub gpu_memory_utilization: f64,
    /// Prompt and answer of a request together, in tokens, at most.
    pub max_model_len: u32,
}

/// The profile's defaults with those flags that were given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineFlags {
    /// Sequences that run at the same time, at most.
    pub max_num_seqs: u32,
    /// The token budget of a step.
    pub max_num_batched_tokens: u32,
    /// The fraction of the accelerator's memory that the engine plans with.
    pub gpu_memory_utilization: f64,
    /// Prompt and answer of a request together, in tokens, at most.
    pub max_model_len: u32,
    /// Bytes of the KV cache, whatever the fraction says.
    pub kv_cache_memory_bytes: Option<u64>,
    /// Whether the KV blocks of common prefixes are reused.
    pub prefix_caching: bool,
    /// Tokens of a draft of speculative decoding; 0 where there is none.
    pub draft_tokens: u32,
    /// The chance of a drafted token to be accepted once those before it are.
    pub acceptance: f64,
}

/// The chance of a drafted token to be accepted, where nothing says it.
pub const ACCEPTANCE: f64 = 0.6;

/// Why a flag cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    #[error("the simulation does not know `{name}`; it knows {}", EngineFlags::KNOWN.join(", "))]
    Unknown { name: String },
    /// The value is none that the flag takes.
    #[error("`{name}` cannot be `{value}`")]
    Value {
        /// The flag without its dashes.
        name: String,
        value: String,
    },
}

impl From<EngineDefaults> for EngineFlags {
    fn from(defaults: EngineDefaults) -> Self {
        Self {
            max_num_seqs: defaults.max_num_seqs,
            max_num_batched_tokens: defaults.max_num_batched_tokens,
            gpu_memory_utilization: defaults.gpu_memory_utilization,
            max_model_len: defaults.max_model_len,
            kv_cache_memory_bytes: None,
            prefix_caching: true,
            draft_tokens: 0,
            acceptance: ACCEPTANCE,
        }
    }
}

impl EngineFlags {
    /// The flags whose effect is simulated exactly, and that a fit to probes takes into account. Without their dashes.
    pub const FITTED: [&'static str; 6] = [
        "max-num-seqs",
        "max-num-batched-tokens",
        "gpu-memory-utilization",
        "max-model-len",
        "kv-cache-memory-bytes",
        "enable-prefix-caching",
    ];

    /// The flags that change what is simulated: those, and speculative decoding with an assumed acceptance.
    pub const KNOWN: [&'static str; 7] = {
        let [seqs, tokens, share, length, cache, prefixes] = Self::FITTED;
        [seqs, tokens, share, length, cache, prefixes, "speculative-config"]
    };

    /// Sets the flag of that name, written without dashes, to a value as the command line spells it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), FlagError> {
        let wrong = || FlagError::Value { name: name.to_owned(), value: value.to_owned() };
        let count = || value.parse().ok().filter(|count: &u32| *count > 0).ok_or_else(wrong);
        match name {
            "max-num-seqs" => self.max_num_seqs = count()?,
            "max-num-batched-tokens" => self.max_num_batched_tokens = count()?,
            "max-model-len" => self.max_model_len = count()?,
            "gpu-memory-utilization" => {
                let share = value.parse().ok().filter(|share: &f64| 0.0 < *share && *share <= 1.0);
                self.gpu_memory_utilization = share.ok_or_else(wrong)?;
            }
            "kv-cache-memory-bytes" => self.kv_cache_memory_bytes = Some(bytes(value).ok_or_else(wrong)?),
            "enable-prefix-caching" => self.prefix_caching = value.parse().map_err(|_| wrong())?,
            "speculative-config" => self.draft_tokens = draft_tokens(value).ok_or_else(wrong)?,
            "sim-acceptance" => {
                let chance = value.parse().ok().filter(|chance: &f64| (0.0..=1.0).contains(chance));
                self.acceptance = chance.ok_or_else(wrong)?;
            }
            _ => return Err(FlagError::Unknown { name: name.to_owned() }),
        }
        Ok(())
    }

    /// Sets what the words of a command line say, and returns the flags that the model does not know.
    pub fn set_all(&mut self, words: &[String]) -> Result<Vec<String>, FlagError> {
        let mut unknown = Vec::new();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--") else {
                unknown.extend(word.starts_with('-').then(|| word.clone()));
                continue;
            };
            let (written, glued) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let name = written.replace('_', "-");
            let (name, switched) = match name.strip_prefix("no-") {
                Some(name) => (name.to_owned(), "false"),
                None => (name, "true"),
            };
            let value = glued.or_else(|| words.next_if(|next| !next.starts_with('-')).map(String::as_str));
            match self.set(&name, value.unwrap_or(switched)) {
                Err(FlagError::Unknown { .. }) => unknown.push(format!("--{written}")),
                other => other?,
            }
        }
        Ok(unknown)
    }
}

/// Tokens of a draft by vLLM's JSON; `None` if it is no speculation by n-grams, which need no model.
fn draft_tokens(text: &str) -> Option<u32> {
    if ["", "None", "off"].contains(&text) {
        return Some(0);
    }
    let config: serde_json::Value = serde_json::from_str(text).ok()?;
    let tokens = u32::try_from(config["num_speculative_tokens"].as_u64()?).ok();
    tokens.filter(|tokens| *tokens > 0 && config["method"] == "ngram")
}

/// A whole number as vLLM reads it: 1024-based with a capital K, M, G or T, 1000-based and maybe with a fraction with a small one.
pub fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = match text.char_indices().last()? {
        (at, letter) if letter.is_ascii_alphabetic() => {
            let base: u64 = if letter.is_ascii_uppercase() { 1024 } else { 1000 };
            (&text[..at], base.pow(1 + "kmgt".find(letter.to_ascii_lowercase())? as u32))
        }
        _ => (text, 1),
    };
    if number.contains('.') && unit % 10 == 0 {
        return number.parse().ok().filter(|n: &f64| (0.0..1e9).contains(n)).map(|n| (n * unit as f64) as u64);
    }
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn arguments_are_read_as_vllm_reads_them_and_the_others_are_told() {
        let mut flags = EngineFlags::from(Profile::quickstart().defaults);
        let unknown = flags.set_all(&words(
            "--max-model-len 512 --max_num_seqs=8 --no-enable-prefix-caching -tp 2 --kv-cache-memory-bytes 256M --enforce-eager",
        ));
        assert_eq!(unknown.unwrap(), ["-tp", "--enforce-eager"]);
        assert_eq!((flags.max_model_len, flags.max_num_seqs, flags.prefix_caching), (512, 8, false));
        assert_eq!(flags.kv_cache_memory_bytes, Some(256 << 20));
        assert_eq!(
            flags.set_all(&words("--max-num-seqs many")).unwrap_err().to_string(),
            "`max-num-seqs` cannot be `many`"
        );
        flags.set("speculative-config", r#"{"method":"ngram","num_speculative_tokens":4}"#).unwrap();
        assert_eq!((flags.draft_tokens, flags.acceptance), (4, ACCEPTANCE));
        flags.set("speculative-config", "off").unwrap();
        assert_eq!(flags.draft_tokens, 0);
        assert!(flags.set("speculative-config", r#"{"method":"eagle","num_speculative_tokens":4}"#).is_err());
        let unknown = flags.set("block-size", "32").unwrap_err().to_string();
        assert!(unknown.starts_with("the simulation does not know `block-size`; it knows "), "{unknown}");
        assert!(unknown.contains("max-num-seqs"), "{unknown}");
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(
            ["7", "2K", "2k", "1G", "25.6k", "x", "", "1.5G", "1.5"].map(bytes),
            [Some(7), Some(2048), Some(2000), Some(1 << 30), Some(25_600), None, None, None, None]
        );
    }
}
