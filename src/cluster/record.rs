//! What stays of a run in the cluster: its outcome, and who asked for it. So what was asked for once is not done twice.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::json;

use super::api::{Cluster, ClusterError, Patch};
use super::borrow::{CORE, outcome_name};
use super::follow::Ended;
use super::request::{Done, Request, config_map};
use super::target::{Borrowed, RUN};
use crate::printable::read_json;
use crate::report::{Outcome, pretty_json};

/// The annotation of the outcome's ConfigMap that says who asked for the newest run.
const ASKED: &str = "autotune/asked-by";
/// The annotation that names that run.
const ASKED_RUN: &str = "autotune/asked-run";
/// The annotation that says that it came to its end, and why, where it found nothing.
const ENDED: &str = "autotune/ended";

/// What is known of the run that the same coordinator was asked for before it died.
pub struct Record {
    /// The run, whose journal's folder is called after it.
    pub run: String,
    outcome: Option<Outcome>,
    because: Option<String>,
}

impl Record {
    /// How the run ended, if it did. One that found something and `is_borrowed` no more was killed between the two.
    pub fn ended(&self, is_borrowed: bool) -> Option<Ended> {
        let found = self.outcome.is_some() && !is_borrowed;
        if self.because.is_none() && !found {
            return None;
        }
        Some(Ended { outcome: self.outcome.clone(), because: self.because.clone().unwrap_or_default() })
    }
}

/// What the one who asks was told before; nothing where it asks for the first time.
pub async fn record(cluster: &Cluster, request: &Request) -> Result<Option<Record>, ClusterError> {
    let Some(once) = &request.once else { return Ok(None) };
    let kept: ConfigMap = cluster.read(&outcome_name(&request.which.name)).await?.unwrap_or_default();
    let note = |key: &str| kept.annotations().get(key).map(String::as_str);
    let Some(run) = note(ASKED_RUN).filter(|_| note(ASKED) == Some(once.as_str())) else { return Ok(None) };
    let outcome = outcome_of(&kept, run);
    Ok(Some(Record { run: run.to_owned(), outcome, because: note(ENDED).map(str::to_owned) }))
}

/// Notes who asks for a run that begins.
pub async fn begin(cluster: &Cluster, request: &Request, borrowed: &Borrowed) -> Result<(), ClusterError> {
    let Some(once) = &request.once else { return Ok(()) };
    let notes = [(ASKED, Some(once.as_str())), (ASKED_RUN, Some(&borrowed.run)), (ENDED, None)];
    put(cluster, request, borrowed, notes.into(), None).await
}

/// Notes that a run came to its end. What a second attempt may mend is no end: a server that was away, a coordinator that was stopped.
pub async fn end(cluster: &Cluster, request: &Request, done: &Result<Done, ClusterError>) {
    let because = match done {
        Ok(done) => done.ended.because.clone(),
        Err(ClusterError::Wrong(why)) => why.clone(),
        Err(_) => return,
    };
    if request.once.is_some() {
        let name = outcome_name(&request.which.name);
        let patch = Patch::Merge(json!({"metadata": {"annotations": {ENDED: because}}}));
        if let Err(error) = cluster.patch(CORE, "configmaps", &name, &patch).await {
            cluster.tell(&format!("ConfigMap {name} does not say that this run has ended: {error}"));
        }
    }
}

/// Keeps the outcome wherever it can, and says where: in `--out`, in a ConfigMap, in our log. The ConfigMap outlives this coordinator's pod.
pub async fn keep_outcome(cluster: &Cluster, request: &Request, borrowed: &Borrowed, outcome: &Outcome) {
    let name = outcome_name(&request.which.name);
    let mut places = Vec::new();
    match (request.found)(outcome) {
        Ok(file) => places.push(file),
        Err(why) => cluster.tell(&why),
    }
    let log = || cluster.tell(&serde_json::to_string(outcome).unwrap_or_default());
    // A server that is away may be waited for, and whoever is stopped meanwhile deletes the worker.
    if request.logs {
        log();
    }
    let data = [("outcome.json".to_owned(), pretty_json(outcome))];
    let kept = put(cluster, request, borrowed, [(RUN, Some(borrowed.run.as_str()))].into(), Some(data.into())).await;
    match &kept {
        Ok(()) => places.push(format!("ConfigMap {name}")),
        Err(error) => cluster.tell(&format!("the cluster does not keep the outcome in ConfigMap {name}: {error}")),
    }
    places.extend(request.order.claim.as_ref().map(|claim| format!("folder {} of the claim {claim}", borrowed.run)));
    if kept.is_err() && !request.logs {
        log();
    }
    places.extend((kept.is_err() || request.logs).then(|| "this log".to_owned()));
    cluster.tell(&format!("the outcome is in {}", places.join(", ")));
}

pub async fn kept_outcome(cluster: &Cluster, target: &str, run: &str) -> Result<Option<Outcome>, ClusterError> {
    let kept = cluster.read(&outcome_name(target)).await?;
    Ok(kept.and_then(|kept| outcome_of(&kept, run)))
}

fn outcome_of(kept: &ConfigMap, run: &str) -> Option<Outcome> {
    let is_its = kept.annotations().get(RUN).is_some_and(|of| of == run);
    read_json(kept.data.as_ref()?.get("outcome.json").filter(|_| is_its)?.as_bytes()).ok()
}

/// Changes the ConfigMap of the outcome, or makes it: at no moment it is without the last one. A note without a text is taken away.
async fn put(
    cluster: &Cluster,
    request: &Request,
    borrowed: &Borrowed,
    notes: BTreeMap<&str, Option<&str>>,
    data: Option<BTreeMap<String, String>>,
) -> Result<(), ClusterError> {
    let name = outcome_name(&request.which.name);
    let mut fields = json!({"metadata": {"annotations": notes}});
    if let Some(data) = &data {
        fields["data"] = json!(data);
    }
    // One that an earlier run left may lack them.
    cluster.site.mark(&mut fields);
    match cluster.patch(CORE, "configmaps", &name, &Patch::Merge(fields)).await {
        Err(error) if error.is_not_found() => {
            let mut object = config_map(&name, &request.which.name, &borrowed.run, data);
            let notes = notes.into_iter().filter_map(|(key, note)| Some((key.to_owned(), note?.to_owned())));
            object.metadata.annotations = Some(notes.collect());
            cluster.make(&object).await
        }
        done => done.map(drop),
    }
}
