//! An environment variable that is not there yet, in a list of variables or in a list of containers that may not be there either.

use std::ops::Range;

use super::{Arguments, Written};
use crate::export::flags::{Change, Seen};
use crate::export::render::{Entry, append_items, indent_of, insert_at, list_indent, map_indent, owner, scalar};
use crate::export::source::Document;
use crate::export::text::Edit;
use crate::export::yaml::{Meaning, Path, Style, meaning, parse};

#[derive(Clone, Debug, PartialEq)]
pub struct VariableLocation {
    pub name: &'static str,
    /// The list of variables; that of containers, if the variable's container is made as well.
    pub list: Path,
    /// The name of the container that is made.
    pub container: Option<&'static str>,
}

pub struct NewVariable<'m> {
    document: Document<'m>,
    at: VariableLocation,
}

impl<'m> NewVariable<'m> {
    pub fn new(document: Document<'m>, at: VariableLocation) -> Self {
        Self { document, at }
    }

    fn entry(&self, value: &str) -> Entry {
        let word = |text: &str, style| Entry::Scalar(scalar(text, style, false));
        let variable = Entry::Map(vec![
            ("name".to_owned(), word(self.at.name, Style::Plain)),
            ("value".to_owned(), word(value, Style::Double)),
        ]);
        match self.at.container {
            None => variable,
            Some(name) => Entry::Map(vec![
                ("name".to_owned(), word(name, Style::Plain)),
                ("env".to_owned(), Entry::List(vec![variable])),
            ]),
        }
    }

    fn edits(&self, item: Entry) -> Option<Vec<Edit>> {
        let (source, root) = (self.document.source, self.document.root());
        let Some(list) = root.at(&self.at.list).filter(|node| !node.items().is_empty()) else {
            return Some(vec![insert_at(source, root, &self.at.list, Entry::List(vec![item]))?]);
        };
        let start = format!("{}{}", source.line_end(), indent_of(source, list));
        let block = || item.item(&start, list_indent(source, root), &map_indent(source, root));
        append_items(source, list, &[vec![if list.is_flow() { item.flow() } else { block() }]])
    }
}

impl Arguments for NewVariable<'_> {
    fn path(&self) -> &Path {
        &self.at.list
    }

    fn seen(&self) -> Vec<Seen<'_>> {
        Vec::new()
    }

    fn span(&self, _: usize) -> Range<usize> {
        owner(self.document.root(), &self.at.list).map_or(0..0, |(map, _)| map.span.start..map.span.start)
    }

    fn write(&self, changes: &[Change]) -> Option<Written> {
        let words = changes.iter().flat_map(|change| match change {
            Change::Append(words) => words.as_slice(),
            _ => &[],
        });
        let words: Vec<&str> = words.map(String::as_str).collect();
        if words
            .iter()
            .any(|word| word.is_empty() || word.contains(|c: char| c.is_whitespace() || "'\"\\$`".contains(c)))
        {
            return None;
        }
        let item = self.entry(&words.join(" "));
        let new = parse(&item.flow()).ok()?.first().and_then(meaning)?;
        let mut items = match self.document.meaning.at(&self.at.list) {
            Some(Meaning::List(items)) => items.clone(),
            _ => Vec::new(),
        };
        items.push(new);
        Some(Written { edits: self.edits(item)?, meanings: vec![(self.at.list.clone(), Meaning::List(items))] })
    }
}
