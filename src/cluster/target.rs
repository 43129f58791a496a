//! What is borrowed from: an object as it stands, its scale, its pods, and what we noted on it.

use serde_json::{Value, json};

use super::api::{Cluster, ClusterError, MANAGER, Patch};
use super::kinds::{Kind, Labels, Scaled};
use crate::digest::sha256;

// Annotations of a borrowed target.
/// Its scale.
const ORIGINAL: &str = "autotune/original-replicas";
/// How many pods it keeps meanwhile.
const KEPT: &str = "autotune/kept-replicas";
/// The nodes on which its pods ran.
const NODES: &str = "autotune/nodes";
/// The part of it that is borrowed, where it has several.
const PART: &str = "autotune/component";
/// The digest of the former arguments, from before they are changed until the new ones are proved.
const UNDO_DIGEST: &str = "autotune/undo-sha256";
/// The run, and with it the folder of its journal; what the run makes has it too.
pub const RUN: &str = "autotune/run";

/// So often a list that others change is edited before that is given up.
const ATTEMPTS: usize = 5;

/// What stands on a target while it is borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Borrowed {
    /// How many pods it had asked for.
    pub original: u64,
    pub kept: u64,
    /// The run: when it began, and the name of its journal's folder.
    pub run: String,
    /// Where its pods ran, of which the worker takes the place.
    pub nodes: Vec<String>,
}

impl Borrowed {
    /// Whether no pod was taken: what was changed are arguments or variables, for a comparison.
    pub fn is_whole(&self) -> bool {
        self.original == self.kept
    }
}

/// Whether a pod holds nothing any more.
pub(super) fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// A condition of an object that is true.
pub(super) fn condition<'o>(object: &'o Value, name: &str) -> Option<&'o Value> {
    let all = object["status"]["conditions"].as_array()?;
    all.iter().find(|condition| condition["type"] == name && condition["status"] == "True")
}

/// Which object a command means.
#[derive(Clone, Debug)]
pub struct Which {
    pub kind: &'static Kind,
    pub name: String,
    /// Which part of it, where it has several.
    pub part: Option<String>,
}

impl Which {
    /// `Deployment chat`.
    pub fn title(&self) -> String {
        format!("{} {}", self.kind.name, self.name)
    }

    /// The command that gives it back.
    pub fn restore(&self, namespace: &str) -> String {
        let part = self.part.as_ref().map_or(String::new(), |part| format!(" --component {part}"));
        format!("autotune restore --{} {}{part} -n {namespace}", self.kind.flag, self.name)
    }
}

/// A target as it stands in the cluster.
#[derive(Clone, Debug)]
pub struct Target {
    pub kind: &'static Kind,
    pub name: String,
    /// The part of it that is meant, where its kind has parts.
    pub part: Option<String>,
    /// How many pods it wants now.
    pub replicas: u64,
    /// What an earlier run that did not end noted on it.
    pub borrowed: Option<Borrowed>,
    pub object: Value,
}

impl Target {
    /// Reads a target.
    ///
    /// # Errors
    /// Those of the server; its absence with the namespace that was looked in; a part that it does not have.
    pub async fn read(cluster: &Cluster, which: &Which) -> Result<Self, ClusterError> {
        Self::find(cluster, which).await?.ok_or_else(|| {
            let (place, title) = (&cluster.namespace, which.title());
            let part = which.part.as_ref().map_or(String::new(), |part| format!(" with a component {part}"));
            ClusterError::Wrong(format!("there is no {title}{part} in the namespace {place}; -n names another"))
        })
    }

    /// Reads a target that may be gone.
    ///
    /// # Errors
    /// Those of the server; a part that it does not have.
    pub async fn find(cluster: &Cluster, Which { kind, name, part }: &Which) -> Result<Option<Self>, ClusterError> {
        for version in kind.versions {
            if let Some(object) = cluster.find(&format!("apis/{}/{version}", kind.group), kind.plural, name).await? {
                let mut target = Self::of(kind, object, part.as_deref())?;
                target.replicas = target.asked_of_adapter(cluster).await?.unwrap_or(target.replicas);
                return Ok(Some(target));
            }
        }
        Ok(None)
    }

    /// The target that an object is.
    ///
    /// # Errors
    /// A part that it does not have; another part that is borrowed.
    pub fn of(kind: &'static Kind, object: Value, part: Option<&str>) -> Result<Self, ClusterError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let part =
            (kind.part)(&object, part).map_err(|why| ClusterError::Wrong(format!("{} {name} {why}", kind.name)))?;
        let noted = |key: &str| object["metadata"]["annotations"][key].as_str();
        if let (Some(of), Some(meant)) = (noted(PART), &part)
            && of != meant
        {
            return Err(ClusterError::Wrong(format!(
                "{} {name} is borrowed from for its component {of}: `autotune restore --{} {name} --component {of}` gives that back first",
                kind.name, kind.flag
            )));
        }
        let number = |key: &str| noted(key).and_then(|text| text.parse().ok());
        let borrowed = number(ORIGINAL).map(|original| Borrowed {
            original,
            kept: number(KEPT).unwrap_or(0),
            run: noted(RUN).unwrap_or_default().to_owned(),
            nodes: noted(NODES).into_iter().flat_map(|nodes| nodes.split(',')).map(str::to_owned).collect(),
        });
        let mut target = Self { kind, name, part, replicas: 0, borrowed, object };
        target.replicas = (kind.replicas)(&target.scaled());
        Ok(target)
    }

