//! The worker: a Job made of the target's own pod, with our program in the engine's place. It stays JSON, since that pod keeps fields that
//! Kubernetes' types do not have.

use serde_json::{Map, Value, json};

use super::api::ClusterError;
use super::borrow::{LABEL, short_name};
use super::indexed::spread;
use super::site::Site;
use super::target::{RUN, Target};
use crate::digest::sha256;

/// Where our things are in the worker's container.
const HOME: &str = "/autotune";
/// The annotation of a worker with the digest of what it was made from.
pub const TEMPLATE: &str = "autotune/template";
/// How often a worker that fails for reasons of the cluster is started again.
const RETRIES: u32 = 3;
/// The grace period of the worker's pod: its engine needs a while to end.
const GRACE_SECONDS: u64 = 120;

/// What a worker is made of besides its target.
#[derive(Clone, Debug)]
pub struct Order {
    /// The name of the Job and of the ConfigMap with the files.
    pub name: String,
    /// The keys of the ConfigMap and where they go in the worker's folder `space`: the space file, and the workload's.
    pub files: Vec<(String, String)>,
    /// How many pods work, each with GPUs of its own.
    pub workers: u8,
    /// The container that is the engine; the only one, or the only one with a GPU, unless named.
    pub container: Option<String>,
    /// The name of the run, the same for every worker of it: the folder of its journal.
    pub run: String,
    /// An image that holds our program as `/autotune`.
    pub image: String,
    /// A PersistentVolumeClaim for journal and results; without one they last as long as the pod.
    pub claim: Option<String>,
    /// Seconds after which Kubernetes ends the Job whatever happens.
    pub deadline_seconds: u64,
    /// More words for our command line, such as `--budget 45m`.
    pub words: Vec<String>,
}

/// The Job, which waits (`suspend`) until the GPU is free; `template` is what the target's pods are made of.
///
/// # Errors
/// If it is not clear which container is the engine, or if several workers cannot have names.
pub fn worker(target: &Target, template: &Value, order: &Order, site: &Site) -> Result<Value, ClusterError> {
    let mut pod = template["spec"].as_object().cloned().unwrap_or_default();
    let engine = engine(target, template, order.container.as_deref())?;
    if order.workers > 1 && order.name.contains('.') {
        return Err(ClusterError::Wrong(format!(
            "{} has a dot in its name, with which the hosts of several workers cannot be named: --workers 1 tunes it",
            target.title()
        )));
    }
    let mut volumes = list(&pod, "volumes");
    volumes.push(json!({"name": "autotune-program", "emptyDir": {}}));
    let items: Vec<Value> = order.files.iter().map(|(key, path)| json!({"key": key, "path": path})).collect();
    volumes.push(json!({"name": "autotune-space", "configMap": {"name": order.name, "items": items}}));
    volumes.push(json!({"name": "autotune-scratch", "emptyDir": {}}));
    volumes.push(match &order.claim {
        Some(claim) => json!({"name": "autotune-results", "persistentVolumeClaim": {"claimName": claim}}),
        None => json!({"name": "autotune-results", "emptyDir": {}}),
    });
    let is_of_service = target.kind.is_of_service;
    let mut before = vec![installer(order, site, &engine)];
    // Sidecars among them end with the engine's container, and others may need them.
    before.extend(list(&pod, "initContainers"));
    // What belongs to the service and not to the engine: its name, its spread, how it is restarted.
    for key in
        ["hostname", "subdomain", "topologySpreadConstraints", "readinessGates", "nodeName", "activeDeadlineSeconds"]
    {
        pod.remove(key);
    }
    let grace = pod.get("terminationGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(0).max(GRACE_SECONDS);
    pod.insert("terminationGracePeriodSeconds".into(), grace.into());
    pod.insert("restartPolicy".into(), "Never".into());
    pod.insert("volumes".into(), volumes.into());
    pod.insert("initContainers".into(), before.into());
    pod.insert("containers".into(), json!([tuner(engine, is_of_service, order)]));
    let labels = labels(&target.name);
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": order.name, "labels": labels, "annotations": {RUN: order.run, TEMPLATE: digest(target)}},
        "spec": {
            "suspend": true,
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": order.deadline_seconds,
            "podFailurePolicy": failure_policy(),
            "template": {
                // Not the target's labels: no Service may send traffic here, and no controller count this pod as its own.
                "metadata": {"labels": labels, "annotations": annotations(&template["metadata"]["annotations"])},
                "spec": pod,
            },
        },
    });
    site.pull(&mut job["spec"]["template"]["spec"]);
    site.mark(&mut job["spec"]["template"]);
    site.mark(&mut job);
    if order.workers > 1 {
        spread(&mut job, order.workers);
    }
    Ok(job)
}

