//! `autotune job run` and `autotune restore`: tuning in a cluster, on a GPU that is borrowed and given back.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::stop::Stop;
use super::{Failed, code_of, complain, exit, print, read_corpus, read_plan, runtime};
use crate::cli::{JobArgs, JobRunArgs, ObjectArgs, PlaceArgs, TargetArgs, colour};
use crate::clock;
use crate::cluster::api::{Tell, json};
use crate::cluster::apply::redacted;
use crate::cluster::borrow::{own_name, run_name};
use crate::cluster::coordinate;
use crate::cluster::indexed::{companions, workers};
use crate::cluster::kinds::KINDS;
use crate::cluster::lease::holder;
use crate::cluster::render::{Rendered, render as manifests};
use crate::cluster::request::{Arguments, Done, Request};
use crate::cluster::site::Site;
use crate::cluster::target::Which;
use crate::cluster::worker::Order;
use crate::cluster::{Cluster, ClusterError};
use crate::private::{create_file, create_folder};
use crate::report::{self, Outcome, summary};
use crate::settings::{Plan, REDACTED, Secrets, StrategyKind};
use crate::units::Seconds;

/// Kubernetes ends a worker that takes so many times its budget, and an hour more.
const DEADLINE: f64 = 2.0;
/// The key of the space file in the worker's ConfigMap.
const SPACE: &str = "space.toml";
/// A ConfigMap holds 1 MiB, keys and metadata included.
const CONFIG_MAP: usize = 1_000_000;

pub(super) fn which(object: &ObjectArgs, part: Option<String>) -> Result<Which, Failed> {
    let (flag, name) = object.chosen();
    let kind = KINDS.into_iter().find(|kind| kind.flag == flag);
    let kind = kind.ok_or_else(|| Failed::usage("error: say which object holds the GPU, such as --deployment NAME"))?;
    Ok(Which { kind, name: name.to_owned(), part })
}

pub(super) fn failed(error: ClusterError) -> Failed {
    match error {
        ClusterError::Wrong(_) | ClusterError::NoCluster(_) => Failed::usage(format!("error: {error}")),
        ClusterError::Stopped => Failed { code: exit::INTERRUPTED, message: format!("error: {error}") },
        _ => Failed::own(format!("error: {error}")),
    }
}

pub(super) async fn connect(namespace: Option<&str>, site: Site, tell: Tell) -> Result<Cluster, Failed> {
    let mut cluster = Cluster::connect(namespace, tell).await.map_err(failed)?;
    cluster.site = site;
    Ok(cluster)
}

/// What the cluster asks of every object.
pub(super) fn marks(args: &PlaceArgs) -> Site {
    let (labels, annotations) = (args.labels.iter().cloned().collect(), args.annotations.iter().cloned().collect());
    Site { labels, annotations, ..Site::default() }
}

/// And of what runs our image.
fn site(args: &JobArgs) -> Site {
    Site {
        pull_secrets: args.image_pull_secret.clone(),
        requests: args.requests.iter().cloned().collect(),
        limits: args.limits.iter().cloned().collect(),
        ..marks(&args.target.place)
    }
}

/// The files that go along, by key: where each goes beside the space file, and what it holds.
type Files = BTreeMap<String, (String, String)>;

/// The session of a space file and what goes into the cluster for it.
fn session(args: &JobArgs) -> Result<(Plan, Files), Failed> {
    let mut session = read_plan(&args.space)?;
    let files = files(&session, &args.space)?;
    if !Secrets::of(&session).is_empty() {
        return Err(Failed::usage(
            "error: the space file holds a secret (engine.env or engine.args), and a ConfigMap is no place for one: the worker has the \
environment of the target's container, so let that take it from a Secret",
        ));
    }
    args.overrides.apply(&mut session);
    let strategy = session.search.strategy;
    if args.workers > 1 && strategy != StrategyKind::Bayes {
        return Err(Failed::usage(format!(
            "error: --workers {}: the strategy {} waits for each answer before it asks for the next point; bayes has work for several \
workers",
            args.workers,
            strategy.name()
        )));
    }
    Ok((session, files))
}

