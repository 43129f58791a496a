//! A manifest as its author wrote it: the bytes, what a YAML parser can make of them, and how its scalars are written.

use std::ops::Range;

use super::known::engine_of_script;
use super::text::{Encoding, Layer};
use super::unit;
use super::yaml::{Kind, Meaning, Node, NotYaml, Style, parse};

#[derive(Clone, Debug)]
pub struct Source {
    pub text: String,
    /// The text with templates masked, byte by byte: what the parser sees.
    masked: String,
    /// The documents, empty ones left out.
    pub documents: Vec<Node>,
    pub format: Format,
}

#[derive(Clone, Copy)]
pub struct Document<'m> {
    pub source: &'m Source,
    /// Its place among the documents.
    pub index: usize,
    pub meaning: &'m Meaning,
}

impl<'m> Document<'m> {
    pub fn root(&self) -> &'m Node {
        &self.source.documents[self.index]
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    /// A unit of systemd or a quadlet.
    Unit,
    /// A shell script: one text.
    Script,
}

impl Source {
    /// Parses a manifest, a unit or a script.
    pub fn new(text: impl Into<String>) -> Result<Self, NotYaml> {
        let text = text.into();
        if unit::is_unit(&text) {
            let documents = vec![unit::parse(&text)];
            return Ok(Self { masked: text.clone(), text, documents, format: Format::Unit });
        }
        let masked = masked(&text);
        let parsed = parse(&masked);
        let is_object = parsed.as_ref().is_ok_and(|documents| {
            documents.iter().any(|root| !matches!(root.kind, Kind::Scalar { .. })) || documents.is_empty()
        });
        if text.starts_with("#!") || (!is_object && engine_of_script(&text).is_some()) {
            let documents = vec![unit::scalar(&text, 0..text.len())];
            return Ok(Self { masked: text.clone(), text, documents, format: Format::Script });
        }
        let documents = parsed?;
        let mut source = Self { text, masked, documents: Vec::new(), format: Format::Yaml };
        source.documents = documents.into_iter().map(|root| source.unmasked(root)).collect();
        Ok(source)
    }

    /// The tree with templates back in the texts that hold them.
    fn unmasked(&self, mut node: Node) -> Node {
        let hides = self.text.get(node.span.clone()) != self.masked.get(node.span.clone());
        node.kind = match node.kind {
            kind if !hides => kind,
            Kind::Scalar { text, style } => {
                let layer = self.decoded(&node.span, style).filter(|layer| reads_as(layer, &text, style));
                let kept = text.get(layer.as_ref().map_or(0, |layer| layer.text.len())..).unwrap_or_default();
                let whole = layer.and_then(|layer| layer.read_from(&self.text)).map(|unmasked| unmasked + kept);
                Kind::Scalar { text: whole.unwrap_or_else(|| self.text[node.span.clone()].to_owned()), style }
            }
            Kind::Sequence { items, flow } => {
                Kind::Sequence { items: items.into_iter().map(|item| self.unmasked(item)).collect(), flow }
            }
            Kind::Mapping { entries, flow } => {
                let entries = entries.into_iter().map(|(key, value)| (self.unmasked(key), self.unmasked(value)));
                Kind::Mapping { entries: entries.collect(), flow }
            }
            alias @ Kind::Alias(_) => alias,
        };
        node
    }

    pub fn raw(&self, node: &Node) -> &str {
        self.text.get(node.span.clone()).unwrap_or_default()
    }

    pub fn line_end(&self) -> &'static str {
        match self.text.find('\n') {
            Some(at) if self.text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        }
    }

    /// Where the last byte of a node ends; line ends behind a block scalar are not its own.
    pub fn end(&self, node: &Node) -> usize {
        match &node.kind {
            Kind::Scalar { style: Style::Literal | Style::Folded, .. } => {
                node.span.start + self.raw(node).trim_end().len()
            }
            Kind::Sequence { items, flow: false } => items.last().map_or(node.span.end, |item| self.end(item)),
            Kind::Mapping { entries, flow: false } => {
                entries.last().map_or(node.span.end, |(key, value)| self.end(value).max(key.span.end))
            }
            _ => node.span.end,
        }
    }

    /// Where the line of a byte begins.
    pub fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |end| end + 1)
    }

    /// Where the line of a byte ends, its line end not included.
    pub fn line_stop(&self, at: usize) -> usize {
        let stop = self.text[at..].find('\n').map_or(self.text.len(), |end| at + end);
        if self.text[at..stop].ends_with('\r') { stop - 1 } else { stop }
    }

    /// What stands before a byte in its line.
    pub fn before(&self, at: usize) -> &str {
        &self.text[self.line_start(at)..at]
    }

    /// The column at which a node begins, in characters.
    pub fn column(&self, node: &Node) -> usize {
        self.before(node.span.start).chars().count()
    }

    /// A scalar's text, each byte with its place in the file. None if what is decoded here may differ from what the parser read: then it cannot be
    /// edited safely.
    pub fn layer(&self, node: &Node) -> Option<Layer> {
        let style = node.style()?;
        if self.format != Format::Yaml {
            return Some(Layer::verbatim(&self.text, node.span.clone()));
        }
        let mut layer = self.decoded(&node.span, style)?;
        layer.text = layer.read_from(&self.text)?;
        reads_as(&layer, node.text()?, style).then_some(layer)
    }

    /// A scalar's text with templates masked, line ends at the end of a block left out.
    fn decoded(&self, span: &Range<usize>, style: Style) -> Option<Layer> {
        let read = Reader { text: &self.masked, span: span.clone() };
        let mut layer = match style {
            Style::Plain => read.flowing(0, Encoding::Plain, |_| None),
            Style::Single => read.flowing(1, Encoding::SingleQuoted, doubled_quote),
            Style::Double => read.flowing(1, Encoding::DoubleQuoted, escape),
            Style::Literal | Style::Folded => {
                let before = self.before(span.start);
                let indent = before.trim().is_empty().then_some(before)?;
                read.block(indent, style == Style::Folded, self.line_end())
            }
        };
        if matches!(style, Style::Literal | Style::Folded) {
            layer.truncate(layer.text.trim_end_matches('\n').len());
        }
        Some(layer)
    }
}

