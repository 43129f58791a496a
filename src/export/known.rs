//! What starts an engine in a script, and the variables that a known preset expands.

use super::flags::is_placeholder;
use super::shell_lexer::{Command, commands};
use super::text::Layer;
use crate::engine::programs::{Engine, basename, engine_in};

/// Shells whose option `-c` takes a script.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "zsh", "ksh"];

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
    fn a_script_stands_behind_the_options_of_a_shell() {
        assert_eq!(script_of(&["bash", "-lc", "--", "x"]), Some(3));
        assert_eq!(script_of(&["bash", "-eo", "pipefail", "-c", "x"]), Some(4));
        assert_eq!(script_of(&["bash", "--norc", "-O", "extglob", "+x", "-c", "x"]), Some(6));
        assert_eq!(script_of(&["/bin/sh", "/run.sh", "-c"]), None);
        assert_eq!((script_of(&["bash", "-c"]), awaits_script(&["bash", "-c"])), (None, Some(2)));
    }
}
