//! Variables of the engine's environment that were tuned, where a manifest has a list or a mapping of them.

use super::flags::{Setting, is_placeholder};
use super::locate::Located;
use super::render::{Entry, append_items, indent_of, insert_at, insert_entry, list_indent, remove_item, scalar, step};
use super::source::{Document, Format};
use super::text::Edit;
use super::yaml::{Kind, Meaning, Node, Path, Step, Style};
use crate::engine::{is_left_out, spelt, variable};
use crate::problems::Problem;

use super::arguments::Written;

/// A variable, and its value unless it has to go.
struct Wanted<'s> {
    name: &'s str,
    value: Option<String>,
}

/// Where a variable is set already.
struct Place<'m> {
    list: Path,
    item: Path,
    /// What holds the value; none where it comes from elsewhere.
    value: Option<&'m Node>,
    index: Option<usize>,
    /// Whether name and value are one text, `NAME=value`.
    joined: bool,
}

/// Sets the variables among the settings for an engine, one after the other in each list.
///
/// # Errors
/// Where there is no place for one, or one is given in a way that cannot be changed.
pub fn write(document: Document<'_>, engine: &Located<'_>, settings: &[Setting]) -> Result<Written, Problem> {
    let (mut written, mut new) = (Written::default(), Vec::new());
    for setting in settings {
        let Some(name) = variable(&setting.name) else { continue };
        let value = (!is_left_out(&setting.value)).then(|| spelt(&setting.value));
        let wanted = Wanted { name, value };
        let refused = |says: String, at: std::ops::Range<usize>| {
            let hint = match &wanted.value {
                Some(value) => format!("set {name}={value} for this engine by hand, and export again"),
                None => format!("remove {name} by hand, and export again"),
            };
            Problem::new(&at, says, "here", hint)
        };
        let near = engine.arguments.first().map_or(0..0, |place| place.span(0));
        if let Some(there) = started(document, engine).into_iter().find_map(|text| given(text, name)) {
            if wanted.value.as_deref() == Some(there) {
                continue;
            }
            return Err(refused(format!("the script sets {name} itself, to `{there}`"), near));
        }
        let places = places(document, engine, name);
        match (&places[..], &wanted.value) {
            ([], None) => {}
            ([], Some(_)) if engine.location.env.is_empty() || document.source.format != Format::Yaml => {
                return Err(refused(format!("{} has no place for the variable {name}", engine.location.name), near));
            }
            ([], Some(value)) => new.push((name, value.clone())),
            ([place], _) => {
                let cannot = || {
                    let says = format!("{name} is given in a way that cannot be changed");
                    refused(says, document.root().at(&place.item).map_or(near.clone(), |node| node.span.clone()))
                };
                written = written.and(change(document, place, &wanted).ok_or_else(cannot)?);
            }
            ([_, second, ..], _) => {
                let at = document.root().at(&second.item).map_or(near, |node| node.span.clone());
                return Err(refused(format!("{name} is set twice"), at));
            }
        }
    }
    let nowhere = || {
        let says =
            format!("the variables of {} cannot be changed without changing something else", engine.location.name);
        Problem::new(&(0..0), says, "", "write them as a plain list of names and values")
    };
    if new.is_empty() { Ok(written) } else { add(document, engine, &new, written).ok_or_else(nowhere) }
}

/// The texts of what the engine is started with: of a script or a unit, the whole file.
fn started<'m>(document: Document<'m>, engine: &Located<'_>) -> Vec<&'m str> {
    if document.source.format != Format::Yaml {
        return vec![&document.source.text];
    }
    let paths = [&engine.location.command, &engine.location.args].into_iter().flatten();
    let meanings = paths.filter_map(|path| document.meaning.at(path));
    meanings
        .flat_map(|meaning| match meaning {
            Meaning::List(items) => items.iter().filter_map(Meaning::text).collect(),
            one => one.text().into_iter().collect::<Vec<_>>(),
        })
        .collect()
}

/// The value that a script gives a variable, without quotes.
fn given<'t>(script: &'t str, name: &str) -> Option<&'t str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let assigns = |at: &usize| !script[..*at].chars().next_back().is_some_and(is_word);
    let values = script.match_indices(name).map(|(at, _)| at).filter(assigns);
    let value = values.filter_map(|at| script[at + name.len()..].strip_prefix('=')).last()?;
    let value = value.trim_start_matches(['"', '\'']);
    Some(&value[..value.find(|c: char| c.is_whitespace() || "\"';&|".contains(c)).unwrap_or(value.len())])
}

fn places<'m>(document: Document<'m>, engine: &Located<'_>, name: &str) -> Vec<Place<'m>> {
    let mut found = Vec::new();
    for list in &engine.location.env {
        let Some(node) = document.root().at(list) else { continue };
        for (index, item) in node.items().iter().enumerate() {
            let joined = item.text().and_then(|text| text.split_once('=')).is_some_and(|(of, _)| of == name);
            if joined || item.get("name").and_then(Node::text) == Some(name) {
                let value = if joined { Some(item) } else { item.get("value") };
                found.push(Place { list: list.clone(), item: list.item(index), value, index: Some(index), joined });
            }
        }
        if let Some((_, value)) = node.entries().iter().find(|(key, _)| key.text() == Some(name)) {
            let item = list.literal_key(name);
            found.push(Place { list: list.clone(), item, value: Some(value), index: None, joined: false });
        }
    }
    found
}