/// Prints what `kubectl apply` takes to do in a Job what `job run` does from a terminal.
pub(super) fn render(args: &JobArgs) -> Result<u8, Failed> {
    let (which, (_, files)) = (which(&args.target.object, args.target.component.clone())?, session(args)?);
    let mut words =
        vec![format!("--{}", which.kind.flag), which.name.clone(), "--image".to_owned(), args.image.clone()];
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.extend([format!("--{name}"), value]);
        }
    };
    option("component", which.part.clone());
    option("container", args.container.clone());
    option("results", args.results.clone());
    option("workers", (args.workers > 1).then(|| args.workers.to_string()));
    option("keep-replicas", (args.keep_replicas > 0).then(|| args.keep_replicas.to_string()));
    option("patience", Some(format!("{}s", args.patience.as_secs_f64())));
    for (name, given) in [("apply", args.apply), ("force-conflicts", args.force_conflicts)] {
        words.extend(given.then(|| format!("--{name}")));
    }
    words.extend(overrides(args));
    print(&manifests(&Rendered {
        namespace: args.target.place.namespace.clone(),
        which,
        image: args.image.clone(),
        claim: args.results.clone(),
        files,
        words,
        applies: args.apply,
        workers: args.workers,
        listen: args.listen.map(|address| address.port()),
        site: site(args),
    }))?;
    Ok(exit::FOUND)
}

/// Borrows, tunes, gives back; the exit code is that of the worker's answer.
pub(super) fn run(JobRunArgs { job: args, out, once, dry_run }: &JobRunArgs) -> Result<u8, Failed> {
    let (which, (session, files)) = (which(&args.target.object, args.target.component.clone())?, session(args)?);
    let budget = session.budget.gpu_time;
    let name = which.name.clone();
    let out = out.clone().unwrap_or_else(|| PathBuf::from("autotune-out").join(&name));
    let keep = {
        let out = out.clone();
        move |outcome: &Outcome| keep_outcome(outcome, &out).map_err(|failed| failed.message)
    };
    let request = Request {
        order: Order {
            name: own_name(&name),
            files: files.iter().map(|(key, (path, _))| (key.clone(), path.clone())).collect(),
            workers: args.workers,
            container: args.container.clone(),
            run: run_name(clock::timestamp()),
            image: args.image.clone(),
            claim: args.results.clone(),
            deadline_seconds: (budget.as_secs_f64() * DEADLINE) as u64 + 3_600,
            words: overrides(args),
        },
        which,
        files: files.into_iter().map(|(key, (_, text))| (key, text)).collect(),
        holder: holder(),
        keep: args.keep_replicas,
        apply: args.apply.then_some(args.force_conflicts),
        patience: args.patience,
        once: once.clone(),
        found: Arc::new(keep),
        logs: !std::io::stderr().is_terminal(),
    };
    runtime()?.block_on(async {
        let cluster = connect(args.target.place.namespace.as_deref(), site(args), Arc::new(complain)).await?;
        let plan = coordinate::plan(&cluster, &request, &session).await.map_err(failed)?;
        if plan.ended.is_none() {
            announce(&cluster, &plan, &request, Seconds::from(budget));
        }
        if *dry_run {
            if let Some(job) = &plan.job {
                let companions = companions(job, REDACTED).map(|(service, secret)| [json(&service), json(&secret)]);
                for object in std::iter::once(job.clone()).chain(companions.into_iter().flatten()) {
                    let shown = serde_json::to_string_pretty(&redacted(&object)).map_err(Failed::own)?;
                    print(&format!("{shown}\n"))?;
                }
            }
            complain("nothing was touched; this is the worker that would run");
            return Ok(exit::FOUND);
        }
        let run = Box::pin(coordinate::run(&cluster, &plan, &request, stopped("giving the GPU back")));
        let done = run.await.map_err(failed)?;
        let code = finish(&done, &out)?;
        let serves = tokio::select! {
            serves = coordinate::serves_again(&cluster, &request.which, coordinate::STARTS_WITHIN) => serves.map_err(failed)?,
            // Its pods start without us too; whether they do, we cannot say.
            () = stopped("not waiting for its pods any more") => false,
        };
        Ok(if serves { code } else { exit::FAILED })
    })
}

