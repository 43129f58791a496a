//! Which flag a word names, in every spelling that the engine takes, and what has to change in a list of words.

use std::collections::BTreeSet;

use crate::engine::programs::Engine;
use crate::engine::{Dialect, dialect, is_left_out, spelt, variable};
use crate::settings::EngineKind;
use crate::space::{Value, plain_name};

/// What to give the engine: a flag without its dashes, and its value; a switch is a truth value.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The flag's full name, words joined by `-`.
    pub name: String,
    pub value: Value,
}

impl Setting {
    /// The words that say it: `--name value`, `--name` or `--no-name`.
    pub(super) fn words(&self, glued: bool) -> Vec<String> {
        match &self.value {
            value if is_left_out(value) => Vec::new(),
            value if let Some(name) = variable(&self.name) => vec![format!("{name}={}", spelt(value))],
            Value::Bool(on) => vec![switch(&self.name, *on)],
            value if glued && !self.name.contains('.') => vec![format!("--{}={value}", self.name)],
            value => vec![format!("--{}", self.name), value.to_string()],
        }
    }

    /// The flag as words on a command line say it: a key within a flag has `true` or `false` behind it.
    pub(super) fn in_words(self) -> Self {
        match self.value {
            Value::Bool(on) if self.name.contains('.') => Self { value: Value::Text(on.to_string()), ..self },
            _ => self,
        }
    }

    /// Whether a text means the value already: 0.90 is 0.9.
    pub fn is(&self, text: &str) -> bool {
        match (self.value.number(), text.parse::<f64>()) {
            (Some(wanted), Ok(there)) => Value::Real(there).same(&Value::Real(wanted)),
            _ => self.value.to_string() == text,
        }
    }
}

fn switch(name: &str, on: bool) -> String {
    if on { format!("--{name}") } else { format!("--no-{name}") }
}

/// What a word says of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Says<'w> {
    /// It names another flag, or none.
    Nothing,
    /// It names the flag; the value glued to it, and whether it is `--no-…`.
    Names { value: Option<&'w str>, negated: bool },
    /// It is a beginning of the flag's name and of others: the engine would refuse it.
    Ambiguous(Vec<String>),
}

/// The flag that a word names, in full.
pub(super) fn flag_of(word: &str) -> Option<String> {
    word.strip_prefix("--").map(|w| w.split('=').next().unwrap_or(w).replace('_', "-"))
}

/// The flags that an engine knows.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    known: BTreeSet<String>,
    tuned: BTreeSet<String>,
    kind: EngineKind,
}

