//! YAML as a tree that knows where each node stands, down to the byte.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, StructureStyle};

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// In bytes of the file. Quotes and brackets belong to it; of a block scalar, only the lines of its text.
    pub span: Range<usize>,
    pub kind: Kind,
    /// The number of its anchor, if it has one.
    pub anchor: Option<usize>,
    /// Its tag as written, such as `!!str`.
    pub tag: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Text, a number, a truth value or nothing.
    Scalar {
        /// What it says, escapes and folds resolved; empty where nothing is written.
        text: String,
        style: Style,
    },
    Sequence {
        items: Vec<Node>,
        /// Whether it is written `[a, b]`.
        flow: bool,
    },
    /// Keys and values, in the order of the file.
    Mapping {
        entries: Vec<(Node, Node)>,
        /// Whether it is written `{a: b}`.
        flow: bool,
    },
    /// `*name`: another node once more.
    Alias(usize),
}

/// How a scalar is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Without quotes: YAML decides whether it is a number.
    Plain,
    Single,
    Double,
    Literal,
    Folded,
}

/// One step from a node to a part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The value of a key.
    Key(String),
    /// An item, from 0.
    Item(usize),
}

/// A place in a document, from its root.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<Step>);

impl Path {
    /// The value of one more key; `a.b` are two keys.
    pub fn key(&self, keys: &str) -> Self {
        keys.split('.').fold(self.clone(), |path, key| path.literal_key(key))
    }

    /// The value of one more key, which may hold dots.
    pub fn literal_key(&self, key: &str) -> Self {
        self.then(Step::Key(key.to_owned()))
    }

    pub fn item(&self, index: usize) -> Self {
        self.then(Step::Item(index))
    }

    fn then(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    /// The place that this one is a part of, and the last step.
    pub fn parent(&self) -> Option<(Self, &Step)> {
        let (last, before) = self.0.split_last()?;
        Some((Self(before.to_vec()), last))
    }
}

impl std::fmt::Display for Path {
    /// `spec.containers[0].args`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if i == 0 => f.write_str(key)?,
                Step::Key(key) if key.contains(['.', '/']) => write!(f, "[{key:?}]")?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Item(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for Path {
    type Err = String;

    /// Reads what [`Path`]'s `Display` writes; quoted keys in brackets may hold dots.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no path such as spec.template.spec.containers[0].args");
        let (mut path, mut rest) = (Self::default(), text.trim_start_matches('.'));
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let (inner, after) = inner.split_once(']').ok_or_else(wrong)?;
                path = match inner.trim_matches(['"', '\'']) {
                    key if key.len() < inner.len() => path.literal_key(key),
                    index => path.item(index.parse().map_err(|_| wrong())?),
                };
                rest = after.strip_prefix('.').unwrap_or(after);
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                let (key, after) = rest.split_at(end);
                if key.is_empty() {
                    return Err(wrong());
                }
                path = path.literal_key(key);
                rest = after.strip_prefix('.').unwrap_or(after);
            }
        }
        if path.0.is_empty() { Err(wrong()) } else { Ok(path) }
    }
}

impl Node {
    /// The value of a key, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(k, _)| k.text() == Some(key)).map(|(_, value)| value)
    }

    /// The node at a place below this one.
    pub fn at(&self, path: &Path) -> Option<&Self> {
        path.0.iter().try_fold(self, |node, step| match step {
            Step::Key(key) => node.get(key),
            Step::Item(index) => node.items().get(*index),
        })
    }

    /// The text at keys below this one; dots separate keys.
    pub fn text_at(&self, keys: &str) -> Option<&str> {
        self.at(&Path::default().key(keys))?.text()
    }

    /// The items of a list; none of all else.
    pub fn items(&self) -> &[Self] {
        match &self.kind {
            Kind::Sequence { items, .. } => items,
            _ => &[],
        }
    }

    /// The entries of a mapping; none of all else.
    pub fn entries(&self) -> &[(Self, Self)] {
        match &self.kind {
            Kind::Mapping { entries, .. } => entries,
            _ => &[],
        }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// How a scalar is written.
    pub fn style(&self) -> Option<Style> {
        match &self.kind {
            Kind::Scalar { style, .. } => Some(*style),
            _ => None,
        }
    }

    /// Whether it is a list or a mapping in brackets.
    pub fn is_flow(&self) -> bool {
        matches!(self.kind, Kind::Sequence { flow: true, .. } | Kind::Mapping { flow: true, .. })
    }

    /// Whether it is nothing, or `null` as a word.
    pub fn is_null(&self) -> bool {
        let word = |text: &str| ["", "~", "null", "Null", "NULL"].contains(&text);
        matches!(&self.kind, Kind::Scalar { text, style: Style::Plain } if word(text)) && self.tag.is_none()
    }

    /// Whether nothing is written there: `key:` and then the next line.
    pub fn is_nothing(&self) -> bool {
        self.span.is_empty() && matches!(self.kind, Kind::Scalar { .. })
    }
}

