//! LeaderWorkerSet, as long as a group is one pod: an engine over several pods cannot be started by one worker.

use super::{Kind, Scaled, is_owned, outdated, replicas, scaling, whole};

/// A LeaderWorkerSet. Its pods carry its name in a label of the project's API (`api/leaderworkerset/v1`).
pub const SET: Kind = Kind {
    name: "LeaderWorkerSet",
    flag: "leader-worker-set",
    group: "leaderworkerset.x-k8s.io",
    versions: &["v1"],
    plural: "leaderworkersets",
    part: whole,
    obstacle: |_| None,
    unlendable: |scaled| {
        let size = scaled.object["spec"]["leaderWorkerTemplate"]["size"].as_u64().unwrap_or(1);
        (size > 1).then(|| {
            format!(
                "runs an engine over {size} pods (leaderWorkerTemplate.size), and a worker is one pod: tune a copy of size 1, or by hand"
            )
        })
    },
    replicas,
    scaling: |scaled, replicas| scaling("leaderworkersets", scaled, replicas, true),
    labels: |scaled| Some(vec![("leaderworkerset.sigs.k8s.io/name".to_owned(), scaled.name.to_owned())]),
    owns: is_owned,
    template: |scaled, _| Some(template(scaled)),
    stuck: |_, _, _| None,
    unsettled: outdated,
    is_of_service: |_| false,
};

/// Without a leader of its own, the worker's template is everybody's.
fn template(scaled: &Scaled<'_>) -> serde_json::Value {
    let templates = &scaled.object["spec"]["leaderWorkerTemplate"];
    let leader = &templates["leaderTemplate"];
    if leader["spec"].is_object() { leader.clone() } else { templates["workerTemplate"].clone() }
}
