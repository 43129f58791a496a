//! New YAML in the style of its neighbours: scalars with their quotes, items of lists, entries of mappings.

use std::ops::Range;

use serde_json::Value;

use super::source::Source;
use super::text::Edit;
use super::yaml::{Kind, Node, Path, Step, Style, is_special};

/// A scalar of one line that says a text, in a style where it can be kept, otherwise in quotes.
pub fn scalar(text: &str, style: Style, in_flow: bool) -> String {
    let one_line = !text.chars().any(char::is_control);
    match style {
        Style::Plain if plain_is_safe(text, in_flow) => text.to_owned(),
        Style::Single if one_line => format!("'{}'", text.replace('\'', "''")),
        Style::Plain if text.contains(['"', '\\']) && one_line => scalar(text, Style::Single, in_flow),
        _ => {
            // JSON's escapes are YAML's.
            serde_json::to_string(text).unwrap_or_default()
        }
    }
}

/// Whether a text without quotes is read as that text by every reader.
fn plain_is_safe(text: &str, in_flow: bool) -> bool {
    let dashes = text.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '));
    let first = text.starts_with(|c: char| !"-?:,[]{}#&*!|>'\"%@` ".contains(c)) || dashes;
    let flow = !in_flow || !text.contains([',', '[', ']', '{', '}']);
    !is_special(text)
        && first
        && flow
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.chars().any(char::is_control)
}

/// The most frequent style among plain, single and double quotes; ties prefer plain, then double. `None` if no item has one of them.
pub fn favourite(styles: impl Iterator<Item = Style>) -> Option<Style> {
    let (mut plain, mut single, mut double) = (0, 0, 0);
    for style in styles {
        match style {
            Style::Single => single += 1,
            Style::Double => double += 1,
            Style::Plain => plain += 1,
            Style::Literal | Style::Folded => {}
        }
    }
    let most = single.max(double).max(plain);
    match most {
        0 => None,
        _ if plain == most => Some(Style::Plain),
        _ if double == most => Some(Style::Double),
        _ => Some(Style::Single),
    }
}

/// The quotes for words that need some: those that the items have most, else "…".
pub fn favourite_quotes(styles: impl Iterator<Item = Style>) -> Style {
    favourite(styles.filter(|s| *s != Style::Plain)).unwrap_or(Style::Double)
}

/// The indentation of a node, as white space.
pub fn indent_of(source: &Source, node: &Node) -> String {
    let before = source.before(node.span.start);
    before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect()
}

/// Where the items of a list or the entries of a mapping stand; none of anything else.
fn spans(source: &Source, node: &Node) -> Option<Vec<Range<usize>>> {
    match &node.kind {
        Kind::Sequence { items, .. } => Some(items.iter().map(|item| item.span.start..source.end(item)).collect()),
        Kind::Mapping { entries, .. } => {
            let span = |(key, value): &(Node, Node)| key.span.start..source.end(value).max(key.span.end);
            Some(entries.iter().map(span).collect())
        }
        Kind::Scalar { .. } | Kind::Alias(_) => None,
    }
}

fn begins_line(source: &Source, at: usize) -> bool {
    source.before(at).trim().is_empty()
}

/// Items behind the last one of a list that has one, or entries behind the last one of a mapping; those of one flag together.
pub fn append_items(source: &Source, list: &Node, groups: &[Vec<String>]) -> Option<Vec<Edit>> {
    let items = spans(source, list)?;
    let last = items.last()?;
    if list.is_flow() {
        return Some(append_in_brackets(source, list, &items, groups));
    }
    let at = source.line_stop(last.end);
    let dash = if matches!(list.kind, Kind::Sequence { .. }) { "- " } else { "" };
    let start = format!("{}{}{dash}", source.line_end(), indent_of(source, list));
    Some(vec![Edit::insert(at, groups.iter().flatten().map(|item| format!("{start}{item}")).collect::<String>())])
}

