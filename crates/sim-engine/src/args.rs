//! The flags of the simulated engine: vLLM's names, and hidden ones for tests.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use super::faults::Fault;
use super::ignored::Ignored;
use super::speculative::Speculative;
use super::trtllm::{Place, SHARE};
use autotune_twin::{ACCEPTANCE, EngineFlags, Profile, bytes};

/// The profile where `--sim-profile` is not given.
pub const DEFAULT_PROFILE: &str = "quickstart";

/// Which engine it simulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimDialect {
    Vllm,
    /// Its flags, endpoints, metrics and log lines; faults speak as vLLM.
    Sglang,
    /// A worker of Dynamo with TensorRT-LLM.
    Trtllm,
    /// Dynamo's frontend before such a worker.
    Frontend,
}

/// `autotune sim-engine`: vLLM's main flags on a simulated accelerator.
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true)]
pub struct SimArgs {
    /// The model to pretend to serve
    pub model_tag: Option<String>,
    /// The model, as a flag
    #[arg(long, hide = true)]
    pub model: Option<String>,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on
    #[arg(long, default_value_t = 8000, value_parser = int::<u16>)]
    pub port: u16,
    /// Sequences that run at the same time, at most [default: the profile's]
    #[arg(long, value_parser = int::<u32>)]
    pub max_num_seqs: Option<u32>,
    /// Token budget of a step [default: the profile's]
    #[arg(long, value_parser = readable_int)]
    pub max_num_batched_tokens: Option<u32>,
    /// Fraction of the accelerator's memory to plan with, 0 to 1 [default: the profile's]
    #[arg(long, alias = "device-memory-utilization", value_parser = float)]
    pub gpu_memory_utilization: Option<f64>,
    /// Prompt and answer of a request together, in tokens, at most [default: the profile's]
    #[arg(long, value_parser = readable_int)]
    pub max_model_len: Option<u32>,
    /// Bytes of the KV cache, such as 256M, whatever the fraction says [default: by the fraction]
    #[arg(long, value_parser = byte_count)]
    pub kv_cache_memory_bytes: Option<u64>,
    /// The name clients ask for [default: the model]
    #[arg(long)]
    pub served_model_name: Option<String>,
    /// Reuse the KV blocks of common prefixes; this is the default
    #[arg(long, overrides_with = "no_enable_prefix_caching")]
    pub enable_prefix_caching: bool,
    /// Compute every prompt in full
    #[arg(long, overrides_with = "enable_prefix_caching")]
    pub no_enable_prefix_caching: bool,
    /// Tokens of a block of the KV cache; only the profile's value is known
    #[arg(long, hide = true, value_parser = int::<u32>)]
    pub block_size: Option<u32>,
    /// Tokens of a streamed chunk; the first token is sent at once
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    pub stream_interval: u32,
    /// Speculative decoding, as JSON such as {"method": "ngram", "num_speculative_tokens": 4}
    #[arg(long, value_name = "JSON", value_parser = Speculative::parse)]
    pub speculative_config: Option<Speculative>,
    /// Keys of which clients must name one
    #[arg(long, value_name = "KEY", env = "VLLM_API_KEY", hide_env_values = true, num_args = 1.., action = ArgAction::Append)]
    pub api_key: Vec<String>,
    /// Also offer `/reset_prefix_cache` and `/server_info`
    #[arg(
        long,
        hide = true,
        env = "VLLM_SERVER_DEV_MODE",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    pub sim_dev_mode: bool,
    /// Chooses the words of the answers
    #[arg(long, default_value_t = 0, value_parser = int::<u64>)]
    pub seed: u64,
    /// The accelerator and model to simulate: quickstart, h200-llama8b, h200-llama70b, vllm-cpu-small, or a .toml file
    #[arg(long, value_name = "NAME|FILE", default_value = DEFAULT_PROFILE, value_parser = Profile::find)]
    pub sim_profile: Profile,
    /// Whose flags, endpoints, metrics and log lines it has
    #[arg(long, hide = true, value_enum, default_value = "vllm")]
    pub sim_dialect: SimDialect,
    /// Also offer `/metrics` as SGLang
    #[arg(long, hide = true)]
    pub sim_metrics: bool,
    #[command(flatten)]
    pub sim_place: Place,
    /// What changes nothing in a simulation
    #[arg(long, hide = true, action = ArgAction::Append)]
    pub sim_ignored: Vec<String>,
    /// What SGLang does not take
    #[arg(long, hide = true, value_parser = unrecognized)]
    pub sim_unknown: Option<String>,
    /// How many times faster than the profile says; 4 makes every step last a quarter
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    pub sim_speed: f64,
    /// A scheduler class; only the one with live limits is known
    #[arg(long, hide = true, value_name = "CLASS")]
    pub scheduler_cls: Option<String>,
    /// The file of the live limits
    #[arg(long, hide = true, value_name = "FILE", env = "AUTOTUNE_LIVE_LIMITS")]
    pub sim_live_limits: Option<PathBuf>,
    /// Seconds that the start-up takes
    #[arg(long, hide = true, default_value_t = 0.2)]
    pub sim_start_seconds: f64,
    /// Seconds between a signal to stop and its effect
    #[arg(long, hide = true, default_value_t = 0.0)]
    pub sim_stop_seconds: f64,
    /// The chance of a drafted token to be accepted once those before it are
    #[arg(long, hide = true, default_value_t = ACCEPTANCE, value_parser = chance)]
    pub sim_acceptance: f64,
    /// A way to fail, for tests of those who supervise engines
    #[arg(long, hide = true, value_enum, default_value_t = Fault::None)]
    pub sim_fault: Fault,
    /// Answered requests after which a fault of the load strikes
    #[arg(long, hide = true, default_value_t = 150)]
    pub sim_fault_after: u64,
    /// Be the engine-core child of a simulated engine instead of the engine
    #[arg(long, hide = true)]
    pub sim_core: bool,
    /// Flags of vLLM that change nothing here
    #[command(flatten)]
    pub ignored: Ignored,
}