/// What a Job makes of a pod of ours that failed.
pub(super) fn failure_policy() -> Value {
    json!({"rules": [
        // Our own final words (see the exit codes in `docs/output-files.md`): trying again changes nothing.
        {"action": "FailJob", "onExitCodes": {"containerName": "autotune", "operator": "In", "values": [2, 3, 4, 6]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]})
}

/// The containers of a target's pod that the worker leaves out: all but the engine.
pub fn left_out(target: &Target, template: &Value, named: Option<&str>) -> Result<Vec<String>, ClusterError> {
    let engine = engine(target, template, named)?;
    let all = template["spec"]["containers"].as_array().into_iter().flatten();
    Ok(all.filter_map(|c| c["name"].as_str()).filter(|name| engine["name"] != *name).map(str::to_owned).collect())
}

/// The labels of everything that a run on a target makes.
pub(super) fn labels(target: &str) -> Value {
    json!({LABEL: short_name(target), "app.kubernetes.io/name": "autotune-worker"})
}

/// A digest of all that a target asks for but its scale. It changes when somebody edits the target during a run.
pub fn digest(target: &Target) -> String {
    let mut spec = target.object["spec"].clone();
    forget_scale(&mut spec);
    // As long as a name of a commit, which people compare by eye.
    sha256(spec.to_string().as_bytes())[..16].to_owned()
}

fn forget_scale(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            entries.remove("replicas");
            entries.values_mut().for_each(forget_scale);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_scale),
        _ => {}
    }
}

fn list(object: &Map<String, Value>, key: &str) -> Vec<Value> {
    object.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
}

pub(super) fn has_gpu(container: &Value) -> bool {
    let limits = container["resources"]["limits"].as_object();
    limits.is_some_and(|limits| limits.keys().any(|key| key.ends_with("/gpu")))
}