    pub(super) fn scaled(&self) -> Scaled<'_> {
        Scaled { name: &self.name, part: self.part.as_deref().unwrap_or_default(), object: &self.object }
    }

    /// `Deployment chat`, `DynamoGraphDeployment graph (Worker)`.
    pub fn title(&self) -> String {
        let part = self.part.as_ref().map_or(String::new(), |part| format!(" ({part})"));
        format!("{} {}{part}", self.kind.name, self.name)
    }

    /// The group and version by which the object was read, as a path of the API.
    pub(super) fn api(&self) -> String {
        format!("apis/{}", self.object["apiVersion"].as_str().unwrap_or_default())
    }

    /// How many pods it wants when nobody borrows from it.
    pub fn original(&self) -> u64 {
        self.borrowed.as_ref().map_or(self.replicas, |borrowed| borrowed.original)
    }

    /// The labels of its pods.
    ///
    /// # Errors
    /// A selector that is more than labels.
    pub fn labels(&self) -> Result<Labels, ClusterError> {
        (self.kind.labels)(&self.scaled()).ok_or_else(|| {
            ClusterError::Wrong(format!("{} selects its pods by expressions, which is not supported", self.title()))
        })
    }

    /// Its own pods that still hold something: those that have not ended.
    pub async fn pods(&self, cluster: &Cluster) -> Result<Vec<Value>, ClusterError> {
        let labels = self.labels()?.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
        let pods = cluster.list("api/v1", "pods", &labels).await?;
        Ok(pods.into_iter().filter(|pod| !has_ended(pod) && (self.kind.owns)(&self.scaled(), pod)).collect())
    }

    /// Asks for so many pods.
    pub async fn scale(&self, cluster: &Cluster, replicas: u64) -> Result<(), ClusterError> {
        let scaling = (self.kind.scaling)(&self.scaled(), replicas);
        let name = if scaling.subresource { format!("{}/scale", scaling.name) } else { scaling.name };
        // An adapter of scale has the group of its target, and one version.
        let api = if scaling.plural == self.kind.plural { self.api() } else { self.adapter_api() };
        cluster.patch(&api, scaling.plural, &name, &scaling.patch).await.map(drop)
    }

    /// How many pods its adapter of scale asks for, where it has one: the object itself follows only when its operator comes to it.
    async fn asked_of_adapter(&self, cluster: &Cluster) -> Result<Option<u64>, ClusterError> {
        let scaling = (self.kind.scaling)(&self.scaled(), 0);
        if scaling.plural == self.kind.plural {
            return Ok(None);
        }
        match cluster.find(&self.adapter_api(), scaling.plural, &scaling.name).await {
            Ok(adapter) => Ok(adapter.and_then(|adapter| adapter["spec"]["replicas"].as_u64())),
            // A missing right is named where rights are checked.
            Err(ClusterError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn adapter_api(&self) -> String {
        format!("apis/{}/{}", self.kind.group, self.kind.versions.last().copied().unwrap_or_default())
    }

    /// Notes what is borrowed, or takes the note away.
    pub async fn note(&self, cluster: &Cluster, borrowed: Option<&Borrowed>) -> Result<(), ClusterError> {
        let notes = match borrowed {
            Some(Borrowed { original, kept, run, nodes }) => json!({
                ORIGINAL: original.to_string(), KEPT: kept.to_string(), RUN: run, PART: self.part,
                NODES: Some(nodes.join(",")).filter(|nodes| !nodes.is_empty()),
            }),
            None => json!({ORIGINAL: null, KEPT: null, RUN: null, PART: null, NODES: null, UNDO_DIGEST: null}),
        };
        self.annotate(cluster, notes).await
    }

    /// Notes the digest of the arguments as they were, which a ConfigMap keeps: others may edit that one.
    pub(super) async fn note_undo(&self, cluster: &Cluster, text: &str) -> Result<(), ClusterError> {
        self.annotate(cluster, json!({UNDO_DIGEST: sha256(text.as_bytes())})).await
    }

    /// Whether that text is the one whose digest was noted.
    pub(super) fn noted_undo(&self, text: &str) -> bool {
        self.object["metadata"]["annotations"][UNDO_DIGEST] == sha256(text.as_bytes())
    }

    /// Ends our management of fields by server-side apply, and leaves them as they are. Otherwise the next apply of ours that does not name a
    /// field would take it away, and the owner's would conflict.
    pub(super) async fn disown(&self, cluster: &Cluster) -> Result<(), ClusterError> {
        for _ in 0..ATTEMPTS {
            let object = match cluster.find(&self.api(), self.kind.plural, &self.name).await? {
                Some(object) => object,
                None => return Ok(()),
            };
            let managers = object["metadata"]["managedFields"].as_array();
            let ours = |entry: &Value| {
                entry["manager"] == MANAGER && entry["operation"] == "Apply" && entry["subresource"].is_null()
            };
            let Some(place) = managers.and_then(|all| all.iter().position(ours)) else { return Ok(()) };
            let at = format!("/metadata/managedFields/{place}");
            let patch = Patch::Operations(json!([
                {"op": "test", "path": format!("{at}/manager"), "value": MANAGER},
                {"op": "test", "path": format!("{at}/operation"), "value": "Apply"},
                {"op": "remove", "path": at},
            ]));
            match cluster.patch(&self.api(), self.kind.plural, &self.name, &patch).await {
                // Somebody changed the list since it was read.
                Err(ClusterError::Refused { code: 409 | 422, .. }) => {}
                done => return done.map(drop),
            }
        }
        Err(ClusterError::Wrong(format!(
            "{} is changed by others all the time, so that its managers cannot be edited",
            self.title()
        )))
    }

    async fn annotate(&self, cluster: &Cluster, notes: Value) -> Result<(), ClusterError> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": notes}}));
        cluster.patch(&self.api(), self.kind.plural, &self.name, &patch).await.map(drop)
    }
}
