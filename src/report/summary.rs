//! The few lines that a session ends with.

use std::fmt::Write;
use std::path::Path;

use super::outcome::{Answer, Outcome};
use crate::journal::Status;
use crate::units::Seconds;

/// What a person wants to know at the end.
pub fn summary(outcome: &Outcome, folder: &Path) -> String {
    let mut text = String::new();
    let headline = match outcome.status {
        Status::Certified => "certified",
        Status::Uncertified if outcome.best.is_none() => "nothing measured",
        Status::Uncertified => "found, NOT certified",
        Status::NotReachable => "the promises cannot be kept",
        Status::NeverStarted => "the engine never started",
        Status::Interrupted => "interrupted",
    };
    let simulated = if outcome.simulated { " [simulated engine: not a measurement]" } else { "" };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n{headline}{simulated}: {}", outcome.because);
    for (name, answer) in [("defaults", &outcome.baseline), ("best", &outcome.best)] {
        if let Some(answer) = answer {
            let _ = writeln!(text, "  {name:9} {}", line(answer));
            if let Some(seen) = seen(answer) {
                let _ = writeln!(text, "            {seen}");
            }
        }
    }
    for what in &outcome.left_out {
        let _ = writeln!(text, "  left out: {what}");
    }
    let cost = &outcome.cost;
    let together = match (outcome.workers, outcome.elapsed) {
        (Some(workers @ 2..), Some(elapsed)) => format!(" of {workers} workers in {elapsed}"),
        _ => String::new(),
    };
    let _ = writeln!(
        text,
        "  cost      {} launches, {} probes, {} of engine time{together}",
        cost.launches, cost.probes, cost.engine_seconds
    );
    if let Some(forecast) = &outcome.forecast {
        let (launches, probes, seconds) = (forecast.launches, forecast.probes, forecast.engine_seconds);
        let _ = writeln!(text, "  forecast  {launches} launches, {probes} probes, {seconds}");
    }
    // Of a run in a cluster, only the outcome comes back.
    let files = ["outcome.json", "trials.csv", "journal.jsonl", "requests/"];
    let there: Vec<&str> = files.into_iter().filter(|file| folder.join(file).exists()).collect();
    let _ = writeln!(text, "  files     {}: {}", folder.display(), there.join(", "));
    let paste = folder.join("args.txt");
    if outcome.best.is_some() && paste.exists() {
        let _ = writeln!(text, "  paste     {}", paste.display());
    }
    text
}

fn line(answer: &Answer) -> String {
    let rate = match (answer.certified_rate, answer.estimated_rate) {
        (Some(rate), _) => {
            format!("{rate} certified ({:.0} % sure)", (answer.confidence.unwrap_or(0.0) * 100.0).floor())
        }
        (None, Some(rate)) => format!("about {rate}, not certified"),
        (None, None) => "keeps the promises at no rate".to_owned(),
    };
    let binding = answer.binding.as_ref().map_or(String::new(), |b| format!(", {b} binds"));
    let windows = answer.windows_that_hold.map_or(String::new(), |share| {
        format!(", {:.0} % of five-minute windows keep the promises", (share * 100.0).floor())
    });
    format!("{rate}{binding}{windows}: {}", answer.parameters)
}

/// The limit behind a certified rate, and what its proof saw with its own eyes.
fn seen(answer: &Answer) -> Option<String> {
    let (limit, error, seen) = (answer.limit?, answer.limit_error?, answer.seen.as_ref()?);
    let quantile = |(key, value): (&String, &Option<Seconds>)| match value {
        Some(value) => format!("{key} {value}"),
        None => format!("{key} without an answer"),
    };
    let measured: Vec<String> = seen.measured.iter().map(quantile).collect();
    Some(format!(
        "limit {limit} +-{:.1} %; seen at {} over {} requests: {}",
        error * 100.0,
        seen.rate,
        seen.requests,
        measured.join(", ")
    ))
}
