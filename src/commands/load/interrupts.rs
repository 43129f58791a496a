//! What is said when a signal ends measurements early.

use super::super::{Failed, complain, exit};

pub(in crate::commands) fn in_a_level() {
    complain("interrupted: what was measured so far follows, marked partial (interrupt again to leave this level out)");
}

pub(in crate::commands) fn before_anything() -> Failed {
    Failed { code: exit::INTERRUPTED, message: "interrupted before anything was measured".into() }
}

pub(in crate::commands) fn before_the_end() -> Failed {
    Failed { code: exit::INTERRUPTED, message: "interrupted: not all levels were measured to their end".into() }
}
