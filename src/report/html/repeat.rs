//! (g) Everything to repeat it.

use super::{escaped, missing, table};
use crate::clock::Utc;
use crate::journal::Status;
use crate::report::data::ReportData;
use crate::report::html::chart::number;
use crate::report::shell_quoted;
use crate::report::summary::next;

pub(super) fn section(data: &ReportData<'_>) -> String {
    let Some(header) = data.header else { return missing("The journal has no header.") };
    let outcome = &data.outcome;
    let told = |value: Option<String>| value.filter(|v| !v.is_empty()).unwrap_or_else(|| "not told".to_owned());
    let rows = [
        ("finished", outcome.finished.map_or_else(|| "not yet".to_owned(), |at| Utc::of(at).to_string())),
        ("autotune", header.autotune.clone()),
        ("engine", told(outcome.engine_version.clone())),
        ("model", told(outcome.model.clone())),
        ("GPUs", told(Some(outcome.gpus.join(", ")))),
        ("nodes", told(Some(outcome.nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")))),
        ("engine command", told(Some(header.plan.engine.command.join(" ")))),
        (
            "fixed arguments",
            if outcome.fixed_arguments.is_empty() { "none".to_owned() } else { outcome.fixed_arguments.join(" ") },
        ),
        ("space file", outcome.space_file.clone()),
        ("seed", outcome.seed.to_string()),
        ("engines at a time", header.workers.to_string()),
        (
            "digest of the workload's file",
            header.workload_digest.map_or_else(|| "the workload has no file".to_owned(), |d| format!("{d:016x}")),
        ),
    ];
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let plan = serde_json::to_string_pretty(&header.plan).unwrap_or_default();
    format!(
        "<pre>{}</pre>{}<details><summary>The whole plan, as it was checked, without secrets</summary><pre>{}</pre></details>",
        escaped(&command(data).unwrap_or_default()),
        table(&["", ""].map(str::to_owned), &rows),
        escaped(&plan)
    )
}

/// [`next`] of a run whose space file may not have said all; an interrupted one is continued with the same words.
pub(in crate::report) fn next_step(data: &ReportData<'_>) -> Option<(&'static str, String)> {
    let (what, said) = next(&data.outcome, data.folder)?;
    let again = command(data).filter(|_| data.outcome.status == Status::Interrupted);
    let folder = shell_quoted(&data.folder.display().to_string());
    Some((what, again.map_or(said, |again| format!("{again} --out {folder} --resume"))))
}

/// The command, with what may have come from its line instead of the space file.
pub(in crate::report) fn command(data: &ReportData<'_>) -> Option<String> {
    let header = data.header?;
    let (plan, space) = (&header.plan, shell_quoted(&header.space_file));
    Some(format!(
        "autotune --space {space} --seed {} --budget {}s --strategy {} --precision {}%",
        header.seed,
        data.budget?.0,
        plan.search.strategy.name(),
        number(plan.search.precision * 100.0),
    ))
}
