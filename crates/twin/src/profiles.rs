//! Profiles as data: those that come with the program, those of its tables of measured kernels, and those of a file.
//!
//! A new one is a file in `profiles/` and a line here, or a row of `profiles/kernels/engines.csv` and a table. This file alone in the model touches the disk.

use std::path::{Path, PathBuf};

use super::costs::StepCosts;
use super::flags::{EngineDefaults, EngineFlags};
use super::kernels::Kernels;
use super::noise::Noise;
use super::profile::{Memory, Profile, Start};

/// What comes with the program, by name.
const EMBEDDED: [(&str, &str); 4] = [
    ("quickstart", include_str!("../../../profiles/quickstart.toml")),
    ("h200-llama8b", include_str!("../../../profiles/h200-llama8b.toml")),
    ("h200-llama70b", include_str!("../../../profiles/h200-llama70b.toml")),
    ("vllm-cpu-small", include_str!("../../../profiles/vllm-cpu-small.toml")),
];

/// One row for each table of measured kernels: model, GPU, memory, KV cache.
const ENGINES: &str = include_str!("../../../profiles/kernels/engines.csv");
/// Tokens of a step and share of the memory at which [`ENGINES`] tells the size of the KV cache.
const TOLD_AT: (f64, f64) = (8192.0, 0.9);
/// Of the memory that is neither weights nor KV cache, the part that activations take: nobody measured it.
const ACTIVATIONS: f64 = 0.5;
/// Bytes of captured graphs: vLLM logged 1.46 GiB for a 70B model on one H200, and less for an 8B model.
const GRAPHS: u64 = 1 << 30;
const GIB: f64 = 1073741824.0;
/// Step costs of the CPU, which no table of kernels has. Without them TPOT was 10 to 20 % too low below saturation, and TTFT 20 ms, on one H200
/// with vLLM 0.24.0. Such engines schedule one step ahead.
fn on_cpu() -> StepCosts {
    StepCosts {
        base: 8e-4,
        per_decode: 5e-6,
        overhead: 8e-3,
        ahead: 1.0,
        delivery: 4e-3,
        per_delivery: 4e-5,
        ..StepCosts::default()
    }
}

/// Why there is no such profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error(
        "there is no profile `{name}`; there are {}; of measured kernels {}; and a path that ends with .toml names a file",
        EMBEDDED.map(|(name, _)| name).join(", "),
        Kernels::names().collect::<Vec<_>>().join(", ")
    )]
    Unknown { name: String },
    #[error("failed to read the profile {path}: {source}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the profile {place} is not valid: {why}")]
    Invalid { place: String, why: String },
}

impl Profile {
    /// The names that [`Profile::named`] knows.
    pub const NAMES: [&'static str; EMBEDDED.len()] = {
        let mut names = [""; EMBEDDED.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = EMBEDDED[i].0;
            i += 1;
        }
        names
    };

    pub fn named(name: &str) -> Result<Self, ProfileError> {
        if let Some((place, text)) = EMBEDDED.iter().find(|(known, _)| *known == name) {
            return Self::parse(place, text);
        }
        Self::of_kernels(name).ok_or_else(|| ProfileError::Unknown { name: name.to_owned() })
    }