impl Flags {
    /// Those of an engine, with some to be set.
    pub fn of<'n>(kind: EngineKind, tuned: impl IntoIterator<Item = &'n str>) -> Self {
        let known = dialect(kind).flags().lines().map(str::to_owned).collect();
        Self { known, tuned: tuned.into_iter().map(str::to_owned).collect(), kind }
    }

    /// The engine that they are of, as manifests name it.
    pub fn engine(&self) -> Engine {
        Engine::of(self.kind)
    }

    pub fn dialect(&self) -> &'static dyn Dialect {
        dialect(self.kind)
    }

    /// Whether what is to be set is said by leaving the flag out.
    fn leave_out(&self, setting: &Setting) -> bool {
        is_left_out(&setting.value)
            || setting.value == Value::Bool(false) && dialect(self.kind).off(&setting.name).is_none()
    }

    /// Whether a flag shall be set.
    pub fn tunes(&self, name: &str) -> bool {
        self.tuned.contains(name)
    }

    /// Whether a word is a flag that shall be set, without a value.
    pub(super) fn names(&self, word: &str) -> bool {
        !word.contains('=') && flag_of(word).is_some_and(|name| self.tunes(&name))
    }

    /// Whether a flag that shall be set stands anywhere in a text.
    pub(super) fn holds(&self, text: &str) -> bool {
        // No flag is longer; without an end, a text of dashes would take as long as itself for each of them.
        const LONGEST: usize = 80;
        let of_flag = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
        let flag = |at: usize| text[at..].chars().take(LONGEST).take_while(of_flag).collect::<String>();
        text.match_indices('-').any(|(at, _)| text[at..].starts_with("--") && self.names(&flag(at)))
    }

    /// Python's argparse as vLLM uses it: underscores are dashes, and a beginning that only one flag has names that flag.
    fn says<'w>(&self, word: &'w str, setting: &Setting) -> Says<'w> {
        let Some(body) = word.strip_prefix("--").filter(|body| !body.is_empty()) else { return Says::Nothing };
        let (written, value) = body.split_once('=').map_or((body, None), |(flag, value)| (flag, Some(value)));
        let written = plain_name(written);
        let (name, negation) = (&setting.name, format!("no-{}", setting.name));
        if &written == name {
            return Says::Names { value, negated: false };
        }
        let is_switch = matches!(setting.value, Value::Bool(_));
        if written == negation && is_switch {
            return Says::Names { value, negated: true };
        }
        if self.known.contains(&written) || written.contains('.') {
            return Says::Nothing;
        }
        let mut meant: BTreeSet<&str> =
            self.known.iter().map(String::as_str).filter(|known| known.starts_with(&written)).collect();
        meant.extend([name.as_str()].into_iter().filter(|n| n.starts_with(&written)));
        meant.extend([negation.as_str()].into_iter().filter(|n| is_switch && n.starts_with(&written)));
        let ours = |n: &&str| *n == name || (is_switch && *n == negation);
        match (meant.len(), meant.iter().find(|n| ours(n))) {
            (1, Some(one)) => Says::Names { value, negated: *one != name },
            (_, Some(_)) => Says::Ambiguous(meant.into_iter().map(str::to_owned).collect()),
            (_, None) => Says::Nothing,
        }
    }
}

/// A word, as far as the plan needs to know it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'w> {
    pub text: &'w str,
    /// Whether something else will stand there when the engine starts: a placeholder, a variable.
    pub placeholder: bool,
}

/// A change of a list of words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The word at an index says something else.
    Set(usize, String),
    /// The word at an index goes.
    Remove(usize),
    /// Words are added, those of one flag together.
    Append(Vec<String>),
}

/// Why a list of words cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The word that is in the way.
    pub word: usize,
    pub says: String,
    pub hint: String,
    /// The placeholder that stands for the value.
    pub placeholder: Option<String>,
}

/// How a list of words says a setting: the words that name it, each with the word that holds its value.
pub fn occurrences(words: &[Seen<'_>], setting: &Setting, flags: &Flags) -> Result<Vec<usize>, Refused> {
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        match flags.says(word.text, setting) {
            Says::Nothing if joined(word.text, setting, flags) => {
                return Err(Refused {
                    word: index,
                    says: format!("`{}` is one word to the engine, which knows no such flag", word.text),
                    hint: "write the flag and its value as two words".to_owned(),
                    placeholder: None,
                });
            }
            Says::Nothing => {}
            Says::Names { .. } => found.push(index),
            Says::Ambiguous(meant) => {
                return Err(Refused {
                    word: index,
                    says: format!("`{}` begins {}, and the engine refuses it", word.text, meant.join(" and ")),
                    hint: "write the flag in full".to_owned(),
                    placeholder: None,
                });
            }
        }
    }
    Ok(found)
}

/// Whether a word is flags and values in one: `"--max-num-seqs 64"`.
fn joined(word: &str, setting: &Setting, flags: &Flags) -> bool {
    let mut parts = word.split_whitespace();
    let begins = |first: &str| first.starts_with("--") && !first.contains('=');
    parts.next().is_some_and(begins)
        && word.contains(char::is_whitespace)
        && word.split_whitespace().any(|part| flags.says(part, setting) != Says::Nothing)
}

