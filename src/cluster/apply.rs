//! The winning arguments in the live object: what server-side apply is given, what undoes it, and what a person reads of it.

use serde_json::{Value, json};

use super::api::ClusterError;
use super::target::Target;
use crate::digest::sha256;
use crate::export::contradictions::contradictions;
use crate::export::flags::{Flags, Setting};
use crate::export::forms::{self, diff};
use crate::export::render::yaml;
use crate::export::source::Source;
use crate::export::winner::{NoWinner, annotations, settings, winner};
use crate::export::write::{IntendedFlags, Visit, export};
use crate::export::yaml::meaning;
use crate::problems::Problems;
use crate::report::{Outcome, pretty_json};
use crate::rig::foreign;
use crate::settings::{EngineKind, Plan, redact_variable, redact_words};
use crate::space::{Parameter, Space};

/// What of an object's metadata is its owner's; the rest is the server's.
const OF_OWNER: [&str; 4] = ["name", "namespace", "labels", "annotations"];
/// The annotation in which `kubectl apply` keeps the whole object a second time.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The fields that change, with what identifies them: what server-side apply takes.
    pub fields: Value,
    /// The same fields as they were.
    pub undo: Value,
    /// The change as a diff of the object, without its secrets.
    pub diff: String,
    /// What a person should know, one warning after another.
    pub warnings: String,
}

/// The change that gives a target the best arguments of an outcome; `None` if it has them already. The outcome comes out of a ConfigMap or of
/// a pod's last words, which others may write: its point must be one of the space.
///
/// # Errors
/// That there is no certified point, that it is none of the space, or why the object cannot be changed.
pub fn change(
    target: &Target,
    container: Option<&str>,
    outcome: &Outcome,
    space: &Space,
) -> Result<Option<Change>, ClusterError> {
    let best = winner(outcome, false).map_err(|why| match why {
        NoWinner::NotCertified(because) => {
            ClusterError::Wrong(format!("only what was certified is applied, and the best point was not: {because}"))
        }
        nothing @ NoWinner::Nothing(_) => ClusterError::Wrong(nothing.to_string()),
    })?;
    if let Some(why) = foreign(&best.parameters, space) {
        return Err(ClusterError::Wrong(format!("the outcome is none of the space file: {why}")));
    }
    let said = annotations(outcome, best, &format!("sha256:{}", sha256(pretty_json(outcome).as_bytes())));
    written(outcome.engine, target, container, (settings(best), said), &|document, engine| {
        contradictions(outcome, document, engine)
    })
}

/// A change like the one to come, for the server to judge before anything is measured: each parameter with a value that it may get.
pub fn likely_change(target: &Target, container: Option<&str>, plan: &Plan) -> Result<Option<Change>, ClusterError> {
    let all = |value: fn(&[crate::space::Value]) -> Option<&crate::space::Value>| {
        let setting = |parameter: &Parameter| {
            Some(Setting { name: parameter.name.clone(), value: value(&parameter.values)?.clone() })
        };
        let settings = plan.space.parameters.iter().filter_map(setting).collect();
        written(plan.engine.kind, target, container, (settings, Vec::new()), &|_, _| Vec::new())
    };
    // One of both differs from what is there.
    match all(<[_]>::last)? {
        None => all(<[_]>::first),
        change => Ok(change),
    }
}

/// An object as it may be said: without values of variables and arguments that are named like secrets.
pub fn redacted(object: &Value) -> Value {
    match object {
        Value::Array(items) => {
            let words: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            words.map_or_else(|| items.iter().map(redacted).collect(), |words| redact_words(&words).into())
        }
        Value::Object(entries) => {
            let variable = entries.get("name").and_then(Value::as_str);
            let redact = |(key, value): (&String, &Value)| {
                // Whose value is another object's name is no secret: `secretName`, `secretKeyRef`.
                let mapped = key.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
                let named = variable.filter(|_| key == "value").or(mapped.then_some(key.as_str()));
                let value = match (named, value) {
                    (Some(name), Value::String(text)) => redact_variable(name, text).into(),
                    (_, value) => redacted(value),
                };
                (key.clone(), value)
            };
            Value::Object(entries.iter().map(redact).collect())
        }
        // A whole object may stand in an annotation.
        Value::String(text) => match serde_json::from_str::<Value>(text).ok().filter(Value::is_object) {
            Some(object) if redacted(&object) != object => redacted(&object).to_string().into(),
            Some(_) => text.as_str().into(),
            None => redact_variable("", text).into(),
        },
        _ => object.clone(),
    }
}

