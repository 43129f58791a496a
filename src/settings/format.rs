//! The format of the space file: every section and key, once. The reader and the JSON schema are both made from these
//! tables.
//!
//! The tables are kept from the formatter, so that one knob stays one line.

use crate::units::MOST_TOKENS;

/// One `[section]` of the file.
pub struct Section {
    /// Its name, without brackets.
    pub name: &'static str,
    /// What it is for, in one sentence.
    pub doc: &'static str,
    /// Whether a file without it is incomplete.
    pub required: bool,
    pub content: Content,
}

/// What stands in a section.
pub enum Content {
    Keys(&'static Table),
    /// Latency limits, such as `ttft_p99`.
    Limits,
    /// Parameters, each named as a flag of the engine.
    Parameters,
}

/// The keys of a section or of an inline table.
pub struct Table {
    /// What decides which of its keys apply.
    pub variant: Variant,
    /// The keys in the order of the documentation. A key may have several rows, one for each variant.
    pub keys: &'static [Key],
}

/// What decides which keys of a table apply.
pub enum Variant {
    None,
    /// The word that this key holds.
    Word(&'static str),
    /// The variant `with` where this key is present, and `without` where it is not.
    Presence {
        key: &'static str,
        /// The variant where it is present.
        with: &'static str,
        /// The variant where it is absent.
        without: &'static str,
    },
}

pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether it must be given.
    pub need: Need,
    /// The variants that it belongs to; empty for all.
    pub variants: &'static [&'static str],
    /// What it is for, in one sentence.
    pub doc: &'static str,
}

/// Whether a key must be given.
pub enum Need {
    Required,
    /// It need not; the default is written as a user would write it, in TOML.
    Default(&'static str),
    /// It need not, and its absence has a meaning of its own, which the sentence tells.
    Optional,
}

/// The values that a key takes.
pub enum Kind {
    Word(&'static [&'static str]),
    /// One string that is not empty, such as the path of a file.
    Text,
    /// A list of strings with at least this many elements.
    Texts {
        at_least: usize,
    },
    TextTable,
    Switch,
    /// An integer within bounds, both included.
    Integer {
        min: i64,
        max: i64,
    },
    /// A list of integers within bounds, both included.
    Integers {
        min: i64,
        max: i64,
    },
    /// A finite number greater than zero.
    Positive,
    /// A percentage such as `"3%"` or a fraction such as `0.03`, within bounds, both included.
    Share {
        min: f64,
        max: f64,
    },
    /// A duration such as `"10s"`.
    Time {
        zero: bool,
    },
    /// Token counts: an integer or a distribution, see [`LENGTHS`].
    Lengths,
    Number,
    /// One value of a parameter.
    Value,
    Values,
}

/// The most values that a parameter may have.
pub const MOST_VALUES: usize = 10_000;

const TOKENS: i64 = MOST_TOKENS as i64;
const TOKEN_COUNT: Kind = Kind::Integer { min: 1, max: TOKENS };
/// Each of them is held in memory.
const COUNT: Kind = Kind::Integer { min: 1, max: 1_000_000 };
const POSITIVE_TIME: Kind = Kind::Time { zero: false };

/// Every section, in the order of the documentation.
#[rustfmt::skip]
pub static SECTIONS: &[Section] = &[
    Section { name: "slo", required: true, content: Content::Limits, doc: "The latency promises: a limit for a quantile of a metric, such as `ttft_p99 = \"1s\"`." },
    Section { name: "engine", required: true, content: Content::Keys(&ENGINE), doc: "How the engine is started and watched." },
    Section { name: "workload", required: true, content: Content::Keys(&WORKLOAD), doc: "What is asked of the engine." },
    Section { name: "parameters", required: true, content: Content::Parameters, doc: "What is tuned: flags of the engine without their dashes, and `env.NAME` for variables of its environment." },
    Section { name: "search", required: false, content: Content::Keys(&SEARCH), doc: "How the space is searched." },
    Section { name: "probe", required: false, content: Content::Keys(&PROBE), doc: "The lengths of a probe." },
    Section { name: "budget", required: false, content: Content::Keys(&BUDGET), doc: "What the search may cost." },
];

