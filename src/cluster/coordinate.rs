//! One run from the outside: borrow the GPU, let the worker tune, give the GPU back, with better arguments if that is asked for.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::api::{Apply, Cluster, ClusterError, Patch};
use super::apply::{Change, change, likely_change};
use super::borrow::{
    BATCH, CORE, LETTERS, end_worker, give_back, keep_undo, kept_undo, own_name, release, scale_back, take,
};
use super::events::{Step, say};
use super::follow::{Ended, Watch, follow};
use super::indexed::{introduce, workers};
use super::lease::Lease;
use super::owners::{gitops, obstacle};
use super::place::{nodes, place};
use super::record::{begin, end, keep_outcome, kept_outcome, record};
use super::request::{Arguments, Done, Request, config_map};
use super::rights::{check, needed, scaling_rights};
use super::rollout::{replaced, standing, unsettled};
use super::target::{Borrowed, RUN, Target, Which};
use super::template::template;
use super::worker::{Order, TEMPLATE, digest, left_out, worker};
use crate::export::render::yaml;
use crate::report::{Outcome, shell_quoted};
use crate::settings::Plan as Session;
use crate::space::Space;

/// Pods of an engine that the worker never started have so long to become ready.
pub const STARTS_WITHIN: Duration = Duration::from_secs(1_200);
/// An engine in its own pod may take so many times as long as the worker's slowest start: caches are cold, images are pulled.
const SLOWER: f64 = 4.0;

/// What a run would do.
pub struct Plan {
    pub target: Target,
    /// What will be noted on it.
    pub borrowed: Borrowed,
    /// The worker; `None` if that of an earlier coordinator is still there.
    pub job: Option<Value>,
    /// The tool that keeps the target as a repository says.
    pub gitops: Option<&'static str>,
    /// The points that may come out of it.
    pub space: Space,
    /// How the same run ended before, if it did; it is not begun again.
    pub ended: Option<Ended>,
}

/// Looks at everything without touching anything.
///
/// # Errors
/// What is in the way, and what to do about it.
pub async fn plan(cluster: &Cluster, request: &Request, session: &Session) -> Result<Plan, ClusterError> {
    let name = &request.which.name;
    let applies = request.apply.is_some();
    let may = check(cluster, &needed(&request.which, applies, request.order.workers.into())).await;
    may.map_err(|missing| match missing {
        ClusterError::Wrong(why) if name.len() > LETTERS => ClusterError::Wrong(format!(
            "{why}. Names of more than {LETTERS} letters are shortened with a digest: `autotune job render` writes such a Role"
        )),
        missing => missing,
    })?;
    let target = Target::read(cluster, &request.which).await?;
    check(cluster, &scaling_rights(&target)).await?;
    let labels = target.labels()?;
    if labels.iter().all(|(key, value)| cluster.site.labels.get(key) == Some(value)) {
        return Err(ClusterError::Wrong(format!(
            "the worker would have the labels of {} (--labels), and its Services would send it their traffic: leave them out",
            target.title()
        )));
    }
    warn_of_services(cluster, &target).await?;
    let record = record(cluster, request).await?;
    let mut ended = record.as_ref().and_then(|record| record.ended(target.borrowed.is_some()));
    let pods = if ended.is_none() { refuse(cluster, &target, request).await? } else { Vec::new() };
    let gitops = gitops(&target);
    if let (Some(force), None, None, None) = (request.apply, gitops, &target.borrowed, &ended) {
        rehearse_apply(cluster, &target, request, session, force).await?;
    }
    // A run that did not come to its end goes on under its name, and with its worker.
    let run = record.map_or_else(|| request.order.run.clone(), |record| record.run);
    let fresh = Borrowed { original: target.replicas, kept: request.keep, run, nodes: nodes(&pods) };
    let borrowed = target.borrowed.clone().unwrap_or(fresh);
    let there = match target.borrowed {
        Some(_) => cluster.find(BATCH, "jobs", &own_name(name)).await?,
        None => None,
    };
    let goes_on = there.filter(|job| job["metadata"]["annotations"][RUN] == borrowed.run.as_str());
    if let Some(job) = &goes_on {
        // It may have more of them than we were asked for.
        check(cluster, &needed(&request.which, applies, workers(job))).await?;
    }
    if target.borrowed.is_some() && ended.is_none() {
        ended = kept_outcome(cluster, name, &borrowed.run).await?.map(Ended::found);
    }
    let job = if goes_on.is_some() || ended.is_some() {
        None
    } else {
        match new_worker(cluster, &target, &borrowed, request).await {
            Ok(job) => Some(job),
            // Nobody else gives it back.
            Err(ClusterError::Wrong(because)) if target.borrowed.is_some() => {
                ended = Some(Ended { outcome: None, because });
                None
            }
            Err(error) => return Err(error),
        }
    };
    Ok(Plan { target, borrowed, job, gitops, space: session.space.clone(), ended })
}