fn append_in_brackets(source: &Source, list: &Node, items: &[Range<usize>], groups: &[Vec<String>]) -> Vec<Edit> {
    let Some(last) = items.last() else { return Vec::new() };
    let on_its_line = |item: &&Range<usize>| source.line_start(item.start) == source.line_start(last.start);
    let first_of_line = items.iter().find(on_its_line).filter(|first| begins_line(source, first.start));
    let Some(first) = first_of_line else {
        let comma = match items {
            [.., before, last] => Some(&source.text[before.end..last.start]),
            _ => None,
        };
        let comma = comma.filter(|text| text.trim() == "," && !text.contains('\n')).unwrap_or(", ");
        let text: String = groups.iter().flatten().map(|item| format!("{comma}{item}")).collect();
        return vec![Edit::insert(last.end, text)];
    };
    // Lines of their own, each flag with its value where others have theirs on one line.
    let line = format!("{}{}", source.line_end(), source.before(first.start));
    let pairs = items.iter().any(|item| !begins_line(source, item.start));
    let inner = if pairs { ", ".to_owned() } else { format!(",{line}") };
    let lines: Vec<String> = groups.iter().map(|words| format!("{line}{}", words.join(&inner))).collect();
    let behind = &source.text[last.end..list.span.end.saturating_sub(1)];
    match (behind.contains('\n'), behind.trim_start().starts_with(',')) {
        // Comments behind the last item stay behind it.
        (true, true) => {
            let text: String = lines.iter().map(|line| format!("{line},")).collect();
            vec![Edit::insert(source.line_stop(last.end), text)]
        }
        (true, false) => {
            vec![Edit::insert(last.end, ","), Edit::insert(source.line_stop(last.end), lines.join(","))]
        }
        (false, _) => vec![Edit::insert(last.end, format!(",{}", lines.join(",")))],
    }
}

/// Removes items of a list or entries of a mapping with the comments on their lines, then appends `added`.
pub fn edit_items(
    source: &Source,
    root: &Node,
    path: &Path,
    gone: &[usize],
    mut added: &[Vec<String>],
) -> Option<Vec<Edit>> {
    let node = root.at(path)?;
    let spans = spans(source, node)?;
    let mut gone = gone.to_vec();
    gone.sort_unstable();
    let mut edits = Vec::new();
    if !node.is_flow() && gone.len() == spans.len() && !gone.is_empty() && added.is_empty() {
        // Without an item nothing would stand behind the key.
        let (map, keys) = owner(root, path)?;
        let (key, _) = map.entries().iter().find(|(key, _)| key.text() == keys.first().map(String::as_str))?;
        let colon = key.span.end + source.text[key.span.end..].find(':')?;
        let empty = if matches!(node.kind, Kind::Sequence { .. }) { " []" } else { " {}" };
        edits.push(Edit::insert(colon + 1, empty));
    }
    for run in gone.chunk_by(|a, b| a + 1 == *b) {
        let (first, last) = (*run.first()?, *run.last()?);
        match node.is_flow() {
            true if last + 1 == spans.len() && !added.is_empty() => {
                // Comments above the last removed line stay.
                let on_line = run.iter().rposition(|index| begins_line(source, spans[*index].start));
                let from = first + on_line.unwrap_or(0);
                if from > first {
                    edits.extend(out_of_brackets(source, &spans, first, from - 1)?);
                }
                edits.push(in_place(source, &spans, spans[from].start..spans[last].end, std::mem::take(&mut added)));
            }
            true => edits.extend(out_of_brackets(source, &spans, first, last)?),
            false => {
                for index in run {
                    let at = spans[*index].clone();
                    matches!(source.before(at.start).trim(), "" | "-").then_some(())?;
                    edits.push(Edit::replace(lines(source, &at), ""));
                }
            }
        }
    }
    if !added.is_empty() {
        edits.extend(append_items(source, node, added)?);
    }
    Some(edits)
}

/// The lines of a range, with the line end before them where there is one.
fn lines(source: &Source, at: &Range<usize>) -> Range<usize> {
    let (start, stop) = (source.line_start(at.start), source.line_stop(at.end));
    match source.text[..start].strip_suffix('\n') {
        Some(above) => above.strip_suffix('\r').unwrap_or(above).len()..stop,
        None => start..source.text[stop..].find('\n').map_or(stop, |end| stop + end + 1),
    }
}

