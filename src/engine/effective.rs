//! The configuration that an engine says it runs, which need not be the one it was asked for.
//!
//! Three sources, from weak to strong: its log, the labels of `vllm:cache_config_info`, and `/server_info`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::log_lines;
use super::metrics::Page;
use crate::settings::Secrets;
use crate::space::{Point, Space, Value};

/// What the engine says it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// The values in force by flag, without leading dashes and with words joined by `-`.
    pub values: BTreeMap<String, Value>,
    /// How many tokens the KV cache holds.
    pub kv_cache_tokens: Option<u64>,
    pub version: Option<String>,
}

/// The sections of `/server_info` whose entries are flags, in rising precedence where two use the same name.
const SECTIONS: &[&str] =
    &["load_config", "attention_config", "model_config", "parallel_config", "cache_config", "scheduler_config"];

/// Entries that are called otherwise than their flags: section, entry, flag.
const RENAMED: &[(&str, &str, &str)] = &[
    ("cache_config", "cache_dtype", "kv-cache-dtype"),
    ("scheduler_config", "policy", "scheduling-policy"),
    ("attention_config", "backend", "attention-backend"),
];

/// Entries of the engine's own start line that are flags under the same name, but for underscores.
const STARTED_WITH: &[&str] = &[
    "dtype",
    "load_format",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "quantization",
    "enforce_eager",
    "kv_cache_dtype",
    "seed",
    "enable_prefix_caching",
    "enable_chunked_prefill",
];

impl Effective {
    /// A point with the values in force of those parameters that it leaves to the engine.
    pub fn complete(&self, space: &Space, point: Point) -> Point {
        space.parameters.iter().fold(point, |point, parameter| match self.values.get(&parameter.name) {
            Some(value) if point.get(&parameter.name).is_none() => point.with(&parameter.name, value.clone()),
            _ => point,
        })
    }

    /// Reads the log of a start. What the engine resolved counts for more than what it was given.
    pub fn from_log(log: &str) -> Self {
        let mut given = BTreeMap::new();
        let mut found = Self::default();
        for line in log_lines::lines(log) {
            let text = line.text.as_str();
            if let Some(dict) = after(text, "non-default args: {") {
                given.extend(python_dict(dict).map(|(name, value)| (flag(name), value)));
            } else if let Some(config) = after(text, "Initializing a V1 LLM engine (v") {
                found.version = config.split_once(')').map(|(version, _)| version.to_owned());
                found.values.extend(STARTED_WITH.iter().filter_map(|n| Some((flag(n), started_with(config, n)?))));
            } else if let Some(version) = banner_version(text) {
                found.version.get_or_insert_with(|| version.to_owned());
            } else if let Some(tokens) = after(text, "KV cache size: ") {
                // With several engines in one log the last one speaks for all: they are sized alike.
                found.kv_cache_tokens = leading_count(tokens).or(found.kv_cache_tokens);
            }
            for (words, name) in [
                ("Chunked prefill is enabled with max_num_batched_tokens=", "max-num-batched-tokens"),
                ("Using max model len ", "max-model-len"),
            ] {
                if let Some(count) = after(text, words).and_then(leading_count).and_then(|c| i64::try_from(c).ok()) {
                    found.values.insert(name.to_owned(), Value::Int(count));
                }
            }
        }
        for (name, value) in given {
            found.values.entry(name).or_insert(value);
        }
        found
    }

    /// Reads `vllm:cache_config_info`, which any vLLM shows: the cache's part of the configuration alone.
    pub fn from_metrics(page: &Page) -> Self {
        const INFO: &str = "vllm:cache_config_info";
        // `engine` numbers the engine within the server and is no setting.
        let labels = page.labels(INFO).filter(|(name, _)| is_setting(name) && *name != "engine");
        let values =
            labels.filter_map(|(name, text)| Some((section_flag("cache_config", name), scalar(text)?))).collect();
        let count = |label: &str| page.label(INFO, label)?.parse::<u64>().ok();
        // Releases that do not tell the tokens tell the blocks.
        let blocks = || count("num_gpu_blocks")?.checked_mul(count("block_size")?);
        Self { values, kv_cache_tokens: count("kv_cache_size_tokens").or_else(blocks), version: None }
    }