#[rustfmt::skip]
pub static ENGINE: Table = Table {
    variant: Variant::Word("kind"),
    keys: &[
        Key::required("kind", Kind::Word(&["vllm", "sglang", "dynamo", "simulated"]), "Which engine is tuned."),
        Key::required("command", Kind::Texts { at_least: 1 }, "The program and its leading words.").of(&["vllm", "sglang"]),
        Key::default("command", Kind::Texts { at_least: 0 }, "[]", "The program; empty for the embedded engine.").of(&["simulated"]),
        Key::default("command", Kind::Texts { at_least: 1 }, "[\"python3\"]", "The Python that has Dynamo.").of(&["dynamo"]),
        Key::required("backend", Kind::Word(&["mocker", "vllm", "sglang", "trtllm"]), "The engine of each worker: `python3 -m dynamo.BACKEND`.").of(&["dynamo"]),
        Key::default("workers", Kind::Integer { min: 1, max: 64 }, "1", "How many workers the frontend routes to.").of(&["dynamo"]),
        Key::default("frontend_args", Kind::Texts { at_least: 0 }, "[]", "Arguments of `python3 -m dynamo.frontend` that are the same for every trial; `args` are those of each worker.").of(&["dynamo"]),
        Key::default("args", Kind::Texts { at_least: 0 }, "[]", "Arguments that are the same for every trial."),
        Key::default("env", Kind::TextTable, "{}", "Environment variables that are added to ours."),
        Key::optional("port", Kind::Integer { min: 1, max: 65_535 }, "A fixed port; without it each launch takes a free one."),
        Key::default("start_timeout", POSITIVE_TIME, "\"10m\"", "How long a start may take."),
        Key::default("stall_timeout", POSITIVE_TIME, "\"20s\"", "How long no token may arrive while requests wait."),
        Key::default("stop_timeout", POSITIVE_TIME, "\"15s\"", "How long the engine may take to end before it is killed."),
        Key::default("start_estimate", POSITIVE_TIME, "\"60s\"", "What a start is expected to take, until one was measured.").of(&["vllm", "sglang", "dynamo"]),
        Key::default("start_estimate", POSITIVE_TIME, "\"1s\"", "What a start is expected to take, until one was measured.").of(&["simulated"]),
        Key::default("live", Kind::Switch, "true", LIVE).of(&["vllm"]),
        Key::default("live", Kind::Switch, "false", LIVE).of(&["simulated"]),
    ],
};

const LIVE: &str = "Whether the search changes the limits of a running engine instead of launching it for each point; the best point is launched for its proof.";
const ENDPOINT: Kind = Kind::Word(&["completions", "chat"]);
const ARRIVALS: Kind = Kind::Word(&["poisson", "gamma", "constant"]);
const RECORDED_ARRIVALS: Kind = Kind::Word(&["poisson", "gamma", "constant", "recorded"]);

#[rustfmt::skip]
pub static WORKLOAD: Table = Table {
    variant: Variant::Word("kind"),
    keys: &[
        Key::required("kind", Kind::Word(&["random", "conversations", "sharegpt", "jsonl", "trace"]), "Independent requests, conversations that resend their history, or requests from a file."),
        Key::required("file", Kind::Text, "The file with a ShareGPT list; a relative path counts from the folder of this space file.").of(&["sharegpt"]),
        Key::required("file", Kind::Text, "The file with one request a line; a relative path counts from the folder of this space file.").of(&["jsonl"]),
        Key::required("file", Kind::Text, "The file with one arrival a line; a relative path counts from the folder of this space file.").of(&["trace"]),
        Key::default("endpoint", ENDPOINT, "\"completions\"", "The HTTP endpoint that carries the load.").of(&["random", "trace"]),
        Key::default("endpoint", ENDPOINT, "\"chat\"", "The HTTP endpoint that carries the load.").of(&["conversations", "sharegpt", "jsonl"]),
        Key::default("ignore_eos", Kind::Switch, "true", "Whether every answer has exactly the drawn length."),
        Key::default("arrivals", ARRIVALS, "\"poisson\"", "How requests arrive at a rate.").of(&["random", "conversations", "sharegpt", "jsonl"]),
        Key::default("arrivals", RECORDED_ARRIVALS, "\"recorded\"", "How requests arrive at a rate; `recorded` keeps the file's own times, faster or slower.").of(&["trace"]),
        Key::optional("burstiness", Kind::Positive, "The shape of `arrivals = \"gamma\"`: 1 is as bursty as Poisson, lower is burstier, higher is smoother."),
        Key::required("input_tokens", Kind::Lengths, "Tokens of a prompt, without the shared prefix.").of(&["random"]),
        Key::default("shared_prefix_tokens", Kind::Integer { min: 0, max: TOKENS }, "0", "Tokens that prompts of the same prefix begin with.").of(&["random"]),
        Key::default("shared_prefixes", COUNT, "1", "How many different shared prefixes there are.").of(&["random"]),
        Key::required("starters", COUNT, "How many different documents conversations start from.").of(&["conversations"]),
        Key::required("starter_tokens", Kind::Lengths, "Tokens of a starter.").of(&["conversations"]),
        Key::required("turns", Kind::Integer { min: 1, max: 10_000 }, "Turns of every conversation; of recorded dialogues the most of each, and with 1 the first question alone.").of(&["conversations"]),
        Key::default("turns", Kind::Integer { min: 1, max: 10_000 }, "1", "Turns of every conversation; of recorded dialogues the most of each, and with 1 the first question alone.").of(&["sharegpt"]),
        Key::required("question_tokens", Kind::Lengths, "Tokens that the user adds in each turn.").of(&["conversations"]),
        Key::required("output_tokens", Kind::Lengths, "Tokens of an answer.").of(&["random", "conversations"]),
        Key::optional("output_tokens", Kind::Lengths, "Tokens of an answer; without it those of the answers in the file.").of(&["sharegpt"]),
        Key::optional("output_tokens", Kind::Lengths, "Tokens of an answer, for lines that do not say.").of(&["jsonl"]),
        Key::default("think_time", Kind::Time { zero: true }, "\"0s\"", "Time between an answer and the next turn.").of(&["conversations", "sharegpt"]),
        Key::default("block_tokens", TOKEN_COUNT, "512", "Tokens that one of the file's hash ids stands for.").of(&["trace"]),
        Key::default("time_unit", POSITIVE_TIME, "\"1ms\"", "What one unit of the file's `timestamp` is.").of(&["trace"]),
    ],
};

