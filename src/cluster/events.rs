//! The steps of a run as events of the target, which `kubectl describe` shows.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::Value;

use super::api::{Cluster, MANAGER};
use super::target::Target;
use crate::clock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Borrowed,
    Tuning,
    /// Somebody else changed the target meanwhile.
    Disturbed,
    Tuned,
    Applied,
    /// The target has one of two values that are compared.
    Varied,
    /// The arguments are what they were.
    RolledBack,
    /// The target has its scale again.
    GivenBack,
}

impl Step {
    /// The event's reason and type.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Borrowed => ("AutotuneBorrowed", "Normal"),
            Self::Tuning => ("AutotuneTuning", "Normal"),
            Self::Disturbed => ("AutotuneDisturbed", "Warning"),
            Self::Tuned => ("AutotuneTuned", "Normal"),
            Self::Applied => ("AutotuneApplied", "Normal"),
            Self::Varied => ("AutotuneVaried", "Normal"),
            Self::RolledBack => ("AutotuneRolledBack", "Warning"),
            Self::GivenBack => ("AutotuneGivenBack", "Normal"),
        }
    }
}

/// Says a step, and records it as an event of the target.
pub async fn say(cluster: &Cluster, target: &Target, step: Step, says: &str) {
    cluster.tell(says);
    cluster.event(&event(&cluster.namespace, target, step, says, clock::timestamp())).await;
}

fn event(namespace: &str, target: &Target, step: Step, says: &str, now: Timestamp) -> Event {
    let ((reason, kind), object) = (step.words(), &target.object);
    let (namespace, now) = (Some(namespace.to_owned()), Some(Time(now)));
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let generate_name = Some(format!("{MANAGER}-"));
    Event {
        metadata: ObjectMeta { generate_name, namespace: namespace.clone(), ..Default::default() },
        involved_object: ObjectReference {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            name: Some(target.name.clone()),
            namespace,
            uid: text(&object["metadata"]["uid"]),
            ..Default::default()
        },
        reason: Some(reason.to_owned()),
        type_: Some(kind.to_owned()),
        message: Some(says.to_owned()),
        source: Some(EventSource { component: Some(MANAGER.to_owned()), host: None }),
        first_timestamp: now.clone(),
        last_timestamp: now,
        count: Some(1),
        ..Default::default()
    }
}
