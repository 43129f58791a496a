//! Picks the lines of a log that may say why an engine failed, and leaves out what only looks so.

use super::dialects::Dialect;
use super::log_lines::{Level, Line, lines};
use super::symptoms::Symptom;

/// How far a complaint is trusted, the most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// The parser of the command line refused an argument; it is the last thing such a process says.
    CommandLine,
    /// The message is in the table.
    Known,
    /// The engine's configuration refused a value.
    Configuration,
    /// An exception that nobody classified.
    Exception,
    /// Any other line at level error.
    Loud,
}

/// One line that may be the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    /// Whether an engine core or a worker said it.
    pub(super) engine: bool,
    pub(super) weight: Weight,
    /// The message, without prefixes and without the dump of the arguments.
    pub(super) text: String,
}

/// Errors that repeat the failure of another process, or follow a shutdown. They are never the reason.
const ECHOES: &[&str] = &[
    "failed to start",
    "hit an exception",
    "died unexpectedly",
    "resource_tracker",
    "cancellederror",
    "traceback (most recent call last)",
    "during handling of the above exception",
    "the above exception was the direct cause",
];

/// Words with which a process without Python's help says that it crashed.
const CRASHES: &[&str] = &[
    "fatal python error",
    "terminate called after",
    "segmentation fault",
    "segfault encountered",
    "bus error",
    "core dumped",
];

/// The reason that a log gives, if it gives one.
///
/// Errors of an engine core or a worker come before those of the API server. That one also logs errors that it survives, such as a hub that
/// it cannot reach. Within a process the first error is the reason, and the others are its echoes.
pub(super) fn reason(log: &str, dialect: &dyn Dialect) -> Option<Complaint> {
    let all = collect(log, dialect);
    let best = |engine: bool| all.iter().filter(|c| !engine || c.engine).min_by_key(|c| c.weight);
    let refused = best(false).filter(|c| c.weight == Weight::CommandLine);
    let exception = best(true).filter(|c| c.weight <= Weight::Exception);
    refused.or(exception).or_else(|| best(false)).cloned()
}

fn collect(log: &str, dialect: &dyn Dialect) -> Vec<Complaint> {
    let mut found = Vec::new();
    let mut rest = lines(log).peekable();
    while let Some(line) = rest.next() {
        if line.text.to_lowercase().contains(" validation error") && line.text.contains(" for ") {
            let details = validation_details(&mut rest);
            let text = if details.is_empty() { line.text.trim().to_owned() } else { details.join("; ") };
            let weight =
                if Symptom::of(&text, dialect.symptoms()).is_some() { Weight::Known } else { Weight::Configuration };
            found.push(Complaint { engine: line.engine, weight, text });
        } else if let Some(weight) = weigh(&line, dialect) {
            found.push(Complaint { engine: line.engine, weight, text: line.text });
        }
    }
    found
}

/// What pydantic says below `2 validation errors for X`: for each a field, unless the whole is meant, and a message.
fn validation_details(rest: &mut std::iter::Peekable<impl Iterator<Item = Line>>) -> Vec<String> {
    let mut details = Vec::new();
    let mut field = String::new();
    while let Some(line) = rest.next_if(|l| is_detail(&l.text)) {
        let text = line.text.trim();
        if !line.text.starts_with(' ') {
            field = format!("{text}: ");
        } else if !text.starts_with("For further information") {
            details.push(format!("{field}{}", without_dump(text)));
            field.clear();
        }
    }
    details
}

fn is_detail(text: &str) -> bool {
    let name = |t: &str| t.chars().all(|c| c.is_ascii_alphanumeric() || "_.-[]".contains(c));
    !text.trim().is_empty() && (text.starts_with("  ") || name(text))
}

/// Cuts `[type=value_error, input_value=ArgsKwargs(...)]`, which names arguments that are not to blame.
fn without_dump(text: &str) -> &str {
    text.split_once(" [type=").map_or(text, |(message, _)| message)
}

fn weigh(line: &Line, dialect: &dyn Dialect) -> Option<Weight> {
    let text = line.text.as_str();
    // Indented lines are the code of a traceback, where a message may stand as source text that never ran.
    if line.level == Level::Calm || text.is_empty() || text.starts_with([' ', '\t']) {
        return None;
    }
    if command_line_error(text, dialect).is_some() {
        return Some(Weight::CommandLine);
    }
    let lower = text.to_lowercase();
    // vLLM warns of the descriptor limit in every log, and quotes an error that has not happened.
    if lower.contains("found ulimit of") || (lower.contains("warning: ") && !is_exception(text)) {
        return None;
    }
    // Before the echoes: a log that was cut may hold the reason only as an echo quotes it.
    if Symptom::of(text, dialect.symptoms()).is_some() {
        return Some(Weight::Known);
    }
    if ECHOES.iter().chain(dialect.echoes()).any(|echo| lower.contains(echo)) {
        return None;
    }
    if is_exception(text) || CRASHES.iter().any(|crash| lower.contains(crash)) {
        return Some(Weight::Exception);
    }
    (line.level == Level::Error).then_some(Weight::Loud)
}

/// `vllm serve: error: argument --x: invalid int value: 'y'` gives what follows `error: `.
pub(super) fn command_line_error<'t>(text: &'t str, dialect: &dyn Dialect) -> Option<&'t str> {
    let (program, message) = text.split_once(": error: ")?;
    let name = program.split_whitespace().next()?;
    let plain = program.split_whitespace().count() <= 3 && !program.contains(':');
    (plain && (dialect.programs().contains(&name) || name.ends_with(".py"))).then_some(message)
}

/// `some.module.NameError: text`, or the name alone.
fn is_exception(text: &str) -> bool {
    let name = text.split_once(':').map_or(text, |(head, _)| head);
    let last = name.rsplit('.').next().unwrap_or(name);
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
        && last.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
        && (last.ends_with("Error") || last.ends_with("Exception"))
}
