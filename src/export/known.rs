//! What starts an engine: programs, Python modules, images, and the variables that a known preset expands.

use super::engine::Engine;
use super::flags::is_placeholder;
use super::shell_lexer::{Command, commands};
use super::text::Layer;

/// Shells whose option `-c` takes a script.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "zsh", "ksh"];

/// Python modules that `python -m` runs as a server.
const MODULES: [(&str, Engine); 8] = [
    // vllm/entrypoints/openai/api_server.py and vllm/entrypoints/api_server.py.
    ("vllm.entrypoints.openai.api_server", Engine::Vllm),
    ("vllm.entrypoints.api_server", Engine::Vllm),
    // Dynamo's workers: components/src/dynamo/{vllm,sglang,trtllm}.
    ("dynamo.vllm", Engine::Vllm),
    ("dynamo.sglang", Engine::Sglang),
    ("dynamo.trtllm", Engine::TensorRtLlm),
    // KServe's python/huggingfaceserver, whose default backend is vLLM.
    ("huggingfaceserver", Engine::Vllm),
    ("sglang.launch_server", Engine::Sglang),
    ("tensorrt_llm.commands.serve", Engine::TensorRtLlm),
];

/// Images by the last part of their name, and whether their entry point serves with the arguments of the container.
const IMAGES: [(&str, Engine, bool); 7] = [
    // vLLM's docker/Dockerfile and docker/Dockerfile.cpu: the entry point is `vllm serve`.
    ("vllm-openai", Engine::Vllm, true),
    ("vllm-cpu", Engine::Vllm, true),
    ("vllm", Engine::Vllm, true),
    // Dynamo's container/: a shell is the entry point.
    ("vllm-runtime", Engine::Vllm, false),
    ("sglang-runtime", Engine::Sglang, false),
    ("tensorrtllm-runtime", Engine::TensorRtLlm, false),
    ("sglang", Engine::Sglang, false),
];

/// The variable that KServe's preset puts behind `vllm serve`: config/llmisvcconfig/config-llm-template.yaml and its siblings. The preset of
/// KServe 0.16 has none.
pub const KSERVE_ARGS: &str = "VLLM_ADDITIONAL_ARGS";

/// The words of a command, with those behind a redirection.
pub fn texts_of(command: &Command) -> Vec<String> {
    command.words.iter().chain(&command.behind).map(|w| w.text().to_owned()).collect()
}

/// An engine that a script starts, perhaps in a script within the script.
pub struct Start {
    /// The inner scripts, each in a word of the one before.
    pub layers: Vec<Layer>,
    /// The commands of the innermost script.
    pub commands: Vec<Command>,
    /// The engine's command among them.
    pub index: usize,
    pub engine: Engine,
    /// The first word that may be an argument.
    pub first: usize,
    /// What follows the command in the innermost script.
    pub after: String,
}

impl Start {
    pub fn command(&self) -> &Command {
        &self.commands[self.index]
    }
}

/// The engines that the commands of a script start: one, or the first ones of several.
pub fn starts(script: &str, parsed: &[Command]) -> Vec<Start> {
    let mut found = Vec::new();
    for (index, command) in parsed.iter().enumerate() {
        if found.len() > 1 {
            break;
        }
        let words = texts_of(command);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let Some(inner) = script_of(&words).and_then(|at| command.words.get(at)) {
            let within = commands(inner.text()).map_or_else(|_| Vec::new(), |parsed| starts(inner.text(), &parsed));
            found.extend(within.into_iter().map(|mut start| {
                start.layers.insert(0, inner.layer.clone());
                start
            }));
        } else if let Some((engine, first)) = engine_in(&words) {
            let end = command.words.iter().chain(&command.behind).map(|word| word.range.end).max().unwrap_or(0);
            let after = script.get(end..).unwrap_or_default().to_owned();
            found.push(Start { layers: Vec::new(), commands: parsed.to_vec(), index, engine, first, after });
        }
    }
    found
}

/// The engine that a whole script starts.
pub fn engine_of_script(script: &str) -> Option<Engine> {
    starts(script, &commands(script).ok()?).first().map(|start| start.engine)
}

