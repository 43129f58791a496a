//! The forms in which a change leaves: a unified diff, a Kustomize patch, a JSON patch.

mod diff;
mod json_patch;
mod kustomize;

pub use diff::diff;
pub use json_patch::{Target, annotate_command, json_patch};
pub use kustomize::kustomize;

use super::flags::is_placeholder;
use super::shapes::{Kind, shape};
use super::source::Source;
use super::write::Exported;
use super::yaml::{Meaning, Node, Path, Step};

/// Why a change cannot leave in a form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchForm {
    #[error(
        "this file is no object of the cluster (Helm values, Docker Compose, a unit, a script): take the whole file or a diff"
    )]
    File,
    #[error("the change touches {0} objects, and a patch is of one: take the whole file or a diff")]
    Objects(usize),
    #[error("the object has no kind and name to patch it by: take the whole file or a diff")]
    Nameless,
}

/// The one document that a change touches; `None` if it touches none.
fn only_document<'s>(source: &'s Source, exported: &Exported) -> Result<Option<&'s Node>, NoSuchForm> {
    let mut documents: Vec<usize> = exported.changed.iter().map(|c| c.document).collect();
    documents.sort_unstable();
    documents.dedup();
    match documents[..] {
        [] => Ok(None),
        [one] => {
            let root = source.documents.get(one).ok_or(NoSuchForm::Nameless)?;
            let named = ["kind", "apiVersion"].iter().all(|key| root.get(key).is_some());
            match shape(root) {
                Some(shape) if shape.kind == Kind::File => Err(NoSuchForm::File),
                _ if !named || !root.at(&Path::default().key("metadata.name")).is_some_and(is_name) => {
                    Err(NoSuchForm::Nameless)
                }
                _ => Ok(Some(root)),
            }
        }
        ref several => Err(NoSuchForm::Objects(several.len())),
    }
}

/// Whether a name is known: a placeholder gets another one later.
fn is_name(node: &Node) -> bool {
    node.text().is_some_and(|name| !name.is_empty() && !is_placeholder(name))
}

/// A place as RFC 6901 writes it.
fn pointer(path: &Path) -> String {
    let step = |step: &Step| match step {
        Step::Key(key) => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        Step::Item(index) => format!("/{index}"),
    };
    path.0.iter().map(step).collect()
}

/// A value as JSON, as Kubernetes reads YAML.
pub fn json(meaning: &Meaning) -> serde_json::Value {
    match meaning {
        Meaning::Scalar { text, plain: true, tag: None } => match text.as_str() {
            "" | "~" | "null" => serde_json::Value::Null,
            "true" => true.into(),
            "false" => false.into(),
            number => serde_json::from_str::<serde_json::Number>(number).map_or_else(|_| number.into(), Into::into),
        },
        Meaning::Scalar { text, .. } => text.as_str().into(),
        Meaning::List(items) => items.iter().map(json).collect::<Vec<_>>().into(),
        Meaning::Map(entries) => serde_json::Value::Object(
            entries.iter().map(|(key, value)| (key.text().unwrap_or_default().to_owned(), json(value))).collect(),
        ),
    }
}
