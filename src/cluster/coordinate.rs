//! One run from the outside: borrow the GPU, let the worker tune, collect its outcome, give the GPU back.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::{Cluster, ClusterError};
use super::borrow::{BATCH, LOOK, give_back, outcome_name, own_name, take};
use super::lease::Lease;
use super::rights::{check, needed};
use super::target::{Kind, Target};
use super::worker::{LABEL, Order, worker};
use crate::clock;
use crate::report::Outcome;
use crate::units::Seconds;

/// A worker pod has so long to begin: images of engines are large, and nodes may have to come.
const BEGINS_WITHIN: Duration = Duration::from_secs(1_800);

/// What a run is asked for.
pub struct Request {
    /// The target's kind.
    pub kind: Kind,
    /// The target's name.
    pub target: String,
    /// The space file.
    pub space: String,
    /// What the worker is made of.
    pub order: Order,
    /// Who we are, as others read it in the Lease.
    pub holder: String,
}

/// What a run would do.
pub struct Plan {
    /// The target as it stands.
    pub target: Target,
    /// The name of the run.
    pub run: String,
    /// The worker.
    pub job: Value,
}

/// How the worker ended.
pub struct Ended {
    /// What it found; none where it did not come to say so.
    pub outcome: Option<Outcome>,
    /// Why there is none.
    pub because: String,
}

/// Looks at everything without touching anything.
///
/// # Errors
/// What is in the way, and what to do about it.
pub async fn plan(cluster: &Cluster, request: &Request) -> Result<Plan, ClusterError> {
    let own = own_name(&request.target);
    check(cluster, &needed(request.kind, &request.target, &own, &outcome_name(&request.target))).await?;
    let target = Target::read(cluster, request.kind, &request.target).await?;
    target.selector()?;
    if let Some(scaler) = target.scaled_by(cluster).await? {
        return Err(ClusterError::Wrong(format!(
            "the HorizontalPodAutoscaler {scaler} scales {}, and would scale it up in mid-run: delete it for the time of the run, or set \
its minReplicas and maxReplicas aside",
            target.title()
        )));
    }
    if target.replicas == 0 && target.original.is_none() {
        return Err(ClusterError::Wrong(format!(
            "{} is scaled to 0 already: there is no GPU to borrow",
            target.title()
        )));
    }
    // A run that did not come to its end goes on under its name.
    let begun = target.original.and(target.run.clone());
    let run = begun.unwrap_or_else(|| request.order.run.clone());
    let job = worker(&target, &Order { run: run.clone(), ..request.order.clone() })?;
    Ok(Plan { target, run, job })
}

/// Does what was planned. Whatever happens, also when the future is told to `stop`, the target gets its scale back.
///
/// # Errors
/// What went wrong; if giving back is what failed, that, with the way to do it by hand.
pub async fn run(
    cluster: &Cluster,
    plan: &Plan,
    request: &Request,
    stop: impl Future<Output = ()>,
    tell: &dyn Fn(&str),
) -> Result<Ended, ClusterError> {
    let own = own_name(&request.target);
    let lease = Lease::take(cluster, &own, &request.holder, Timestamp::now()).await?;
    let ended = tokio::select! {
        ended = borrowed(cluster, plan, request, &own, tell) => ended,
        failed = keep(cluster, &lease) => Err(failed),
        () = stop => Err(ClusterError::Wrong("stopped before the end".to_owned())),
    };
    // The worker may take minutes to end, longer than a lease that nobody renews.
    let given_back = tokio::select! {
        done = give_back(cluster, &plan.target, tell) => done,
        failed = keep(cluster, &lease) => Err(failed),
    };
    let released = lease.release(cluster).await;
    if let Err(error) = given_back.and(released) {
        let by_hand = format!(
            "autotune restore --{} {} -n {}",
            request.kind.name().to_lowercase(),
            request.target,
            cluster.namespace
        );
        return Err(ClusterError::Wrong(format!(
            "{} was not given back ({error}); `{by_hand}` does it",
            plan.target.title()
        )));
    }
    ended
}

/// Renews the lease for ever.
async fn keep(cluster: &Cluster, lease: &Lease) -> ClusterError {
    loop {
        tokio::time::sleep(Duration::from_secs(super::lease::SECONDS.unsigned_abs() / 4)).await;
        if let Err(error) = lease.renew(cluster, Timestamp::now()).await {
            return error;
        }
    }
}

async fn borrowed(
    cluster: &Cluster,
    plan: &Plan,
    request: &Request,
    own: &str,
    tell: &dyn Fn(&str),
) -> Result<Ended, ClusterError> {
    let space = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": own, "labels": {LABEL: request.target}},
        "data": {"space.toml": request.space},
    });
    // What an earlier run left would be in the way.
    cluster.delete(BATCH, "jobs", own).await?;
    cluster.delete("api/v1", "configmaps", own).await?;
    cluster.create("api/v1", "configmaps", &space).await?;
    take(cluster, &plan.target, &plan.run, tell).await?;
    create_worker(cluster, &plan.job).await?;
    tell(&format!("the worker is Job {own}"));
    let ended = follow(cluster, own, &request.target, tell).await?;
    if let Some(outcome) = &ended.outcome {
        keep_outcome(cluster, &request.target, outcome, tell).await?;
    }
    Ok(ended)
}

