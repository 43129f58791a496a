//! `report.html`: one file that needs nothing else, answers first and explains after.

mod answer;
mod certifying;
mod chart;
mod comparison;
mod evidence;
mod parameters;
mod promises;
mod repeat;
mod time;

pub use comparison::comparison_page;
pub(super) use repeat::{command as repeat_command, next_step};

use super::data::{ReportData, Whose};
use super::outcome::Outcome;
use super::summary::{headline, interval, reasons, source};
use crate::printable::printable;
use crate::settings::Metric;

const STYLE: &str = include_str!("style.css");

/// What stands behind numbers in sentences.
const UNITS: [&str; 4] = ["%", "ms", "min", "req/s"];

pub(super) fn page(data: &ReportData<'_>) -> String {
    let sections = [
        ("answer", "Answer", "The answer", answer::section(data)),
        ("promises", "Promises", "Each promise over the request rate", promises::section(data)),
        ("parameters", "Parameters", "What each parameter did", parameters::section(data)),
        ("time", "Time", "Where the time went", time::section(data)),
        ("requests", "Requests", "The requests behind the answer", certifying::section(data)),
        ("evidence", "Evidence", "Why believe it", evidence::section(data)),
        ("repeat", "Repeat", "How to repeat it", repeat::section(data)),
    ];
    // Without a probe at a rate they would be empty.
    let measured = data.at_rates().next().is_some();
    let empty = |id: &str| !measured && ["promises", "parameters", "requests"].contains(&id);
    let sections: Vec<_> = sections.into_iter().filter(|(id, ..)| !empty(id)).collect();
    let (title, source) = (headline(&data.outcome), source(&data.outcome));
    let kind = if data.outcome.simulated { "simulated" } else { "measured" };
    let source = match source.split_once(": ") {
        Some((word, rest)) => format!("<span class=\"badge {kind}\">{}</span> {}", escaped(word), escaped(rest)),
        None => escaped(&source),
    };
    let (headline, lead) = said(&data.outcome, &title);
    shell(&Shell { title: &title, source: &source, headline: &headline, lead: &lead, sections: &sections })
}

/// What a page holds: `source` and `lead` are HTML, the others text.
struct Shell<'p> {
    title: &'p str,
    source: &'p str,
    headline: &'p str,
    lead: &'p str,
    /// Of each its id, its name in the links, its title and its HTML.
    sections: &'p [(&'p str, &'p str, &'p str, String)],
}

