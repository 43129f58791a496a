//! The flags of vLLM that change nothing in a simulation: they are accepted, and nothing comes of them.
//!
//! Whatever else vLLM knows is refused, since it would change what is to be simulated.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// Flags that take no value.
const SWITCHES: &str = "
    enable-log-requests no-enable-log-requests enable-log-outputs no-enable-log-outputs enable-log-deltas no-enable-log-deltas
    log-error-stack no-log-error-stack disable-uvicorn-access-log no-disable-uvicorn-access-log
    disable-fastapi-docs no-disable-fastapi-docs enable-request-id-headers no-enable-request-id-headers
    use-tqdm-on-load no-use-tqdm-on-load
    trust-remote-code no-trust-remote-code allow-credentials no-allow-credentials
    enable-auto-tool-choice no-enable-auto-tool-choice language-model-only no-language-model-only
    skip-mm-profiling no-skip-mm-profiling
    no-enable-server-load-tracking no-enable-per-request-metrics no-enable-force-include-usage no-enable-sleep-mode
    enable-prompt-tokens-details
    enable-chunked-prefill
    enforce-eager no-enforce-eager async-scheduling no-async-scheduling
    disable-custom-all-reduce no-disable-custom-all-reduce disable-cascade-attn no-disable-cascade-attn
";
// Of these, the simulation always tells details of prompt tokens and always has chunked prefill. A profile stands for one way to
// launch an engine, with or without graphs, with or without asynchronous scheduling.

/// Flags that take a value, whatever it is: what is loaded and from where, how prompts are written, what is logged.
const VALUES: &str = "
    tokenizer tokenizer-mode tokenizer-revision revision code-revision config-format hf-config-path hf-token hf-overrides
    load-format download-dir model-impl model-loader-extra-config safetensors-load-strategy pt-load-map-location
    max-parallel-loading-workers
    chat-template chat-template-content-format default-chat-template-kwargs response-role generation-config
    override-generation-config tool-call-parser reasoning-parser limit-mm-per-prompt
    max-log-len uvicorn-log-level log-level logging-config log-config-file disable-access-log-for-endpoints
    allowed-origins allowed-methods allowed-headers prefix-caching-hash-algo max-logprobs logprobs-mode
    distributed-executor-backend distributed-timeout-seconds
";

/// Flags that take the values which say what the simulation does anyway.
const ONLY: [(&str, &[&str]); 13] = [
    ("tensor-parallel-size", &["1"]),
    ("pipeline-parallel-size", &["1"]),
    ("data-parallel-size", &["1"]),
    ("decode-context-parallel-size", &["1"]),
    ("prefill-context-parallel-size", &["1"]),
    ("api-server-count", &["1"]),
    ("nnodes", &["1"]),
    ("shutdown-timeout", &["0"]),
    ("scheduling-policy", &["fcfs"]),
    ("runner", &["auto", "generate"]),
    // All of them are two bytes for a number.
    ("dtype", &["auto", "bfloat16", "float16", "half"]),
    ("kv-cache-dtype", &["auto", "bfloat16", "float16"]),
    ("cpu-offload-gb", &["0", "0.0"]),
];

/// Accepts the flags that change nothing.
#[derive(Clone, Debug)]
pub struct Ignored;

impl Args for Ignored {
    fn augment_args(command: Command) -> Command {
        let switches = SWITCHES.split_whitespace().map(|name| Arg::new(name).action(ArgAction::SetTrue));
        let values = VALUES.split_whitespace().map(|name| Arg::new(name).action(ArgAction::Set));
        let only = ONLY.into_iter().map(|(name, known)| {
            Arg::new(name).action(ArgAction::Set).value_parser(move |value: &str| {
                let problem = || format!("the simulated engine knows {} alone, not '{value}'", known.join(", "));
                known.contains(&value).then_some(()).ok_or_else(problem)
            })
        });
        let hidden = |command: Command, arg: Arg| {
            let name = arg.get_id().clone();
            command.arg(arg.long(name).hide(true))
        };
        switches.chain(values).chain(only).fold(command, hidden)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Ignored {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune_plan::engine::VLLM_FLAGS;

    #[test]
    fn every_ignored_flag_is_one_of_vllms() {
        let only = ONLY.iter().map(|(name, _)| *name);
        for name in SWITCHES.split_whitespace().chain(VALUES.split_whitespace()).chain(only) {
            assert!(VLLM_FLAGS.lines().any(|flag| flag == name), "{name}");
        }
    }
}
