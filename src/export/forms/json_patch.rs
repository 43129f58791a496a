//! The change as a JSON patch (RFC 6902), which fails rather than touch another container: names are tested first.

use serde_json::{Value, json as object};

use super::{NoSuchForm, json, only_document, pointer};
use crate::export::provenance::ANNOTATIONS;
use crate::export::source::Source;
use crate::export::write::Exported;
use crate::export::yaml::{Meaning, Node, Path, Step, meaning};

/// What a patch is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The object in the cluster, which has annotations that the file does not: `kubectl apply` and controllers keep their own there.
    Cluster,
    /// The object as the file has it.
    File,
}

/// The operations; none where nothing changes.
///
/// # Errors
/// Where a patch is no way to say it.
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
        // To add the mapping would take away the annotations that others made; where there are none, adding to it fails instead.
        if target == Target::Cluster
            && changed.path == Path::default().key(ANNOTATIONS)
            && let Meaning::Map(entries) = &changed.after
        {
            operations.extend(entries.iter().filter_map(|(key, value)| {
                let path = pointer(&changed.path.literal_key(key.text()?));
                Some(object!({"op": "add", "path": path, "value": json(value)}))
            }));
            continue;
        }
        operations.extend(parents(&before, &changed.path));
        let operation = if changed.before.is_some() { "replace" } else { "add" };
        operations.push(object!({"op": operation, "path": pointer(&changed.path), "value": json(&changed.after)}));
    }
    Ok(operations)
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

/// Mappings on the way that are not there yet; a later operation would find its own.
fn parents(before: &Meaning, path: &Path) -> Option<Value> {
    let (above, _) = path.parent()?;
    let missing = before.at(&above).is_none_or(|there| json(there).is_null());
    missing.then(|| object!({"op": "add", "path": pointer(&above), "value": {}}))
}