/// Seconds of a flag, within what a person can wait.
pub(super) fn seconds(asked: f64) -> Duration {
    Duration::from_secs_f64(asked.clamp(0.0, 3_600.0))
}

/// A number as vLLM's parser reads it, and its words for what is none.
fn int<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("invalid int value: '{text}'"))
}

fn unrecognized(text: &str) -> Result<String, String> {
    Err(format!("unrecognized arguments: {text}"))
}

fn float(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("invalid float value: '{text}'"))
}

fn readable_int(text: &str) -> Result<u32, String> {
    byte_count(text).and_then(|number| int(&number.to_string()))
}

fn at_least_one(text: &str) -> Result<u32, String> {
    int(text).and_then(|number| if number == 0 { Err(format!("invalid int value: '{text}'")) } else { Ok(number) })
}

fn chance(text: &str) -> Result<f64, String> {
    float(text).and_then(|f| if (0.0..=1.0).contains(&f) { Ok(f) } else { Err("a chance is 0 to 1".to_owned()) })
}

fn byte_count(text: &str) -> Result<u64, String> {
    bytes(text).ok_or_else(|| format!("invalid human_readable_int value: '{text}'"))
}

fn speed(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|f: &f64| f.is_finite() && *f > 0.0).ok_or_else(|| "a factor above 0 is meant".to_owned())
}

