//! (a) The answer: both points side by side, how sure it is, and what to copy.

use super::chart::{Axis, Chart};
use super::{BOX, CIRCLE, escaped, legend, missing, next_step, paragraph, shape, table, tile};
use crate::report::data::{ReportData, Whose};
use crate::report::outcome::Answer;
use crate::report::standing::best_so_far;
use crate::report::summary::{changes, columns, defaults_win, enough, latencies, percent, rows, shown};
use crate::report::{args_txt, env_txt};

pub(super) fn section(data: &ReportData<'_>) -> String {
    let outcome = &data.outcome;
    let columns = columns(outcome);
    let mut html = String::new();
    if columns.is_empty() {
        let (trials, probes) = (data.trials.len(), data.at_rates().count());
        let best = best_so_far(data).map_or(String::new(), |says| format!(" Best so far: {says}."));
        html += &missing(&format!(
            "There is no answer yet: {trials} trials and {probes} probes at a rate are recorded, and shown below.{best}"
        ));
    }
    html += &tiles(data, &columns);
    if columns.iter().any(|(_, answer)| answer.certified_rate.is_some()) {
        html += &paragraph(
            "Certified: every promise holds at this rate, as sure as stated. It follows from all certifying probes of the point, and is never above the highest rate that one of them drove. The rate itself may not have been driven.",
        );
    }
    html += "<div class=\"pair\">";
    if let Some(best) = &outcome.best {
        let certified = if best.certified_rate.is_some() { "" } else { " (not certified)" };
        let environment = if best.environment.is_empty() {
            String::new()
        } else {
            format!("<h3>Environment</h3><pre>{}</pre>", escaped(&env_txt(best)))
        };
        html += &format!(
            "<div class=\"arguments\"><h3>Arguments to copy{certified}</h3><pre>{}</pre>{environment}\
             <details><summary>As the args of a container</summary><pre>{}</pre></details></div>",
            escaped(&args_txt(&best.arguments)),
            escaped(&args_yaml(&best.arguments))
        );
    }
    let changes = changes(outcome);
    if !changes.is_empty() {
        let rows: Vec<Vec<String>> =
            changes.into_iter().map(|(name, change)| vec![name.to_owned(), change.replace("->", "→")]).collect();
        let head = if defaults_win(outcome) { "value" } else { "defaults → answer" };
        html += &table(&["parameter", head].map(str::to_owned), &rows);
    }
    html += "</div>";
    if let Some((what, command)) = next_step(data) {
        html += &format!("<h3>Next: {}</h3>{}", escaped(what), super::command(&command));
    }
    html += &enough(outcome).map_or(String::new(), |says| paragraph(&says));
    html += "<div class=\"pair\">";
    html += &rates(&columns);
    let rows = rows(outcome, false);
    if let Some(((_, head), rows)) = rows.split_first() {
        let with = |label: &str, cells: &[Option<String>]| -> Vec<String> {
            std::iter::once(label.to_owned()).chain(cells.iter().map(shown)).collect()
        };
        let rows: Vec<Vec<String>> = rows.iter().map(|(label, cells)| with(label, cells)).collect();
        html += "<div class=\"table\">";
        html += &table(&with("", head), &rows);
        html.extend(latencies(outcome, false).iter().map(|says| format!("<p class=\"says\">{}</p>", escaped(says))));
        html += "</div>";
    }
    html += "</div>";
    html
}

/// The arguments as YAML of a manifest; every JSON string is one of YAML.
fn args_yaml(arguments: &[String]) -> String {
    let quoted = |word: &String| serde_json::to_string(word).unwrap_or_default();
    arguments.iter().fold("args:".to_owned(), |text, word| format!("{text}\n- {}", quoted(word)))
}

/// The rates and the gain in large digits.
fn tiles(data: &ReportData<'_>, columns: &[(&'static str, &Answer)]) -> String {
    let mut tiles = String::new();
    for (name, answer) in columns {
        let confidence = answer.confidence.map_or(String::new(), |share| format!(", {} sure", percent(share)));
        let (number, says) = match (answer.certified_rate, answer.estimated_rate) {
            (Some(rate), _) => (rate.to_string(), format!("certified{confidence}")),
            (None, Some(rate)) => (format!("about {rate}"), "estimated, not certified".to_owned()),
            (None, None) if answer.probes == Some(0) => ("not measured".to_owned(), "no probe at a rate".to_owned()),
            (None, None) => ("no rate".to_owned(), "none that was tried holds".to_owned()),
        };
        tiles += &tile(name, name, &number, &says);
    }
    if let (Some(gain), [_, _]) = (data.outcome.gain, columns) {
        let says = data.outcome.gain_interval.map_or("no interval is known".to_owned(), |[from, to]| {
            format!("90 % interval: {:+.0} to {:+.0} %", from * 100.0, to * 100.0)
        });
        tiles += &tile("gain", "gain", &format!("{:+.0} %", gain * 100.0), &says);
    }
    if tiles.is_empty() { tiles } else { format!("<div class=\"tiles\">{tiles}</div>") }
}

/// Certified rates as bars, limits with their errors.
fn rates(columns: &[(&'static str, &Answer)]) -> String {
    let range = |answer: &Answer| answer.limit_interval().map(|(limit, low, high)| (limit.0, low.0, high.0));
    let all = columns.iter().flat_map(|(_, a)| [a.certified_rate.map(|r| r.0), range(a).map(|(_, _, high)| high)]);
    let highest = all.flatten().fold(0.0, f64::max);
    if highest <= 0.0 {
        return String::new();
    }
    let names: Vec<String> = columns.iter().rev().map(|(name, _)| (*name).to_owned()).collect();
    let x = Axis::between("requests per second", 0.0, highest * 1.12);
    let mut chart =
        Chart::new("Certified rates and limits", x, Axis::words("", &names), 60.0 + 42.0 * names.len() as f64);
    for (place, (name, answer)) in columns.iter().rev().enumerate() {
        let y = place as f64;
        if let Some(rate) = answer.certified_rate {
            chart.area(
                (0.0, y - 0.3),
                (rate.0, y + 0.3),
                &format!("fill {name}"),
                &format!("{name}: {rate} certified"),
            );
        }
        if let Some((limit, low, high)) = range(answer) {
            chart.spread((low, high), y, "ink");
            chart.mark((limit, y), 0.0, shape(Whose::Other), "ink full", &format!("limit {limit:.4} req/s"));
        }
    }
    let svg = chart.svg();
    let key = legend(
        &[
            ("fill defaults", BOX, "defaults, certified"),
            ("fill tuned", BOX, "tuned, certified"),
            ("ink full", CIRCLE, "limit, with its 90 % interval"),
        ],
        &svg,
    );
    let limits = columns.iter().filter_map(|(name, answer)| {
        Some(format!("{name} {}, standard error {:.1} %", answer.limit?, answer.limit_error? * 100.0))
    });
    let limits: Vec<String> = limits.collect();
    let limits = if limits.is_empty() {
        String::new()
    } else {
        paragraph(&format!(
            "The limit is the rate at which the first promise breaks, by estimate: {}.",
            limits.join("; ")
        ))
    };
    format!("<div class=\"rates\">{key}<div class=\"scroll\">{svg}</div>{limits}</div>")
}