/// The object without what the server put into it.
pub(super) fn of_owner(target: &Target) -> Value {
    let meta = &target.object["metadata"];
    let mut kept = json!({});
    for key in OF_OWNER {
        if !meta[key].is_null() {
            kept[key] = meta[key].clone();
        }
    }
    if let Some(annotations) = kept["annotations"].as_object_mut() {
        annotations.remove(LAST_APPLIED);
    }
    let object = &target.object;
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": kept, "spec": object["spec"]})
}

/// What is set among an engine's arguments, and the annotations that say where it comes from.
type Wanted = (Vec<Setting>, Vec<(String, String)>);

fn written(
    engine: EngineKind,
    target: &Target,
    container: Option<&str>,
    wanted: Wanted,
    visit: Visit<'_>,
) -> Result<Option<Change>, ClusterError> {
    let (old, new, warnings) = edited(engine, target, container, wanted, visit)?;
    let name = target.title();
    if old == new {
        return Ok(None);
    }
    let undo = fields(&old, &[&new]);
    keeps_no_secret(&name, &undo)?;
    Ok(Some(Change { fields: fields(&new, &[&old]), undo, diff: shown(&name, &old, &new), warnings }))
}

/// An object as its owner wrote it, the same with other arguments, and warnings.
fn edited(
    engine: EngineKind,
    target: &Target,
    container: Option<&str>,
    (settings, annotations): Wanted,
    visit: Visit<'_>,
) -> Result<(Value, Value, String), ClusterError> {
    let before = yaml(&of_owner(target), 0) + "\n";
    let flags = Flags::of(engine, settings.iter().map(|s| s.name.as_str()));
    let containers = target.part.iter().cloned().chain(container.map(str::to_owned)).collect();
    let wanted = IntendedFlags { settings, annotations, containers, path: None };
    let name = target.title();
    let done = export(&name, &before, &wanted, &flags, visit).map_err(|e| ClusterError::Wrong(e.render()))?;
    let warnings = if done.notes.is_empty() {
        String::new()
    } else {
        Problems::new(&name, &before, done.notes.clone()).render_as_warnings()
    };
    Ok((json_of(&before)?, json_of(&done.text)?, warnings))
}

/// An object with one argument changed, as its owner would write it.
pub(super) fn with_argument(
    engine: EngineKind,
    target: &Target,
    container: Option<&str>,
    setting: Setting,
) -> Result<Value, ClusterError> {
    edited(engine, target, container, (vec![setting], Vec::new()), &|_, _| Vec::new()).map(|(_, new, _)| new)
}

/// Two versions of an object as a diff without secrets.
pub(super) fn shown(name: &str, old: &Value, new: &Value) -> String {
    let said = |object: &Value| yaml(&redacted(object), 0) + "\n";
    diff(name, &said(old), &said(new))
}

/// Refuses fields that would bring a secret into a ConfigMap.
///
/// # Errors
/// That there is one, and what to do.
pub(super) fn keeps_no_secret(name: &str, undo: &Value) -> Result<(), ClusterError> {
    if !holds_secret(undo, &redacted(undo)) {
        return Ok(());
    }
    Err(ClusterError::Wrong(format!(
        "a secret stands among the arguments or variables of {name}, and undoing a change would keep it in a ConfigMap. Put it into a Secret, \
give the container a variable from it, and write $(VARIABLE) among the arguments"
    )))
}

/// Whether an object holds a secret, by what is shown of it. A variable that the cluster puts in is none.
fn holds_secret(object: &Value, shown: &Value) -> bool {
    match (object, shown) {
        (Value::Array(items), Value::Array(shown)) => items.iter().zip(shown).any(|(a, b)| holds_secret(a, b)),
        (Value::Object(entries), shown) => entries.iter().any(|(key, value)| holds_secret(value, &shown[key])),
        (Value::String(text), Value::String(shown)) => text != shown && !text.contains("$("),
        _ => false,
    }
}

fn json_of(text: &str) -> Result<Value, ClusterError> {
    let source = Source::new(text).map_err(|wrong| ClusterError::Wrong(wrong.says))?;
    let whole = source.documents.first().and_then(meaning);
    Ok(whole.as_ref().map(forms::json).unwrap_or_default())
}

