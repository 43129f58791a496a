//! One object under two values, for a comparison: it gets one after the other by server-side apply, and is brought back at the end.
//!
//! Before the first change, what undoes it stands in our ConfigMap and its digest on the target, where `autotune restore` finds it.

use std::cell::Cell;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::api::{Apply, Cluster, ClusterError};
use super::apply::{fields, keeps_no_secret, of_owner, shown, with_argument};
use super::borrow::{bring_back, keep_undo, own_name};
use super::coordinate::{holding, left_changed, settled};
use super::events::{Step, say};
use super::owners::{gitops, obstacle};
use super::request::config_map;
use super::rights::{self, check};
use super::rollout::replaced;
use super::target::{Borrowed, Target, Which};
use super::worker::engine;
use crate::export::flags::Setting;
use crate::settings::EngineKind;

/// One value of what is varied.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// Of a flag of the engine.
    Flag(Setting),
    /// Of a variable of the container; `None` if it has none of that name.
    Variable(String, Option<String>),
    /// Of a field of the object's spec.
    Field(Vec<String>, Value),
}

/// What a comparison asks of an object.
#[derive(Clone, Debug)]
pub struct Varying {
    pub which: Which,
    /// The container, where a pod has several.
    pub container: Option<String>,
    /// For A and for B.
    pub wanted: [Wanted; 2],
    /// Who we are, as others read it in the Lease.
    pub holder: String,
    /// How this comparison is called in what it leaves in the cluster.
    pub run: String,
    /// How long pods may take to become ready.
    pub patience: Duration,
}

/// An object that can be varied.
#[derive(Clone, Debug)]
pub struct Plan {
    varying: Varying,
    target: Target,
    /// What is noted on it while it is varied.
    changed: Borrowed,
    /// For A and for B.
    fields: [Value; 2],
    undo: Value,
    /// What A and B differ in, as a diff without secrets.
    pub diff: String,
    /// The tool that keeps the target as a repository says.
    pub gitops: Option<&'static str>,
}

impl Plan {
    pub fn which(&self) -> &Which {
        &self.varying.which
    }

    /// How long its pods may take to become ready.
    pub fn patience(&self) -> Duration {
        self.varying.patience
    }
}

/// Looks at everything without touching anything.
///
/// # Errors
/// What is in the way, and what to do about it.
pub async fn plan(cluster: &Cluster, varying: Varying) -> Result<Plan, ClusterError> {
    let which = &varying.which;
    check(cluster, &rights::varying(which)).await?;
    let target = Target::read(cluster, which).await?;
    if target.borrowed.is_some() {
        return Err(ClusterError::Wrong(match &target.borrowed {
            Some(borrowed) if borrowed.is_whole() => left_changed(cluster, &target, which),
            _ => format!(
                "{} is borrowed by a run: wait for its end, or `{}` gives it back",
                target.title(),
                which.restore(&cluster.namespace)
            ),
        }));
    }
    if target.replicas == 0 {
        return Err(ClusterError::Wrong(format!("{} is scaled to 0: there is nothing to compare", target.title())));
    }
    if let Some(why) = obstacle(cluster, &target).await? {
        return Err(ClusterError::Wrong(why));
    }
    settled(cluster, &target).await?;
    let old = of_owner(&target);
    let [a, b] = [0, 1].map(|side| version(&target, varying.container.as_deref(), &varying.wanted[side]));
    let (a, b) = (a?, b?);
    if a == b {
        return Err(ClusterError::Wrong(format!("both values mean the same for {}", target.title())));
    }
    let undo = fields(&old, &[&a, &b]);
    keeps_no_secret(&target.title(), &undo)?;
    let both = [fields(&a, &[&old, &b]), fields(&b, &[&old, &a])];
    for wanted in &both {
        if !has(&send(cluster, &target, wanted, true).await?, wanted) {
            return Err(ClusterError::Wrong(format!("{} has no such field: its API server drops it", target.title())));
        }
    }
    let changed =
        Borrowed { original: target.replicas, kept: target.replicas, run: varying.run.clone(), nodes: Vec::new() };
    let (diff, gitops) = (shown(&target.title(), &a, &b), gitops(&target));
    Ok(Plan { target, changed, fields: both, undo, diff, gitops, varying })
}

