//! The rights that a run needs, asked for before anything is touched.

use serde_json::json;

use super::api::{Cluster, ClusterError};
use super::target::Kind;

/// One right: who may do what to which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The verb.
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

/// What a run on a target does, `own` being the name of its own objects, `outcome` that of the ConfigMap with what it found.
pub fn needed(kind: Kind, target: &str, own: &str, outcome: &str) -> Vec<Right> {
    let right = |verb, group, resource: &str, name: Option<&str>| Right {
        verb,
        group,
        resource: resource.to_owned(),
        name: name.map(str::to_owned),
    };
    let scale = format!("{}/scale", kind.plural());
    let mut rights = vec![
        right("get", "apps", kind.plural(), Some(target)),
        right("patch", "apps", kind.plural(), Some(target)),
        right("patch", "apps", &scale, Some(target)),
        right("list", "", "pods", None),
    ];
    let owned = [("", "configmaps"), ("batch", "jobs"), ("coordination.k8s.io", "leases")];
    for (group, resource) in owned {
        // Creation cannot be limited to a name: the object is not there yet.
        rights.push(right("create", group, resource, None));
        rights.push(right("get", group, resource, Some(own)));
        rights.push(right("delete", group, resource, Some(own)));
    }
    rights.push(right("update", "coordination.k8s.io", "leases", Some(own)));
    rights.push(right("delete", "", "configmaps", Some(outcome)));
    rights
}

/// Asks the server for each right.
///
/// # Errors
/// Those that are missing, by name.
pub async fn check(cluster: &Cluster, rights: &[Right]) -> Result<(), ClusterError> {
    let mut missing = Vec::new();
    for right in rights {
        let (resource, subresource) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
        let attributes = json!({
            "namespace": cluster.namespace,
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "name": right.name.clone().unwrap_or_default(),
        });
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
