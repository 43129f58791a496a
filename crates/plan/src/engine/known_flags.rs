//! The flags that an engine lists in its help, and what it makes of a word that names none of them.

use std::collections::BTreeSet;

use super::dialects::{Dialect, FRONTEND};
use crate::settings::closest;

/// Descriptions stand further to the right: they may begin with a flag, too.
const DESCRIPTIONS_FROM: usize = 10;

/// The long flags that an engine takes, without their dashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFlags(BTreeSet<String>);

/// Why an engine does not take a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has none of this name; the one that may be meant.
    Unknown(Option<String>),
    /// The word begins several flags.
    Ambiguous(Vec<String>),
    /// The word begins this flag only: Python's argparse takes it, and whoever compares names does not.
    Short(String),
}

impl KnownFlags {
    /// Those of a help text, as Python's argparse or clap writes it. `None` if it lacks one of `needed`, such as those that every launch
    /// sets. It is then the help of another program, or a part of the help.
    pub fn of_help(help: &str, needed: &[&str]) -> Option<Self> {
        let mut known = BTreeSet::new();
        for line in help.lines() {
            let says = line.trim_start();
            if !says.starts_with('-') || line.len() - says.len() >= DESCRIPTIONS_FROM {
                continue;
            }
            // What follows two spaces is the description.
            for spelling in says.split("  ").next().unwrap_or_default().split(", ") {
                let name = spelling.strip_prefix("--").and_then(|name| name.split([' ', '=', '[', '.']).next());
                known.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
            }
        }
        needed.iter().all(|flag| known.contains(*flag)).then_some(Self(known))
    }

    /// These, and those of another program.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Those that the frontend of a graph has in the release whose flags are listed here.
    pub fn of_frontend() -> Self {
        Self(FRONTEND.lines().map(str::to_owned).collect())
    }

    /// Those of the release whose flags are listed here.
    pub fn of(dialect: &dyn Dialect) -> Self {
        Self(dialect.flags().lines().map(str::to_owned).collect())
    }

    /// Why a flag without its dashes is not taken, or not by its own name; `None` if it is.
    pub fn refuses(&self, flag: &str) -> Option<Refusal> {
        // What follows a dot is a key inside of a JSON argument.
        let name = flag.split('.').next().unwrap_or_default().replace('_', "-");
        match meant(&name, self.0.iter().map(String::as_str)).as_slice() {
            [flag] => (*flag != name).then(|| Refusal::Short((*flag).to_owned())),
            [] => Some(Refusal::Unknown(closest(&name, self.0.iter().map(String::as_str)).map(str::to_owned))),
            several => Some(Refusal::Ambiguous(several.iter().map(|flag| format!("--{flag}")).collect())),
        }
    }
}

/// The known flags that a name without its dashes means to Python's argparse: the one of that name, or else all that begin with it.
pub fn meant<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone) -> Vec<&'k str> {
    match known.clone().find(|flag| *flag == name) {
        Some(flag) => vec![flag],
        None => known.filter(|flag| !name.is_empty() && flag.starts_with(name)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::dialects::vllm::{FLAGS, Vllm};
    use super::*;
    use crate::settings::OUR_FLAGS;

    /// Two sections of `vllm serve --help=all` of vLLM 0.32.0, and its last lines.
    const HELP: &str = include_str!("../../../../tests/data/vllm/help.txt");

    #[test]
    fn the_flags_of_a_help_are_read_in_all_their_names() {
        let known = KnownFlags::of_help(HELP, &OUR_FLAGS).unwrap();
        let unknown = |flag: &str| known.refuses(flag);
        for flag in ["max-num-seqs", "max_num_seqs", "no-async-scheduling", "tensor-parallel-size", "port"] {
            assert_eq!(unknown(flag), None, "{flag}");
        }
        assert_eq!(unknown("max-num-b"), Some(Refusal::Short("max-num-batched-tokens".to_owned())));
        assert_eq!(unknown("max-num-sqes"), Some(Refusal::Unknown(Some("max-num-seqs".to_owned()))));
        assert_eq!(unknown("quantum-entanglement"), Some(Refusal::Unknown(None)));
        assert_eq!(unknown(""), Some(Refusal::Unknown(None)));
        let Some(Refusal::Ambiguous(several)) = unknown("max-num") else { panic!("{:?}", unknown("max-num")) };
        assert!(several.contains(&"--max-num-seqs".to_owned()), "{several:?}");
        // The description of --grpc begins a line with --port, and that of --help has an example.
        for flag in &known.0 {
            let listed = FLAGS.lines().any(|line| line == flag);
            assert!(listed || ["help", "json-arg"].contains(&flag.as_str()), "{flag}");
        }
    }

    #[test]
    fn a_help_without_the_flags_of_every_launch_is_not_the_engines() {
        for other in [
            "",
            "usage: vllm [-h] [-v] {chat,serve} ...\n\noptions:\n  -h, --help  show this help\n",
            // Dynamo's worker has no server of its own.
            "options:\n  --max-num-seqs N\n  --namespace NAME\n",
            "Parameters matching 'all':\n\n  --allow-credentials\n  --port PORT\n",
            "The engine listens on\n                        --host and\n                        --port PORT\n",
        ] {
            assert_eq!(KnownFlags::of_help(other, &OUR_FLAGS), None, "{other}");
        }
        let clap = "Options:\n  -H, --host <HOST>  Where\n      --port <PORT>\n          Port\n      --level[=<N>]\n";
        let known = KnownFlags::of_help(clap, &OUR_FLAGS).unwrap();
        assert_eq!(known.0.iter().map(String::as_str).collect::<Vec<_>>(), ["host", "level", "port"]);
    }

    #[test]
    fn the_list_of_vllm_0_32_knows_switches_turned_off() {
        let known = KnownFlags::of(&Vllm);
        assert_eq!(known.refuses("no-enable-prefix-caching"), None);
        assert_eq!(known.refuses("speculative-config.num_speculative_tokens"), None);
        assert!(matches!(known.refuses("num-scheduler-steps"), Some(Refusal::Unknown(_))));
    }
}
