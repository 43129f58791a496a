//! DynamoGraphDeployment: one of its components is borrowed from, the others stay.

use serde_json::{Value, json};

use super::{Kind, Scaled, Scaling, is_owned, unobserved, wish};
use crate::cluster::api::Patch;
use crate::problems::join;

/// A DynamoGraphDeployment of either version. The labels are those of the operator (`internal/consts`). An adapter of scale, where a
/// component has one, is called `GRAPH-component` in lower case. It alone may change the scale.
pub const GRAPH: Kind = Kind {
    name: "DynamoGraphDeployment",
    flag: "dynamo-graph",
    group: "nvidia.com",
    versions: &["v1beta1", "v1alpha1"],
    plural: "dynamographdeployments",
    part,
    obstacle: |_| None,
    unlendable,
    replicas: |scaled| component(scaled.object, scaled.part)["replicas"].as_u64().unwrap_or(1),
    scaling,
    labels: |scaled| {
        Some(vec![
            ("nvidia.com/dynamo-graph-deployment-name".to_owned(), scaled.name.to_owned()),
            ("nvidia.com/dynamo-component".to_owned(), scaled.part.to_owned()),
        ])
    },
    owns: is_owned,
    template: |_, _| None,
    stuck: |_, _, _| None,
    unsettled: |scaled| {
        let rolls = scaled.object["status"]["rollingUpdate"]["phase"] == "InProgress";
        unobserved(scaled.object).or_else(|| rolls.then(|| "a rolling update is under way".to_owned()))
    },
    // A worker with them would register with the graph's router, and be sent traffic.
    is_of_service: |variable| ["DYN_", "ETCD_", "NATS_"].iter().any(|prefix| variable.starts_with(prefix)),
};

/// Components that run no engine.
const OTHERS: [&str; 3] = ["frontend", "planner", "epp"];

/// The components with their names: a list in v1beta1, a mapping in v1alpha1.
fn components(object: &Value) -> Vec<(&str, &Value)> {
    let list = object["spec"]["components"].as_array().into_iter().flatten();
    let listed = list.filter_map(|component| Some((component["name"].as_str()?, component)));
    let mapped = object["spec"]["services"].as_object().into_iter().flatten().map(|(name, c)| (name.as_str(), c));
    listed.chain(mapped).collect()
}

fn component<'o>(object: &'o Value, name: &str) -> &'o Value {
    components(object).into_iter().find(|(its, _)| *its == name).map_or(&Value::Null, |(_, component)| component)
}

fn kind(component: &Value) -> String {
    let told = component["type"].as_str().or_else(|| component["componentType"].as_str());
    told.unwrap_or_default().to_owned()
}

fn part(object: &Value, named: Option<&str>) -> Result<Option<String>, String> {
    let all = components(object);
    let engines: Vec<&str> = all.iter().filter(|(_, c)| !OTHERS.contains(&&*kind(c))).map(|(name, _)| *name).collect();
    match (named, &engines[..]) {
        (Some(named), _) if all.iter().any(|(name, _)| *name == named) => Ok(Some(named.to_owned())),
        (None, [only]) => Ok(Some((*only).to_owned())),
        (_, []) => Err("has no component that runs an engine".to_owned()),
        (named, several) => {
            let said = named.map_or(String::new(), |named| format!("no component is called {named}: "));
            let names = join(several.iter().map(|name| (*name).to_owned()), "and");
            Err(format!("{said}the engines are {names}: say which with --component"))
        }
    }
}

fn unlendable(scaled: &Scaled<'_>) -> Option<String> {
    let part = component(scaled.object, scaled.part);
    if OTHERS.contains(&&*kind(part)) {
        return Some("runs no engine: name one that does with --component".to_owned());
    }
    let nodes = part["multinode"]["nodeCount"].as_u64().unwrap_or(1);
    (nodes > 1).then(|| format!("runs {} over {nodes} nodes, and a worker is one pod", scaled.part))
}

