//! Splits an engine's log into lines without colours and prefixes; it judges nothing.

use crate::printable::printable;

/// How loudly the engine said a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Debug, info or warning: an engine that lives says such things too.
    Calm,
    Error,
    /// No level was given, as in tracebacks and in the output of libraries.
    Unsaid,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Whether an engine core or a worker said it, and not the API server.
    pub(super) engine: bool,
    pub(super) level: Level,
    /// What was said. Indentation is kept, because it tells a traceback's code from its error.
    pub(super) text: String,
}

/// The lines of a log. Carriage returns end a line too, because progress bars leave whole screens on one.
pub(super) fn lines(log: &str) -> impl Iterator<Item = Line> {
    log.split(['\n', '\r']).map(line)
}

/// Reads a line of vLLM, SGLang or TensorRT-LLM.
///
/// vLLM writes `(Process pid=N) LEVEL MM-DD HH:MM:SS [file.py:line] text`, and every part but the text may be missing. SGLang writes
/// `[YYYY-MM-DD HH:MM:SS TP0] text`, which tells no level. What ended it follows in a traceback without a stamp.
fn line(raw: &str) -> Line {
    let plain = without_colours(raw);
    let mut rest = plain.as_str();
    let mut engine = false;
    while let Some((process, after)) = process_prefix(rest) {
        engine |= process.starts_with("EngineCore") || process.starts_with("Worker") || process.starts_with("rank");
        rest = after;
    }
    if let Some((level, said)) = after_letter(rest) {
        return Line { engine, level, text: printable(said.trim_end()).into_owned() };
    }
    let (level, rest) = match after_stamp(rest) {
        Some(said) => match level_prefix(said) {
            (Level::Unsaid, said) => (Level::Calm, said),
            levelled => levelled,
        },
        None => level_prefix(rest),
    };
    Line { engine, level, text: printable(rest.trim_end()).into_owned() }
}

/// `(EngineCore_DP0 pid=7) ` of vLLM, or `[rank0]: ` of torch.
fn process_prefix(text: &str) -> Option<(&str, &str)> {
    if let Some(inner) = text.strip_prefix('(') {
        let (process, after) = inner.split_once(')')?;
        let (name, pid) = process.split_once(" pid=")?;
        let known = !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit());
        return known.then(|| (name, after.strip_prefix(' ').unwrap_or(after)));
    }
    let (process, after) = text.strip_prefix('[')?.split_once("]:")?;
    let known = process.strip_prefix("rank").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    known.then(|| (process, after.strip_prefix(' ').unwrap_or(after)))
}

/// The level and what follows it in `[11/25/2026-09:00:01] [TRT-LLM] [RANK 0] [E] ` of TensorRT-LLM.
fn after_letter(text: &str) -> Option<(Level, &str)> {
    let mut rest = text.strip_prefix('[')?.split_once("] [TRT-LLM] ")?.1;
    loop {
        let (tag, after) = rest.strip_prefix('[')?.split_once("] ")?;
        match tag {
            "E" | "F" => return Some((Level::Error, after)),
            "V" | "D" | "I" | "W" => return Some((Level::Calm, after)),
            _ => rest = after,
        }
    }
}

/// What follows `[2026-11-25 09:00:01 TP0] `.
fn after_stamp(text: &str) -> Option<&str> {
    // Rust's tracing, as of Dynamo.
    if let Some((stamp, after)) = text.split_once("Z ").filter(|(stamp, _)| stamp.len() > 18 && !stamp.contains(' ')) {
        let is_stamp = stamp.chars().all(|c| c.is_ascii_digit() || "-:.T".contains(c));
        return is_stamp.then_some(after.trim_start());
    }
    let (stamp, after) = text.strip_prefix('[')?.split_once(']')?;
    let mut words = stamp.split(' ');
    let mut is_part =
        |parts: &[char]| words.next().is_some_and(|w| w.contains(parts) && w.starts_with(|c: char| c.is_ascii_digit()));
    (is_part(&['-']) && is_part(&[':'])).then(|| after.strip_prefix(' ').unwrap_or(after))
}