    /// The same without secrets in its texts.
    #[must_use]
    pub fn without(mut self, secrets: &Secrets) -> Self {
        for value in self.values.values_mut() {
            if let Value::Text(text) = value {
                *text = secrets.redact(text);
            }
        }
        self
    }

    /// Reads `/server_info?config_format=json`, with or without its outer shell.
    pub fn from_server_info(info: &serde_json::Value) -> Self {
        let config = info.get("vllm_config").unwrap_or(info);
        let mut values = BTreeMap::new();
        for section in SECTIONS {
            let entries = config.get(section).and_then(|s| s.as_object()).into_iter().flatten();
            for (name, entry) in entries.filter(|(name, _)| is_setting(name)) {
                if let Some(value) = json_scalar(entry) {
                    values.insert(section_flag(section, name), value);
                }
            }
        }
        let cache = |name: &str| config.get("cache_config")?.get(name)?.as_u64();
        let blocks = || cache("num_gpu_blocks")?.checked_mul(cache("block_size")?);
        let version = info.get("system_env").and_then(|e| e.get("vllm_version")).and_then(|v| v.as_str());
        Self {
            values,
            kv_cache_tokens: cache("kv_cache_size_tokens").or_else(blocks),
            version: version.map(str::to_owned),
        }
    }

    /// Both together; where both say something, the stronger source counts.
    #[must_use]
    pub fn merge(mut self, stronger: Self) -> Self {
        self.values.extend(stronger.values);
        Self {
            values: self.values,
            kv_cache_tokens: stronger.kv_cache_tokens.or(self.kv_cache_tokens),
            version: stronger.version.or(self.version),
        }
    }

    /// The parameters of a point that run with another value: name, requested, effective.
    ///
    /// A parameter of which the engine says nothing is no mismatch, nor is one whose choice was left to it.
    pub fn mismatches(&self, point: &Point) -> Vec<(String, Value, Value)> {
        let differs = |(name, requested): (&String, &Value)| {
            let effective = self.values.get(name)?;
            let plain = plain(requested);
            let left_open = matches!(&plain, Value::Text(word) if word == "auto");
            (!left_open && !plain.same(effective)).then(|| (name.clone(), requested.clone(), effective.clone()))
        };
        point.0.iter().filter_map(differs).collect()
    }
}

/// vLLM's numbers for people: `8k` is 8000 and `8K` is 8192, and so on for m and g.
fn plain(value: &Value) -> Value {
    let Value::Text(text) = value else { return value.clone() };
    let read = || {
        let (at, unit) = text.char_indices().last()?;
        let power = match unit.to_ascii_lowercase() {
            'k' => 1,
            'm' => 2,
            'g' => 3,
            't' => 4,
            _ => return None,
        };
        let base: f64 = if unit.is_ascii_uppercase() { 1024.0 } else { 1000.0 };
        Some(Value::Real(text[..at].parse::<f64>().ok()? * base.powi(power)))
    };
    read().or_else(|| scalar(text)).unwrap_or_else(|| value.clone())
}

fn flag(name: &str) -> String {
    name.replace('_', "-")
}

fn section_flag(section: &str, name: &str) -> String {
    let renamed = RENAMED.iter().find(|(s, entry, _)| *s == section && *entry == name);
    renamed.map_or_else(|| flag(name), |(_, _, flag)| (*flag).to_owned())
}

/// Entries that start with an underscore are the engine's own notes.
fn is_setting(name: &str) -> bool {
    !name.starts_with('_')
}

/// What follows the words in a text.
fn after<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    text.split_once(words).map(|(_, rest)| rest)
}

/// `vLLM API server version 0.24.0`, or the same in the banner, whose lines are drawn with blocks.
fn banner_version(text: &str) -> Option<&str> {
    let version = after(text, "vLLM API server version ")
        .or_else(|| text.contains('\u{2588}').then(|| after(text, "  version ")).flatten())?;
    version.split_whitespace().next()
}

