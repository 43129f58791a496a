//! Several workers as one indexed Job: the pod of index 0 leads, and the others, which it finds by their names, lend it their engines, to
//! whoever shows the token of this Job.

use std::time::Duration;

use serde_json::{Value, json};

use super::api::{Cluster, ClusterError};
use super::borrow::{CORE, LOOK};
use super::target::RUN;
use crate::clock;
use crate::token::Token;

/// Where a pod lends its engine.
pub(super) const PORT: u16 = 7787;
/// The folder of a pod's container with the token in it, and the token's file and key.
const TOKEN: (&str, &str) = ("/autotune/token", "token");
/// The label by which Kubernetes says which pod of an indexed Job one is; its containers have the same in `JOB_COMPLETION_INDEX`.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The companions of an earlier worker go with its Job, which takes the cluster so long at most.
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
    pod["subdomain"] = name.as_str().into();
    if let Some(volumes) = pod["volumes"].as_array_mut() {
        volumes.push(json!({"name": "autotune-token", "secret": {"secretName": name}}));
    }
    if pod["dnsPolicy"] != "None" {
        let of_cluster = if pod["hostNetwork"] == true { "ClusterFirstWithHostNet" } else { "ClusterFirst" };
        pod["dnsPolicy"] = of_cluster.into();
    }
    let container = &mut pod["containers"][0];
    if let Some(args) = container["args"].as_array_mut() {
        let words = [
            "--token-file",
            &format!("{}/{}", TOKEN.0, TOKEN.1),
            "--workers",
            &urls.join(","),
            "--rank",
            "$(JOB_COMPLETION_INDEX)",
        ];
        args.extend(words.map(Value::from));
    }
    if let Some(mounts) = container["volumeMounts"].as_array_mut() {
        mounts.push(json!({"name": "autotune-token", "mountPath": TOKEN.0, "readOnly": true}));
    }
    // Said for pods on their hosts' network, of which no two can be on one node.
    container["ports"] = json!([{"name": "lend", "containerPort": PORT}]);
}

pub fn workers(job: &Value) -> u64 {
    let spec = &job["spec"];
    spec["completions"].as_u64().filter(|_| spec["completionMode"] == "Indexed").unwrap_or(1)
}

/// Which of the workers a pod is; the only one is the first.
pub fn index(pod: &Value) -> u64 {
    pod["metadata"]["labels"][INDEX].as_str().and_then(|index| index.parse().ok()).unwrap_or(0)
}

/// What several workers need beside their Job, by kinds in the plural: the Service without an address of its own that gives its pods their
/// names, and the Secret with the token that they show each other. Nothing for a single worker, whom nobody looks for.
pub fn companions(job: &Value, token: &str) -> Vec<(&'static str, Value)> {
    if workers(job) == 1 {
        return Vec::new();
    }
    let meta = &job["metadata"];
    let object = |kind: &str, key: &str, value: Value| {
        let mut object = json!({
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": meta["name"], "labels": meta["labels"], "annotations": {RUN: meta["annotations"][RUN]}},
            key: value,
        });
        if meta["uid"].is_string() {
            // Whoever deletes the Job deletes it too.
            let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]});
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        object
    };
    let spec = json!({
        "clusterIP": "None",
        // Ours have no readiness, and their names are needed from the beginning.
        "publishNotReadyAddresses": true,
        // To ours the server has added the Job's identity, so that no pod of an earlier worker is among them.
        "selector": job["spec"]["template"]["metadata"]["labels"],
        "ports": [{"name": "lend", "port": PORT}],
    });
    let service = object("Service", "spec", spec);
    vec![("services", service), ("secrets", object("Secret", "stringData", json!({TOKEN.1: token})))]
}

/// Makes the companions of a Job that stands in the cluster, unless it needs none or has them.
///
/// # Errors
/// Those of the server; an object of that name that is somebody else's.
pub async fn introduce(cluster: &Cluster, job: &Value) -> Result<(), ClusterError> {
    let token = Token::draw().map_err(|e| ClusterError::Wrong(format!("the system draws no token: {e}")))?;
    for (plural, object) in companions(job, token.as_str()) {
        accompany(cluster, job, plural, &object).await?;
    }
    Ok(())
}

/// Makes an object that belongs to a Job, unless it is there.
async fn accompany(cluster: &Cluster, job: &Value, plural: &str, object: &Value) -> Result<(), ClusterError> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let begun = clock::ticks();
    loop {
        match cluster.find(CORE, plural, name).await? {
            None => match cluster.create(CORE, plural, object).await {
                Err(error) if error.is_conflict() => {}
                made => return made.map(drop),
            },
            Some(there) => {
                let owner = &there["metadata"]["ownerReferences"][0];
                if owner["uid"] == job["metadata"]["uid"] {
                    return Ok(());
                }
                if owner["kind"] != "Job" || begun.elapsed() > GOES {
                    let kind = object["kind"].as_str().unwrap_or_default();
                    return Err(ClusterError::Wrong(format!(
                        "there is a {kind} {name} that is not ours, and several workers need that name: delete it, or use one worker"
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
    fn a_job_of_one_worker_has_no_companions_and_its_pod_is_the_first() {
        let pod = |labels: Value| json!({"metadata": {"labels": labels}});
        assert!(companions(&json!({"metadata": {"name": "autotune-chat"}, "spec": {}}), "token").is_empty());
        assert_eq!(index(&pod(json!({}))), 0);
        assert_eq!(index(&pod(json!({INDEX: "3"}))), 3);
    }

    #[test]
    fn the_service_selects_the_pods_of_this_job_and_the_token_belongs_to_it_too() {
        let labels = json!({"autotune/target": "chat", "batch.kubernetes.io/controller-uid": "u"});
        let job = json!({
            "metadata": {"name": "autotune-chat", "uid": "u"},
            "spec": {"completionMode": "Indexed", "completions": 2, "template": {"metadata": {"labels": labels}}},
        });
        let made = companions(&job, "a-token");
        let [("services", service), ("secrets", secret)] = &made[..] else { panic!("{made:?}") };
        assert_eq!(service["spec"]["selector"], labels);
        assert_eq!(secret["stringData"], json!({"token": "a-token"}));
        for object in [service, secret] {
            assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u");
        }
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
