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

/// Whether a placeholder stands at a node.
pub fn is_placeholder_at(source: &Source, node: &Node) -> bool {
    is_placeholder(source.raw(node))
}

/// Gives a key its value, in place or as a new entry of its mapping; none where there is no such mapping.
pub fn write(source: &Source, root: &Node, at: &Path, key: &Key, setting: &Setting) -> Option<Written> {
    let path = at.key(key.path);
    let text = setting.value.to_string();
    let style = if key.text || matches!(setting.value, Value::Text(_)) { Style::Double } else { Style::Plain };
    let meaning = Meaning::Scalar { text: text.clone(), plain: style == Style::Plain, tag: None };
    let rendered = if style == Style::Plain { text.clone() } else { scalar(&text, style, false) };
    let edit = match root.at(&path).filter(|node| !node.is_nothing()) {
        // 0.90 is 0.9 and stays.
        Some(node) if node.text().is_some_and(|there| setting.is(there)) => return Some(Written::default()),
        Some(node) => {
            let kept = node.style()?;
            let rendered = if kept == Style::Plain { rendered } else { scalar(&text, kept, false) };
            let plain = kept == Style::Plain && style == Style::Plain;
            let meaning = Meaning::Scalar { text, plain, tag: None };
            let edit = Edit::replace(node.span.clone(), rendered);
            return Some(Written { edits: vec![edit], meanings: vec![(path, meaning)] });
        }
        None => {
            let (above, _) = path.parent()?;
            let name = key.path.rsplit('.').next()?;
            insert_entry(source, root, root.at(&above)?, name, &Entry::Scalar(rendered))?
        }
    };
    Some(Written { edits: vec![edit], meanings: vec![(path, meaning)] })
}