/// Where the comma behind an item ends; `None` if a comment or nothing stands between.
fn comma_behind(source: &Source, item: &Range<usize>) -> Option<Range<usize>> {
    let behind = &source.text[item.end..];
    let comma = item.end + behind.find(|c: char| !c.is_whitespace()).filter(|at| behind[*at..].starts_with(','))?;
    Some(comma..comma + 1)
}

/// Neighbours within brackets, taken away with their comma.
fn out_of_brackets(source: &Source, spans: &[Range<usize>], first: usize, last: usize) -> Option<Vec<Edit>> {
    let (start, end) = (spans[first].start, spans[last].end);
    let (before, next) = (first.checked_sub(1).map(|before| &spans[before]), spans.get(last + 1));
    let begins_line = |at: usize| begins_line(source, at);
    let own_comma = comma_behind(source, &spans[last]);
    let stop = |item: &Range<usize>| comma_behind(source, item).map_or(item.end, |comma| comma.end);
    let behind = stop(&spans[last]);
    let rest = source.text[behind..source.line_stop(behind)].trim_start();
    // Without a comma of their own the one before them goes.
    let comma_before = || Some(Edit::replace(comma_behind(source, before?)?, ""));
    if begins_line(start) && (rest.is_empty() || rest.starts_with('#')) {
        let comma = if own_comma.is_some() || before.is_none() { None } else { Some(comma_before()?) };
        let on_lines = spans[first..=last].chunk_by(|_, next| !begins_line(next.start));
        let gone = on_lines.filter_map(|line| Some(lines(source, &(line.first()?.start..stop(line.last()?)))));
        return Some(comma.into_iter().chain(gone.map(|range| Edit::replace(range, ""))).collect());
    }
    Some(match (before, next) {
        (_, Some(next)) if !begins_line(next.start) => vec![Edit::replace(start..next.start, "")],
        (Some(_), None) if begins_line(start) => vec![comma_before()?, Edit::replace(start..end, "")],
        (Some(before), _) => vec![Edit::replace(before.end..end, "")],
        (None, Some(next)) => vec![Edit::replace(start..next.start, "")],
        (None, None) => vec![Edit::replace(start..behind, "")],
    })
}

/// New items within brackets in place of the last ones.
fn in_place(source: &Source, items: &[Range<usize>], gone: Range<usize>, groups: &[Vec<String>]) -> Edit {
    let stop = source.line_stop(gone.end);
    let noted = source.text[gone.end..stop].split_once('#').map(|(comma, _)| comma.trim());
    // What is noted behind the old ones goes with them.
    let (end, comma) = match noted {
        Some(comma @ ("" | ",")) => (stop, comma),
        _ => (gone.end, ""),
    };
    let text = if begins_line(source, gone.start) {
        let line = format!(",{}{}", source.line_end(), source.before(gone.start));
        let pairs = items.iter().any(|item| !begins_line(source, item.start));
        let inner = if pairs { ", " } else { &line };
        groups.iter().map(|words| words.join(inner)).collect::<Vec<_>>().join(&line)
    } else {
        groups.concat().join(", ")
    };
    Edit::replace(gone.start..end, text + comma)
}

/// A new value, its scalars and keys as they shall be written.
pub enum Entry {
    Scalar(String),
    List(Vec<Entry>),
    Map(Vec<(String, Entry)>),
}

impl Entry {
    /// A mapping of one key.
    pub fn of(key: impl Into<String>, entry: Self) -> Self {
        Self::Map(vec![(key.into(), entry)])
    }