/// Why a text is no YAML that can be edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotYaml {
    /// In bytes of the file.
    pub at: usize,
    pub says: String,
}

/// The documents of a file, empty ones left out.
pub fn parse(text: &str) -> Result<Vec<Node>, NotYaml> {
    let mut builder = Builder { text, documents: Vec::new(), open: Vec::new() };
    for event in Parser::new_from_str(text) {
        let (event, span) = event
            .map_err(|error| NotYaml { at: error.marker().byte_offset().unwrap_or(text.len()), says: error.info() })?;
        let offset = |marker: granit_parser::Marker| marker.byte_offset().unwrap_or(text.len());
        let span = offset(span.start)..offset(span.end);
        if builder.open.len() > DEEPEST {
            return Err(NotYaml {
                at: span.start,
                says: format!("more than {DEEPEST} collections inside of each other"),
            });
        }
        builder.take(event, span)?;
    }
    Ok(builder.documents)
}

struct Builder<'t> {
    text: &'t str,
    documents: Vec<Node>,
    /// Collections that are still open.
    open: Vec<Open>,
}

struct Open {
    node: Node,
    /// A key that waits for its value.
    key: Option<Node>,
    /// The names of a mapping so far.
    names: HashSet<String>,
}

impl Open {
    fn new(node: Node) -> Self {
        Self { node, key: None, names: HashSet::new() }
    }
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: Range<usize>) -> Result<(), NotYaml> {
        let node = |kind, anchor: usize, tag: Option<String>| Node {
            span: span.clone(),
            kind,
            anchor: (anchor > 0).then_some(anchor),
            tag,
        };
        let flow = |style| style == StructureStyle::Flow;
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let style = match style {
                    ScalarStyle::SingleQuoted => Style::Single,
                    ScalarStyle::DoubleQuoted => Style::Double,
                    ScalarStyle::Literal => Style::Literal,
                    ScalarStyle::Folded => Style::Folded,
                    ScalarStyle::Plain => Style::Plain,
                };
                // The parser reports `~` where nothing is written.
                let text = if span.is_empty() && style == Style::Plain { String::new() } else { text.into_owned() };
                let done = node(Kind::Scalar { text, style }, anchor, tag.map(|t| t.original()));
                self.close(done)
            }
            Event::Alias(anchor) => {
                let done = node(Kind::Alias(anchor), 0, None);
                self.close(done)
            }
            Event::SequenceStart(style, anchor, tag) => {
                let kind = Kind::Sequence { items: Vec::new(), flow: flow(style) };
                self.open.push(Open::new(node(kind, anchor, tag.map(|t| t.original()))));
                Ok(())
            }
            Event::MappingStart(style, anchor, tag) => {
                let kind = Kind::Mapping { entries: Vec::new(), flow: flow(style) };
                self.open.push(Open::new(node(kind, anchor, tag.map(|t| t.original()))));
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open { mut node, .. }) => {
                    // A block ends where its last part does; the parser says where the next thing begins.
                    node.span.end = if node.is_flow() { span.end } else { last_byte(&node).unwrap_or(node.span.end) };
                    // Of a list that is not indented, the parser knows the first item's place alone.
                    if let Some(dash) = first_dash(self.text, &node) {
                        node.span.start = dash;
                    }
                    self.close(node)
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn close(&mut self, done: Node) -> Result<(), NotYaml> {
        let Some(open) = self.open.last_mut() else {
            if !done.is_nothing() {
                self.documents.push(done);
            }
            return Ok(());
        };
        match (&mut open.node.kind, open.key.take()) {
            (Kind::Sequence { items, .. }, _) => items.push(done),
            (Kind::Mapping { entries, .. }, Some(key)) => {
                if let Some(name) = key.text()
                    && !open.names.insert(name.to_owned())
                {
                    return Err(NotYaml { at: key.span.start, says: format!("the key `{name}` stands twice") });
                }
                entries.push((key, done));
            }
            (Kind::Mapping { .. }, None) => open.key = Some(done),
            (Kind::Scalar { .. } | Kind::Alias(_), _) => {}
        }
        Ok(())
    }
}

fn first_dash(text: &str, node: &Node) -> Option<usize> {
    node.items().first().filter(|_| !node.is_flow())?;
    let rest = text.get(node.span.start..)?;
    // The parser said where the dash is.
    if rest.starts_with('-') && rest[1..].starts_with(char::is_whitespace) {
        return None;
    }
    dash_before(text, node.span.start)
}

