//! (g) Everything to repeat it.

use super::{escaped, missing, table};
use crate::clock::{RFC_3339, utc};
use crate::journal::Status;
use crate::problems::join;
use crate::report::data::ReportData;
use crate::report::html::chart::number;
use crate::report::shell_quoted;
use crate::report::summary::next;

pub(super) fn section(data: &ReportData<'_>) -> String {
    let Some(header) = data.header else { return missing("The journal has no header.") };
    let outcome = &data.outcome;
    let engine = &header.plan.engine;
    let command = if engine.kind.is_simulated() { "autotune sim-engine".to_owned() } else { engine.command.join(" ") };
    let rows = [
        ("finished", outcome.finished.map_or_else(|| "not yet".to_owned(), |at| utc(at, RFC_3339))),
        ("autotune", header.autotune.clone()),
        ("engine", outcome.engine_version.clone().unwrap_or_default()),
        ("model", outcome.model.clone().unwrap_or_default()),
        ("GPUs", outcome.gpus.join(", ")),
        ("nodes", join(outcome.nodes.iter().map(ToString::to_string), "and")),
        ("engine command", command),
        ("fixed arguments", outcome.fixed_arguments.join(" ")),
        ("space file", outcome.space_file.clone()),
        ("seed", outcome.seed.to_string()),
        ("engines at a time", header.workers.to_string()),
        ("digest of the workload's file", header.workload_digest.map_or(String::new(), |d| format!("{d:016x}"))),
    ];
    let told = rows.into_iter().filter(|(_, value)| !value.is_empty());
    let rows: Vec<Vec<String>> = told.map(|(name, value)| vec![name.to_owned(), value]).collect();
    let plan = serde_json::to_string_pretty(&header.plan).unwrap_or_default();
    format!(
        "{}{}<details><summary>The whole plan, as it was checked, without secrets</summary><pre>{}</pre></details>",
        super::command(&self::command(data).unwrap_or_default()),
        table(&["", ""].map(str::to_owned), &rows),
        escaped(&plan)
    )
}

/// [`next`] of a run whose space file may not have said all; an interrupted one is continued with the same budget.
/// A rehearsed one is run.
pub(in crate::report) fn next_step(data: &ReportData<'_>) -> Option<(&'static str, String)> {
    if data.rehearsed_on.is_some() {
        let run = format!("autotune {}", shell_quoted(&data.outcome.space_file));
        return Some(("run it on the engine itself", run));
    }
    let flags = flags(data, data.outcome.status == Status::Interrupted).unwrap_or_default();
    next(&data.outcome, data.folder, &flags)
}

/// The command, with what may have come from its line instead of the space file.
pub(in crate::report) fn command(data: &ReportData<'_>) -> Option<String> {
    let (space, flags) = (shell_quoted(&data.header?.space_file), flags(data, true)?);
    Some(match data.rehearsed_on {
        Some(profile) => {
            let (profile, folder) = (shell_quoted(profile), shell_quoted(&data.folder.display().to_string()));
            format!("autotune rehearse {space} --profile {profile} --seeds 1{flags} --out {folder}")
        }
        None => format!("autotune --space {space}{flags}"),
    })
}

fn flags(data: &ReportData<'_>, with_budget: bool) -> Option<String> {
    let (header, budget) = (data.header?, data.budget?.0);
    let search = &header.plan.search;
    let budget = if with_budget { format!(" --budget {budget}s") } else { String::new() };
    let (strategy, precision) = (search.strategy.name(), number(search.precision * 100.0));
    // A rehearsal takes its seed from the space file.
    let seed = if data.rehearsed_on.is_some() { String::new() } else { format!(" --seed {}", header.seed) };
    Some(format!("{seed}{budget} --strategy {strategy} --precision {precision}%"))
}
