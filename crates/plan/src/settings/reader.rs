//! Reads a table of the parse tree as its row in [`super::format`] describes it, and reports whatever does not fit.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::format::{Kind, Need, Table, Variant};
use super::lengths::Lengths;
use super::reading::{Reading, read};
use super::search::StrategyKind;
use super::suggest;
use super::workload::Endpoint;
use crate::problems::{self, Problem};
use crate::space::Value;
use autotune_records::units::Rate;

/// Where a table stands: its dotted path, such as `engine`, and the bytes to point at where something is missing from
/// it.
pub struct Place<'p> {
    pub path: &'p str,
    /// The name of the table in the file.
    pub span: Range<usize>,
}

/// The values of a table that fit their kinds, given or by default. A getter gives `None` for what is absent or was
/// refused.
#[derive(Default)]
pub struct Fields(BTreeMap<&'static str, (Reading, Range<usize>)>);

impl Fields {
    fn reading(&self, name: &str) -> Option<&Reading> {
        self.0.get(name).map(|(reading, _)| reading)
    }

    /// Where the value stands; `None` also for a default.
    pub fn span(&self, name: &str) -> Option<Range<usize>> {
        self.0.get(name).map(|(_, span)| span.clone()).filter(|span| !span.is_empty())
    }

    /// The value of a key as the type that its kind stands for.
    pub fn get<T: FromReading>(&self, name: &str) -> Option<T> {
        T::of(self.reading(name))
    }

    /// A word as the variant of an enumeration that serialises to it.
    pub fn word<'a, W: serde::Deserialize<'a>>(&'a self, name: &str) -> Option<W> {
        read_word(self.reading(name)?)
    }

    /// A list of strings with their places.
    pub fn texts(&self, name: &str) -> Option<&[(String, Range<usize>)]> {
        if let Reading::Texts(texts) = self.reading(name)? { Some(texts) } else { None }
    }

    /// A list of integers that fit the wanted type, with their places.
    pub fn integers<I: TryFrom<i64>>(&self, name: &str) -> Option<Vec<(I, Range<usize>)>> {
        let Reading::Integers(integers) = self.reading(name)? else { return None };
        integers.iter().map(|(integer, span)| Some((I::try_from(*integer).ok()?, span.clone()))).collect()
    }

    /// One value of a parameter.
    pub fn value(&self, name: &str) -> Option<&Value> {
        if let Reading::Value(value) = self.reading(name)? { Some(value) } else { None }
    }

    /// Values of a parameter with their places.
    pub fn values(&self, name: &str) -> Option<&[(Value, Range<usize>)]> {
        if let Reading::Values(values) = self.reading(name)? { Some(values) } else { None }
    }
}

fn read_word<'a, W: serde::Deserialize<'a>>(reading: &'a Reading) -> Option<W> {
    let Reading::Word(word) = reading else { return None };
    let deserializer: StrDeserializer<'a, WordError> = word.as_str().into_deserializer();
    W::deserialize(deserializer).ok()
}

/// The type of a field of a plan.
pub trait FromReading: Sized {
    /// `None` for what is absent, was refused, or is of another type.
    fn of(reading: Option<&Reading>) -> Option<Self>;
}

/// `Some(None)` for a key that is absent or was refused. A refused one has been reported, which refuses the whole plan.
impl<T: FromReading> FromReading for Option<T> {
    fn of(reading: Option<&Reading>) -> Option<Self> {
        Some(T::of(reading))
    }
}

macro_rules! from_reading {
    ($($type:ty: $reading:pat => $value:expr),* $(,)?) => {
        $(impl FromReading for $type {
            fn of(reading: Option<&Reading>) -> Option<Self> {
                if let $reading = reading? { $value } else { None }
            }
        })*
    };
}

from_reading! {
    String: Reading::Text(text) => Some(text.clone()),
    PathBuf: Reading::Text(text) => Some(text.into()),
    Vec<String>: Reading::Texts(texts) => Some(texts.iter().map(|(text, _)| text.clone()).collect()),
    BTreeMap<String, String>: Reading::TextTable(table) => Some(table.clone()),
    bool: Reading::Switch(on) => Some(*on),
    u16: Reading::Integer(integer) => Self::try_from(*integer).ok(),
    u32: Reading::Integer(integer) => Self::try_from(*integer).ok(),
    u64: Reading::Integer(integer) => Self::try_from(*integer).ok(),
    f64: Reading::Real(real) => Some(*real),
    Rate: Reading::Real(real) => Some(Self(*real)),
    Duration: Reading::Time(time) => Some(*time),
    Lengths: Reading::Lengths(lengths) => Some(lengths.clone()),
    Endpoint: word @ Reading::Word(_) => read_word(word),
    StrategyKind: word @ Reading::Word(_) => read_word(word),
}

/// A key with its value, as parsed.
pub type Entry<'e, 't> = (&'e str, Range<usize>, &'e Spanned<DeValue<'t>>);

/// The entries of a table in the order of the file; the parser sorts them by name.
pub fn in_order<'e, 't>(table: &'e DeTable<'t>) -> Vec<Entry<'e, 't>> {
    let mut entries: Vec<Entry> =
        table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value)).collect();
    entries.sort_by_key(|(_, span, _)| span.start);
    entries
}

