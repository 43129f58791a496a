//! The flags of the simulated engine: vLLM's names, and hidden ones for tests.

use clap::{Args, ValueEnum};

/// `autotune sim-engine`: vLLM's main flags on an imaginary accelerator.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// The model to pretend to serve
    pub model_tag: Option<String>,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Sequences that run at the same time, at most [default: the profile's]
    #[arg(long)]
    pub max_num_seqs: Option<u32>,
    /// Token budget of a step [default: the profile's]
    #[arg(long)]
    pub max_num_batched_tokens: Option<u32>,
    /// Fraction of the accelerator's memory to plan with, 0 to 1 [default: the profile's]
    #[arg(long)]
    pub gpu_memory_utilization: Option<f64>,
    /// Prompt and answer of a request together, in tokens, at most [default: the profile's]
    #[arg(long)]
    pub max_model_len: Option<u32>,
    /// The name clients ask for [default: the model]
    #[arg(long)]
    pub served_model_name: Option<String>,
    /// Reuse the KV blocks of common prefixes; this is the default
    #[arg(long, overrides_with = "no_enable_prefix_caching")]
    pub enable_prefix_caching: bool,
    /// Compute every prompt in full
    #[arg(long, overrides_with = "enable_prefix_caching")]
    pub no_enable_prefix_caching: bool,
    /// Chooses the words of the answers
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// The imaginary accelerator and model
    #[arg(long, default_value = "quickstart", value_parser = clap::builder::PossibleValuesParser::new(crate::twin::Profile::NAMES))]
    pub sim_profile: String,
    /// Seconds that the start-up takes
    #[arg(long, hide = true, default_value_t = 0.2)]
    pub sim_start_seconds: f64,
    /// A way to fail, for tests of those who supervise engines
    #[arg(long, hide = true, value_enum, default_value_t = Fault::None)]
    pub sim_fault: Fault,
    /// Be the engine-core child of a simulated engine instead of the engine
    #[arg(long, hide = true)]
    pub sim_core: bool,
}

impl SimArgs {
    /// Whether the prefix cache is on; it is unless it was switched off, as in vLLM.
    pub fn prefix_caching(&self) -> bool {
        !self.no_enable_prefix_caching
    }

    /// The model's name as the server reports it.
    pub(super) fn model(&self) -> &str {
        self.model_tag.as_deref().unwrap_or("sim-model")
    }

    /// The name that clients ask for.
    pub(super) fn served_name(&self) -> &str {
        self.served_model_name.as_deref().unwrap_or(self.model())
    }

    /// The flags that were given, as the Python dictionary that vLLM logs.
    pub(super) fn non_default(&self) -> String {
        let quoted = |s: &String| format!("'{s}'");
        let mut given: Vec<(&str, String)> = Vec::new();
        given.extend(self.model_tag.as_ref().map(|v| ("model_tag", quoted(v))));
        given.extend((self.host != "127.0.0.1").then(|| ("host", quoted(&self.host))));
        given.extend((self.port != 8000).then(|| ("port", self.port.to_string())));
        given.extend(self.model_tag.as_ref().map(|v| ("model", quoted(v))));
        given.extend((self.seed != 0).then(|| ("seed", self.seed.to_string())));
        given.extend(self.max_model_len.map(|v| ("max_model_len", v.to_string())));
        given.extend(self.served_model_name.as_ref().map(|v| ("served_model_name", format!("['{v}']"))));
        given.extend(self.gpu_memory_utilization.map(|v| ("gpu_memory_utilization", format!("{v:?}"))));
        given.extend(self.enable_prefix_caching.then(|| ("enable_prefix_caching", "True".to_owned())));
        given.extend(self.no_enable_prefix_caching.then(|| ("enable_prefix_caching", "False".to_owned())));
        given.extend(self.max_num_batched_tokens.map(|v| ("max_num_batched_tokens", v.to_string())));
        given.extend(self.max_num_seqs.map(|v| ("max_num_seqs", v.to_string())));
        let items: Vec<String> = given.into_iter().map(|(key, value)| format!("'{key}': {value}")).collect();
        format!("{{{}}}", items.join(", "))
    }
}

/// A way to fail. Each was seen on a real engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// None.
    #[default]
    None,
    /// Exits with code 0 before it is ready.
    ExitZeroAtStart,
    /// Lives, and answers 503 to `/health` for ever.
    NeverReady,
    /// Exits with code 1 in the middle of the load.
    DieInLoad,
    /// Sends no token any more in the middle of the load, while `/health` stays 200.
    HangInLoad,
    /// Leaves its child alive, which ignores SIGTERM.
    Orphan,
    /// Exits with code 1 without a word.
    SilentDeath,
    /// Runs out of memory in the middle of the load, and exits with code 0 as vLLM does.
    OomInLoad,
}
