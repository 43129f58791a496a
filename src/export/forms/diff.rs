//! The change as a unified diff, for a review or for `patch`.

use similar::TextDiff;

/// Three lines of context, the file named as `git` does.
pub fn diff(name: &str, before: &str, after: &str) -> String {
    TextDiff::from_lines(before, after)
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{}", name.trim_start_matches('/')), &format!("b/{}", name.trim_start_matches('/')))
        .to_string()
}
