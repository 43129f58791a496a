//! The change as a patch for Kustomize. If Kubernetes knows the kind, it is merged by container name. Elsewhere it is a JSON patch, because
//! Kustomize replaces the lists of kinds that it does not know.

use serde_json::{Map, Value, json as object};

use super::{NoSuchForm, Target, json, json_patch, only_document};
use crate::export::render::yaml;
use crate::export::shapes::{Kind, shape};
use crate::export::source::Source;
use crate::export::write::Exported;
use crate::export::yaml::{Meaning, Node, Path, Step, meaning};

/// A `Component` that patches the object, as YAML; empty where nothing changes.
pub fn kustomize(source: &Source, exported: &Exported) -> Result<String, NoSuchForm> {
    let Some(root) = only_document(source, exported)? else { return Ok(String::new()) };
    let text = |key: &str| root.text_at(key).unwrap_or_default();
    let built_in = shape(root).is_some_and(|shape| shape.kind == Kind::BuiltIn);
    let before = meaning(root).ok_or(NoSuchForm::Nameless)?;
    let patch =
        if built_in { vec![merge(root, &before, exported)] } else { json_patch(source, exported, Target::File)? };
    let patch = if built_in { patch[0].clone() } else { Value::Array(patch) };
    let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
    let mut target = Map::new();
    for (key, value) in
        [("group", group), ("version", version), ("kind", text("kind")), ("name", text("metadata.name"))]
    {
        if !value.is_empty() {
            target.insert(key.to_owned(), value.into());
        }
    }
    let body = indented(&yaml(&patch, 0), 6);
    Ok(format!(
        "# A Kustomize component: list its folder under `components` of a kustomization.yaml.\n\
         apiVersion: kustomize.config.k8s.io/v1alpha1\n\
         kind: Component\n\
         patches:\n\
         \x20 - target:\n{}\n\x20   patch: |-\n{body}\n",
        indented(&yaml(&Value::Object(target), 0), 6)
    ))
}

/// The object with nothing but what changes; items of lists with their names, by which Kubernetes merges them. Kustomize puts the items of a
/// patch first. So those that stand before an item that changes are named as well, and all keep their places.
fn merge(root: &Node, before: &Meaning, exported: &Exported) -> Value {
    let mut patch = object!({});
    for key in ["apiVersion", "kind"] {
        patch[key] = root.get(key).and_then(Node::text).unwrap_or_default().into();
    }
    patch["metadata"]["name"] = root.text_at("metadata.name").into();
    for changed in &exported.changed {
        let mut there = &mut patch;
        let mut path = Path::default();
        for step in &changed.path.0 {
            let above = path.clone();
            path.0.push(step.clone());
            there = match step {
                Step::Key(key) => &mut there[key.as_str()],
                Step::Item(index) => {
                    let mut list = there.as_array_mut().map(std::mem::take).unwrap_or_default();
                    match before.at(&above) {
                        // A list of words has no names to merge by, and is replaced.
                        Some(Meaning::List(words)) if words.iter().all(|word| word.text().is_some()) => {
                            list.extend(words.iter().skip(list.len()).map(json));
                        }
                        _ => {
                            for index in list.len()..=*index {
                                let name = above.item(index).key("name");
                                list.push(object!({"name": root.at(&name).and_then(Node::text).unwrap_or_default()}));
                            }
                        }
                    }
                    *there = Value::Array(list);
                    &mut there[*index]
                }
            };
        }
        *there = json(&changed.after);
        if let Some(before) = &changed.before {
            delete_what_is_gone(&json(before), there);
        }
    }
    patch
}

/// Marks what a list of named items or a mapping has no more: a merge keeps what its patch does not name.
fn delete_what_is_gone(before: &Value, patch: &mut Value) {
    match (before, patch) {
        (Value::Array(before), Value::Array(items)) => {
            let names =
                |items: &[Value]| items.iter().map(|item| item.get("name").cloned()).collect::<Option<Vec<_>>>();
            let (Some(before), Some(kept)) = (names(before), names(items)) else { return };
            let gone = before.into_iter().filter(|name| !kept.contains(name));
            items.extend(gone.map(|name| object!({"name": name, "$patch": "delete"})));
        }
        (Value::Object(before), Value::Object(patch)) => {
            for key in before.keys().filter(|key| !patch.contains_key(*key)).cloned().collect::<Vec<_>>() {
                patch.insert(key, Value::Null);
            }
        }
        _ => {}
    }
}

fn indented(text: &str, by: usize) -> String {
    let indent = " ".repeat(by);
    text.lines().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
}
