//! Warnings about sources: each sentence once, with the sources it concerns.

use super::configuration::{KV_TOKENS, Resolved};
use super::evidence::Evidence;
use crate::twin::Profile;

/// Warnings about sources, each once with all whom it concerns.
#[derive(Default)]
pub(super) struct Warnings(Vec<(String, Vec<String>)>);

impl Warnings {
    pub(super) fn add(&mut self, what: &str, source: &str) {
        match self.0.iter_mut().find(|(said, _)| said == what) {
            Some((_, sources)) if sources.iter().any(|other| other == source) => {}
            Some((_, sources)) => sources.push(source.to_owned()),
            None => self.0.push((what.to_owned(), vec![source.to_owned()])),
        }
    }

    pub(super) fn lines(self) -> Vec<String> {
        self.0.into_iter().map(|(what, sources)| format!("{what} ({})", sources.join(", "))).collect()
    }
}

/// Adds the limits that only the base profile knows.
pub(super) fn assume(resolved: &Resolved, assumed: &mut Vec<String>) {
    let limit = |(flag, value): &(&str, u64)| format!("{flag} {value}");
    let mut what: Vec<String> = resolved.from_base.iter().map(limit).collect();
    if resolved.bounds.kv_tokens.is_none() {
        what.push(format!("no {KV_TOKENS}, so that the cache bounds nothing"));
    }
    what.retain(|what| !assumed.contains(what));
    assumed.extend(what);
}

pub(super) fn say_assumed(assumed: &[String], base: Option<&Profile>, evidence: &Evidence, warnings: &mut Warnings) {
    if !assumed.is_empty() {
        let whose = base.map_or(String::new(), |base| format!(" of {}", base.name));
        warnings.add(&format!("assumed: {}{whose}", assumed.join(", ")), &evidence.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_said_once_with_all_whom_it_concerns() {
        let mut warnings = Warnings::default();
        for (what, source) in [("of chats", "a"), ("failed", "a"), ("of chats", "b"), ("of chats", "a")] {
            warnings.add(what, source);
        }
        assert_eq!(warnings.lines(), ["of chats (a, b)", "failed (a)"]);
    }
}
