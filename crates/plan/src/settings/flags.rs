//! The flags that a space file gives to its engine, with their places.

use std::ops::Range;

use super::engine::ENGINE;
use super::reader;
use super::{Sections, parameters, secrets, syntax};
use crate::engine::variable;
use crate::problems::{Problem, Problems};
use crate::space::{Value, plain_name as flag_name};

/// A flag as a launch writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedFlag {
    /// Without its dashes.
    pub name: String,
    pub span: Range<usize>,
    /// What makes the word none of an engine's flags, whichever engine it is.
    pub joined: bool,
    /// Whether it is tuned, and not fixed.
    pub tuned: bool,
    /// The switch of `[parameters]` whose `false` it is.
    pub off: Option<String>,
}

/// What `fault` finds wrong with the flags of a space file that [`super::parse`] takes. They are those of `engine.args`, those of
/// `[parameters]`, and those of `engine.command` from a word on. `name` is the file's name in the problems.
pub fn faults(
    name: &str,
    text: &str,
    from: usize,
    fault: impl Fn(&UsedFlag) -> Option<(String, String, String)>,
) -> Option<Problems> {
    let found = used(text, from).into_iter().filter_map(|flag| {
        let (message, label, hint) = fault(&flag)?;
        Some(Problem::new(&flag.span, message, label, hint))
    });
    let found: Vec<Problem> = found.collect();
    (!found.is_empty()).then(|| Problems::new(name, &secrets::masked(text), found))
}

/// The engine's program as a problem of a space file that [`super::parse`] takes.
pub fn program_fault(name: &str, text: &str, message: String, hint: String) -> Problems {
    let at = syntax::read(text).ok().and_then(|document| {
        let unseen = &mut Vec::new();
        let sections = Sections::of(text, &document, |_| false, unseen);
        let (place, table) = sections.required("engine")?;
        let fields = reader::fields(&ENGINE, &place, table, unseen);
        fields.texts("command")?.first().map(|(_, span)| span.clone())
    });
    let problem = Problem::new(&at.unwrap_or_default(), message, "cannot be launched", hint);
    Problems::new(name, &secrets::masked(text), vec![problem])
}

fn used(text: &str, from: usize) -> Vec<UsedFlag> {
    let Ok(document) = syntax::read(text) else { return Vec::new() };
    let unseen = &mut Vec::new();
    let sections = Sections::of(text, &document, |_| false, unseen);
    let mut flags = Vec::new();
    if let Some((place, table)) = sections.required("engine") {
        let fields = reader::fields(&ENGINE, &place, table, unseen);
        for (key, skipped) in [("command", from), ("args", 0), ("frontend_args", 0)] {
            let words = fields.texts(key).unwrap_or_default().iter().skip(skipped);
            flags.extend(words.filter_map(|(word, span)| of_word(word, span)));
        }
    }
    if let Some((place, table)) = sections.required("parameters") {
        let known = parameters::read(&place, table, unseen).sound;
        for (key, span, _) in reader::in_order(table) {
            let name = flag_name(key);
            let Some(parameter) = known.iter().find(|p| p.name == name && variable(&p.name).is_none()) else {
                continue;
            };
            // A key within a flag has `false` behind it.
            let off = parameter.values.iter().any(|value| matches!(value, Value::Bool(false)));
            let switch = off && !name.contains('.');
            if switch {
                let (name, off) = (format!("no-{name}"), Some(name.clone()));
                flags.push(UsedFlag { name, span: span.clone(), joined: false, tuned: true, off });
            }
            if !switch || parameter.values.len() > 1 {
                flags.push(UsedFlag { name, span, joined: false, tuned: true, off: None });
            }
        }
    }
    flags
}

/// The flag of a word of a command line. What stands behind `=` is its value, which may be a secret.
fn of_word(word: &str, span: &Range<usize>) -> Option<UsedFlag> {
    let written = word.strip_prefix("--")?.split('=').next()?;
    let name = written.split_whitespace().next()?;
    let joined = written.contains(char::is_whitespace);
    Some(UsedFlag { name: name.to_owned(), span: span.clone(), joined, tuned: false, off: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_a_launch_are_those_of_arguments_and_parameters() {
        let text = r#"
[engine]
kind = "vllm"
command = ["numactl", "--all", "vllm", "serve", "m", "--dtype=auto"]
args = ["--max_model_len", "8192", "-tp", "2", "--seed 1", "--", "--api-key=planted"]
[parameters]
max-num-seqs = { values = [1, 2] }
enforce-eager = { values = [true, false] }
"async_scheduling" = { values = [false] }
"compilation-config.debug" = { values = [false] }
"#;
        let used = used(text, 4);
        let names: Vec<&str> = used.iter().map(|flag| flag.name.as_str()).collect();
        let expected = [
            "dtype",
            "max_model_len",
            "seed",
            "api-key",
            "max-num-seqs",
            "no-enforce-eager",
            "enforce-eager",
            "no-async-scheduling",
            "compilation-config.debug",
        ];
        assert_eq!(names, expected);
        assert_eq!(used.iter().filter(|flag| flag.joined).count(), 1);
        assert_eq!(used[5].off.as_deref(), Some("enforce-eager"));
        assert_eq!(&text[used[0].span.clone()], "\"--dtype=auto\"");
        assert_eq!(&text[used[4].span.clone()], "max-num-seqs");
        let one = faults("space.toml", text, 4, |flag| {
            (flag.name == "api-key").then(|| ("m".to_owned(), "l".to_owned(), "h".to_owned()))
        });
        let shown = one.unwrap().render();
        assert!(shown.contains("space.toml:5") && !shown.contains("planted"), "{shown}");
        assert_eq!(faults("space.toml", text, 4, |_| None), None);
    }
}
