//! `autotune calibrate`: measured probes -> a profile of the engine, and predicted against measured.

use std::path::{Path, PathBuf};

use super::{Failed, complain, exit, print, simulated_profile};
use crate::calibration::{Configuration, Evidence, Source, calibrate as fit, profile, to_toml};
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
        (Some(out), Some(base)) => Some((out.as_path(), base)),
        (Some(_), None) => return Err(no_base()),
        (None, _) => None,
    };
    let probes = fitted.iter().flat_map(|evidence| &evidence.probes);
    let requests: usize = probes.clone().map(|probe| probe.requests.len()).sum();
    complain(&format!("fitting {} probes with {requests} requests", probes.count()));
    let found = fit(&fitted, &held_out, base.as_ref()).map_err(usage)?;
    match out {
        Some((out, base)) => {
            let name = args.name.clone().unwrap_or_else(|| stem(out));
            let made = profile(&found, base, &name);
            keep(out, &to_toml(&made, &found), &made)?;
        }
        None if base.is_some() => complain("nothing was kept: --out FILE.toml writes the profile"),
        None => complain("nothing was kept: --out FILE.toml --base PROFILE writes a profile"),
    }
    print(&if args.json { report::pretty_json(&found) } else { report::calibration(&found) })?;
    Ok(exit::FOUND)
}

fn usage(error: impl std::fmt::Display) -> Failed {
    Failed::usage(format!("error: {error}"))
}

/// Reads sources; what `--set` and `--kv-tokens` say counts where neither the file nor its suffix says anything.
fn read(sources: &[Source], args: &CalibrateArgs) -> Result<Vec<Evidence>, Failed> {
    // Of the same flag given twice, the last counts.
    let mut given = args.set.iter().fold(Configuration::default(), |all, setting| setting.clone().or(&all));
    if let Some(tokens) = args.kv_tokens {
        let said = Configuration::parse(&format!("{}={tokens}", crate::calibration::KV_TOKENS));
        given = given.or(&said.map_err(usage)?);
    }
    let mut all = Vec::new();
    for source in sources {
        let mut evidence = source.read().map_err(usage)?;
        evidence.configured(&given);
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
        refused("it is there already\n  = hint: --force replaces it")
    } else {
        Ok(())
    }
}

/// The name of a file without its end.
fn stem(out: &Path) -> String {
    out.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

fn keep(out: &Path, text: &str, made: &Profile) -> Result<(), Failed> {
    // Whatever is kept must be readable: a base whose defaults no longer start is told now.
    Profile::parse(&out.display().to_string(), text).map_err(|error| Failed::own(format!("error: {error}")))?;
    report::replace(out, text.as_bytes()).map_err(|error| Failed::own(format!("error: {error}")))?;
    complain(&format!("kept in {}: {}", out.display(), made.source));
    Ok(())
}

fn no_base() -> Failed {
    Failed::usage(format!(
        "error: --base is missing: a profile also has memory, defaults and start, which requests do not tell\n  = hint: \
         the nearest of {}, or a .toml file of your own; what the engine logged is compared with its memory",
        Profile::NAMES.join(", ")
    ))
}
