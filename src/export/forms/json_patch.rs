//! The change as a JSON patch (RFC 6902), which fails rather than touch another container: names are tested first.

use serde_json::{Value, json as object};

use super::{NoSuchForm, json, only_document, pointer};
use crate::export::provenance::ANNOTATIONS;
use crate::export::source::Source;
use crate::export::write::{Changed, Exported};
use crate::export::yaml::{Meaning, Node, Path, Step, meaning};
use crate::report::shell_quoted;

/// What a patch is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The object in the cluster, which may have annotations that the file does not: `kubectl apply` and controllers keep their own there.
    Cluster,
    /// The object as the file has it.
    File,
}

/// The operations; empty if nothing changes.
pub fn json_patch(source: &Source, exported: &Exported, target: Target) -> Result<Vec<Value>, NoSuchForm> {
    let Some(root) = only_document(source, exported)? else { return Ok(Vec::new()) };
    let before = meaning(root).ok_or(NoSuchForm::Nameless)?;
    let mut operations: Vec<Value> = Vec::new();
    for changed in &exported.changed {
        for test in tests(root, &changed.path) {
            if !operations.contains(&test) {
                operations.push(test);
            }
        }
        if target == Target::Cluster && is_new_mapping(changed) {
            continue;
        }
        for parent in parents(&before, &changed.path) {
            if !operations.contains(&parent) {
                operations.push(parent);
            }
        }
        let operation = if changed.before.is_some() { "replace" } else { "add" };
        operations.push(object!({"op": operation, "path": pointer(&changed.path), "value": json(&changed.after)}));
    }
    Ok(operations)
}

/// Annotations of an object that has none in the file. In the cluster it may have some: to add the mapping would take those away, and to
/// add to it fails where there are none.
fn is_new_mapping(changed: &Changed) -> bool {
    changed.path == Path::default().key(ANNOTATIONS)
}

/// How to add the annotations that a patch for the cluster leaves out; `None` if it has them all.
pub fn annotate_command(source: &Source, exported: &Exported) -> Option<String> {
    let changed = exported.changed.iter().find(|changed| is_new_mapping(changed))?;
    let root = source.documents.get(changed.document)?;
    let Meaning::Map(entries) = &changed.after else { return None };
    let pairs =
        entries.iter().filter_map(|(key, value)| Some(shell_quoted(&format!("{}={}", key.text()?, value.text()?))));
    let namespace = root.text_at("metadata.namespace").map_or_else(String::new, |name| format!(" --namespace {name}"));
    let pairs: Vec<String> = pairs.collect();
    // A kind alone may be another group's as well: Knative has a Service of its own.
    let kind = match root.text_at("apiVersion")?.split_once('/') {
        Some((group, version)) if group.contains('.') => format!("{}.{version}.{group}", root.text_at("kind")?),
        _ => root.text_at("kind")?.to_owned(),
    };
    Some(format!("kubectl annotate {kind} {}{namespace} {}", root.text_at("metadata.name")?, pairs.join(" ")))
}

/// That the items on the way are those that are meant, by name.
fn tests(root: &Node, path: &Path) -> Vec<Value> {
    let mut tests = Vec::new();
    for (depth, step) in path.0.iter().enumerate() {
        if matches!(step, Step::Item(_)) {
            let item = Path(path.0[..=depth].to_vec());
            if let Some(name) = root.at(&item.key("name")).and_then(Node::text) {
                tests.push(object!({"op": "test", "path": pointer(&item.key("name")), "value": name}));
            }
        }
    }
    tests
}

/// Mappings on the way that are not there yet, from the outermost.
fn parents(before: &Meaning, path: &Path) -> Vec<Value> {
    let above = (1..path.0.len()).map(|depth| Path(path.0[..depth].to_vec()));
    let missing = above.filter(|above| before.at(above).is_none_or(|there| json(there).is_null()));
    missing.map(|above| object!({"op": "add", "path": pointer(&above), "value": {}})).collect()
}
