//! Whole runs over a cluster in memory ([`super::world`]): what is called, what is said, and that the scale is right at the end.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::api::{Cluster, ClusterError};
use super::borrow::{outcome_name, own_name};
use super::coordinate::{STARTS_WITHIN, plan, restore, run, serves_again};
use super::kinds::KINDS;
use super::replicas::requests_by_pod;
use super::request::{Arguments, Done, Request};
use super::site::Site;
use super::target::Which;
use super::vary::{self, Varying, Wanted};
use super::worker::Order;
use super::world::{Fault, World};
use crate::clock;
use crate::report::{Outcome, last_words};
use crate::settings::Plan as Session;

fn request(kind: &str, name: &str) -> Request {
    let kind = KINDS.into_iter().find(|known| known.name == kind).unwrap();
    Request {
        order: Order {
            name: own_name(name),
            files: vec![("space.toml".into(), "space.toml".into())],
            workers: 1,
            container: None,
            run: "20261122-100000".into(),
            image: "autotune:1".into(),
            claim: None,
            deadline_seconds: 7_200,
            words: Vec::new(),
        },
        which: Which { kind, name: name.to_owned(), part: None },
        files: [("space.toml".to_owned(), "[slo]".to_owned())].into(),
        holder: "us".into(),
        keep: 0,
        apply: None,
        patience: Duration::from_secs(600),
        once: None,
        found: Arc::new(|_| Ok("out/outcome.json".to_owned())),
        logs: false,
    }
}

/// A Deployment or StatefulSet of one engine a pod.
fn target(kind: &str, name: &str, replicas: u64) -> Value {
    let engine = json!({
        "name": "engine", "image": "vllm:1", "command": ["vllm", "serve", "m"], "args": ["--max-num-seqs", "8"],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    });
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [engine]}},
        },
    })
}

fn outcome(status: &str) -> String {
    let best = json!({
        "parameters": {"max-num-seqs": 16}, "arguments": [], "estimated_rate": 2.0, "certified_rate": 2.0, "confidence": 0.9, "binding": null,
    });
    json!({
        "version": 1, "status": status, "because": "the budget is too small", "simulated": false, "model": null, "engine_version": null, "gpus": [],
        "space_file": "q.toml", "seed": 1, "baseline": null, "best": best, "gain": null, "left_out": [],
        "cost": {"launches": 1, "probes": 1, "engine_seconds": 1.0},
    })
    .to_string()
}

type Shared = Arc<Mutex<World>>;

/// A cluster with so many GPUs and this target, whose worker certifies an answer.
fn bed(gpus: usize, plural: &str, object: Value) -> (Cluster, Shared) {
    let (cluster, world) = World::new(gpus);
    {
        let mut world = world.lock().unwrap();
        world.put(plural, object);
        world.worker = (0, outcome("certified"));
    }
    (cluster, world)
}

fn chat() -> (Cluster, Shared) {
    bed(1, "deployments", target("Deployment", "chat", 1))
}

fn session() -> Session {
    crate::settings::parse("q.toml", include_str!("../../search-spaces/quickstart.toml")).unwrap()
}

/// The Job that would be made.
async fn planned(cluster: &Cluster, request: &Request) -> Value {
    plan(cluster, request, &session()).await.unwrap().job.unwrap()
}

async fn whole(cluster: &Cluster, request: &Request) -> Result<Done, ClusterError> {
    let plan = plan(cluster, request, &session()).await?;
    run(cluster, &plan, request, std::future::pending()).await
}

/// What a run that must not begin says, with nothing touched.
async fn refused(cluster: &Cluster, world: &Shared, request: &Request) -> String {
    let said = whole(cluster, request).await.err().expect("it is refused").to_string();
    assert!(world.lock().unwrap().writes.is_empty(), "nothing is touched: {:?}", world.lock().unwrap().writes);
    said
}

fn scale(world: &Shared, path: &str) -> u64 {
    world.lock().unwrap().objects[path]["spec"]["replicas"].as_u64().unwrap()
}

fn said(world: &Shared, words: &str) -> bool {
    world.lock().unwrap().said.iter().any(|said| said.contains(words))
}

/// The annotations of a target that is borrowed.
const OURS: [&str; 5] =
    ["autotune/original-replicas", "autotune/run", "autotune/kept-replicas", "autotune/nodes", "autotune/undo-sha256"];