    pub fn flow(&self) -> String {
        match self {
            Self::Scalar(text) => text.clone(),
            Self::List(items) => format!("[{}]", items.iter().map(Self::flow).collect::<Vec<_>>().join(", ")),
            Self::Map(entries) => {
                let entries: Vec<String> =
                    entries.iter().map(|(key, value)| format!("{key}: {}", value.flow())).collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    /// What stands behind the key's colon.
    fn block(&self, start: &str, list_indent: &str, map_indent: &str) -> String {
        match self {
            Self::Scalar(text) => format!(" {text}"),
            Self::List(items) => {
                let start = format!("{start}{list_indent}");
                items.iter().map(|item| format!("{start}- {}", item.item(&start, list_indent, map_indent))).collect()
            }
            Self::Map(entries) => {
                let start = format!("{start}{map_indent}");
                entries
                    .iter()
                    .map(|(key, value)| format!("{start}{key}:{}", value.block(&start, list_indent, map_indent)))
                    .collect()
            }
        }
    }

    /// What stands behind the dash of an item; `start` is the line end and the indentation of the dash.
    pub fn item(&self, start: &str, list_indent: &str, map_indent: &str) -> String {
        match self {
            Self::Map(entries) => {
                let start = format!("{start}  ");
                let entry =
                    |(key, value): &(String, Self)| format!("{key}:{}", value.block(&start, list_indent, map_indent));
                entries.iter().map(entry).collect::<Vec<_>>().join(&start)
            }
            other => other.flow(),
        }
    }
}

/// The innermost mapping above a place that is there, and the keys from it to the place. A key without a value has no mapping.
pub fn owner<'m>(root: &'m Node, path: &Path) -> Option<(&'m Node, Vec<String>)> {
    (0..path.0.len()).rev().find_map(|depth| {
        let map = root.at(&Path(path.0[..depth].to_vec())).filter(|node| !node.is_null())?;
        let key = |step: &Step| if let Step::Key(key) = step { Some(key.clone()) } else { None };
        Some((map, path.0[depth..].iter().map(key).collect::<Option<Vec<_>>>()?))
    })
}

/// An entry at a place, with the mappings above it that are missing.
pub fn insert_at(source: &Source, root: &Node, path: &Path, entry: Entry) -> Option<Edit> {
    let (map, keys) = owner(root, path)?;
    let (first, rest) = keys.split_first()?;
    let entry = rest.iter().rev().fold(entry, |entry, key| Entry::of(key.clone(), entry));
    insert_entry(source, root, map, first, &entry)
}

/// A new entry behind the last one of a mapping, or in place of an empty value of its key.
pub fn insert_entry(source: &Source, root: &Node, map: &Node, key: &str, entry: &Entry) -> Option<Edit> {
    if let Some((_, value)) = map.entries().iter().find(|(k, _)| k.text() == Some(key)) {
        return replace_value(source, root, map, value, entry);
    }
    let Kind::Mapping { entries, flow } = &map.kind else { return None };
    match (entries.last(), flow) {
        (Some((_, last)), true) => Some(Edit::insert(last.span.end, format!(", {key}: {}", entry.flow()))),
        // Comments between the brackets stay.
        (None, _) => Some(Edit::insert(map.span.start + 1, format!("{key}: {}", entry.flow()))),
        (Some(_), false) => {
            let start = format!("{}{}", source.line_end(), indent_of(source, map));
            let body = entry.block(&start, list_indent(source, root), &map_indent(source, root));
            Some(Edit::insert(source.line_stop(source.end(map)), format!("{start}{key}:{body}")))
        }
    }
}

/// Writes an entry where nothing, `[]` or `{}` stands.
fn replace_value(source: &Source, root: &Node, map: &Node, value: &Node, entry: &Entry) -> Option<Edit> {
    let inside = source.raw(value).strip_prefix(['[', '{']).is_some_and(|inside| inside.contains('#'));
    if inside {
        // Comments between the brackets stay.
        let flow = entry.flow();
        let items = flow.strip_prefix(['[', '{']).and_then(|flow| flow.strip_suffix([']', '}']))?;
        return Some(Edit::insert(value.span.start + 1, items));
    }
    if !value.is_nothing() || map.is_flow() {
        return Some(Edit::replace(value.span.clone(), entry.flow()));
    }
    // `key:` and a comment perhaps: the value begins on the next line.
    let colon = value.span.start;
    let start = format!("{}{}", source.line_end(), indent_of(source, map));
    let body = entry.block(&start, list_indent(source, root), &map_indent(source, root));
    let at = if matches!(entry, Entry::Scalar(_)) { colon } else { source.line_stop(colon) };
    Some(Edit::insert(at, body))
}

/// By how much the file indents a mapping in a mapping.
pub fn map_indent(source: &Source, root: &Node) -> String {
    fn find(source: &Source, node: &Node) -> Option<usize> {
        node.entries().iter().find_map(|(key, value)| match &value.kind {
            Kind::Mapping { flow: false, .. } if !node.is_flow() => {
                source.column(value).checked_sub(source.column(key)).filter(|step| *step > 0)
            }
            _ => find(source, value),
        })
    }
    " ".repeat(find(source, root).unwrap_or(2))
}

/// By how much the file indents the dashes of a list under its key.
pub fn list_indent(source: &Source, root: &Node) -> &'static str {
    fn find(source: &Source, node: &Node) -> Option<usize> {
        let below = |(key, value): &(Node, Node)| match &value.kind {
            Kind::Sequence { flow: false, .. } => source.column(value).checked_sub(source.column(key)),
            _ => find(source, value),
        };
        node.entries().iter().find_map(below).or_else(|| node.items().iter().find_map(|item| find(source, item)))
    }
    match find(source, root) {
        Some(0) => "",
        Some(4) => "    ",
        _ => "  ",
    }
}

/// JSON as YAML, so many levels deep: blocks, with quotes around every text that needs them.
pub fn yaml(value: &Value, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    // Scalars and empty collections stand behind the colon.
    let fits_on_the_keys_line = |value: &Value| match value {
        Value::Object(entries) => entries.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    };
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            let entry = |(key, value): (&String, &Value)| {
                let key = scalar(key, Style::Plain, false);
                let apart = if fits_on_the_keys_line(value) { " " } else { "\n" };
                format!("{indent}{key}:{apart}{}", yaml(value, depth + 1))
            };
            entries.iter().map(entry).collect::<Vec<_>>().join("\n")
        }
        Value::Array(items) if !items.is_empty() => {
            let item = |item: &Value| format!("{indent}- {}", yaml(item, depth + 1).trim_start());
            items.iter().map(item).collect::<Vec<_>>().join("\n")
        }
        Value::String(text) => literal(text, &indent).unwrap_or_else(|| scalar(text, Style::Plain, false)),
        other => other.to_string(),
    }
}

