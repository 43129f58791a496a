//! `autotune init`: a space file for an engine that runs already, from its manifest, from itself or from its command.

use std::path::{Path, PathBuf};

use super::export::read_manifest;
use super::load::written;
use super::{Failed, complain, exit, print, runtime};
use crate::access::{Access, plain_address};
use crate::cli::{InitArgs, TrafficArgs};
use crate::endpoints::Endpoints;
use crate::engine::dialect;
use crate::export::deployed::deployed;
use crate::printable::printable;
use crate::proposal::{Deployment, TUNED, Wishes, space_file};
use crate::report::{replace, shell_quoted};
use crate::settings::{self, EngineKind, Plan, holds_secret};
use crate::space::Value;
use crate::tune::forecast;
use crate::units::Seconds;

/// The budget until the file is read for its forecast.
const ANY_BUDGET: Seconds = Seconds(1e5);
/// So many times the forecast are proposed as a budget.
const ROOM: f64 = 1.25;
/// In steps of so many seconds.
const STEP: f64 = 300.0;

pub(super) fn init(args: &InitArgs) -> Result<u8, Failed> {
    let to_file = args.file != Path::new("-");
    if to_file && args.file.exists() && !args.force {
        let file = args.file.display();
        return Err(Failed::usage(format!(
            "error: {file} is there already; --force replaces it, or name another file"
        )));
    }
    let mut wishes = Wishes { workload: workload(&args.traffic, &args.file)?, ..Wishes::default() };
    if let Some(slo) = args.traffic.promises() {
        let limits = settings::limits(&slo).map_err(|e| Failed::usage(format!("error: --slo: {e}")))?;
        wishes.promises = limits.iter().map(|limit| (limit.key(), limit.at_most)).collect();
    }
    let deployment = match (&args.manifest, &args.url) {
        (Some(manifest), _) => of_manifest(manifest, args.container.as_deref(), &mut wishes)?,
        (None, Some(url)) => runtime()?.block_on(of_server(url, args.api_key.clone(), &mut wishes))?,
        (None, None) => {
            wishes.source = "the command of an engine".to_owned();
            Deployment::of_words(&args.command, false).map_err(|why| Failed::usage(format!("error: {why}")))?
        }
    };
    let name = shell_quoted(&if to_file { args.file.display().to_string() } else { "space.toml".to_owned() });
    let read = |text: &str| settings::parse(&name, text).map_err(|problems| Failed::usage(problems.render()));
    wishes.gpu_time = ANY_BUDGET;
    let needs = forecast(&read(&space_file(&deployment, &wishes, &name))?).engine_seconds;
    wishes.gpu_time = args.budget.map_or(Seconds((needs.0 * ROOM / STEP).ceil() * STEP), Seconds::from);
    wishes.of_budget = format!("the forecast is {needs}");
    let text = space_file(&deployment, &wishes, &name);
    let plan = read(&text)?;
    if !to_file {
        print(&text)?;
        return Ok(exit::FOUND);
    }
    replace(&args.file, text.as_bytes()).map_err(|e| Failed::own(format!("error: {e}")))?;
    complain(&says(&plan, args, &name));
    Ok(exit::FOUND)
}

/// What was written, what is only proposed, and what comes next.
fn says(plan: &Plan, args: &InitArgs, name: &str) -> String {
    let tuned: Vec<&str> = plan.space.parameters.iter().map(|p| p.name.as_str()).collect();
    let mut open = Vec::new();
    open.extend(args.traffic.slo.is_empty().then_some("the promises in [slo]"));
    let given = args.traffic.dataset.is_some() || args.traffic.input_tokens.is_some() || !args.traffic.with.is_empty();
    open.extend((!given).then_some("the traffic in [workload]"));
    let open = match open.is_empty() {
        true => String::new(),
        false => format!("\nProposed, so look at them: {}.", open.join(" and ")),
    };
    format!(
        "{name} is written; it tunes {}.{open}\nNext: see what it would do\n  autotune check {name}",
        tuned.join(", ")
    )
}

/// The `[workload]` that the flags stand for; `None` if there are none. The space file names a dataset from its own folder.
fn workload(args: &TrafficArgs, file: &Path) -> Result<Option<String>, Failed> {
    let none = TrafficArgs { slo: args.slo.clone(), ..TrafficArgs::default() };
    if format!("{args:?}") == format!("{none:?}") {
        return Ok(None);
    }
    let beside = file.parent().is_none_or(|folder| folder == Path::new(""));
    let from_there = |path: &PathBuf| match beside {
        true => Ok(path.clone()),
        false => std::path::absolute(path).map_err(|e| Failed::usage(format!("error: {}: {e}", path.display()))),
    };
    let text = written(args)?;
    let (workload, _) =
        settings::traffic("the workload of these flags", &text).map_err(|e| Failed::usage(e.render()))?;
    let Some(dataset) = &args.dataset else { return Ok(Some(text)) };
    // Read here, so that a file without a request is refused before anything is written.
    crate::workload::Corpus::read(&workload, Path::new("")).map_err(|e| Failed::usage(format!("error: {e}")))?;
    let there = TrafficArgs { dataset: Some(from_there(dataset)?), ..args.clone() };
    written(&there).map(Some)
}

fn of_manifest(path: &Path, container: Option<&str>, wishes: &mut Wishes) -> Result<Deployment, Failed> {
    let (name, text) = read_manifest(path)?;
    let engine = deployed(&name, &text, container, &TUNED).map_err(|problems| Failed::usage(problems.render()))?;
    wishes.source = format!("{} in {name}", printable(&engine.name));
    if let Some(gpus) = &engine.gpus {
        wishes
            .notes
            .push(format!("There the number of GPUs (nvidia.com/gpu) is {}: tune on as many.", printable(gpus)));
    }
    if !engine.variables.is_empty() {
        let names: Vec<&str> = engine.variables.iter().map(String::as_str).collect();
        let secret = names.iter().any(|name| holds_secret(name, "x"));
        let keys = if secret { " Leave keys in the environment of autotune." } else { "" };
        wishes.notes.push(format!(
            "There it has the variables {}: `autotune job run` has them too, elsewhere write them into env.{keys}",
            printable(&names.join(", "))
        ));
    }
    Deployment::of_words(&engine.words, true)
        .map_err(|why| Failed::usage(format!("error: {} in {name}: {why}", printable(&engine.name))))
}

async fn of_server(url: &str, api_key: Option<String>, wishes: &mut Wishes) -> Result<Deployment, Failed> {
    let usage = |e: &dyn std::fmt::Display| Failed::usage(format!("error: {e}"));
    let base_url = url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
    plain_address(&base_url).map_err(|e| usage(&e))?;
    let endpoints =
        Endpoints::new(base_url.clone(), &Access { api_key, ..Access::default() }, dialect(EngineKind::Vllm))
            .map_err(|e| usage(&e))?;
    let served =
        endpoints.served().await.map_err(|why| super::load::no_model(&base_url, &why, "--api-key gives its key"))?;
    let mut effective = endpoints.effective("").await;
    if let Some(longest) = served.longest {
        effective.values.entry("max-model-len".to_owned()).or_insert(Value::Int(longest));
    }
    let version = effective.version.as_ref().map_or(String::new(), |version| format!(", vLLM {}", printable(version)));
    wishes.source = format!("the server at {base_url}: {}{version}", printable(&served.name));
    Ok(Deployment::of_server(&printable(&served.path), &effective))
}