fn announce(cluster: &Cluster, plan: &coordinate::Plan, request: &Request, budget: Seconds) {
    let (title, original) = (plan.target.title(), plan.borrowed.original);
    let (many, given) = (plan.job.as_ref().map_or(1, workers), original.saturating_sub(plan.borrowed.kept));
    // Several are faster, but never so many times as fast.
    let lasts = format!("{} {budget}", if many > 1 { "less than" } else { "about" });
    let meanwhile = match plan.borrowed.kept {
        0 => "serve nothing".to_owned(),
        kept => format!("serve with {kept} of {original} pods"),
    };
    let after = if request.apply.is_some() { "with the best arguments that were certified" } else { "as it was" };
    complain(&format!(
        "{title} in {} will be scaled from {original} to {} and {meanwhile} for {lasts} of tuning and the start of its pods; then it \
is scaled back {after}",
        cluster.namespace, plan.borrowed.kept
    ));
    if many > 1 {
        let elsewhere = match many.saturating_sub(given) {
            0 => String::new(),
            1 => format!("; {title} gives the GPUs of {given}, and the other needs free ones elsewhere"),
            others => format!("; {title} gives the GPUs of {given}, and the other {others} need free ones elsewhere"),
        };
        complain(&format!("{many} workers tune at once, and spend {budget} of engine time together{elsewhere}"));
    }
    if let Some(tool) = plan.gitops {
        let patch = if request.apply.is_some() { "; the new arguments come as a patch for the repository" } else { "" };
        complain(&format!(
            "{tool} keeps {title} as a repository says: if it also heals the scale by itself, pause it for the time of the run{patch}"
        ));
    }
}

/// The files of the worker's ConfigMap by their keys: where each goes beside the space file, and what it holds.
fn files(session: &Plan, space: &Path) -> Result<Files, Failed> {
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .map_err(|e| Failed::usage(format!("error: failed to read {} as text: {e}", path.display())))
    };
    let mut files = BTreeMap::from([(SPACE.to_owned(), (SPACE.to_owned(), read(space)?))]);
    if let Some(file) = session.workload.kind.file() {
        if file.is_absolute() {
            complain(&format!("the workload's file {} is looked for in the worker's container", file.display()));
            return Ok(files);
        }
        read_corpus(session, space)?;
        if file.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(Failed::usage(format!(
                "error: the workload's file {} is above the space file's folder and cannot travel beside it: put it next to the space file",
                file.display()
            )));
        }
        let plain: PathBuf = file.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let there = space.parent().unwrap_or(Path::new("")).join(file);
        files.insert("workload".to_owned(), (plain.display().to_string(), read(&there)?));
    }
    let size: usize = files.values().map(|(_, text)| text.len()).sum();
    if size > CONFIG_MAP {
        return Err(Failed::usage(format!(
            "error: the workload's file is too large for a ConfigMap ({size} bytes of at most {CONFIG_MAP}): put it on a volume that the \
target mounts, and give its absolute path there in workload.file"
        )));
    }
    Ok(files)
}

/// What of the command line the worker has to know.
fn overrides(args: &JobArgs) -> Vec<String> {
    let budget = args.overrides.budget.map(|budget| format!("--budget {}s", budget.as_secs_f64()));
    let listen = args.listen.as_ref().map(|address| format!("--listen {address}"));
    let said = [budget.unwrap_or_default(), listen.unwrap_or_default(), args.overrides.repeated()].join(" ");
    said.split_whitespace().map(str::to_owned).collect()
}

