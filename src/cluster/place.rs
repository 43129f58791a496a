//! Where a worker runs: on a node of the target's pods, or on one with the same GPUs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::api::{Cluster, ClusterError};
use super::indexed::workers;
use super::target::Borrowed;

/// By which NVIDIA's device plugin says which GPUs a node has.
const PRODUCT: &str = "nvidia.com/gpu.product";

pub fn nodes(pods: &[Value]) -> Vec<String> {
    let nodes: BTreeSet<&str> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    nodes.into_iter().map(str::to_owned).collect()
}

/// Keeps the workers where the target's pods were, or where the same GPUs are.
pub async fn place(cluster: &Cluster, borrowed: &Borrowed, job: &mut Value) -> Result<(), ClusterError> {
    let mut products = BTreeSet::new();
    for node in &borrowed.nodes {
        let node = cluster.node(node).await?.unwrap_or_default();
        products.insert(node["metadata"]["labels"][PRODUCT].as_str().map(str::to_owned));
    }
    // One that is not known may be any.
    let products: Vec<String> = products.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default();
    let gives = borrowed.original.saturating_sub(borrowed.kept);
    // More workers than the target gives GPUs run elsewhere too.
    let nodes = if workers(job) > gives { &[] } else { &borrowed.nodes[..] };
    let with = products.join(" or ");
    match (nodes, &products[..]) {
        ([], []) => cluster.tell(
            "a worker may run on another node than the target did, with other GPUs: see nodes and gpus in outcome.json",
        ),
        ([], _) => cluster.tell(&format!("the workers run on nodes with {with}, as the target does")),
        (nodes, products) => {
            let or = if products.is_empty() { String::new() } else { format!(", or on another node with {with}") };
            cluster.tell(&format!("the worker runs where the target does: on {}{or}", nodes.join(" or ")));
        }
    }
    stay_on(job, nodes, &products);
    match &products[..] {
        [product] => {
            let env = &mut job["spec"]["template"]["spec"]["containers"][0]["env"];
            if let Some(env) = env.as_array_mut() {
                env.push(json!({"name": "AUTOTUNE_GPU_PRODUCT", "value": product}));
            }
        }
        [] => {}
        _ => cluster.tell("the target's pods run on different GPUs: see nodes and gpus in outcome.json"),
    }
    Ok(())
}

/// Keeps a worker on these nodes, or on those with one of these GPUs; on any where there are neither.
fn stay_on(job: &mut Value, nodes: &[String], products: &[String]) {
    let named = |node: &String| ("matchFields", json!({"key": "metadata.name", "operator": "In", "values": [node]}));
    let mut places: Vec<(&str, Value)> = nodes.iter().map(named).collect();
    if !products.is_empty() {
        places.push(("matchExpressions", json!({"key": PRODUCT, "operator": "In", "values": products})));
    }
    if places.is_empty() {
        return;
    }
    let affinity = &mut job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
    let terms = &mut affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    // One of the terms must hold, with all that it asks for. A term may name one node alone.
    let asked = match terms.take() {
        Value::Array(terms) if !terms.is_empty() => terms,
        _ => vec![json!({})],
    };
    let at = |term: &Value, (key, place): &(&str, Value)| {
        let mut term = term.clone();
        let mut all = term[key].as_array().cloned().unwrap_or_default();
        all.push(place.clone());
        term[key] = all.into();
        term
    };
    *terms = asked.iter().flat_map(|term| places.iter().map(move |place| at(term, place))).collect();
    // The node that has the images, and the weights in its page cache.
    let preferred = nodes.iter().filter(|_| !products.is_empty()).map(named);
    let preferred = preferred.map(|(key, place)| json!({"weight": 100, "preference": {key: [place]}}));
    let mut before =
        affinity["preferredDuringSchedulingIgnoredDuringExecution"].as_array().cloned().unwrap_or_default();
    before.extend(preferred);
    if !before.is_empty() {
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = before.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A requirement on fields takes one value.
    #[test]
    fn a_worker_may_run_on_each_of_the_nodes_with_all_that_was_asked_for() {
        let placed = |asked: Value, products: &[String]| {
            let place = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": asked}});
            let mut job = json!({"spec": {"template": {"spec": {"affinity": {"nodeAffinity": place}}}}});
            stay_on(&mut job, &["a", "b"].map(str::to_owned), products);
            job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"].take()
        };
        let terms =
            |affinity: &Value| affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"].clone();
        let on = |node: &str| json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
        let anywhere = placed(Value::Null, &[]);
        assert_eq!(terms(&anywhere), json!([{"matchFields": on("a")}, {"matchFields": on("b")}]));
        assert!(anywhere["preferredDuringSchedulingIgnoredDuringExecution"].is_null(), "there is nothing else");
        let [x, y] = ["x", "y"].map(|key| json!([{"key": key, "operator": "Exists"}]));
        let both = terms(&placed(json!([{"matchExpressions": x}, {"matchExpressions": y}]), &[]));
        let each = |asked: &Value, node| json!({"matchExpressions": asked, "matchFields": on(node)});
        assert_eq!(both, json!([each(&x, "a"), each(&x, "b"), each(&y, "a"), each(&y, "b")]));
        let alike = placed(json!([{"matchExpressions": x}]), &["NVIDIA-H200".to_owned()]);
        let with = json!({"key": PRODUCT, "operator": "In", "values": ["NVIDIA-H200"]});
        assert_eq!(terms(&alike)[2], json!({"matchExpressions": [x[0], with]}));
        let preferred = json!([{"weight": 100, "preference": {"matchFields": on("a")}}, {"weight": 100, "preference": {"matchFields": on("b")}}]);
        assert_eq!(alike["preferredDuringSchedulingIgnoredDuringExecution"], preferred);
    }
}