/// Says which Services would send the worker their traffic for the labels of `--labels`, or that this cannot be seen.
async fn warn_of_services(cluster: &Cluster, target: &Target) -> Result<(), ClusterError> {
    if cluster.site.labels.is_empty() {
        return Ok(());
    }
    match cluster.read_all::<Service>().await {
        Ok(services) => {
            for (service, selector) in services.iter().filter_map(|s| Some((s, cluster.site.selector_of(s)?))) {
                cluster.tell(&format!(
                    "warning: the Service {} selects pods by labels that the worker has too (--labels): requests to it would reach the \
worker and fail; leave out one of {}",
                    service.name_any(),
                    selector.keys().cloned().collect::<Vec<_>>().join(", "),
                ));
            }
            Ok(())
        }
        Err(ClusterError::Refused { .. }) => {
            let of_pods = target.object["spec"]["template"]["metadata"]["labels"].as_object().into_iter().flatten();
            let shared =
                of_pods.filter(|(key, value)| value.as_str().is_some_and(|value| cluster.site.has(key, value)));
            let shared = shared.map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(", ");
            if !shared.is_empty() {
                cluster.tell(&format!(
                    "warning: the worker has the label {shared} of {} (--labels); a Service that selects by that alone would send it \
traffic, and without the right to list services nobody looked for one",
                    target.title()
                ));
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// A worker that the cluster would take.
async fn new_worker(
    cluster: &Cluster,
    target: &Target,
    borrowed: &Borrowed,
    request: &Request,
) -> Result<Value, ClusterError> {
    let order = Order { run: borrowed.run.clone(), ..request.order.clone() };
    let made_of = template(cluster, target, borrowed.kept).await?;
    let mut job = worker(target, &made_of, &order, &cluster.site)?;
    let left_out = left_out(target, &made_of, order.container.as_deref())?;
    if !left_out.is_empty() {
        cluster.tell(&format!("the worker has the engine alone, without the containers {}", left_out.join(", ")));
    }
    place(cluster, borrowed, &mut job).await?;
    ask_for_pod(cluster, &job, request.order.claim.as_deref()).await?;
    Ok(job)
}

/// Asks whether the cluster would take the worker's pod, while the service still serves. Without the rights to ask, that is seen later.
async fn ask_for_pod(cluster: &Cluster, job: &Value, claim: Option<&str>) -> Result<(), ClusterError> {
    let refused = |what: &str| {
        Err(ClusterError::Wrong(format!("the worker's pod would be refused: {what}; nothing was touched")))
    };
    if let Some(claim) = claim {
        match cluster.get(CORE, "persistentvolumeclaims", claim).await {
            Err(error) if error.is_not_found() => {
                return refused(&format!("there is no PersistentVolumeClaim {claim} (--results)"));
            }
            Ok(_) | Err(ClusterError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let template = &job["spec"]["template"];
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["generateName"] = format!("{}-", job["metadata"]["name"].as_str().unwrap_or_default()).into();
    match cluster.rehearse(CORE, "pods", &pod).await {
        // A quota counts what the target still holds; a webhook, or our own role, may know no rehearsal.
        Err(ClusterError::Refused { message, .. })
            if !["exceeded quota", "does not support dry run", "cannot create resource \"pods\""]
                .iter()
                .any(|known| message.contains(known)) =>
        {
            refused(&message)
        }
        Ok(()) | Err(ClusterError::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Refuses a target that would not come back as it was.
async fn refuse(cluster: &Cluster, target: &Target, request: &Request) -> Result<Vec<Value>, ClusterError> {
    let (title, original, wrong) = (target.title(), target.original(), |why| Err(ClusterError::Wrong(why)));
    if target.borrowed.as_ref().is_some_and(Borrowed::is_whole) {
        return wrong(left_changed(cluster, target, &request.which));
    }
    if original == 0 {
        return wrong(format!("{title} is scaled to 0: there is no GPU to borrow"));
    }
    if request.keep >= original {
        return wrong(format!("{title} has {original} pods, so keeping {} of them frees no GPU", request.keep));
    }
    if target.borrowed.is_some() {
        return Ok(Vec::new());
    }
    if let Some(why) = (target.kind.unlendable)(&target.scaled()) {
        return wrong(format!("{title} {why}"));
    }
    if let Some(why) = obstacle(cluster, target).await? {
        return wrong(why);
    }
    if request.apply.is_some()
        && let Some(why) = (target.kind.stuck)(&target.scaled(), request.keep, target.replicas)
    {
        return wrong(format!("{title} {why}"));
    }
    settled(cluster, target).await
}

/// The pods of a target that serves with all of them, in its newest version.
pub(super) async fn settled(cluster: &Cluster, target: &Target) -> Result<Vec<Value>, ClusterError> {
    let pods = target.pods(cluster).await?;
    let Some(why) = unsettled(target, &pods) else { return Ok(pods) };
    let why = [Some(why), pods.iter().find_map(standing)].into_iter().flatten().collect::<Vec<_>>().join("; ");
    Err(ClusterError::Wrong(format!(
        "{} is not settled: {why}. After a run only pods of its newest template come back, and they may not serve: wait for its \
rollout, or undo it (`kubectl rollout status`, `kubectl rollout undo`)",
        target.title()
    )))
}

/// What is said of a target that a comparison left with one of its values.
pub(super) fn left_changed(cluster: &Cluster, target: &Target, which: &Which) -> String {
    let by_hand = which.restore(&cluster.namespace);
    format!(
        "{} was changed by a comparison that did not come to its end: `{by_hand}` brings it back first",
        target.title()
    )
}

/// Asks the server what it would say of new arguments, while that costs nothing.
async fn rehearse_apply(
    cluster: &Cluster,
    target: &Target,
    request: &Request,
    session: &Session,
    force: bool,
) -> Result<(), ClusterError> {
    let Some(likely) = likely_change(target, request.order.container.as_deref(), session)? else { return Ok(()) };
    send(cluster, target, &likely.fields, Apply { force, dry_run: true }).await
}

/// Server-side apply, with a remedy for conflicts.
async fn send(cluster: &Cluster, target: &Target, fields: &Value, how: Apply) -> Result<(), ClusterError> {
    match cluster.apply(&target.api(), target.kind.plural, &target.name, fields, how).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_conflict() => Err(ClusterError::Wrong(format!(
            "{} cannot be given new arguments: {error}. --force-conflicts takes these fields over, and without --apply the arguments go \
into your own manifest with `autotune export`",
            target.title()
        ))),
        Err(error) => Err(error),
    }
}

/// Does what was planned. Whatever happens, also when `stop` ends, the target gets its scale back.
///
/// # Errors
/// What went wrong; if giving back is what failed, that, with the way to do it by hand.
pub async fn run(
    cluster: &Cluster,
    plan: &Plan,
    request: &Request,
    stop: impl Future<Output = ()>,
) -> Result<Done, ClusterError> {
    let (impatient, cluster) = (cluster, &cluster.patient());
    if let (Some(ended), None) = (&plan.ended, &plan.target.borrowed) {
        cluster.tell("this run came to its end before, and is not begun again");
        let own = own_name(&request.which.name);
        // A coordinator that was killed at its end left it.
        if Lease::is_there(cluster, &own).await?
            && let Ok(lease) = Lease::take(cluster, &own, &request.holder).await
        {
            lease.release(cluster).await?;
        }
        return Ok(Done { ended: ended.clone(), arguments: left_by(ended, plan, request) });
    }
    let work = Box::pin(async {
        tokio::select! {
            done = borrowed(cluster, plan, request) => done,
            () = stop => Err(ClusterError::Stopped),
        }
    });
    holding(impatient, &request.which, &request.holder, work, async |done| {
        end(cluster, request, done).await;
        give_back(cluster, &request.which, Some(&plan.borrowed)).await
    })
    .await
}

/// Works on a target while its lease is held, and gives back, whatever the work ends with.
///
/// # Errors
/// What went wrong; if giving back is what failed, that, with the way to do it by hand.
pub(super) async fn holding<T>(
    impatient: &Cluster,
    which: &Which,
    holder: &str,
    work: impl Future<Output = Result<T, ClusterError>>,
    gives_back: impl AsyncFnOnce(&Result<T, ClusterError>) -> Result<(), ClusterError>,
) -> Result<T, ClusterError> {
    let cluster = &impatient.patient();
    let lease = Lease::take(cluster, &own_name(&which.name), holder).await?;
    let done = tokio::select! {
        done = work => done,
        // Whoever has it now gives back.
        lost = keep(cluster, &lease) => return Err(lost),
    };
    // Somebody may have taken over since the last renewal. Nobody can while the server is away.
    if let Err(lost @ ClusterError::Wrong(_)) = lease.renew(impatient).await {
        return Err(lost);
    }
    // The worker may take minutes to end, longer than a lease that nobody renews.
    let given_back = tokio::select! {
        given_back = gives_back(&done) => given_back,
        lost = keep(cluster, &lease) => return Err(lost),
    };
    let released = lease.release(cluster).await;
    if let Err(error) = given_back.and(released) {
        // A policy that asks for labels asks restore for them too.
        let marks: String = cluster.site.marks().iter().map(|word| format!(" {}", shell_quoted(word))).collect();
        let (by_hand, title) = (which.restore(&cluster.namespace) + &marks, which.title());
        let before = done.err().map_or(String::new(), |why| format!("{why}; and "));
        return Err(ClusterError::Held(format!("{before}{title} was not given back ({error}); `{by_hand}` does it")));
    }
    done
}

/// What a run that ended before left of the arguments that it was to set: it may have brought the former ones back.
fn left_by(ended: &Ended, plan: &Plan, request: &Request) -> Arguments {
    let outcome = ended.outcome.as_ref().filter(|_| request.apply.is_some());
    match outcome.map(|outcome| change(&plan.target, request.order.container.as_deref(), outcome, &plan.space)) {
        None | Some(Ok(None)) => Arguments::Left,
        Some(Ok(Some(change))) => for_the_user(&change, "the run ended without them".to_owned()),
        Some(Err(why)) => Arguments::Patch(String::new(), why.to_string()),
    }
}

/// A change that its owner has to make.
fn for_the_user(change: &Change, why: String) -> Arguments {
    Arguments::Patch(yaml(&change.fields, 0) + "\n", why)
}

/// Renews the lease until somebody else has it. What else goes wrong, a run's own steps meet too, and say what to do about it.
async fn keep(cluster: &Cluster, lease: &Lease) -> ClusterError {
    loop {
        tokio::time::sleep(Duration::from_secs(super::lease::SECONDS.into()) / 4).await;
        if let Err(lost @ ClusterError::Wrong(_)) = lease.renew(cluster).await {
            return lost;
        }
    }
}

async fn borrowed(cluster: &Cluster, plan: &Plan, request: &Request) -> Result<Done, ClusterError> {
    let (target, name) = (&plan.target, &request.which.name);
    let (own, made) = (own_name(name), plan.job.is_some());
    if let Some(job) = &plan.job {
        // What an earlier run left would be in the way. The worker is made first and waits: what a server or a policy refuses is refused
        // before the service is touched.
        cluster.delete::<Job>(&own).await?;
        cluster.delete::<ConfigMap>(&own).await?;
        cluster.make(&config_map(&own, name, &plan.borrowed.run, Some(request.files.clone()))).await?;
        create_worker(cluster, job).await?;
    }
    begin(cluster, request, &plan.borrowed).await?;
    let ended = match &plan.ended {
        Some(ended) => {
            cluster.tell(match ended.outcome {
                Some(_) => "the outcome of this run is there already",
                None => "this run cannot go on, and gives the GPU back",
            });
            ended.clone()
        }
        None => {
            if !made {
                cluster.tell(&format!("the run {} goes on with its worker, Job {own}", plan.borrowed.run));
            }
            let worker = cluster.find(BATCH, "jobs", &own).await?.unwrap_or_default();
            introduce(cluster, &worker).await?;
            take(cluster, target, &plan.borrowed, request.patience).await?;
            cluster.patch(BATCH, "jobs", &own, &Patch::Merge(json!({"spec": {"suspend": false}}))).await?;
            let pods = match workers(&worker) {
                1 => String::new(),
                workers => format!(" with {workers} pods, of which that of index 0 leads"),
            };
            say(cluster, target, Step::Tuning, &format!("the worker is Job {own}{pods}")).await;
            let made_from = made_from(&worker).unwrap_or_default().to_owned();
            let mut watch = Watch::new(&request.which, &plan.borrowed, made_from);
            let ended = follow(cluster, &mut watch, request.patience).await?;
            if let Some(outcome) = &ended.outcome {
                keep_outcome(cluster, request, &plan.borrowed, outcome).await;
                say(cluster, target, Step::Tuned, &outcome.because).await;
            }
            ended
        }
    };
    let arguments = match (&ended.outcome, request.apply) {
        (Some(outcome), Some(force)) => set_arguments(cluster, plan, request, outcome, force).await?,
        _ => Arguments::Left,
    };
    Ok(Done { ended, arguments })
}

/// The digest of what a worker was made from; none of one that is gone.
fn made_from(worker: &Value) -> Option<&str> {
    worker["metadata"]["annotations"][TEMPLATE].as_str()
}

/// Changes the arguments, scales up, and waits until the target serves with them; otherwise brings the former ones back.
async fn set_arguments(
    cluster: &Cluster,
    plan: &Plan,
    request: &Request,
    outcome: &Outcome,
    force: bool,
) -> Result<Arguments, ClusterError> {
    let name = &request.which.name;
    let worker = cluster.find(BATCH, "jobs", &own_name(name)).await?.unwrap_or_default();
    end_worker(cluster, name).await?;
    let target = Target::read(cluster, &request.which).await?;
    let change = match change(&target, request.order.container.as_deref(), outcome, &plan.space) {
        Ok(Some(change)) => change,
        // An earlier coordinator changed them, and did not come to prove them.
        Ok(None) if kept_undo(cluster, &target).await?.is_some() => {
            return prove(cluster, plan, request, outcome).await;
        }
        Ok(None) => {
            cluster.tell(&format!("{} has these arguments already", target.title()));
            return Ok(Arguments::Left);
        }
        Err(why) => return Ok(Arguments::Patch(String::new(), why.to_string())),
    };
    if !change.warnings.is_empty() {
        cluster.tell(&change.warnings);
    }
    if let Some(tool) = plan.gitops {
        let why = format!("{tool} keeps {} as a repository says, so the change belongs there", target.title());
        return Ok(for_the_user(&change, why));
    }
    if made_from(&worker).is_some_and(|before| before != digest(&target)) {
        let why = format!("{} was edited while the worker measured what it was before", target.title());
        return Ok(for_the_user(&change, why));
    }
    cluster.tell(&change.diff);
    keep_undo(cluster, &target, Some(&change.undo)).await?;
    if let Err(refused) = send(cluster, &target, &change.fields, Apply { force, dry_run: false }).await {
        return match refused {
            ClusterError::Wrong(_) | ClusterError::Refused { .. } => {
                keep_undo(cluster, &target, None).await?;
                Ok(for_the_user(&change, refused.to_string()))
            }
            // Perhaps they were changed, and only the answer was lost: giving back brings the former ones back.
            away => Err(away),
        };
    }
    prove(cluster, plan, request, outcome).await
}

/// Scales up with the new arguments, and waits whether the target serves with them. If not, giving back brings the former ones back.
async fn prove(
    cluster: &Cluster,
    plan: &Plan,
    request: &Request,
    outcome: &Outcome,
) -> Result<Arguments, ClusterError> {
    let which = &request.which;
    let mut target = Target::read(cluster, which).await?;
    target.borrowed.get_or_insert_with(|| plan.borrowed.clone());
    say(cluster, &target, Step::Applied, &format!("{} has new arguments", target.title())).await;
    scale_back(cluster, &target).await?;
    let slowest = outcome.slowest_start.map_or(Duration::ZERO, |start| Duration::from_secs_f64(start.0 * SLOWER));
    match replaced(cluster, which, slowest.max(request.patience), &[]).await? {
        None => {
            cluster.tell(&format!("{} serves with its new arguments", target.title()));
            // From here on the new arguments stay.
            release(cluster, &Target::read(cluster, which).await?).await?;
            Ok(Arguments::Applied)
        }
        Some(why) => Ok(Arguments::RolledBack(why)),
    }
}

/// Waits until a target that was given back serves again, and so long at most; whether it does. One that somebody deleted need not.
pub async fn serves_again(cluster: &Cluster, which: &Which, within: Duration) -> Result<bool, ClusterError> {
    let cluster = &cluster.patient();
    if Target::find(cluster, which).await?.is_none() {
        return Ok(true);
    }
    match replaced(cluster, which, within, &[]).await? {
        None => {
            cluster.tell(&format!("{} serves again", which.title()));
            Ok(true)
        }
        Some(why) => {
            cluster.tell(&format!("{} does not serve yet: {why}", which.title()));
            Ok(false)
        }
    }
}

/// Makes the Job; one of that name may still be on its way out.
async fn create_worker(cluster: &Cluster, job: &Value) -> Result<(), ClusterError> {
    let begun = crate::clock::ticks();
    loop {
        match cluster.create(BATCH, "jobs", job).await {
            Err(error) if error.is_conflict() && begun.elapsed() < Duration::from_secs(60) => {
                tokio::time::sleep(super::borrow::LOOK).await;
            }
            made => return made,
        }
    }
}

/// Gives a target back that an earlier run left borrowed, and takes away what it left.
///
/// # Errors
/// Those of the server; a run that is still at it.
pub async fn restore(cluster: &Cluster, which: &Which, holder: &str) -> Result<(), ClusterError> {
    let own = own_name(&which.name);
    let target = Target::find(cluster, which).await?;
    let borrowed = target.as_ref().is_some_and(|target| target.borrowed.is_some());
    let left = cluster.find(BATCH, "jobs", &own).await?.is_some()
        || cluster.read::<ConfigMap>(&own).await?.is_some()
        || Lease::is_there(cluster, &own).await?;
    if !borrowed && !left {
        cluster.tell(&format!("{} is not borrowed: nothing to restore", which.title()));
        return Ok(());
    }
    let cluster = &cluster.patient();
    let lease = Lease::take(cluster, &own, holder).await?;
    tokio::select! {
        given_back = give_back(cluster, which, None) => given_back?,
        lost = keep(cluster, &lease) => return Err(lost),
    }
    lease.release(cluster).await
}
