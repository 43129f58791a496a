//! vLLM's way with a command line: other spellings of its flags, and its words for what is wrong.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Command};

use super::{SimArgs, SimDialect, sglang, trtllm};
use autotune_plan::engine::{FRONTEND as FRONTEND_FLAGS, VLLM_FLAGS, meant};

/// vLLM's short flags, and the long ones that they stand for.
const SHORT: [(&str, &str); 15] = [
    ("-tp", "--tensor-parallel-size"),
    ("-pp", "--pipeline-parallel-size"),
    ("-dp", "--data-parallel-size"),
    ("-dcp", "--decode-context-parallel-size"),
    ("-pcp", "--prefill-context-parallel-size"),
    ("-asc", "--api-server-count"),
    ("-n", "--nnodes"),
    ("-r", "--node-rank"),
    ("-ep", "--enable-expert-parallel"),
    ("-q", "--quantization"),
    ("-O", "--optimization-level"),
    ("-ac", "--attention-config"),
    ("-cc", "--compilation-config"),
    ("-dc", "--diffusion-config"),
    ("-sc", "--speculative-config"),
];

/// The words behind `sim-engine` with vLLM's other spellings replaced: underscores, short names, unambiguous beginnings.
pub fn spelled_out(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    if words.get(1).is_some_and(|word| word == "sim-engine") {
        let dialect = SimDialect::of(&words);
        // The one worker is all that it can route to: its knobs do nothing.
        if dialect == SimDialect::Frontend && !words.iter().any(|word| word == "--help") {
            words.truncate(2);
            words.push("--sim-dialect=frontend".into());
        }
        for word in words.iter_mut().skip(2) {
            let text = word.to_str().and_then(|word| dialect.flags().map_or_else(|| spelled(word), |f| known(word, f)));
            if let Some(text) = text {
                *word = text.into();
            }
        }
    }
    words
}

impl SimDialect {
    /// The engine that a command line asks for.
    fn of(words: &[OsString]) -> Self {
        let glued = words.iter().find_map(|word| word.to_str()?.strip_prefix("--sim-dialect="));
        let apart = words.windows(2).find(|pair| pair[0] == "--sim-dialect" || pair[0] == "-m");
        let apart = apart.and_then(|pair| pair[1].to_str()).map(|name| name.trim_start_matches("dynamo."));
        match glued.or(apart) {
            Some("sglang") => Self::Sglang,
            Some("trtllm") => Self::Trtllm,
            Some("frontend") => Self::Frontend,
            _ => Self::Vllm,
        }
    }

    /// Flags that are not vLLM's, with those of the simulated engine that stand for them.
    fn flags(self) -> Option<&'static [(&'static str, &'static str)]> {
        match self {
            Self::Vllm => None,
            Self::Sglang => Some(&sglang::FLAGS),
            Self::Trtllm => Some(&trtllm::FLAGS),
            Self::Frontend => Some(&[]),
        }
    }

    /// The beginning of its help.
    fn usage(self) -> &'static str {
        match self {
            Self::Trtllm => "usage: dynamo.trtllm [-h] [--model MODEL]",
            _ => "usage: launch_server.py [-h] --model-path MODEL_PATH",
        }
    }

    /// Its help: the flags that are simulated.
    fn help(self) -> String {
        let of_simulation = ["--sim-dialect", "--sim-profile", "--sim-speed", "--help"];
        let flags = self.flags().unwrap_or_default().iter().map(|(flag, _)| *flag).chain(of_simulation);
        let of_frontend = FRONTEND_FLAGS.lines().filter(|_| self == Self::Frontend).map(|flag| format!("--{flag}"));
        let flags = flags.map(str::to_owned).chain(of_frontend).map(|flag| format!("  {flag}\n"));
        format!("{}\n\noptions:\n{}", self.usage(), flags.collect::<String>())
    }

    /// What its parser says: the flag by which the simulated engine knows it, and what is wrong.
    fn complaint(self, flag: Option<&str>, problem: &str) -> String {
        let named = flag.filter(|flag| *flag != "--sim-unknown");
        let all = self.flags().unwrap_or_default();
        let theirs = |ours| all.iter().find(|(_, name)| *name == ours).map_or(ours, |(name, _)| *name).to_owned();
        let of = named.map_or_else(String::new, |flag| format!("argument {}: ", theirs(flag)));
        let program = self.usage().split(' ').nth(1).unwrap_or_default();
        format!("{}\n{program}: error: {of}{problem}", self.usage())
    }
}

