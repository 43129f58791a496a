//! Taking a target's GPU and giving it back, whoever took it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::api::{Apply, Cluster, ClusterError, Patch};
use super::events::{Step, say};
use super::target::{Borrowed, Target, Which, has_ended};
use crate::clock;
use crate::digest::sha256;
use crate::units::Seconds;

pub(super) const BATCH: &str = "apis/batch/v1";
/// The API of ConfigMaps, pods and events.
pub(super) const CORE: &str = "api/v1";
/// The label by which everything of a run is found.
pub const LABEL: &str = "autotune/target";
/// Between two looks at the cluster.
pub(super) const LOOK: Duration = Duration::from_secs(2);
/// The worker's pod, which has its own grace, has so long to go before the target is scaled up beside it.
const WORKER_GOES: Duration = Duration::from_secs(600);
/// The key of our ConfigMap under which the arguments stand as they were, from before they are changed until the new ones are proved.
const UNDO: &str = "undo.json";
/// How a run's name tells when it began.
const BEGUN: &str = "%Y%m%d-%H%M%S";

/// So many letters of a target's name fit into the names of our objects. A pod's name is its Job's and six more, and has 63 at most.
pub(super) const LETTERS: usize = 44;

/// A target's name where it fits, and otherwise its beginning and a digest: two targets never share an object.
pub(super) fn short_name(target: &str) -> String {
    if target.chars().count() <= LETTERS {
        return target.to_owned();
    }
    let digest = &sha256(target.as_bytes())[..8];
    let head: String = target.chars().take(LETTERS - digest.len() - 1).collect();
    format!("{}-{digest}", head.trim_end_matches(['-', '.']))
}

/// The name of everything that a run on a target makes.
pub fn own_name(target: &str) -> String {
    format!("autotune-{}", short_name(target))
}

/// The name of the ConfigMap that keeps the outcome of the last run on a target.
pub fn outcome_name(target: &str) -> String {
    own_name(target) + "-outcome"
}

pub fn run_name(now: Timestamp) -> String {
    now.strftime(BEGUN).to_string()
}

/// How long ago a run began, by its name.
fn since(run: &str, now: Timestamp) -> Option<Seconds> {
    let begun = jiff::civil::DateTime::strptime(BEGUN, run).ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Seconds(now.duration_since(begun.timestamp()).as_secs_f64().max(0.0)))
}

