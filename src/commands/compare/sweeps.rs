//! Sweeps over the levels on one or two sides: what is required is checked first, and whatever ends them, engines are stopped.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::order::{Step, order};
use super::parts::Parts;
use super::require::{self, Requirement};
use super::side::Side;
use super::site::Site;
use crate::access::Access;
use crate::cli::{LoadArgs, SweepArgs};
use crate::clock;
use crate::cluster::{Cluster, coordinate, vary};
use crate::commands::job::{connect, failed};
use crate::commands::load::{Load, Ran, Traffic, access, fresh_folder, interrupts, seen};
use crate::commands::stop::Stop;
use crate::commands::{Failed, exit, runtime, sink};
use crate::progress::{Event, Sink};
use crate::report::bench::{Level, Offered, Standing, Summary};
use crate::report::comparison::{NAMES, SideSeen, WindowSeen};
use crate::settings::WorkloadKind;
use crate::units::Seconds;
use crate::verdict::{Verdict, Window};
use crate::workload;

/// The longest window in which requirements are checked: with the ramp and the warm-up it ends within the first minute.
const CHECKED_WITHIN: Seconds = Seconds(30.0);

/// What all sides are measured with.
pub(super) struct Shared<'a> {
    pub(super) args: &'a SweepArgs,
    pub(super) load: &'a LoadArgs,
    pub(super) traffic: &'a Traffic,
    pub(super) access: &'a Access,
    levels: &'a [Offered],
    /// Where engines write their logs.
    pub(super) trials: PathBuf,
    pub(super) sink: Arc<dyn Sink>,
    /// The object that is varied, and its cluster.
    pub(super) object: Option<(Cluster, vary::Plan)>,
    /// What an answer takes on the side that was reached first.
    pub(super) answer_time: OnceLock<Seconds>,
    /// Why the replicas of an object do not tell their requests.
    pub(super) replicas_unseen: OnceLock<String>,
}

/// What came of the sweeps.
pub(in crate::commands) struct Measured {
    pub(in crate::commands) seconds: Seconds,
    /// One for each side; empty if no sweep was whole.
    pub(in crate::commands) sides: Vec<SideSeen>,
    /// The windows of whole sweeps.
    pub(in crate::commands) windows: Vec<WindowSeen>,
    /// What a reader must know of measurements that ended early, or lack something.
    pub(in crate::commands) warnings: Vec<String>,
    /// The warning of prompts that came again.
    pub(in crate::commands) sent_again: Option<String>,
    /// Whether it was measured to its end.
    pub(in crate::commands) ended: Result<(), Failed>,
}