pub(super) fn engine(target: &Target, template: &Value, named: Option<&str>) -> Result<Value, ClusterError> {
    let containers = template["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let name = |c: &Value| c["name"].as_str().unwrap_or_default().to_owned();
    let with_gpu: Vec<&Value> = containers.iter().filter(|container| has_gpu(container)).collect();
    let found = match (named, &containers[..], &with_gpu[..]) {
        (Some(named), ..) => containers.iter().find(|c| name(c) == named),
        (None, [only], _) => Some(only),
        (None, _, [only]) => Some(*only),
        _ => None,
    };
    found.cloned().ok_or_else(|| {
        let names: Vec<String> = containers.iter().map(name).collect();
        let title = target.title();
        ClusterError::Wrong(format!(
            "{title} has the containers {}: say which is the engine with --container",
            names.join(", ")
        ))
    })
}

/// Copies our program to where the engine's image can run it.
fn installer(order: &Order, site: &Site, engine: &Value) -> Value {
    let mut container = json!({
        "name": "autotune-install",
        "image": order.image,
        "command": ["/autotune", "install", format!("{HOME}/bin/autotune")],
        "resources": site.resources("100m", "64Mi"),
        "volumeMounts": [{"name": "autotune-program", "mountPath": format!("{HOME}/bin")}],
    });
    // Our container must satisfy the same policies as the engine's.
    if let Some(context) = engine.get("securityContext") {
        container["securityContext"] = context.clone();
    }
    container
}

/// The engine's container with our program in its place: image, environment, volumes, resources and security stay.
fn tuner(mut engine: Value, is_of_service: fn(&str) -> bool, order: &Order) -> Value {
    if let Some(container) = engine.as_object_mut() {
        for key in
            ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "ports", "stdin", "tty", "restartPolicy"]
        {
            container.remove(key);
        }
    }
    let log = engine["terminationMessagePath"].as_str().unwrap_or("/dev/termination-log").to_owned();
    let (space, out) = (format!("{HOME}/space/space.toml"), format!("{HOME}/results/{}", order.run));
    let words = ["--space", &space, "--out", &out, "--resume", "--termination-log", &log];
    let mut words: Vec<String> = words.map(str::to_owned).to_vec();
    words.extend(order.words.iter().cloned());
    engine["name"] = "autotune".into();
    engine["command"] = json!([format!("{HOME}/bin/autotune")]);
    engine["args"] = words.into();
    engine["terminationMessagePolicy"] = "File".into();
    let mut env = engine["env"].as_array().cloned().unwrap_or_default();
    // The root file system may be read-only.
    env.retain(|variable| variable["name"].as_str().is_none_or(|name| name != "TMPDIR" && !is_of_service(name)));
    env.push(json!({"name": "TMPDIR", "value": format!("{HOME}/scratch")}));
    env.push(json!({"name": "AUTOTUNE_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}));
    engine["env"] = env.into();
    let mut mounts = engine["volumeMounts"].as_array().cloned().unwrap_or_default();
    for (volume, folder) in [("program", "bin"), ("space", "space"), ("results", "results"), ("scratch", "scratch")] {
        mounts.push(json!({"name": format!("autotune-{volume}"), "mountPath": format!("{HOME}/{folder}")}));
    }
    engine["volumeMounts"] = mounts.into();
    engine
}

/// The pod's annotations without those by which others scrape it, and with those that keep service meshes away.
fn annotations(of_target: &Value) -> Value {
    let mut kept = of_target.as_object().cloned().unwrap_or_default();
    kept.retain(|key, _| !key.starts_with("prometheus.io/") && !key.starts_with("kubectl.kubernetes.io/"));
    kept.insert("sidecar.istio.io/inject".to_owned(), "false".into());
    kept.insert("linkerd.io/inject".to_owned(), "disabled".into());
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::cluster::borrow::own_name;
    use crate::cluster::indexed::companions;
    use crate::cluster::kinds::KINDS;
    use crate::export::{forms::json, source::Source, yaml::meaning};

    fn order() -> Order {
        Order {
            name: "autotune-x".into(),
            files: vec![("space.toml".into(), "space.toml".into())],
            workers: 1,
            container: None,
            run: "20261122-100000".into(),
            image: "autotune:1".into(),
            claim: Some("results".into()),
            deadline_seconds: 7_200,
            words: vec!["--budget".into(), "900s".into()],
        }
    }

    fn target(name: &str) -> Target {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/manifests");
        let source = Source::new(std::fs::read_to_string(folder.join(name)).unwrap()).unwrap();
        let objects = source.documents.iter().map(|root| json(&meaning(root).unwrap()));
        let kind = |object: &Value| KINDS.into_iter().find(|kind| object["kind"] == kind.name);
        objects.into_iter().find_map(|object| Target::of(kind(&object)?, object, None).ok()).unwrap()
    }

    fn made(target: &Target, order: &Order) -> Result<Value, ClusterError> {
        worker(target, &(target.kind.template)(&target.scaled(), 0).unwrap(), order, &Site::default())
    }

    /// Whether these objects are those of a file that was read by a person.
    fn stands(name: &str, objects: &[&Value]) {
        let shown: String = objects.iter().map(|o| serde_json::to_string_pretty(o).unwrap() + "\n").collect();
        let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/workers/{name}.json"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&golden, &shown).unwrap();
        }
        assert_eq!(shown, std::fs::read_to_string(&golden).unwrap(), "{name}: UPDATE=1 cargo test writes it anew");
    }

    /// What a worker keeps of five different targets stands in files that were read by a person.
    #[test]
    fn workers_keep_what_the_engine_needs_and_nothing_of_the_service() {
        for name in [
            "deployment-args",
            "deployment-command",
            "deployment-equals",
            "deployment-flow-multiline",
            "statefulset-shell-folded",
        ] {
            let job = made(&target(&format!("{name}.yaml")), &order()).unwrap();
            stands(name, &[&job]);
            let pod = &job["spec"]["template"];
            assert!(
                pod["metadata"]["labels"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .all(|key| key.contains("autotune") || key.contains("name"))
            );
            for key in ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
                assert!(pod["spec"]["containers"][0].get(key).is_none(), "{name}: {key}");
            }
        }
    }

    #[test]
    fn several_workers_are_one_indexed_job_whose_pods_have_names() {
        let several = Order { workers: 3, ..order() };
        let mut target = target("deployment-args.yaml");
        let job = made(&target, &several).unwrap();
        let (service, secret) = companions(&job, "a-token").unwrap();
        stands("three-workers", &[&job, &json!(service), &json!(secret)]);
        target.name = "llama-3.1".to_owned();
        let says = made(&target, &Order { name: own_name(&target.name), ..several }).unwrap_err().to_string();
        assert!(says.contains("has a dot in its name") && says.contains("--workers 1"), "{says}");
    }

    #[test]
    fn which_container_is_the_engine_must_be_clear() {
        let mut target = target("deployment-args.yaml");
        let containers = &mut target.object["spec"]["template"]["spec"]["containers"];
        let second = json!({"name": "proxy", "image": "p"});
        containers.as_array_mut().unwrap().push(second);
        assert!(made(&target, &order()).is_ok(), "the one with a GPU");
        let named = Order { container: Some("proxy".into()), ..order() };
        let job = made(&target, &named).unwrap();
        assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["image"], "p");
        target.object["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
        let says = made(&target, &order()).unwrap_err().to_string();
        assert!(says.contains("has the containers vllm, proxy: say which is the engine with --container"), "{says}");
    }
}
