//! The manifests by which a Job in the cluster is the coordinator: what it may do, its files, where results stay, the Job itself.

use std::collections::BTreeMap;

use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use serde_json::{Value, json};

use super::api;
use super::borrow::short_name;
use super::indexed::PORT;
use super::kinds::Kind;
use super::rights::{Right, needed};
use super::site::Site;
use super::target::Which;
use super::worker::{failure_policy, labels};
use crate::export::render::yaml;

/// Long enough to end the worker and to scale the target back.
const GRACE_SECONDS: u64 = 900;
/// A coordinator that dies is started again so many times, and goes on with the run that it left.
const RETRIES: u64 = 6;
/// Where a pod has the UID of its Job.
const ASKS: &str = "metadata.labels['batch.kubernetes.io/controller-uid']";

/// What the manifests are made for.
pub struct Rendered {
    /// The namespace; that of whoever applies them, if none.
    pub namespace: Option<String>,
    pub which: Which,
    /// An image that holds our program as `/autotune`.
    pub image: String,
    /// The PersistentVolumeClaim for journal and results, which is made too; none for results that last as long as the pod.
    pub claim: Option<String>,
    /// The files of the ConfigMap by their keys: where each goes beside the space file, and what it holds.
    pub files: BTreeMap<String, (String, String)>,
    /// The words of our command line behind `--space FILE`.
    pub words: Vec<String>,
    /// Whether the target gets new arguments at the end.
    pub applies: bool,
    pub workers: u8,
    /// The port at which the worker says where it stands.
    pub listen: Option<u16>,
    /// What the cluster asks of the objects, the coordinator's and those that it makes.
    pub site: Site,
}

/// How long the finished coordinator and its log stay; the outcome stays in its ConfigMap.
const STAYS_SECONDS: u64 = 86_400;

/// The name of the coordinator's objects, after its target: a second target in the namespace has others.
fn name(rendered: &Rendered, of: &str) -> String {
    format!("tune{of}-{}", short_name(&rendered.which.name))
}

