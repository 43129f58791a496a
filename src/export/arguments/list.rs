//! Arguments as a list of words: `args: [--max-num-seqs, "64"]`.

use std::ops::Range;

use super::{Arguments, Written};
use crate::export::flags::{Change, Seen, is_placeholder};
use crate::export::render::{Entry, edit_items, favourite, favourite_quotes, insert_at, scalar};
use crate::export::source::Source;
use crate::export::text::Edit;
use crate::export::yaml::{Kind, Meaning, Node, Path, Style};

/// A list of words in a document, or the place where it would be.
pub struct List<'m> {
    source: &'m Source,
    root: &'m Node,
    before: &'m Meaning,
    path: Path,
    node: Option<&'m Node>,
    words: Vec<String>,
    /// The first word that may be an argument.
    first: usize,
}

impl<'m> List<'m> {
    /// The list at a place; absent, it is made when something is added. `None` if something else than a list of scalars stands.
    pub fn new(source: &'m Source, root: &'m Node, before: &'m Meaning, path: Path, first: usize) -> Option<Self> {
        let node = root.at(&path).filter(|node| !node.is_null());
        let words = match (node.map(|n| &n.kind), before.at(&path)) {
            (None, _) => Vec::new(),
            (Some(Kind::Sequence { .. }), Some(Meaning::List(items))) => {
                items.iter().map(|item| item.text().map(str::to_owned)).collect::<Option<_>>()?
            }
            _ => return None,
        };
        Some(Self { source, root, before, path, node, words, first })
    }

    fn items(&self) -> &'m [Node] {
        self.node.map_or(&[], Node::items)
    }

    fn in_flow(&self) -> bool {
        self.node.is_some_and(Node::is_flow)
    }

    /// New words in the quotes of their like.
    fn render(&self, words: &[String]) -> Vec<String> {
        let like = |flag: bool| {
            let items = self.items().iter().zip(&self.words);
            items.filter(move |(_, word)| word.starts_with('-') == flag).filter_map(|(item, _)| item.style())
        };
        let quotes = favourite_quotes(self.items().iter().filter_map(Node::style));
        let all = || favourite(self.items().iter().filter_map(Node::style));
        let style = |word: &str| favourite(like(word.starts_with('-'))).or_else(all).unwrap_or(Style::Plain);
        let in_quotes = |word: &String| match scalar(word, style(word), self.in_flow()) {
            bare if bare == *word => bare,
            _ => scalar(word, if word.contains(['"', '\'']) { Style::Plain } else { quotes }, self.in_flow()),
        };
        words.iter().map(in_quotes).collect()
    }

    fn edits(&self, changes: &[Change]) -> Option<Vec<Edit>> {
        let mut edits = Vec::new();
        let (mut added, mut removed): (Vec<Vec<String>>, Vec<usize>) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Set(word, text) => {
                    let item = self.items().get(self.first + word)?;
                    let style = item.style()?;
                    edits.push(match style {
                        Style::Literal | Style::Folded => {
                            let layer = self.source.layer(item)?;
                            layer.lift(&Edit::replace(0..layer.text.len(), text.clone()))
                        }
                        _ => Edit::replace(item.span.clone(), self.kept(text, style)),
                    });
                }
                Change::Remove(word) => removed.push(self.first + word),
                Change::Append(words) => added.push(self.render(words)),
            }
        }
        if self.items().is_empty() && !added.is_empty() {
            let list = Entry::List(added.concat().into_iter().map(Entry::Scalar).collect());
            edits.push(insert_at(self.source, self.root, &self.path, list)?);
        } else if !(removed.is_empty() && added.is_empty()) {
            edits.extend(edit_items(self.source, self.root, &self.path, &removed, &added)?);
        }
        Some(edits)
    }

    /// A new text for an item in its own quotes; a bare one that needs some gets those of its neighbours.
    fn kept(&self, text: &str, style: Style) -> String {
        match scalar(text, style, self.in_flow()) {
            quoted if style == Style::Plain && quoted != text && !text.contains(['"', '\'']) => {
                scalar(text, favourite_quotes(self.items().iter().filter_map(Node::style)), self.in_flow())
            }
            kept => kept,
        }
    }
}

impl Arguments for List<'_> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn seen(&self) -> Vec<Seen<'_>> {
        let words = self.words.iter().zip(self.items()).skip(self.first);
        words
            .map(|(text, item)| {
                let raw = self.source.raw(item);
                Seen { text, placeholder: matches!(item.kind, Kind::Alias(_)) || is_placeholder(raw) }
            })
            .collect()
    }

    fn span(&self, word: usize) -> Range<usize> {
        let whole = || self.node.map_or(0..0, |node| node.span.clone());
        self.items().get(self.first + word).map_or_else(whole, |item| item.span.clone())
    }

    fn write(&self, changes: &[Change]) -> Option<Written> {
        let edits = self.edits(changes)?;
        let mut items: Vec<Option<Meaning>> = match self.before.at(&self.path) {
            Some(Meaning::List(items)) => items.iter().cloned().map(Some).collect(),
            _ => Vec::new(),
        };
        let mut added = Vec::new();
        for change in changes {
            match change {
                Change::Set(word, text) => *items.get_mut(self.first + word)? = Some(Meaning::quoted(text.clone())),
                Change::Remove(word) => *items.get_mut(self.first + word)? = None,
                Change::Append(words) => added.extend(words.iter().cloned().map(Meaning::quoted)),
            }
        }
        let list = Meaning::List(items.into_iter().flatten().chain(added).collect());
        Some(Written { edits, meanings: vec![(self.path.clone(), list)] })
    }
}
