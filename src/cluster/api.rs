//! The API server: objects of users as JSON, ours in Kubernetes' own types, and patience while it is away.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::error::Elapsed;
use tracing::debug;

use super::site::Site;
use crate::clock;
use crate::units::Seconds;

/// The API server may be away for so long before a step of a run fails ...
const RETRY_FOR: Duration = Duration::from_secs(600);
/// ... and for so long before a run begins: a wrong address should be said at once.
const FIRST_RETRY_FOR: Duration = Duration::from_secs(10);
/// A request without an answer for so long is asked again: a server that is cut off, or that hangs, does not say so.
const ANSWER: Duration = Duration::from_secs(10);
/// Who waits for longer than this is told why.
const SILENCE: Duration = Duration::from_secs(5);
/// The first pause before a step is tried again; each next one is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Why the cluster did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("no cluster: {0}; is KUBECONFIG set, or does this run in a pod with a service account?")]
    NoCluster(String),
    #[error("{what}: the API server says: {message} ({code})")]
    Refused { code: u16, what: String, message: String },
    /// The server was away for longer than it is asked again.
    #[error("{what}: {why}")]
    Away { what: String, why: String },
    /// Somebody asked for an end.
    #[error("stopped before the end")]
    Stopped,
    /// The target still waits for its scale; the sentence says how it gets it back.
    #[error("{0}")]
    Held(String),
    /// What is there is not as it must be; the sentence says what to do.
    #[error("{0}")]
    Wrong(String),
}

impl ClusterError {
    /// Whether the object is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }

    /// Whether the object is there already, or was changed by somebody else.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }
}

/// A kind of object for which Kubernetes' library has a type.
pub trait Typed: Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned {}

impl<K: Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned> Typed for K {}

/// An object as JSON. Every object of Kubernetes' types can be written so; a server would refuse `null`.
pub fn json(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// The group and version of a kind, as a path of the API.
fn api<K: Resource>() -> String {
    format!("{}/{}", if K::GROUP.is_empty() { "api" } else { "apis" }, K::API_VERSION)
}

/// An object in its type, as an API server of Kubernetes always sends it.
fn typed<K: Typed>(object: Value) -> Result<K, ClusterError> {
    serde_json::from_value(object).map_err(|e| ClusterError::Away {
        what: format!("GET {}", K::URL_PATH_SEGMENT),
        why: format!("the answer is no {}: {e}", K::KIND),
    })
}

/// Where sentences about what happens go.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// A namespace of a cluster, and who hears what happens there.
#[derive(Clone)]
pub struct Cluster {
    client: kube::Client,
    pub namespace: String,
    /// What every object that is made gets besides its own.
    pub site: Site,
    retry_for: Duration,
    tell: Tell,
}

/// A change of an object, as one of the kinds of patches that every API server takes.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// Fields that are merged; lists are replaced (RFC 7396).
    Merge(Value),
    /// Operations on places (RFC 6902).
    Operations(Value),
}

/// How a server-side apply is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Apply {
    /// Whether fields that somebody else manages are taken over.
    pub force: bool,
    /// Whether the server only says what it would do.
    pub dry_run: bool,
}

// Content types of a request's body.
const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
/// Server-side apply takes YAML, and JSON is YAML.
const APPLY: &str = "application/apply-patch+yaml";

/// Who changes objects, as `kubectl get --show-managed-fields` names it.
pub const MANAGER: &str = "autotune";
/// The annotation by which we know an object as the one that we asked for when the server's answer was lost.
const REQUEST: &str = "autotune/request";

impl Cluster {
    /// The cluster of the kubeconfig or of the pod's service account; its own namespace unless another is named.
    pub async fn connect(namespace: Option<&str>, tell: Tell) -> Result<Self, ClusterError> {
        // Two TLS libraries in a program have none of them chosen by itself; ours is chosen where it is not yet.
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut config = kube::Config::infer().await.map_err(|e| ClusterError::NoCluster(e.to_string()))?;
        // By which an audit log tells us from others.
        let agent = http::HeaderValue::from_static(concat!("autotune/", env!("CARGO_PKG_VERSION")));
        config.headers.push((http::header::USER_AGENT, agent));
        let namespace = namespace.map_or_else(|| config.default_namespace.clone(), str::to_owned);
        let client = kube::Client::try_from(config).map_err(|e| ClusterError::NoCluster(e.to_string()))?;
        Ok(Self { client, namespace, site: Site::default(), retry_for: FIRST_RETRY_FOR, tell })
    }

