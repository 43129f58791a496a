//! `autotune calibrate`: measured probes -> a profile of the engine, and predicted against measured.

use std::path::{Path, PathBuf};

use super::{Failed, complain, exit, print, simulated_profile};
use crate::calibration::{
    Asked, Configuration, DrawError, Evidence, Source, calibrate as fit, calibrate_summaries, predict_summaries,
    profile, summary_profile, summary_to_toml, to_toml,
};
use crate::cli::CalibrateArgs;
use crate::report;
use crate::settings;
use crate::twin::Profile;
use crate::workload::Corpus;

/// Fits and prints; writes the profile where `--out` asks for it.
pub(super) fn calibrate(args: &CalibrateArgs) -> Result<u8, Failed> {
    if let Some(out) = &args.out {
        may_be_written(out, args.force)?;
    }
    let asked = args.workload.as_deref().map(read_workload).transpose()?;
    let held_out = read(&args.hold_out, args)?;
    let sources = to_fit(args);
    if sources.is_empty() {
        return Err(Failed::usage("error: every source is held out, and nothing is left to fit"));
    }
    let fitted = read(&sources, args)?;
    let refusal = refused_without_workload(fitted.iter().chain(&held_out));
    match (&refusal, &asked) {
        (Some(refusal), None) => return Err(usage(refusal)),
        (None, Some(_)) => complain("--workload changes nothing: every source tells its requests"),
        _ => {}
    }
    let base = match &args.base {
        Some(base) => Some(base.clone()),
        None => simulated(&fitted)?,
    };
    let out = match (&args.out, &base) {
        (Some(out), Some(base)) => Some((out.as_path(), base)),
        (Some(_), None) => return Err(no_base()),
        (None, _) => None,
    };
    let name = |out: &Path| args.name.clone().unwrap_or_else(|| stem(out));
    let found = if fitted.iter().all(Evidence::is_summary)
        && let Some(asked) = &asked
    {
        let summaries: usize = fitted.iter().map(|evidence| evidence.summaries.len()).sum();
        complain(&format!("fitting {summaries} summaries, whose requests are drawn anew"));
        let found = calibrate_summaries(&fitted, &held_out, asked, base.as_ref()).map_err(usage)?;
        Found {
            json: serde_json::to_value(&found).map_err(Failed::own)?,
            text: report::summary_calibration(&found),
            made: out.map(|(out, base)| {
                let made = summary_profile(&found, base, &name(out));
                (out, summary_to_toml(&made, &found), made)
            }),
        }
    } else {
        let probes = fitted.iter().flat_map(|evidence| &evidence.probes);
        let requests: usize = probes.clone().map(|probe| probe.requests.len()).sum();
        complain(&format!("fitting {} probes with {requests} requests", probes.count()));
        let mut found = fit(&fitted, &held_out, base.as_ref()).map_err(usage)?;
        let all = || fitted.iter().chain(&held_out);
        if let Some(asked) = asked.as_ref().filter(|_| refusal.is_some()) {
            let predicted = predict_summaries(all(), asked, base.as_ref(), &found.fit.costs).map_err(usage)?;
            found.compared.extend(predicted.0);
            found.notes.extend(predicted.1);
        }
        Found {
            json: serde_json::to_value(&found).map_err(Failed::own)?,
            text: report::calibration(&found),
            made: out.map(|(out, base)| {
                let made = profile(&found, base, &name(out));
                (out, to_toml(&made, &found), made)
            }),
        }
    };
    match found.made {
        Some((out, text, made)) => keep(out, &text, &made)?,
        None if base.is_some() => complain("nothing was kept: --out FILE.toml writes the profile"),
        None => complain("nothing was kept: --out FILE.toml --base PROFILE writes a profile"),
    }
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&found.json).map_err(Failed::own)?))?;
    } else {
        print(&found.text)?;
    }
    Ok(exit::FOUND)
}

/// What a calibration prints, and the profile that it writes: where, its text and itself.
struct Found<'a> {
    json: serde_json::Value,
    text: String,
    made: Option<(&'a Path, String, Profile)>,
}

fn usage(error: impl std::fmt::Display) -> Failed {
    Failed::usage(format!("error: {error}"))
}

/// The first source that tells a summary, and why that is refused without a workload.
fn refused_without_workload<'a>(mut all: impl Iterator<Item = &'a Evidence>) -> Option<String> {
    let refusal = |evidence: &Evidence| evidence.summaries.first().map(|run| format!("{}: {}", run.name, run.refusal));
    all.find_map(refusal)
}

/// What was asked, as the `[workload]` of a file tells it.
fn read_workload(path: &Path) -> Result<Asked, Failed> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| usage(format!("failed to read {name}: {error}")))?;
    let (workload, _) = settings::traffic(&name, &text).map_err(|problems| Failed::usage(problems.render()))?;
    let corpus = Corpus::read(&workload, path.parent().unwrap_or(Path::new(""))).map_err(usage)?;
    Asked::new(workload, corpus).map_err(|error: DrawError| usage(format!("--workload {name}: {error}")))
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
        refused("it is there already\nhint: --force replaces it")
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
        "error: --base is missing: a profile also has memory, defaults and start, which requests do not tell\n\
         hint: the nearest of {}, or a .toml file of your own; what the engine logged is compared with its memory",
        Profile::NAMES.join(", ")
    ))
}
