//! The format of the space file: its sections, and what a row of a key says. The reader and the JSON schema are both made from the rows,
//! which stand in the file of their section.

use super::engine::ENGINE;
use super::search::{BUDGET, PROBE, SEARCH};
use super::workload::WORKLOAD;
use autotune_records::units::MOST_TOKENS;

/// One `[section]` of the file.
pub struct Section {
    /// Its name, without brackets.
    pub name: &'static str,
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
    /// The keys in the order of the documentation, in groups. A key may have several rows, one for each variant.
    pub rows: &'static [&'static [Key]],
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

/// A row: one key, in all variants or in some.
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether it must be given.
    pub need: Need,
    /// The variants that it belongs to; empty for all.
    pub variants: &'static [&'static str],
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
    /// Token counts: an integer or a distribution, see [`super::lengths`].
    Lengths,
    Number,
    /// One value of a parameter.
    Value,
    Values,
}

pub const POSITIVE_TIME: Kind = Kind::Time { zero: false };

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

impl Key {
    pub const fn required(kind: Kind) -> Self {
        Self { name: "", kind, need: Need::Required, variants: &[], doc: "" }
    }

    pub const fn default(kind: Kind, toml: &'static str) -> Self {
        Self { need: Need::Default(toml), ..Self::required(kind) }
    }

    pub const fn optional(kind: Kind) -> Self {
        Self { need: Need::Optional, ..Self::required(kind) }
    }

    /// With a sentence of its own in some variants.
    pub const fn says(mut self, doc: &'static str) -> Self {
        self.doc = doc;
        self
    }

    /// With its name, and with this sentence unless it has its own.
    pub const fn named(mut self, name: &'static str, doc: &'static str) -> Self {
        self.name = name;
        if self.doc.is_empty() {
            // A comment begins with a blank.
            self.doc = doc.trim_ascii();
        }
        self
    }

    /// In these variants alone, unless it has some already.
    pub const fn within(mut self, variants: &'static [&'static str]) -> Self {
        if self.variants.is_empty() {
            self.variants = variants;
        }
        self
    }

    pub fn applies(&self, variant: Option<&str>) -> bool {
        self.variants.is_empty() || variant.is_some_and(|variant| self.variants.contains(&variant))
    }
}

impl Table {
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> + use<> {
        self.rows.iter().copied().flatten()
    }

    /// The names of the keys that apply in a variant; of all keys where the variant is not known.
    pub fn names(&self, variant: Option<&str>) -> Vec<&'static str> {
        let mut names = Vec::new();
        for key in self.keys() {
            if (variant.is_none() || key.applies(variant)) && !names.contains(&key.name) {
                names.push(key.name);
            }
        }
        names
    }

    /// The words of the key that decides between variants.
    pub fn words(&self) -> &'static [&'static str] {
        let Variant::Word(decider) = self.variant else { return &[] };
        self.keys().find(|key| key.name == decider).map_or(&[], |key| key.kind.words())
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
pub mod tests {
    use super::super::lengths::LENGTHS;
    use super::super::parameters::PARAMETER;
    use super::*;

    pub const TABLES: [&Table; 7] = [&ENGINE, &WORKLOAD, &LENGTHS, &PARAMETER, &SEARCH, &PROBE, &BUDGET];

    #[test]
    fn every_row_is_documented_in_a_sentence() {
        for key in TABLES.into_iter().flat_map(Table::keys) {
            assert!(!key.name.is_empty() && key.doc.ends_with('.'), "{}", key.name);
        }
        assert!(SECTIONS.iter().all(|section| section.doc.ends_with('.')));
    }

    #[test]
    fn every_variant_is_a_word_of_its_decider() {
        for table in [&ENGINE, &WORKLOAD, &LENGTHS] {
            for variant in table.keys().flat_map(|key| key.variants) {
                assert!(table.words().contains(variant), "{variant}");
            }
        }
    }
}