/// What has to change so that words say a setting. Of several that name it the last one wins, and is kept; a value that is right already
/// stays as it is written.
pub fn changes(words: &[Seen<'_>], setting: &Setting, flags: &Flags) -> Result<Vec<Change>, Refused> {
    let found = occurrences(words, setting, flags)?;
    if flags.leave_out(setting) {
        return Ok(found.into_iter().flat_map(|index| gone(words, index, setting, flags)).collect());
    }
    let Some((last, doubles)) = found.split_last() else {
        return Ok(vec![Change::Append(setting.words(glued(words)))]);
    };
    let mut changes = Vec::new();
    for &index in doubles {
        changes.extend(gone(words, index, setting, flags));
    }
    changes.extend(set(words, *last, setting, flags)?);
    Ok(changes)
}

/// The flag at an index, with its value, taken away.
fn gone(words: &[Seen<'_>], index: usize, setting: &Setting, flags: &Flags) -> Vec<Change> {
    let value = holds_value(words, index, setting, flags).then_some(Change::Remove(index + 1));
    std::iter::once(Change::Remove(index)).chain(value).collect()
}

fn holds_value(words: &[Seen<'_>], index: usize, setting: &Setting, flags: &Flags) -> bool {
    let separate =
        words.get(index).is_some_and(|w| matches!(flags.says(w.text, setting), Says::Names { value: None, .. }));
    let next = words.get(index + 1).is_some_and(|next| !next.text.starts_with("--"));
    separate && next && !matches!(setting.value, Value::Bool(_))
}

fn set(words: &[Seen<'_>], index: usize, setting: &Setting, flags: &Flags) -> Result<Option<Change>, Refused> {
    let Some(word) = words.get(index) else { return Ok(None) };
    let refused = |word, says, hint: &str| Err(Refused { word, says, hint: hint.to_owned(), placeholder: None });
    let placeholder = |word: usize, text: &str| {
        let says = format!("the value of `--{}` is the placeholder `{text}`", setting.name);
        Err(Refused { word, says, hint: String::new(), placeholder: Some(text.to_owned()) })
    };
    match (flags.says(word.text, setting), &setting.value) {
        (Says::Names { value: None, negated }, Value::Bool(on)) => {
            Ok((negated == *on).then(|| Change::Set(index, switch(&setting.name, *on))))
        }
        (Says::Names { value: Some(_), .. }, Value::Bool(on)) => {
            Ok(Some(Change::Set(index, switch(&setting.name, *on))))
        }
        (Says::Names { value: Some(text), .. }, _) if word.placeholder || is_placeholder(text) => {
            placeholder(index, text)
        }
        (Says::Names { value: Some(""), .. }, _) => {
            refused(index, format!("`{}` has no value", word.text), "give it one, or delete it")
        }
        (Says::Names { value: Some(text), .. }, value) => {
            let flag = word.text.split('=').next().unwrap_or_default();
            Ok((!setting.is(text)).then(|| Change::Set(index, format!("{flag}={value}"))))
        }
        (Says::Names { value: None, .. }, value) => match words.get(index + 1) {
            Some(next) if next.placeholder || is_placeholder(next.text) => placeholder(index + 1, next.text),
            Some(next) if !next.text.starts_with("--") => {
                Ok((!setting.is(next.text)).then(|| Change::Set(index + 1, value.to_string())))
            }
            _ => refused(index, format!("`{}` has no value", word.text), "give it one, or delete it"),
        },
        (Says::Nothing | Says::Ambiguous(_), _) => Ok(None),
    }
}

/// Whether a text stands for another one that is filled in later: `${x}`, `$(X)`, `{{ x }}`, `X_PLACEHOLDER`.
pub fn is_placeholder(text: &str) -> bool {
    text.contains("${")
        || text.contains("$(")
        || text.contains("{{")
        || text.ends_with("_PLACEHOLDER")
        || (text.starts_with('<') && text.ends_with('>'))
        || text.starts_with('$') && text.len() > 1
}

/// Whether most flags with a value are written `--flag=value`.
fn glued(words: &[Seen<'_>]) -> bool {
    let flags = || words.iter().enumerate().filter(|(_, w)| w.text.starts_with("--"));
    let joined = flags().filter(|(_, w)| w.text.contains('=')).count();
    let apart = flags()
        .filter(|(i, w)| !w.text.contains('=') && words.get(i + 1).is_some_and(|next| !next.text.starts_with('-')))
        .count();
    joined > apart
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = [
        "max-num-seqs",
        "max-num-batched-tokens",
        "max-model-len",
        "enable-prefix-caching",
        "no-enable-prefix-caching",
        "gpu-memory-utilization",
    ];

    fn changed(words: &[String], changes: &[Change]) -> Vec<String> {
        let mut result: Vec<Option<String>> = words.iter().cloned().map(Some).collect();
        let mut added = Vec::new();
        for change in changes {
            match change {
                Change::Set(index, text) => result[*index] = Some(text.clone()),
                Change::Remove(index) => result[*index] = None,
                Change::Append(words) => added.extend(words.iter().cloned()),
            }
        }
        result.into_iter().flatten().chain(added).collect()
    }

    fn after(line: &str, name: &str, value: Value) -> Result<String, Refused> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let seen: Vec<Seen> = words.iter().map(|w| Seen { text: w, placeholder: false }).collect();
        let setting = Setting { name: name.to_owned(), value };
        let flags = Flags { known: KNOWN.map(str::to_owned).into(), ..Flags::default() };
        Ok(changed(&words, &changes(&seen, &setting, &flags)?).join(" "))
    }

    #[test]
    fn every_spelling_of_a_flag_is_found_and_kept() {
        let seqs = |line| after(line, "max-num-seqs", Value::Int(64)).unwrap();
        assert_eq!(seqs("m --max-num-seqs 8 --x"), "m --max-num-seqs 64 --x");
        assert_eq!(seqs("m --max_num_seqs=8"), "m --max_num_seqs=64");
        assert_eq!(seqs("m --max-num-s 8"), "m --max-num-s 64");
        assert_eq!(seqs("m --max-num-seqs 8 -x --max-num-seqs=9"), "m -x --max-num-seqs=64");
        assert_eq!(seqs("m --max-num-batched-tokens 8"), "m --max-num-batched-tokens 8 --max-num-seqs 64");
        assert_eq!(seqs("--a=1 --b=2 --c 3"), "--a=1 --b=2 --c 3 --max-num-seqs=64");
        assert_eq!(seqs("--max-num-seqs 064"), "--max-num-seqs 064");
        assert_eq!(
            after("--gpu-memory-utilization 0.90", "gpu-memory-utilization", Value::Real(0.9)).unwrap(),
            "--gpu-memory-utilization 0.90"
        );
    }

    #[test]
    fn switches_have_two_names() {
        let prefix = |line, on| after(line, "enable-prefix-caching", Value::Bool(on)).unwrap();
        assert_eq!(prefix("m --enable-prefix-caching", false), "m --no-enable-prefix-caching");
        assert_eq!(prefix("m --no-enable-prefix-caching x", true), "m --enable-prefix-caching x");
        assert_eq!(prefix("m", true), "m --enable-prefix-caching");
        assert_eq!(prefix("m --enable-prefix-caching", true), "m --enable-prefix-caching");
    }

    #[test]
    fn what_cannot_be_set_is_refused() {
        let seqs = |line| after(line, "max-num-seqs", Value::Int(64)).unwrap_err().says;
        assert!(seqs("--max-num-seqs ${seqs}").contains("${seqs}"));
        assert!(seqs("--max-num-seqs=SEQS_PLACEHOLDER").contains("placeholder"));
        assert!(seqs("--max-num-seqs --x").contains("no value"));
        assert!(seqs("--max-num-seqs= 5").contains("no value"));
        assert!(seqs("--max-num 4").contains("max-num-batched-tokens and max-num-seqs"));
    }
}
