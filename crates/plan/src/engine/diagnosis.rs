//! Why an engine did not start or did not live, read from its log, and what the search makes of it.
//!
//! The engine's exit code tells next to nothing: vLLM ends with 0 when its core was killed, and with 1 for most else. The last line of its log is
//! noise. So the text decides, and `symptoms` holds the texts.

use serde::{Deserialize, Serialize};

use super::complaints::{self, Complaint, Weight};
use super::dialects::{Dialect, Quantity};
pub use super::symptoms::Cause;
use super::symptoms::{Effect, Symptom};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// It left with an exit code; 0 is a failure like any other here.
    Code(i32),
    Signal(i32),
    /// It still ran when the time was up, and had not become ready.
    StillRunning,
}

/// What the search makes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Consequence {
    /// This point and every point that asks for at least as much of everything is infeasible.
    MemoryBound,
    /// This point and every point with less memory for the KV cache is infeasible.
    NeedsMoreMemory,
    /// The value of the named parameter is removed; without a name, this point.
    ValueRefused {
        /// The parameter, spelled as the caller spelled it.
        flag: Option<String>,
    },
    /// No evidence against the point: try it once more.
    Retry,
    Abort,
    /// This point alone is removed.
    PointOnly,
}

/// Why an engine failed and what follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    pub cause: Cause,
    /// The line of the log that matters, without prefix and colours, at most [`LINE_LIMIT`] characters.
    pub line: Option<String>,
    /// What happened and the remedy, in a sentence for a person.
    pub says: String,
    /// What the search makes of it.
    pub consequence: Consequence,
}

impl Diagnosis {
    /// What an allocation needed beyond what was free, as a share of the device's memory; `None` if the quoted line does not tell.
    pub fn missing_share(&self) -> Option<f64> {
        let line = self.line.as_deref()?;
        let after = |words: &str| line.split_once(words).and_then(|(_, rest)| bytes(rest));
        let (needed, free) = (after("Tried to allocate ")?, after(" of which ")?);
        let missing = (needed - free) / after("total capacity of ")?;
        (0.0..1.0).contains(&missing).then_some(missing)
    }
}

/// The size at the beginning of a text, as PyTorch writes it: `3.50 GiB`.
fn bytes(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    let unit = words.next()?.trim_end_matches(['.', ',']);
    let power = ["bytes", "KiB", "MiB", "GiB", "TiB"].iter().position(|known| *known == unit)?;
    Some(number * 1024f64.powi(power as i32))
}

/// Most characters of a quoted line; messages of CUDA and of pydantic run to thousands.
pub const LINE_LIMIT: usize = 400;

/// The kernel's way to end a process that no handler sees; its out-of-memory killer uses it.
const SIGKILL: i32 = 9;
/// Signals of a process that broke by itself: illegal instruction, abort, bus error, arithmetic, segmentation fault.
const FAULTS: [i32; 5] = [4, 6, 7, 8, 11];
/// A shell reports a child that a signal ended as 128 plus the signal.
const SHELL_SIGNAL_BASE: i32 = 128;
/// `argparse` leaves with 2, and vLLM with nothing else does.
const ARGUMENT_ERROR: i32 = 2;

/// Reads the log of an engine that failed.
///
/// `tuned_flags` are the names of the parameters that the search varies. An error in one of them costs a value or a
/// point. An error in any other argument is the same at every point, and ends the search.
pub fn diagnose(dialect: &dyn Dialect, log: &str, exit: Exit, tuned_flags: &[&str]) -> Diagnosis {
    let exit = match exit {
        Exit::Code(code) if (SHELL_SIGNAL_BASE + 1..SHELL_SIGNAL_BASE + 65).contains(&code) => {
            Exit::Signal(code - SHELL_SIGNAL_BASE)
        }
        other => other,
    };
    let reason = complaints::reason(log, dialect);
    if exit == Exit::StillRunning {
        return unready(dialect, log, reason, tuned_flags);
    }
    match reason {
        Some(reason) => explained(dialect, &reason, exit, tuned_flags),
        None => unexplained(dialect, log, exit),
    }
}

