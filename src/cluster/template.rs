//! What a target's pods are made of: its template, or a running pod without what the cluster put into it.

use serde_json::{Value, json};

use super::api::{Cluster, ClusterError};
use super::target::Target;

/// What the cluster fills in when it admits, schedules or names a pod; a new pod gets its own.
const FILLED_IN: [&str; 8] = [
    "nodeName",
    "hostname",
    "subdomain",
    "priority",
    "preemptionPolicy",
    "overhead",
    "schedulingGates",
    "ephemeralContainers",
];

/// The template of a target's pods, for a worker while so many of them stay.
///
/// # Errors
/// Those of the server; that no pod is there to be copied where the object itself does not tell.
pub async fn template(cluster: &Cluster, target: &Target, kept: u64) -> Result<Value, ClusterError> {
    if let Some(template) = (target.kind.template)(&target.scaled(), kept) {
        return Ok(template);
    }
    let pods = target.pods(cluster).await?;
    let newest = pods.iter().max_by_key(|pod| pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default());
    newest.map(of_pod).ok_or_else(|| {
        let remedy = match target.borrowed {
            Some(_) => "`autotune restore` gives it its pods back first",
            None => "scale it up first",
        };
        ClusterError::Wrong(format!(
            "{} has no pod, and only a pod tells what a worker must be made of: {remedy}",
            target.title()
        ))
    })
}

/// A pod as the template that it came from.
fn of_pod(pod: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    let is_token = |name: &Value| name.as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|key, _| !FILLED_IN.contains(&key.as_str()));
        for key in ["containers", "initContainers"] {
            for container in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(mounts) = container["volumeMounts"].as_array_mut() {
                    mounts.retain(|mount| !is_token(&mount["name"]));
                }
            }
        }
        if let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) {
            volumes.retain(|volume| !is_token(&volume["name"]));
        }
    }
    json!({"metadata": {"annotations": pod["metadata"]["annotations"]}, "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_loses_what_the_cluster_filled_in() {
        let pod = json!({
            "metadata": {"name": "worker-abc", "annotations": {"a": "b"}},
            "spec": {
                "nodeName": "gpu-1", "priority": 5, "priorityClassName": "high", "runtimeClassName": "nvidia",
                "containers": [{"name": "main", "volumeMounts": [
                    {"name": "models", "mountPath": "/models"},
                    {"name": "kube-api-access-x1", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
                ]}],
                "volumes": [{"name": "models"}, {"name": "kube-api-access-x1", "projected": {}}],
            },
        });
        let wanted = json!({
            "metadata": {"annotations": {"a": "b"}},
            "spec": {
                "priorityClassName": "high", "runtimeClassName": "nvidia",
                "containers": [{"name": "main", "volumeMounts": [{"name": "models", "mountPath": "/models"}]}],
                "volumes": [{"name": "models"}],
            },
        });
        assert_eq!(of_pod(&pod), wanted);
    }
}
