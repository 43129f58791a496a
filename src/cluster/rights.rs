//! The rights that a run needs, asked for before anything is touched.

use k8s_openapi::api::authorization::v1::ResourceAttributes;

use super::api::{Cluster, ClusterError};
use super::borrow::{outcome_name, own_name};
use super::kinds::Scaled;
use super::target::{Target, Which};

/// One right: who may do what to which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    pub verb: &'static str,
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The kind in the plural, perhaps with a subresource behind a slash.
    pub resource: String,
    /// The object, where one is enough.
    pub name: Option<String>,
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let name = self.name.as_ref().map_or(String::new(), |name| format!(" {name}"));
        write!(f, "{} {}{group}{name}", self.verb, self.resource)
    }
}

fn right(verb: &'static str, group: &'static str, resource: &str, name: Option<&str>) -> Right {
    Right { verb, group, resource: resource.to_owned(), name: name.map(str::to_owned) }
}

/// What a comparison of two values of a target does.
pub fn varying(Which { kind, name, .. }: &Which) -> Vec<Right> {
    let mut rights =
        vec![right("get", kind.group, kind.plural, Some(name)), right("patch", kind.group, kind.plural, Some(name))];
    rights.push(right("list", "", "pods", None));
    rights.extend(owning(name, &[("", "configmaps"), ("coordination.k8s.io", "leases")]));
    rights.push(right("patch", "", "configmaps", Some(&own_name(name))));
    rights.push(right("update", "coordination.k8s.io", "leases", Some(&own_name(name))));
    rights
}

/// To make objects of these kinds for a target, and to delete them.
fn owning(target: &str, kinds: &[(&'static str, &str)]) -> Vec<Right> {
    let own = own_name(target);
    let of_kind = |(group, resource): &(&'static str, &str)| {
        // Creation cannot be limited to a name: the object is not there yet.
        let named = |verb| right(verb, group, resource, Some(&own));
        [right("create", group, resource, None), named("get"), named("delete")]
    };
    kinds.iter().flat_map(of_kind).collect()
}

/// What a run on a target does with so many workers, and whether it `applies` arguments at its end.
pub fn needed(Which { kind, name, part }: &Which, applies: bool, workers: u64) -> Vec<Right> {
    let (own, outcome) = (own_name(name), outcome_name(name));
    let mut rights =
        vec![right("get", kind.group, kind.plural, Some(name)), right("patch", kind.group, kind.plural, Some(name))];
    // As if the object said nothing special of its scale.
    let scaled = Scaled { name, part: part.as_deref().unwrap_or_default(), object: &serde_json::Value::Null };
    if (kind.scaling)(&scaled, 0).subresource {
        rights.push(right("patch", kind.group, &format!("{}/scale", kind.plural), Some(name)));
    }
    rights.push(right("list", "", "pods", None));
    rights.extend(owning(name, &[("", "configmaps"), ("batch", "jobs"), ("coordination.k8s.io", "leases")]));
    rights.push(right("update", "coordination.k8s.io", "leases", Some(&own)));
    // The worker waits until the GPU is free.
    rights.push(right("patch", "batch", "jobs", Some(&own)));
    rights.push(right("get", "", "configmaps", Some(&outcome)));
    rights.push(right("patch", "", "configmaps", Some(&outcome)));
    if applies {
        rights.push(right("patch", "", "configmaps", Some(&own)));
    }
    if workers > 1 {
        // They are deleted with the Job that owns them.
        for resource in ["services", "secrets"] {
            rights.push(right("create", "", resource, None));
            rights.push(right("get", "", resource, Some(&own)));
        }
    }
    rights
}

/// The rights to see and change the scale of a target whose scale is another object's; empty if it is its own.
pub fn scaling_rights(target: &Target) -> Vec<Right> {
    let scaling = (target.kind.scaling)(&target.scaled(), 0);
    let resource = if scaling.subresource { format!("{}/scale", scaling.plural) } else { scaling.plural.to_owned() };
    if scaling.plural == target.kind.plural {
        return Vec::new();
    }
    let of_adapter = |verb, resource: &str| right(verb, target.kind.group, resource, Some(&scaling.name));
    vec![of_adapter("get", scaling.plural), of_adapter("patch", &resource)]
}

/// Asks the server for each right.
///
/// # Errors
/// Those that are missing, by name.
pub async fn check(cluster: &Cluster, rights: &[Right]) -> Result<(), ClusterError> {
    let mut missing = Vec::new();
    for right in rights {
        let (resource, subresource) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
        let attributes = ResourceAttributes {
            namespace: Some(cluster.namespace.clone()),
            verb: Some(right.verb.to_owned()),
            group: Some(right.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource: Some(subresource.to_owned()),
            name: Some(right.name.clone().unwrap_or_default()),
            ..Default::default()
        };
        if !cluster.may(attributes).await? {
            missing.push(right.to_string());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let place = &cluster.namespace;
    Err(ClusterError::Wrong(format!(
        "missing rights in the namespace {place}: {}; nothing was touched. A Role must grant them",
        missing.join(", ")
    )))
}
