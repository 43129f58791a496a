//! Deployment and StatefulSet.

use serde_json::{Value, json};

use super::{Kind, Labels, Scaled, Scaling, is_observed, replicas, whole, wish};

pub const DEPLOYMENT: Kind = Kind {
    name: "Deployment",
    flag: "deployment",
    group: "apps",
    versions: &["v1"],
    plural: "deployments",
    part: whole,
    obstacle: |_| None,
    replicas,
    scaling: |scaled, replicas| scaling("deployments", scaled, replicas),
    labels,
    template: |scaled| Some(scaled.object["spec"]["template"].clone()),
    settled: |scaled| {
        let count = |key: &str| scaled.object["status"][key].as_u64().unwrap_or(0);
        is_observed(scaled.object) && count("updatedReplicas") == count("replicas")
    },
    is_of_service: |_| false,
};

pub const STATEFUL_SET: Kind = Kind {
    name: "StatefulSet",
    flag: "statefulset",
    plural: "statefulsets",
    scaling: |scaled, replicas| scaling("statefulsets", scaled, replicas),
    template: |scaled| Some(with_claims(scaled)),
    settled: |scaled| {
        let status = &scaled.object["status"];
        is_observed(scaled.object) && status["updateRevision"] == status["currentRevision"]
    },
    ..DEPLOYMENT
};

fn scaling(plural: &'static str, scaled: &Scaled<'_>, replicas: u64) -> Scaling {
    Scaling { plural, name: scaled.name.to_owned(), subresource: true, patch: wish(replicas) }
}

/// The labels that a selector asks for; none where it asks for more than labels.
fn labels(scaled: &Scaled<'_>) -> Option<Labels> {
    let selector = &scaled.object["spec"]["selector"];
    let only_labels = selector["matchExpressions"].as_array().is_none_or(Vec::is_empty);
    let labels = selector["matchLabels"].as_object().filter(|labels| only_labels && !labels.is_empty())?;
    Some(labels.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect())
}

/// The template with the claims of the first pod, which its containers mount by name.
fn with_claims(scaled: &Scaled<'_>) -> Value {
    let mut template = scaled.object["spec"]["template"].clone();
    let claims = scaled.object["spec"]["volumeClaimTemplates"].as_array().cloned().unwrap_or_default();
    let volume = |claim: &Value| {
        let name = claim["metadata"]["name"].as_str()?;
        Some(json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{name}-{}-0", scaled.name)}}))
    };
    let mut volumes = template["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    volumes.extend(claims.iter().filter_map(volume));
    template["spec"]["volumes"] = volumes.into();
    template
}