/// A word of a command line as the simulated engine takes it, by the flags of another engine. What that one does not take is marked.
fn known(word: &str, flags: &[(&str, &str)]) -> Option<String> {
    let (flag, value) = word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
    let glued = |flag: &str| value.map_or_else(|| flag.to_owned(), |value| format!("{flag}={value}"));
    match flags.iter().find(|(name, _)| *name == flag) {
        Some((_, ours)) => Some(glued(ours)),
        None if flag.starts_with("--sim-") || flag.starts_with("--help") || !flag.starts_with("--") => {
            (word == "dynamo.trtllm").then(|| "trtllm".to_owned())
        }
        None => Some(format!("--sim-unknown={word}")),
    }
}

fn spelled(word: &str) -> Option<String> {
    let (flag, value) = word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
    let glued = |flag: &str| value.map_or_else(|| flag.to_owned(), |value| format!("{flag}={value}"));
    if let Some((_, long)) = SHORT.iter().find(|(short, _)| *short == flag) {
        return Some(glued(long));
    }
    if let Some(level) = flag.strip_prefix("-O") {
        return Some(format!("--optimization-level={level}"));
    }
    let name = flag.strip_prefix("--")?.replace('_', "-");
    Some(glued(&match meant(&name, VLLM_FLAGS.lines()).as_slice() {
        [one] => format!("--{one}"),
        _ => format!("--{name}"),
    }))
}

/// The help with every flag that is accepted, where `sim-engine` is asked for it as vLLM is: `--help=all`.
pub fn whole_help(words: &[OsString]) -> Option<String> {
    let simulated = words.get(1).is_some_and(|word| word == "sim-engine");
    let dialect = SimDialect::of(words);
    if simulated && dialect != SimDialect::Vllm && words.iter().any(|word| word == "--help") {
        return Some(dialect.help());
    }
    let asked = simulated && words.iter().any(|word| word == "--help=all");
    let whole = || SimArgs::augment_args(Command::new("autotune sim-engine")).mut_args(|arg| arg.hide(false));
    (asked && dialect == SimDialect::Vllm).then(|| whole().render_long_help().to_string())
}

/// What vLLM says to a mistake of its command line; None for what is no mistake, such as a wish for help.
pub fn complaint(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    // `--port <PORT>` is how the parser names it.
    let flag = text(ContextKind::InvalidArg).map(|shown| shown.split([' ', '=']).next().unwrap_or(shown));
    let problem = match (error.kind(), flag) {
        (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, _) => return None,
        (ErrorKind::UnknownArgument, Some(flag)) if SimDialect::of(words) == SimDialect::Vllm => {
            return Some(unknown(flag, words));
        }
        (ErrorKind::InvalidValue, _) if text(ContextKind::InvalidValue).is_none_or(str::is_empty) => {
            "expected one argument".to_owned()
        }
        (ErrorKind::TooManyValues, _) => {
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            format!("ignored explicit argument '{value}'")
        }
        _ => match (error.source(), text(ContextKind::InvalidValue)) {
            (Some(says), _) => says.to_string(),
            (None, Some(value)) => format!("invalid choice: '{value}'"),
            (None, None) => error.kind().to_string(),
        },
    };
    if SimDialect::of(words) != SimDialect::Vllm {
        return Some(SimDialect::of(words).complaint(flag, &problem));
    }
    let of = flag.map_or_else(String::new, |flag| format!("argument {flag}: "));
    Some(format!("usage: vllm serve [model_tag] [options]\nvllm serve: error: {of}{problem}"))
}

