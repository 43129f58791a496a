//! Variables of the engine's environment that were tuned, where a manifest has a list or a mapping of them.

use super::flags::{Setting, is_placeholder};
use super::locate::Located;
use super::render::{Entry, edit_items, indent_of, insert_at, list_indent, map_indent, scalar};
use super::source::{Document, Format};
use super::text::Edit;
use super::yaml::{Kind, Meaning, Node, Path, Step, Style};
use crate::engine::{is_left_out, spelt, variable};
use crate::problems::Problem;

use super::arguments::Written;

/// Where a variable is set already.
struct Place<'m> {
    list: Path,
    item: Path,
    /// What holds the value; `None` if it comes from elsewhere.
    value: Option<&'m Node>,
    /// The value's place.
    at: Path,
    index: usize,
    /// Whether name and value are one text, `NAME=value`.
    joined: bool,
}

/// Sets the variables among the settings for an engine, one after the other in each list.
///
/// # Errors
/// Where there is no place for one, or one is given in a way that cannot be changed.
pub fn write(document: Document<'_>, engine: &Located<'_>, settings: &[Setting]) -> Result<Written, Problem> {
    let (mut written, mut gone, mut new) = (Written::default(), Vec::new(), Vec::new());
    for setting in settings {
        let Some(name) = variable(&setting.name) else { continue };
        let value = (!is_left_out(&setting.value)).then(|| spelt(&setting.value));
        let refused = |says: String, at: std::ops::Range<usize>| {
            let hint = match &value {
                Some(value) => format!("set {name}={value} for this engine by hand, and export again"),
                None => format!("remove {name} by hand, and export again"),
            };
            Problem::new(&at, says, "here", hint)
        };
        let near = engine.arguments.first().map_or(0..0, |place| place.span(0));
        if let Some(there) = started(document, engine).into_iter().find_map(|text| given(text, name)) {
            if value.as_deref() == Some(there) {
                continue;
            }
            return Err(refused(format!("the script sets {name} itself, to `{there}`"), near));
        }
        let places = places(document, engine, name);
        match (&places[..], &value) {
            ([], None) => {}
            ([], Some(_)) if engine.location.env.is_empty() || document.source.format != Format::Yaml => {
                return Err(refused(format!("{} has no place for the variable {name}", engine.location.name), near));
            }
            ([], Some(value)) => new.push((name, value.clone())),
            ([place], None) => gone.push((place.list.clone(), place.index)),
            ([place], Some(value)) => {
                let cannot = || {
                    let says = format!("{name} is given in a way that cannot be changed");
                    refused(says, document.root().at(&place.item).map_or(near.clone(), |node| node.span.clone()))
                };
                written = written.and(change(document, place, name, value).ok_or_else(cannot)?);
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
    lists(document, engine, &gone, &new, written).ok_or_else(nowhere)
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
                let item = list.item(index);
                let at = if joined { item.clone() } else { item.key("value") };
                found.push(Place { list: list.clone(), item, value, at, index, joined });
            }
        }
        if let Some(index) = node.entries().iter().position(|(key, _)| key.text() == Some(name)) {
            let (item, value) = (list.literal_key(name), node.entries().get(index).map(|(_, value)| value));
            found.push(Place { list: list.clone(), at: item.clone(), item, value, index, joined: false });
        }
    }
    found
}

fn change(document: Document<'_>, place: &Place<'_>, name: &str, value: &str) -> Option<Written> {
    let source = document.source;
    let node = place.value?;
    let text = if place.joined { format!("{name}={value}") } else { value.to_owned() };
    if node.text()? == text {
        return Some(Written::default());
    }
    let style = node.style().filter(|_| !is_placeholder(source.raw(node)))?;
    let style = if matches!(style, Style::Literal | Style::Folded) { return None } else { style };
    let in_flow = document.root().at(&place.list).is_some_and(Node::is_flow);
    let edit = Edit::replace(node.span.clone(), scalar(&text, style, in_flow));
    Some(Written { edits: vec![edit], meanings: vec![(place.at.clone(), Meaning::quoted(text))] })
}

