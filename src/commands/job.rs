//! `autotune job run` and `autotune restore`: tuning in a cluster, on a GPU that is borrowed and given back.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::signal::unix::{SignalKind, signal};

use super::{Failed, code_of, complain, exit, print, read_corpus, read_plan, runtime};
use crate::cli::{JobRunArgs, TargetArgs};
use crate::cluster::borrow::own_name;
use crate::cluster::coordinate::{self, Ended, Request};
use crate::cluster::target::Kind;
use crate::cluster::worker::Order;
use crate::cluster::{Cluster, ClusterError};
use crate::report::{self, summary};
use crate::settings::{Secrets, WorkloadKind};
use crate::units::Seconds;

/// Kubernetes ends a worker that takes so many times its budget, and an hour more.
const DEADLINE: f64 = 2.0;

fn target(args: &TargetArgs) -> (Kind, &str) {
    match (&args.deployment, &args.statefulset) {
        (Some(name), _) => (Kind::Deployment, name),
        (None, name) => (Kind::StatefulSet, name.as_deref().unwrap_or_default()),
    }
}

fn failed(error: ClusterError) -> Failed {
    match error {
        ClusterError::Wrong(_) | ClusterError::NoCluster(_) => Failed::usage(format!("error: {error}")),
        _ => Failed::own(format!("error: {error}")),
    }
}

/// Who we are: the machine and the process, or the pod.
fn holder() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    format!("autotune on {host}, process {}", std::process::id())
}

/// Borrows, tunes, gives back; the exit code is that of the worker's answer.
pub(super) fn run(args: &JobRunArgs) -> Result<u8, Failed> {
    let (kind, name) = target(&args.target);
    let mut plan = read_plan(&args.space)?;
    read_corpus(&plan, &args.space)?;
    if !matches!(plan.workload.kind, WorkloadKind::Random(_) | WorkloadKind::Conversations(_)) {
        return Err(Failed::usage(
            "error: a workload with a file cannot go into the cluster yet: use `random` or `conversations`",
        ));
    }
    if !Secrets::of(&plan).is_empty() {
        return Err(Failed::usage(
            "error: the space file holds a secret (engine.env or engine.args), and a ConfigMap is no place for one: the worker has the \
environment of the target's container, so let that take it from a Secret",
        ));
    }
    args.overrides.apply(&mut plan);
    let space = std::fs::read_to_string(&args.space).map_err(Failed::own)?;
    let budget = plan.budget.gpu_time;
    let request = Request {
        kind,
        target: name.to_owned(),
        space,
        order: Order {
            name: own_name(name),
            container: args.container.clone(),
            run: jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string(),
            image: args.image.clone(),
            claim: args.results.clone(),
            deadline_seconds: (budget.as_secs_f64() * DEADLINE) as u64 + 3_600,
            words: words(args),
        },
        holder: holder(),
    };
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from("autotune-out").join(name));
    runtime()?.block_on(async {
        let cluster = Cluster::connect(args.target.namespace.as_deref()).await.map_err(failed)?;
        let plan = coordinate::plan(&cluster, &request).await.map_err(failed)?;
        let (title, replicas) = (plan.target.title(), plan.target.original.unwrap_or(plan.target.replicas));
        complain(&format!(
            "{title} in {} will be scaled from {replicas} to 0 and serve nothing for about {} of tuning and the start of its pods; then it is scaled back",
            cluster.namespace,
            Seconds::from(budget)
        ));
        if args.dry_run {
            print(&format!("{}\n", serde_json::to_string_pretty(&plan.job).map_err(Failed::own)?));
            complain("nothing was touched; this is the worker that would run");
            return Ok(exit::FOUND);
        }
        let ended = coordinate::run(&cluster, &plan, &request, stopped(), &complain).await.map_err(failed)?;
        finish(ended, &out)
    })
}

/// What of the command line the worker has to know.
fn words(args: &JobRunArgs) -> Vec<String> {
    let budget = args.overrides.budget.map(|budget| format!("--budget {}s", budget.as_secs_f64()));
    let said = [budget.unwrap_or_default(), args.overrides.repeated()].join(" ");
    said.split_whitespace().map(str::to_owned).collect()
}

/// Until SIGINT or SIGTERM.
async fn stopped() {
    let (Ok(mut interrupts), Ok(mut terminations)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupts.recv() => {}
        _ = terminations.recv() => {}
    }
    complain("giving the GPU back");
}

/// Keeps what the worker found, and says it.
fn finish(ended: Ended, out: &Path) -> Result<u8, Failed> {
    let Some(outcome) = ended.outcome else {
        let because = if ended.because.is_empty() { "it left no outcome".to_owned() } else { ended.because };
        return Err(Failed::own(format!("error: the worker failed: {because}")));
    };
    std::fs::create_dir_all(out).map_err(|e| Failed::own(format!("error: failed to make {}: {e}", out.display())))?;
    let json = serde_json::to_string_pretty(&outcome).map_err(Failed::own)? + "\n";
    report::replace(&out.join("outcome.json"), json.as_bytes()).map_err(Failed::own)?;
    print(&summary(&outcome, out));
    complain(&format!(
        "autotune export --outcome {} --manifest YOUR.yaml writes these arguments into your manifest",
        out.display()
    ));
    Ok(code_of(outcome.status))
}

/// Gives back what an earlier run left borrowed.
pub(super) fn restore(args: &TargetArgs) -> Result<u8, Failed> {
    let (kind, name) = target(args);
    runtime()?.block_on(async {
        let cluster = Cluster::connect(args.namespace.as_deref()).await.map_err(failed)?;
        coordinate::restore(&cluster, kind, name, &holder(), &complain).await.map_err(failed)?;
        Ok(exit::FOUND)
    })
}

/// Copies this very program.
pub(super) fn install(to: &Path) -> Result<u8, Failed> {
    let copy = || -> std::io::Result<()> {
        std::fs::copy(std::env::current_exe()?, to)?;
        std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755))
    };
    copy().map_err(|e| Failed::own(format!("error: failed to install to {}: {e}", to.display())))?;
    Ok(exit::FOUND)
}