/// Works with a target that is varied, and brings it back, whatever the work ends with.
///
/// # Errors
/// What went wrong before or after the work; if bringing back is what failed, the way to do it by hand.
pub async fn during<T>(cluster: &Cluster, plan: &Plan, work: impl Future<Output = T>) -> Result<T, ClusterError> {
    let patient = &cluster.patient();
    let Varying { which, holder, .. } = &plan.varying;
    let (touches, changes) = (Cell::new(false), Cell::new(false));
    let work = Box::pin(async {
        still_as_planned(patient, plan).await?;
        touches.set(true);
        begin(patient, plan).await?;
        changes.set(true);
        Ok(work.await)
    });
    let brings_back = async |_: &Result<T, ClusterError>| {
        if !touches.get() {
            return Ok(());
        }
        let undo = changes.get().then_some(&plan.undo);
        bring_back(patient, which, Some(&plan.changed), undo).await
    };
    holding(cluster, which, holder, work, brings_back).await
}

/// Looks at the target once more: before the Lease was ours, whoever held it may have changed it.
async fn still_as_planned(cluster: &Cluster, plan: &Plan) -> Result<(), ClusterError> {
    let now = Target::read(cluster, &plan.varying.which).await?;
    if now.borrowed.is_none() && now.object["spec"] == plan.target.object["spec"] {
        return Ok(());
    }
    Err(ClusterError::Wrong(format!(
        "{} is another one than when it was looked at, so what would be brought back is not what is there: nothing was touched; compare again",
        now.title()
    )))
}

/// Keeps what undoes every change, before the first one.
async fn begin(cluster: &Cluster, plan: &Plan) -> Result<(), ClusterError> {
    let (target, own) = (&plan.target, own_name(&plan.target.name));
    cluster.delete::<ConfigMap>(&own).await?;
    cluster.make(&config_map(&own, &target.name, &plan.changed.run, None)).await?;
    target.note(cluster, Some(&plan.changed)).await?;
    // Of an earlier run: an apply that does not name them would take them away.
    target.disown(cluster).await?;
    keep_undo(cluster, target, Some(&plan.undo)).await
}

/// Fields of a KubeAI Model that KubeAI reads itself; others are of its pods, which it replaces.
const NOT_OF_PODS: [&str; 10] = [
    "loadBalancing",
    "replicas",
    "minReplicas",
    "maxReplicas",
    "targetRequests",
    "scaleDownDelaySeconds",
    "autoscalingDisabled",
    "owner",
    "features",
    "adapters",
];

/// Gives the target the value of a side, and waits until it serves with that and with nothing else. Returns the object's version.
///
/// # Errors
/// Those of the server; that the target does not serve with the value.
pub async fn set(cluster: &Cluster, plan: &Plan, side: usize) -> Result<i64, ClusterError> {
    let cluster = &cluster.patient();
    let Varying { which, patience, wanted, .. } = &plan.varying;
    let before = Target::read(cluster, which).await?;
    let former: Vec<Value> = before.pods(cluster).await?.iter().map(|pod| pod["metadata"]["uid"].clone()).collect();
    let now = generation(&send(cluster, &before, &plan.fields[side], false).await?);
    let changes = now != generation(&before.object);
    let of_pods = |field: &Vec<String>| !field.first().is_some_and(|first| NOT_OF_PODS.contains(&first.as_str()));
    let replaces = changes && !matches!(&wanted[side], Wanted::Field(field, _) if !of_pods(field));
    if changes {
        let name = ["A", "B"][side];
        say(cluster, &before, Step::Varied, &format!("{} has the value of {name}", before.title())).await;
    }
    serving(cluster, which, *patience, if replaces { &former } else { &[] }).await.map(|()| now)
}