/// Takes variables out of their lists and adds new ones, behind what was changed already.
fn lists(
    document: Document<'_>,
    engine: &Located<'_>,
    gone: &[(Path, usize)],
    new: &[(&str, String)],
    mut written: Written,
) -> Option<Written> {
    let root = document.root();
    let all = &engine.location.env;
    let there = |path: &&Path| root.at(path).is_some_and(|node| !node.is_nothing());
    let target = all.iter().find(there).or(all.first()).filter(|_| !new.is_empty());
    for list in all {
        let gone: Vec<usize> = gone.iter().filter(|(of, _)| of == list).map(|(_, index)| *index).collect();
        let new = if target == Some(list) { new } else { &[] };
        if gone.is_empty() && new.is_empty() {
            continue;
        }
        let mut meaning = document.meaning.at(list).cloned();
        for (path, changed) in &written.meanings {
            if let Some(inner) = path.0.strip_prefix(&list.0[..]) {
                meaning.as_mut()?.set(inner, changed.clone()).then_some(())?;
            }
        }
        written = written.and(edit(document, list, &gone, new, meaning)?);
    }
    Some(written)
}

/// One list without some of its variables and with new ones; `meaning` is what it means before that.
fn edit(
    document: Document<'_>,
    list: &Path,
    gone: &[usize],
    new: &[(&str, String)],
    meaning: Option<Meaning>,
) -> Option<Written> {
    let (source, root) = (document.source, document.root());
    let node = root.at(list).filter(|node| !node.is_nothing());
    // Docker Compose has a mapping, or texts `NAME=value`; all others have names and values.
    let is_mapping = match node.map(|node| &node.kind) {
        Some(Kind::Mapping { .. }) => true,
        Some(_) => false,
        None => matches!(list.0.last(), Some(Step::Key(key)) if key == "environment"),
    };
    let texts = node.is_some_and(|list| !list.items().is_empty() && list.items().iter().all(|i| i.text().is_some()));
    let quoted = |text: &str| scalar(text, Style::Double, false);
    let plain = |text: &str| scalar(text, Style::Plain, node.is_some_and(Node::is_flow));
    let (mut entries, mut items) = match meaning {
        Some(Meaning::Map(entries)) => (entries, Vec::new()),
        Some(Meaning::List(items)) => (Vec::new(), items),
        _ => (Vec::new(), Vec::new()),
    };
    let kept = |index: &mut usize| {
        *index += 1;
        !gone.contains(&(*index - 1))
    };
    let (mut entry, mut item) = (0, 0);
    entries.retain(|_| kept(&mut entry));
    items.retain(|_| kept(&mut item));
    for (name, value) in new {
        let (is_named, says) = (Meaning::quoted(*name), Meaning::quoted(value.clone()));
        match (is_mapping, texts) {
            (true, _) => entries.push((is_named, says)),
            (false, true) => items.push(Meaning::quoted(format!("{name}={value}"))),
            (false, false) => {
                let named = [(Meaning::plain("name"), is_named), (Meaning::plain("value"), says)];
                items.push(Meaning::Map(named.into()));
            }
        }
    }
    let scalars = |(name, value): &(&str, String)| match texts {
        true => Entry::Scalar(plain(&format!("{name}={value}"))),
        false => Entry::Map(vec![
            ("name".to_owned(), Entry::Scalar(plain(name))),
            ("value".to_owned(), Entry::Scalar(quoted(value))),
        ]),
    };
    let edits = match node.filter(|list| !(list.items().is_empty() && list.entries().is_empty())) {
        Some(there) => {
            let start = format!("{}{}", source.line_end(), indent_of(source, there));
            let item = |new: &(&str, String)| match (is_mapping, there.is_flow()) {
                (true, _) => format!("{}: {}", new.0, quoted(&new.1)),
                (false, true) => scalars(new).flow(),
                (false, false) => scalars(new).item(&start, list_indent(source, root), &map_indent(source, root)),
            };
            edit_items(source, root, list, gone, &new.iter().map(|new| vec![item(new)]).collect::<Vec<_>>())?
        }
        None if is_mapping => {
            let entries = new.iter().map(|(name, value)| ((*name).to_owned(), Entry::Scalar(quoted(value))));
            vec![insert_at(source, root, list, Entry::Map(entries.collect()))?]
        }
        None => vec![insert_at(source, root, list, Entry::List(new.iter().map(scalars).collect()))?],
    };
    let after = if is_mapping { Meaning::Map(entries) } else { Meaning::List(items) };
    Some(Written { edits, meanings: vec![(list.clone(), after)] })
}
