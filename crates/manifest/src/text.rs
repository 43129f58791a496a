//! Edits of a text that leave every other byte alone. A text may lie inside of another: a word of a shell line in a block of a YAML file.
//!
//! An edit replaces a range of bytes. A [`Layer`] is a text that was decoded from a range of another one: a quoted scalar, a folded block, a shell
//! word. It knows where each of its bytes came from. So an edit of the inner text becomes one of the outer text.

use std::ops::Range;

/// A part of what an edit writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// New text, encoded by each layer on its way out.
    Text(String),
    /// What stands in a range of the same text, however it is written there: separators are repeated as their author wrote them.
    Copy(Range<usize>),
}

/// A range of bytes and what shall stand there instead; an empty range inserts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// In bytes of the text.
    pub range: Range<usize>,
    pub pieces: Vec<Piece>,
}

impl Edit {
    pub fn replace(range: Range<usize>, text: impl Into<String>) -> Self {
        Self { range, pieces: vec![Piece::Text(text.into())] }
    }

    pub fn insert(at: usize, text: impl Into<String>) -> Self {
        Self::replace(at..at, text)
    }
}

/// The text with all edits made; edits at the same place in their order. None if two of them overlap, or leave the text.
pub fn splice(text: &str, edits: &[Edit]) -> Option<String> {
    let mut ordered: Vec<&Edit> = edits.iter().collect();
    ordered.sort_by_key(|edit| edit.range.start);
    let (mut spliced, mut at) = (String::with_capacity(text.len() + 256), 0);
    for edit in ordered {
        // An edit before the end of the one before it is not in the text that is left.
        spliced.push_str(text.get(at..edit.range.start)?);
        for piece in &edit.pieces {
            match piece {
                Piece::Text(new) => spliced.push_str(new),
                Piece::Copy(range) => spliced.push_str(text.get(range.clone())?),
            }
        }
        at = edit.range.end;
    }
    spliced.push_str(text.get(at..)?);
    Some(spliced)
}

/// How new text is written where a layer came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encoding {
    Plain,
    /// Within '…' of YAML: a quote is doubled.
    SingleQuoted,
    /// Within "…" of YAML or JSON: backslashes and quotes are escaped.
    DoubleQuoted,
    /// Within a block: each new line begins with this line end and indentation.
    Block(String),
    /// Within '…' of a shell: a quote ends them, stands escaped and begins them again.
    ShellQuoted,
}

impl Encoding {
    fn encode(&self, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::SingleQuoted => text.replace('\'', "''"),
            Self::DoubleQuoted => {
                let mut encoded = String::with_capacity(text.len());
                for c in text.chars() {
                    match c {
                        '"' | '\\' => encoded.extend(['\\', c]),
                        '\n' => encoded.push_str("\\n"),
                        '\t' => encoded.push_str("\\t"),
                        _ => encoded.push(c),
                    }
                }
                encoded
            }
            Self::Block(line_start) => text.replace('\n', line_start),
            Self::ShellQuoted => text.replace('\'', r"'\''"),
        }
    }
}

/// A text decoded from a range of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    pub text: String,
    /// For each byte of it the bytes of the outer text that it came from, in ascending order.
    origin: Vec<Range<usize>>,
    /// Where it begins in the outer text, for a text without a byte.
    start: usize,
    /// How new text is written there.
    encoding: Encoding,
}

impl Layer {
    /// An empty text that begins there.
    pub fn new(start: usize, encoding: Encoding) -> Self {
        Self { text: String::new(), origin: Vec::new(), start, encoding }
    }

    /// A part of a text, as it stands.
    pub fn verbatim(text: &str, part: Range<usize>) -> Self {
        let mut layer = Self::new(part.start, Encoding::Plain);
        layer.copy(text, part);
        layer
    }

    /// Appends a part of a text, as it stands.
    pub fn copy(&mut self, text: &str, part: Range<usize>) {
        let characters = text.get(part.clone()).unwrap_or_default().char_indices();
        characters.for_each(|(at, c)| self.push(c, part.start + at..part.start + at + c.len_utf8()));
    }

    /// Appends a character that came from a range.
    pub fn push(&mut self, c: char, from: Range<usize>) {
        self.text.push(c);
        self.origin.resize(self.text.len(), from);
    }

    /// Forgets what comes after so many bytes.
    pub fn truncate(&mut self, length: usize) {
        self.text.truncate(length);
        self.origin.truncate(self.text.len());
    }

    /// This text with the bytes of another outer text, in which bytes differ from its own but none moved. Each byte that came from one byte
    /// is read anew. None if that is no text.
    pub fn read_from(&self, outer: &str) -> Option<String> {
        let mut bytes = self.text.clone().into_bytes();
        for (byte, origin) in bytes.iter_mut().zip(&self.origin) {
            // Several bytes stand for one only where something is escaped, and nothing in a template is.
            if origin.len() == 1 && byte.is_ascii() && !byte.is_ascii_whitespace() {
                *byte = *outer.as_bytes().get(origin.start)?;
            }
        }
        String::from_utf8(bytes).ok()
    }

    /// The range of the outer text that a range of this one came from.
    pub fn outer(&self, range: &Range<usize>) -> Range<usize> {
        let end_of = |at: usize| match at.checked_sub(1) {
            Some(last) => self.origin.get(last).map_or(self.start, |r| r.end),
            None => self.origin.first().map_or(self.start, |r| r.start),
        };
        if range.is_empty() {
            let at = end_of(range.start);
            return at..at;
        }
        self.origin.get(range.start).map_or(self.start, |r| r.start)..end_of(range.end)
    }

    /// The edit of the outer text that makes an edit of this one.
    pub fn lift(&self, edit: &Edit) -> Edit {
        let pieces = edit.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => Piece::Text(self.encoding.encode(text)),
            Piece::Copy(range) => Piece::Copy(self.outer(range)),
        });
        Edit { range: self.outer(&edit.range), pieces: pieces.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_made_in_the_order_of_their_places_and_never_overlap() {
        let edits = [Edit::replace(4..5, "E"), Edit::insert(1, "-"), Edit::insert(1, "+"), Edit::replace(2..3, "")];
        assert_eq!(splice("abcdef", &edits).unwrap(), "a-+bdEf");
        assert_eq!(splice("abcdef", &[Edit::replace(1..4, ""), Edit::insert(2, "x")]), None);
        assert_eq!(splice("abc", &[Edit::insert(9, "x")]), None);
    }

    #[test]
    fn an_edit_of_an_inner_text_is_one_of_the_outer() {
        // 'it''s' with the inner text it's
        let outer = "- 'it''s'";
        let mut layer = Layer::new(3, Encoding::SingleQuoted);
        for (c, from) in [('i', 3..4), ('t', 4..5), ('\'', 5..7), ('s', 7..8)] {
            layer.push(c, from);
        }
        let edit = layer.lift(&Edit::replace(2..3, "'''"));
        assert_eq!(splice(outer, &[edit]).unwrap(), "- 'it''''''s'");
        let copied = Edit { range: 4..4, pieces: vec![Piece::Copy(2..4)] };
        assert_eq!(splice(outer, &[layer.lift(&copied)]).unwrap(), "- 'it''s''s'");
    }
}