/// The manifests, as documents of one YAML file.
pub fn render(rendered: &Rendered) -> String {
    let (own, comfortable, space) = (name(rendered, ""), name(rendered, "-comfort"), name(rendered, "-space"));
    let data = rendered.files.iter().map(|(key, (_, text))| (key.clone(), text.clone())).collect();
    let role =
        |name: &str, rules| object(rendered, name, api::json(&Role { rules: Some(rules), ..Default::default() }));
    let rules = rules(&needed(&rendered.which, rendered.applies, rendered.workers.into()));
    let mut objects = vec![
        ("who it is", object(rendered, &own, api::json(&ServiceAccount::default()))),
        (
            "what it may do and must: before it touches anything, it says which of these rights is missing",
            role(&own, rules),
        ),
        (
            "not needed, and good to have: the worker's progress, events on the target, why a worker makes no pod, autoscalers in the way",
            role(&comfortable, comfort(rendered.which.kind)),
        ),
        ("that it may", binding(rendered, &own)),
        ("and that", binding(rendered, &comfortable)),
        (
            "the promises, the workload, and what is tuned",
            object(rendered, &space, api::json(&ConfigMap { data: Some(data), ..Default::default() })),
        ),
    ];
    // The others are the files of `jobs/`, as a test compares: their types would say the same in more words.
    let other = |api: &str, kind: &str, name: &str, spec: Value| {
        object(rendered, name, json!({"apiVersion": api, "kind": kind, "spec": spec}))
    };
    let network = |name: &str, spec: Value| other("networking.k8s.io/v1", "NetworkPolicy", name, spec);
    objects.push((
        "who reaches the workers: each other where there are several, whoever asks at the port of --listen, and nobody else",
        network(&own, policy(rendered)),
    ));
    let of_job = json!({"matchLabels": {"batch.kubernetes.io/job-name": own}});
    objects.push((
        "who reaches the coordinator: nobody",
        network(&name(rendered, "-coordinator"), json!({"podSelector": of_job, "policyTypes": ["Ingress"]})),
    ));
    if let Some(claim) = &rendered.claim {
        // Every worker mounts it, though only the leader writes there.
        let (mode, says) = match rendered.workers {
            1 => (
                "ReadWriteOnce",
                "where the worker keeps its journal and its report, so that one that was evicted goes on where it was",
            ),
            _ => (
                "ReadWriteMany",
                "where the leading worker keeps its journal and its report; ReadWriteOnce will do if one node has all the GPUs",
            ),
        };
        let spec = json!({"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}});
        objects.push((says, other("v1", "PersistentVolumeClaim", claim, spec)));
    }
    objects.push((
        "the coordinator, which needs no GPU; it is gone a day after its end, and a second run before that needs it deleted",
        other("batch/v1", "Job", &own, job(rendered, &own, &space)),
    ));
    let documents: Vec<String> =
        objects.iter().map(|(says, object)| format!("# {says}\n{}\n", yaml(object, 0))).collect();
    documents.join("---\n")
}

/// An object with its name, and with what the cluster asks of all.
fn object(rendered: &Rendered, name: &str, mut object: Value) -> Value {
    object["metadata"] = json!({"name": name});
    rendered.site.mark(&mut object);
    if let Some(namespace) = &rendered.namespace {
        object["metadata"]["namespace"] = namespace.as_str().into();
    }
    object
}

fn binding(rendered: &Rendered, role: &str) -> Value {
    let subject = Subject {
        kind: ServiceAccount::KIND.to_owned(),
        name: name(rendered, ""),
        namespace: rendered.namespace.clone(),
        ..Default::default()
    };
    let role_ref = RoleRef { api_group: Role::GROUP.to_owned(), kind: Role::KIND.to_owned(), name: role.to_owned() };
    object(rendered, role, api::json(&RoleBinding { role_ref, subjects: Some(vec![subject]), ..Default::default() }))
}

/// Rights as rules of a Role: one for all verbs on the same object.
fn rules(rights: &[Right]) -> Vec<PolicyRule> {
    let mut rules: Vec<PolicyRule> = Vec::new();
    for right in rights {
        let resource_names = right.name.clone().map(|name| vec![name]);
        let new = PolicyRule { resource_names, ..rule(right.group, &right.resource, &[right.verb]) };
        match rules.iter_mut().find(|rule| PolicyRule { verbs: new.verbs.clone(), ..(*rule).clone() } == new) {
            Some(rule) => rule.verbs.extend(new.verbs),
            None => rules.push(new),
        }
    }
    rules
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..Default::default()
    }
}

/// Lets nobody reach the workers of a target's run but, where they lend their engines, each other; there is one run at a time.
fn policy(rendered: &Rendered) -> Value {
    let workers = json!({"matchLabels": labels(&rendered.which.name)});
    let port = |port: u16| json!([{"protocol": "TCP", "port": port}]);
    let mut ingress = Vec::new();
    if rendered.workers > 1 {
        ingress.push(json!({"from": [{"podSelector": workers}], "ports": port(PORT)}));
    }
    ingress.extend(rendered.listen.map(|listen| json!({"ports": port(listen)})));
    json!({"podSelector": workers, "policyTypes": ["Ingress"], "ingress": ingress})
}

/// What a run makes use of where it may. An adapter of scale, which some components of a graph have, is scaled in the target's stead.
fn comfort(kind: &Kind) -> Vec<PolicyRule> {
    let mut rules = vec![
        rule("", "pods/log", &["get"]),
        rule("", "pods", &["create"]),
        rule("", "persistentvolumeclaims", &["get"]),
        rule("", "events", &["create", "list"]),
        rule("", "services", &["list"]),
        rule("autoscaling", "horizontalpodautoscalers", &["list"]),
    ];
    if kind.group == "nvidia.com" {
        rules.push(rule(kind.group, "dynamographdeploymentscalingadapters", &["get"]));
        rules.push(rule(kind.group, "dynamographdeploymentscalingadapters/scale", &["patch"]));
    }
    rules
}

fn job(rendered: &Rendered, own: &str, space: &str) -> Value {
    let mut args = vec!["job", "run", "--space", "/space/space.toml", "--out", "/results"];
    let words = [rendered.words.clone(), rendered.site.words()].concat();
    args.extend(words.iter().map(String::as_str));
    let items: Vec<Value> = rendered.files.iter().map(|(key, (path, _))| json!({"key": key, "path": path})).collect();
    let mut job = json!({
        "backoffLimit": RETRIES,
        "ttlSecondsAfterFinished": STAYS_SECONDS,
        "podFailurePolicy": failure_policy(),
        "template": {"spec": {
            "serviceAccountName": own,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "autotune",
                "image": rendered.image,
                "command": ["/autotune"],
                "args": args,
                // By which one that is started again knows what it did before.
                "env": [{"name": "AUTOTUNE_ONCE", "valueFrom": {"fieldRef": {"fieldPath": ASKS}}}],
                "resources": rendered.site.resources("50m", "64Mi"),
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "space", "mountPath": "/space", "readOnly": true},
                    {"name": "results", "mountPath": "/results"},
                ],
            }],
            "volumes": [
                {"name": "space", "configMap": {"name": space, "items": items}},
                {"name": "results", "emptyDir": {}},
            ],
        }},
    });
    rendered.site.pull(&mut job["template"]["spec"]);
    rendered.site.mark(&mut job["template"]);
    job
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::cluster::borrow::LETTERS;
    use crate::cluster::kinds::KINDS;
    use crate::export::{forms, source::Source, yaml::meaning};

    fn documents(text: &str) -> Vec<Value> {
        Source::new(text).unwrap().documents.iter().map(|root| forms::json(&meaning(root).unwrap())).collect()
    }

    fn of_kind<'d>(documents: &'d [Value], kind: &str) -> &'d Value {
        documents.iter().find(|d| d["kind"] == kind && d["metadata"]["name"] == "tune-target").unwrap()
    }

    fn rendered() -> Rendered {
        Rendered {
            namespace: None,
            which: Which { kind: KINDS[0], name: "target".into(), part: None },
            image: "autotune".into(),
            claim: Some("autotune-results-target".into()),
            files: [("space.toml".to_owned(), ("space.toml".to_owned(), "[slo]\nttft_p99 = \"1s\"\n".to_owned()))]
                .into(),
            words: ["--deployment", "$(TARGET)", "--results", "$(RESULTS)"].map(str::to_owned).to_vec(),
            applies: true,
            workers: 1,
            listen: None,
            site: Site::default(),
        }
    }

    /// The files of `jobs/` are the same manifests, with comments and one place for what a user changes.
    #[test]
    fn jobs_has_the_same_rules_and_the_same_job() {
        let file = |name: &str| {
            std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("jobs").join(name)).unwrap()
        };
        let made = documents(&render(&rendered()));
        // The Role there is enough for whatever the Job may be asked for.
        let most = documents(&render(&Rendered { workers: 2, ..rendered() }));
        let rbac = documents(&file("rbac.yaml"));
        let key = |rule: &Value| rule.to_string();
        let sorted = |role: &Value| {
            let mut rules: Vec<Value> = role["rules"].as_array().unwrap().clone();
            rules.iter_mut().for_each(|rule| {
                let mut verbs: Vec<String> = rule["verbs"].as_array().unwrap().iter().map(Value::to_string).collect();
                verbs.sort();
                rule["verbs"] = verbs.into();
            });
            rules.sort_by_key(key);
            rules
        };
        assert_eq!(
            sorted(of_kind(&rbac, "Role")),
            sorted(of_kind(&most, "Role")),
            "the Role of jobs/ allows what a run needs, and no more"
        );
        let mut theirs = of_kind(&documents(&file("tune.yaml")), "Job").clone();
        let mut ours = of_kind(&made, "Job").clone();
        // The target and the image stand in variables there, for Kustomize to replace, and its ConfigMap has no other files.
        let env = theirs["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap();
        env.retain(|variable| variable["name"] == "AUTOTUNE_ONCE");
        ours["spec"]["template"]["spec"]["volumes"][0]["configMap"].as_object_mut().unwrap().remove("items");
        // A name that would be shortened is refused with this label of the Job, as it is applied: its value has 63 letters at most.
        let label = theirs["metadata"]["labels"]["autotune/long-name"].take();
        assert_eq!(label.as_str().map(|label| label.len() - "target".len()), Some(63 - LETTERS));
        theirs["metadata"].as_object_mut().unwrap().remove("labels");
        for job in [&mut theirs, &mut ours] {
            let args = job["spec"]["template"]["spec"]["containers"][0]["args"].as_array_mut().unwrap();
            args.sort_by_key(Value::to_string);
        }
        assert_eq!(theirs, ours);
        let policies = documents(&file("network.yaml"));
        assert_eq!(&policies[0], of_kind(&most, "NetworkPolicy"));
        let closed = |d: &&Value| d["metadata"]["name"] == "tune-coordinator-target";
        assert_eq!(policies.iter().find(closed), made.iter().find(closed));
        assert_eq!(of_kind(&made, "NetworkPolicy")["spec"]["ingress"], json!([]), "nobody reaches a single worker");
        let listens = documents(&render(&Rendered { workers: 2, listen: Some(9090), ..rendered() }));
        let open = &of_kind(&listens, "NetworkPolicy")["spec"]["ingress"][1];
        assert_eq!(open, &json!({"ports": [{"protocol": "TCP", "port": 9090}]}));
        let claim = documents(&file("results.yaml"));
        let made = made.iter().find(|d| d["kind"] == "PersistentVolumeClaim").unwrap();
        assert_eq!(&claim[0], made);
    }

    /// As it was read by a person, and is validated by `tests/real/kube/schemas.sh`.
    #[test]
    fn several_workers_need_a_shared_claim_and_a_service() {
        let words = [rendered().words, ["--workers", "2"].map(str::to_owned).to_vec()].concat();
        let shown = render(&Rendered { words, workers: 2, ..rendered() });
        let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/workers/rendered-two.yaml");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&golden, &shown).unwrap();
        }
        assert_eq!(shown, std::fs::read_to_string(&golden).unwrap(), "UPDATE=1 cargo test writes it anew");
    }
}