/// Whether a script starts a program of the engine's image that serves nothing: a benchmark, a worker of Ray.
pub fn runs_another_program(script: &str) -> bool {
    let other = |words: &[String]| {
        words.windows(2).any(|pair| match (basename(&pair[0]), pair[1].as_str()) {
            ("vllm", next) => next != "serve",
            ("ray", next) => next == "start",
            // The script of vLLM's own image that joins or heads a cluster of Ray.
            ("multi-node-serving.sh", _) => true,
            _ => false,
        })
    };
    commands(script).is_ok_and(|commands| commands.iter().any(|command| other(&texts_of(command))))
}

/// Which word is a shell's script: the first behind the options, if one of them is `-c`.
pub fn script_of(words: &[&str]) -> Option<usize> {
    awaits_script(words).filter(|at| *at < words.len())
}

/// Where a shell among these words takes its script from, which may be behind them.
pub fn awaits_script(words: &[&str]) -> Option<usize> {
    let shell = words.iter().position(|word| SHELLS.contains(&basename(word)))?;
    let (mut takes_script, mut at) = (false, shell + 1);
    while let Some(word) = words.get(at) {
        match word.strip_prefix(['-', '+']) {
            None => break,
            Some("" | "-") => {
                at += 1;
                break;
            }
            Some(long) if long.starts_with('-') => {}
            Some(letters) => {
                takes_script |= letters.contains('c') && word.starts_with('-');
                // `-o pipefail` and `-O extglob` have a value.
                at += usize::from(letters.ends_with(['o', 'O']));
            }
        }
        at += 1;
    }
    takes_script.then_some(at)
}

pub fn basename(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Programs that only speak of what stands behind them.
pub const SPEAK: [&str; 4] = ["echo", "printf", "pkill", "pgrep"];

/// The engine that words start, and the first word that may be an argument; not where they only speak of it.
pub fn engine_in(words: &[&str]) -> Option<(Engine, usize)> {
    let (engine, first) = engine_at(words)?;
    let speaks = words.iter().take(first).any(|word| SPEAK.contains(&basename(word)) || word.ends_with(':'));
    (!speaks).then_some((engine, first))
}

pub fn engine_at(words: &[&str]) -> Option<(Engine, usize)> {
    words.iter().enumerate().find_map(|(i, word)| {
        let engine = match (basename(word), words.get(i + 1).copied().unwrap_or_default()) {
            ("vllm", "serve") | ("autotune", "sim-engine") => Engine::Vllm,
            ("sglang", "serve") => Engine::Sglang,
            ("-m", "vllm.entrypoints.cli.main") if words.get(i + 2) == Some(&"serve") => {
                return Some((Engine::Vllm, i + 3));
            }
            ("-m", module) => MODULES.iter().find(|(name, _)| *name == module)?.1,
            ("trtllm-serve", _) => return Some((Engine::TensorRtLlm, i + 1)),
            ("docker" | "podman" | "nerdctl", "run") => return in_container(words, i + 2),
            _ => return None,
        };
        Some((engine, i + 2))
    })
}

/// The engine that `docker run` starts: the words behind the image are the container's, and go to its entry point.
fn in_container(words: &[&str], options: usize) -> Option<(Engine, usize)> {
    let (at, (_, engine, serves)) = words
        .iter()
        .enumerate()
        .skip(options)
        .find_map(|(at, word)| Some((at, image_row(word).filter(|_| is_image(word))?)))?;
    let behind = &words[at + 1..];
    let another = words[options.min(at)..at].iter().any(|word| word.starts_with("--entrypoint"));
    if let Some((engine, first)) = engine_at(behind) {
        return Some((engine, at + 1 + first));
    }
    (*serves && !another).then_some((*engine, at + 1))
}

/// Whether a word names an image with its repository, and no folder: values of options such as `--name vllm` stand before the image.
pub fn is_image(word: &str) -> bool {
    word.contains('/') && !word.contains(":/") && !word.starts_with(['/', '.', '$'])
}

fn image_row(image: &str) -> Option<&'static (&'static str, Engine, bool)> {
    let name = basename(image.split('@').next()?);
    let name = name.split(':').next().unwrap_or(name);
    IMAGES.iter().find(|(known, ..)| *known == name && !image.starts_with('-'))
}

