//! Flags of the engine, or their values, that a script keeps in a variable or an array and expands in the engine's command.

use std::ops::Range;

use super::arguments::line::{Home, Kept, Reads};
use super::flags::Flags;
use super::known::{Start, mentions};
use super::shell_lexer::{Command, Word, assigned, split};
use super::text::Layer;
use crate::engine::programs::{SPEAK, basename};

/// Why what a variable holds cannot be edited there, and the place in the innermost script.
pub type NotKept = (Range<usize>, String);

/// A variable that a command gives a value.
struct Assigned<'s> {
    command: usize,
    word: &'s Word,
    name: &'s str,
    /// Where its value begins in the word.
    value: usize,
    /// Whether it has this value from then on, and no other one before.
    plain: bool,
    /// Whether this is added to the value that it has.
    adds: bool,
}

impl Assigned<'_> {
    /// What it is given, as the script says it.
    fn given(&self) -> &str {
        &self.word.text()[self.value..]
    }
}

/// Commands that give variables a value for what follows.
const DECLARE: [&str; 5] = ["export", "declare", "local", "readonly", "typeset"];

fn assignments(commands: &[Command]) -> Vec<Assigned<'_>> {
    let mut found = Vec::new();
    for (index, command) in commands.iter().enumerate() {
        let words = command.words.get(command.reserved..).unwrap_or_default();
        let declares = words.first().is_some_and(|word| DECLARE.contains(&word.text()));
        let words = &words[usize::from(declares)..];
        let is_value = |word: &&Word| assigned(word.text()).is_some();
        // In front of a program, they are for that program alone.
        let prefix = !declares && !words.iter().all(|word| is_value(&word));
        for word in words.iter().take_while(|word| declares || is_value(word)) {
            let Some((name, value)) = assigned(word.text()) else { continue };
            let adds = !prefix && name.ends_with('+');
            let plain = !prefix && !adds;
            found.push(Assigned { command: index, word, name: name.trim_end_matches('+'), value, plain, adds });
        }
    }
    found
}

/// What a whole word expands: a variable or, with `@`, an array; and whether it stands in quotes.
struct Expansion<'w> {
    name: &'w str,
    array: bool,
    quoted: bool,
}

fn expansion(raw: &str) -> Option<Expansion<'_>> {
    let inner = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
    let (quoted, inner) = (inner.is_some(), inner.unwrap_or(raw).strip_prefix('$')?);
    let inner = inner.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(inner);
    let array = inner.strip_suffix("[@]").or_else(|| inner.strip_suffix("[*]").filter(|_| !quoted));
    let name = array.unwrap_or(inner);
    let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.is_empty();
    letters.then_some(Expansion { name, array: array.is_some(), quoted })
}

/// What the engine's command expands of what its script keeps: flags to be set, or their values. `layers` are the texts down to that script.
///
/// # Errors
/// Where such flags stand in a way that does not show what editing them would do.
pub fn kept(start: &Start, layers: &[Layer], wanted: &Flags) -> Result<Vec<Kept>, NotKept> {
    let script = layers.last().map_or("", |layer| layer.text.as_str());
    let engine = start.command();
    let words: Vec<&Word> = engine.words.iter().chain(&engine.behind).collect();
    let all: Vec<Assigned<'_>> =
        assignments(&start.commands).into_iter().filter(|a| a.command != start.index).collect();
    let (mut found, mut names) = (Vec::new(), Vec::new());
    for (index, word) in words.iter().enumerate().skip(start.first) {
        let Some(expansion) = expansion(&script[word.range.clone()]) else { continue };
        let values: Vec<&Assigned<'_>> = all.iter().filter(|a| a.name == expansion.name).collect();
        let flags = values.iter().any(|a| wanted.holds(a.word.text()));
        // The value of a flag, as in `--max-num-seqs "$SEQS"`.
        let value = !flags && wanted.names(words[index - 1].text());
        if !flags && !value {
            continue;
        }
        if let Some(apart) = all.iter().find(|a| a.name == "IFS" && a.plain && !expansion.quoted) {
            return Err((apart.word.range.clone(), "IFS says how words are split".to_owned()));
        }
        match home(start, layers, &values, &expansion, value, wanted) {
            Ok((home, word)) => {
                let closed = script[..word.range.end].ends_with(['"', '\'', ')']);
                // What is added later may belong to its last word.
                found.push(Kept { word: index, home, grows: flags && closed && values.len() == 1, value });
                names.push(expansion.name);
            }
            Err(why) if flags => return Err(why),
            // A placeholder, which is refused where it stands.
            Err(_) => {}
        }
    }
    for one in all.iter().filter(|a| !names.contains(&a.name) && wanted.holds(a.word.text())) {
        let reads = |word: &Word| mentions(word.text(), one.name);
        if words.iter().any(|word| reads(word)) || all.iter().any(|other| reads(other.word)) {
            return Err((one.word.range.clone(), format!("{} is not expanded as a word of its own", one.name)));
        }
    }
    let positional = words.iter().any(|word| matches!(word.text(), "$@" | "${@}" | "$*"));
    for command in start.commands.iter().enumerate().filter(|(index, _)| *index != start.index).map(|(_, c)| c) {
        let texts = || command.words.iter().skip(command.reserved);
        let first = texts().next().map_or("", Word::text);
        let is_function = || start.commands.iter().any(|c| matches!(&c.words[..], [name] if name.text() == first));
        let changes = (positional && (first == "set" || is_function()))
            || matches!(first, ":" | "read" | "eval" | "mapfile" | "readarray");
        if let Some(word) = texts().find(|word| changes && wanted.holds(word.text())) {
            return Err((word.range.clone(), format!("`{first}` puts them there")));
        }
    }
    match words.iter().find(|word| word.expands && !word.text().starts_with("--") && wanted.holds(word.text())) {
        Some(word) => Err((word.range.clone(), "they stand inside of an expansion".to_owned())),
        None => Ok(found),
    }
}