/// The fields of an object that differ in other versions of it, with what identifies them: what server-side apply takes. What is not there is
/// not named, since server-side apply takes away what its manager named before and nobody else manages.
pub(super) fn fields(whole: &Value, others: &[&Value]) -> Value {
    let mut fields = differing(whole, others).unwrap_or_else(|| json!({}));
    for key in ["apiVersion", "kind"] {
        fields[key] = whole[key].clone();
    }
    fields["metadata"]["name"] = whole["metadata"]["name"].clone();
    fields
}

/// What of a value differs in others. Items of a list are found by their names; a list whose items have none is replaced as one.
fn differing(whole: &Value, others: &[&Value]) -> Option<Value> {
    if others.iter().all(|other| *other == whole) {
        return None;
    }
    match whole {
        Value::Object(entries) => {
            let below = entries.iter().filter(|(_, value)| !value.is_null()).filter_map(|(key, value)| {
                let beside: Vec<&Value> = others.iter().map(|other| &other[key]).collect();
                // This list of a DynamoGraphDeployment has names, and is replaced as one all the same.
                let is_one = key == "envs" && beside.iter().any(|other| *other != value);
                let differs = if is_one { Some(value.clone()) } else { differing(value, &beside) };
                Some((key.clone(), differs?))
            });
            let below: serde_json::Map<String, Value> = below.collect();
            (!below.is_empty()).then(|| below.into())
        }
        Value::Array(items) if have_names(whole) && others.iter().all(|other| have_names(other)) => {
            let below = items.iter().filter_map(|item| {
                let its = |other: &&'_ Value| other.as_array()?.iter().find(|its| its["name"] == item["name"]).cloned();
                let beside: Vec<Value> = others.iter().map(|other| its(other).unwrap_or_default()).collect();
                let mut differs = differing(item, &beside.iter().collect::<Vec<_>>())?;
                differs["name"] = item["name"].clone();
                Some(differs)
            });
            let below: Vec<Value> = below.collect();
            (!below.is_empty()).then(|| below.into())
        }
        _ => Some(whole.clone()),
    }
}