/// The level, and what follows the level, the time and the place in the source.
fn level_prefix(text: &str) -> (Level, &str) {
    // torch's C++ code logs as `[W1121 06:53:35.2489 file.cpp:7] text`; older builds leave the time out.
    if let Some((tag, after)) = text.strip_prefix('[').and_then(|t| t.split_once(']')) {
        let mut characters = tag.chars();
        let letter = characters.next();
        if tag.contains(".cpp:") && characters.next().is_some_and(|c| c.is_ascii_digit() || c == ' ') {
            let level = if matches!(letter, Some('E' | 'F')) { Level::Error } else { Level::Calm };
            return (level, after.strip_prefix(' ').unwrap_or(after));
        }
    }
    for (word, level) in [
        ("DEBUG", Level::Calm),
        ("INFO", Level::Calm),
        ("WARNING", Level::Calm),
        ("ERROR", Level::Error),
        ("CRITICAL", Level::Error),
    ] {
        let Some(after) = text.strip_prefix(word) else { continue };
        // uvicorn writes `ERROR:    text`, with neither time nor place.
        if let Some(said) = after.strip_prefix(':') {
            return (level, said.trim_start());
        }
        if let Some(said) = after.strip_prefix(' ') {
            return (level, without_place(without_time(said)));
        }
    }
    (Level::Unsaid, text)
}

/// Drops the date and the time, whichever are there.
fn without_time(mut text: &str) -> &str {
    for _ in 0..2 {
        let Some((word, after)) = text.split_once(' ') else { break };
        let stamp =
            word.starts_with(|c: char| c.is_ascii_digit()) && word.chars().all(|c| "0123456789-:.,TZ".contains(c));
        if !stamp {
            break;
        }
        text = after;
    }
    text
}

/// Drops `[file.py:17] `; the numbers change with every release, so nobody should match on them.
fn without_place(text: &str) -> &str {
    match text.strip_prefix('[').and_then(|t| t.split_once(']')) {
        Some((place, after)) if place.contains(':') => after.strip_prefix(' ').unwrap_or(after),
        _ => text,
    }
}

fn without_colours(raw: &str) -> String {
    let mut plain = String::with_capacity(raw.len());
    let mut characters = raw.chars();
    while let Some(c) = characters.next() {
        if c != '\u{1b}' {
            plain.push(c);
        } else if characters.next() == Some('[') {
            // A control sequence ends with its first character from @ to ~.
            let _ = characters.find(|c| ('@'..='~').contains(c));
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_colours_go_and_indentation_stays() {
        let read = |raw: &str| {
            let line = line(raw);
            (line.engine, line.level, line.text)
        };
        let said = |engine, level, text: &str| (engine, level, text.to_owned());
        assert_eq!(
            read("(EngineCore pid=2157) ERROR 11-21 06:53:34 [core.py:1231]     self.impl.forward("),
            said(true, Level::Error, "    self.impl.forward(")
        );
        assert_eq!(
            read("\u{1b}[1;36m(Worker_TP0 pid=8)\u{1b}[0;0m ValueError: no"),
            said(true, Level::Unsaid, "ValueError: no")
        );
        assert_eq!(read("(APIServer pid=1) INFO:     Started"), said(false, Level::Calm, "Started"));
        assert_eq!(read("ERROR 2026-11-21 06:53:34,123 [a.py:1] x"), said(false, Level::Error, "x"));
        assert_eq!(
            read("[rank0]:[W1121 06:53:35.248 ProcessGroupNCCL.cpp:15] Warning: x"),
            said(true, Level::Calm, "Warning: x")
        );
        assert_eq!(read("[rank0]: RuntimeError: x"), said(true, Level::Unsaid, "RuntimeError: x"));
        assert_eq!(
            read("ERROR: \u{1b}]0;title\u{7} boom\0\u{9b}2J"),
            said(false, Level::Error, "0;title\u{fffd} boom\u{fffd}\u{fffd}2J")
        );
        assert_eq!(read("(1, 2) tuples are no prefix"), said(false, Level::Unsaid, "(1, 2) tuples are no prefix"));
        assert_eq!(lines("bar 1%\rbar 2%\rOSError: x\n").filter(|l| l.text.starts_with("OS")).count(), 1);
    }
}
