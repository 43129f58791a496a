//! (g) Everything to repeat it.

use super::{escaped, missing, table};
use crate::clock::Utc;
use crate::report::data::ReportData;
use crate::report::html::chart::number;
use crate::report::shell_quoted;

pub(super) fn section(data: &ReportData<'_>) -> String {
    let Some(header) = data.header else { return missing("The journal has no header.") };
    let outcome = &data.outcome;
    let told = |value: Option<String>| value.filter(|v| !v.is_empty()).unwrap_or_else(|| "not told".to_owned());
    let date = |at| {
        let Utc { year, month, day, hour, minute, .. } = Utc::of(at);
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
    };
    let rows = [
        ("finished", outcome.finished.map_or_else(|| "not yet".to_owned(), date)),
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