fn change(document: Document<'_>, place: &Place<'_>, wanted: &Wanted<'_>) -> Option<Written> {
    let source = document.source;
    let Some(value) = &wanted.value else {
        let (index, list) = (place.index?, document.root().at(&place.list)?);
        let Some(Meaning::List(mut items)) = document.meaning.at(&place.list).cloned() else { return None };
        items.remove(index);
        let edits = vec![remove_item(source, list, index)?];
        return Some(Written { edits, meanings: vec![(place.list.clone(), Meaning::List(items))] });
    };
    let node = place.value?;
    let text = if place.joined { format!("{}={value}", wanted.name) } else { value.clone() };
    if node.text()? == text {
        return Some(Written::default());
    }
    let style = node.style().filter(|_| !is_placeholder(source.raw(node)))?;
    let style = if matches!(style, Style::Literal | Style::Folded) { return None } else { style };
    let path = if place.joined || place.index.is_none() { place.item.clone() } else { place.item.key("value") };
    let edit = Edit::replace(node.span.clone(), scalar(&text, style, in_flow(document, &place.list)));
    Some(Written { edits: vec![edit], meanings: vec![(path, Meaning::quoted(text))] })
}

fn in_flow(document: Document<'_>, list: &Path) -> bool {
    document.root().at(list).is_some_and(Node::is_flow)
}

/// Adds variables that are not there, behind what was changed already.
fn add(document: Document<'_>, engine: &Located<'_>, new: &[(&str, String)], written: Written) -> Option<Written> {
    let (source, root) = (document.source, document.root());
    let all = &engine.location.env;
    let there = |path: &&Path| root.at(path).is_some_and(|node| !node.is_nothing());
    let at = all.iter().find(there).or(all.first())?;
    let node = root.at(at).filter(|node| !node.is_nothing());
    // Docker Compose has a mapping, or texts `NAME=value`; all others have names and values.
    let is_mapping = match node.map(|node| &node.kind) {
        Some(Kind::Mapping { .. }) => true,
        Some(_) => false,
        None => matches!(at.0.last(), Some(Step::Key(key)) if key == "environment"),
    };
    let mut meaning = document.meaning.at(at).cloned();
    for (path, changed) in &written.meanings {
        match path.0.strip_prefix(&at.0[..]) {
            Some([]) => meaning = Some(changed.clone()),
            Some(inner) => drop(meaning.as_mut()?.set(inner, changed.clone())),
            None => {}
        }
    }
    let quoted = |text: &str| Entry::Scalar(scalar(text, Style::Double, false));
    let plain = |text: &str| Entry::Scalar(scalar(text, Style::Plain, false));
    if is_mapping {
        let entries = new.iter().map(|(name, value)| ((*name).to_owned(), quoted(value)));
        let edits: Vec<Edit> = match node {
            Some(map) => {
                // Entries of one place stand behind each other.
                let edits = entries.map(|(name, value)| insert_entry(source, root, map, &name, &value));
                edits.collect::<Option<_>>()?
            }
            None => vec![insert_at(source, root, at, Entry::Map(entries.collect()))?],
        };
        let mut all = match meaning {
            Some(Meaning::Map(entries)) => entries,
            _ => Vec::new(),
        };
        let means = |(name, value): &(&str, String)| (Meaning::plain(*name), Meaning::quoted(value.clone()));
        all.extend(new.iter().map(means));
        return Some(written.and(Written { edits, meanings: vec![(at.clone(), Meaning::Map(all))] }));
    }
    let texts = node.is_some_and(|list| !list.items().is_empty() && list.items().iter().all(|i| i.text().is_some()));
    let entry = |(name, value): &(&str, String)| match texts {
        true => plain(&format!("{name}={value}")),
        false => Entry::Map(vec![("name".to_owned(), plain(name)), ("value".to_owned(), quoted(value))]),
    };
    let means = |(name, value): &(&str, String)| match texts {
        true => Meaning::quoted(format!("{name}={value}")),
        false => Meaning::Map(vec![
            (Meaning::plain("name"), Meaning::quoted(*name)),
            (Meaning::plain("value"), Meaning::quoted(value.clone())),
        ]),
    };
    let edits = match node.filter(|list| !list.items().is_empty()) {
        Some(list) => {
            let start = format!("{}{}", source.line_end(), indent_of(source, list));
            let item = |entry: Entry| match list.is_flow() {
                true => entry.flow(),
                false => entry.item(&start, list_indent(source, root), &step(source, root)),
            };
            append_items(source, list, &[new.iter().map(|new| item(entry(new))).collect()])?
        }
        None => vec![insert_at(source, root, at, Entry::List(new.iter().map(entry).collect()))?],
    };
    let mut items = match meaning {
        Some(Meaning::List(items)) => items,
        _ => Vec::new(),
    };
    items.extend(new.iter().map(means));
    Some(written.and(Written { edits, meanings: vec![(at.clone(), Meaning::List(items))] }))
}