    #[cfg(test)]
    pub(super) fn behind(client: kube::Client, tell: Tell) -> Self {
        Self { client, namespace: "default".to_owned(), site: Site::default(), retry_for: FIRST_RETRY_FOR, tell }
    }

    /// The cluster for a run, which waits while the API server is away.
    pub fn patient(&self) -> Self {
        Self { retry_for: RETRY_FOR, ..self.clone() }
    }

    pub fn tell(&self, says: &str) {
        (self.tell)(says);
    }

    /// The path of a kind in the namespace: `api` is `api/v1` or `apis/GROUP/VERSION`.
    fn path(&self, api: &str, plural: &str, rest: &str) -> String {
        format!("/{api}/namespaces/{}/{plural}{rest}", self.namespace)
    }

    pub async fn get(&self, api: &str, plural: &str, name: &str) -> Result<Value, ClusterError> {
        self.call(Method::GET, &self.path(api, plural, &format!("/{name}")), None).await
    }

    /// An object, if it is there.
    pub async fn find(&self, api: &str, plural: &str, name: &str) -> Result<Option<Value>, ClusterError> {
        match self.get(api, plural, name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An object in its type, if it is there.
    pub async fn read<K: Typed>(&self, name: &str) -> Result<Option<K>, ClusterError> {
        self.find(&api::<K>(), K::URL_PATH_SEGMENT, name).await?.map(typed).transpose()
    }

    /// The objects of a kind in their type.
    pub async fn read_all<K: Typed>(&self) -> Result<Vec<K>, ClusterError> {
        self.list(&api::<K>(), K::URL_PATH_SEGMENT, "").await?.into_iter().map(typed).collect()
    }

    /// A node; `None` if it is gone, or where we may not read it: nodes are of no namespace.
    pub async fn node(&self, name: &str) -> Result<Option<Value>, ClusterError> {
        match self.call(Method::GET, &format!("/api/v1/nodes/{name}"), None).await {
            Ok(node) => Ok(Some(node)),
            Err(ClusterError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The objects of a kind with these labels, `a=b,c=d`; all of them without.
    pub async fn list(&self, api: &str, plural: &str, labels: &str) -> Result<Vec<Value>, ClusterError> {
        let query = if labels.is_empty() { String::new() } else { format!("?labelSelector={}", escaped(labels)) };
        let mut list = self.call(Method::GET, &self.path(api, plural, &query), None).await?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Makes an object of ours, as [`create`](Self::create) does.
    pub async fn make<K: Typed>(&self, object: &K) -> Result<(), ClusterError> {
        self.create(&api::<K>(), K::URL_PATH_SEGMENT, &json(object)).await
    }

    /// Makes an object from JSON.
    ///
    /// # Errors
    /// Those of the server; a conflict where another one of that name is there.
    pub async fn create(&self, api: &str, plural: &str, object: &Value) -> Result<(), ClusterError> {
        let path = self.path(api, plural, &format!("?fieldManager={MANAGER}"));
        let mut object = object.clone();
        let request = format!("{}-{}", clock::timestamp().as_nanosecond(), std::process::id());
        object["metadata"]["annotations"][REQUEST] = request.as_str().into();
        self.site.mark(&mut object);
        match self.call(Method::POST, &path, Some((JSON, &object))).await {
            Err(error) if error.is_conflict() => {
                // An answer that was lost on its way makes the second attempt meet what the first one made.
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let there = self.find(api, plural, name).await?;
                let is_it = there.is_some_and(|there| there["metadata"]["annotations"][REQUEST] == request.as_str());
                if is_it { Ok(()) } else { Err(error) }
            }
            done => done.map(drop),
        }
    }

    /// Asks whether an object would be made, without making it.
    pub async fn rehearse(&self, api: &str, plural: &str, object: &Value) -> Result<(), ClusterError> {
        let path = self.path(api, plural, &format!("?fieldManager={MANAGER}&dryRun=All"));
        self.call(Method::POST, &path, Some((JSON, object))).await.map(drop)
    }

    /// Replaces an object that nobody changed since it was read.
    ///
    /// # Errors
    /// Those of the server; a conflict where somebody did.
    pub async fn replace<K: Typed>(&self, name: &str, object: &K) -> Result<(), ClusterError> {
        let mut object = json(object);
        self.site.mark(&mut object);
        let path = self.path(&api::<K>(), K::URL_PATH_SEGMENT, &format!("/{name}?fieldManager={MANAGER}"));
        self.call(Method::PUT, &path, Some((JSON, &object))).await.map(drop)
    }

    /// Changes an object; `name` may go on to a subresource.
    pub async fn patch(&self, api: &str, plural: &str, name: &str, patch: &Patch) -> Result<Value, ClusterError> {
        let path = self.path(api, plural, &format!("/{name}?fieldManager={MANAGER}"));
        let body = match patch {
            Patch::Merge(fields) => (MERGE_PATCH, fields),
            Patch::Operations(operations) => (JSON_PATCH, operations),
        };
        self.call(Method::PATCH, &path, Some(body)).await
    }

    /// Says which fields of an object shall have which values, and is their manager from then on (server-side apply).
    ///
    /// # Errors
    /// Those of the server; a conflict, with the fields and who manages them, where somebody else does and this is not forced.
    pub async fn apply(
        &self,
        api: &str,
        plural: &str,
        name: &str,
        fields: &Value,
        Apply { force, dry_run }: Apply,
    ) -> Result<Value, ClusterError> {
        let dry_run = if dry_run { "&dryRun=All" } else { "" };
        let path = self.path(api, plural, &format!("/{name}?fieldManager={MANAGER}&force={force}{dry_run}"));
        self.call(Method::PATCH, &path, Some((APPLY, fields))).await
    }

    /// Leaves an event, as `kubectl describe` shows them; nothing depends on its success.
    pub async fn event(&self, event: &Event) {
        let mut body = json(event);
        self.site.mark(&mut body);
        let path = self.path(&api::<Event>(), Event::URL_PATH_SEGMENT, "");
        let request = http::Request::post(path).header(http::header::CONTENT_TYPE, JSON);
        if let Ok(request) = request.body(body.to_string().into_bytes()) {
            let answered = tokio::time::timeout(ANSWER, self.client.request::<Value>(request)).await;
            debug!(reason = event.reason, status = status(&answered), "an event is left");
        }
    }

    /// Deletes an object and what it owns, if it is there.
    pub async fn delete<K: Resource>(&self, name: &str) -> Result<(), ClusterError> {
        let path = self.path(&api::<K>(), K::URL_PATH_SEGMENT, &format!("/{name}?propagationPolicy=Background"));
        match self.call(Method::DELETE, &path, None).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks the server whether we may do something in the namespace.
    pub async fn may(&self, attributes: ResourceAttributes) -> Result<bool, ClusterError> {
        let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = json(&SelfSubjectAccessReview { spec, ..Default::default() });
        let path = format!("/{}/{}", api::<SelfSubjectAccessReview>(), SelfSubjectAccessReview::URL_PATH_SEGMENT);
        let answer = self.call(Method::POST, &path, Some((JSON, &review))).await?;
        Ok(typed::<SelfSubjectAccessReview>(answer)?.status.is_some_and(|status| status.allowed))
    }

    /// The last lines of a container's log; nothing where it cannot be had.
    pub async fn last_line(&self, pod: &str, container: &str) -> Option<String> {
        let path = self.path("api/v1", "pods", &format!("/{pod}/log?container={container}&tailLines=1"));
        let request = http::Request::get(path).body(Vec::new()).ok()?;
        let text = tokio::time::timeout(ANSWER, self.client.request_text(request)).await.ok()?.ok()?;
        text.lines().last().map(str::to_owned)
    }

    /// The page of metrics at a port of a pod, behind the API server's proxy.
    pub async fn metrics(&self, pod: &str, port: u64) -> Result<String, ClusterError> {
        let what = format!("GET pods/{pod}:{port}/proxy/metrics");
        let path = self.path("api/v1", "pods", &format!("/{pod}:{port}/proxy/metrics"));
        let wrong = |why: &dyn std::fmt::Display| ClusterError::Wrong(format!("{what}: {why}"));
        let request = http::Request::get(path).body(Vec::new()).map_err(|e| wrong(&e))?;
        match tokio::time::timeout(ANSWER, self.client.request_text(request)).await {
            Ok(Ok(page)) => Ok(page),
            Ok(Err(kube::Error::Api(status))) => {
                Err(ClusterError::Refused { code: status.code, what, message: status.message.clone() })
            }
            Ok(Err(error)) => Err(wrong(&whole(&error))),
            Err(_) => Err(wrong(&format!("no answer within {} s", ANSWER.as_secs()))),
        }
    }

    /// One request, tried again while the server is away or overwhelmed.
    async fn call(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Value, ClusterError> {
        let what = format!("{method} {}", path.split('?').next().unwrap_or(path));
        let (begun, mut pause, mut said) = (clock::ticks(), FIRST_PAUSE, false);
        loop {
            let mut request = http::Request::builder().method(method.clone()).uri(path);
            let mut bytes = Vec::new();
            if let Some((content, value)) = body {
                request = request.header(http::header::CONTENT_TYPE, content);
                bytes = value.to_string().into_bytes();
            }
            let request = request.body(bytes).map_err(|e| ClusterError::Wrong(format!("{what}: {e}")))?;
            let answered = tokio::time::timeout(ANSWER, self.client.request::<Value>(request)).await;
            debug!(call = what, status = status(&answered), since = ?begun.elapsed(), "the API server is asked");
            let why = match answered {
                Err(_) => format!("the API server is away (no answer within {} s)", ANSWER.as_secs()),
                Ok(Ok(value)) => {
                    if said {
                        self.tell(&format!("the API server is back after {:.0} s", begun.elapsed().as_secs_f64()));
                    }
                    return Ok(value);
                }
                // A service account that was deleted in mid-run may be made again; wrong credentials at the beginning are said at once.
                Ok(Err(kube::Error::Api(status))) if status.code == 401 && self.retry_for > FIRST_RETRY_FOR => format!(
                    "the API server does not accept our credentials any more ({} (401)): make the service account or the token again",
                    status.message
                ),
                Ok(Err(kube::Error::Api(status))) if is_final(status.code, &status.message) => {
                    return Err(ClusterError::Refused { code: status.code, what, message: status.message.clone() });
                }
                Ok(Err(error)) => format!("the API server is away ({})", whole(&error)),
            };
            if begun.elapsed() > self.retry_for {
                return Err(ClusterError::Away { what, why });
            }
            if !said && begun.elapsed() > SILENCE {
                said = true;
                self.tell(&format!("{why}; trying again for {}", Seconds::from(self.retry_for)));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Whether an error would come again: it is about what was asked. A field that the schema of a custom resource does not have is refused by
/// server-side apply with 500.
fn is_final(code: u16, message: &str) -> bool {
    !(code >= 500 || code == 429) || message.contains("failed to create typed patch object")
}

/// What became of a request, in a word.
fn status(answered: &Result<kube::Result<Value>, Elapsed>) -> String {
    match answered {
        Ok(Ok(_)) => "done".to_owned(),
        Ok(Err(kube::Error::Api(status))) => status.code.to_string(),
        Ok(Err(_)) => "no connection".to_owned(),
        Err(_) => "no answer".to_owned(),
    }
}

/// An error with what caused it: that of a connection says nothing by itself.
fn whole(error: &kube::Error) -> String {
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let says = error.to_string();
        // Some repeat what caused them.
        if !said.ends_with(&says) {
            said = format!("{said}: {says}");
        }
        cause = error.source();
    }
    said
}

/// A label selector in a query.
fn escaped(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
    text.chars()
        .map(|c| if plain(c) { c.to_string() } else { c.to_string().bytes().map(|b| format!("%{b:02X}")).collect() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::is_final;

    #[test]
    fn what_is_wrong_with_a_request_is_said_at_once() {
        let no_field = "failed to create typed patch object (/llama; kubeai.org/v1, Kind=Model): .spec.loadBalancing.strategem: field not declared in schema";
        assert!(is_final(409, "") && is_final(500, no_field));
        assert!(!is_final(500, "etcdserver: leader changed") && !is_final(429, "") && !is_final(503, ""));
    }
}
