//! For tests: the plan of the quickstart.

use autotune_plan::settings::{Plan, parse};

/// The quickstart's plan with these texts replaced.
pub fn quickstart(changes: &[(&str, &str)]) -> Plan {
    let text = include_str!("../../../search-spaces/quickstart.toml").to_owned();
    let text = changes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in the quickstart");
        text.replace(from, to)
    });
    parse("quickstart.toml", &text).unwrap()
}
