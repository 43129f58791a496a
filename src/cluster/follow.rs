//! Watching the worker until it has ended, and the target meanwhile.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde_json::Value;

use super::api::{Cluster, ClusterError};
use super::borrow::{BATCH, CORE, LABEL, LOOK, own_name, short_name};
use super::events::{Step, say};
use super::indexed::{index, workers};
use super::rollout::{gpu_holders, standing, waiting};
use super::target::{Borrowed, Target, Which, condition};
use super::worker::digest;
use crate::clock;
use crate::report::{Outcome, of_last_words};
use crate::units::Seconds;

/// A Job's pod appears at once unless something refuses it, such as a quota.
const POD_APPEARS: Duration = Duration::from_secs(60);
/// A pod that has a node and has not begun for so long is worth a look.
const POD_STARTS: Duration = Duration::from_secs(120);
/// Reasons of waiting that no time mends.
const NEVER_MENDS: [&str; 3] = ["InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"];
/// Reasons that a second attempt may mend, such as a busy registry ...
const DOUBTFUL: [&str; 5] =
    ["ErrImagePull", "ImagePullBackOff", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"];
/// ... within this time.
const MENDS: Duration = Duration::from_secs(90);
/// A pod ends so soon after its containers, unless one of them stays.
const LINGERS: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// What it found; `None` if it did not come to say so.
    pub outcome: Option<Outcome>,
    /// Why there is no outcome.
    pub because: String,
}

impl Ended {
    pub fn found(outcome: Outcome) -> Self {
        Self { outcome: Some(outcome), because: String::new() }
    }
}

/// What was said, so that nobody hears it twice.
#[derive(Default)]
struct Said(Vec<String>);

impl Said {
    fn is_new(&mut self, says: &str) -> bool {
        let is_new = !self.0.iter().any(|said| said == says);
        self.0.extend(is_new.then(|| says.to_owned()));
        is_new
    }
}

/// What is known of the target while the worker runs.
pub struct Watch<'w> {
    which: &'w Which,
    kept: u64,
    digest: String,
    said: Said,
}

impl<'w> Watch<'w> {
    /// Of a target as it was when the worker was made; `digest` is that of then.
    pub fn new(which: &'w Which, borrowed: &Borrowed, digest: String) -> Self {
        Self { which, kept: borrowed.kept, digest, said: Said::default() }
    }

    /// Says what somebody else did to the target, once.
    async fn look(&mut self, cluster: &Cluster) -> Result<(), ClusterError> {
        let Some(target) = Target::find(cluster, self.which).await? else {
            let says = format!("{} was deleted meanwhile; the worker goes on", self.which.title());
            if self.said.is_new(&says) {
                cluster.tell(&says);
            }
            return Ok(());
        };
        let mut says = Vec::new();
        if target.replicas != self.kept {
            says.push(format!(
                "somebody scaled {} to {} meanwhile: its pods wait for the GPU that the worker holds",
                target.title(),
                target.replicas
            ));
        }
        if digest(&target) != self.digest {
            says.push(format!("somebody edited {} meanwhile; the worker measures what it was before", target.title()));
        }
        for says in says {
            if self.said.is_new(&says) {
                say(cluster, &target, Step::Disturbed, &says).await;
            }
        }
        Ok(())
    }
}

/// What is known of the workers that lend their engines to the first. None of them ends a run: the leader says by itself whom it misses.
struct Lenders {
    missing_since: tokio::time::Instant,
    said: Said,
}

impl Lenders {
    /// Says what keeps one of them from running, once.
    async fn look(&mut self, cluster: &Cluster, job: &Value, pods: &[Value]) {
        let there: Vec<u64> = pods.iter().map(index).collect();
        let missing = (1..workers(job)).find(|worker| !there.contains(worker));
        let mut says: Vec<String> = pods.iter().filter_map(|pod| hindered(pod, clock::timestamp())).collect();
        match missing {
            None => self.missing_since = clock::ticks(),
            Some(worker) if self.missing_since.elapsed() > POD_APPEARS => {
                self.missing_since = clock::ticks();
                let refused = refusal(cluster, job).await.unwrap_or_else(|| "its Job makes no pod".to_owned());
                says.push(format!("worker {worker}: {refused}"));
            }
            Some(_) => {}
        }
        for says in says {
            if self.said.is_new(&says) {
                cluster.tell(&says);
            }
        }
    }
}