/// Whether a list, if it is there, is one of items with names.
fn have_names(list: &Value) -> bool {
    list.as_array()
        .map_or(list.is_null(), |items| !items.is_empty() && items.iter().all(|item| item["name"].is_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::kinds::KINDS;
    use crate::space::Value as Number;

    fn change_of(kind: &str, object: Value, part: Option<&str>) -> Change {
        let kind = KINDS.into_iter().find(|known| known.name == kind).unwrap();
        let target = Target::of(kind, object, part).unwrap();
        let settings = vec![Setting { name: "max-num-seqs".into(), value: Number::Int(256) }];
        let said = vec![("autotune/certified-rate".to_owned(), "2 req/s".to_owned())];
        written(EngineKind::Vllm, &target, None, (settings, said), &|_, _| Vec::new()).unwrap().unwrap()
    }

    #[test]
    fn fields_are_those_that_change_and_what_identifies_them() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "chat", "uid": "u", "resourceVersion": "7", "managedFields": [{"manager": "kubectl"}]},
            "spec": {"replicas": 0, "template": {"metadata": {"labels": {"app": "chat"}}, "spec": {"containers": [
                {"name": "proxy", "image": "p"},
                {"name": "engine", "image": "vllm:1", "command": ["vllm", "serve", "m"], "args": ["--max-num-seqs", "64", "--port=8000"]},
            ]}}},
            "status": {"replicas": 0},
        });
        let change = change_of("Deployment", object, None);
        let args = |seqs: &str| json!([{"name": "engine", "args": ["--max-num-seqs", seqs, "--port=8000"]}]);
        let wanted = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "chat", "annotations": {"autotune/certified-rate": "2 req/s"}},
            "spec": {"template": {"spec": {"containers": args("256")}}},
        });
        assert_eq!(change.fields, wanted);
        let undo = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat"},
            "spec": {"template": {"spec": {"containers": args("64")}}},
        });
        assert_eq!(change.undo, undo, "the annotation goes, because nobody else manages it");
        assert!(change.diff.contains("+              - \"256\"") || change.diff.contains("256"), "{}", change.diff);
    }

    #[test]
    fn an_outcome_with_other_parameters_or_values_than_the_space_changes_nothing() {
        let plan = crate::settings::parse("q.toml", include_str!("../../search-spaces/quickstart.toml")).unwrap();
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat"},
            "spec": {"template": {"spec": {"containers": [{"name": "engine", "command": ["vllm", "serve", "m"], "args": []}]}}},
        });
        let kind = KINDS.into_iter().find(|known| known.name == "Deployment").unwrap();
        let target = Target::of(kind, object, None).unwrap();
        let changed = |parameters: Value| {
            let best = json!({"parameters": parameters, "arguments": [], "estimated_rate": 2.0, "certified_rate": 2.0, "confidence": 0.9, "binding": null});
            let outcome = json!({
                "version": 1, "status": "certified", "because": "", "simulated": false, "model": null, "engine_version": null, "gpus": [],
                "space_file": "q.toml", "seed": 1, "baseline": null, "best": best, "gain": null, "left_out": [],
                "cost": {"launches": 1, "probes": 1, "engine_seconds": 1.0},
            });
            let outcome: Outcome = serde_json::from_value(outcome).unwrap();
            change(&target, None, &outcome, &plan.space).map_err(|e| e.to_string())
        };
        assert!(changed(json!({"max-num-seqs": 16})).unwrap().is_some());
        for forged in [
            json!({"chat-template": "/etc/shadow"}),
            json!({"max-num-seqs": "16 --allow"}),
            json!({"max-num-seqs": 0}),
            json!({"max-num-seqs": 64}),
        ] {
            assert!(changed(forged).unwrap_err().contains("none of the space file"));
        }
    }

    #[test]
    fn arguments_with_a_secret_are_not_kept_in_a_config_map() {
        let change = |key: &str| {
            let containers = json!([{"name": "engine", "command": ["vllm", "serve", "m"], "args": ["--api-key", key]}]);
            let object = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat"},
                "spec": {"template": {"spec": {"containers": containers}}},
            });
            let kind = KINDS.into_iter().find(|known| known.name == "Deployment").unwrap();
            let settings = vec![Setting { name: "max-num-seqs".into(), value: Number::Int(256) }];
            written(
                EngineKind::Vllm,
                &Target::of(kind, object, None).unwrap(),
                None,
                (settings, Vec::new()),
                &|_, _| Vec::new(),
            )
        };
        let says = change("hush-hush").unwrap_err().to_string();
        assert!(says.contains("Secret") && !says.contains("hush"), "{says}");
        assert!(change("$(API_KEY)").unwrap().is_some());
    }

    #[test]
    fn secrets_of_an_object_are_not_said() {
        let object = json!({"containers": [{
            "command": ["sh", "-c", "vllm serve m --api-key hush-1"],
            "args": ["--hf-token=hush-2", "--max-num-batched-tokens", "2048"],
            "env": [{"name": "HF_TOKEN", "value": "hush-3"}, {"name": "HOME", "value": "/root"}],
        }], "env": {"API_KEY": "hush-4", "SHELL": "sh"}, "volumes": [{"secret": {"secretName": "open"}}]});
        let said = redacted(&object).to_string();
        assert!(!said.contains("hush"), "{said}");
        for innocent in ["2048", "/root", "open", "serve"] {
            assert!(said.contains(innocent), "{innocent}: {said}");
        }
    }

    #[test]
    fn components_and_lists_of_words_are_named_as_their_kinds_merge_them() {
        let graph = json!({
            "apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": "graph"},
            "spec": {"components": [
                {"name": "Frontend", "type": "frontend"},
                {"name": "Worker", "type": "worker", "podTemplate": {"spec": {"containers": [
                    {"name": "main", "command": ["python3", "-m", "dynamo.vllm"], "args": ["--model", "m"]},
                ]}}},
            ]},
        });
        let change = change_of("DynamoGraphDeployment", graph, None);
        let wanted = json!([{"name": "Worker", "podTemplate": {"spec": {"containers": [
            {"name": "main", "args": ["--model", "m", "--max-num-seqs", "256"]},
        ]}}}]);
        assert_eq!(change.fields["spec"]["components"], wanted);
        let model = json!({
            "apiVersion": "kubeai.org/v1", "kind": "Model", "metadata": {"name": "llama"},
            "spec": {"engine": "VLLM", "url": "hf://m", "args": ["--max-num-seqs=64"], "autoscalingDisabled": true},
        });
        assert_eq!(change_of("Model", model, None).fields["spec"], json!({"args": ["--max-num-seqs=256"]}));
    }
}
