//! Whether a target serves again: its pods are ready, or will not be.

use std::time::Duration;

use serde_json::Value;

use super::api::{Cluster, ClusterError};
use super::borrow::{CORE, LOOK};
use super::target::{Target, Which, condition, has_ended};
use super::worker::has_gpu;
use crate::clock;
use crate::units::Seconds;

/// A container that ended so often since its pod began will end again.
const RESTARTS: u64 = 3;

/// Waits until a target's pods are ready and none of the `former` ones, by their uids, is left. Returns why it does not serve; `None` if it does.
///
/// # Errors
/// Those of the server; that the target is gone.
pub async fn replaced(
    cluster: &Cluster,
    which: &Which,
    within: Duration,
    former: &[Value],
) -> Result<Option<String>, ClusterError> {
    let (begun, mut said) = (clock::ticks(), String::new());
    loop {
        let target = Target::read(cluster, which).await?;
        if target.replicas == 0 {
            return Ok(Some("it is scaled to 0".to_owned()));
        }
        let pods = target.pods(cluster).await?;
        let staying = pods.iter().filter(|pod| former.contains(&pod["metadata"]["uid"])).count();
        let stays = (staying > 0).then(|| format!("{staying} of its pods are older than its newest version"));
        let Some(stands) = unsettled(&target, &pods).or(stays) else { return Ok(None) };
        // Pods that go say nothing of the newest version.
        let stay =
            |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null() && !former.contains(&pod["metadata"]["uid"]);
        if let Some(why) = pods.iter().filter(stay).find_map(gives_up) {
            return Ok(Some(why));
        }
        let why = pods.iter().find_map(standing).map_or(String::new(), |why| format!(": {why}"));
        let title = target.title();
        if begun.elapsed() > within {
            let within = Seconds(within.as_secs_f64());
            let holders = gpu_holders(cluster, &why).await;
            return Ok(Some(format!("{title}: {stands} after {within}{why}{holders}")));
        }
        let stands = format!("{title}: {stands}{why}");
        if stands != said {
            cluster.tell(&format!("{stands}{}", gpu_holders(cluster, &why).await));
            said = stands;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Why a target with these pods does not serve with all that it asks for, in its newest version; `None` if it does.
pub fn unsettled(target: &Target, pods: &[Value]) -> Option<String> {
    let is_ready = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null() && condition(pod, "Ready").is_some();
    let (ready, wanted) = (pods.iter().filter(is_ready).count() as u64, target.replicas);
    if ready < wanted {
        return Some(format!("{ready} of {wanted} pods are ready"));
    }
    let more = pods.len() as u64 - wanted;
    let surplus = || (more > 0).then(|| format!("{more} pods more than the {wanted} that it asks for are there"));
    (target.kind.unsettled)(&target.scaled()).or_else(surplus)
}

/// Why a pod will not become ready however long one waits.
fn gives_up(pod: &Value) -> Option<String> {
    let name = pod["metadata"]["name"].as_str()?;
    let status = statuses(pod)
        .find(|status| status["restartCount"].as_u64().unwrap_or(0) >= RESTARTS && status["ready"] != true)?;
    let ended = &status["lastState"]["terminated"];
    let code = ended["exitCode"].as_i64().map_or(String::new(), |code| format!(" with code {code}"));
    let words = ended["message"].as_str().unwrap_or_default().trim();
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    Some(format!("pod {name} ended {RESTARTS} times{code}{words}; `kubectl logs --previous {name}` says more"))
}

fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainerStatuses", "containerStatuses"].into_iter().filter_map(|key| pod["status"][key].as_array()).flatten()
}

/// The reason and message of a container that waits for something that goes wrong.
pub fn waiting(pod: &Value) -> Option<(&str, &str)> {
    statuses(pod).find_map(|status| {
        let waiting = &status["state"]["waiting"];
        let reason = waiting["reason"].as_str().filter(|r| !["PodInitializing", "ContainerCreating"].contains(r))?;
        Some((reason, waiting["message"].as_str().unwrap_or_default()))
    })
}

/// What keeps a pod from running, or how it ended.
pub fn standing(pod: &Value) -> Option<String> {
    let name = pod["metadata"]["name"].as_str()?;
    let unscheduled = || {
        let conditions = pod["status"]["conditions"].as_array()?;
        let scheduled = conditions.iter().find(|c| c["type"] == "PodScheduled" && c["status"] == "False")?;
        Some(format!("not scheduled: {}", scheduled["message"].as_str().unwrap_or_default()))
    };
    let why = waiting(pod).map(|(reason, message)| format!("{reason} {message}")).or_else(unscheduled);
    match pod["status"]["phase"].as_str()? {
        "Pending" | "Running" => why.map(|why| format!("pod {name} waits: {}", why.trim_end())),
        phase => {
            let status = &pod["status"];
            let said = [&status["reason"], &status["message"]].map(|said| said.as_str().unwrap_or_default());
            Some(format!("pod {name}: {phase} {}", said.join(" ")).trim_end().to_owned())
        }
    }
}

/// Which pods of the namespace have GPUs, as the end of a sentence; empty unless `why` says that a pod waits for one.
pub async fn gpu_holders(cluster: &Cluster, why: &str) -> String {
    if !why.contains("Insufficient") || !why.contains("/gpu") {
        return String::new();
    }
    let Ok(pods) = cluster.list(CORE, "pods", "").await else { return String::new() };
    let holds = |pod: &&Value| {
        let containers = pod["spec"]["containers"].as_array();
        !has_ended(pod) && containers.is_some_and(|containers| containers.iter().any(has_gpu))
    };
    let named = |pod: &Value| {
        let (name, node) = (pod["metadata"]["name"].as_str()?, pod["spec"]["nodeName"].as_str()?);
        Some(format!("{name} on {node}"))
    };
    let holders: Vec<String> = pods.iter().filter(holds).filter_map(named).collect();
    match &holders[..] {
        [] => "; no pod of this namespace has a GPU: ask who else has those of the node".to_owned(),
        holders => format!("; pods of this namespace with GPUs: {}", holders.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_keeps_ending_is_given_up() {
        let pod = |restarts: u64| {
            json!({"metadata": {"name": "chat-1"}, "status": {"phase": "Running", "containerStatuses": [{
                "restartCount": restarts, "ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 2, "message": "unrecognized arguments: --max-num-sequences"}},
            }]}})
        };
        assert_eq!(gives_up(&pod(2)), None);
        let why = gives_up(&pod(3)).unwrap();
        assert!(why.contains("chat-1") && why.contains("code 2") && why.contains("unrecognized"), "{why}");
        assert_eq!(standing(&pod(1)), Some("pod chat-1 waits: CrashLoopBackOff".to_owned()));
    }
}
