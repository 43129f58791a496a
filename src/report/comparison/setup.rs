//! What the two sides say they run: what differs and what does not.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::engine::effective::Effective;

/// What a side says of itself, by name.
pub type Facts = BTreeMap<String, String>;

/// The model with the length that it serves, the engine's version and cache, and each flag in force.
pub fn facts(model: &str, longest: Option<i64>, effective: &Effective) -> Facts {
    // Every launch has a port of its own.
    let values = effective.values.iter().filter(|(flag, _)| *flag != "port");
    let mut facts: Facts = values.map(|(flag, value)| (flag.clone(), value.to_string())).collect();
    facts.insert("model".to_owned(), model.to_owned());
    facts.extend(longest.map(|longest| ("max-model-len".to_owned(), longest.to_string())));
    facts.extend(effective.version.clone().map(|version| ("engine version".to_owned(), version)));
    facts.extend(effective.kv_cache_tokens.map(|tokens| ("KV cache tokens".to_owned(), tokens.to_string())));
    facts
}

/// Something that the sides say differently; `None` if a side does not tell it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Differing {
    pub name: String,
    pub a: Option<String>,
    pub b: Option<String>,
}

impl Differing {
    /// What differs, and the names of what does not.
    pub(super) fn between([a, b]: [&Facts; 2]) -> (Vec<Self>, Vec<String>) {
        let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        let (same, differs): (Vec<&String>, Vec<&String>) =
            names.into_iter().partition(|name| a.get(*name) == b.get(*name));
        let differing = |name: &String| Self { name: name.clone(), a: a.get(name).cloned(), b: b.get(name).cloned() };
        (differs.into_iter().map(differing).collect(), same.into_iter().cloned().collect())
    }
}