/// The table of a distribution of token counts.
#[rustfmt::skip]
pub static LENGTHS: Table = Table {
    variant: Variant::Word("distribution"),
    keys: &[
        Key::required("distribution", Kind::Word(&["uniform", "normal", "lognormal", "histogram"]), "The shape of the distribution."),
        Key::required("mean", Kind::Positive, "Mean in tokens.").of(&["normal"]),
        Key::required("sd", Kind::Positive, "Standard deviation in tokens.").of(&["normal"]),
        Key::required("median", Kind::Positive, "Median in tokens.").of(&["lognormal"]),
        Key::required("sigma", Kind::Positive, "Standard deviation of the logarithm.").of(&["lognormal"]),
        Key::required("edges", Kind::Integers { min: 1, max: TOKENS }, "Where bins begin, ascending, and where the last one ends, itself included.").of(&["histogram"]),
        Key::required("counts", Kind::Integers { min: 0, max: u32::MAX as i64 }, "The weight of each bin: one number fewer than `edges`.").of(&["histogram"]),
        Key::default("min", TOKEN_COUNT, "1", "The smallest count; smaller draws are raised to it.").of(&["uniform", "normal", "lognormal"]),
        Key::required("max", TOKEN_COUNT, "The largest count; larger draws are lowered to it.").of(&["uniform", "normal", "lognormal"]),
    ],
};

#[rustfmt::skip]
pub static PARAMETER: Table = Table {
    variant: Variant::Presence { key: "values", with: "values", without: "range" },
    keys: &[
        Key::required("values", Kind::Values, "The values to choose from, all of one kind.").of(&["values"]),
        Key::required("min", Kind::Number, "The smallest value.").of(&["range"]),
        Key::required("max", Kind::Number, "No value is larger.").of(&["range"]),
        Key::optional("step", Kind::Number, "The distance between values; 1 for integers, required for reals.").of(&["range"]),
        Key::optional("default", Kind::Value, "The baseline's value; without it the running engine tells its own."),
        Key::optional("when", Kind::Text, "The condition under which the parameter exists, such as \"speculative-config != off\"; without one it always does."),
    ],
};

/// The words of [`super::StrategyKind`].
const STRATEGIES: &[&str] = &["bayes", "bisect"];

#[rustfmt::skip]
pub static SEARCH: Table = Table {
    variant: Variant::None,
    keys: &[
        Key::default("strategy", Kind::Word(STRATEGIES), "\"bayes\"", "How points are proposed: by a model, or without one by bisection."),
        Key::default("precision", Kind::Share { min: 0.001, max: 0.5 }, "\"3%\"", "To which standard error the limit in rate shall be known."),
        Key::default("min_gain", Kind::Share { min: 0.0, max: 0.5 }, "\"1%\"", "How much more than the incumbent a candidate must promise."),
        Key::default("candidates", Kind::Integer { min: 1, max: 10_000 }, "24", "At most this many candidates are launched."),
        Key::optional("first_rate", Kind::Positive, "The first rate at the baseline in requests per second; without it the warm-up tells."),
        Key::default("seed", Kind::Integer { min: 0, max: i64::MAX }, "1", "The seed of every draw."),
        Key::default("constraints", Kind::Texts { at_least: 0 }, "[]", "Comparisons between parameters that every point keeps; with `or` between some, one of them is enough."),
    ],
};

#[rustfmt::skip]
pub static PROBE: Table = Table {
    variant: Variant::None,
    keys: &[
        Key::default("ramp", Kind::Time { zero: true }, "\"10s\"", "Traffic before anything counts."),
        Key::default("window", POSITIVE_TIME, "\"60s\"", "The time whose arrivals count."),
        Key::optional("certify_window", POSITIVE_TIME, "The window of a certifying probe; without it three times `window`."),
        Key::default("twin", Kind::Switch, "true", "Whether a model of the engine, fitted to the probes, takes the luck of their arrivals out; without it violations are counted."),
    ],
};