/// Whether what was decoded is what the parser read. How many line ends a block keeps at its end is its header's matter (`|-`, `|`, `|+`).
fn reads_as(layer: &Layer, text: &str, style: Style) -> bool {
    match style {
        Style::Literal | Style::Folded => layer.text == text.trim_end_matches('\n'),
        _ => layer.text == text,
    }
}

fn doubled_quote(rest: &str) -> Option<(Option<char>, usize)> {
    rest.starts_with("''").then_some((Some('\''), 2))
}

/// The escapes of "…": what they stand for, nothing for an escaped line end, and how many bytes they take.
fn escape(rest: &str) -> Option<(Option<char>, usize)> {
    let letter = rest.strip_prefix('\\')?.chars().next()?;
    let hex = |digits: usize| {
        let code = u32::from_str_radix(rest.get(2..2 + digits)?, 16).ok()?;
        Some((Some(char::from_u32(code)?), 2 + digits))
    };
    let single = match letter {
        '0' => '\0',
        'a' => '\u{7}',
        'b' => '\u{8}',
        't' | '\t' => '\t',
        'n' => '\n',
        'v' => '\u{b}',
        'f' => '\u{c}',
        'r' => '\r',
        'e' => '\u{1b}',
        '"' | '/' | '\\' | ' ' => letter,
        'N' => '\u{85}',
        '_' => '\u{a0}',
        'L' => '\u{2028}',
        'P' => '\u{2029}',
        'x' => return hex(2),
        'u' => return hex(4),
        'U' => return hex(8),
        '\n' | '\r' => {
            let after = rest[1..].trim_start_matches(['\r', '\n', ' ', '\t']);
            return Some((None, rest.len() - after.len()));
        }
        _ => return None,
    };
    Some((Some(single), 2))
}

struct Reader<'t> {
    text: &'t str,
    span: Range<usize>,
}

impl Reader<'_> {
    /// Plain and quoted scalars, whose line breaks fold into spaces; `escapes` says what begins at a byte otherwise than as it stands.
    fn flowing(
        &self,
        quotes: usize,
        encoding: Encoding,
        escapes: impl Fn(&str) -> Option<(Option<char>, usize)>,
    ) -> Layer {
        let (mut at, end) = (self.span.start + quotes, self.span.end.saturating_sub(quotes));
        let mut layer = Layer::new(at, encoding);
        while at < end {
            let rest = &self.text[at..end];
            if let Some((c, length)) = escapes(rest) {
                if let Some(c) = c {
                    layer.push(c, at..at + length);
                }
                at += length;
                continue;
            }
            // White space around a line break is the break's.
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            let breaks = rest[..blank].matches('\n').count();
            if breaks > 0 {
                let folded = if breaks == 1 { " ".to_owned() } else { "\n".repeat(breaks - 1) };
                folded.chars().for_each(|c| layer.push(c, at..at + blank));
                at += blank;
                continue;
            }
            let Some(c) = rest.chars().next() else { break };
            layer.push(c, at..at + c.len_utf8());
            at += c.len_utf8();
        }
        layer
    }

    /// Block scalars: lines without their indentation; in folded ones, a single line break between two lines of the text is a space.
    fn block(&self, indent: &str, folded: bool, line_end: &str) -> Layer {
        let mut layer = Layer::new(self.span.start, Encoding::Block(format!("{line_end}{indent}")));
        // The break behind the last line with text, and whether that line may be joined with the next.
        let mut pending: Option<Range<usize>> = None;
        let (mut joinable, mut empty) = (false, 0_usize);
        let mut at = self.span.start - indent.len();
        // Empty lines above the first text belong to it.
        while let Some(above) = self.text[..at].strip_suffix('\n') {
            let start = above.rfind('\n').map_or(0, |end| end + 1);
            if !above[start..].trim().is_empty() || start == 0 {
                break;
            }
            at = start;
        }
        for line in self.text[at..self.span.end].split_inclusive('\n') {
            let start = at;
            at += line.len();
            let content = line.trim_end_matches(['\n', '\r']);
            let body = content.strip_prefix(indent).unwrap_or("");
            if body.is_empty() {
                empty += 1;
                continue;
            }
            let body_start = start + indent.len();
            let more_indented = body.starts_with([' ', '\t']);
            if let Some(from) = pending.take() {
                let from = from.start..body_start;
                let breaks = match (folded && joinable && !more_indented, empty) {
                    (true, 0) => " ".to_owned(),
                    (true, empty) => "\n".repeat(empty),
                    (false, empty) => "\n".repeat(empty + 1),
                };
                breaks.chars().for_each(|c| layer.push(c, from.clone()));
            } else {
                (0..empty).for_each(|_| layer.push('\n', start..body_start));
            }
            for (offset, c) in body.char_indices() {
                layer.push(c, body_start + offset..body_start + offset + c.len_utf8());
            }
            pending = Some(start + content.len()..at);
            joinable = !more_indented;
            empty = 0;
        }
        layer
    }
}