fn dash_before(text: &str, at: usize) -> Option<usize> {
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..at)?;
    let indent = line.len() - line.trim_start().len();
    line[indent..].starts_with('-').then_some(start + indent)
}

fn last_byte(node: &Node) -> Option<usize> {
    match &node.kind {
        Kind::Sequence { items, .. } => items.last().map(|item| item.span.end),
        Kind::Mapping { entries, .. } => entries.last().map(|(key, value)| value.span.end.max(key.span.end)),
        Kind::Scalar { .. } | Kind::Alias(_) => None,
    }
}

/// What a node means, with aliases resolved: two texts with the same meaning are the same manifest.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    Scalar {
        text: String,
        /// Whether it is written without quotes or tag, so that `64` is a number.
        plain: bool,
        tag: Option<String>,
    },
    List(Vec<Meaning>),
    /// A mapping, in the order of the file, which tools keep.
    Map(Vec<(Meaning, Meaning)>),
}

impl Meaning {
    pub fn quoted(text: impl Into<String>) -> Self {
        Self::Scalar { text: text.into(), plain: false, tag: None }
    }

    /// A number or another word without quotes.
    pub fn plain(text: impl Into<String>) -> Self {
        Self::Scalar { text: text.into(), plain: true, tag: None }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.iter().find(|(k, _)| k.text() == Some(key)).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The part at a place.
    pub fn at(&self, path: &Path) -> Option<&Self> {
        path.0.iter().try_fold(self, |meaning, step| match (step, meaning) {
            (Step::Key(key), _) => meaning.get(key),
            (Step::Item(index), Self::List(items)) => items.get(*index),
            _ => None,
        })
    }

    /// Puts a value at a place; a missing last key is added at the end, as are missing mappings on the way. False if there is no such place.
    pub fn set(&mut self, path: &[Step], value: Self) -> bool {
        let Some((step, rest)) = path.split_first() else {
            *self = value;
            return true;
        };
        if self.is_nothing() {
            *self = Self::Map(Vec::new());
        }
        match (step, self) {
            (Step::Key(key), Self::Map(entries)) => {
                let index = entries.iter().position(|(k, _)| k.text() == Some(key)).unwrap_or_else(|| {
                    entries.push((Self::plain(key.clone()), Self::plain("")));
                    entries.len() - 1
                });
                entries.get_mut(index).is_some_and(|(_, there)| there.set(rest, value))
            }
            (Step::Item(index), Self::List(items)) => items.get_mut(*index).is_some_and(|there| there.set(rest, value)),
            _ => false,
        }
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Self::Scalar { text, plain: true, tag: None } if text.is_empty())
    }

    /// Whether keys and texts are equal, with or without quotes: what tools see.
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b)),
            (Self::Map(a), Self::Map(b)) => {
                a.len() == b.len()
                    && a.iter().zip(b).all(|((ka, va), (kb, vb))| {
                        let keys = match (ka.text(), kb.text()) {
                            (Some(a), Some(b)) => a == b,
                            _ => ka.same(kb),
                        };
                        keys && va.same(vb)
                    })
            }
            // A plain word that no schema of YAML reads as anything else than text is that text.
            (Self::Scalar { text: a, plain: pa, tag: ta }, Self::Scalar { text: b, plain: pb, tag: tb }) => {
                a == b && ta == tb && (pa == pb || !is_special(a))
            }
            _ => false,
        }
    }
}

/// Whether YAML 1.1, which Kubernetes reads, or 1.2 may read a plain scalar as something else than text. That is a number, a date, a
/// truth value or nothing.
pub fn is_special(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let words = ["", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "=", "<<", ".nan", ".inf"];
    let first = |c: char| c.is_ascii_digit() || "+-.".contains(c);
    let numeric = lower.starts_with(first)
        && lower.chars().any(|c| c.is_ascii_digit())
        && lower.chars().all(|c| c.is_ascii_hexdigit() || "+-._:xotz ".contains(c))
        || lower.trim_start_matches(['+', '-']) == ".inf";
    words.contains(&lower.as_str()) || numeric
}

/// At most so many nodes, aliases resolved: a bomb of aliases is refused instead of unfolded.
const MOST_NODES: usize = 1_000_000;

/// At most so many collections inside of each other, in the file and with its aliases resolved. Whoever walks a tree needs a stack for it.
const DEEPEST: usize = 200;