/// What keeps a pod that lends its engine from running; those that ended well were ended with the Job.
fn hindered(pod: &Value, now: Timestamp) -> Option<String> {
    let (worker, phase) = (index(pod), &pod["status"]["phase"]);
    if worker == 0 || phase == "Succeeded" {
        return None;
    }
    // A volume that is mounted elsewhere, or a large image: its events tell.
    let slow = || {
        let (name, node) = (pod["metadata"]["name"].as_str()?, pod["spec"]["nodeName"].as_str()?);
        let made: Timestamp = pod["metadata"]["creationTimestamp"].as_str()?.parse().ok()?;
        let late = phase == "Pending" && now.duration_since(made).unsigned_abs() > POD_STARTS;
        late.then(|| format!("pod {name} has not begun on {node} yet; `kubectl describe pod {name}` says why"))
    };
    let words = last_words(pod).map_or(String::new(), |words| format!(": {}", words.trim_end()));
    standing(pod).or_else(slow).map(|stands| format!("worker {worker}: {stands}{words}"))
}

/// Watches the worker until it has ended, and reads what it says at its end.
///
/// # Errors
/// Those of the server; a worker that does not begin, or that somebody deleted.
pub async fn follow(cluster: &Cluster, watch: &mut Watch<'_>, patience: Duration) -> Result<Ended, ClusterError> {
    let own = own_name(&watch.which.name);
    let labels = format!("{LABEL}={}", short_name(&watch.which.name));
    // Since when none of its pods runs: one that was evicted may find its GPU taken.
    let (mut idle, mut said, mut doubts, mut lingers) = (clock::ticks(), String::new(), None, None);
    // Why a worker waits, and who has what it waits for.
    let mut waits = (String::new(), String::new());
    let mut lenders = Lenders { missing_since: clock::ticks(), said: Said::default() };
    let mut tell = |says: String| {
        if says != said {
            cluster.tell(&says);
            said = says;
        }
    };
    loop {
        let job = cluster.find(BATCH, "jobs", &own).await?;
        let job = job.ok_or_else(|| {
            ClusterError::Wrong(format!("somebody deleted the worker, Job {own}; the same command begins anew"))
        })?;
        let mut pods = cluster.list(CORE, "pods", &labels).await?;
        // Those of an earlier worker may still be on their way out.
        pods.retain(|pod| pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == job["metadata"]["uid"]);
        // Progress and outcome are those of the worker that leads.
        let leads = pods.iter().filter(|pod| index(pod) == 0);
        let newest = leads.max_by_key(|pod| pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default());
        let who = if workers(&job) == 1 { "" } else { "worker 0: " };
        let stands = newest.and_then(standing);
        // Who has the GPU is asked once for each reason.
        if let Some(says) = stands.as_ref().filter(|says| **says != waits.0) {
            waits = (says.clone(), gpu_holders(cluster, says).await);
        }
        let stands = stands.map(|says| says + &waits.1);
        if let Some(says) = &stands {
            tell(format!("{who}{says}"));
        }
        let phase = newest.and_then(|pod| pod["status"]["phase"].as_str());
        if matches!(phase, Some("Running" | "Succeeded" | "Failed")) {
            idle = clock::ticks();
        }
        if phase == Some("Running")
            && let Some(pod) = newest.and_then(|pod| pod["metadata"]["name"].as_str())
            && let Some(line) = cluster.last_line(pod, "autotune").await
        {
            tell(format!("{who}{line}"));
        }
        let (complete, failed) = (condition(&job, "Complete"), condition(&job, "Failed"));
        let message = newest.and_then(last_words).unwrap_or_default();
        let outcome = of_last_words(&message);
        // A sidecar that somebody injects keeps the pod, and the Job with it, running after our own end.
        match newest.and_then(exit_code).filter(|_| phase == Some("Running")) {
            None => lingers = None,
            Some(code) => {
                let since = *lingers.get_or_insert_with(clock::ticks);
                if since.elapsed() > LINGERS {
                    let because = format!(
                        "the worker ended with code {code}, and another container keeps its pod running: {message}"
                    );
                    let because = if outcome.is_some() { String::new() } else { because };
                    return Ok(Ended { outcome, because });
                }
            }
        }
        if complete.or(failed).is_some() {
            let why = failed.and_then(|c| c["message"].as_str()).unwrap_or_default();
            let because = match (message.is_empty() || outcome.is_some(), workers(&job)) {
                (true, _) => why.to_owned(),
                (false, 1) => message,
                // Perhaps it was another worker's end that ended the leader.
                (false, _) => format!("{message}; {why}"),
            };
            return Ok(Ended { outcome, because });
        }
        lenders.look(cluster, &job, &pods).await;
        watch.look(cluster).await?;
        if let Some(why) = newest.and_then(waiting).map(|(reason, message)| format!("{reason} {message}")) {
            let reason = why.split(' ').next().unwrap_or_default();
            let since = *doubts.get_or_insert_with(clock::ticks);
            if NEVER_MENDS.contains(&reason) || (DOUBTFUL.contains(&reason) && since.elapsed() > MENDS) {
                return Err(ClusterError::Wrong(format!("the worker cannot begin: {}", why.trim_end())));
            }
        } else {
            doubts = None;
        }
        let waited = idle.elapsed();
        if newest.is_none() && waited > POD_APPEARS.min(patience) {
            let refused = refusal(cluster, &job).await.unwrap_or_else(|| "its Job makes no pod".to_owned());
            return Err(ClusterError::Wrong(format!("the worker cannot begin: {refused}")));
        }
        if waited > patience {
            let waited = Seconds(patience.as_secs_f64());
            return Err(ClusterError::Wrong(format!(
                "the worker did not begin within {waited} (--patience): {}",
                stands.unwrap_or_default()
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Why a Job makes no pod, by its events; `None` if we may not read them.
async fn refusal(cluster: &Cluster, job: &Value) -> Option<String> {
    let events: Vec<Event> = cluster.read_all().await.ok()?;
    // Those of earlier workers, which had the same name, stay for an hour.
    let uid = job["metadata"]["uid"].as_str();
    let is_ours =
        |event: &&Event| event.involved_object.uid.as_deref() == uid && event.type_.as_deref() == Some("Warning");
    events.iter().filter(is_ours).max_by_key(|event| &event.last_timestamp)?.message.clone()
}

/// How our container in a worker's pod ended.
fn end(pod: &Value) -> Option<&Value> {
    let statuses = pod["status"]["containerStatuses"].as_array()?;
    statuses.iter().find(|status| status["name"] == "autotune")?["state"].get("terminated")
}

fn exit_code(pod: &Value) -> Option<i64> {
    end(pod)?["exitCode"].as_i64()
}

/// Its termination message.
fn last_words(pod: &Value) -> Option<String> {
    end(pod)?["message"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(index: &str, status: Value) -> Value {
        let labels = json!({"batch.kubernetes.io/job-completion-index": index});
        json!({"metadata": {"name": format!("autotune-chat-{index}-x"), "labels": labels}, "status": status})
    }

    #[test]
    fn a_worker_that_lends_is_named_with_what_hinders_it() {
        let unscheduled = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."},
        ]});
        let now: Timestamp = "2026-11-22T10:05:00Z".parse().unwrap();
        let hindered = |pod: &Value| hindered(pod, now);
        let says = hindered(&pod("1", unscheduled.clone())).unwrap();
        assert!(says.starts_with("worker 1: pod autotune-chat-1-x waits: not scheduled: 0/2 nodes"), "{says}");
        assert_eq!(hindered(&pod("0", unscheduled)), None, "the leader is followed by itself");
        let ended = json!({"exitCode": 1, "message": "no space left on device\n"});
        let failed =
            json!({"phase": "Failed", "containerStatuses": [{"name": "autotune", "state": {"terminated": ended}}]});
        assert_eq!(
            hindered(&pod("2", failed)),
            Some("worker 2: pod autotune-chat-2-x: Failed: no space left on device".to_owned())
        );
        assert_eq!(hindered(&pod("1", json!({"phase": "Succeeded"}))), None);
        assert_eq!(hindered(&pod("1", json!({"phase": "Running"}))), None);
        let mut slow = pod("1", json!({"phase": "Pending"}));
        slow["spec"]["nodeName"] = "gpu-2".into();
        slow["metadata"]["creationTimestamp"] = "2026-11-22T10:04:00Z".into();
        assert_eq!(hindered(&slow), None);
        slow["metadata"]["creationTimestamp"] = "2026-11-22T10:02:00Z".into();
        assert!(hindered(&slow).unwrap().starts_with("worker 1: pod autotune-chat-1-x has not begun on gpu-2 yet"));
    }
}