/// Leaves the outcome in the cluster, for whoever reads it after this coordinator's pod is gone.
async fn keep_outcome(
    cluster: &Cluster,
    target: &str,
    outcome: &Outcome,
    tell: &dyn Fn(&str),
) -> Result<(), ClusterError> {
    let name = outcome_name(target);
    let text = serde_json::to_string_pretty(outcome).unwrap_or_default();
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {LABEL: target}},
        "data": {"outcome.json": text},
    });
    cluster.delete("api/v1", "configmaps", &name).await?;
    cluster.create("api/v1", "configmaps", &object).await?;
    tell(&format!("the outcome is in ConfigMap {name}"));
    Ok(())
}

/// Makes the Job; one of that name may still be on its way out.
async fn create_worker(cluster: &Cluster, job: &Value) -> Result<(), ClusterError> {
    let begun = clock::now();
    loop {
        match cluster.create(BATCH, "jobs", job).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_conflict() && begun.elapsed() < Duration::from_secs(60) => {
                tokio::time::sleep(LOOK).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Watches the worker until it has ended, and reads what it says at its end.
async fn follow(cluster: &Cluster, own: &str, target: &str, tell: &dyn Fn(&str)) -> Result<Ended, ClusterError> {
    let (begun, mut began, mut said) = (clock::now(), false, String::new());
    loop {
        let job = cluster.get(BATCH, "jobs", own).await?;
        let pods = cluster.list("api/v1", "pods", &format!("{LABEL}={target}")).await?;
        let newest = pods.iter().max_by_key(|pod| pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default());
        if let Some(says) = newest.and_then(standing)
            && says != said
        {
            tell(&says);
            said = says;
        }
        let phase = newest.and_then(|pod| pod["status"]["phase"].as_str());
        began |= matches!(phase, Some("Running" | "Succeeded" | "Failed"));
        if phase == Some("Running")
            && let Some(pod) = newest.and_then(|pod| pod["metadata"]["name"].as_str())
            && let Some(line) = cluster.last_line(pod, "autotune").await
            && line != said
        {
            tell(&line);
            said = line;
        }
        let condition = |name: &str| {
            let all = job["status"]["conditions"].as_array();
            all.and_then(|all| all.iter().find(|c| c["type"] == name && c["status"] == "True"))
        };
        if condition("Complete").is_some() || condition("Failed").is_some() {
            let message = newest.and_then(last_words).unwrap_or_default();
            let outcome = serde_json::from_str::<Outcome>(&message).ok();
            let why = condition("Failed").and_then(|c| c["message"].as_str()).unwrap_or_default();
            let because = if message.is_empty() || outcome.is_some() { why.to_owned() } else { message };
            return Ok(Ended { outcome, because });
        }
        if !began && begun.elapsed() > BEGINS_WITHIN {
            let waited = Seconds(BEGINS_WITHIN.as_secs_f64());
            return Err(ClusterError::Wrong(format!("the worker did not begin within {waited}: {said}")));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What keeps a pod from running, or that it runs.
fn standing(pod: &Value) -> Option<String> {
    let name = pod["metadata"]["name"].as_str()?;
    let statuses = ["initContainerStatuses", "containerStatuses"].map(|key| pod["status"][key].as_array());
    let waiting = statuses.into_iter().flatten().flatten().find_map(|status| {
        let waiting = &status["state"]["waiting"];
        let reason = waiting["reason"].as_str().filter(|r| !["PodInitializing", "ContainerCreating"].contains(r))?;
        Some(format!("{reason} {}", waiting["message"].as_str().unwrap_or_default()))
    });
    let unscheduled = || {
        let conditions = pod["status"]["conditions"].as_array()?;
        let scheduled = conditions.iter().find(|c| c["type"] == "PodScheduled" && c["status"] == "False")?;
        Some(format!("not scheduled: {}", scheduled["message"].as_str().unwrap_or_default()))
    };
    match pod["status"]["phase"].as_str()? {
        "Pending" => waiting.or_else(unscheduled).map(|why| format!("pod {name} waits: {}", why.trim_end())),
        "Running" => None,
        phase => Some(format!("pod {name}: {phase}")),
    }
}

/// The termination message of a worker's pod.
fn last_words(pod: &Value) -> Option<String> {
    let statuses = pod["status"]["containerStatuses"].as_array()?;
    let ours = statuses.iter().find(|status| status["name"] == "autotune")?;
    ours["state"]["terminated"]["message"].as_str().map(str::to_owned)
}

/// Gives a target back that an earlier run left borrowed.
///
/// # Errors
/// Those of the server; a run that is still at it.
pub async fn restore(
    cluster: &Cluster,
    kind: Kind,
    name: &str,
    holder: &str,
    tell: &dyn Fn(&str),
) -> Result<(), ClusterError> {
    let target = Target::read(cluster, kind, name).await?;
    if target.original.is_none() {
        tell(&format!("{} is not borrowed: nothing to restore", target.title()));
        return Ok(());
    }
    let lease = Lease::take(cluster, &own_name(name), holder, Timestamp::now()).await?;
    give_back(cluster, &target, tell).await?;
    lease.release(cluster).await
}
