//! Where arguments come from, as annotations of the object that has them.

use super::arguments::Written;
use super::render::{Entry, insert_entry, scalar};
use super::source::Document;
use super::text::Edit;
use super::yaml::{Kind, Meaning, Path, Style};

pub const ANNOTATIONS: &str = "metadata.annotations";
pub const PREFIX: &str = "autotune/";

/// Writes annotations into an object's metadata; those that are there already are replaced. None if it has no metadata.
pub fn annotate(document: Document<'_>, annotations: &[(String, String)]) -> Option<Written> {
    let (source, root) = (document.source, document.root());
    let metadata = root.get("metadata").filter(|node| matches!(node.kind, Kind::Mapping { .. }))?;
    let at = Path::default().key(ANNOTATIONS);
    let entry = |(key, value): &(String, String)| (key.clone(), Entry::Scalar(scalar(value, Style::Double, false)));
    let meaning = |value: &str| Meaning::quoted(value);
    // Those of an alias are another object's as well.
    if metadata.get("annotations").is_some_and(|node| matches!(node.kind, Kind::Alias(_))) {
        return None;
    }
    let there = metadata.get("annotations").filter(|node| !node.entries().is_empty());
    let Some(map) = there else {
        let entries: Vec<(String, Entry)> = annotations.iter().map(entry).collect();
        let edit = insert_entry(source, root, metadata, "annotations", &Entry::Map(entries))?;
        let all = annotations.iter().map(|(key, value)| (Meaning::plain(key.clone()), meaning(value))).collect();
        return Some(Written { edits: vec![edit], meanings: vec![(at, Meaning::Map(all))] });
    };
    let mut written = Written::default();
    for annotation in annotations {
        let (key, value) = annotation;
        match map.get(key).filter(|node| !node.is_nothing()) {
            Some(node) if node.text() == Some(value) => continue,
            // A block begins above its text.
            Some(node) if matches!(node.style(), Some(Style::Literal | Style::Folded)) => return None,
            Some(node) => {
                let style = node.style().filter(|s| *s != Style::Plain).unwrap_or(Style::Double);
                written.edits.push(Edit::replace(node.span.clone(), scalar(value, style, map.is_flow())));
            }
            None => written.edits.push(insert_entry(source, root, map, key, &entry(annotation).1)?),
        }
        written.meanings.push((at.literal_key(key), meaning(value)));
    }
    Some(written)
}
