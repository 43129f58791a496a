//! Who else moves a target: whoever owns it, whoever scales it, and the repository that its manifest comes from.

use serde_json::Value;

use super::api::{Cluster, ClusterError};
use super::kinds::controller;
use super::target::Target;

/// The API of what scales others.
const AUTOSCALING: &str = "apis/autoscaling/v2";
/// Labels and annotations that tools of GitOps leave on what they apply, and the tools.
const GITOPS: [(&str, &str); 5] = [
    ("argocd.argoproj.io/tracking-id", "Argo CD"),
    ("argocd.argoproj.io/instance", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
    ("objectset.rio.cattle.io/owner-name", "Fleet"),
];
/// How the controllers of these tools call themselves when they apply.
const APPLIERS: [(&str, &str); 3] =
    [("argocd-controller", "Argo CD"), ("kustomize-controller", "Flux"), ("helm-controller", "Flux")];

/// Why the scale that we give a target would not hold, with a remedy; `None` if nothing of the kind is known.
///
/// # Errors
/// Those of the server but for a missing right to look at autoscalers: then none is known.
pub async fn obstacle(cluster: &Cluster, target: &Target) -> Result<Option<String>, ClusterError> {
    if let Some(why) = (target.kind.obstacle)(&target.scaled()) {
        return Ok(Some(format!("{} {why}", target.title())));
    }
    if let Some((kind, name)) = owner(&target.object) {
        return Ok(Some(format!(
            "{} belongs to {kind} {name}, which would scale it back: borrow from that (autotune job run --help has the kinds)",
            target.title()
        )));
    }
    let Some(scaler) = scaled_by(cluster, target).await? else { return Ok(None) };
    let name = scaler["metadata"]["name"].as_str().unwrap_or_default();
    Ok(Some(match owner(&scaler) {
        Some(("ScaledObject", object)) => format!(
            "KEDA's ScaledObject {object} scales {} (HorizontalPodAutoscaler {name}), and would scale it up in mid-run: `kubectl annotate \
scaledobject {object} autoscaling.keda.sh/paused=true` before, and `autoscaling.keda.sh/paused-` after the run",
            target.title()
        ),
        _ => format!(
            "the HorizontalPodAutoscaler {name} scales {}, and would scale it up in mid-run: delete it for the time of the run, or set \
its minReplicas and maxReplicas aside",
            target.title()
        ),
    }))
}

/// The tool that keeps a target as a repository says; `None` if no sign of one is there.
pub fn gitops(target: &Target) -> Option<&'static str> {
    let meta = &target.object["metadata"];
    let marked =
        |(key, _): &&(&str, &str)| ["labels", "annotations"].iter().any(|place| meta[place].get(key).is_some());
    let by_mark = GITOPS.iter().find(marked).map(|(_, tool)| *tool);
    let managers: Vec<&str> =
        meta["managedFields"].as_array().into_iter().flatten().filter_map(|m| m["manager"].as_str()).collect();
    by_mark.or_else(|| APPLIERS.iter().find(|(name, _)| managers.contains(name)).map(|(_, tool)| *tool))
}

/// The kind and name of the controller that owns an object.
fn owner(object: &Value) -> Option<(&str, &str)> {
    let owner = controller(object)?;
    Some((owner["kind"].as_str()?, owner["name"].as_str()?))
}

async fn scaled_by(cluster: &Cluster, target: &Target) -> Result<Option<Value>, ClusterError> {
    let scalers = match cluster.list(AUTOSCALING, "horizontalpodautoscalers", "").await {
        Ok(scalers) => scalers,
        Err(ClusterError::Refused { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    // A graph is scaled through its adapters, one a component.
    let scaling = (target.kind.scaling)(&target.scaled(), 0);
    let is_of_target = |scaler: &Value| {
        let aim = &scaler["spec"]["scaleTargetRef"];
        let by_adapter = scaling.plural != target.kind.plural && aim["name"] == scaling.name.as_str();
        by_adapter || (aim["kind"] == target.kind.name && aim["name"] == target.name.as_str())
    };
    Ok(scalers.into_iter().find(is_of_target))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::kinds::KINDS;

    #[test]
    fn signs_of_gitops_are_labels_annotations_and_managers() {
        let of = |meta: Value| {
            let mut object = json!({"metadata": meta});
            object["metadata"]["name"] = "chat".into();
            gitops(&Target::of(KINDS[0], object, None).unwrap())
        };
        assert_eq!(
            of(json!({"annotations": {"argocd.argoproj.io/tracking-id": "a:apps/Deployment:llm/chat"}})),
            Some("Argo CD")
        );
        assert_eq!(of(json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}})), Some("Flux"));
        assert_eq!(of(json!({"managedFields": [{"manager": "argocd-controller"}]})), Some("Argo CD"));
        assert_eq!(of(json!({"managedFields": [{"manager": "kubectl-client-side-apply"}]})), None);
    }
}
