//! What can be borrowed from, one kind of object a file: where its scale stands, which pods are its, and what they are made of.

mod dynamo;
mod kubeai;
mod leader_worker_set;
mod workload;

use serde_json::Value;

use super::api::Patch;

/// A kind of object that holds GPUs and can be scaled.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    /// As the command line spells it, without its dashes.
    pub flag: &'static str,
    pub group: &'static str,
    /// The versions that are understood, the first that the server has being taken.
    pub versions: &'static [&'static str],
    /// As the API spells it.
    pub plural: &'static str,
    /// Which part of an object is meant where it has several, or why none can be; `named` is what the user says.
    pub part: fn(object: &Value, named: Option<&str>) -> Result<Option<String>, String>,
    /// Why an object's scale or template does not hold, with a remedy; `None` if it does.
    pub obstacle: fn(&Scaled<'_>) -> Option<String>,
    /// Why no worker can take the place of its pods, with a remedy; `None` if one can.
    pub unlendable: fn(&Scaled<'_>) -> Option<String>,
    /// How many pods it asks for.
    pub replicas: fn(&Scaled<'_>) -> u64,
    /// How it is asked for so many.
    pub scaling: fn(&Scaled<'_>, u64) -> Scaling,
    /// The labels of its pods; `None` if they are not chosen by labels alone.
    pub labels: fn(&Scaled<'_>) -> Option<Labels>,
    /// Whether a pod with these labels is its own: other objects may choose by the same labels, and a person may set them.
    pub owns: fn(&Scaled<'_>, pod: &Value) -> bool,
    /// What its pods are made of, for a worker while so many pods stay; `None` if only a running pod tells.
    pub template: fn(&Scaled<'_>, kept: u64) -> Option<Value>,
    /// Why its pods cannot get new arguments while so many stay and it goes back to its scale; `None` if they can.
    pub stuck: fn(&Scaled<'_>, kept: u64, original: u64) -> Option<String>,
    /// What its controller has still to do: it has not seen the newest wish, or holds pods of an older one.
    pub unsettled: fn(&Scaled<'_>) -> Option<String>,
    /// Whether a variable of its pods belongs to the service and must not reach a worker.
    pub is_of_service: fn(variable: &str) -> bool,
}

/// An object, and the part of it that is meant.
#[derive(Clone, Copy, Debug)]
pub struct Scaled<'o> {
    pub name: &'o str,
    /// The part, where the kind has parts.
    pub part: &'o str,
    pub object: &'o Value,
}

pub type Labels = Vec<(String, String)>;

#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// The kind of the object that is changed, in the plural.
    pub plural: &'static str,
    pub name: String,
    /// Whether its subresource `scale` takes the change.
    pub subresource: bool,
    pub patch: Patch,
}

/// Every kind that is known.
pub const KINDS: [&Kind; 5] =
    [&workload::DEPLOYMENT, &workload::STATEFUL_SET, &dynamo::GRAPH, &kubeai::MODEL, &leader_worker_set::SET];

/// For kinds that are scaled as one object.
fn scaling(plural: &'static str, scaled: &Scaled<'_>, replicas: u64, subresource: bool) -> Scaling {
    Scaling { plural, name: scaled.name.to_owned(), subresource, patch: wish(replicas) }
}

/// For kinds that have no parts.
fn whole(_: &Value, named: Option<&str>) -> Result<Option<String>, String> {
    match named {
        Some(part) => Err(format!("has no components, so --component {part} means nothing")),
        None => Ok(None),
    }
}

fn replicas(scaled: &Scaled<'_>) -> u64 {
    scaled.object["spec"]["replicas"].as_u64().unwrap_or(1)
}

/// Fields that ask for so many pods.
fn wish(replicas: u64) -> Patch {
    Patch::Merge(serde_json::json!({"spec": {"replicas": replicas}}))
}

pub fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

/// Whether an object itself is the controller of a pod.
fn owns_itself(scaled: &Scaled<'_>, pod: &Value) -> bool {
    controller(pod).is_some_and(|owner| owner["uid"] == scaled.object["metadata"]["uid"])
}

/// Whether anything is the controller of a pod: where an operator's labels hold the object's own name, what is between them does not count.
fn is_owned(_: &Scaled<'_>, pod: &Value) -> bool {
    controller(pod).is_some()
}

/// That the controller has not seen the newest version of an object, if so.
fn unobserved(object: &Value) -> Option<String> {
    let generation = object["metadata"]["generation"].as_i64();
    let seen = object["status"]["observedGeneration"].as_i64().is_none_or(|seen| Some(seen) >= generation);
    (!seen).then(|| "its controller has not seen its newest version yet".to_owned())
}

/// That some pods are of an older version, for objects that count theirs in `status.replicas` and `status.updatedReplicas`.
fn outdated(scaled: &Scaled<'_>) -> Option<String> {
    let count = |key: &str| scaled.object["status"][key].as_u64().unwrap_or(0);
    let (updated, all) = (count("updatedReplicas"), count("replicas"));
    let says = || {
        let by_hand = scaled.object["spec"]["updateStrategy"]["type"] == "OnDelete";
        let how = if by_hand {
            "with the strategy OnDelete, they stay until somebody deletes them"
        } else {
            "a rollout is under way"
        };
        format!("{updated} of its {all} pods have its newest template ({how})")
    };
    unobserved(scaled.object).or_else(|| (updated != all).then(says))
}