/// A text of several lines as a block of these lines; `None` if a block would not keep it.
fn literal(text: &str, indent: &str) -> Option<String> {
    let (body, mark) = text.strip_suffix('\n').map_or((text, "|-"), |body| (body, "|"));
    let is_kept = |line: &str| !line.ends_with([' ', '\t']) && !line.chars().any(|c| c.is_control() && c != '\t');
    let several = body.contains('\n') || mark == "|";
    // A first line that is indented or empty would need a mark of its own, and so would empty ones at the end.
    let plain = !body.starts_with([' ', '\t', '\n']) && !body.ends_with('\n') && !body.is_empty();
    if !(several && plain && body.split('\n').all(is_kept)) {
        return None;
    }
    let line = |line: &str| if line.is_empty() { String::new() } else { format!("{indent}{line}") };
    Some(format!("{mark}\n{}", body.split('\n').map(line).collect::<Vec<_>>().join("\n")))
}

#[cfg(test)]
mod tests {
    use super::super::text::splice;
    use super::*;

    #[test]
    fn scalars_have_quotes_where_they_need_them() {
        let plain = |text| scalar(text, Style::Plain, false);
        assert_eq!(plain("--max-num-seqs"), "--max-num-seqs");
        assert_eq!(plain("64"), "\"64\"");
        assert_eq!(plain("{\"a\": 1}"), "'{\"a\": 1}'");
        assert_eq!(plain("a: b"), "\"a: b\"");
        assert_eq!(scalar("a,b", Style::Plain, true), "\"a,b\"");
        assert_eq!(scalar("it's", Style::Single, false), "'it''s'");
        assert_eq!(scalar("64", Style::Single, false), "'64'");
    }

