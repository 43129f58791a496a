//! `autotune calibrate`: measured probes -> a profile of the engine, and predicted against measured.

use std::path::{Path, PathBuf};

use super::{Failed, complain, exit, print, simulated_profile};
use crate::calibration::{Calibration, Configuration, Evidence, Source, calibrate as fit, profile, to_toml};
use crate::cli::CalibrateArgs;
use crate::report;
use crate::twin::Profile;

/// Fits and prints; writes the profile where `--out` asks for it.
pub(super) fn calibrate(args: &CalibrateArgs) -> Result<u8, Failed> {
    if let Some(out) = &args.out {
        may_be_written(out, args.force)?;
    }
    let held_out = read(&args.hold_out, args)?;
    let sources = to_fit(args);
    if sources.is_empty() {
        return Err(Failed::usage("error: every source is held out, and nothing is left to fit"));
    }
    let fitted = read(&sources, args)?;
    let base = match &args.base {
        Some(base) => Some(base.clone()),
        None => simulated(&fitted)?,
    };
    let out = match (&args.out, &base) {
        (Some(out), Some(base)) => Some((out, base)),
        (Some(_), None) => return Err(no_base()),
        (None, _) => None,
    };
    let probes = fitted.iter().flat_map(|evidence| &evidence.probes);
    let requests: usize = probes.clone().map(|probe| probe.requests.len()).sum();
    complain(&format!("fitting {} probes with {requests} requests", probes.count()));
    let found = fit(&fitted, &held_out, base.as_ref()).map_err(|error| Failed::usage(format!("error: {error}")))?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&found).map_err(Failed::own)?));
    } else {
        print(&report::calibration(&found));
    }
    match out {
        Some((out, base)) => keep(out, &found, base, args.name.as_deref())?,
        None if base.is_some() => complain("nothing was kept: --out FILE.toml writes the profile"),
        None => complain("nothing was kept: --out FILE.toml --base PROFILE writes a profile"),
    }
    Ok(exit::FOUND)
}

/// Reads sources; what `--set` and `--kv-tokens` say counts where neither the file nor its suffix says anything.
fn read(sources: &[Source], args: &CalibrateArgs) -> Result<Vec<Evidence>, Failed> {
    let usage = |error: &dyn std::fmt::Display| Failed::usage(format!("error: {error}"));
    // Of the same flag given twice, the last counts.
    let mut given = args.set.iter().fold(Configuration::default(), |all, setting| setting.clone().or(&all));
    if let Some(tokens) = args.kv_tokens {
        let said = Configuration::parse(&format!("{}={tokens}", crate::calibration::KV_TOKENS));
        given = given.or(&said.map_err(|error| usage(&error))?);
    }
    let mut all = Vec::new();
    for source in sources {
        let mut evidence = source.read().map_err(|error| usage(&error))?;
        for probe in &mut evidence.probes {
            probe.configuration = std::mem::take(&mut probe.configuration).or(&given);
        }
        all.push(evidence);
    }
    Ok(all)
}

/// The sources without those that are held out. A file that is named twice, such as by a pattern and by its name, counts once, with what
/// was said of it last.
fn to_fit(args: &CalibrateArgs) -> Vec<Source> {
    let later = |index: usize| args.sources[index + 1..].iter().chain(&args.hold_out);
    let counts = |(index, source): &(usize, &Source)| !later(*index).any(|other| same(other, source));
    args.sources.iter().enumerate().filter(counts).map(|(_, source)| source.clone()).collect()
}

/// Whether both are the same file.
fn same(a: &Source, b: &Source) -> bool {
    let real = |source: &Source| source.path.canonicalize().unwrap_or_else(|_| source.path.clone());
    real(a) == real(b)
}

/// The profile that a run on the simulated engine names itself.
fn simulated(fitted: &[Evidence]) -> Result<Option<Profile>, Failed> {
    let plans = fitted.iter().filter_map(|evidence| evidence.plan.as_ref());
    for plan in plans {
        if let Some(profile) = simulated_profile(plan)? {
            return Ok(Some(profile));
        }
    }
    Ok(None)
}

/// Looks before the fit, so that it is not made in vain.
fn may_be_written(out: &Path, force: bool) -> Result<(), Failed> {
    let refused = |why: &str| Err(Failed::usage(format!("error: --out {}: {why}", out.display())));
    let folder = out
        .parent()
        .map_or(PathBuf::from("."), |folder| if folder == Path::new("") { ".".into() } else { folder.into() });
    if out.extension().is_none_or(|extension| extension != "toml") {
        refused("a profile's file ends with .toml")
    } else if !folder.is_dir() {
        refused("there is no such folder")
    } else if out.exists() && !force {
        refused("it is there already\nhint: --force replaces it")
    } else {
        Ok(())
    }
}

fn keep(out: &Path, found: &Calibration, base: &Profile, name: Option<&str>) -> Result<(), Failed> {
    let stem = out.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let made = profile(found, base, name.unwrap_or(&stem));
    let text = to_toml(&made, found);
    // Whatever is kept must be readable: a base whose defaults no longer start is told now.
    Profile::parse(&out.display().to_string(), &text).map_err(|error| Failed::own(format!("error: {error}")))?;
    report::replace(out, text.as_bytes()).map_err(|error| Failed::own(format!("error: {error}")))?;
    complain(&format!("kept in {}: {}", out.display(), made.source));
    Ok(())
}

fn no_base() -> Failed {
    Failed::usage(format!(
        "error: --base is missing: a profile also has memory, defaults and start, which requests do not tell\n\
         hint: the nearest of {}, or a .toml file of your own; what the engine logged is compared with its memory",
        Profile::NAMES.join(", ")
    ))
}
