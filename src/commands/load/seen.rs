//! What one level says of each limit.

use crate::levels::LimitSeen;
use crate::verdict::{LimitResult, Verdict};

/// The error of a margin whose own is not known.
const UNKNOWN_ERROR: f64 = 0.3;

/// What a verdict says of each limit; `failed` where the queue grew or too many requests failed.
pub(in crate::commands) fn seen(verdict: &Verdict, failed: bool) -> Vec<LimitSeen> {
    let broken = |l: &LimitResult| l.broken() || l.margin.is_some_and(|m| m > 0.0);
    // A queue that grows, or failures, break the limit that is nearest to it, unless one is broken already.
    let blamed = (failed || verdict.saturated) && !verdict.limits.iter().any(broken);
    let each = verdict.limits.iter().map(|limit| match (limit.margin, limit.margin_error) {
        _ if blamed && Some(&limit.key) == verdict.binding.as_ref() => LimitSeen::Broken,
        (Some(margin), error) => LimitSeen::Margin(margin, error.unwrap_or(UNKNOWN_ERROR)),
        (None, _) if limit.broken() => LimitSeen::Broken,
        (None, _) => LimitSeen::Unknown,
    });
    each.collect()
}
