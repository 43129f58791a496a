//! The kinds of manifests, one a file: where in them engines sit.

mod chart_values;
mod compose;
mod dynamo_v1alpha1;
mod dynamo_v1beta1;
mod inference_service;
mod json_patch;
mod kubeai;
mod leader_worker_set;
mod llm_d;
mod llm_inference_service;
mod nested_values;
mod pod_template;
mod production_stack;
mod ray_serve;
mod ray_service;
mod shell_script;
pub mod texts;
mod unit_file;
mod vllm_config;
mod vllm_runtime;
mod workload;

use tracing::debug;

use super::arguments::keys::Keys;
use super::arguments::variable::VariableLocation;
use super::yaml::{Node, Path};
pub use crate::engine::programs::Engine;

pub struct Shape {
    /// Its name, as a person says it.
    pub name: &'static str,
    /// Whether a document is of this kind.
    pub recognises: fn(&Node) -> bool,
    /// Where engines may sit in it.
    pub locations: fn(&Node) -> Vec<ArgumentLocation>,
    /// What else it is than a custom resource.
    pub kind: Kind,
}

/// What tools know of a kind of manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Part of Kubernetes: Kustomize merges its containers by name.
    BuiltIn,
    /// A custom resource: Kustomize replaces its lists.
    Custom,
    /// A file that is no object of the cluster: values of a Helm chart, Docker Compose, a unit, a script.
    File,
}

/// Every kind that is known. The first that recognises a document has it.
pub const SHAPES: [Shape; 20] = [
    workload::SHAPE,
    dynamo_v1beta1::SHAPE,
    dynamo_v1alpha1::SHAPE,
    kubeai::SHAPE,
    inference_service::SHAPE,
    llm_inference_service::SHAPE,
    leader_worker_set::SHAPE,
    vllm_runtime::SHAPE,
    production_stack::SHAPE,
    llm_d::SHAPE,
    compose::SHAPE,
    ray_service::SHAPE,
    ray_serve::SHAPE,
    nested_values::SHAPE,
    unit_file::SHAPE,
    shell_script::SHAPE,
    json_patch::SHAPE,
    vllm_config::SHAPE,
    pod_template::SHAPE,
    chart_values::SHAPE,
];

/// The kind of a document.
pub fn shape(root: &Node) -> Option<&'static Shape> {
    let found = SHAPES.iter().find(|shape| (shape.recognises)(root));
    debug!(shape = found.map(|shape| shape.name), "a document is recognised");
    found
}

/// A place where an engine may sit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArgumentLocation {
    /// What a person calls it: the container, the component.
    pub name: String,
    /// The program, if the kind has a place for it.
    pub command: Option<Path>,
    pub args: Option<Path>,
    /// Environment variables: a list of `name` and `value`, or a mapping.
    pub env: Vec<Path>,
    /// Keys that stand for flags, and the mapping that they are counted from.
    pub keys: Keys,
    /// The mapping of [`ArgumentLocation::keys`].
    pub keys_at: Path,
    /// Flags that are off where this mapping has other keys than theirs.
    pub off: &'static [&'static str],
    pub image: Option<Path>,
    pub gpus: Option<Path>,
    /// The limit of host memory.
    pub memory: Option<Path>,
    /// The mapping that holds the probes.
    pub probes: Path,
    /// The model, where it is not an argument.
    pub model: Option<Path>,
    /// Whether an engine sits here whatever its words say.
    pub engine: Option<Engine>,
    /// Variables that whatever starts the engine here puts behind its arguments, unless the location has a command of its own.
    pub expands: &'static [&'static str],
    /// The variable that takes new arguments where there are no `args`, and where it is made.
    pub new_variable: Option<VariableLocation>,
    /// What a person should know before this is applied: what it means and what to do.
    pub note: Option<(&'static str, &'static str)>,
    /// The group that runs one engine together with the other locations of this name in its document.
    pub group: Option<&'static str>,
}

impl ArgumentLocation {
    /// The location in a document that holds this one at a place.
    fn below(self, at: &Path) -> Self {
        let put = |path: Path| Path(at.0.iter().cloned().chain(path.0).collect());
        Self {
            command: self.command.map(put),
            args: self.args.map(put),
            env: self.env.into_iter().map(put).collect(),
            keys_at: put(self.keys_at),
            image: self.image.map(put),
            gpus: self.gpus.map(put),
            memory: self.memory.map(put),
            probes: put(self.probes),
            model: self.model.map(put),
            ..self
        }
    }

    pub fn container(name: impl Into<String>, at: &Path) -> Self {
        Self {
            name: name.into(),
            command: Some(at.key("command")),
            args: Some(at.key("args")),
            env: vec![at.key("env")],
            image: Some(at.key("image")),
            gpus: Some(at.key("resources.limits").literal_key("nvidia.com/gpu")),
            memory: Some(at.key("resources.limits.memory")),
            probes: at.clone(),
            ..Self::default()
        }
    }
}

pub fn containers(root: &Node, pod: &Path) -> Vec<ArgumentLocation> {
    named(root, &pod.key("containers")).map(|(name, at)| ArgumentLocation::container(name, &at)).collect()
}

pub fn named<'n>(root: &'n Node, list: &Path) -> impl Iterator<Item = (String, Path)> + use<'n> {
    let list = list.clone();
    let items = root.at(&list).map_or(&[][..], Node::items);
    items.iter().enumerate().map(move |(i, item)| {
        let name = item.text_at("name").map_or_else(|| i.to_string(), str::to_owned);
        (name, list.item(i))
    })
}

/// Calls a function with every mapping of a document and its place.
fn walk<'n>(node: &'n Node, at: &Path, visit: &mut dyn FnMut(&'n Node, &Path)) {
    if !node.entries().is_empty() {
        visit(node, at);
    }
    for (key, value) in node.entries() {
        if let Some(key) = key.text() {
            walk(value, &at.literal_key(key), visit);
        }
    }
    for (index, item) in node.items().iter().enumerate() {
        walk(item, &at.item(index), visit);
    }
}

/// Whether a document is an object of a group and kind; `version` may be left open.
fn is(root: &Node, group: &str, version: Option<&str>, kinds: &[&str]) -> bool {
    let api = root.text_at("apiVersion").unwrap_or_default();
    let (its_group, its_version) = api.rsplit_once('/').unwrap_or(("", api));
    let kind = root.text_at("kind").unwrap_or_default();
    its_group == group && version.is_none_or(|v| v == its_version) && kinds.contains(&kind)
}
