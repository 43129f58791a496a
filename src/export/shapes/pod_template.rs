//! Any object with a pod in it, whatever its kind: ServingRuntime, Rollout, Knative Service, the objects of a List.

use super::{ArgumentLocation, Kind, Shape, containers, walk};
use crate::export::yaml::{Node, Path};

/// It comes behind the kinds that have a meaning of their own.
pub const SHAPE: Shape = Shape { name: "pod template", recognises, locations, kind: Kind::Custom };

fn recognises(root: &Node) -> bool {
    !locations(root).is_empty()
}

/// The containers of every pod, at any depth.
fn locations(root: &Node) -> Vec<ArgumentLocation> {
    let is_container = |item: &Node| item.get("name").is_some() || item.get("image").is_some();
    let mut found = Vec::new();
    walk(root, &Path::default(), &mut |node, at| {
        if node.get("containers").is_some_and(|list| list.items().iter().any(is_container)) {
            found.extend(containers(root, at));
        }
    });
    found
}
