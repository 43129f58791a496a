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
    /// Why an object's scale does not hold, with a remedy; none where it does.
    pub obstacle: fn(&Scaled<'_>) -> Option<String>,
    /// How many pods it asks for.
    pub replicas: fn(&Scaled<'_>) -> u64,
    /// How it is asked for so many.
    pub scaling: fn(&Scaled<'_>, u64) -> Scaling,
    /// The labels of its pods; none where they are not chosen by labels alone.
    pub labels: fn(&Scaled<'_>) -> Option<Labels>,
    /// What its pods are made of; none where only a running pod tells.
    pub template: fn(&Scaled<'_>) -> Option<Value>,
    /// Whether its controller has seen the newest wish and holds no pods of an older one.
    pub settled: fn(&Scaled<'_>) -> bool,
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

/// Whether the controller has seen the newest version of an object.
fn is_observed(object: &Value) -> bool {
    let generation = object["metadata"]["generation"].as_i64();
    object["status"]["observedGeneration"].as_i64().is_none_or(|seen| Some(seen) >= generation)
}
