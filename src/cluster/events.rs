//! The steps of a run as events of the target, which `kubectl describe` shows.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::{Cluster, MANAGER};
use super::target::Target;

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
    cluster.event(&event(&cluster.namespace, target, step, says, Timestamp::now())).await;
}

fn event(namespace: &str, target: &Target, step: Step, says: &str, now: Timestamp) -> Value {
    let ((reason, kind), object) = (step.words(), &target.object);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": format!("{MANAGER}-"), "namespace": namespace},
        "involvedObject": {
            "apiVersion": object["apiVersion"],
            "kind": object["kind"],
            "name": target.name,
            "namespace": namespace,
            "uid": object["metadata"]["uid"],
        },
        "reason": reason,
        "type": kind,
        "message": says,
        "source": {"component": MANAGER},
        "firstTimestamp": format!("{now:.0}"),
        "lastTimestamp": format!("{now:.0}"),
        "count": 1,
    })
}