    fn edited(text: &str, edit: impl Fn(&Source, &Node) -> Option<Edit>) -> String {
        let source = Source::new(text).unwrap();
        splice(text, &[edit(&source, &source.documents[0]).unwrap()]).unwrap()
    }

    #[test]
    fn lists_grow_in_their_own_style() {
        let grown = |text: &str| {
            let words = vec!["y".to_owned(), "\"2\"".to_owned()];
            let source = Source::new(text).unwrap();
            let list = source.documents[0].get("a").unwrap();
            splice(text, &append_items(&source, list, &[words]).unwrap()).unwrap()
        };
        assert_eq!(grown("a:\n- x # c\n# d\nb: 1\n"), "a:\n- x # c\n- y\n- \"2\"\n# d\nb: 1\n");
        assert_eq!(
            grown("a:\r\n  - |\r\n    x\r\n\r\nb: 1\r\n"),
            "a:\r\n  - |\r\n    x\r\n  - y\r\n  - \"2\"\r\n\r\nb: 1\r\n"
        );
        assert_eq!(grown("a: [x]"), "a: [x, y, \"2\"]");
        assert_eq!(grown("a: [\n  w,\n  x, # c\n]\n"), "a: [\n  w,\n  x, # c\n  y,\n  \"2\",\n]\n");
        assert_eq!(grown("a: [\n  w,\n  x]\n"), "a: [\n  w,\n  x,\n  y,\n  \"2\"]\n");
        assert_eq!(grown("a: [\n  v, w,\n  x\n]\n"), "a: [\n  v, w,\n  x,\n  y, \"2\"\n]\n");
        assert_eq!(grown("a:\n  - x"), "a:\n  - x\n  - y\n  - \"2\"");
    }

    #[test]
    fn items_go_with_their_lines_and_what_is_noted_of_others_stays() {
        let changed = |text: &str, gone: &[usize], added: &[&str]| {
            let source = Source::new(text).unwrap();
            let added: Vec<Vec<String>> = added.iter().map(|word| vec![(*word).to_owned()]).collect();
            let edits = edit_items(&source, &source.documents[0], &Path::default().key("a"), gone, &added);
            splice(text, &edits.unwrap()).unwrap()
        };
        let gone = |text: &str, gone: &[usize]| changed(text, gone, &[]);
        assert_eq!(gone("a:\n  # c\n  - x # d\n  - y\n", &[0]), "a:\n  # c\n  - y\n");
        assert_eq!(gone("a:\r\n  - x\r\n  # c\r\n  - y\r\nb: 1", &[0, 1]), "a: []\r\n  # c\r\nb: 1");
        assert_eq!(gone("a:\n  x: 1 # d\n  y: |\n    2\n\n  z: 3", &[0, 1]), "a:\n\n  z: 3");
        assert_eq!(gone("a: # c\n  x: 1\n", &[0]), "a: {} # c\n");
        assert_eq!(gone("a: {x: 1, y: 2, z: 3}", &[1, 2]), "a: {x: 1}");
        assert_eq!(gone("a: [x, y]\n", &[0]), "a: [y]\n");
        assert_eq!(gone("a: [w, x, y, z]\n", &[1, 2, 3]), "a: [w]\n");
        assert_eq!(gone("a: [w, x, y, z]\n", &[0, 3]), "a: [x, y]\n");
        assert_eq!(gone("a: [w, x,]\n", &[0, 1]), "a: []\n");
        let multi = "a: [\n  v, # v\n  w, x, # w\n  # y\n  y # y\n]\n";
        assert_eq!(gone(multi, &[1, 2]), "a: [\n  v, # v\n  # y\n  y # y\n]\n");
        assert_eq!(gone(multi, &[2]), "a: [\n  v, # v\n  w, # w\n  # y\n  y # y\n]\n");
        assert_eq!(gone(multi, &[3]), "a: [\n  v, # v\n  w, x # w\n  # y\n]\n");
        assert_eq!(gone(multi, &[1, 2, 3]), "a: [\n  v # v\n  # y\n]\n");
        assert_eq!(gone("a: [\n  v, # v\n  w]\n", &[1]), "a: [\n  v # v\n  ]\n");
        assert_eq!(changed("a:\n  - x\n  - y # d\n", &[1], &["z"]), "a:\n  - x\n  - z\n");
        assert_eq!(changed("a:\n  - x\n", &[0], &["z"]), "a:\n  - z\n");
        assert_eq!(changed("a: [x, y, z]", &[1, 2], &["s", "t"]), "a: [x, s, t]");
        assert_eq!(changed("a: [\n  x,\n  y, # y\n]", &[1], &["s", "t"]), "a: [\n  x,\n  s,\n  t,\n]");
        assert_eq!(changed("a: [\n  x,\n  y # y\n]", &[0, 1], &["s"]), "a: [\n  s\n]");
    }