/// Waits until the target serves with the value that it has. Pods without a readiness probe are ready for a moment before they end.
///
/// # Errors
/// Those of the server; that the target does not serve with the value.
pub async fn serves(cluster: &Cluster, plan: &Plan) -> Result<(), ClusterError> {
    serving(&cluster.patient(), &plan.varying.which, plan.varying.patience, &[]).await
}

async fn serving(cluster: &Cluster, which: &Which, patience: Duration, former: &[Value]) -> Result<(), ClusterError> {
    match replaced(cluster, which, patience, former).await? {
        None => Ok(()),
        Some(why) => Err(ClusterError::Wrong(format!("{} does not serve with this value: {why}", which.title()))),
    }
}

/// Whether the target is still of the version that [`set`] gave it.
///
/// # Errors
/// Those of the server; that somebody changed it.
pub async fn stays(cluster: &Cluster, plan: &Plan, version: i64) -> Result<(), ClusterError> {
    let target = Target::read(&cluster.patient(), &plan.varying.which).await?;
    if generation(&target.object) == version {
        return Ok(());
    }
    Err(ClusterError::Wrong(format!(
        "somebody changed {} while it was measured, so its windows are of more than one version: keep others away from it and compare again. The compared fields get their former values back: repeat an edit of them",
        target.title()
    )))
}

fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(0)
}

async fn send(cluster: &Cluster, target: &Target, fields: &Value, dry_run: bool) -> Result<Value, ClusterError> {
    // The fields are brought back at the end, whoever manages them.
    cluster.apply(&target.api(), target.kind.plural, &target.name, fields, Apply { force: true, dry_run }).await
}

/// Whether an object has all of these fields. A server drops those that a kind does not know without a word.
fn has(object: &Value, fields: &Value) -> bool {
    match fields {
        Value::Object(entries) => entries.iter().all(|(key, value)| has(&object[key], value)),
        Value::Array(items) if items.iter().all(|item| item["name"].is_string()) => items.iter().all(|item| {
            let there = object.as_array().and_then(|there| there.iter().find(|its| its["name"] == item["name"]));
            there.is_some_and(|there| has(there, item))
        }),
        _ => object == fields,
    }
}

/// The object with a value, as its owner would write it.
fn version(target: &Target, container: Option<&str>, wanted: &Wanted) -> Result<Value, ClusterError> {
    let mut object = of_owner(target);
    match wanted {
        Wanted::Flag(setting) => {
            let kinds: &[EngineKind] = match target.kind.name {
                "DynamoGraphDeployment" => &[
                    EngineKind::DynamoVllm,
                    EngineKind::DynamoSglang,
                    EngineKind::DynamoMocker,
                    EngineKind::DynamoTrtllm,
                ],
                _ => &[EngineKind::Vllm, EngineKind::Sglang],
            };
            let mut tried = kinds.iter().map(|kind| with_argument(*kind, target, container, setting.clone()));
            let first = tried.next().unwrap_or(Ok(object));
            return first.or_else(|why| tried.find_map(Result::ok).ok_or(why));
        }
        Wanted::Variable(name, value) => match environment(target, container, &mut object)? {
            Environment::Mapping(mapping) => match value {
                Some(value) => mapping[name] = value.as_str().into(),
                None if mapping[name].is_null() => {}
                None => return Err(cannot_be_left_out(target, name)),
            },
            Environment::List(list) => {
                let mut all = list.as_array().cloned().unwrap_or_default();
                let place = all.iter().position(|variable| variable["name"] == name.as_str());
                match (place, value) {
                    (None, None) => {}
                    (Some(_), None) => return Err(cannot_be_left_out(target, name)),
                    (Some(place), Some(_)) if all[place]["valueFrom"].is_object() => {
                        return Err(ClusterError::Wrong(format!(
                            "{} takes {name} from another object (valueFrom), and a value beside that is refused: give it a value of its own first",
                            target.title()
                        )));
                    }
                    (Some(place), Some(value)) => all[place]["value"] = value.as_str().into(),
                    (None, Some(value)) => all.push(json!({"name": name, "value": value})),
                }
                if !all.is_empty() {
                    *list = all.into();
                }
            }
        },
        Wanted::Field(path, value) => {
            if target.kind.name != "Model" {
                return Err(ClusterError::Wrong(format!(
                    "of {}, env.NAME and args.FLAG can be varied; other fields only of a KubeAI Model",
                    target.title()
                )));
            }
            let mut place = &mut object["spec"];
            for key in path {
                if !(place.is_object() || place.is_null()) {
                    return Err(ClusterError::Wrong(format!("{} has no field {}", target.title(), path.join("."))));
                }
                place = &mut place[key.as_str()];
            }
            *place = value.clone();
        }
    }
    Ok(object)
}

