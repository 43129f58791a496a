//! A cluster in memory for tests. It has an API server behind the client of a run, controllers that act after each call, and a place for
//! faults before each call.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::body::Body;
use http::{Method, Request, Response};
use serde_json::{Value, json};

use super::api::Cluster;
use crate::digest::sha256;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// It is refused with this code, and nothing is done.
    Refused(u16),
    /// It is done, and its answer is lost.
    Unheard,
}

/// Before the call of this number: what is done to the world, and to the call.
pub type Before = Box<dyn FnMut(&mut World, usize, &str) -> Option<Fault> + Send>;

pub struct World {
    /// By path without namespace: `deployments/chat`.
    pub objects: BTreeMap<String, Value>,
    pub gpus: usize,
    /// The writes that were done, `PATCH deployments/chat/scale`, without events and reviews.
    pub writes: Vec<String>,
    pub said: Vec<String>,
    pub before: Option<Before>,
    /// What the worker's process leaves: its exit code and its last words.
    pub worker: (i64, String),
    /// Whether something keeps the worker's pod running after its process has ended.
    pub sidecar: bool,
    /// Whether no right is granted.
    pub denied: bool,
    /// What server-side apply was given last for each object, and the object as it was before the first time.
    applied: BTreeMap<String, (Value, Value)>,
    calls: usize,
    version: u64,
}

type Failure = (u16, String);