/// Reads a table: unknown keys, keys of another variant, wrong values and missing keys are reported, defaults filled
/// in.
pub fn fields(table: &'static Table, place: &Place, found: &DeTable, problems: &mut Vec<Problem>) -> Fields {
    let variant = variant(table, found);
    let mut fields = Fields::default();
    let mut slips = Vec::new();
    for (name, span, value) in in_order(found) {
        let mut rows = table.keys().filter(|key| key.name == name).peekable();
        let Some(any) = rows.peek().copied() else {
            slips.extend(suggest::closest(name, table.names(variant)));
            problems.push(unknown_key(table, variant, place, name, &span));
            continue;
        };
        let row = match variant {
            None => any,
            Some(variant) => match rows.find(|key| key.applies(Some(variant))) {
                Some(row) => row,
                None => {
                    problems.push(foreign_key(table, variant, any.name, place, &span));
                    continue;
                }
            },
        };
        if let Some(reading) = read(&row.kind, &format!("{}.{name}", place.path), value, problems) {
            fields.0.insert(row.name, (reading, value.span()));
        }
    }
    let mut missing = Vec::new();
    for row in table.keys().filter(|key| key.applies(variant) && !found.contains_key(key.name)) {
        match row.need {
            // A misspelt key is one mistake, not two.
            Need::Required if slips.contains(&row.name) => {}
            Need::Required => missing.push(row),
            Need::Optional => {}
            Need::Default(toml) => {
                let reading = DeValue::parse(toml).ok().and_then(|value| read(&row.kind, row.name, &value, problems));
                if let Some(reading) = reading {
                    fields.0.insert(row.name, (reading, 0..0));
                }
            }
        }
    }
    if let Some(first) = missing.first() {
        let names = problems::list(missing.iter().map(|row| row.name), "and");
        let example = match &first.kind {
            kind @ Kind::Word(_) => kind.expects(),
            kind => kind.example(),
        };
        let mut hint = format!("add `{} = {example}`: {}", first.name, lower(first.doc));
        if let Variant::Presence { key, without, .. } = table.variant
            && variant == Some(without)
        {
            hint = format!("give `min`, `max` and `step`, or list the choices with `{key} = [...]`");
        }
        problems.push(Problem::new(&place.span, format!("`{}` lacks {names}", place.path), "incomplete", hint));
    }
    fields
}

fn variant(table: &'static Table, found: &DeTable) -> Option<&'static str> {
    match table.variant {
        Variant::None => None,
        Variant::Presence { key, with, without } => Some(if found.contains_key(key) { with } else { without }),
        Variant::Word(decider) => {
            let given = found.get(decider)?.get_ref().as_str()?;
            table.words().iter().copied().find(|word| *word == given)
        }
    }
}

fn unknown_key(table: &Table, variant: Option<&str>, place: &Place, name: &str, span: &Range<usize>) -> Problem {
    let known = table.names(variant);
    let hint = suggest::closest(name, known.iter().copied())
        .map(|near| format!("did you mean `{near}`?"))
        .or_else(|| suggest::home(name).map(|section| format!("`{name}` belongs to `[{section}]`")))
        .unwrap_or_else(|| format!("`{}` takes {}", place.path, problems::list(known, "and")));
    Problem::new(span, format!("unknown key `{name}` in `{}`", place.path), "unknown", hint)
}

fn foreign_key(table: &Table, variant: &str, name: &str, place: &Place, span: &Range<usize>) -> Problem {
    let owners = || table.keys().filter(|row| row.name == name).flat_map(|row| row.variants).copied();
    let owner = problems::join(owners().map(|owner| format!("\"{owner}\"")), "or");
    match table.variant {
        Variant::Presence { key, .. } => Problem::new(
            span,
            format!("`{}` has both `{key}` and `{name}`", place.path),
            format!("does not go with `{key}`"),
            format!("either list the choices with `{key}`, or give `min`, `max` and `step`"),
        ),
        Variant::Word(decider) => Problem::new(
            span,
            format!("`{name}` belongs to `{decider} = {owner}`"),
            format!("but `{decider}` is \"{variant}\""),
            format!("remove `{name}`, or set `{decider} = {owner}`"),
        ),
        // Without a decider no row belongs to a variant.
        Variant::None => unknown_key(table, None, place, name, span),
    }
}

/// The documentation's sentence as a fragment that can stand after a colon.
fn lower(sentence: &str) -> String {
    let mut letters = sentence.trim_end_matches('.').chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::engine::ENGINE;
    use super::super::engine_kind::EngineKind;
    use super::super::search::SEARCH;
    use super::super::workload::WORKLOAD;
    use super::*;

    #[test]
    fn every_word_is_known_to_the_plan() {
        fn known<W: for<'a> serde::Deserialize<'a>>(table: &Table, name: &str) {
            for word in table.keys().filter(|key| key.name == name).flat_map(|key| key.kind.words()) {
                let mut fields = Fields::default();
                fields.0.insert("word", (Reading::Word((*word).to_owned()), 0..0));
                assert!(fields.word::<W>("word").is_some(), "{word}");
            }
        }
        known::<EngineKind>(&ENGINE, "kind");
        known::<Endpoint>(&WORKLOAD, "endpoint");
        known::<StrategyKind>(&SEARCH, "strategy");
    }
}