    /// The profile of an engine whose kernels were measured.
    fn of_kernels(name: &str) -> Option<Self> {
        let mut lines = ENGINES.lines();
        let head: Vec<&str> = lines.next()?.split(',').collect();
        let row: Vec<&str> =
            lines.map(|line| line.split(',').collect()).find(|row: &Vec<&str>| row.first() == Some(&name))?;
        let text = |key: &str| row.get(head.iter().position(|known| *known == key)?).copied();
        let number = |key: &str| text(key)?.parse::<f64>().ok();
        let (total, weights) = (number("gpu_memory_gib")? * GIB, number("weights_gib_per_gpu")? * GIB);
        let (per_kv_token, kv_tokens) = (number("kv_bytes_per_token_per_gpu")?, number("kv_tokens")?);
        let left = (TOLD_AT.1 * total - weights - kv_tokens * per_kv_token).max(0.0);
        let (model, gpus, system, engine) = (text("model")?, text("tp")?, text("system")?, text("backend")?);
        Some(Self {
            name: name.to_owned(),
            source: format!(
                "{model} on {gpus} x {system} under {engine} {}: kernels timed one by one by NVIDIA (aiconfigurator-core 0.12.0); what runs on the CPU is an assumption",
                text("version")?
            ),
            shared: false,
            costs: on_cpu(),
            kernels: Some(Kernels::named(name)?.name().to_owned()),
            memory: Memory {
                total: total as u64,
                weights: weights as u64,
                fixed: ((1.0 - ACTIVATIONS) * left) as u64,
                activation_per_batched_token: (ACTIVATIONS * left / TOLD_AT.0) as u64,
                activation_per_batched_token_squared: 0.0,
                profiled_sampler_per_sequence: 0,
                sampler_per_sequence: 0,
                unmanaged: GRAPHS,
                load_per_sequence: 0,
                per_kv_token: per_kv_token as u64,
                block_size: 16,
            },
            defaults: EngineDefaults {
                max_num_seqs: 1024,
                max_num_batched_tokens: 8192,
                gpu_memory_utilization: TOLD_AT.1,
                max_model_len: 32_768,
            },
            noise: Some(Noise { run_to_run: 0.01, step_to_step: 0.03, ..Noise::default() }),
            start: Some(Start { seconds: 55.0 }),
        })
    }

