//! `autotune compare`: two sides under the same load, sweep by sweep, and one answer.

mod order;
mod require;
mod side;
mod site;
mod vary;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bench::check_rates;
use super::load::{Load, Ran, Traffic, access, fresh_folder, interrupts, seen};
use super::stop::Stop;
use super::{Failed, complain, exit, print, runtime, sink};
use crate::access::Access;
use crate::cli::{CompareArgs, LoadArgs};
use crate::clock;
use crate::progress::{Event, Sink};
use crate::report::bench::{Level, Offered, Standing, Status, Summary};
use crate::report::comparison::{Comparison, Equality, NAMES, Seen, WindowSeen, compared, tsv};
use crate::report::replace;
use crate::units::{Rate, Seconds};
use crate::verdict::Window;
use crate::workload;
use order::{Step, order};
use require::Requirement;
use side::Side;
use site::Site;

/// The longest window in which requirements are checked: with the ramp and the warm-up it ends within the first minute.
const CHECKED_WITHIN: Seconds = Seconds(30.0);

/// What both sides are measured with.
struct Shared<'a> {
    args: &'a CompareArgs,
    load: &'a LoadArgs,
    traffic: &'a Traffic,
    access: &'a Access,
    levels: Vec<Offered>,
    /// Where engines write their logs.
    trials: PathBuf,
    sink: Arc<dyn Sink>,
}

/// Measures every level on both sides, shows and keeps what came of them, and returns the exit code.
pub(super) fn compare(args: &CompareArgs) -> Result<u8, Failed> {
    let sides = side::both(args)?;
    let requirements = require::all(args, &sides)?;
    let levels = levels(args)?;
    let load = side::load(args, &sides);
    let traffic = Traffic::of(&load, !args.users.is_empty(), false)?;
    if traffic.limits().is_empty() {
        return Err(Failed::usage("error: compare needs limits, such as --slo ttft_p95=400ms"));
    }
    let access = access(&args.access)?;
    if let Some(out) = &args.out {
        fresh_folder(out, &["compare.json"], "comparison")?;
    }
    let scratch =
        tempfile::tempdir().map_err(|e| Failed::own(format!("error: failed to make a temporary folder: {e}")))?;
    let trials = args.out.as_deref().unwrap_or(scratch.path()).join("engines");
    if sides.iter().any(Side::is_launched) {
        // As the parent of last resort we inherit what a dead guardian leaves, instead of losing sight of it.
        nix::sys::prctl::set_child_subreaper(true).map_err(Failed::own)?;
    }
    let sink: Arc<dyn Sink> = Arc::from(sink(args.quiet, false));
    let shared =
        Shared { args, load: &load, traffic: &traffic, access: &access, levels, trials, sink: Arc::clone(&sink) };
    let begun = clock::now();
    let mut windows = Vec::new();
    let (ended, seen) = runtime()?.block_on(async {
        let stop = match Stop::listen() {
            Ok(stop) => stop,
            Err(e) => return (Err(Failed::own(format!("error: failed to listen for signals: {e}"))), None),
        };
        let mut sites = [0, 1].map(|side| Site::new(NAMES[side], &sides[side], &shared, stop.clone()));
        let ended = measure(&shared, &mut sites, &requirements, &mut windows).await;
        let mut closed = Ok(());
        for site in &mut sites {
            closed = closed.and(site.close().await);
        }
        let [a, b] = sites.map(Site::seen);
        (ended.and(closed), a.zip(b))
    });
    drop(sink);
    // A sweep counts as a whole: half of one would favour a side.
    let whole = (0..).take_while(|sweep| {
        windows.iter().filter(|w: &&WindowSeen| w.sweep == *sweep).count() == 2 * shared.levels.len()
    });
    let sweeps = whole.count() as u32;
    windows.retain(|window| window.sweep < sweeps);
    let Some((a, b)) = seen.filter(|_| sweeps > 0) else { return ended.map(|()| exit::FAILED) };
    let comparison = Comparison::of(Seen {
        workload: traffic.described.clone(),
        seed: load.seed,
        seconds: begun.elapsed().into(),
        limits: traffic.limits().to_vec(),
        levels: shared.levels,
        sides: [a, b],
        windows,
        equal_within: args.equal_within,
    });
    let json = comparison.json().map_err(Failed::own)?;
    if let Some(out) = &args.out {
        write(out, "compare.json", &json)?;
        write(out, "compare.tsv", &tsv(&comparison))?;
    }
    print(&if args.json { json } else { compared(&comparison) })?;
    if let Some(out) = args.out.as_ref().filter(|_| !args.quiet) {
        complain(&format!("results: {} (compare.json, compare.tsv)", out.display()));
    }
    ended.map(|()| code(&comparison))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), Failed> {
    replace(&folder.join(name), text.as_bytes()).map_err(|e| Failed::own(format!("error: {e}")))
}

