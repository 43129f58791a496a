//! What Kubernetes itself runs: Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob and Pod.

use super::{Kind, Shape, containers, is};
use crate::export::yaml::{Node, Path};

pub const SHAPE: Shape = Shape {
    name: "Kubernetes workload",
    recognises,
    locations: |root| containers(root, &pod(root)),
    kind: Kind::BuiltIn,
};

fn recognises(root: &Node) -> bool {
    is(root, "apps", None, &["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"])
        || is(root, "batch", None, &["Job", "CronJob"])
        || is(root, "", None, &["Pod"])
}

fn pod(root: &Node) -> Path {
    Path::default().key(match root.text_at("kind") {
        Some("Pod") => "spec",
        Some("CronJob") => "spec.jobTemplate.spec.template.spec",
        _ => "spec.template.spec",
    })
}
