//! What is borrowed from: a Deployment or StatefulSet, its scale, its pods.

use serde_json::Value;

use super::api::{Cluster, ClusterError};

/// The annotation that keeps a target's scale while it is borrowed.
pub const ORIGINAL: &str = "autotune/original-replicas";
/// The annotation that names the run, and with it the folder of its journal, while a target is borrowed.
const RUN: &str = "autotune/run";
/// The API group of what can be borrowed from.
pub(super) const APPS: &str = "apis/apps/v1";
/// That of what scales others.
const AUTOSCALING: &str = "apis/autoscaling/v2";

/// A kind that can be borrowed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Deployment.
    Deployment,
    /// A StatefulSet.
    StatefulSet,
}

impl Kind {
    /// As manifests spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
        }
    }

    /// As the API spells it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
        }
    }
}

/// Whether a pod holds nothing any more.
pub(super) fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// A target as it stands in the cluster.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// How many pods it wants now.
    pub replicas: u64,
    /// How many it wanted before an earlier run that did not end, by its annotation.
    pub original: Option<u64>,
    /// The name of that run, whose journal the next worker goes on with.
    pub run: Option<String>,
    /// The whole object.
    pub object: Value,
}

impl Target {
    /// Reads a target.
    ///
    /// # Errors
    /// Those of the server; its absence with the namespace that was looked in.
    pub async fn read(cluster: &Cluster, kind: Kind, name: &str) -> Result<Self, ClusterError> {
        let object = cluster.find(APPS, kind.plural(), name).await?.ok_or_else(|| {
            let place = &cluster.namespace;
            ClusterError::Wrong(format!(
                "there is no {} {name} in the namespace {place}; -n names another",
                kind.name()
            ))
        })?;
        let original = object["metadata"]["annotations"][ORIGINAL].as_str().and_then(|text| text.parse().ok());
        Ok(Self {
            kind,
            name: name.to_owned(),
            // Absent means one.
            replicas: object["spec"]["replicas"].as_u64().unwrap_or(1),
            original,
            run: object["metadata"]["annotations"][RUN].as_str().map(str::to_owned),
            object,
        })
    }

    /// `Deployment chat`.
    pub fn title(&self) -> String {
        format!("{} {}", self.kind.name(), self.name)
    }

    /// The labels of its pods, as a selector.
    ///
    /// # Errors
    /// A selector that is more than labels.
    pub fn selector(&self) -> Result<String, ClusterError> {
        let selector = &self.object["spec"]["selector"];
        let only_labels = selector["matchExpressions"].as_array().is_none_or(Vec::is_empty);
        let labels = selector["matchLabels"].as_object().filter(|labels| only_labels && !labels.is_empty());
        let labels = labels.ok_or_else(|| {
            ClusterError::Wrong(format!("{} selects its pods by expressions, which is not supported", self.title()))
        })?;
        let pairs: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
        Ok(pairs.join(","))
    }

    /// Its pods that still hold something: those that have not ended.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn pods(&self, cluster: &Cluster) -> Result<Vec<Value>, ClusterError> {
        let pods = cluster.list("api/v1", "pods", &self.selector()?).await?;
        Ok(pods.into_iter().filter(|pod| !has_ended(pod)).collect())
    }

    /// Whoever else would scale it meanwhile, by name.
    ///
    /// # Errors
    /// Those of the server but for a missing right: then nobody is known.
    pub async fn scaled_by(&self, cluster: &Cluster) -> Result<Option<String>, ClusterError> {
        let scalers = match cluster.list(AUTOSCALING, "horizontalpodautoscalers", "").await {
            Ok(scalers) => scalers,
            Err(ClusterError::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let ours = |scaler: &&Value| {
            let target = &scaler["spec"]["scaleTargetRef"];
            target["kind"] == self.kind.name() && target["name"] == self.name.as_str()
        };
        Ok(scalers.iter().find(ours).and_then(|s| s["metadata"]["name"].as_str().map(str::to_owned)))
    }

    /// Asks for so many pods.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn scale(&self, cluster: &Cluster, replicas: u64) -> Result<(), ClusterError> {
        let fields = serde_json::json!({"spec": {"replicas": replicas}});
        cluster.merge(APPS, self.kind.plural(), &format!("{}/scale", self.name), &fields).await.map(drop)
    }

    /// Notes the original scale and the run, or takes the notes away.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn note(&self, cluster: &Cluster, borrowed: Option<(u64, &str)>) -> Result<(), ClusterError> {
        let (original, run) =
            borrowed.map_or((Value::Null, Value::Null), |(n, run)| (n.to_string().into(), run.into()));
        let fields = serde_json::json!({"metadata": {"annotations": {ORIGINAL: original, RUN: run}}});
        cluster.merge(APPS, self.kind.plural(), &self.name, &fields).await.map(drop)
    }
}