/// A page that needs nothing else.
fn shell(Shell { title, source, headline, lead, sections }: &Shell<'_>) -> String {
    let links: String = sections.iter().map(|(id, name, ..)| format!("<a href=\"#{id}\">{name}</a> ")).collect();
    let body: String = sections
        .iter()
        .map(|(id, _, title, content)| format!("<section id=\"{id}\"><h2>{title}</h2>{content}</section>\n"))
        .collect();
    let (title, headline) = (escaped(title), prose(headline));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
         <title>autotune: {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><p class=\"source\">{source}</p><h1>{headline}</h1>{lead}</header>\n\
         <nav>{links}</nav>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// The answer, and what stands below it: doubts, and the reasons of a long one. The tiles have the interval of a gain.
fn said(outcome: &Outcome, headline: &str) -> (String, String) {
    let interval = outcome.gain_interval.map(|[from, to]| interval(from, to));
    if let Some((first, rest)) = interval.and_then(|interval| headline.split_once(&interval)) {
        let doubt = rest.trim_start_matches(['.', ' ']);
        let doubt = if doubt.is_empty() { String::new() } else { format!("<p class=\"doubt\">{}</p>", escaped(doubt)) };
        return (format!("{first}."), doubt);
    }
    let (answer, reasons) = reasons(headline);
    (answer, list(&reasons))
}

/// Text that stays text in HTML, whoever wrote it.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// A text in which no number stands apart from its unit.
fn prose(text: &str) -> String {
    UNITS.iter().fold(escaped(text).replace("+-", "±"), |text, unit| {
        text.replace(&format!(" {unit}"), &format!("\u{a0}{unit}"))
    })
}

fn paragraph(text: &str) -> String {
    format!("<p>{}</p>", prose(text))
}

/// A command to copy, in which no line ends within the name of a flag.
fn command(text: &str) -> String {
    let whole = |word: &str| match word.starts_with("--") {
        true => format!("<code>{}</code>", escaped(word)),
        false => escaped(word),
    };
    format!("<pre>{}</pre>", text.split(' ').map(whole).collect::<Vec<_>>().join(" "))
}

/// What is not there, and why.
fn missing(text: &str) -> String {
    format!("<p class=\"missing\">{}</p>", prose(text))
}

fn list(items: &[impl AsRef<str>]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>", prose(item.as_ref()))).collect();
    if items.is_empty() { items } else { format!("<ul>{items}</ul>") }
}

/// A number in large digits, with its name above and what it means below.
fn tile(class: &str, name: &str, number: &str, says: &str) -> String {
    let [name, number, says] = [name, number, says].map(escaped);
    format!("<div class=\"tile {class}\"><p>{name}</p><p class=\"number\">{number}</p><p>{says}</p></div>")
}

/// A table of plain text; the first column names the rows.
fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let cell = |(i, text): (usize, &String)| match i {
        0 => format!("<th scope=\"row\">{}</th>", escaped(text)),
        _ => format!("<td>{}</td>", escaped(text)),
    };
    let head: String = head.iter().map(|text| format!("<th scope=\"col\">{}</th>", escaped(text))).collect();
    let row = |row: &Vec<String>| format!("<tr>{}</tr>", row.iter().enumerate().map(cell).collect::<String>());
    let rows: String = rows.iter().map(row).collect();
    format!("<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>")
}

/// A chart with its title above and a sentence below.
fn figure(title: &str, svg: &str, says: &str) -> String {
    let says = if says.is_empty() { String::new() } else { paragraph(says) };
    format!("<figure><figcaption>{}</figcaption><div class=\"scroll\">{svg}</div>{says}</figure>", escaped(title))
}

/// What the colours and shapes of charts mean: class, SVG path, words. What the charts do not hold is left out.
fn legend(entries: &[(&str, &str, &str)], charts: &str) -> String {
    let drawn = |(class, path, _): &&(&str, &str, &str)| {
        // Triangles mean the same in every colour.
        let (class, shape) = match *path {
            UP | DOWN => ("", *path),
            CIRCLE | DIAMOND => (*class, *path),
            _ => (*class, ""),
        };
        let tags = charts.split('<').filter(|tag| tag.contains(&format!("class=\"{class}")));
        tags.into_iter().any(|tag| tag.contains(shape.trim_start_matches('M')))
    };
    let entry = |(class, path, words): &(&str, &str, &str)| {
        format!(
            "<span><svg class=\"key\" viewBox=\"-8 -8 16 16\" aria-hidden=\"true\"><path class=\"{class}\" d=\"{path}\"/></svg>{words}</span>"
        )
    };
    format!("<p class=\"legend\">{}</p>", entries.iter().filter(drawn).map(entry).collect::<String>())
}

const CIRCLE: &str = "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z";
const DIAMOND: &str = "M0 -6.5l6.5 6.5l-6.5 6.5l-6.5 -6.5z";
const UP: &str = "M0 -5.5l5.5 9.5h-11z";
const DOWN: &str = "M0 5.5l5.5 -9.5h-11z";
const DOT: &str = "M0 0h0";
const DASH: &str = "M-8 0H8";
const UPRIGHT: &str = "M0 -6V6M-4 -6h8M-4 6h8";
const BOX: &str = "M-6 -6h12v12h-12z";

fn shape(whose: Whose) -> &'static str {
    if whose == Whose::Tuned { DIAMOND } else { CIRCLE }
}

/// A promise as a person says it: `TTFT p99`.
fn promise(key: &str) -> String {
    let (metric, quantile) = key.rsplit_once('_').unwrap_or((key, ""));
    match Metric::ALL.into_iter().find(|m| key.starts_with(m.name())) {
        Some(m) => {
            format!("{} {}", m.name().to_uppercase(), key[m.name().len()..].trim_start_matches('_').replace('_', "."))
        }
        None => format!("{} {quantile}", metric.to_uppercase()),
    }
}

/// The unit in which latencies near a limit are drawn: its name, and how many there are in a second.
fn unit(limit: f64) -> (&'static str, f64) {
    if limit < 1.0 { ("ms", 1e3) } else { ("s", 1.0) }
}

#[cfg(test)]
pub(in crate::report) mod tests;