/// Measures every level on every side, as often as is asked. `result` is the file that a folder of results must not hold yet.
pub(in crate::commands) fn sweeps(
    args: &SweepArgs,
    load: &LoadArgs,
    traffic: &Traffic,
    levels: &[Offered],
    sides: &[Side],
    requirements: &[Requirement],
    result: &str,
) -> Result<Measured, Failed> {
    let access = access(&args.access)?;
    if let Some(out) = &args.out {
        fresh_folder(out, &[result, "report.html"], "comparison")?;
    }
    let scratch =
        tempfile::tempdir().map_err(|e| Failed::own(format!("error: failed to make a temporary folder: {e}")))?;
    let trials = args.out.as_deref().unwrap_or(scratch.path()).join("engines");
    if sides.iter().any(Side::is_launched) {
        // As the parent of last resort we inherit what a dead guardian leaves, instead of losing sight of it.
        nix::sys::prctl::set_child_subreaper(true).map_err(Failed::own)?;
    }
    let sink: Arc<dyn Sink> = Arc::from(sink(args.quiet, false, None));
    let runtime = runtime()?;
    let object = runtime.block_on(object(sides, &sink))?;
    let shared = Shared {
        args,
        load,
        traffic,
        access: &access,
        levels,
        trials,
        sink: Arc::clone(&sink),
        object,
        answer_time: OnceLock::new(),
        replicas_unseen: OnceLock::new(),
    };
    let begun = clock::now();
    let mut windows = Vec::new();
    let is_object = sides.iter().any(|side| matches!(side, Side::Object(_)));
    let mut parts = Parts::new(prompts_of_file(traffic), levels, args.sweeps, is_object);
    let (ended, mut seen) = runtime.block_on(async {
        let stop = match Stop::listen() {
            Ok(stop) => stop,
            Err(e) => return (Err(Failed::own(format!("error: failed to listen for signals: {e}"))), Vec::new()),
        };
        let mut sites: Vec<Site<'_>> =
            sides.iter().zip(NAMES).map(|(side, name)| Site::new(name, side, &shared, stop.clone())).collect();
        let measured = async {
            let ended = measure(&shared, &mut sites, requirements, &mut parts, &mut windows).await;
            let mut closed = Ok(());
            for site in &mut sites {
                closed = closed.and(site.close().await);
            }
            ended.and(closed)
        };
        let ended = match &shared.object {
            None => measured.await,
            Some((cluster, plan)) => {
                let during = Box::pin(vary::during(cluster, plan, Box::pin(measured)));
                match during.await {
                    Ok(ended) => ended.and(serves_again(cluster, plan, stop).await),
                    Err(why) => Err(failed(why)),
                }
            }
        };
        (ended, sites.into_iter().filter_map(Site::seen).collect())
    });
    drop(sink);
    // A sweep counts as a whole: half of one would favour a side.
    let of_sweep = |sweep: u32| windows.iter().filter(|w: &&WindowSeen| w.sweep == sweep).count();
    let whole = (0..args.sweeps).take_while(|sweep| of_sweep(*sweep) == sides.len() * levels.len()).count() as u32;
    windows.retain(|window| window.sweep < whole);
    if whole == 0 {
        seen.clear();
    }
    let early = ended.is_err().then(|| format!("ended early: {whole} of {} sweeps were measured", args.sweeps));
    let warnings = early.into_iter().chain(shared.replicas_unseen.into_inner()).collect();
    Ok(Measured { warnings, sent_again: parts.warning(), seconds: begun.elapsed().into(), sides: seen, windows, ended })
}

/// The cluster and the object of the sides, looked at before anything is touched; `None` if no side is of a cluster.
async fn object(sides: &[Side], sink: &Arc<dyn Sink>) -> Result<Option<(Cluster, vary::Plan)>, Failed> {
    let object = sides.iter().find_map(|side| if let Side::Object(object) = side { Some(object) } else { None });
    let Some(object) = object else { return Ok(None) };
    let told = Arc::clone(sink);
    let tell = Arc::new(move |says: &str| told.take(&Event::Note(says)));
    let cluster = connect(object.namespace.as_deref(), object.site.clone(), tell).await?;
    let plan = vary::plan(&cluster, object.varying.clone()).await.map_err(failed)?;
    cluster.tell(&format!("A and B differ in this; at the end the object is as it was:\n{}", plan.diff.trim_end()));
    if let Some(tool) = plan.gitops {
        cluster.tell(&format!("{tool} keeps the object as a repository says: pause it for the time of the comparison"));
    }
    Ok(Some((cluster, plan)))
}

/// Waits until the object serves with its former value, unless a signal comes.
async fn serves_again(cluster: &Cluster, plan: &vary::Plan, mut stop: Stop) -> Result<(), Failed> {
    let serves = tokio::select! {
        serves = coordinate::serves_again(cluster, plan.which(), plan.patience()) => serves.map_err(failed)?,
        // Its pods start without us too.
        () = stop.told() => true,
    };
    if serves { Ok(()) } else { Err(Failed::own("error: the object is as it was, and does not serve yet")) }
}