/// Whether an adapter owns the scale of a component: set in v1beta1, enabled in v1alpha1.
fn has_adapter(component: &Value) -> bool {
    let adapter = &component["scalingAdapter"];
    adapter.is_object() && adapter["enabled"] != false
}

fn scaling(scaled: &Scaled<'_>, replicas: u64) -> Scaling {
    if has_adapter(component(scaled.object, scaled.part)) {
        let name = format!("{}-{}", scaled.name, scaled.part.to_lowercase());
        return Scaling {
            plural: "dynamographdeploymentscalingadapters",
            name,
            subresource: true,
            patch: wish(replicas),
        };
    }
    let list = scaled.object["spec"]["components"].as_array();
    let patch = match list.and_then(|list| list.iter().position(|c| c["name"] == scaled.part)) {
        // A merge would replace the list. Somebody may have changed its order: then the server refuses.
        Some(index) => Patch::Operations(json!([
            {"op": "test", "path": format!("/spec/components/{index}/name"), "value": scaled.part},
            {"op": "add", "path": format!("/spec/components/{index}/replicas"), "value": replicas},
        ])),
        None => Patch::Merge(json!({"spec": {"services": {scaled.part: {"replicas": replicas}}}})),
    };
    Scaling { plural: "dynamographdeployments", name: scaled.name.to_owned(), subresource: false, patch }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beta(more: Value) -> Value {
        json!({"spec": {"components": [
            {"name": "Frontend", "type": "frontend", "replicas": 1},
            {"name": "Worker", "type": "worker", "replicas": 2},
            more,
        ]}})
    }

    #[test]
    fn the_component_with_the_engine_is_found() {
        let planner = json!({"name": "Planner", "type": "planner"});
        assert_eq!(part(&beta(planner.clone()), None), Ok(Some("Worker".to_owned())));
        let two = beta(json!({"name": "Prefill", "type": "prefill"}));
        let says = part(&two, None).unwrap_err();
        assert!(says.contains("Worker and Prefill") && says.contains("--component"), "{says}");
        assert_eq!(part(&two, Some("Prefill")), Ok(Some("Prefill".to_owned())));
        assert!(part(&beta(planner.clone()), Some("Other")).unwrap_err().contains("no component is called Other"));
        let object = beta(planner);
        let lends = |part: &str| unlendable(&Scaled { name: "graph", part, object: &object });
        assert!(lends("Frontend").unwrap().contains("runs no engine") && lends("Worker").is_none());
        let alpha =
            json!({"spec": {"services": {"F": {"componentType": "frontend"}, "W": {"componentType": "worker"}}}});
        assert_eq!(part(&alpha, None), Ok(Some("W".to_owned())));
    }

    #[test]
    fn each_version_is_scaled_in_its_own_way() {
        let object = beta(Value::Null);
        let scaled = Scaled { name: "graph", part: "Worker", object: &object };
        assert_eq!((GRAPH.replicas)(&scaled), 2);
        let Scaling { patch: Patch::Operations(operations), .. } = scaling(&scaled, 0) else { panic!("operations") };
        assert_eq!(operations[1], json!({"op": "add", "path": "/spec/components/1/replicas", "value": 0}));
        let alpha = json!({"spec": {"services": {"Worker": {"componentType": "worker"}}}});
        let scaled = Scaled { name: "graph", part: "Worker", object: &alpha };
        assert_eq!((GRAPH.replicas)(&scaled), 1, "absent means one");
        let wanted = Patch::Merge(json!({"spec": {"services": {"Worker": {"replicas": 0}}}}));
        assert_eq!(scaling(&scaled, 0).patch, wanted);
        let adapted = json!({"spec": {"services": {"Worker": {"scalingAdapter": {"enabled": true}}}}});
        let scaled = Scaled { name: "graph", part: "Worker", object: &adapted };
        let Scaling { plural, name, subresource, .. } = scaling(&scaled, 0);
        assert_eq!((plural, &*name, subresource), ("dynamographdeploymentscalingadapters", "graph-worker", true));
    }
}