/// The engine that an image's name says is in it.
pub fn of_image(image: &str) -> Option<Engine> {
    image_row(image).map(|(_, engine, _)| *engine)
}

/// The value of a flag among words, wherever it stands: `--flag value` or `--flag=value`, underscores for dashes; the last one.
pub fn value_of<'w>(words: &'w [String], flag: &str) -> Option<&'w str> {
    let named = |word: &str| word.strip_prefix("--").map(|w| w.replace('_', "-"));
    words.iter().enumerate().rev().find_map(|(i, word)| match word.split_once('=') {
        Some((name, value)) => (named(name)? == flag).then_some(value),
        None => (named(word)? == flag).then(|| words.get(i + 1).map(String::as_str)).flatten(),
    })
}

/// The model that words name: behind `vllm serve`, or with `--model`.
pub fn model_of(words: &[String]) -> Option<&str> {
    let named = || ["model", "model-path", "model-id", "model-dir"].into_iter().find_map(|flag| value_of(words, flag));
    let serve = words.iter().position(|w| w == "serve");
    let positional = serve.and_then(|at| words.get(at + 1)).map(String::as_str).filter(|w| !w.starts_with('-'));
    positional.or_else(named).filter(|model| !is_placeholder(model))
}

/// Whether a text mentions a variable: `$NAME`, `${NAME}` or `$(NAME)`.
pub fn mentions(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].trim_end_matches(['{', '(']);
        let ends = !text[at + name.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        before.ends_with('$') && ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_mentioned_where_something_expands_it() {
        for text in ["vllm $A_ARGS", "x ${A_ARGS:-}", "$(A_ARGS)"] {
            assert!(mentions(text, "A_ARGS"), "{text}");
        }
        assert!(!mentions("vllm $A_ARGS2 A_ARGS", "A_ARGS"));
    }

    #[test]
    fn engines_are_known_by_what_starts_them() {
        let found = |line: &str| engine_in(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(found("exec /usr/bin/vllm serve m"), Some((Engine::Vllm, 3)));
        assert_eq!(found("python3 -m dynamo.trtllm --x"), Some((Engine::TensorRtLlm, 3)));
        assert_eq!(found("python -m vllm.entrypoints.openai.api_server --x"), Some((Engine::Vllm, 3)));
        assert_eq!(found("python3 -m sglang.launch_server --x"), Some((Engine::Sglang, 3)));
        assert_eq!(found("trtllm-serve m"), Some((Engine::TensorRtLlm, 1)));
        assert_eq!(found("trtllm-serve"), Some((Engine::TensorRtLlm, 1)));
        assert_eq!(found("python -m vllm.entrypoints.openai.run_batch --x"), None);
        assert_eq!(found("command: vllm serve m"), None);
        assert_eq!(found("vllm bench serve"), None);
        assert_eq!(found("echo now vllm serve m"), None);
        let run = "docker run --gpus all -p 8000:8000 docker.io/vllm/vllm-openai:v0.24.0 --model m";
        assert_eq!(found(run), Some((Engine::Vllm, 7)));
        assert_eq!(found(&run.replace("--gpus", "--entrypoint")), None);
        assert_eq!(
            found("podman run nvcr.io/nvidia/ai-dynamo/vllm-runtime:1 python3 -m dynamo.vllm"),
            Some((Engine::Vllm, 6))
        );
        assert_eq!(found("docker run nvcr.io/nvidia/ai-dynamo/vllm-runtime:1"), None);
        assert_eq!(script_of(&["bash", "-lc", "--", "x"]), Some(3));
        assert_eq!(script_of(&["bash", "-eo", "pipefail", "-c", "x"]), Some(4));
        assert_eq!(script_of(&["bash", "--norc", "-O", "extglob", "+x", "-c", "x"]), Some(6));
        assert_eq!(script_of(&["/bin/sh", "/run.sh", "-c"]), None);
        assert_eq!((script_of(&["bash", "-c"]), awaits_script(&["bash", "-c"])), (None, Some(2)));
        assert_eq!(of_image("vllm/vllm-openai:v0.24.0"), Some(Engine::Vllm));
        assert_eq!(of_image("lmcache/vllm-router:v1"), None);
    }
}