/// First what is required, then every sweep. Whatever it ends with, `windows` holds what was measured.
async fn measure(
    shared: &Shared<'_>,
    sites: &mut [Site<'_>],
    requirements: &[Requirement],
    parts: &mut Parts,
    windows: &mut Vec<WindowSeen>,
) -> Result<(), Failed> {
    let alone = sites.iter().any(Site::stands_alone);
    let mut first = 0;
    for side in 0..sites.len() {
        let asked: Vec<&Requirement> = requirements.iter().filter(|r| r.is_of(side)).collect();
        if asked.is_empty() {
            continue;
        }
        close_others(sites, side, parts).await?;
        let step = Step { sweep: shared.args.sweeps, level: 0, side };
        let length = Seconds(CHECKED_WITHIN.0.min(shared.args.duration.as_secs_f64()));
        let level = window(shared, &mut sites[side], step, length, parts).await?;
        let unmet: Vec<String> = asked.iter().filter_map(|r| r.unmet(&level)).collect();
        if !unmet.is_empty() {
            return Err(Failed { code: exit::NOT_AS_REQUIRED, message: require::says(NAMES[side], &unmet, &level) });
        }
        shared.sink.take(&Event::Note(&format!("{} is as required", NAMES[side])));
        // Its engine runs already.
        first = side;
    }
    for step in order(first, sites.len(), shared.args.sweeps, shared.levels.len(), !alone) {
        close_others(sites, step.side, parts).await?;
        let before = sites[step.side].requests_by_replica().await;
        let level = window(shared, &mut sites[step.side], step, shared.args.duration.into(), parts).await?;
        let requests = [&before, &sites[step.side].requests_by_replica().await];
        let summary = Summary::of(&level);
        let failed = matches!(summary.standing, Standing::Saturated | Standing::Errors);
        let limits = level.verdict.as_ref().map(|verdict| seen(verdict, failed)).unwrap_or_default();
        shared.sink.take(&Event::Note(&told(step, &summary)));
        if !level.cache.reset && matches!(&*sites, [a, b] if a.is_at_the_place_of(b)) {
            return Err(Failed::usage(
                "error: A and B are one server, and its prefix cache is not emptied: B would find there what A sent; VLLM_SERVER_DEV_MODE=1 lets vLLM empty it",
            ));
        }
        windows.push(WindowSeen::of(step.sweep, step.side, &level, summary, limits, requests));
    }
    Ok(())
}

/// One engine at a time: each may need the whole machine.
async fn close_others(sites: &mut [Site<'_>], side: usize, parts: &mut Parts) -> Result<(), Failed> {
    for (place, other) in sites.iter_mut().enumerate().filter(|(place, _)| *place != side) {
        other.close().await?;
        if other.is_launched() {
            parts.forget(place);
        }
    }
    Ok(())
}

/// One window of a side, its engine launched if it does not run. An interrupted one does not count.
async fn window(
    shared: &Shared<'_>,
    site: &mut Site<'_>,
    step: Step,
    length: Seconds,
    parts: &mut Parts,
) -> Result<Level, Failed> {
    let Step { sweep, level, .. } = step;
    let from = shared.load.ramp.map_or(length * 0.1, Seconds::from);
    // Both sides get the same arrivals and words; every other sweep and level has its own.
    let seed = |what: u64| workload::mix(shared.load.seed, &[what, u64::from(sweep), level as u64]);
    // An object's engines may run on from one value to the next, with all that they cached. Lengths are drawn with the arrivals.
    let content_seed = if site.is_object() { workload::mix(seed(2), &[step.side as u64]) } else { seed(2) };
    let load = Load {
        offered: shared.levels[level],
        window: Window { from, to: from + length },
        arrival_seed: seed(1),
        content_seed,
        answer_time: None,
        first_place: parts.first_place(step),
        counter: None,
    };
    match site.run(load).await? {
        Ran { level: Some(level), interrupted: false } if !level.partial => {
            if parts.note(step, &level) {
                shared.sink.take(&Event::Note(
                    "the file has too few prompts: from here on, windows meet some that were sent before",
                ));
            }
            Ok(level)
        }
        _ => Err(interrupts::before_the_end()),
    }
}

/// How many requests of a file are sent as they stand there; those of a trace are of drawn words.
fn prompts_of_file(traffic: &Traffic) -> usize {
    match traffic.workload.kind {
        WorkloadKind::Sharegpt(_) | WorkloadKind::Jsonl(_) => traffic.corpus.items(),
        WorkloadKind::Random(_) | WorkloadKind::Conversations(_) | WorkloadKind::Trace(_) => 0,
    }
}

/// A window in a line.
fn told(step: Step, summary: &Summary) -> String {
    let verdict = summary.verdict.as_ref();
    let binding = verdict.and_then(Verdict::binding_limit);
    let what = binding.map_or_else(|| summary.because.clone().unwrap_or_default(), |limit| limit.beside_its_limit());
    format!("sweep {}: {} at {}: {what}", step.sweep + 1, NAMES[step.side], summary.offered)
}