/// Templates as the parser can read around them: `{{ … }}` and `${…}` become words of the same length, and a line of nothing but templates a
/// comment. Bytes keep their places.
fn masked(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (open, close) in [("{{", "}}"), ("${", "}")] {
        let mut at = 0;
        while let Some(start) = text[at..].find(open).map(|found| at + found) {
            let Some(end) = text[start..].find(close).map(|found| start + found + close.len()) else { break };
            // Only the word itself: a template over several lines keeps its line ends.
            bytes[start..end].iter_mut().filter(|b| !matches!(b, b'\n' | b'\r')).for_each(|b| *b = b'_');
            at = end;
        }
    }
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let words = line.trim();
        let only_templates = words.starts_with("{{")
            && words.ends_with("}}")
            && words
                .split("{{")
                .skip(1)
                .all(|part| part.split_once("}}").is_some_and(|(_, after)| after.trim().is_empty()));
        if only_templates && let Some(first) = line.find("{{") {
            bytes[at + first] = b'#';
        }
        at += line.len();
    }
    // Only whole characters were replaced, by ASCII.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::text::{Edit, splice};
    use super::*;

    /// Every way to write a scalar decodes to what the parser reads, and an edit of the inner text changes exactly that.
    #[test]
    fn scalars_of_every_style_can_be_edited_from_within() {
        let cases = [
            ("a: vllm serve m --x 64 # c\n", "a: vllm serve m --x 128 # c\n"),
            ("a: 'it''s --x 64'\n", "a: 'it''s --x 128'\n"),
            ("a: \"\\u00e9 \\\"q\\\" --x 64\"\n", "a: \"\\u00e9 \\\"q\\\" --x 128\"\n"),
            ("a: vllm serve\n  m --x\n  64\n", "a: vllm serve\n  m --x\n  128\n"),
            ("a: \"vllm \\\n  --x\n  64\"\n", "a: \"vllm \\\n  --x\n  128\"\n"),
            ("a: >-\n  vllm serve m\n  --x 64\n  2>&1\n# c\n", "a: >-\n  vllm serve m\n  --x 128\n  2>&1\n# c\n"),
            ("a: >\n  one\n    more --x 64\n\n  two\n\n\nb: 1\n", "a: >\n  one\n    more --x 128\n\n  two\n\n\nb: 1\n"),
            ("a: |\n\n  \n  one --x 64\n", "a: |\n\n  \n  one --x 128\n"),
            ("a: |\r\n    é \\\r\n      --x 64\r\n", "a: |\r\n    é \\\r\n      --x 128\r\n"),
        ];
        for (before, after) in cases {
            let source = Source::new(before).unwrap();
            let node = source.documents[0].get("a").unwrap();
            let layer = source.layer(node).unwrap_or_else(|| panic!("{before}"));
            let at = layer.text.find("64").unwrap();
            let edit = layer.lift(&Edit::replace(at..at + 2, "128"));
            assert_eq!(splice(before, &[edit]).unwrap(), after);
        }
    }

    #[test]
    fn templates_do_not_disturb_what_stands_around_them() {
        let text = "{{- if .Values.on }}\nname: {{ .Values.name | quote }}\nlist: [${a}, b]\n{{ end }}\nargs: [x]\n";
        let source = Source::new(text).unwrap();
        let root = &source.documents[0];
        assert_eq!(source.raw(root.get("name").unwrap()), "{{ .Values.name | quote }}");
        assert_eq!(root.get("list").unwrap().items().len(), 2);
        assert_eq!(root.get("args").unwrap().items()[0].text(), Some("x"));
    }
}