/// What a JSON merge patch makes of a value (RFC 7396). Items of lists that have names are merged by them, as server-side apply does.
fn merge(there: &mut Value, patch: &Value) {
    match (there, patch) {
        (Value::Object(there), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    there.remove(key);
                } else {
                    merge(there.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (there @ Value::Null, Value::Object(_)) => {
            *there = json!({});
            merge(there, patch);
        }
        (Value::Array(there), Value::Array(patch)) if patch.iter().all(|item| item["name"].is_string()) => {
            for item in patch {
                match there.iter_mut().find(|its| its["name"] == item["name"]) {
                    Some(its) => merge(its, item),
                    None => there.push(item.clone()),
                }
            }
        }
        (there, patch) => *there = patch.clone(),
    }
}

/// Takes away what server-side apply was given before and is not given now, unless its owner had put it there.
fn prune(there: &mut Value, last: &Value, now: &Value, owner: &Value) {
    match (there, last) {
        (Value::Object(there), Value::Object(last)) => {
            for (key, value) in last {
                if now[key].is_null() && owner[key].is_null() {
                    there.remove(key);
                } else if let Some(there) = there.get_mut(key) {
                    prune(there, value, &now[key], &owner[key]);
                }
            }
        }
        (Value::Array(there), Value::Array(last)) if last.iter().all(|item| item["name"].is_string()) => {
            let of = |list: &Value, name: &Value| {
                list.as_array().and_then(|l| l.iter().find(|i| i["name"] == *name)).cloned().unwrap_or_default()
            };
            for item in last {
                let (now, owner) = (of(now, &item["name"]), of(owner, &item["name"]));
                if now.is_null() && owner.is_null() {
                    there.retain(|its| its["name"] != item["name"]);
                } else if let Some(there) = there.iter_mut().find(|its| its["name"] == item["name"]) {
                    prune(there, item, &now, &owner);
                }
            }
        }
        _ => {}
    }
}

impl World {
    /// A cluster with so many GPUs, and who asks it.
    pub fn new(gpus: usize) -> (Cluster, Arc<Mutex<Self>>) {
        let world = Arc::new(Mutex::new(Self {
            objects: BTreeMap::new(),
            gpus,
            writes: Vec::new(),
            said: Vec::new(),
            before: None,
            worker: (0, String::new()),
            sidecar: false,
            denied: false,
            applied: BTreeMap::new(),
            calls: 0,
            version: 0,
        }));
        let heard = Arc::clone(&world);
        // What is said while a call is answered is not said by a run.
        let tell = Arc::new(move |says: &str| heard.lock().unwrap().said.push(says.to_owned()));
        (Cluster::behind(kube::Client::new(Api(Arc::clone(&world)), "default"), tell), world)
    }

    /// Puts an object there, as somebody else does.
    pub fn put(&mut self, plural: &str, mut object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.version += 1;
        object["metadata"]["uid"] = format!("uid-{}", self.version).into();
        object["metadata"]["generation"] = 1.into();
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        object["metadata"]["creationTimestamp"] = format!("2026-11-22T10:{:02}:00Z", self.version % 60).into();
        self.objects.insert(format!("{plural}/{name}"), object);
        self.reconcile();
    }

    /// Changes an object that is there, as somebody else does.
    pub fn edit(&mut self, path: &str, patch: Value) {
        drop(self.change(path, |object| merge(object, &patch)));
        self.reconcile();
    }

    /// Deletes an object, as somebody else does.
    pub fn remove(&mut self, path: &str) {
        self.objects.remove(path);
        self.reconcile();
    }

    pub fn of(&self, plural: &str) -> Vec<&Value> {
        let prefix = format!("{plural}/");
        self.objects.iter().filter(|(path, _)| path.starts_with(&prefix)).map(|(_, object)| object).collect()
    }

    fn change(&mut self, path: &str, how: impl FnOnce(&mut Value)) -> Result<Value, Failure> {
        self.version += 1;
        let version = self.version;
        let object = self.objects.get_mut(path).ok_or_else(|| (404, format!("{path} not found")))?;
        let spec = object["spec"].clone();
        how(object);
        object["metadata"]["resourceVersion"] = version.to_string().into();
        if object["spec"] != spec {
            object["metadata"]["generation"] = (object["metadata"]["generation"].as_i64().unwrap_or(0) + 1).into();
        }
        Ok(object.clone())
    }

    fn answer(&mut self, method: &Method, uri: &str, body: Value) -> Result<Value, Failure> {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        if path.ends_with("selfsubjectaccessreviews") {
            return Ok(json!({"status": {"allowed": !self.denied}}));
        }
        // Nodes are of no namespace.
        if let Some(at) = path.strip_prefix("/api/v1/").filter(|at| at.starts_with("nodes/")) {
            return self.objects.get(at).cloned().ok_or_else(|| (404, format!("{at} not found")));
        }
        let (api, path) = path.trim_start_matches('/').split_once("/namespaces/default/").unwrap();
        let (plural, name) = path.split_once('/').unwrap_or((path, ""));
        let (name, sub) = name.split_once('/').unwrap_or((name, ""));
        // A port of a pod, behind the proxy.
        if sub.starts_with("proxy/") {
            let at = format!("{plural}/{}", name.split(':').next().unwrap());
            let page = self.objects.get(&at).map(|pod| pod["page"].clone()).filter(Value::is_string);
            return page.ok_or_else(|| (503, format!("{at} does not listen")));
        }
        let at = format!("{plural}/{name}");
        let missing = || (404, format!("{at} not found"));
        let is_rehearsed = query.contains("dryRun=All");
        if *method != Method::GET && plural != "events" && !is_rehearsed {
            self.writes.push(format!("{method} {path}"));
        }
        match *method {
            Method::GET if name.is_empty() => {
                let selector = query.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/");
                let labels: Vec<(&str, &str)> = selector
                    .strip_prefix("labelSelector=")
                    .map_or(Vec::new(), |text| text.split(',').filter_map(|pair| pair.split_once('=')).collect());
                let has =
                    |object: &&Value| labels.iter().all(|(key, value)| object["metadata"]["labels"][key] == *value);
                let items: Vec<Value> = self.of(plural).into_iter().filter(has).cloned().collect();
                Ok(json!({"items": items}))
            }
            Method::GET => {
                let object = self.objects.get(&at).ok_or_else(missing)?;
                let is_of_version = format!("apis/{}", object["apiVersion"].as_str().unwrap_or_default()) == api;
                if is_of_version || api == "api/v1" { Ok(object.clone()) } else { Err(missing()) }
            }
            Method::POST if is_rehearsed => Ok(body),
            Method::POST => {
                let mut object = body;
                if object["metadata"]["name"].is_null() {
                    object["metadata"]["name"] = format!("generated-{}", self.version).into();
                }
                let at = format!("{plural}/{}", object["metadata"]["name"].as_str().unwrap());
                if self.objects.contains_key(&at) {
                    return Err((409, format!("{at} already exists")));
                }
                self.put(plural, object);
                Ok(self.objects[&at].clone())
            }
            Method::PUT => {
                let there = &self.objects.get(&at).ok_or_else(missing)?["metadata"];
                if there["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return Err((409, format!("{at} was changed")));
                }
                self.change(&at, |object| {
                    for part in ["labels", "annotations"] {
                        object["metadata"][part] = body["metadata"][part].clone();
                    }
                    object["spec"] = body["spec"].clone();
                })
            }
            Method::PATCH if is_rehearsed => {
                let mut object = self.objects.get(&at).ok_or_else(missing)?.clone();
                merge(&mut object, &body);
                Ok(object)
            }
            Method::PATCH => {
                assert!(["", "scale"].contains(&sub), "{sub}");
                let mut last = Value::Null;
                if query.contains("force=") {
                    let owner = self.objects.get(&at).ok_or_else(missing)?.clone();
                    let given = self.applied.entry(at.clone()).or_insert((Value::Null, owner));
                    last = std::mem::replace(&mut given.0, body.clone());
                }
                let owner = self.applied.get(&at).map(|(_, owner)| owner.clone()).unwrap_or_default();
                // Only the list of managers is edited by operations here.
                if body.is_array() {
                    self.applied.remove(&at);
                }
                self.change(&at, |object| {
                    if body.is_array() {
                        object["metadata"]["managedFields"] = json!([]);
                        return;
                    }
                    prune(object, &last, &body, &owner);
                    merge(object, &body);
                    if query.contains("force=") {
                        object["metadata"]["managedFields"] = json!([{"manager": "autotune", "operation": "Apply"}]);
                    }
                })
            }
            Method::DELETE => self.objects.remove(&at).ok_or_else(missing),
            _ => Err((405, method.to_string())),
        }
    }

    /// What the controllers, the scheduler and the kubelet do, all at once.
    fn reconcile(&mut self) {
        loop {
            let uids: Vec<Value> = self.objects.values().map(|object| object["metadata"]["uid"].clone()).collect();
            let count = self.objects.len();
            self.objects.retain(|_, object| {
                let owners = object["metadata"]["ownerReferences"].as_array();
                owners.is_none_or(|owners| owners.iter().any(|owner| uids.contains(&owner["uid"])))
            });
            if self.objects.len() == count {
                break;
            }
        }
        let of = |world: &Self, plural: &str| -> Vec<Value> { world.of(plural).into_iter().cloned().collect() };
        for target in of(self, "deployments") {
            let hash = sha256(target["spec"]["template"].to_string().as_bytes())[..8].to_owned();
            let name = format!("{}-{hash}", target["metadata"]["name"].as_str().unwrap());
            let mut labels = target["spec"]["template"]["metadata"]["labels"].clone();
            labels["pod-template-hash"] = hash.as_str().into();
            for set in of(self, "replicasets") {
                let owned = set["metadata"]["ownerReferences"][0]["uid"] == target["metadata"]["uid"];
                if owned && set["metadata"]["name"] != name.as_str() {
                    self.remove(&format!("replicasets/{}", set["metadata"]["name"].as_str().unwrap()));
                }
            }
            if !self.objects.contains_key(&format!("replicasets/{name}")) {
                let owner = owned_by(&target, "Deployment");
                return self.put("replicasets", json!({"metadata": {"name": name, "ownerReferences": owner}}));
            }
            let owner = owned_by(&self.objects[&format!("replicasets/{name}")], "ReplicaSet");
            self.pods(&target, &name, labels, owner);
        }
        for target in of(self, "statefulsets") {
            let labels = target["spec"]["template"]["metadata"]["labels"].clone();
            self.pods(&target, target["metadata"]["name"].as_str().unwrap(), labels, owned_by(&target, "StatefulSet"));
        }
        for job in of(self, "jobs") {
            self.work(&job);
        }
        let holds = |pod: &Value| {
            let containers = pod["spec"]["containers"].as_array();
            let gpu = |c: &Value| c["resources"]["limits"]["nvidia.com/gpu"].is_string();
            containers.is_some_and(|containers| containers.iter().any(gpu))
        };
        let mut free =
            self.gpus as i64 - self.of("pods").into_iter().filter(|p| holds(p) && is_in(p, "Running")).count() as i64;
        for pod in of(self, "pods").iter().filter(|pod| is_in(pod, "Pending")) {
            let needs = i64::from(holds(pod));
            let pod = self.objects.get_mut(&format!("pods/{}", pod["metadata"]["name"].as_str().unwrap())).unwrap();
            if needs <= free {
                free -= needs;
                pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
                pod["spec"]["nodeName"] = "gpu-1".into();
            } else {
                let says = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.";
                pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False", "message": says}]);
            }
        }
        for kind in ["deployments", "statefulsets"] {
            for target in of(self, kind) {
                let all: Vec<Value> = of(self, "pods").into_iter().filter(|pod| is_of(pod, &target)).collect();
                let ready = all.iter().filter(|pod| is_in(pod, "Running")).count();
                let held = target["spec"]["held"].as_u64();
                let target =
                    self.objects.get_mut(&format!("{kind}/{}", target["metadata"]["name"].as_str().unwrap())).unwrap();
                target["status"] = json!({
                    "observedGeneration": target["metadata"]["generation"],
                    "replicas": all.len(),
                    "updatedReplicas": held.unwrap_or(all.len() as u64),
                    "readyReplicas": ready,
                });
            }
        }
    }

    /// Makes or deletes pods until a target has as many as it asks for.
    fn pods(&mut self, target: &Value, prefix: &str, labels: Value, owner: Value) {
        let wanted = target["spec"]["replicas"].as_u64().unwrap() as usize;
        let has = |world: &Self| -> Vec<String> {
            let owned = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["uid"] == owner[0]["uid"];
            let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
            world.of("pods").into_iter().filter(owned).map(name).collect()
        };
        while has(self).len() > wanted {
            self.objects.remove(&format!("pods/{}", has(self).pop().unwrap()));
        }
        while has(self).len() < wanted {
            let name = (0..).map(|i| format!("{prefix}-{i}")).find(|name| !has(self).contains(name)).unwrap();
            self.version += 1;
            let meta = json!({"name": name, "uid": format!("uid-{}", self.version), "labels": labels, "ownerReferences": owner});
            let pod =
                json!({"metadata": meta, "spec": target["spec"]["template"]["spec"], "status": {"phase": "Pending"}});
            self.objects.insert(format!("pods/{name}"), pod);
        }
    }

    /// The Job's pod is made, works while it is looked at a few times, and ends.
    fn work(&mut self, job: &Value) {
        let name = job["metadata"]["name"].as_str().unwrap();
        let at = format!("pods/{name}-0");
        if job["spec"]["suspend"] == true || job["status"]["conditions"].is_array() {
            return;
        }
        let Some(pod) = self.objects.get_mut(&at) else {
            let mut labels = job["spec"]["template"]["metadata"]["labels"].clone();
            labels["batch.kubernetes.io/controller-uid"] = job["metadata"]["uid"].clone();
            self.version += 1;
            let uid = format!("uid-{}", self.version);
            let meta = json!({"name": format!("{name}-0"), "uid": uid, "labels": labels, "ownerReferences": owned_by(job, "Job")});
            let spec = job["spec"]["template"]["spec"].clone();
            self.objects.insert(at, json!({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}));
            return;
        };
        if !is_in(pod, "Running") {
            return;
        }
        let looks = pod["looks"].as_u64().unwrap_or(0) + 1;
        pod["looks"] = looks.into();
        if looks < 12 {
            return;
        }
        let (code, words) = &self.worker;
        let ended = json!({"exitCode": code, "message": words});
        pod["status"]["containerStatuses"] = json!([{"name": "autotune", "state": {"terminated": ended}}]);
        if self.sidecar {
            return;
        }
        pod["status"]["phase"] = if *code == 0 { "Succeeded" } else { "Failed" }.into();
        let kind = if *code == 0 { "Complete" } else { "Failed" };
        let says = json!([{"type": kind, "status": "True", "message": format!("its pod ended with {code}")}]);
        self.objects.get_mut(&format!("jobs/{name}")).unwrap()["status"]["conditions"] = says;
    }
}

fn owned_by(owner: &Value, kind: &str) -> Value {
    json!([{"kind": kind, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": true}])
}

fn is_in(pod: &Value, phase: &str) -> bool {
    pod["status"]["phase"] == phase
}

/// Whether a pod is a target's, by the name that its owner begins with.
fn is_of(pod: &Value, target: &Value) -> bool {
    let owner = pod["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default();
    let name = target["metadata"]["name"].as_str().unwrap();
    owner == name || owner.rsplit_once('-').is_some_and(|(head, _)| head == name)
}

/// The API server, as the client reaches it.
struct Api(Arc<Mutex<World>>);

impl tower_service::Service<Request<kube::client::Body>> for Api {
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let world = Arc::clone(&self.0);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.map_err(std::io::Error::other)?;
            let (uri, method) = (parts.uri.to_string(), parts.method);
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let mut world = world.lock().unwrap();
            world.calls += 1;
            let (number, mut before) = (world.calls, world.before.take());
            let fault = before.as_mut().and_then(|before| before(&mut world, number, &format!("{method} {uri}")));
            // The world may have been given other faults meanwhile.
            world.before = world.before.take().or(before);
            let answer = match fault {
                Some(Fault::Refused(code)) => Err((code, "a fault of the test".to_owned())),
                _ => world.answer(&method, &uri, body),
            };
            world.reconcile();
            if fault == Some(Fault::Unheard) {
                return Err(std::io::Error::other("the answer is lost"));
            }
            let (code, value) = match answer {
                Ok(value) => (200, value),
                Err((code, says)) => (
                    code,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": says, "reason": "Test", "code": code}),
                ),
            };
            // All but pages are objects.
            let body = Body::from(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            Response::builder().status(code).body(body).map_err(std::io::Error::other)
        })
    }
}
