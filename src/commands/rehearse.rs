//! `autotune rehearse`: whole sessions on a simulated engine, in seconds.

use std::sync::Mutex;
use std::time::Duration;

use super::load::fresh_folder;
use super::{Failed, complain, exit, print, read_corpus, read_plan, simulated_profile};
use crate::cli::RehearseArgs;
use crate::clock;
use crate::journal::{FORMAT, Header, RECORDS_FORMAT};
use crate::rehearsal::{Job, RehearsalError, TRUTH_REQUESTS, recorded, rehearse as simulate};
use crate::report;
use crate::settings::redact_plan;
use crate::twin::Profile;
use crate::workload::Material;

/// Progress is told from then on, and that often.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Rehearses and prints; the first session is written where a folder is given.
pub(super) fn rehearse(args: RehearseArgs) -> Result<u8, Failed> {
    let mut plan = read_plan(args.space.path())?;
    let corpus = read_corpus(&plan, args.space.path())?;
    args.overrides.apply(&mut plan);
    let profile = match args.profile {
        Some(profile) => profile,
        None => simulated_profile(&plan)?.ok_or_else(no_profile)?,
    };
    if let Some(out) = &args.out {
        fresh_folder(out, &["journal.jsonl", "report.html"], "run")?;
    }
    let digest = corpus.digest();
    let material = Material { corpus, ..Material::default() };
    // The first seed is that of the main job.
    let seeds: Vec<u64> = (0..u64::from(args.seeds)).map(|i| plan.search.seed.wrapping_add(i)).collect();
    let told = Mutex::new(clock::now());
    let progress = |what: &str, done: usize, of: usize| {
        let Ok(mut told) = told.lock() else { return };
        if told.elapsed() >= TELL_EVERY && done < of {
            *told = clock::now();
            complain(&format!("simulating: {done} of {of} {what}"));
        }
    };
    let of = Job::of(&plan, &profile, &material, TRUTH_REQUESTS);
    let job = Job { workers: args.workers as usize, progress: &progress, ..of };
    let failed = |error: RehearsalError| match error {
        RehearsalError::Scope(_) => Failed::usage(format!("error: {error}")),
        RehearsalError::Session { .. } => Failed::own(format!("error: {error}")),
    };
    let rehearsal = simulate(job, &seeds).map_err(failed)?;
    if let Some(out) = &args.out {
        let header = Header {
            format: FORMAT,
            records_format: RECORDS_FORMAT,
            autotune: env!("CARGO_PKG_VERSION").to_owned(),
            space_file: args.space.path().display().to_string(),
            seed: plan.search.seed,
            plan: redact_plan(&plan),
            workload_digest: digest,
            workers: 1,
        };
        let journal = recorded(&job, header, clock::unix_seconds(), out).map_err(failed)?;
        let [page, _] = report::write_report(out, &journal, Some(&profile.name)).map_err(Failed::own)?;
        complain(&format!("report of the first session: {}", page.display()));
    }
    let space = args.space.path().display().to_string();
    print(&if args.json { report::pretty_json(&rehearsal) } else { report::rehearsal(&rehearsal, &space) })?;
    Ok(exit::FOUND)
}

/// The space file of a real engine does not say what shall be simulated.
fn no_profile() -> Failed {
    Failed::usage(format!(
        "error: --profile is missing: the space file is for a real engine, and which one shall be simulated is not in it\n  = hint: \
         --profile {}, or a .toml file",
        Profile::NAMES.join(", --profile ")
    ))
}