/// What the flags ask for, from the lightest to the heaviest.
fn levels(args: &CompareArgs) -> Result<Vec<Offered>, Failed> {
    check_rates(&args.rates)?;
    let users = args.users.iter().map(|users| Offered::Users(*users));
    let mut levels: Vec<Offered> = users.chain(args.rates.iter().map(|rate| Offered::Rate(Rate(*rate)))).collect();
    levels.sort_by(|a, b| a.size().unwrap_or(0.0).total_cmp(&b.size().unwrap_or(0.0)));
    levels.dedup();
    Ok(levels)
}

/// First what is required, then every sweep. Whatever it ends with, `windows` holds what was measured.
async fn measure(
    shared: &Shared<'_>,
    sites: &mut [Site<'_>; 2],
    requirements: &[Requirement],
    windows: &mut Vec<WindowSeen>,
) -> Result<(), Failed> {
    let launched = sites.iter().any(Site::is_launched);
    let mut first = 0;
    for side in 0..2 {
        let asked: Vec<&Requirement> = requirements.iter().filter(|r| r.is_of(side)).collect();
        if asked.is_empty() {
            continue;
        }
        if launched {
            sites[1 - side].close().await?;
        }
        let step = Step { sweep: shared.args.sweeps, level: 0, side };
        let length = Seconds(CHECKED_WITHIN.0.min(shared.args.duration.as_secs_f64()));
        let level = window(shared, &mut sites[side], step, length).await?;
        let unmet: Vec<String> = asked.iter().filter_map(|r| r.unmet(&level)).collect();
        if !unmet.is_empty() {
            return Err(Failed { code: exit::NOT_AS_REQUIRED, message: require::says(NAMES[side], &unmet, &level) });
        }
        shared.sink.take(&Event::Note(&format!("{} is as required", NAMES[side])));
        // Its engine runs already.
        first = side;
    }
    for step in order(first, shared.args.sweeps, shared.levels.len(), !launched) {
        if launched {
            sites[1 - step.side].close().await?;
        }
        let level = window(shared, &mut sites[step.side], step, shared.args.duration.into()).await?;
        let summary = Summary::of(&level);
        let failed = matches!(summary.standing, Standing::Saturated | Standing::Errors);
        let limits = level.verdict.as_ref().map(|verdict| seen(verdict, failed)).unwrap_or_default();
        shared.sink.take(&Event::Note(&told(step, &summary)));
        if !level.cache.reset && sites[0].is_at_the_place_of(&sites[1]) {
            return Err(Failed::usage(
                "error: A and B are one server, and its prefix cache is not emptied: B would find there what A sent; VLLM_SERVER_DEV_MODE=1 lets vLLM empty it",
            ));
        }
        windows.push(WindowSeen::of(step.sweep, step.side, &level, summary, limits));
    }
    Ok(())
}

/// One window of a side, its engine launched if it does not run. An interrupted one does not count.
async fn window(shared: &Shared<'_>, site: &mut Site<'_>, step: Step, length: Seconds) -> Result<Level, Failed> {
    let Step { sweep, level, .. } = step;
    let from = shared.load.ramp.map_or(length * 0.1, Seconds::from);
    // Both sides get the same arrivals and words; every other sweep and level has its own.
    let seed = |what: u64| workload::mix(shared.load.seed, &[what, u64::from(sweep), level as u64]);
    let load = Load {
        offered: shared.levels[level],
        window: Window { from, to: from + length },
        arrival_seed: seed(1),
        content_seed: seed(2),
        counter: None,
    };
    match site.run(load).await? {
        Ran { level: Some(level), interrupted: false } if !level.partial => Ok(level),
        _ => Err(interrupts::before_the_end()),
    }
}

/// A window in a line.
fn told(step: Step, summary: &Summary) -> String {
    let verdict = summary.verdict.as_ref();
    let binding = verdict.and_then(|v| v.limits.iter().find(|l| Some(&l.key) == v.binding.as_ref()));
    let what = binding.map_or_else(|| summary.because.clone().unwrap_or_default(), |limit| limit.beside_its_limit());
    format!("sweep {}: {} at {}: {what}", step.sweep + 1, NAMES[step.side], summary.offered)
}

/// All failed; or by what was asked: B is worse, or the difference is not known.
fn code(comparison: &Comparison) -> u8 {
    let nothing = |status: Status| comparison.answers.iter().all(|answer| answer.status == status);
    match comparison.equality {
        _ if comparison.levels.iter().flat_map(|l| &l.sides).all(|cell| cell.completed == 0) => exit::FAILED,
        Some(Equality::Worse) => exit::NOT_REACHABLE,
        Some(Equality::Same | Equality::SameOrBetter) => exit::FOUND,
        None if nothing(Status::NothingKept) => exit::NOT_REACHABLE,
        None if comparison.difference.is_some() => exit::FOUND,
        Some(Equality::Unknown) | None => exit::UNCERTIFIED,
    }
}