/// Until somebody asks for an end, and says what follows from that.
async fn stopped(says: &str) {
    match Stop::listen() {
        Ok(mut stop) => stop.told().await,
        Err(_) => std::future::pending().await,
    }
    complain(says);
}

fn keep_outcome(outcome: &Outcome, out: &Path) -> Result<String, Failed> {
    create_folder(out).map_err(|e| Failed::own(format!("error: failed to make {}: {e}", out.display())))?;
    let file = out.join("outcome.json");
    report::replace(&file, report::pretty_json(outcome).as_bytes()).map_err(Failed::own)?;
    Ok(file.display().to_string())
}

/// Beside what changes, a patch holds the target's other arguments, of which one may be a secret: nobody else reads it.
fn keep_patch(patch: &str, out: &Path) -> Result<PathBuf, Failed> {
    let file = out.join("patch.yaml");
    let written = create_file(&file).and_then(|mut file| file.write_all(patch.as_bytes()));
    written.map_err(|e| Failed::own(format!("error: failed to write {}: {e}", file.display())))?;
    Ok(file)
}

/// Keeps what the worker found, and says it.
fn finish(Done { ended, arguments }: &Done, out: &Path) -> Result<u8, Failed> {
    let Some(outcome) = &ended.outcome else {
        let because = if ended.because.is_empty() { "it left no outcome" } else { &ended.because };
        return Err(Failed::own(format!("error: the worker failed: {because}")));
    };
    keep_outcome(outcome, out)?;
    if let Err(unprinted) = print(&summary(outcome, out, "", false, colour(std::io::stdout().is_terminal()))) {
        complain(&unprinted.message);
    }
    match arguments {
        Arguments::Applied => {
            complain("the target has these arguments now; write them into your manifest too: autotune export --help");
        }
        Arguments::Left => complain(&format!(
            "autotune export --outcome {} --manifest YOUR.yaml writes these arguments into your manifest",
            out.display()
        )),
        Arguments::Patch(patch, why) => {
            complain(&format!("the arguments were not applied: {why}"));
            if !patch.is_empty() {
                let file = keep_patch(patch, out)?;
                complain(&format!("{} holds the fields that change", file.display()));
            }
        }
        Arguments::RolledBack(why) => {
            return Err(Failed::own(format!(
                "error: the target did not become ready with the new arguments, and has its former ones again: {why}"
            )));
        }
    }
    Ok(code_of(outcome.status))
}

/// Gives back what an earlier run left borrowed.
pub(super) fn restore(args: &TargetArgs) -> Result<u8, Failed> {
    let which = which(&args.object, args.component.clone())?;
    runtime()?.block_on(async {
        let cluster = connect(args.place.namespace.as_deref(), marks(&args.place), Arc::new(complain)).await?;
        coordinate::restore(&cluster, &which, &holder()).await.map_err(failed)?;
        Ok(exit::FOUND)
    })
}

pub(super) fn install(to: &Path) -> Result<u8, Failed> {
    let copy = || -> std::io::Result<()> {
        std::fs::copy(std::env::current_exe()?, to)?;
        std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755))
    };
    copy().map_err(|e| Failed::own(format!("error: failed to install to {}: {e}", to.display())))?;
    Ok(exit::FOUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_its_owners_alone_and_the_outcome_is_for_everybody() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("answer");
        let outcome = include_str!("../../tests/data/outcome.json");
        let outcome: Outcome = serde_json::from_str(outcome).unwrap();
        let mode = |name: &str| std::fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o777;
        for patch in ["a: 1\n", "b: 2\n"] {
            assert!(keep_outcome(&outcome, &out).is_ok() && keep_patch(patch, &out).is_ok());
            assert_eq!((mode(""), mode("patch.yaml"), mode("outcome.json")), (0o700, 0o600, 0o644));
            assert_eq!(std::fs::read_to_string(out.join("patch.yaml")).unwrap(), patch);
        }
    }
}
