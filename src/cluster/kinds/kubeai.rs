//! Model of KubeAI, where its own autoscaler leaves the scale alone.

use super::{Kind, owns_itself, replicas, scaling, whole};

/// A Model. KubeAI makes its pods itself, from its own settings, and labels them with the model's name (`api/k8s/v1/metadata.go`).
pub const MODEL: Kind = Kind {
    name: "Model",
    flag: "kubeai-model",
    group: "kubeai.org",
    versions: &["v1"],
    plural: "models",
    part: whole,
    obstacle: |scaled| {
        // Its autoscaler sets the replicas from traffic, and a request alone brings up the first pod.
        let held = scaled.object["spec"]["autoscalingDisabled"] == true;
        (!held).then(|| {
            "is scaled by KubeAI itself, which would scale it up in mid-run: set spec.autoscalingDisabled to true for the time of the run"
                .to_owned()
        })
    },
    unlendable: |_| None,
    replicas,
    scaling: |scaled, replicas| scaling("models", scaled, replicas, false),
    labels: |scaled| Some(vec![("model".to_owned(), scaled.name.to_owned())]),
    owns: owns_itself,
    template: |_, _| None,
    stuck: |_, _, _| None,
    unsettled: |scaled| {
        let (all, wanted) = (scaled.object["status"]["replicas"]["all"].as_u64()?, replicas(scaled));
        (all != wanted).then(|| format!("it has {all} pods and asks for {wanted}"))
    },
    is_of_service: |_| false,
};