/// An engine that serves and refuses a request with this status and these words. It refuses it at every point, but for a length that is tuned.
pub fn request_refused(dialect: &dyn Dialect, says: &str, tuned_flags: &[&str]) -> Diagnosis {
    let lower = says.to_lowercase();
    let too_long = lower.contains("context length") || lower.contains("max_model_len");
    let length = dialect.flag(Quantity::Length).filter(|_| too_long);
    let about: Vec<&str> = length.into_iter().collect();
    let consequence = blame(&[], &about, tuned_flags);
    let remedy = match (&consequence, lower.get(..8)) {
        (Consequence::ValueRefused { flag: Some(flag) }, _) => {
            format!("leave out the values of {flag} that are too small")
        }
        _ if too_long => {
            let raise = length.map_or(String::new(), |flag| format!(", or raise --{flag} in engine.args"));
            format!("shorten the requests in [workload]{raise}")
        }
        (_, Some("http 404")) => "correct --served-model-name in engine.args".to_owned(),
        (_, Some("http 401" | "http 403")) => "give the engine's key with --api-key in engine.args".to_owned(),
        _ if lower.contains("chat template") => {
            "add --chat-template to engine.args, or set endpoint = \"completions\" in [workload]".to_owned()
        }
        _ => "correct [workload] or engine.args".to_owned(),
    };
    let alike = if consequence == Consequence::Abort { "Every point would refuse it: " } else { "" };
    let says = says.trim_end_matches('.');
    Diagnosis {
        cause: Cause::Refused,
        line: None,
        says: format!("the engine serves and refuses a request ({says}). {alike}{remedy}."),
        consequence,
    }
}

/// An engine that hangs may do so over an error that it survived, so only errors that end a process count.
fn unready(dialect: &dyn Dialect, log: &str, reason: Option<Complaint>, tuned_flags: &[&str]) -> Diagnosis {
    let fatal = reason.as_ref().filter(|r| (r.engine && r.weight == Weight::Known) || r.weight == Weight::CommandLine);
    if let Some(reason) = fatal {
        return explained(dialect, reason, Exit::StillRunning, tuned_flags);
    }
    Diagnosis {
        cause: Cause::Timeout,
        line: reason.map(|r| quote(&r.text)).or_else(|| last_words(log)),
        says: "The engine was not ready in time: allow it more time, or see in its log where it stands still."
            .to_owned(),
        consequence: Consequence::Retry,
    }
}

/// The log gives a reason.
fn explained(dialect: &dyn Dialect, reason: &Complaint, exit: Exit, tuned_flags: &[&str]) -> Diagnosis {
    let text = reason.text.as_str();
    let line = Some(quote(text));
    if let Some(message) = complaints::command_line_error(text, dialect) {
        let consequence = blame(&flags_of_command_line(message), &[], tuned_flags);
        let says = refusal("The engine's command line has an argument that it does not take", &consequence);
        return Diagnosis { cause: Cause::BadArgument, line, says, consequence };
    }
    if let Some(symptom) = Symptom::of(text, dialect.symptoms()) {
        let consequence = match symptom.effect {
            Effect::MemoryBound => Consequence::MemoryBound,
            Effect::NeedsMoreMemory => Consequence::NeedsMoreMemory,
            Effect::Retry => Consequence::Retry,
            Effect::Abort => Consequence::Abort,
            Effect::Blames(flags) => blame(&words(text), flags, tuned_flags),
        };
        return Diagnosis { cause: symptom.cause, line, says: dialect.worded(symptom.says), consequence };
    }
    if reason.weight == Weight::Configuration || exit == Exit::Code(ARGUMENT_ERROR) {
        let consequence = blame(&words(text), &[], tuned_flags);
        let says = refusal("The engine's configuration refused a value", &consequence);
        return Diagnosis { cause: Cause::BadArgument, line, says, consequence };
    }
    Diagnosis {
        cause: Cause::Crashed,
        line,
        says: "The engine ended with an error that is not known here: read the quoted line and the log around it."
            .to_owned(),
        consequence: Consequence::PointOnly,
    }
}