/// Notes the scale, scales the target down, and waits until its pods hold no GPU any more.
///
/// # Errors
/// Those of the server, and pods that do not go.
pub async fn take(
    cluster: &Cluster,
    target: &Target,
    borrowed: &Borrowed,
    patience: Duration,
) -> Result<(), ClusterError> {
    target.note(cluster, Some(borrowed)).await?;
    target.scale(cluster, borrowed.kept).await?;
    let says = format!(
        "{} is scaled from {} to {} for the run {}; waiting until its pods are gone",
        target.title(),
        borrowed.original,
        borrowed.kept,
        borrowed.run
    );
    say(cluster, target, Step::Borrowed, &says).await;
    let begun = clock::ticks();
    loop {
        let pods = target.pods(cluster).await?;
        let is_going = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_string();
        let going: Vec<&Value> = pods.iter().filter(is_going).collect();
        let staying = (pods.len() - going.len()) as u64;
        if going.is_empty() && staying <= borrowed.kept {
            cluster.tell(&format!("its pods are gone after {}", Seconds(begun.elapsed().as_secs_f64())));
            return Ok(());
        }
        if begun.elapsed() > patience {
            let late = if going.is_empty() { pods.iter().collect() } else { going };
            let names: Vec<&str> = late.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
            return Err(ClusterError::Wrong(format!(
                "{} did not go within {} (--patience); `kubectl describe pod` says why",
                names.join(", "),
                Seconds(patience.as_secs_f64())
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Ends the worker. The GPU is free when its pods are gone.
pub async fn end_worker(cluster: &Cluster, target: &str) -> Result<(), ClusterError> {
    cluster.delete::<Job>(&own_name(target)).await?;
    let (begun, labels) = (clock::ticks(), format!("{LABEL}={}", short_name(target)));
    while begun.elapsed() < WORKER_GOES {
        let pods = cluster.list(CORE, "pods", &labels).await?;
        if pods.iter().all(has_ended) {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
    cluster.tell("the worker's pod does not go; the target's pods wait for its GPU");
    Ok(())
}

/// Keeps the arguments as they were, so that whoever comes next can bring them back; or keeps them no more.
pub async fn keep_undo(cluster: &Cluster, target: &Target, fields: Option<&Value>) -> Result<(), ClusterError> {
    let text = fields.map(Value::to_string);
    if let Some(text) = &text {
        target.note_undo(cluster, text).await?;
    }
    let patch = Patch::Merge(json!({"data": {UNDO: text}}));
    cluster.patch(CORE, "configmaps", &own_name(&target.name), &patch).await.map(drop)
}

/// The arguments as they were, where the new ones are not proved yet.
pub async fn kept_undo(cluster: &Cluster, target: &Target) -> Result<Option<Value>, ClusterError> {
    let name = own_name(&target.name);
    let own = cluster.read(&name).await?.unwrap_or_default();
    Ok(undo_of(&own, target).unwrap_or_else(|| {
        cluster.tell(&format!(
            "warning: {UNDO} in the ConfigMap {name} does not match its digest on the target, so the former arguments are not brought back; compare those of {} with your manifest",
            target.title()
        ));
        None
    }))
}

/// The former arguments in a ConfigMap, if there are any; none at all where they are not those that were kept.
fn undo_of(config_map: &ConfigMap, target: &Target) -> Option<Option<Value>> {
    let Some(text) = config_map.data.as_ref().and_then(|data| data.get(UNDO)) else { return Some(None) };
    target.noted_undo(text).then(|| serde_json::from_str(text).ok())
}

/// Ends the worker, and then brings the target back.
///
/// # Errors
/// Those of the server: then the annotation stays, and the next attempt goes on from there.
pub async fn give_back(cluster: &Cluster, which: &Which, known: Option<&Borrowed>) -> Result<(), ClusterError> {
    end_worker(cluster, &which.name).await?;
    bring_back(cluster, which, known, None).await
}

/// Brings back arguments that were not proved, and gives the target its scale back; what is done already is left alone. `known` is what this
/// coordinator took, and `undo` what undoes its changes: they count where somebody removed the note.
///
/// # Errors
/// Those of the server: then the annotation stays, and the next attempt goes on from there.
pub async fn bring_back(
    cluster: &Cluster,
    which: &Which,
    known: Option<&Borrowed>,
    undo: Option<&Value>,
) -> Result<(), ClusterError> {
    let Some(target) = find_borrowed(cluster, which, known).await? else {
        cluster.tell(&format!("{} is gone; there is nothing to restore", which.title()));
        return forget(cluster, &which.name).await;
    };
    let undo = match undo {
        Some(undo) => Some(undo.clone()),
        None => kept_undo(cluster, &target).await?,
    };
    if let Some(undo) = undo {
        let scaled_up = |b: &&Borrowed| b.original == target.replicas && !b.is_whole();
        if let Some(borrowed) = target.borrowed.as_ref().filter(scaled_up) {
            // Pods with the new arguments hold the GPUs that those with the former ones need: a rolling update would wait for ever.
            target.scale(cluster, borrowed.kept).await?;
        }
        let force = Apply { force: true, dry_run: false };
        cluster.apply(&target.api(), target.kind.plural, &target.name, &undo, force).await?;
        target.disown(cluster).await?;
        say(cluster, &target, Step::RolledBack, &format!("{} has its former arguments again", target.title())).await;
        if let Some(target) = find_borrowed(cluster, which, known).await? {
            return release(cluster, &target).await;
        }
    }
    release(cluster, &target).await
}

/// The target, borrowed as it says itself, or else as it is known.
async fn find_borrowed(
    cluster: &Cluster,
    which: &Which,
    known: Option<&Borrowed>,
) -> Result<Option<Target>, ClusterError> {
    let target = Target::find(cluster, which).await?;
    Ok(target.map(|target| Target { borrowed: target.borrowed.clone().or(known.cloned()), ..target }))
}

/// Gives the target its scale back, and takes away what was noted.
///
/// # Errors
/// Those of the server: then the annotation stays, and the next attempt goes on from there.
pub async fn release(cluster: &Cluster, target: &Target) -> Result<(), ClusterError> {
    scale_back(cluster, target).await?;
    // The arguments as they were go before the note: whoever finds the note must not find arguments of an older run.
    forget(cluster, &target.name).await?;
    if target.borrowed.is_some() { target.note(cluster, None).await } else { Ok(()) }
}

/// Asks for the pods that a borrowed target had, unless somebody else has decided meanwhile.
pub async fn scale_back(cluster: &Cluster, target: &Target) -> Result<(), ClusterError> {
    let Some(Borrowed { original, kept, run, .. }) = target.borrowed.as_ref().filter(|b| !b.is_whole()) else {
        return Ok(());
    };
    let says = if target.replicas == *kept {
        target.scale(cluster, *original).await?;
        format!("{} is scaled back to {original}", target.title())
    } else if target.replicas != *original {
        format!("{} was scaled to {} meanwhile, and stays there", target.title(), target.replicas)
    } else {
        return Ok(());
    };
    let fewer = if *kept == 0 { "nothing".to_owned() } else { format!("with {kept} of {original} pods") };
    let took =
        since(run, clock::timestamp()).map_or(String::new(), |took| format!("; it had served {fewer} for {took}"));
    say(cluster, target, Step::GivenBack, &(says + &took)).await;
    Ok(())
}

async fn forget(cluster: &Cluster, target: &str) -> Result<(), ClusterError> {
    cluster.delete::<ConfigMap>(&own_name(target)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::kinds::KINDS;

    #[test]
    fn former_arguments_that_somebody_changed_are_not_brought_back() {
        let undo =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "engine", "args": ["--seed", "1"]}]}}}});
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "chat", "annotations": {"autotune/undo-sha256": sha256(undo.to_string().as_bytes())}},
            "spec": {"template": {"spec": {"containers": [{"name": "engine"}]}}},
        });
        let kind = KINDS.into_iter().find(|known| known.name == "Deployment").unwrap();
        let target = Target::of(kind, object, None).unwrap();
        let holding = |text| ConfigMap { data: Some([(UNDO.to_owned(), text)].into()), ..Default::default() };
        let kept = |text: String| undo_of(&holding(text), &target);
        assert_eq!(kept(undo.to_string()), Some(Some(undo.clone())));
        assert_eq!(kept(undo.to_string().replace("--seed", "--host")), None);
        assert_eq!(undo_of(&ConfigMap::default(), &target), Some(None), "nothing was kept");
    }

    #[test]
    fn names_fit_and_tell_the_time() {
        let long = "a-deployment-with-a-name-that-is-much-longer-than-most-people-would-ever-choose";
        assert_eq!(own_name(long).len(), "autotune-".len() + 44);
        assert_ne!(own_name(long), own_name(&format!("{long}-2")), "a cut would have them share a Job");
        assert_eq!(own_name("chat"), "autotune-chat");
        let begun: Timestamp = "2026-11-22T10:00:00Z".parse().unwrap();
        let later: Timestamp = "2026-11-22T10:12:30Z".parse().unwrap();
        assert_eq!(since(&run_name(begun), later), Some(Seconds(750.0)));
        assert_eq!(since("by hand", later), None);
    }
}