#[rustfmt::skip]
pub static BUDGET: Table = Table {
    variant: Variant::None,
    keys: &[Key::default("gpu_time", POSITIVE_TIME, "\"90m\"", "How long engines may be up in all, starts and stops included.")],
};

impl Key {
    const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, kind, need: Need::Required, variants: &[], doc }
    }

    const fn default(name: &'static str, kind: Kind, toml: &'static str, doc: &'static str) -> Self {
        Self { name, kind, need: Need::Default(toml), variants: &[], doc }
    }

    const fn optional(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, kind, need: Need::Optional, variants: &[], doc }
    }

    const fn of(mut self, variants: &'static [&'static str]) -> Self {
        self.variants = variants;
        self
    }

    pub fn applies(&self, variant: Option<&str>) -> bool {
        self.variants.is_empty() || variant.is_some_and(|variant| self.variants.contains(&variant))
    }
}

impl Table {
    /// The names of the keys that apply in a variant; of all keys where the variant is not known.
    pub fn names(&self, variant: Option<&str>) -> Vec<&'static str> {
        let mut names = Vec::new();
        for key in self.keys {
            if (variant.is_none() || key.applies(variant)) && !names.contains(&key.name) {
                names.push(key.name);
            }
        }
        names
    }

    /// The words of the key that decides between variants.
    pub fn words(&self) -> &'static [&'static str] {
        let Variant::Word(decider) = self.variant else { return &[] };
        self.keys.iter().find(|key| key.name == decider).map_or(&[], |key| key.kind.words())
    }
}

impl Kind {
    /// The allowed words, if it takes words.
    pub fn words(&self) -> &'static [&'static str] {
        if let Self::Word(words) = self { words } else { &[] }
    }

    /// What it takes, as it would end "write …".
    pub fn expects(&self) -> String {
        match self {
            Self::Word(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                words.join(" or ")
            }
            Self::Text => "a string in quotes".into(),
            Self::Texts { .. } => "a list of strings, such as [\"one\", \"two\"]".into(),
            Self::TextTable => "a table of strings, such as { NAME = \"1\" }".into(),
            Self::Switch => "true or false, without quotes".into(),
            Self::Integer { min, max } => format!("an integer from {min} to {max}"),
            Self::Integers { min, max } => format!("a list of integers from {min} to {max}, such as [1, 128, 512]"),
            Self::Positive => "a number greater than 0".into(),
            Self::Share { min, max } => format!("a percentage from \"{}%\" to \"{}%\"", min * 100.0, max * 100.0),
            Self::Time { .. } => "a number and a unit (us, ms, s, m or h), such as \"10s\" or \"1h30m\"".into(),
            Self::Lengths => format!(
                "an integer from 1 to {MOST_TOKENS}, or a distribution such as {{ distribution = \"uniform\", min = 10, max = 20 }}"
            ),
            Self::Number => "an integer or a real number".into(),
            Self::Value => "an integer, a real number, a string, true or false".into(),
            Self::Values => "a list of values, such as [1, 2, 4]".into(),
        }
    }

    /// A value that it takes, in TOML, for remedies of missing keys.
    pub fn example(&self) -> String {
        match self {
            Self::Word(words) => words.first().map(|word| format!("\"{word}\"")).unwrap_or_default(),
            Self::Text => "\"requests.jsonl\"".into(),
            Self::Texts { .. } => "[\"vllm\", \"serve\", \"MODEL\"]".into(),
            Self::TextTable => "{ NAME = \"1\" }".into(),
            Self::Switch => "true".into(),
            Self::Integer { min, .. } => min.max(&8).to_string(),
            Self::Integers { .. } => "[1, 128, 512]".into(),
            Self::Positive | Self::Number | Self::Value => "1".into(),
            Self::Share { .. } => "\"3%\"".into(),
            Self::Time { .. } => "\"10s\"".into(),
            Self::Lengths => "256".into(),
            Self::Values => "[1, 2, 4]".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_documented_in_a_sentence() {
        for table in [&ENGINE, &WORKLOAD, &LENGTHS, &PARAMETER, &SEARCH, &PROBE, &BUDGET] {
            for key in table.keys {
                assert!(key.doc.ends_with('.'), "{}", key.name);
            }
        }
        assert!(SECTIONS.iter().all(|section| section.doc.ends_with('.')));
    }

    #[test]
    fn every_variant_is_a_word_of_its_decider() {
        for table in [&ENGINE, &WORKLOAD, &LENGTHS] {
            for variant in table.keys.iter().flat_map(|key| key.variants) {
                assert!(table.words().contains(variant), "{variant}");
            }
        }
    }
}