/// The number at the start of a text; commas part its thousands.
fn leading_count(text: &str) -> Option<u64> {
    let digits: String =
        text.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The value of `name=` in `model='m', dtype=torch.bfloat16, seed=0, ...`.
fn started_with(config: &str, name: &str) -> Option<Value> {
    let value = after(config, &format!(", {name}="))?;
    scalar(value.split([',', ' ']).next()?.trim_matches('\''))
}

/// A word of Python's: `True`, `12`, `0.9`, `torch.bfloat16`; `None` says nothing, and lists are not values of flags here.
fn scalar(word: &str) -> Option<Value> {
    Some(match word {
        "None" | "" => return None,
        _ if word.starts_with(['[', '{', '(', '<']) => return None,
        "True" => Value::Bool(true),
        "False" => Value::Bool(false),
        // Rust reads `inf` and `nan` as numbers, and Python prints them for no flag.
        _ if !word.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.') => text(word),
        _ => word.parse().map(Value::Int).or_else(|_| word.parse().map(Value::Real)).unwrap_or_else(|_| text(word)),
    })
}

/// A word, where a type of torch loses its module, as no flag has it.
fn text(word: &str) -> Value {
    Value::Text(word.strip_prefix("torch.").unwrap_or(word).to_owned())
}

fn json_scalar(entry: &serde_json::Value) -> Option<Value> {
    match entry {
        serde_json::Value::Bool(b) => Some(Value::Bool(*b)),
        serde_json::Value::Number(n) => n.as_i64().map(Value::Int).or_else(|| n.as_f64().map(Value::Real)),
        serde_json::Value::String(s) => Some(text(s)),
        _ => None,
    }
}

/// The scalar entries of a printed Python dictionary, whose opening brace is gone. What is nested is passed over.
fn python_dict(printed: &str) -> impl Iterator<Item = (&str, Value)> {
    entries(printed).into_iter().filter_map(|entry| {
        let (name, value) = entry.split_once(':')?;
        let name = unquoted(name.trim())?;
        let value = value.trim();
        match unquoted(value) {
            Some(word) => Some((name, text(word))),
            None => Some((name, scalar(value)?)),
        }
    })
}

/// Splits at the commas that are inside neither quotes nor brackets, up to the closing brace.
fn entries(printed: &str) -> Vec<&str> {
    let (mut found, mut start, mut depth, mut quote, mut escaped) = (Vec::new(), 0, 0_usize, None, false);
    for (at, c) in printed.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '{' | '[' | '(') => depth += 1,
            (None, '}' | ']' | ')') if depth > 0 => depth -= 1,
            (None, ',' | '}') if depth == 0 => {
                found.push(&printed[start..at]);
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

fn unquoted(word: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|q| word.strip_prefix(q)?.strip_suffix(q))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOG: &str = include_str!("../../tests/data/vllm/h200_llama70b_fp8_start.log");
    const METRICS: &str = include_str!("../../tests/data/vllm/metrics_after_load.txt");
    const SERVER_INFO: &str = include_str!("../../tests/data/vllm/server_info.json");

    fn word(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn the_log_of_a_start_tells_what_was_resolved() {
        let found = Effective::from_log(LOG);
        assert_eq!(found.kv_cache_tokens, Some(382_880));
        assert_eq!(found.version.as_deref(), Some("0.24.0"));
        for (name, value) in [
            ("max-num-batched-tokens", Value::Int(8192)),
            ("max-model-len", Value::Int(16384)),
            ("port", Value::Int(8100)),
            ("kv-cache-dtype", word("fp8")),
            ("quantization", word("fp8")),
            ("dtype", word("bfloat16")),
            ("tensor-parallel-size", Value::Int(1)),
            ("enforce-eager", Value::Bool(false)),
            ("enable-prefix-caching", Value::Bool(true)),
        ] {
            assert_eq!(found.values.get(name), Some(&value), "{name}");
        }
        let cpu = "CPU + host KV cache size: 131,072 tokens, Maximum concurrency for 8,192 tokens per request: 16.00x\n\
                   vLLM API server version 0.32.0\n\
                   non-default args: {'max_model_len': 'auto', 'a': {'b': [1, 2], 'c': 'x, }'}, 'f': 0.995, 'n': None, 'q': \"it's\", 'z': True}";
        let found = Effective::from_log(cpu);
        assert_eq!((found.kv_cache_tokens, found.version.as_deref()), (Some(131_072), Some("0.32.0")));
        let given: Vec<_> = found.values.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(given, ["f=0.995", "max-model-len=auto", "q=it's", "z=true"]);
    }

    #[test]
    fn metrics_and_server_info_agree_on_the_cache() {
        let metrics = Effective::from_metrics(&Page::parse(METRICS));
        let info = Effective::from_server_info(&serde_json::from_str(SERVER_INFO).unwrap());
        assert_eq!((metrics.kv_cache_tokens, info.kv_cache_tokens), (Some(131_072), Some(131_072)));
        assert_eq!(info.version.as_deref(), Some("0.32.0"));
        for (name, value) in &metrics.values {
            assert_eq!(info.values.get(name), Some(value), "{name}");
        }
        assert_eq!(metrics.values["gpu-memory-utilization"], Value::Real(0.92));
        assert_eq!(metrics.values["kv-cache-dtype"], word("auto"));
        assert_eq!(info.values["max-num-seqs"], Value::Int(128));
        assert_eq!(info.values["scheduling-policy"], word("fcfs"));
        assert_eq!(info.values["dtype"], word("bfloat16"));
        let old = Page::parse("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10\"} 1");
        assert_eq!(Effective::from_metrics(&old).kv_cache_tokens, Some(160));
    }

    #[test]
    fn the_stronger_source_wins_and_gaps_are_filled() {
        let merged = Effective::from_log(LOG).merge(Effective::from_metrics(&Page::parse(METRICS))).merge(
            Effective::from_server_info(&serde_json::json!({"scheduler_config": {"max_num_batched_tokens": 2048}})),
        );
        assert_eq!(merged.values["max-num-batched-tokens"], Value::Int(2048));
        assert_eq!(merged.values["block-size"], Value::Int(128));
        assert_eq!(merged.values["max-model-len"], Value::Int(16384));
        assert_eq!((merged.kv_cache_tokens, merged.version.as_deref()), (Some(131_072), Some("0.24.0")));
        let text = serde_json::to_string(&merged).unwrap();
        assert_eq!(serde_json::from_str::<Effective>(&text).unwrap(), merged);
    }

    #[test]
    fn only_a_value_that_the_engine_changed_is_a_mismatch() {
        let info = Effective::from_server_info(&serde_json::from_str(SERVER_INFO).unwrap());
        let point = Point::default()
            .with("max-num-seqs", Value::Int(256))
            .with("max-num-batched-tokens", Value::Real(2048.0))
            .with("max-model-len", word("auto"))
            .with("kv-cache-memory-bytes", word("256M"))
            .with("enable-prefix-caching", Value::Bool(false))
            .with("unheard-of", Value::Int(1));
        let expected = [
            ("enable-prefix-caching".to_owned(), Value::Bool(false), Value::Bool(true)),
            ("max-num-seqs".to_owned(), Value::Int(256), Value::Int(128)),
        ];
        assert_eq!(info.mismatches(&point), expected);
        assert_eq!(plain(&word("8k")), Value::Real(8000.0));
        assert_eq!(plain(&word("fork")), word("fork"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_readers_fall(
            text in any::<String>(),
            dict in "[ '\"\\\\:,{}a-z0-9.é]*",
            count in "[0-9,]{0,40}",
        ) {
            let log = format!("{text}\nnon-default args: {{{dict}\nCPU KV cache size: {count} tokens\n\
                               Initializing a V1 LLM engine (v{text}, seed={dict}");
            let found = Effective::from_log(&log);
            let _ = Effective::from_metrics(&Page::parse(&format!("vllm:cache_config_info{{a=\"{dict}\"}} 1")));
            let point = Point(found.values.clone());
            // What the engine prints is read as it was asked for, unless a word reads as a number of another spelling.
            let _ = found.mismatches(&point.with("a", Value::Text(dict)));
        }
    }

    #[test]
    fn fuzz_logs() {
        let failures = include_str!("../../tests/data/vllm/failure_modes.txt");
        let lines: Vec<&str> = LOG.lines().chain(failures.lines()).collect();
        let valid = lines.chunks(20).map(|lines| lines.join("\n"));
        autotune_fuzz::fuzz(3, valid, |input, _| {
            let log = String::from_utf8_lossy(input);
            let _ = Effective::from_log(&log);
            let _ = super::super::diagnosis::diagnose(&log, super::super::diagnosis::Exit::Code(1), &["max-num-seqs"]);
        });
    }
}