impl SimArgs {
    /// The flags with the profile's values where none was given.
    pub(super) fn flags(&self) -> EngineFlags {
        let defaults = EngineFlags::from(self.sim_profile.defaults);
        let tokens = self.max_num_batched_tokens.unwrap_or(defaults.max_num_batched_tokens);
        // TensorRT-LLM's share is that of what is free once the model has run its largest step.
        let memory = &self.sim_profile.memory;
        let taken = memory.weights + memory.fixed + memory.unmanaged;
        let activations = memory.activation_per_batched_token.saturating_mul(tokens.into());
        let free = memory.total.saturating_sub(taken.saturating_add(activations)) as f64;
        let share = self.gpu_memory_utilization.unwrap_or(SHARE);
        let of_free = (self.sim_dialect == SimDialect::Trtllm).then_some((free * share) as u64);
        EngineFlags {
            max_num_seqs: self.max_num_seqs.unwrap_or(defaults.max_num_seqs),
            max_num_batched_tokens: tokens,
            gpu_memory_utilization: self.gpu_memory_utilization.unwrap_or(defaults.gpu_memory_utilization),
            max_model_len: self.max_model_len.unwrap_or(defaults.max_model_len),
            kv_cache_memory_bytes: self.kv_cache_memory_bytes.or(of_free),
            prefix_caching: self.prefix_caching(),
            draft_tokens: self.draft_tokens().unwrap_or(0),
            acceptance: self.sim_acceptance,
        }
    }

    /// Whether the prefix cache is on; it is unless it was switched off, as in vLLM.
    pub fn prefix_caching(&self) -> bool {
        !self.no_enable_prefix_caching
    }

    /// The model's name as the server reports it.
    pub(super) fn model(&self) -> &str {
        self.model.as_deref().or(self.model_tag.as_deref()).unwrap_or("sim-model")
    }

    /// The name that clients ask for.
    pub(super) fn served_name(&self) -> &str {
        self.served_model_name.as_deref().unwrap_or(self.model())
    }

    /// Tokens of a draft, where the engine speculates.
    pub(super) fn draft_tokens(&self) -> Option<u32> {
        self.speculative_config.as_ref()?.tokens()
    }

    /// The flags that were given, as the Python dictionary that vLLM logs.
    pub(super) fn non_default(&self) -> String {
        let quoted = |s: &String| format!("'{s}'");
        let mut given: Vec<(&str, String)> = Vec::new();
        given.extend(self.model_tag.as_ref().map(|v| ("model_tag", quoted(v))));
        given.extend((self.host != "127.0.0.1").then(|| ("host", quoted(&self.host))));
        given.extend((self.port != 8000).then(|| ("port", self.port.to_string())));
        given.extend(self.model.as_ref().or(self.model_tag.as_ref()).map(|v| ("model", quoted(v))));
        given.extend((!self.api_key.is_empty()).then(|| ("api_key", "['***']".to_owned())));
        given.extend((self.seed != 0).then(|| ("seed", self.seed.to_string())));
        given.extend(self.max_model_len.map(|v| ("max_model_len", v.to_string())));
        given.extend(self.served_model_name.as_ref().map(|v| ("served_model_name", format!("['{v}']"))));
        given.extend(self.gpu_memory_utilization.map(|v| ("gpu_memory_utilization", format!("{v:?}"))));
        given.extend(self.kv_cache_memory_bytes.map(|v| ("kv_cache_memory_bytes", v.to_string())));
        given.extend(self.enable_prefix_caching.then(|| ("enable_prefix_caching", "True".to_owned())));
        given.extend(self.no_enable_prefix_caching.then(|| ("enable_prefix_caching", "False".to_owned())));
        given.extend((self.stream_interval != 1).then(|| ("stream_interval", self.stream_interval.to_string())));
        given.extend(self.max_num_batched_tokens.map(|v| ("max_num_batched_tokens", v.to_string())));
        given.extend(self.max_num_seqs.map(|v| ("max_num_seqs", v.to_string())));
        given.extend(self.scheduler_cls.as_ref().map(|v| ("scheduler_cls", quoted(v))));
        let speculative = self.speculative_config.as_ref().and_then(Speculative::json);
        given.extend(speculative.map(|v| ("speculative_config", python(&v))));
        let items: Vec<String> = given.into_iter().map(|(key, value)| format!("'{key}': {value}")).collect();
        format!("{{{}}}", items.join(", "))
    }
}

/// JSON as Python shows the same values.
fn python(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => format!("'{text}'"),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(python).collect::<Vec<String>>().join(", ")),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| format!("'{key}': {}", python(value)));
            format!("{{{}}}", fields.collect::<Vec<String>>().join(", "))
        }
    }
}
