//! Any object with a pod in it, whatever its kind: ServingRuntime, Rollout, Knative Service, the objects of a List.

use super::{Kind, ArgumentLocation, Shape, containers};
use crate::export::yaml::{Node, Path};

/// The row. It comes last: kinds with a meaning of their own are known by name.
pub const SHAPE: Shape = Shape { name: "pod template", recognises, locations, kind: Kind::Custom };

fn recognises(root: &Node) -> bool {
    !locations(root).is_empty()
}

/// The containers of every pod, at any depth.
fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let mut found = Vec::new();
    pods(root, root, &Path::default(), &mut found);
    found
}

fn pods(root: &Node, node: &Node, at: &Path, found: &mut Vec<ArgumentLocation>) {
    let is_container = |item: &Node| item.get("name").is_some() || item.get("image").is_some();
    if node.get("containers").is_some_and(|list| list.items().iter().any(is_container)) {
        found.extend(containers(root, at));
    }
    for (key, value) in node.entries() {
        if let Some(key) = key.text() {
            pods(root, value, &at.literal_key(key), found);
        }
    }
    for (index, item) in node.items().iter().enumerate() {
        pods(root, item, &at.item(index), found);
    }
}