fn unknown(flag: &str, words: &[OsString]) -> String {
    let usage = "usage: vllm serve [model_tag] [options]\nvllm serve: error:";
    // `--speculative-config.method` is a key of a flag that takes JSON.
    let name = flag.trim_start_matches('-').split('.').next().unwrap_or_default();
    match meant(name, VLLM_FLAGS.lines()).as_slice() {
        [one] if *one == name => {
            format!("{usage} argument {flag}: the simulated engine does not know it, and vLLM does")
        }
        // What else is possible is spelled out before.
        several @ [_, _, ..] if flag.starts_with("--") => {
            let several: BTreeSet<String> = several.iter().map(|flag| format!("--{flag}")).collect();
            let several = several.into_iter().collect::<Vec<String>>().join(", ");
            format!("{usage} ambiguous option: {flag} could match {several}")
        }
        _ => {
            let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
            let at = words.iter().position(|word| word.split('=').next() == Some(flag));
            let rest = at.map_or(&[][..], |at| &words[at + 1..]);
            let values = rest.iter().take_while(|word| !word.starts_with('-')).copied();
            let unread: Vec<&str> = at.map_or(flag, |at| words[at]).split(' ').chain(values).collect();
            format!("usage: vllm [-h] [-v]\nvllm: error: unrecognized arguments: {}", unread.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: SimArgs,
    }

    fn parse(line: &str) -> Result<SimArgs, String> {
        let words = spelled_out(["autotune", "sim-engine"].into_iter().chain(line.split(' ')).map(OsString::from));
        let parsed = Cli::try_parse_from(words.iter().skip(1)).map(|cli| cli.args);
        parsed.map_err(|error| complaint(&error, &words).unwrap())
    }

    #[test]
    fn flags_are_known_by_all_their_names() {
        let args = parse(
            "some/model --max_num_seqs=8 -tp 1 --max-num-b 2k --trust_remote_code --no-enable-log-requests -sc=None",
        );
        let args = args.unwrap();
        assert_eq!((args.max_num_seqs, args.max_num_batched_tokens), (Some(8), Some(2000)));
        assert_eq!(parse("m --port 8001 --port 8002").unwrap().port, 8002, "the last one counts");
        let named = parse("--model other --served-model-name x").unwrap();
        assert_eq!((named.model(), named.served_name()), ("other", "x"));
    }

    #[test]
    fn mistakes_are_told_in_vllms_words() {
        for (line, says) in [
            ("m --max-num-sqes 8", "usage: vllm [-h] [-v]\nvllm: error: unrecognized arguments: --max-num-sqes 8"),
            ("m --max-num-seqs abc", "vllm serve: error: argument --max-num-seqs: invalid int value: 'abc'"),
            ("m --gpu-memory-utilization x", "argument --gpu-memory-utilization: invalid float value: 'x'"),
            (
                "m --kv-cache-memory-bytes 1.5G",
                "argument --kv-cache-memory-bytes: invalid human_readable_int value: '1.5G'",
            ),
            (
                "m --max-num-s 8",
                "vllm serve: error: ambiguous option: --max-num-s could match --max-num-scheduled-tokens, --max-num-seqs",
            ),
            ("m --port", "vllm serve: error: argument --port: expected one argument"),
            ("m -tp 2", "argument --tensor-parallel-size: the simulated engine knows 1 alone, not '2'"),
            ("m --quantization fp8", "argument --quantization: the simulated engine does not know it, and vLLM does"),
            ("m -O3", "argument --optimization-level: the simulated engine does not know it, and vLLM does"),
            ("m --no-enable-chunked-prefill", "argument --no-enable-chunked-prefill: the simulated engine does not"),
            (
                "m --speculative-config {x",
                "argument --speculative-config: Value {x cannot be converted to <function loads",
            ),
            (
                "m --speculative-config.method ngram",
                "argument --speculative-config.method: the simulated engine does not",
            ),
        ] {
            let error = parse(line).map(|_| ()).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn sglang_has_its_own_flags_and_words() {
        let line = "--sim-dialect sglang --model-path m --max-running-requests 8 --chunked-prefill-size=512 --enable-metrics \
                    --mem-fraction-static 0.7 --disable-radix-cache --schedule-conservativeness 1.2 --port 8001";
        let args = parse(line).unwrap();
        assert_eq!((args.max_num_seqs, args.max_num_batched_tokens, args.port), (Some(8), Some(512), 8001));
        assert_eq!((args.gpu_memory_utilization, args.prefix_caching(), args.model()), (Some(0.7), false, "m"));
        for (more, says) in [
            ("--max-num-seqs 8", "launch_server.py: error: unrecognized arguments: --max-num-seqs"),
            (
                "--max-running-requests x",
                "launch_server.py: error: argument --max-running-requests: invalid int value: 'x'",
            ),
        ] {
            let error = parse(&format!("--sim-dialect sglang {more}")).map(|_| ()).unwrap_err();
            assert!(error.contains(says), "{more}: {error}");
        }
        let words: Vec<OsString> =
            "autotune sim-engine --sim-dialect sglang --help".split(' ').map(OsString::from).collect();
        let known = autotune_plan::engine::KnownFlags::of_help(
            &whole_help(&words).unwrap(),
            &autotune_plan::settings::OUR_FLAGS,
        )
        .unwrap();
        assert!(known.refuses("mem-fraction-static").is_none() && known.refuses("max-num-seqs").is_some());
    }

    #[test]
    fn a_worker_with_tensorrt_llm_has_its_own_flags_and_words() {
        let share = "--trtllm.kv_cache_config.free_gpu_memory_fraction 0.5";
        let args =
            parse(&format!("-m dynamo.trtllm --model-path m --trtllm.max_batch_size 8 {share} --publish-metrics"))
                .unwrap();
        assert_eq!((args.sim_dialect, args.max_num_seqs, args.sim_metrics), (SimDialect::Trtllm, Some(8), true));
        let (memory, flags) = (args.sim_profile.memory, args.flags());
        let bytes = flags.kv_cache_memory_bytes.unwrap();
        assert!(bytes > 0 && bytes < (memory.total - memory.weights) / 2, "of what is free: {bytes}");
        let frontend = parse("-m dynamo.frontend --router-mode kv --no-router-kv-events").unwrap();
        assert_eq!(frontend.sim_dialect, SimDialect::Frontend, "its knobs are passed over");
        for (more, says) in [
            ("--max-num-seqs 8", "unrecognized arguments: --max-num-seqs"),
            ("--trtllm.max_batch_size x", "error: argument --trtllm.max_batch_size: invalid int value: 'x'"),
        ] {
            let error = parse(&format!("-m dynamo.trtllm {more}")).map(|_| ()).unwrap_err();
            assert!(error.contains(says), "{more}: {error}");
        }
        let help = |line: &str| whole_help(&line.split(' ').map(OsString::from).collect::<Vec<_>>()).unwrap();
        let known = |line: &str| autotune_plan::engine::KnownFlags::of_help(&help(line), &["help"]).unwrap();
        let worker = known("autotune sim-engine -m dynamo.trtllm --help");
        assert!(worker.refuses("trtllm.max_batch_size").is_none() && worker.refuses("max-num-seqs").is_some());
        assert!(known("autotune sim-engine -m dynamo.frontend --help").refuses("router-mode").is_none());
    }

    #[test]
    fn no_flag_is_invented() {
        let command = SimArgs::augment_args(Command::new("sim-engine"));
        for name in command.get_arguments().filter_map(|arg| arg.get_long()).filter(|name| !name.starts_with("sim-")) {
            assert!(VLLM_FLAGS.lines().any(|flag| flag == name), "{name}");
        }
    }
}
