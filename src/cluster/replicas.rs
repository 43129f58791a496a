//! How many requests each pod of a target has had: a Service, or a frontend, does not tell its replicas apart.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::Value;

use super::api::{Cluster, ClusterError};
use super::borrow::CORE;
use super::target::{Target, Which, has_ended};
use crate::endpoints::requests_answered;

/// By this label the operator of Dynamo tells the components of a graph apart: one is varied, and others have the engines.
const COMPONENT: &str = "nvidia.com/dynamo-component";

/// What each pod counts, by its name, as its page of metrics has it behind the API server.
pub async fn requests_by_pod(cluster: &Cluster, which: &Which) -> Result<BTreeMap<String, f64>, String> {
    let told = told(cluster, which).await;
    told.map_err(|why| format!("the requests of each replica are not seen: {why}"))
}

async fn told(cluster: &Cluster, which: &Which) -> Result<BTreeMap<String, f64>, String> {
    let said = |error: ClusterError| error.to_string();
    let target = Target::read(cluster, which).await.map_err(said)?;
    let labels = target.labels().map_err(said)?;
    let labels = labels.iter().filter(|(key, _)| key != COMPONENT).map(|(key, value)| format!("{key}={value}"));
    let pods = cluster.list(CORE, "pods", &labels.collect::<Vec<_>>().join(",")).await.map_err(said)?;
    let pods: Vec<&Value> = pods.iter().filter(|pod| !has_ended(pod)).collect();
    let (mut told, mut silent) = (BTreeMap::new(), None);
    for (pod, answer) in pods.iter().zip(join_all(pods.iter().map(|pod| of_pod(cluster, pod))).await) {
        match answer {
            Ok(requests) => {
                told.insert(pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), requests);
            }
            Err(ClusterError::Refused { code: 403, .. }) => {
                return Err("the right to get pods/proxy is missing".to_owned());
            }
            Err(why) => silent = Some(why.to_string()),
        }
    }
    if told.is_empty() { Err(silent.unwrap_or_else(|| "it has no pods".to_owned())) } else { Ok(told) }
}

/// The requests that a pod counts at one of its ports.
async fn of_pod(cluster: &Cluster, pod: &Value) -> Result<f64, ClusterError> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let ports = containers.filter_map(|container| container["ports"].as_array()).flatten();
    let mut why = ClusterError::Wrong(format!("pod {name} names no port with a page of metrics that counts requests"));
    for port in ports.filter_map(|port| port["containerPort"].as_u64()) {
        match cluster.metrics(name, port).await {
            Ok(page) => {
                if let Some(requests) = requests_answered(&page) {
                    return Ok(requests);
                }
            }
            Err(error) => why = error,
        }
    }
    Err(why)
}
