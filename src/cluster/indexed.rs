//! Several workers as one indexed Job: the pod of index 0 leads, and the others, which it finds by their names, lend it their engines.

use std::time::Duration;

use serde_json::{Value, json};

use super::api::{Cluster, ClusterError};
use super::borrow::{CORE, LOOK};
use super::target::RUN;
use crate::clock;

/// Where a pod lends its engine.
const PORT: u16 = 7787;
/// The label by which Kubernetes says which pod of an indexed Job one is; its containers have the same in `JOB_COMPLETION_INDEX`.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The Service of an earlier worker goes with its Job, which takes the cluster so long at most.
const GOES: Duration = Duration::from_secs(60);

/// Makes a Job of one worker one of so many.
pub fn spread(job: &mut Value, workers: u8) {
    let name = job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let urls: Vec<String> = (0..workers).map(|index| format!("http://{name}-{index}.{name}:{PORT}")).collect();
    let spec = &mut job["spec"];
    spec["completionMode"] = "Indexed".into();
    spec["completions"] = workers.into();
    spec["parallelism"] = workers.into();
    // The leader's answer is that of all: Kubernetes ends the others then.
    spec["successPolicy"] = json!({"rules": [{"succeededIndexes": "0"}]});
    spec["backoffLimit"] = (spec["backoffLimit"].as_u64().unwrap_or(0) * u64::from(workers)).into();
    let pod = &mut spec["template"]["spec"];
    // Their names are names in the DNS of the cluster.
    pod["subdomain"] = name.into();
    if pod["dnsPolicy"] != "None" {
        let of_cluster = if pod["hostNetwork"] == true { "ClusterFirstWithHostNet" } else { "ClusterFirst" };
        pod["dnsPolicy"] = of_cluster.into();
    }
    let container = &mut pod["containers"][0];
    if let Some(args) = container["args"].as_array_mut() {
        let words = ["--workers", &urls.join(","), "--rank", "$(JOB_COMPLETION_INDEX)"];
        args.extend(words.map(Value::from));
    }
    // Said for pods on their hosts' network, of which no two can be on one node.
    container["ports"] = json!([{"name": "lend", "containerPort": PORT}]);
}

/// How many workers a Job has.
pub fn workers(job: &Value) -> u64 {
    let spec = &job["spec"];
    spec["completions"].as_u64().filter(|_| spec["completionMode"] == "Indexed").unwrap_or(1)
}

/// Which of the workers a pod is; the only one is the first.
pub fn index(pod: &Value) -> u64 {
    pod["metadata"]["labels"][INDEX].as_str().and_then(|index| index.parse().ok()).unwrap_or(0)
}

/// The Service without an address of its own that gives the pods of a Job their names; none for a single worker, whom nobody looks for.
pub fn service(job: &Value) -> Option<Value> {
    if workers(job) == 1 {
        return None;
    }
    let meta = &job["metadata"];
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": meta["name"], "labels": meta["labels"], "annotations": {RUN: meta["annotations"][RUN]}},
        "spec": {
            "clusterIP": "None",
            // Ours have no readiness, and their names are needed from the beginning.
            "publishNotReadyAddresses": true,
            // To ours the server has added the Job's identity, so that no pod of an earlier worker is among them.
            "selector": job["spec"]["template"]["metadata"]["labels"],
            "ports": [{"name": "lend", "port": PORT}],
        },
    });
    if meta["uid"].is_string() {
        // Whoever deletes the Job deletes it too.
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]});
        service["metadata"]["ownerReferences"] = json!([owner]);
    }
    Some(service)
}

/// Makes the Service of a Job that stands in the cluster, unless it needs none or has it.
///
/// # Errors
/// Those of the server; a Service of that name that is somebody else's.
pub async fn introduce(cluster: &Cluster, job: &Value) -> Result<(), ClusterError> {
    let Some(service) = service(job) else { return Ok(()) };
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    let begun = clock::now();
    loop {
        match cluster.find(CORE, "services", name).await? {
            None => match cluster.create(CORE, "services", &service).await {
                Err(error) if error.is_conflict() => {}
                made => return made.map(drop),
            },
            Some(there) => {
                let owner = &there["metadata"]["ownerReferences"][0];
                if owner["uid"] == job["metadata"]["uid"] {
                    return Ok(());
                }
                if owner["kind"] != "Job" || begun.elapsed() > GOES {
                    return Err(ClusterError::Wrong(format!(
                        "there is a Service {name} that is not ours, and several workers need that name: delete it, or use one worker"
                    )));
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_one_worker_has_no_service_and_its_pod_is_the_first() {
        let pod = |labels: Value| json!({"metadata": {"labels": labels}});
        assert_eq!(service(&json!({"metadata": {"name": "autotune-chat"}, "spec": {}})), None);
        assert_eq!(index(&pod(json!({}))), 0);
        assert_eq!(index(&pod(json!({INDEX: "3"}))), 3);
    }

    #[test]
    fn the_service_selects_the_pods_of_this_job_and_belongs_to_it() {
        let labels = json!({"autotune/target": "chat", "batch.kubernetes.io/controller-uid": "u"});
        let job = json!({
            "metadata": {"name": "autotune-chat", "uid": "u"},
            "spec": {"completionMode": "Indexed", "completions": 2, "template": {"metadata": {"labels": labels}}},
        });
        let service = service(&job).unwrap();
        assert_eq!(service["spec"]["selector"], labels);
        assert_eq!(service["metadata"]["ownerReferences"][0]["uid"], "u");
    }

    /// A pod on its host's network has the host's names unless it asks for the cluster's.
    #[test]
    fn names_are_those_of_the_cluster() {
        let policy = |pod: Value| {
            let mut job = json!({"metadata": {"name": "autotune-chat"}, "spec": {"template": {"spec": pod}}});
            job["spec"]["template"]["spec"]["containers"] = json!([{"args": []}]);
            spread(&mut job, 2);
            job["spec"]["template"]["spec"]["dnsPolicy"].clone()
        };
        assert_eq!(policy(json!({})), "ClusterFirst");
        assert_eq!(policy(json!({"dnsPolicy": "Default"})), "ClusterFirst");
        assert_eq!(policy(json!({"hostNetwork": true})), "ClusterFirstWithHostNet");
        assert_eq!(policy(json!({"dnsPolicy": "None"})), "None");
    }
}
