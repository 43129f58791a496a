//! `autotune check`: what a run would do, without starting anything.

use std::fmt::Write;
use std::path::Path;

use super::{Failed, corpus_says, exit, print, profile_says, read_corpus, read_plan, simulated_profile};
use crate::engine::command_line;
use crate::settings::redact_plan;
use crate::space;
use crate::tune::forecast;

pub(super) fn check(path: &Path) -> Result<u8, Failed> {
    let plan = read_plan(path)?;
    let corpus = read_corpus(&plan, path)?;
    let plan = redact_plan(&plan);
    let binary = Path::new("autotune");
    let launch = command_line(&plan.engine, binary, plan.engine.port.unwrap_or(8000), &plan.space.baseline());
    let forecast = forecast(&plan);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{} is a valid space file", path.display());
    let promises: Vec<String> = plan.slo.iter().map(|l| format!("{} <= {}", l.key(), l.at_most)).collect();
    let _ = writeln!(text, "  promises   {}", promises.join(", "));
    if let Some(profile) = simulated_profile(&plan)? {
        let _ = writeln!(text, "  engine     {}", profile_says(&profile));
    }
    if let Some(says) = corpus_says(&plan.workload, &corpus) {
        let _ = writeln!(text, "  workload   {says}");
    }
    for parameter in &plan.space.parameters {
        let values: Vec<String> = parameter.values.iter().map(ToString::to_string).collect();
        let default = parameter.default.as_ref().map_or("the engine's own".into(), ToString::to_string);
        let _ = writeln!(text, "  {}: {} (default {default})", parameter.name, values.join(" "));
    }
    let admitted = space::candidates(&plan.space, &space::Point::default(), 1024, 0).len();
    let more = if admitted == 1024 { " or more" } else { "" };
    let _ = writeln!(text, "  points     {} in the grid, {admitted}{more} keep the constraints", plan.space.size());
    let _ = writeln!(text, "  baseline   {}", launch.join(" "));
    let _ = writeln!(
        text,
        "  forecast   about {} launches, {} probes, {} of engine time (budget {})",
        forecast.launches,
        forecast.probes,
        forecast.engine_seconds,
        crate::units::Seconds::from(plan.budget.gpu_time),
    );
    print(&text)?;
    Ok(exit::FOUND)
}
