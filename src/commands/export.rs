//! `autotune export`: the winning arguments into the user's own manifest.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::{Failed, complain, exit, print};
use crate::cli::{ExportArgs, Form};
use crate::digest::sha256;
use crate::export::contradictions::contradictions;
use crate::export::flags::Flags;
use crate::export::forms;
use crate::export::source::Source;
use crate::export::winner::{annotations, of_frontend, settings, winner};
use crate::export::write::{Exported, IntendedFlags, export as write};
use crate::problems::Problems;
use crate::report::{Outcome, pretty_json, replace};

/// Writes the manifest, or what changes in it, and says on standard error what a person should know.
pub(super) fn export(args: &ExportArgs) -> Result<u8, Failed> {
    if args.in_place && args.form != Form::File {
        return Err(Failed::usage(
            "error: --in-place changes the whole file: leave out --form, or print with --form alone",
        ));
    }
    let (outcome, digest) = read_outcome(&args.outcome)?;
    let best = winner(&outcome, args.uncertified).map_err(|e| Failed::usage(format!("error: {e}")))?;
    let (name, before) = read_manifest(&args.manifest)?;
    let wanted = IntendedFlags {
        settings: settings(best),
        annotations: if args.no_annotations { Vec::new() } else { annotations(&outcome, best, &digest) },
        containers: args.container.clone(),
        path: args.path.clone(),
    };
    let flags = Flags::of(outcome.engine, wanted.settings.iter().map(|s| s.name.as_str()));
    let visit = |document: crate::export::source::Document<'_>, engine: &crate::export::locate::Located<'_>| {
        contradictions(&outcome, document, engine)
    };
    let done = write(&name, &before, &wanted, &flags, &visit).map_err(|problems| Failed::usage(problems.render()))?;
    if let Some(says) = of_frontend(best) {
        complain(&format!("warning: {says}"));
    }
    if outcome.simulated {
        complain("warning: the outcome is of a simulated engine: these arguments were not measured on a real one");
    }
    if !done.notes.is_empty() {
        complain(&Problems::new(&name, &before, done.notes.clone()).render_as_warnings());
    }
    let form = |e: forms::NoSuchForm| Failed::usage(format!("error: {e}"));
    let source = || Source::new(before.clone()).map_err(|wrong| Failed::own(wrong.says));
    match args.form {
        Form::File if args.in_place => in_place(&args.manifest, &before, &done)?,
        Form::File => print(&done.text)?,
        Form::Diff => print(&forms::diff(&name, &before, &done.text))?,
        Form::Kustomize => print(&forms::kustomize(&source()?, &done).map_err(form)?)?,
        Form::JsonPatch => {
            let operations = forms::json_patch(&source()?, &done, forms::Target::Cluster).map_err(form)?;
            print(&pretty_json(&operations))?;
            if let Some(command) = forms::annotate_command(&source()?, &done) {
                complain(&format!(
                    "the patch leaves the annotations out, which the object may not have yet: {command}"
                ));
            }
        }
    }
    complain(&says(&done));
    Ok(exit::FOUND)
}

fn says(done: &Exported) -> String {
    let engines = done.engines.join(" and ");
    match done.changed.len() {
        0 => format!("{engines} has these arguments already: nothing to change"),
        _ => format!("{engines} set; nothing else differs"),
    }
}

/// The outcome of a run's folder, or of the file itself, and the digest of the file.
pub(super) fn read_outcome(place: &Path) -> Result<(Outcome, String), Failed> {
    let file = if place.is_dir() { place.join("outcome.json") } else { place.to_owned() };
    let bytes = std::fs::read(&file).map_err(|e| {
        Failed::usage(format!(
            "error: failed to read the outcome {}: {e}; a run writes it into its --out folder",
            file.display()
        ))
    })?;
    let outcome: Outcome = serde_json::from_slice(&bytes)
        .map_err(|e| Failed::usage(format!("error: {} is no outcome of autotune: {e}", file.display())))?;
    if outcome.version != crate::report::VERSION {
        let says = format!(
            "error: {} has version {}, and this program reads version {}",
            file.display(),
            outcome.version,
            crate::report::VERSION
        );
        return Err(Failed::usage(says));
    }
    Ok((outcome, format!("sha256:{}", sha256(&bytes))))
}

/// The name that is shown, and the text; `-` is standard input.
pub(super) fn read_manifest(path: &Path) -> Result<(String, String), Failed> {
    let usage =
        |e: std::io::Error| Failed::usage(format!("error: failed to read the manifest {}: {e}", path.display()));
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(usage)?;
        return Ok(("manifest.yaml".to_owned(), text));
    }
    Ok((path.display().to_string(), std::fs::read_to_string(path).map_err(usage)?))
}

/// Replaces the file, and keeps what it was beside it.
fn in_place(path: &Path, before: &str, done: &Exported) -> Result<(), Failed> {
    if path == Path::new("-") {
        return Err(Failed::usage("error: standard input cannot be changed in place"));
    }
    if done.text == before {
        return Ok(());
    }
    let failed = |what: &str, e: std::io::Error| Failed::own(format!("failed to {what} {}: {e}", path.display()));
    // A link stays one: its target is replaced.
    let target = path.canonicalize().map_err(|e| failed("find", e))?;
    let backup = free_name(path);
    std::fs::copy(&target, &backup)
        .map_err(|e| Failed::own(format!("failed to keep a copy at {}: {e}; nothing was written", backup.display())))?;
    let permissions = std::fs::metadata(&target).map_err(|e| failed("look at", e))?.permissions();
    replace(&target, done.text.as_bytes()).map_err(Failed::own)?;
    std::fs::set_permissions(&target, permissions).map_err(|e| failed("keep the permissions of", e))?;
    complain(&format!("{} was kept as {}", path.display(), backup.display()));
    Ok(())
}

/// A name beside a file that nothing has yet: no earlier copy is lost.
fn free_name(path: &Path) -> PathBuf {
    let named = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let numbered = (1..).map(|n| named(&format!(".bak.{n}")));
    std::iter::once(named(".bak")).chain(numbered).find(|name| !name.exists()).unwrap_or_else(|| named(".bak"))
}