    #[test]
    fn mappings_grow_in_their_own_style() {
        let grown = |text: &str| {
            edited(text, |s, root| {
                insert_entry(s, root, root.get("m").unwrap(), "k", &Entry::of("x", Entry::Scalar("\"1\"".into())))
            })
        };
        assert_eq!(grown("m:\n    a: 1 # c\nn: 2\n"), "m:\n    a: 1 # c\n    k:\n        x: \"1\"\nn: 2\n");
        assert_eq!(grown("m: {a: 1}\n"), "m: {a: 1, k: {x: \"1\"}}\n");
        assert_eq!(grown("m:\n  k:  # c\n  a: 1\n"), "m:\n  k:  # c\n    x: \"1\"\n  a: 1\n");
        assert_eq!(grown("m:\n  k: {}\n"), "m:\n  k: {x: \"1\"}\n");
        let list = |text: &str| {
            edited(text, |s, root| {
                let items = ["x", "y"].map(|item| Entry::Scalar(item.to_owned()));
                insert_entry(s, root, root.get("m").unwrap(), "k", &Entry::List(items.into()))
            })
        };
        assert_eq!(list("l:\n- 1\nm:\n  a: 1\n"), "l:\n- 1\nm:\n  a: 1\n  k:\n  - x\n  - y\n");
    }

    #[test]
    fn what_is_empty_is_filled_and_comments_stay() {
        let filled = |text: &str| {
            let list = || Entry::List(vec![Entry::Scalar("x".to_owned())]);
            edited(text, |s, root| insert_at(s, root, &Path::default().key("m.k"), list()))
        };
        assert_eq!(filled("m:\n  # c\nn: 1\n"), "m:\n  k:\n    - x\n  # c\nn: 1\n");
        assert_eq!(filled("n: 1\nm: # c\n"), "n: 1\nm: # c\n  k:\n    - x\n");
        assert_eq!(filled("m: ~ # c\n"), "m: {k: [x]} # c\n");
        assert_eq!(filled("m: {}\n"), "m: {k: [x]}\n");
        assert_eq!(filled("m: { # c\n}\n"), "m: {k: [x] # c\n}\n");
        assert_eq!(filled("m: {\n  # c\n}\n"), "m: {k: [x]\n  # c\n}\n");
    }

    #[test]
    fn json_comes_back_from_yaml() {
        use crate::export::{forms::json, source::Source, yaml::meaning};
        let value = serde_json::json!({
            "plain": "word", "number": "64", "truth": "true", "empty": "", "list": [], "map": {}, "null": null, "count": 3,
            "lines": "a:\n  b\n\nc\n", "open": "a\nb", "odd": " a\nb\n", "trailing": "a \nb", "deep": [{"name": "x", "args": ["--a", "b\nc\n"]}],
            "nvidia.com/gpu": "1", "it's": "\"quoted\" # no comment",
        });
        let source = Source::new(yaml(&value, 0) + "\n").unwrap();
        assert_eq!(json(&meaning(&source.documents[0]).unwrap()), value, "{}", yaml(&value, 0));
    }
}
