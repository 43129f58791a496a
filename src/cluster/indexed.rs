//! Several workers as one indexed Job. The pod of index 0 leads and finds the others by their names. They lend their engines to whoever
//! shows the token of this Job.

use std::time::Duration;

use k8s_openapi::Resource;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Secret, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource as _, ResourceExt};
use serde_json::{Value, json};

use super::api::{Cluster, ClusterError, Typed};
use super::borrow::LOOK;
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

/// What several workers need beside their Job: a headless Service and a Secret. The Service gives its pods their names; the Secret has the
/// token that they show each other. Nothing for a single worker, whom nobody looks for.
pub fn companions(job: &Value, token: &str) -> Option<(Service, Secret)> {
    if workers(job) == 1 {
        return None;
    }
    let metadata = serde_json::from_value(job["metadata"].clone()).unwrap_or_default();
    let of_job = Job { metadata, ..Default::default() };
    let metadata = ObjectMeta {
        annotations: of_job.annotations().get(RUN).map(|run| [(RUN.to_owned(), run.clone())].into()),
        // Whoever deletes the Job deletes them too.
        owner_references: of_job.owner_ref(&()).map(|owner| vec![owner]),
        name: of_job.metadata.name,
        labels: of_job.metadata.labels,
        ..Default::default()
    };
    let spec = ServiceSpec {
        cluster_ip: Some("None".to_owned()),
        // Ours have no readiness, and their names are needed from the beginning.
        publish_not_ready_addresses: Some(true),
        // To ours the server has added the Job's identity, so that no pod of an earlier worker is among them.
        selector: serde_json::from_value(job["spec"]["template"]["metadata"]["labels"].clone()).unwrap_or_default(),
        ports: Some(vec![ServicePort { name: Some("lend".to_owned()), port: PORT.into(), ..Default::default() }]),
        ..Default::default()
    };
    let token = Some([(TOKEN.1.to_owned(), token.to_owned())].into());
    let secret = Secret { metadata: metadata.clone(), string_data: token, ..Default::default() };
    Some((Service { metadata, spec: Some(spec), status: None }, secret))
}

/// Makes the companions of a Job that stands in the cluster, unless it needs none or has them.
///
/// # Errors
/// Those of the server; an object of that name that is somebody else's.
pub async fn introduce(cluster: &Cluster, job: &Value) -> Result<(), ClusterError> {
    let token = Token::draw().map_err(|e| ClusterError::Wrong(format!("the system draws no token: {e}")))?;
    let Some((service, secret)) = companions(job, token.as_str()) else { return Ok(()) };
    accompany(cluster, job, &service).await?;
    accompany(cluster, job, &secret).await
}

/// Makes an object that belongs to a Job, unless it is there.
async fn accompany<K: Typed>(cluster: &Cluster, job: &Value, object: &K) -> Result<(), ClusterError> {
    let name = object.metadata().name.as_deref().unwrap_or_default();
    let begun = clock::ticks();
    loop {
        match cluster.read::<K>(name).await? {
            None => match cluster.make(object).await {
                Err(error) if error.is_conflict() => {}
                made => return made,
            },
            Some(there) => {
                let owner = there.metadata().owner_references.iter().flatten().next();
                if owner.is_some_and(|owner| job["metadata"]["uid"] == owner.uid.as_str()) {
                    return Ok(());
                }
                if owner.is_none_or(|owner| owner.kind != Job::KIND) || begun.elapsed() > GOES {
                    let kind = K::KIND;
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
        assert!(companions(&json!({"metadata": {"name": "autotune-chat"}, "spec": {}}), "token").is_none());
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
        let (service, secret) = companions(&job, "a-token").unwrap();
        assert_eq!(json!(service.spec.unwrap().selector), labels);
        assert_eq!(json!(secret.string_data), json!({"token": "a-token"}));
        for metadata in [service.metadata, secret.metadata] {
            assert_eq!(metadata.owner_references.unwrap()[0].uid, "u");
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
