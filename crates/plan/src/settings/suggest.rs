//! "Did you mean": the known word that an unknown one most resembles.

use super::format::{Content, SECTIONS};

/// The candidate that a slip of the keyboard, of case or of `-` for `_` would turn into `word`.
pub fn closest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let plain = |text: &str| text.to_lowercase().replace('_', "-");
    let wanted = plain(word);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&wanted, &plain(candidate)), candidate))
        // A third of the letters may differ; beyond that a suggestion misleads more often than it helps.
        .filter(|(distance, candidate)| *distance <= candidate.len().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The only section that knows a key.
pub fn home(key: &str) -> Option<&'static str> {
    let mut homes = SECTIONS.iter().filter(|section| match section.content {
        Content::Keys(table) => table.keys().any(|row| row.name == key),
        Content::Limits | Content::Parameters => false,
    });
    let first = homes.next()?;
    if homes.next().is_none() { Some(first.name) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let known = ["start_timeout", "stall_timeout", "stop_timeout", "port"];
        assert_eq!(closest("stall-timeout", known), Some("stall_timeout"));
        assert_eq!(closest("Prot", known), Some("port"));
        assert_eq!(closest("temperature", known), None);
    }
}