fn cannot_be_left_out(target: &Target, name: &str) -> ClusterError {
    ClusterError::Wrong(format!(
        "{} sets {name}, and a comparison does not take away what others set: give both sides a value",
        target.title()
    ))
}

/// Where the variables of a container stand.
enum Environment<'o> {
    List(&'o mut Value),
    Mapping(&'o mut Value),
}

fn environment<'o>(
    target: &Target,
    container: Option<&str>,
    object: &'o mut Value,
) -> Result<Environment<'o>, ClusterError> {
    let part = target.part.as_deref().unwrap_or_default();
    let template = match target.kind.name {
        "Model" => return Ok(Environment::Mapping(&mut object["spec"]["env"])),
        "DynamoGraphDeployment" if object["spec"]["services"].is_object() => {
            return Ok(Environment::List(&mut object["spec"]["services"][part]["envs"]));
        }
        "DynamoGraphDeployment" => {
            let all = object["spec"]["components"].as_array_mut();
            let component = all.and_then(|all| all.iter_mut().find(|component| component["name"] == part));
            let component =
                component.ok_or_else(|| ClusterError::Wrong(format!("{} has no component {part}", target.title())))?;
            let template = &mut component["podTemplate"];
            // The container that the operator adds to.
            let containers = &mut template["spec"]["containers"];
            if containers.as_array().is_none_or(Vec::is_empty) {
                *containers = json!([{"name": "main"}]);
            }
            template
        }
        "LeaderWorkerSet" => {
            return Err(ClusterError::Wrong(format!("{} cannot be varied yet", target.title())));
        }
        _ => &mut object["spec"]["template"],
    };
    let main = template["spec"]["containers"].as_array().into_iter().flatten().any(|c| c["name"] == "main");
    let named = container.or_else(|| (target.part.is_some() && main).then_some("main"));
    let engine = engine(target, template, named)?;
    let all = template["spec"]["containers"].as_array_mut();
    let found = all.and_then(|all| all.iter_mut().find(|container| container["name"] == engine["name"]));
    let found = found.ok_or_else(|| ClusterError::Wrong(format!("{} has no such container", target.title())))?;
    Ok(Environment::List(&mut found["env"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::kinds::KINDS;

    fn of(kind: &str, object: Value, part: Option<&str>, wanted: &Wanted) -> Result<[Value; 2], String> {
        let kind = KINDS.into_iter().find(|known| known.name == kind).unwrap();
        let target = Target::of(kind, object, part).unwrap();
        let old = of_owner(&target);
        let new = version(&target, None, wanted).map_err(|e| e.to_string())?;
        Ok([fields(&new, &[&old])["spec"].clone(), fields(&old, &[&new])["spec"].clone()])
    }

    fn variable(name: &str, value: &str) -> Wanted {
        Wanted::Variable(name.to_owned(), Some(value.to_owned()))
    }

    #[test]
    fn a_variable_stands_where_its_kind_has_it() {
        let mode = variable("DYN_ROUTER_MODE", "kv");
        let main = json!({"name": "main", "image": "i", "env": [{"name": "A", "value": "1"}]});
        let beta = json!({
            "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": "graph"},
            "spec": {"components": [
                {"name": "Frontend", "type": "frontend", "podTemplate": {"spec": {"containers": [{"name": "sidecar"}, main]}}},
                {"name": "Worker", "type": "worker"},
            ]},
        });
        let components = |env: Value| json!({"components": [{"name": "Frontend", "podTemplate": {"spec": {"containers": [{"name": "main", "env": env}]}}}]});
        let [new, undo] = of("DynamoGraphDeployment", beta, Some("Frontend"), &mode).unwrap();
        assert_eq!(new, components(json!([{"name": "DYN_ROUTER_MODE", "value": "kv"}])));
        assert_eq!(undo, Value::Null, "what was not there is taken away by not being named");
        let there = json!([{"name": "A", "value": "1"}, {"name": "DYN_ROUTER_MODE", "value": "round_robin"}]);
        let alpha = json!({
            "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "metadata": {"name": "graph"},
            "spec": {"services": {"Frontend": {"componentType": "frontend", "envs": there}, "W": {}}},
        });
        let [new, undo] = of("DynamoGraphDeployment", alpha, Some("Frontend"), &mode).unwrap();
        let whole = |mode: &str| json!({"services": {"Frontend": {"envs": [{"name": "A", "value": "1"}, {"name": "DYN_ROUTER_MODE", "value": mode}]}}});
        assert_eq!([new, undo], [whole("kv"), whole("round_robin")], "this list is replaced as one");
        let without = json!({
            "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "metadata": {"name": "graph"},
            "spec": {"services": {"Frontend": {"envs": [{"name": "A", "value": "1"}]}, "W": {}}},
        });
        let [_, undo] = of("DynamoGraphDeployment", without, Some("Frontend"), &mode).unwrap();
        assert_eq!(undo, json!({"services": {"Frontend": {"envs": [{"name": "A", "value": "1"}]}}}));
        let model = |spec: Value| json!({"apiVersion": "kubeai.org/v1", "kind": "Model", "metadata": {"name": "m"}, "spec": spec});
        let [new, undo] = of("Model", model(json!({"env": {"A": "1"}})), None, &variable("A", "2")).unwrap();
        assert_eq!([new, undo], [json!({"env": {"A": "2"}}), json!({"env": {"A": "1"}})]);
        let field =
            |path: &[&str]| Wanted::Field(path.iter().map(|key| (*key).to_owned()).collect(), "PrefixHash".into());
        let [new, undo] =
            of("Model", model(json!({"replicas": 2})), None, &field(&["loadBalancing", "strategy"])).unwrap();
        assert_eq!([new, undo], [json!({"loadBalancing": {"strategy": "PrefixHash"}}), Value::Null]);
    }

    #[test]
    fn what_others_set_is_not_taken_away() {
        let env = json!([{"name": "A", "value": "1"}, {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        let chat = || {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat"},
                "spec": {"template": {"spec": {"containers": [{"name": "engine", "command": ["vllm", "serve", "m"], "args": [], "env": env}]}}},
            })
        };
        let gone = |name: &str| Wanted::Variable(name.to_owned(), None);
        assert!(of("Deployment", chat(), None, &gone("A")).unwrap_err().contains("give both sides a value"));
        assert_eq!(of("Deployment", chat(), None, &gone("B")).unwrap(), [Value::Null, Value::Null]);
        assert!(of("Deployment", chat(), None, &variable("TOKEN", "x")).unwrap_err().contains("(valueFrom)"));
        let field = Wanted::Field(vec!["replicas".to_owned()], 3.into());
        assert!(of("Deployment", chat(), None, &field).unwrap_err().contains("other fields only of a KubeAI Model"));
        let seqs = Wanted::Flag(Setting { name: "max-num-seqs".to_owned(), value: crate::space::Value::Int(8) });
        let [new, _] = of("Deployment", chat(), None, &seqs).unwrap();
        assert_eq!(new["template"]["spec"]["containers"], json!([{"name": "engine", "args": ["--max-num-seqs", "8"]}]));
    }
}
