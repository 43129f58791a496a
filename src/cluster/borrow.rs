//! Taking a target's GPU and giving it back, whoever took it.

use std::time::Duration;

use super::api::{Cluster, ClusterError};
use super::target::{APPS, Target, has_ended};
use super::worker::LABEL;
use crate::clock;

/// The API group of Jobs.
pub(super) const BATCH: &str = "apis/batch/v1";
/// Between two looks at the cluster.
pub(super) const LOOK: Duration = Duration::from_secs(2);
/// Pods that hold a GPU have so long to go.
const PODS_GO: Duration = Duration::from_secs(600);

/// The name of everything that a run on a target makes.
pub fn own_name(target: &str) -> String {
    // A pod's name is the Job's and six more characters, and at most 63.
    let short: String = target.chars().take(44).collect();
    format!("autotune-{}", short.trim_end_matches(['-', '.']))
}

/// The name of the ConfigMap that keeps the outcome of the last run on a target.
pub fn outcome_name(target: &str) -> String {
    own_name(target) + "-outcome"
}

/// Notes the scale, and scales the target down. What it says goes to `tell`.
///
/// # Errors
/// Those of the server, and pods that do not go.
pub async fn take(cluster: &Cluster, target: &Target, run: &str, tell: &dyn Fn(&str)) -> Result<(), ClusterError> {
    let original = target.original.unwrap_or(target.replicas);
    target.note(cluster, Some((original, run))).await?;
    target.scale(cluster, 0).await?;
    tell(&format!("{} scaled from {} to 0; waiting until its pods are gone", target.title(), target.replicas));
    let begun = clock::now();
    loop {
        let left = target.pods(cluster).await?;
        if left.is_empty() {
            tell(&format!("its pods are gone after {:.0} s", begun.elapsed().as_secs_f64()));
            return Ok(());
        }
        if begun.elapsed() > PODS_GO {
            let names: Vec<&str> = left.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
            return Err(ClusterError::Wrong(format!(
                "{} did not go within {} minutes; `kubectl describe pod` says why",
                names.join(", "),
                PODS_GO.as_secs() / 60
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Ends the worker, and gives the target its scale back; nothing to do is done at once.
///
/// # Errors
/// Those of the server: then the annotation stays, and the next attempt goes on from there.
pub async fn give_back(cluster: &Cluster, target: &Target, tell: &dyn Fn(&str)) -> Result<(), ClusterError> {
    let name = own_name(&target.name);
    let worker = format!("{LABEL}={}", target.name);
    cluster.delete(BATCH, "jobs", &name).await?;
    let begun = clock::now();
    // The GPU is not free before the worker is gone.
    while begun.elapsed() < PODS_GO {
        let pods = cluster.list("api/v1", "pods", &worker).await?;
        if pods.iter().all(has_ended) {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    cluster.delete("api/v1", "configmaps", &name).await?;
    // As it stands now: somebody may have changed it meanwhile.
    if cluster.find(APPS, target.kind.plural(), &target.name).await?.is_none() {
        tell(&format!("{} is gone; there is nothing to restore", target.title()));
        return Ok(());
    }
    let now = Target::read(cluster, target.kind, &target.name).await?;
    let Some(original) = now.original else { return Ok(()) };
    if now.replicas == 0 {
        now.scale(cluster, original).await?;
        tell(&format!("{} scaled back to {original}", now.title()));
    } else if now.replicas != original {
        tell(&format!("{} was scaled to {} meanwhile, and stays there", now.title(), now.replicas));
    }
    now.note(cluster, None).await
}
