//! Arguments as keys of a mapping of their own: `vllmConfig: {maxNumSeqs: 64}`.

use super::Written;
use crate::export::flags::{Setting, is_placeholder};
use crate::export::render::{Entry, insert_entry, scalar};
use crate::export::source::Source;
use crate::export::text::Edit;
use crate::export::yaml::{Meaning, Node, Path, Style};
use crate::space::Value;

/// A flag that a kind of manifest has a key for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub flag: &'static str,
    /// The key, from the mapping that stands for the engine; dots separate keys.
    pub path: &'static str,
    /// Whether the key wants a text where the flag takes a number.
    pub text: bool,
}

/// Which keys of a mapping stand for flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    #[default]
    None,
    Named(&'static [Key]),
    /// All, as `vllm serve --config` reads them: a switch that is off has the key `no-…`, and `false` is passed over.
    Config,
    /// All, as Python's arguments: words joined by `_`.
    Python,
}

/// A key for a setting: its place in the mapping, whether it wants a text, and what it says.
pub struct KeyOf {
    path: String,
    text: bool,
    value: Value,
}

impl Keys {
    /// The key for a setting, as the mapping writes it already or would write it.
    pub fn of(self, map: Option<&Node>, setting: &Setting) -> Option<KeyOf> {
        let there = |name: &str| key_of(map, name).map(str::to_owned);
        let plain = |path, value: &Value| Some(KeyOf { path, text: false, value: value.clone() });
        match (self, &setting.value) {
            (Self::None, _) => None,
            (Self::Named(keys), value) => {
                let key = keys.iter().find(|key| key.flag == setting.name)?;
                Some(KeyOf { path: key.path.to_owned(), text: key.text, value: value.clone() })
            }
            (Self::Config, Value::Bool(false)) => {
                let name = format!("no-{}", setting.name);
                plain(there(&name).unwrap_or(name), &Value::Bool(true))
            }
            (Self::Config, value) => plain(there(&setting.name).unwrap_or_else(|| setting.name.clone()), value),
            (Self::Python, value) => {
                plain(there(&setting.name).unwrap_or_else(|| setting.name.replace('-', "_")), value)
            }
        }
    }

    /// The words that the keys of a mapping stand for. Flags of `off` without a key are off, unless the mapping is empty.
    pub fn words(self, map: Option<&Node>, off: &[&str]) -> Vec<String> {
        let Some(map) = map.filter(|map| !map.entries().is_empty()) else { return Vec::new() };
        let words = |flag: &str, value: &str| match value {
            "true" => vec![format!("--{flag}")],
            "false" => vec![format!("--no-{flag}")],
            value => vec![format!("--{flag}"), value.to_owned()],
        };
        match self {
            Self::None => Vec::new(),
            Self::Named(keys) => {
                let default = |key: &Key| off.contains(&key.flag).then_some("false");
                let there = |key: &Key| map.text_at(key.path).filter(|text| !text.is_empty());
                let of = |key: &Key| Some(words(key.flag, there(key).or(default(key))?));
                keys.iter().filter_map(of).flatten().collect()
            }
            Self::Config | Self::Python => {
                let of = |(key, value): &(Node, Node)| Some(words(&key.text()?.replace('_', "-"), value.text()?));
                map.entries().iter().filter_map(of).flatten().collect()
            }
        }
    }

    /// A key that says the opposite of a setting, and would be read beside it.
    pub fn opposite(self, map: Option<&Node>, setting: &Setting) -> Option<String> {
        let Value::Bool(on) = setting.value else { return None };
        let name = if on { format!("no-{}", setting.name) } else { setting.name.clone() };
        key_of(map.filter(|_| self == Self::Config), &name).map(str::to_owned)
    }
}

/// The key of a mapping that stands for a flag, whether with dashes or underscores.
fn key_of<'n>(map: Option<&'n Node>, name: &str) -> Option<&'n str> {
    let mut keys = map.map_or(&[][..], Node::entries).iter().filter_map(|(key, _)| key.text());
    keys.find(|key| key.replace('_', "-") == name)
}

impl KeyOf {
    pub fn at(&self, map: &Path) -> Path {
        map.key(&self.path)
    }

    /// The key and its value as a new entry, and what that means.
    pub fn entry(&self) -> ((String, Entry), (Meaning, Meaning)) {
        let (rendered, meaning) = self.rendered();
        ((self.path.clone(), Entry::Scalar(rendered)), (Meaning::plain(self.path.clone()), meaning))
    }

    fn rendered(&self) -> (String, Meaning) {
        let text = self.value.to_string();
        if self.text || matches!(self.value, Value::Text(_)) {
            (scalar(&text, Style::Double, false), Meaning::quoted(text))
        } else {
            (text.clone(), Meaning::plain(text))
        }
    }
}

pub fn is_placeholder_at(source: &Source, node: &Node) -> bool {
    is_placeholder(source.raw(node))
}

/// Gives a key its value, in place or as a new entry of its mapping; `None` if there is no such mapping.
pub fn write(source: &Source, root: &Node, at: &Path, key: &KeyOf, setting: &Setting) -> Option<Written> {
    let path = key.at(at);
    let (rendered, meaning) = key.rendered();
    let text = key.value.to_string();
    let (edit, meaning) = match root.at(&path).filter(|node| !node.is_nothing()) {
        // 0.90 is 0.9 and stays.
        Some(node) if node.text() == Some(&text) => return Some(Written::default()),
        Some(node) if !matches!(key.value, Value::Bool(_)) && node.text().is_some_and(|there| setting.is(there)) => {
            return Some(Written::default());
        }
        Some(node) => match node.style()? {
            Style::Plain => (Edit::replace(node.span.clone(), rendered), meaning),
            kept => (Edit::replace(node.span.clone(), scalar(&text, kept, false)), Meaning::quoted(text)),
        },
        None => {
            let (above, _) = path.parent()?;
            let name = key.path.rsplit('.').next()?;
            (insert_entry(source, root, root.at(&above)?, name, &Entry::Scalar(rendered))?, meaning)
        }
    };
    Some(Written { edits: vec![edit], meanings: vec![(path, meaning)] })
}