/// What of a run is left, but for its outcome.
fn left(world: &Shared, path: &str) -> Vec<String> {
    let world = world.lock().unwrap();
    let ours = |path: &&String| {
        ["jobs/", "configmaps/", "leases/"].iter().any(|kind| path.starts_with(kind)) && !path.ends_with("-outcome")
    };
    let notes = world.objects[path]["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let notes = notes.into_iter().map(|(key, _)| key).filter(|key| OURS.contains(&&**key));
    world.objects.keys().filter(ours).cloned().chain(notes).collect()
}

/// Makes this happen once, before the first call whose method and address hold these words.
fn at(world: &Shared, words: &'static str, mut happens: impl FnMut(&mut World) -> Option<Fault> + Send + 'static) {
    let mut done = false;
    world.lock().unwrap().before = Some(Box::new(move |world, _, call| {
        if done || !call.contains(words) {
            return None;
        }
        done = true;
        happens(world)
    }));
}

#[tokio::test(start_paused = true)]
async fn the_gpu_is_borrowed_and_given_back() {
    let (cluster, world) = chat();
    let done = whole(&cluster, &request("Deployment", "chat")).await.unwrap();
    assert!(done.ended.outcome.is_some() && done.arguments == Arguments::Left);
    assert!(
        serves_again(&cluster, &request("Deployment", "chat").which, STARTS_WITHIN).await.unwrap()
            && said(&world, "serves again")
    );
    let wanted = [
        "POST leases",
        "DELETE jobs/autotune-chat",
        "DELETE configmaps/autotune-chat",
        "POST configmaps",
        "POST jobs",
        "PATCH deployments/chat",
        "PATCH deployments/chat/scale",
        "PATCH jobs/autotune-chat",
        "PATCH configmaps/autotune-chat-outcome",
        "POST configmaps",
        "PUT leases/autotune-chat",
        "DELETE jobs/autotune-chat",
        "PATCH deployments/chat/scale",
        "DELETE configmaps/autotune-chat",
        "PATCH deployments/chat",
        "DELETE leases/autotune-chat",
    ];
    // The lease is renewed by the clock.
    let mut writes = world.lock().unwrap().writes.clone();
    writes.dedup();
    assert_eq!(writes, wanted);
    assert_eq!((scale(&world, "deployments/chat"), left(&world, "deployments/chat")), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn certified_arguments_are_applied_and_proved() {
    let (cluster, world) = chat();
    let done = whole(&cluster, &Request { apply: Some(false), ..request("Deployment", "chat") }).await.unwrap();
    assert_eq!(done.arguments, Arguments::Applied);
    let engine = world.lock().unwrap().objects["deployments/chat"]["spec"]["template"]["spec"]["containers"][0].clone();
    assert_eq!((&engine["image"], &engine["args"][1]), (&"vllm:1".into(), &"16".into()));
    assert_eq!((scale(&world, "deployments/chat"), left(&world, "deployments/chat")), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_that_deletes_the_claims_of_pods_that_go_is_refused() {
    let mut set = target("StatefulSet", "db", 1);
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "cache"}}]);
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenScaled": "Delete"});
    let (cluster, world) = bed(1, "statefulsets", set);
    let says = refused(&cluster, &world, &request("StatefulSet", "db")).await;
    assert!(
        says.contains("StatefulSet db deletes the claims of pods that it is scaled down by, and their data")
            && says.contains("to Retain"),
        "{says}"
    );
    world
        .lock()
        .unwrap()
        .edit("statefulsets/db", json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Retain"}}}));
    whole(&cluster, &request("StatefulSet", "db")).await.unwrap();
    assert_eq!(scale(&world, "statefulsets/db"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_not_asked_for_again() {
    let ours = || Request { once: Some("job-1".into()), ..request("Deployment", "chat") };
    for (code, words) in
        [(0, outcome("certified")), (6, outcome("uncertified")), (4, "the engine never started".to_owned())]
    {
        let (cluster, world) = chat();
        world.lock().unwrap().worker = (code, words);
        let first = whole(&cluster, &ours()).await.unwrap().ended;
        world.lock().unwrap().writes.clear();
        let again = whole(&cluster, &ours()).await.unwrap().ended;
        assert_eq!(again, first, "{code}");
        assert_eq!(world.lock().unwrap().writes, Vec::<String>::new(), "{code}");
        assert!(said(&world, "this run came to its end before, and is not begun again"));
        // Another Job asks for another run.
        let other = Request { once: Some("job-2".into()), ..ours() };
        whole(&cluster, &other).await.unwrap();
        assert!(world.lock().unwrap().writes.contains(&"PATCH deployments/chat/scale".to_owned()));
        assert_eq!((scale(&world, "deployments/chat"), left(&world, "deployments/chat")), (1, Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_was_stopped_goes_on_in_the_same_folder() {
    let (cluster, world) = chat();
    let first = Request { once: Some("job-1".into()), ..request("Deployment", "chat") };
    let planned = plan(&cluster, &first, &session()).await.unwrap();
    let stopped = run(&cluster, &planned, &first, tokio::time::sleep(Duration::from_secs(1))).await;
    assert!(matches!(stopped, Err(ClusterError::Stopped)));
    assert_eq!((scale(&world, "deployments/chat"), left(&world, "deployments/chat")), (1, Vec::new()));
    let mut second = Request { once: Some("job-1".into()), ..request("Deployment", "chat") };
    second.order.run = "20261122-110000".into();
    let planned = plan(&cluster, &second, &session()).await.unwrap();
    assert_eq!(planned.borrowed.run, "20261122-100000");
    assert!(planned.job.unwrap().to_string().contains("/autotune/results/20261122-100000"));
}

#[tokio::test(start_paused = true)]
async fn two_targets_with_the_same_beginning_share_nothing() {
    let long = "llama-3-1-70b-instruct-fp8-with-a-long-context-window";
    let (one, two) = (format!("{long}-eu"), format!("{long}-us"));
    let (cluster, world) = bed(2, "deployments", target("Deployment", &one, 1));
    world.lock().unwrap().put("deployments", target("Deployment", &two, 1));
    let (first, second) = (request("Deployment", &one), request("Deployment", &two));
    let (first, second) = tokio::join!(whole(&cluster, &first), whole(&cluster, &second));
    assert!(first.unwrap().ended.outcome.is_some() && second.unwrap().ended.outcome.is_some());
    for name in [one, two] {
        assert_eq!(scale(&world, &format!("deployments/{name}")), 1);
        assert!(world.lock().unwrap().objects.contains_key(&format!("configmaps/{}", outcome_name(&name))));
    }
}

#[tokio::test(start_paused = true)]
async fn targets_that_are_not_settled_are_refused() {
    let (cluster, world) = bed(1, "deployments", target("Deployment", "chat", 2));
    let says = refused(&cluster, &world, &request("Deployment", "chat")).await;
    assert!(says.contains("is not settled: 1 of 2 pods are ready"), "{says}");
    // A new pod that cannot be scheduled beside the old one, which serves.
    let (cluster, world) = chat();
    world.lock().unwrap().edit("deployments/chat", json!({"spec": {"held": 0}}));
    let says = refused(&cluster, &world, &request("Deployment", "chat")).await;
    assert!(says.contains("0 of its 1 pods have its newest template (a rollout is under way)"), "{says}");
    world.lock().unwrap().edit("deployments/chat", json!({"spec": {"held": null, "paused": true}}));
    let says = refused(&cluster, &world, &request("Deployment", "chat")).await;
    assert!(says.contains("is paused (spec.paused)") && says.contains("rollout resume"), "{says}");
    let mut set = target("StatefulSet", "db", 1);
    set["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    set["spec"]["held"] = 0.into();
    let (cluster, world) = bed(1, "statefulsets", set);
    let says = refused(&cluster, &world, &request("StatefulSet", "db")).await;
    assert!(says.contains("OnDelete, they stay until somebody deletes them"), "{says}");
}

#[tokio::test(start_paused = true)]
async fn targets_whose_pods_would_not_go_or_come_back_are_refused() {
    let ours = || request("Deployment", "chat");
    let (cluster, world) = bed(1, "deployments", target("Deployment", "chat", 0));
    let says = refused(&cluster, &world, &ours()).await;
    assert!(says.contains("Deployment chat is scaled to 0: there is no GPU to borrow"), "{says}");
    let (cluster, world) = chat();
    let says = refused(&cluster, &world, &Request { keep: 1, ..ours() }).await;
    assert!(says.contains("Deployment chat has 1 pods, so keeping 1 of them frees no GPU"), "{says}");
    let says = refused(&cluster, &world, &request("Deployment", "nobody")).await;
    assert!(says.contains("there is no Deployment nobody in the namespace default; -n names another"), "{says}");
    world.lock().unwrap().denied = true;
    let says = refused(&cluster, &world, &ours()).await;
    assert!(says.contains("missing rights in the namespace default: "), "{says}");
    assert!(says.contains("; nothing was touched. A Role must grant them"), "{says}");
    world.lock().unwrap().denied = false;
    let aim = json!({"scaleTargetRef": {"kind": "Deployment", "name": "chat"}});
    world.lock().unwrap().put("horizontalpodautoscalers", json!({"metadata": {"name": "hpa"}, "spec": aim}));
    let says = refused(&cluster, &world, &ours()).await;
    let why = "the HorizontalPodAutoscaler hpa scales Deployment chat, and would scale it up in mid-run: ";
    assert!(says.contains(why), "{says}");
    world.lock().unwrap().put("scaledobjects", json!({"metadata": {"name": "keda"}}));
    let uid = world.lock().unwrap().objects["scaledobjects/keda"]["metadata"]["uid"].clone();
    let owner = |kind: &str, name: &str, uid: &Value| json!({"metadata": {"ownerReferences": [{"kind": kind, "name": name, "uid": uid, "controller": true}]}});
    world.lock().unwrap().edit("horizontalpodautoscalers/hpa", owner("ScaledObject", "keda", &uid));
    let says = refused(&cluster, &world, &ours()).await;
    assert!(
        says.contains("KEDA's ScaledObject keda scales Deployment chat (") && says.contains("paused=true"),
        "{says}"
    );
    world.lock().unwrap().edit("deployments/chat", owner("InferenceService", "llm", &uid));
    let says = refused(&cluster, &world, &ours()).await;
    assert!(
        says.contains("Deployment chat belongs to InferenceService llm, which would scale it back: borrow from that"),
        "{says}"
    );
}

#[tokio::test(start_paused = true)]
async fn new_arguments_that_another_manager_owns_are_refused_with_the_way_to_take_them() {
    let (cluster, world) = chat();
    at(&world, "PATCH /apis/apps/v1/namespaces/default/deployments/chat?", |_| Some(Fault::Refused(409)));
    let says = refused(&cluster, &world, &Request { apply: Some(false), ..request("Deployment", "chat") }).await;
    assert!(says.contains("Deployment chat cannot be given new arguments: "), "{says}");
    assert!(says.contains("--force-conflicts takes these fields over, and without --apply"), "{says}");
}

/// Does this to the world at every call for as long as the target is borrowed.
fn while_borrowed(world: &Shared, mut happens: impl FnMut(&mut World, &str) -> Option<Fault> + Send + 'static) {
    let mut borrowed = false;
    world.lock().unwrap().before = Some(Box::new(move |world, _, call| {
        borrowed |= world.objects["deployments/chat"]["spec"]["replicas"] == 0;
        if borrowed { happens(world, call) } else { None }
    }));
}

#[tokio::test(start_paused = true)]
async fn pods_that_do_not_go_and_a_scale_that_cannot_be_set_are_said() {
    let (cluster, world) = chat();
    while_borrowed(&world, |world, _| {
        world.edit("deployments/chat", json!({"spec": {"replicas": 1}}));
        None
    });
    let says = whole(&cluster, &request("Deployment", "chat")).await.err().unwrap().to_string();
    assert!(says.contains(" did not go within 10 min (--patience); `kubectl describe pod` says why"), "{says}");
    let (cluster, world) = chat();
    while_borrowed(&world, |_, call| call.contains("deployments/chat/scale").then_some(Fault::Refused(403)));
    let says = whole(&cluster, &request("Deployment", "chat")).await.err().unwrap().to_string();
    assert!(says.contains("Deployment chat was not given back ("), "{says}");
    assert!(says.contains("; `autotune restore --deployment chat -n default` does it"), "{says}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_can_never_begin_is_not_waited_for_and_another_scale_is_said() {
    let (cluster, world) = chat();
    while_borrowed(&world, |world, _| {
        let waiting = json!([{"name": "autotune", "state": {"waiting": {"reason": "InvalidImageName", "message": "no such name"}}}]);
        world.edit("pods/autotune-chat-0", json!({"status": {"containerStatuses": waiting}}));
        None
    });
    let says = whole(&cluster, &request("Deployment", "chat")).await.err().unwrap().to_string();
    assert!(says.contains("the worker cannot begin: InvalidImageName no such name"), "{says}");
    assert_eq!(scale(&world, "deployments/chat"), 1);
    let (cluster, world) = chat();
    while_borrowed(&world, |world, _| {
        if world.objects.contains_key("pods/autotune-chat-0") {
            world.edit("deployments/chat", json!({"spec": {"replicas": 2}}));
        }
        None
    });
    drop(whole(&cluster, &request("Deployment", "chat")).await);
    let words = "somebody scaled Deployment chat to 2 meanwhile: its pods wait for the GPU that the worker holds";
    assert!(said(&world, words), "{:?}", world.lock().unwrap().said);
}

/// A canary whose labels hold the target's, and a pod that somebody made with the target's labels.
#[tokio::test(start_paused = true)]
async fn pods_of_others_with_the_same_labels_are_not_waited_for() {
    let (cluster, world) = bed(2, "deployments", target("Deployment", "chat", 1));
    {
        let mut canary = target("Deployment", "chat-canary", 1);
        canary["spec"]["template"]["metadata"]["labels"] = json!({"app": "chat", "track": "canary"});
        let mut world = world.lock().unwrap();
        world.put("deployments", canary);
        let debug = json!({"metadata": {"name": "debug", "labels": {"app": "chat"}}, "spec": {}, "status": {"phase": "Pending"}});
        world.put("pods", debug);
    }
    let begun = clock::ticks();
    whole(&cluster, &request("Deployment", "chat")).await.unwrap();
    assert!(serves_again(&cluster, &request("Deployment", "chat").which, STARTS_WITHIN).await.unwrap());
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(scale(&world, "deployments/chat"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_scale_comes_back_without_the_note_and_with_an_emptied_lease() {
    let unnoted = json!({"metadata": {"annotations": {"autotune/original-replicas": null, "autotune/run": null, "autotune/kept-replicas": null}}});
    for apply in [None, Some(false)] {
        let (cluster, world) = bed(2, "deployments", target("Deployment", "chat", 2));
        let patch = unnoted.clone();
        at(&world, "PATCH /apis/batch", move |world| {
            world.edit("deployments/chat", patch.clone());
            world.edit("leases/autotune-chat", json!({"spec": {"holderIdentity": null}}));
            None
        });
        let done = whole(&cluster, &Request { apply, ..request("Deployment", "chat") }).await.unwrap();
        assert!(apply.is_none() || done.arguments == Arguments::Applied, "{:?}", done.arguments);
        assert_eq!((scale(&world, "deployments/chat"), left(&world, "deployments/chat")), (2, Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_at_0_is_not_said_to_serve() {
    let (cluster, world) = bed(1, "deployments", target("Deployment", "chat", 0));
    assert!(!serves_again(&cluster, &request("Deployment", "chat").which, STARTS_WITHIN).await.unwrap());
    assert!(said(&world, "does not serve yet: it is scaled to 0"));
}

#[tokio::test(start_paused = true)]
async fn new_arguments_that_would_wait_for_a_gpu_for_ever_are_refused() {
    let (cluster, world) = bed(2, "deployments", target("Deployment", "chat", 2));
    let kept = |apply| Request { keep: 1, apply, ..request("Deployment", "chat") };
    let says = refused(&cluster, &world, &kept(Some(false))).await;
    assert!(says.contains("Deployment chat would wait for ever for a GPU with new arguments: "), "{says}");
    assert!(says.contains("maxUnavailable to 1") && says.contains("--keep-replicas 1"), "{says}");
    whole(&cluster, &kept(None)).await.unwrap();
    assert_eq!(scale(&world, "deployments/chat"), 2);
    world
        .lock()
        .unwrap()
        .edit("deployments/chat", json!({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}}));
    assert_eq!(whole(&cluster, &kept(Some(false))).await.unwrap().arguments, Arguments::Applied);
    assert_eq!((scale(&world, "deployments/chat"), left(&world, "deployments/chat")), (2, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_worker_mounts_the_claim_of_a_pod_that_goes() {
    let mut set = target("StatefulSet", "db", 3);
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "cache"}}]);
    set["spec"]["ordinals"] = json!({"start": 5});
    let (cluster, _) = bed(3, "statefulsets", set);
    for (keep, claim) in [(0, "cache-db-5"), (2, "cache-db-7")] {
        let job = planned(&cluster, &Request { keep, ..request("StatefulSet", "db") }).await;
        let volumes = job["spec"]["template"]["spec"]["volumes"].to_string();
        assert!(volumes.contains(&format!("\"claimName\":\"{claim}\"")), "{volumes}");
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_refused_for_a_while_lose_no_service() {
    let (cluster, world) = chat();
    let mut refusals = 20;
    world.lock().unwrap().before = Some(Box::new(move |world, _, _| {
        let borrowed = world.objects["deployments/chat"]["spec"]["replicas"] == 0;
        refusals -= i32::from(borrowed && refusals > 0);
        (borrowed && refusals > 0).then_some(Fault::Refused(401))
    }));
    whole(&cluster, &request("Deployment", "chat")).await.unwrap();
    assert!(said(&world, "the API server does not accept our credentials any more (") && said(&world, "is back"));
    assert!(said(&world, "make the service account or the token again"));
    assert_eq!((scale(&world, "deployments/chat"), left(&world, "deployments/chat")), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_does_not_keep_the_outcome() {
    let (cluster, world) = chat();
    world.lock().unwrap().sidecar = true;
    let done = whole(&cluster, &request("Deployment", "chat")).await.unwrap();
    assert!(done.ended.outcome.is_some());
    world.lock().unwrap().worker = (137, "killed".to_owned());
    let done = whole(&cluster, &request("Deployment", "chat")).await.unwrap();
    assert!(
        done.ended.because.contains("ended with code 137") && done.ended.because.contains("killed"),
        "{}",
        done.ended.because
    );
    assert_eq!((scale(&world, "deployments/chat"), left(&world, "deployments/chat")), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_the_cluster_does_not_take_is_in_the_log_and_in_the_folder() {
    let (cluster, world) = chat();
    at(&world, "PATCH /api/v1/namespaces/default/configmaps/autotune-chat-outcome", |_| Some(Fault::Refused(403)));
    let kept: Arc<Mutex<Option<Outcome>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let ours = Request {
        found: Arc::new(move |o| {
            *keep.lock().unwrap() = Some(o.clone());
            Ok("out/outcome.json".to_owned())
        }),
        ..request("Deployment", "chat")
    };
    let done = whole(&cluster, &ours).await.unwrap();
    assert_eq!(*kept.lock().unwrap(), done.ended.outcome);
    assert!(said(&world, "the cluster does not keep the outcome in ConfigMap autotune-chat-outcome"));
    assert!(said(&world, "the outcome is in out/outcome.json, this log") && said(&world, "{\"version\":1,"));
    assert_eq!((scale(&world, "deployments/chat"), left(&world, "deployments/chat")), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_longer_than_a_termination_message_comes_back_whole() {
    let (cluster, world) = chat();
    let mut found: Outcome = serde_json::from_str(&outcome("certified")).unwrap();
    found.left_out = (0..200).map(|i| format!("the point max-num-seqs={i}: the budget is too small")).collect();
    world.lock().unwrap().worker = (0, last_words(&found, Path::new("results")));
    let mut ours = Request { logs: true, ..request("Deployment", "chat") };
    ours.order.claim = Some("results".into());
    world.lock().unwrap().put("persistentvolumeclaims", json!({"metadata": {"name": "results"}}));
    let done = whole(&cluster, &ours).await.unwrap();
    assert_eq!(done.ended.outcome.as_ref(), Some(&found));
    let places = "the outcome is in out/outcome.json, ConfigMap autotune-chat-outcome, folder 20261122-100000 of the claim results, this log";
    assert!(said(&world, places) && said(&world, "max-num-seqs=199"), "{:?}", world.lock().unwrap().said);
}

#[tokio::test(start_paused = true)]
async fn what_the_rules_of_a_cluster_ask_for_is_on_all_that_is_made() {
    let pairs = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    let (mut cluster, world) = chat();
    cluster.site = Site { labels: pairs("app", "chat"), ..Site::default() };
    let says = refused(&cluster, &world, &request("Deployment", "chat")).await;
    let why = "the worker would have the labels of Deployment chat (--labels), and its Services would send it their traffic: ";
    assert!(says.contains(why), "{says}");
    cluster.site = Site {
        labels: pairs("team", "ml"),
        annotations: pairs("contact", "sre"),
        pull_secrets: vec!["registry".to_owned()],
        requests: pairs("cpu", "200m"),
        limits: pairs("memory", "512Mi"),
    };
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let see = Arc::clone(&seen);
    at(&world, "deployments/chat/scale", move |world| {
        let made = ["jobs", "configmaps", "leases"].into_iter().flat_map(|plural| world.of(plural));
        see.lock().unwrap().extend(made.cloned());
        None
    });
    whole(&cluster, &request("Deployment", "chat")).await.unwrap();
    let mut seen = seen.lock().unwrap().clone();
    seen.push(world.lock().unwrap().objects["configmaps/autotune-chat-outcome"].clone());
    assert_eq!(seen.len(), 4);
    let template = seen[0]["spec"]["template"].clone();
    for object in seen.iter().chain([&template]) {
        let meta = &object["metadata"];
        assert_eq!(
            (&meta["labels"]["team"], &meta["annotations"]["contact"]),
            (&"ml".into(), &"sre".into()),
            "{object}"
        );
    }
    let installer = &template["spec"]["initContainers"][0]["resources"];
    let wanted = json!({"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}});
    assert_eq!((installer, &template["spec"]["imagePullSecrets"]), (&wanted, &json!([{"name": "registry"}])));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_would_send_the_worker_its_traffic_is_named() {
    let labels = [("team".to_owned(), "ml".to_owned())];
    let (mut cluster, world) = chat();
    let template = json!({"metadata": {"labels": {"team": "ml"}}});
    world.lock().unwrap().edit("deployments/chat", json!({"spec": {"template": template}}));
    cluster.site = Site { labels: labels.into(), ..Site::default() };
    for (name, selector) in [("all-of-ml", json!({"team": "ml"})), ("chat", json!({"app": "chat", "team": "ml"}))] {
        world.lock().unwrap().put("services", json!({"metadata": {"name": name}, "spec": {"selector": selector}}));
    }
    let session = session();
    plan(&cluster, &request("Deployment", "chat"), &session).await.unwrap();
    let words = "warning: the Service all-of-ml selects pods by labels that the worker has too (--labels): requests to it would reach the \
worker and fail; leave out one of team";
    assert!(said(&world, words), "{:?}", world.lock().unwrap().said);
    assert!(!said(&world, "the Service chat "));
    world.lock().unwrap().said.clear();
    at(&world, "GET /api/v1/namespaces/default/services", |_| Some(Fault::Refused(403)));
    plan(&cluster, &request("Deployment", "chat"), &session).await.unwrap();
    assert!(said(&world, "warning: the worker has the label team of Deployment chat (--labels); "));
}

#[tokio::test(start_paused = true)]
async fn who_has_the_gpu_is_said_while_it_is_waited_for() {
    let (cluster, world) = chat();
    at(&world, "PATCH /apis/batch", |world| {
        let engine = target("Deployment", "thief", 1)["spec"]["template"]["spec"].clone();
        world.put("pods", json!({"metadata": {"name": "thief"}, "spec": engine, "status": {"phase": "Pending"}}));
        None
    });
    let says = whole(&cluster, &request("Deployment", "chat")).await.err().unwrap().to_string();
    let held = "1 Insufficient nvidia.com/gpu.; pods of this namespace with GPUs: thief on gpu-1";
    assert!(says.contains("the worker did not begin within 10 min (--patience): ") && says.contains(held), "{says}");
    assert!(said(&world, held));
    world.lock().unwrap().said.clear();
    assert!(!serves_again(&cluster, &request("Deployment", "chat").which, STARTS_WITHIN).await.unwrap());
    assert!(said(&world, "Deployment chat: 0 of 1 pods are ready: pod chat-") && said(&world, held));
    assert_eq!((scale(&world, "deployments/chat"), left(&world, "deployments/chat")), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_worker_is_placed_and_asked_for_before_the_service_goes() {
    let (cluster, world) = chat();
    let ours = || Request {
        order: Order { claim: Some("results".into()), ..request("Deployment", "chat").order },
        ..request("Deployment", "chat")
    };
    let says = refused(&cluster, &world, &ours()).await;
    assert!(says.contains("there is no PersistentVolumeClaim results"), "{says}");
    world.lock().unwrap().put("persistentvolumeclaims", json!({"metadata": {"name": "results"}}));
    at(&world, "pods?fieldManager=autotune&dryRun=All", |_| Some(Fault::Refused(403)));
    let says = refused(&cluster, &world, &ours()).await;
    assert!(says.contains("the worker's pod would be refused: a fault of the test; nothing was touched"), "{says}");
    let proxy = json!({"name": "proxy", "image": "p"});
    let sidecar = json!({"name": "log", "image": "l", "restartPolicy": "Always"});
    let mut object = target("Deployment", "chat", 1);
    let pod = &mut object["spec"]["template"]["spec"];
    pod["initContainers"] = json!([sidecar]);
    pod["containers"].as_array_mut().unwrap().push(proxy);
    let labelled = json!({"matchExpressions": [{"key": "gpu", "operator": "Exists"}]});
    pod["affinity"] =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [labelled]}}});
    let (cluster, world) = bed(1, "deployments", object);
    let job = planned(&cluster, &request("Deployment", "chat")).await;
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["initContainers"][1], sidecar);
    assert!(
        said(&world, "without the containers proxy") && said(&world, "the worker runs where the target does: on gpu-1")
    );
    let term =
        &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0];
    let here = json!([{"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}]);
    assert_eq!((&term["matchFields"], &term["matchExpressions"]), (&here, &labelled["matchExpressions"]));
}

/// Also that of a coordinator that goes on with a run whose pods are gone.
#[tokio::test(start_paused = true)]
async fn the_worker_runs_where_the_same_gpus_are() {
    let (cluster, world) = chat();
    let node = json!({"metadata": {"name": "gpu-1", "labels": {"nvidia.com/gpu.product": "NVIDIA-H200"}}});
    world.lock().unwrap().put("nodes", node);
    let ours = request("Deployment", "chat");
    let first = plan(&cluster, &ours, &session()).await.unwrap();
    assert!(said(&world, "the worker runs where the target does: on gpu-1, or on another node with NVIDIA-H200"));
    let pod = first.job.clone().unwrap()["spec"]["template"]["spec"].take();
    assert_eq!(pod["affinity"].to_string().matches("NVIDIA-H200").count(), 1, "{}", pod["affinity"]);
    let product = json!({"name": "AUTOTUNE_GPU_PRODUCT", "value": "NVIDIA-H200"});
    assert!(pod["containers"][0]["env"].as_array().unwrap().contains(&product));
    // It is killed while its worker works, and somebody deletes that.
    let killed =
        tokio::time::timeout(Duration::from_secs(1), run(&cluster, &first, &ours, std::future::pending())).await;
    assert!(killed.is_err() && scale(&world, "deployments/chat") == 0);
    world.lock().unwrap().remove("jobs/autotune-chat");
    let next = planned(&cluster, &ours).await;
    assert_eq!(next["spec"]["template"]["spec"]["affinity"], pod["affinity"]);
}

/// The coordinator was killed between the end of its worker and the scale, and the next one can make no worker.
#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_go_on_gives_the_gpu_back() {
    let mut object = target("Deployment", "chat", 0);
    object["metadata"]["annotations"] =
        json!({"autotune/original-replicas": "1", "autotune/run": "20261122-100000", "autotune/kept-replicas": "0"});
    let (cluster, world) = bed(1, "deployments", object);
    let mut ours = request("Deployment", "chat");
    ours.order.claim = Some("gone".into());
    let done = whole(&cluster, &ours).await.unwrap();
    assert!(done.ended.outcome.is_none() && done.ended.because.contains("there is no PersistentVolumeClaim gone"));
    assert!(said(&world, "this run cannot go on, and gives the GPU back"));
    assert_eq!((scale(&world, "deployments/chat"), left(&world, "deployments/chat")), (1, Vec::new()));
}

/// A comparison of two values of a variable that the Deployment does not have, and of one that it has.
fn varying(name: &str) -> Varying {
    let Request { which, holder, patience, .. } = request("Deployment", "chat");
    let wanted = ["a", "b"].map(|value| Wanted::Variable(name.to_owned(), Some(value.to_owned())));
    Varying { which, container: None, wanted, holder, run: "compare-1".into(), patience }
}

/// Both values in turns, as a comparison of two sweeps gives them; which of them the pods had.
async fn compared(cluster: &Cluster, world: &Shared, varying: Varying) -> Result<Vec<Value>, ClusterError> {
    let name = match &varying.wanted[0] {
        Wanted::Variable(name, _) => name.clone(),
        _ => String::new(),
    };
    let plan = vary::plan(cluster, varying).await?;
    let measured = async {
        let mut seen = Vec::new();
        for side in [0, 1, 1, 0] {
            let version = vary::set(cluster, &plan, side).await?;
            seen.push(value(world, &name));
            tokio::time::sleep(Duration::from_secs(30)).await;
            vary::stays(cluster, &plan, version).await?;
        }
        Ok(seen)
    };
    Box::pin(vary::during(cluster, &plan, Box::pin(measured))).await?
}

/// A variable of the engine in the Deployment's only pod.
fn value(world: &Shared, name: &str) -> Value {
    let world = world.lock().unwrap();
    let [pod] = &world.of("pods")[..] else { return "not one pod".into() };
    let all = pod["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|variable| variable["name"] == name).map_or(Value::Null, |variable| variable["value"].clone())
}

/// The Deployment with a variable that its owner set.
fn with_variable() -> (Cluster, Shared) {
    let mut object = target("Deployment", "chat", 1);
    object["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "MODE", "value": "own"}]);
    bed(1, "deployments", object)
}

#[tokio::test(start_paused = true)]
async fn two_values_are_compared_and_the_former_one_comes_back() {
    for (name, before) in [("MODE", json!("own")), ("NEW", Value::Null)] {
        let (cluster, world) = with_variable();
        let spec = world.lock().unwrap().objects["deployments/chat"]["spec"].clone();
        let seen = compared(&cluster, &world, varying(name)).await.unwrap();
        assert_eq!(seen, ["a", "b", "b", "a"].map(Value::from));
        assert_eq!((value(&world, name), left(&world, "deployments/chat")), (before, Vec::new()));
        let after = world.lock().unwrap().objects["deployments/chat"]["spec"].clone();
        assert_eq!(after.to_string().replace(",\"env\":[]", ""), spec.to_string(), "all else is as it was");
        let mut writes = world.lock().unwrap().writes.clone();
        writes.retain(|write| write != "PUT leases/autotune-chat");
        let wanted = [
            "POST leases",
            "DELETE configmaps/autotune-chat",
            "POST configmaps",
            "PATCH deployments/chat",
            "PATCH deployments/chat",
            "PATCH configmaps/autotune-chat",
            "PATCH deployments/chat",
            "PATCH deployments/chat",
            "PATCH deployments/chat",
            "PATCH deployments/chat",
            "PATCH deployments/chat",
            "PATCH deployments/chat",
            "DELETE configmaps/autotune-chat",
            "PATCH deployments/chat",
            "DELETE leases/autotune-chat",
        ];
        assert_eq!(writes, wanted, "what undoes it is kept before the first change");
    }
}

/// What an earlier run applied is ours to server-side apply, which takes away what its manager does not name any more.
#[tokio::test(start_paused = true)]
async fn a_comparison_leaves_what_an_earlier_run_or_comparison_changed() {
    let (cluster, world) = with_variable();
    whole(&cluster, &Request { apply: Some(false), ..request("Deployment", "chat") }).await.unwrap();
    let engine = |world: &Shared| {
        world.lock().unwrap().objects["deployments/chat"]["spec"]["template"]["spec"]["containers"][0].clone()
    };
    let before = engine(&world);
    assert_eq!(before["args"][1], "16");
    for name in ["MODE", "NEW", "MODE"] {
        compared(&cluster, &world, varying(name)).await.unwrap();
        assert_eq!(engine(&world).to_string(), before.to_string(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_comparison_refuses_what_it_cannot_bring_back_or_measure() {
    let (cluster, world) = with_variable();
    let says = async |cluster: &Cluster, world: &Shared| {
        let said = compared(cluster, world, varying("MODE")).await.unwrap_err().to_string();
        assert!(world.lock().unwrap().writes.is_empty(), "nothing is touched: {:?}", world.lock().unwrap().writes);
        said
    };
    world.lock().unwrap().denied = true;
    let said = says(&cluster, &world).await;
    assert!(said.contains("missing rights in the namespace default: ") && !said.contains("jobs"), "{said}");
    world.lock().unwrap().denied = false;
    let aim = json!({"scaleTargetRef": {"kind": "Deployment", "name": "chat"}});
    world.lock().unwrap().put("horizontalpodautoscalers", json!({"metadata": {"name": "hpa"}, "spec": aim}));
    assert!(says(&cluster, &world).await.contains("would scale it up in mid-run"));
    world.lock().unwrap().remove("horizontalpodautoscalers/hpa");
    let secret = json!([{"name": "engine", "env": [{"name": "HF_TOKEN", "value": "hush"}]}]);
    world.lock().unwrap().edit("deployments/chat", json!({"spec": {"template": {"spec": {"containers": secret}}}}));
    let said = compared(&cluster, &world, varying("HF_TOKEN")).await.unwrap_err().to_string();
    assert!(
        said.contains("a secret stands among the arguments or variables of Deployment chat") && !said.contains("hush"),
        "{said}"
    );
    let (cluster, world) = chat();
    world.lock().unwrap().edit("deployments/chat", json!({"spec": {"replicas": 0}}));
    assert!(says(&cluster, &world).await.contains("is scaled to 0: there is nothing to compare"));
}

#[tokio::test(start_paused = true)]
async fn a_value_that_does_not_serve_and_a_change_by_somebody_else_end_a_comparison() {
    let (cluster, world) = with_variable();
    let mut changes = 0;
    world.lock().unwrap().before = Some(Box::new(move |world, _, call| {
        // The value of B never becomes ready.
        changes += usize::from(call.contains("force=true") && !call.contains("dryRun"));
        world.gpus = usize::from(changes != 2);
        None
    }));
    let said = compared(&cluster, &world, varying("MODE")).await.unwrap_err().to_string();
    assert!(said.contains("Deployment chat does not serve with this value: "), "{said}");
    assert_eq!((value(&world, "MODE"), left(&world, "deployments/chat")), ("own".into(), Vec::new()));
    let (cluster, world) = with_variable();
    at(&world, "PUT /apis/coordination", |world| {
        world.edit("deployments/chat", json!({"spec": {"template": {"spec": {"edited": true}}}}));
        None
    });
    let said = compared(&cluster, &world, varying("MODE")).await.unwrap_err().to_string();
    assert!(said.contains("somebody changed Deployment chat while it was measured"), "{said}");
    assert_eq!((value(&world, "MODE"), left(&world, "deployments/chat")), ("own".into(), Vec::new()));
}

/// Somebody edits the target after it was looked at and before its Lease is held: what was looked at must not be brought back.
#[tokio::test(start_paused = true)]
async fn a_target_that_changes_before_a_comparison_begins_is_left_alone() {
    let own = |value: &str| json!([{"name": "engine", "env": [{"name": "MODE", "value": value}]}]);
    for edit in [
        json!({"spec": {"template": {"spec": {"containers": own("newer")}}}}),
        json!({"metadata": {"annotations": {"autotune/original-replicas": "1", "autotune/kept-replicas": "0", "autotune/run": "other"}}}),
    ] {
        let (cluster, world) = with_variable();
        let after = edit.clone();
        at(&world, "POST /apis/coordination", move |world| {
            world.edit("deployments/chat", after.clone());
            None
        });
        let said = compared(&cluster, &world, varying("MODE")).await.unwrap_err().to_string();
        assert!(said.contains("Deployment chat is another one than when it was looked at"), "{said}");
        let writes = world.lock().unwrap().writes.clone();
        let touched = writes.iter().filter(|write| write.contains("deployments") || write.contains("configmaps"));
        assert_eq!(touched.count(), 0, "{writes:?}");
        let object = world.lock().unwrap().objects["deployments/chat"].clone();
        let changed = edit.to_string().contains("newer");
        let there = &object["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"];
        assert_eq!(there, if changed { "newer" } else { "own" });
    }
}

#[tokio::test(start_paused = true)]
async fn each_pod_tells_its_requests_or_why_it_does_not() {
    let mut object = target("Deployment", "chat", 2);
    object["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{"containerPort": 8000}]);
    let (cluster, world) = bed(2, "deployments", object);
    let which = request("Deployment", "chat").which;
    let says = requests_by_pod(&cluster, &which).await.unwrap_err();
    assert!(says.contains("proxy/metrics: the API server says: ") && says.contains("(503)"), "{says}");
    let names: Vec<String> = world
        .lock()
        .unwrap()
        .of("pods")
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    for (name, answered) in names.iter().zip([30, 10]) {
        let page = format!(
            "vllm:request_success_total{{engine=\"0\",finished_reason=\"stop\"}} {answered}\nvllm:request_success_total{{engine=\"0\",finished_reason=\"length\"}} 1\n"
        );
        world.lock().unwrap().edit(&format!("pods/{name}"), json!({"page": page}));
    }
    let told = requests_by_pod(&cluster, &which).await.unwrap();
    assert_eq!(told.into_iter().collect::<Vec<_>>(), [(names[0].clone(), 31.0), (names[1].clone(), 11.0)]);
    world.lock().unwrap().edit(&format!("pods/{}", names[0]), json!({"page": "up 1\n"}));
    assert_eq!(requests_by_pod(&cluster, &which).await.unwrap().len(), 1, "a page without requests is of no engine");
    at(&world, "/proxy/", |_| Some(Fault::Refused(403)));
    let says = requests_by_pod(&cluster, &which).await.unwrap_err();
    assert_eq!(says, "the requests of each replica are not seen: the right to get pods/proxy is missing");
}

#[tokio::test(start_paused = true)]
async fn a_target_is_waited_for_as_long_as_asked() {
    let (cluster, world) = with_variable();
    world.lock().unwrap().gpus = 0;
    world.lock().unwrap().edit("deployments/chat", json!({"spec": {"replicas": 2}}));
    for within in [Duration::from_secs(90), STARTS_WITHIN] {
        let begun = crate::clock::ticks();
        assert!(!serves_again(&cluster, &request("Deployment", "chat").which, within).await.unwrap());
        let waited = begun.elapsed();
        assert!(waited >= within && waited < within + Duration::from_secs(30), "{waited:?}");
    }
}

/// A run does not tune what a comparison left, and the next comparison does not take its value for the former one.
#[tokio::test(start_paused = true)]
async fn what_a_killed_comparison_left_is_restored_first() {
    let (cluster, world) = with_variable();
    let killed = tokio::time::timeout(Duration::from_secs(20), compared(&cluster, &world, varying("MODE"))).await;
    assert!(killed.is_err() && value(&world, "MODE") == "a");
    let left_changed = "was changed by a comparison that did not come to its end: `autotune restore --deployment chat -n default` brings it back first";
    let again = compared(&cluster, &world, varying("MODE")).await.unwrap_err().to_string();
    let tuned = whole(&cluster, &request("Deployment", "chat")).await.err().unwrap().to_string();
    assert!(again.contains(left_changed) && tuned.contains(left_changed), "{again}; {tuned}");
    restore(&cluster, &request("Deployment", "chat").which, "somebody").await.unwrap();
    assert_eq!((value(&world, "MODE"), left(&world, "deployments/chat")), ("own".into(), Vec::new()));
}

/// Restores the target where the end of a run leaves that to do, and returns whether it does. A run that was killed says nothing; any other says
/// so.
async fn restored_by_hand(cluster: &Cluster, world: &Mutex<World>, kind: usize, says: &str) -> bool {
    let is_told = says == "killed" || says.contains("autotune restore --deployment chat -n default");
    let by_another = kind == 15 && says.contains("has taken over");
    if is_told || by_another {
        world.lock().unwrap().before = None;
        let holder = if by_another { "another" } else { "somebody" };
        restore(cluster, &request("Deployment", "chat").which, holder).await.unwrap();
    }
    is_told || by_another
}

/// Each accident at each call of a comparison.
#[tokio::test(start_paused = true)]
async fn after_any_accident_at_any_step_the_former_value_is_back_or_restore_brings_it() {
    let (mut restored, mut ended_well) = (0, 0);
    // All but those of a scale and of a worker, which a comparison does not have.
    for kind in [0, 1, 2, 3, 4, 5, 6, 9, 10, 12, 13, 14, 15, 17] {
        for number in 1.. {
            let (cluster, world) = with_variable();
            let killing = Arc::new(Notify::new());
            let (kill, happened) = (Arc::clone(&killing), Arc::new(Mutex::new(false)));
            let happens = Arc::clone(&happened);
            world.lock().unwrap().before = Some(Box::new(move |world, call, _| {
                let after = call.checked_sub(number)?;
                *happens.lock().unwrap() = true;
                accident(kind, world, after, &kill)
            }));
            let ended = tokio::select! {
                biased;
                () = killing.notified() => None,
                ended = compared(&cluster, &world, varying("MODE")) => Some(ended),
            };
            if !*happened.lock().unwrap() {
                break;
            }
            let what = format!("accident {kind} at call {number}");
            let says = match &ended {
                None => "killed".to_owned(),
                Some(Ok(seen)) => {
                    ended_well += 1;
                    assert_eq!(seen, &["a", "b", "b", "a"].map(Value::from), "{what}");
                    String::new()
                }
                Some(Err(error)) => error.to_string(),
            };
            restored += usize::from(restored_by_hand(&cluster, &world, kind, &says).await);
            let said = world.lock().unwrap().said.clone();
            assert_eq!(value(&world, "MODE"), "own", "{what}: {says}; {said:#?}");
            assert_eq!(scale(&world, "deployments/chat"), 1, "{what}: {says}");
            // Somebody who empties a lease at the very end leaves it to be found.
            assert!(
                left(&world, "deployments/chat").iter().all(|left| left.starts_with("leases/") && kind == 15),
                "{what}: {says}; {:?}",
                left(&world, "deployments/chat")
            );
        }
    }
    assert!(restored > 20 && ended_well > 50, "{restored} restored, {ended_well} ended well");
}

/// What may happen at any call: by the API server, by somebody else, to the coordinator.
fn accident(kind: usize, world: &mut World, after: usize, killed: &Notify) -> Option<Fault> {
    let chat = "deployments/chat";
    let note = json!({"autotune/original-replicas": null, "autotune/run": null, "autotune/kept-replicas": null});
    let lease = "leases/autotune-chat";
    let once = |fault| (after == 0).then_some(fault);
    match (kind, after) {
        (0, _) => return once(Fault::Refused(403)),
        (1, _) => return once(Fault::Refused(409)),
        (2, _) => return once(Fault::Unheard),
        (3, 0..5) => return Some(Fault::Refused(500)),
        (4, 0..30) => return Some(Fault::Refused(401)),
        (5, _) => return Some(Fault::Refused(503)),
        (6, 0..3) => return Some(Fault::Unheard),
        (7, 0) => world.edit(chat, json!({"spec": {"replicas": 0}})),
        (8, 0) => world.edit(chat, json!({"spec": {"replicas": 2}})),
        (9, 0) => world.edit(chat, json!({"metadata": {"annotations": note}})),
        (10, 0) => world.edit(chat, json!({"spec": {"template": {"spec": {"edited": true}}}})),
        (11, 0) => world.remove("jobs/autotune-chat"),
        (12, 0) => world.remove("configmaps/autotune-chat"),
        (13, 0) => world.remove(lease),
        (14, 0) => world.edit(lease, json!({"spec": {"holderIdentity": ""}})),
        (15, 0) => world.edit(lease, json!({"spec": {"holderIdentity": "another"}})),
        (16, 0) => world.remove("pods/autotune-chat-0"),
        (17, 0) => killed.notify_one(),
        _ => {}
    }
    None
}

/// Each accident at each call of a run that borrows, with and without `--apply`.
#[tokio::test(start_paused = true)]
async fn after_any_accident_at_any_call_the_scale_is_right_or_restore_makes_it_so() {
    let (mut accidents, mut restored) = (0, 0);
    for (kind, apply) in (0..18).flat_map(|kind| [(kind, false), (kind, true)]) {
        for number in 1.. {
            let (cluster, world) = chat();
            let killing = Arc::new(Notify::new());
            let (kill, happened) = (Arc::clone(&killing), Arc::new(Mutex::new(false)));
            let happens = Arc::clone(&happened);
            world.lock().unwrap().before = Some(Box::new(move |world, call, _| {
                let after = call.checked_sub(number)?;
                *happens.lock().unwrap() = true;
                accident(kind, world, after, &kill)
            }));
            let once = Some("job-1".to_owned());
            let ours = Request { apply: apply.then_some(false), once, ..request("Deployment", "chat") };
            let ended = tokio::select! {
                biased;
                () = killing.notified() => None,
                ended = whole(&cluster, &ours) => Some(ended),
            };
            if !*happened.lock().unwrap() {
                break;
            }
            accidents += 1;
            let what = format!("accident {kind} at call {number}, apply {apply}");
            let says = match &ended {
                None => "killed".to_owned(),
                Some(Ok(_)) => String::new(),
                Some(Err(error)) => error.to_string(),
            };
            if restored_by_hand(&cluster, &world, kind, &says).await {
                restored += 1;
                assert_eq!(left(&world, "deployments/chat"), Vec::<String>::new(), "{what}: {says}");
            }
            let pods = scale(&world, "deployments/chat");
            let is_right = match kind {
                // Somebody else's wish counts where it came last.
                7 => [0, 1].contains(&pods),
                8 => [1, 2].contains(&pods),
                _ => pods == 1,
            };
            assert!(is_right, "{what}: {pods} pods; {says}; {:#?}", world.lock().unwrap().said);
        }
    }
    assert!(accidents > 500 && restored > 50, "{accidents} accidents, {restored} restored");
}