/// The log gives no reason, so the way it ended must.
fn unexplained(dialect: &dyn Dialect, log: &str, exit: Exit) -> Diagnosis {
    let (cause, consequence, says) = match exit {
        Exit::Code(ARGUMENT_ERROR) => (
            Cause::BadArgument,
            Consequence::Abort,
            "The engine did not take its command line (exit code 2): compare the arguments with its --help.".to_owned(),
        ),
        Exit::Signal(SIGKILL) => (
            Cause::Silent,
            Consequence::Retry,
            "The engine was killed by signal 9 without a word: most likely the kernel's out-of-memory killer, so see the \
             host's memory and the pod's memory limit."
                .to_owned(),
        ),
        _ if child_was_killed(dialect, log) => (
            Cause::Silent,
            Consequence::Retry,
            "A process of the engine was killed without a word: most likely by the kernel's out-of-memory killer, so see \
             the host's memory and the pod's memory limit."
                .to_owned(),
        ),
        Exit::Signal(signal) if FAULTS.contains(&signal) => (
            Cause::Crashed,
            Consequence::PointOnly,
            format!("The engine crashed (signal {signal}) without an error in its log: look for a fault of a library or the device."),
        ),
        Exit::Signal(signal) => (
            Cause::Silent,
            Consequence::Retry,
            format!("Signal {signal} ended the engine, so somebody stopped it: find out who, and try again."),
        ),
        Exit::Code(0) => (
            Cause::Silent,
            Consequence::Retry,
            "The engine ended with exit code 0 and no error in its log, as when it is told to stop or its core is killed: \
             try again."
                .to_owned(),
        ),
        Exit::Code(code) => (
            Cause::Silent,
            Consequence::Retry,
            format!("The engine ended with exit code {code} and no error in its log: try again, with more of its log."),
        ),
        Exit::StillRunning => (Cause::Timeout, Consequence::Retry, "The engine was not ready in time.".to_owned()),
    };
    Diagnosis { cause, line: last_words(log), says, consequence }
}

fn child_was_killed(dialect: &dyn Dialect, log: &str) -> bool {
    log.lines().any(|line| line.contains("died unexpectedly") || dialect.tells_lost_process(line))
}

/// The last line of a log that says anything. It explains nothing, but shows how far the engine came.
fn last_words(log: &str) -> Option<String> {
    // Python's resource tracker has the last word in most logs, and its warning quotes an indented line of code.
    let telling = |text: &str| !text.is_empty() && !text.starts_with([' ', '\t']) && !text.contains("resource_tracker");
    super::log_lines::lines(log).filter(|l| telling(&l.text)).last().map(|l| quote(&l.text))
}

fn quote(text: &str) -> String {
    text.trim().chars().take(LINE_LIMIT).collect()
}

/// The tuned parameters at fault. None means that every point fails so. One means that its value is refused. Several mean that their relation is,
/// which is known of this point alone.
fn blame(named: &[String], about: &[&str], tuned_flags: &[&str]) -> Consequence {
    let guilty: Vec<&str> = tuned_flags
        .iter()
        .copied()
        .filter(|flag| {
            let flag = normal(flag);
            // Of a key within a flag, messages have the last part alone.
            let last = flag.rsplit('.').next().unwrap_or(&flag);
            named.iter().any(|name| *name == flag || name == last) || about.iter().any(|about| normal(about) == flag)
        })
        .collect();
    match guilty.as_slice() {
        [] => Consequence::Abort,
        [flag] => Consequence::ValueRefused { flag: Some((*flag).to_owned()) },
        _ => Consequence::PointOnly,
    }
}

fn refusal(what: &str, consequence: &Consequence) -> String {
    match consequence {
        Consequence::ValueRefused { flag: Some(flag) } => {
            format!("{what}: correct the values of {flag} in the space file.")
        }
        Consequence::PointOnly => format!("{what}: the parameters it names do not go together, so add a constraint."),
        _ => format!("{what}: correct the fixed arguments in the space file."),
    }
}

/// One spelling for `--max_num_seqs`, `max-num-seqs` and `--no-enable-prefix-caching`.
fn normal(flag: &str) -> String {
    let flag = flag.trim_start_matches('-').to_lowercase().replace('_', "-");
    flag.strip_prefix("no-").map(str::to_owned).unwrap_or(flag)
}

/// Every word of a message that could be a parameter's name.
fn words(text: &str) -> Vec<String> {
    let apart = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-');
    text.split(apart).filter(|word| !word.is_empty()).map(normal).collect()
}

/// The options that an error of `argparse` is about, without the ones that it proposes.
fn flags_of_command_line(message: &str) -> Vec<String> {
    let about = message.split(" could match ").next().unwrap_or(message);
    // In `argument --x/--no-x: invalid choice: 'y' (choose from ...)` only the head names the option.
    let about = match about.strip_prefix("argument ") {
        Some(argument) => argument.split(": ").next().unwrap_or(argument),
        None => about,
    };
    let options = about.split([' ', '/', ',', '=']).filter(|word| word.starts_with('-'));
    options.map(normal).collect()
}

#[cfg(test)]
mod tests;
