//! Deployment and StatefulSet.

use serde_json::{Value, json};

use super::{Kind, Labels, Scaled, controller, outdated, owns_itself, replicas, scaling, whole};

pub const DEPLOYMENT: Kind = Kind {
    name: "Deployment",
    flag: "deployment",
    group: "apps",
    versions: &["v1"],
    plural: "deployments",
    part: whole,
    obstacle: |scaled| {
        (scaled.object["spec"]["paused"] == true).then(|| {
            "is paused (spec.paused), so its pods do not follow its template: `kubectl rollout resume` first".to_owned()
        })
    },
    unlendable: |_| None,
    replicas,
    scaling: |scaled, replicas| scaling("deployments", scaled, replicas, true),
    labels,
    owns: |scaled, pod| {
        // A ReplicaSet of a Deployment is called after it and after the template, whose hash its pods have too.
        let of_template = pod["metadata"]["labels"]["pod-template-hash"].as_str().unwrap_or_default();
        controller(pod).is_some_and(|owner| {
            owner["kind"] == "ReplicaSet" && owner["name"] == format!("{}-{of_template}", scaled.name).as_str()
        })
    },
    template: |scaled, _| Some(scaled.object["spec"]["template"].clone()),
    stuck,
    unsettled: outdated,
    is_of_service: |_| false,
};

pub const STATEFUL_SET: Kind = Kind {
    name: "StatefulSet",
    flag: "statefulset",
    plural: "statefulsets",
    obstacle: |_| None,
    unlendable: deletes_claims,
    owns: owns_itself,
    stuck: |_, _, _| None,
    scaling: |scaled, replicas| scaling("statefulsets", scaled, replicas, true),
    template: |scaled, kept| Some(with_claims(scaled, kept)),
    ..DEPLOYMENT
};

/// The labels that a selector asks for; `None` if it asks for more than labels.
fn labels(scaled: &Scaled<'_>) -> Option<Labels> {
    let selector = &scaled.object["spec"]["selector"];
    let only_labels = selector["matchExpressions"].as_array().is_none_or(Vec::is_empty);
    let labels = selector["matchLabels"].as_object().filter(|labels| only_labels && !labels.is_empty())?;
    Some(labels.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect())
}

/// Scaling down deletes the claims of the pods that go where an object says so, and their data with them.
fn deletes_claims(scaled: &Scaled<'_>) -> Option<String> {
    let spec = &scaled.object["spec"];
    let has_claims = spec["volumeClaimTemplates"].as_array().is_some_and(|claims| !claims.is_empty());
    (has_claims && spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Delete").then(|| {
        "deletes the claims of pods that it is scaled down by, and their data (persistentVolumeClaimRetentionPolicy.whenScaled: Delete): \
set that to Retain for the time of the run"
            .to_owned()
    })
}

/// A rolling update that may take no pod away needs a GPU more than the target has. While some pods stay, the others come back with the
/// new arguments and take the GPUs that are free. None is left for those that stay.
fn stuck(scaled: &Scaled<'_>, kept: u64, original: u64) -> Option<String> {
    let strategy = &scaled.object["spec"]["strategy"];
    let rolls = strategy["type"].as_str().is_none_or(|kind| kind == "RollingUpdate");
    let share = |key: &str, up: bool| {
        let said = &strategy["rollingUpdate"][key];
        let percent = said.as_str().and_then(|text| text.trim_end_matches('%').parse::<u64>().ok());
        let part = percent.or(said.is_null().then_some(25)).map(|percent| percent * original);
        part.map_or(said.as_u64().unwrap_or(0), |part| if up { part.div_ceil(100) } else { part / 100 })
    };
    // Where both are nothing, Kubernetes takes one pod away after the other.
    let takes_none = share("maxUnavailable", false) == 0 && share("maxSurge", true) > 0;
    (kept > 0 && rolls && takes_none).then(|| {
        format!(
            "would wait for ever for a GPU with new arguments: its rolling update takes no pod of {original} away (maxUnavailable). \
--keep-replicas {kept} leaves pods with the old ones. Set strategy.rollingUpdate.maxUnavailable to 1, or leave out --keep-replicas or --apply"
        )
    })
}

/// The template with the claims of the first of the pods that go, which its containers mount by name. Those of a pod that stays are in use.
fn with_claims(scaled: &Scaled<'_>, kept: u64) -> Value {
    let ordinal = scaled.object["spec"]["ordinals"]["start"].as_u64().unwrap_or(0) + kept;
    let mut template = scaled.object["spec"]["template"].clone();
    let claims = scaled.object["spec"]["volumeClaimTemplates"].as_array().cloned().unwrap_or_default();
    let volume = |claim: &Value| {
        let name = claim["metadata"]["name"].as_str()?;
        Some(json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{name}-{}-{ordinal}", scaled.name)}}))
    };
    let mut volumes = template["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    volumes.extend(claims.iter().filter_map(volume));
    template["spec"]["volumes"] = volumes.into();
    template
}
