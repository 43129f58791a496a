//! (d) Where the time went: by kind of work, and trial by trial.

use super::chart::{Axis, Chart};
use super::{BOX, escaped, figure, legend, missing, table};
use crate::report::data::{Busy, ReportData, Span, Trial};
use crate::units::Seconds;

const KINDS: [(Busy, &str, &str); 5] = [
    (Busy::Launch, "fill launch", "launches, with their warm-up"),
    (Busy::Burst, "fill burst", "bursts: memory, batch"),
    (Busy::Probe, "fill probe", "probes of the search"),
    (Busy::Proof, "fill proof", "certifying probes"),
    (Busy::Stop, "fill stop", "stops"),
];

pub(super) fn section(data: &ReportData<'_>) -> String {
    let spans = || data.trials.iter().flat_map(|trial| &trial.spans);
    let end = spans().map(|span| span.to).fold(0.0, f64::max);
    if end <= 0.0 {
        return missing("The journal holds no times.");
    }
    let sum = |kind: Busy| spans().filter(|s| s.what == kind).map(|s| s.to - s.from).sum::<f64>();
    let busy: f64 = KINDS.iter().map(|(kind, ..)| sum(*kind)).sum();
    let share = |seconds: f64| format!("{:.0} %", 100.0 * seconds / busy.max(1e-9));
    let count = |kind: Busy| spans().filter(|s| s.what == kind).count().to_string();
    let rows: Vec<Vec<String>> = KINDS
        .iter()
        .filter(|(kind, ..)| sum(*kind) > 0.0)
        .map(|(kind, _, name)| {
            vec![(*name).to_owned(), count(*kind), Seconds(sum(*kind)).to_string(), share(sum(*kind))]
        })
        .collect();
    let outcome = &data.outcome;
    let mut says = format!("Engine time as the budget counts it: {}", outcome.cost.engine_seconds);
    if let Some(budget) = data.budget {
        says += &format!(" of {budget}");
    }
    if let Some(elapsed) = outcome.elapsed {
        says += &format!(". The run took {elapsed}");
    }
    if let Some(engines @ 2..) = outcome.workers {
        says += &format!(" with {engines} engines at a time");
    }
    if let Some(forecast) = outcome.forecast {
        says += &format!(". The forecast was {forecast}");
    }
    let key = KINDS.map(|(_, class, name)| (class, BOX, name));
    let bars = bars(&data.trials, end);
    let head = ["", "times", "took", "share"].map(str::to_owned);
    format!(
        "<p>{}.</p>{}{}{}",
        escaped(&says),
        table(&head, &rows),
        legend(&key, &bars),
        figure(
            "Trial by trial",
            &bars,
            "Where nothing is drawn, the program computes. The budget counts only what is drawn."
        )
    )
}

fn bars(trials: &[Trial<'_>], end: f64) -> String {
    let name = |trial: &Trial<'_>| format!("{} {}", trial.number, trial.purpose.name());
    let names: Vec<String> = trials.iter().rev().map(name).collect();
    let (unit, scale) = if end > 600.0 { ("minutes", 60.0) } else { ("seconds", 1.0) };
    let x = Axis::between(&format!("{unit} of the run"), 0.0, end / scale);
    let mut chart = Chart::new("Time of each trial", x, Axis::words("", &names), 62.0 + 20.0 * names.len() as f64);
    for (y, trial) in trials.iter().rev().enumerate() {
        for Span { what, from, to } in &trial.spans {
            let Some((_, class, name)) = KINDS.iter().find(|(kind, ..)| kind == what) else { continue };
            let says = format!("trial {}: {name}, {}", trial.number, Seconds(to - from));
            let y = y as f64;
            chart.area((from / scale, y - 0.36), (to / scale, y + 0.36), class, &says);
        }
    }
    chart.svg()
}