/// What a document means; `None` if its aliases unfold without end, such as one inside of its own anchor.
pub fn meaning(root: &Node) -> Option<Meaning> {
    let mut anchors = HashMap::new();
    collect(root, &mut anchors);
    let mut left = MOST_NODES;
    resolve(root, &anchors, DEEPEST, &mut left)
}

fn collect<'n>(node: &'n Node, anchors: &mut HashMap<usize, &'n Node>) {
    if let Some(anchor) = node.anchor {
        anchors.insert(anchor, node);
    }
    node.items().iter().for_each(|item| collect(item, anchors));
    for (key, value) in node.entries() {
        collect(key, anchors);
        collect(value, anchors);
    }
}

fn resolve(node: &Node, anchors: &HashMap<usize, &Node>, deeper: usize, left: &mut usize) -> Option<Meaning> {
    *left = left.checked_sub(1)?;
    let deeper = deeper.checked_sub(1)?;
    Some(match &node.kind {
        Kind::Scalar { text, style } => {
            Meaning::Scalar { text: text.clone(), plain: *style == Style::Plain, tag: node.tag.clone() }
        }
        Kind::Sequence { items, .. } => {
            Meaning::List(items.iter().map(|item| resolve(item, anchors, deeper, left)).collect::<Option<_>>()?)
        }
        Kind::Mapping { entries, .. } => {
            let mut resolved = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                resolved.push((resolve(key, anchors, deeper, left)?, resolve(value, anchors, deeper, left)?));
            }
            Meaning::Map(resolved)
        }
        Kind::Alias(anchor) => resolve(anchors.get(anchor)?, anchors, deeper, left)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_know_their_bytes() {
        let text = "a: &x\n  - é # c\n  - \"b\\tq\"\nb: {c: [1, 2], d: *x}\ne:\n---\nf: |\n  one\n  two\n";
        let documents = parse(text).unwrap();
        let slice = |node: &Node| text[node.span.clone()].to_owned();
        let root = &documents[0];
        let item = |path: &str| slice(root.at(&path.parse().unwrap()).unwrap());
        assert_eq!(item("a[0]"), "é");
        assert_eq!(item("a[1]"), "\"b\\tq\"");
        assert_eq!(item("b.c"), "[1, 2]");
        assert_eq!(item("a"), "- é # c\n  - \"b\\tq\"");
        assert!(root.get("e").unwrap().is_nothing());
        assert_eq!(documents[1].get("f").unwrap().text(), Some("one\ntwo\n"));
        assert_eq!(meaning(root).unwrap().at(&"b.d[0]".parse().unwrap()).unwrap().text(), Some("é"));
    }

    #[test]
    fn keys_that_stand_twice_and_broken_files_are_refused_with_their_place() {
        assert_eq!(parse("a: 1\nb: 2\na: 3\n").unwrap_err().at, 10);
        assert!(parse("a: [1, 2\nb: 3\n").is_err());
    }

    #[test]
    fn an_alias_inside_its_own_anchor_and_a_file_of_brackets_are_refused() {
        for text in ["metadata: &a {labels: *a}\n", "a: &x [*y]\nb: &y [*x]\n", "a: &x\n  <<: *x\n"] {
            // Where the parser does not refuse it, its meaning has no end.
            assert!(parse(text).map_or(true, |documents| meaning(&documents[0]).is_none()), "{text}");
        }
        assert!(parse("metadata: &a {labels: *a}\n").is_ok(), "the parser takes it");
        let brackets = |count: usize| parse(&("a: ".to_owned() + &"[".repeat(count) + &"]".repeat(count)));
        assert!(brackets(DEEPEST - 2).is_ok());
        assert!(brackets(DEEPEST + 1).unwrap_err().says.contains("inside of each other"));
        assert!(brackets(100_000).is_err());
    }

    #[test]
    fn numbers_need_quotes_to_be_text() {
        for special in ["64", "0.9", "1e3", "0x1F", "yes", "Null", "~", "", "12:30", "2026-11-22", "-.inf"] {
            assert!(is_special(special), "{special}");
        }
        for text in ["--max-num-seqs", "--a=64", "vllm", "v0.9", "a1", "-"] {
            assert!(!is_special(text), "{text}");
        }
        assert!(!Meaning::quoted("64").same(&Meaning::plain("64")));
        assert!(Meaning::quoted("vllm").same(&Meaning::plain("vllm")));
    }

    #[test]
    fn paths_are_read_as_they_are_written() {
        for text in ["spec.containers[0].args", "data[\"agg.yaml\"]"] {
            assert_eq!(text.parse::<Path>().unwrap().to_string(), text);
        }
        assert!("".parse::<Path>().is_err() && "a[x]".parse::<Path>().is_err());
    }
}