    /// The profile of that name, or of the file at that path if it ends with `.toml`.
    pub fn find(name_or_path: &str) -> Result<Self, ProfileError> {
        let path = Path::new(name_or_path);
        if path.extension().is_none_or(|extension| extension != "toml") {
            return Self::named(name_or_path);
        }
        let text = std::fs::read_to_string(path)
            .map_err(|source| ProfileError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(name_or_path, &text)
    }

    /// A profile from the text of a file; `place` is named in errors.
    pub fn parse(place: &str, text: &str) -> Result<Self, ProfileError> {
        let invalid = |why: String| ProfileError::Invalid { place: place.to_owned(), why };
        let profile: Self = toml::from_str(text).map_err(|e| invalid(e.to_string()))?;
        match profile.mistake() {
            Some(why) => Err(invalid(why)),
            None => Ok(profile),
        }
    }

    /// The first thing in it that no engine can have.
    fn mistake(&self) -> Option<String> {
        let (m, d) = (&self.memory, &self.defaults);
        let times = [
            ("costs.base", self.costs.base),
            ("costs.per_decode", self.costs.per_decode),
            ("costs.per_context_token", self.costs.per_context_token),
            ("costs.per_prefill_token", self.costs.per_prefill_token),
            ("costs.overhead", self.costs.overhead),
            ("start.seconds", self.start.map_or(0.0, |s| s.seconds)),
        ];
        let counts = [
            ("memory.per_kv_token", m.per_kv_token),
            ("memory.block_size", u64::from(m.block_size)),
            ("defaults.max_num_seqs", u64::from(d.max_num_seqs)),
            ("defaults.max_num_batched_tokens", u64::from(d.max_num_batched_tokens)),
            ("defaults.max_model_len", u64::from(d.max_model_len)),
        ];
        let not_a_time = times.iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0));
        let zero = counts.iter().find(|(_, value)| *value == 0);
        if self.name.trim().is_empty() || self.source.trim().is_empty() {
            Some("`name` and `source` may not be empty: what is simulated says where it comes from".to_owned())
        } else if let Some((key, value)) = not_a_time {
            Some(format!("`{key}` is {value}, and must be a number of seconds"))
        } else if self.costs.base == 0.0 {
            Some("`costs.base` is 0: a step without a duration never ends anything".to_owned())
        } else if let Some(name) = self.kernels.as_ref().filter(|name| Kernels::named(name).is_none()) {
            Some(format!(
                "`kernels` is {name}, and there is no such table; there are {}",
                Kernels::names().collect::<Vec<_>>().join(", ")
            ))
        } else if let Some((key, _)) = zero {
            Some(format!("`{key}` is 0"))
        } else if let Some(why) = self.noise.and_then(|noise| noise.mistake()) {
            Some(why)
        } else {
            let starts = self.limits_under(&EngineFlags::from(*d));
            starts.err().map(|failure| format!("the engine does not start with its own defaults: {failure}"))
        }
    }

    /// The imaginary engine of the quickstart, for tests.
    #[expect(clippy::unwrap_used, reason = "its text is in the program, and a test reads every such text")]
    pub fn quickstart() -> Self {
        Self::named(EMBEDDED[0].0).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_that_comes_with_the_program_is_valid_and_says_its_source() {
        for name in Profile::NAMES {
            let profile = Profile::named(name).unwrap();
            assert_eq!(profile.name, name);
            assert!(!profile.source.is_empty());
            assert_eq!(serde_json::from_str::<Profile>(&serde_json::to_string(&profile).unwrap()).unwrap(), profile);
        }
    }

    #[test]
    fn an_engine_of_measured_kernels_has_its_table_and_its_memory() {
        for name in Kernels::names() {
            let profile = Profile::named(name).unwrap();
            assert_eq!(profile.kernels().map(Kernels::name), Some(name));
            assert_eq!(profile.mistake(), None, "{name}");
            assert_eq!(serde_json::from_str::<Profile>(&serde_json::to_string(&profile).unwrap()).unwrap(), profile);
        }
        let kv = Profile::named("h200_sxm_llama-3.1-70b-fp8_tp1_vllm_0.24.0")
            .unwrap()
            .limits(0.9, 256, 8192)
            .unwrap()
            .kv_tokens();
        assert!((kv as f64 / 349_181.0 - 1.0).abs() < 1e-3, "{kv}");
        let unknown = EMBEDDED[0].1.replace("[costs]", "kernels = \"h300\"\n[costs]");
        assert!(Profile::parse("mine.toml", &unknown).unwrap_err().to_string().contains("h300"));
    }

    #[test]
    fn errors_name_what_there_is_and_where_it_is_wrong() {
        let said = Profile::find("h200").unwrap_err().to_string();
        assert!(said.starts_with("there is no profile `h200`; there are "), "{said}");
        assert!(Profile::NAMES.iter().all(|name| said.contains(name)), "{said}");
        assert!(Profile::find("no-such-file.toml").unwrap_err().to_string().contains("no-such-file.toml"));
        let text = EMBEDDED[0].1;
        for (from, to, said) in [
            ("base = 1.8e-3", "base = -1.0", "costs.base"),
            ("base = 1.8e-3", "base = 0.0", "costs.base"),
            ("per_kv_token = 376832", "per_kv_token = 0", "memory.per_kv_token"),
            ("gpu_memory_utilization = 0.85", "gpu_memory_utilization = 0.5", "does not start"),
            ("overhead = 3.0e-3", "overhaed = 3.0e-3", "overhaed"),
            ("max_model_len = 1024", "max_model_len = 1024\n[noise]\nrun_to_run = 7.0", "noise.run_to_run"),
        ] {
            assert!(text.contains(from));
            let error = Profile::parse("mine.toml", &text.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains("mine.toml") && error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_file_is_a_profile_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, EMBEDDED[0].1).unwrap();
        assert_eq!(Profile::find(path.to_str().unwrap()).unwrap(), Profile::quickstart());
    }

    /// (share, tokens of a step, sequences, KV tokens), as the engines logged them.
    #[test]
    fn kv_caches_are_as_large_as_measured_within_one_percent() {
        let measured = [
            ("h200-llama8b", 0.92, 8_192, 1024, 919_824.0),
            ("h200-llama8b", 0.92, 16_384, 1024, 914_304.0),
            ("h200-llama70b", 0.90, 8_192, 1024, 348_304.0),
            ("h200-llama70b", 0.95, 8_192, 1024, 394_128.0),
            ("h200-llama70b", 0.90, 16_384, 1024, 347_488.0),
            ("h200-llama70b", 0.90, 8_192, 128, 369_568.0),
            ("h200-llama70b", 0.95, 16_384, 128, 404_928.0),
            ("h200-llama70b", 0.95, 32_768, 256, 372_560.0),
            ("vllm-cpu-small", 0.1, 2_048, 128, 492_544.0),
            ("vllm-cpu-small", 0.3, 2_048, 128, 2_113_536.0),
        ];
        for (name, share, tokens, seqs, kv) in measured {
            let found = Profile::named(name).unwrap().limits(share, seqs, tokens).unwrap().kv_tokens() as f64;
            assert!((found / kv - 1.0).abs() < 0.01, "{name} at {share}, {tokens}, {seqs}: {found} against {kv}");
        }
    }
}