/// Which of the places that give a variable its words has those to be set; a variable that holds one value has only one place.
fn holder<'a, 's>(
    values: &[&'a Assigned<'s>],
    name: &str,
    value: bool,
    wanted: &Flags,
) -> Result<&'a Assigned<'s>, NotKept> {
    let several =
        |one: &Assigned<'_>| Err((one.word.range.clone(), format!("{name} gets its value in several places")));
    let [first, later @ ..] = values else { return Err((0..0, format!("{name} is given no value"))) };
    // A word of an array stays one; words that are added to a text need a gap before them.
    let apart = |one: &Assigned<'_>| match (&first.word.items, &one.word.items) {
        (Some(_), Some(_)) => true,
        (None, None) => one.given().starts_with(char::is_whitespace),
        _ => false,
    };
    if let Some(one) = later.iter().find(|one| value || !one.adds || !apart(one) || speaks_of(one.given(), name)) {
        return several(one);
    }
    let mut holders = values.iter().filter(|one| wanted.holds(one.word.text()));
    let holder = holders.next().unwrap_or(first);
    holders.next().map_or(Ok(holder), |second| several(second))
}

/// Where the words stand that a variable holds, and the word of the script that gives them to it.
fn home<'s>(
    start: &Start,
    layers: &[Layer],
    values: &[&Assigned<'s>],
    expansion: &Expansion<'_>,
    value: bool,
    wanted: &Flags,
) -> Result<(Home, &'s Word), NotKept> {
    let name = expansion.name;
    let no = |word: &Word, says: &str| Err((word.range.clone(), format!("{name} {says}")));
    let one = holder(values, name, value, wanted)?;
    let first = values[0];
    if !first.plain {
        return no(first.word, "is not given one value for all that follows");
    }
    for sure in [first, one] {
        if sure.command > start.index || !start.command().blocks.starts_with(&start.commands[sure.command].blocks) {
            return no(sure.word, "has this value only under a condition, or later");
        }
    }
    for (index, command) in start.commands.iter().enumerate() {
        let texts = || command.words.iter().chain(&command.behind).skip(command.reserved);
        let first = texts().next().map_or("", |word| basename(word.text()));
        let other = |word: &&Word| !values.iter().any(|one| std::ptr::eq(*word, one.word));
        let reads = |word: &&Word| speaks_of(word.text(), name) && !(DECLARE.contains(&first) && word.text() == name);
        let count = texts().filter(other).filter(reads).count();
        let says = SPEAK.contains(&first) && !texts().any(|word| word.text() == "-v");
        let harmless = says || ["[", "[[", "test"].contains(&first);
        if count > usize::from(index == start.index) && !harmless {
            return no(texts().filter(other).find(reads).unwrap_or(one.word), "is read or changed here as well");
        }
    }
    let blank = |word: &Word| word.text().contains(char::is_whitespace);
    let home = match &one.word.items {
        Some(items) if expansion.array => {
            let reads = if expansion.quoted { Reads::Quotes } else { Reads::Plain };
            if !expansion.quoted && items.iter().any(blank) {
                return no(one.word, "is split once more where it has no quotes around it");
            }
            Home::array(layers.to_vec(), items.clone(), reads)
        }
        None if !expansion.array && (!expansion.quoted || value) => {
            Home::assigned(layers.to_vec(), one.word, one.value)
        }
        _ => return no(one.word, "is one word to the engine"),
    };
    if value && home.seen().len() != 1 {
        return no(one.word, "is no single value");
    }
    if home.seen().iter().any(|word| !is_flag(word.text(), wanted)) {
        return no(one.word, "has them inside of an expansion or in quotes");
    }
    Ok((home, one.word))
}

/// Whether a word holds no flag that is to be set, or is one, perhaps with its value.
fn is_flag(word: &str, wanted: &Flags) -> bool {
    !wanted.holds(word) || wanted.names(word.split('=').next().unwrap_or(word))
}

/// Whether a word may read or change a variable: it expands the variable, or says its name where a command could take it as one.
fn speaks_of(word: &str, name: &str) -> bool {
    let arithmetic = word.contains("((");
    word.match_indices(name).any(|(at, _)| {
        let before = word[..at].chars().next_back();
        let apart = |c: char| "${(!#*+=<>,\"' \t\n".contains(c) || (arithmetic && "-/%".contains(c));
        let ends = !word[at + name.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        before.is_none_or(apart) && ends
    })
}

/// The words of a unit's `Environment` that give variables their values: each with its name, and where the value begins.
pub fn environment(commands: &[Command]) -> impl Iterator<Item = (&Word, &str, usize)> {
    commands.iter().flat_map(|command| &command.words).filter_map(|word| {
        let (name, value) = assigned(word.text())?;
        Some((word, name, value))
    })
}

/// Whether commands that systemd starts expand a variable once, into words: as `$NAME` alone, and where a shell reads it as `${NAME}` too.
pub fn splits(commands: &[Command], script: &str, in_shell: bool, name: &str) -> bool {
    let whole = |raw: &str| raw.strip_prefix('$') == Some(name) || (in_shell && raw == format!("${{{name}}}"));
    let words = || commands.iter().flat_map(|c| c.words.iter().chain(&c.behind));
    words().filter(|word| mentions(word.text(), name)).count() == 1
        && words().any(|word| whole(&script[word.range.clone()]))
}

/// Whether the words of a value are flags and values as they stand.
pub fn is_plain(text: &str, wanted: &Flags) -> bool {
    split(text).iter().all(|word| is_flag(word.text(), wanted))
}
