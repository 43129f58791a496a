//! What a benchmark says when a signal ends it early.

use super::super::{Failed, complain, exit};

pub(super) fn in_a_level() {
    complain("interrupted: what was measured so far follows, marked partial (interrupt again to leave this level out)");
}

pub(super) fn before_anything() -> Failed {
    Failed { code: exit::INTERRUPTED, message: "interrupted before anything was measured".into() }
}

pub(super) fn before_the_end() -> Failed {
    Failed { code: exit::INTERRUPTED, message: "interrupted: not all levels were measured to their end".into() }
}
