//! Colour in a terminal. Words carry the meaning; colour helps the eye to find them.

use std::ffi::OsString;

use console::Style;

/// What a word is marked as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Pass,
    Fail,
    Warning,
    /// What is looked for first.
    Strong,
    /// The reasoning behind it.
    Quiet,
}

/// Whether a stream gets colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Colour(bool);

impl Colour {
    pub(crate) const NONE: Self = Self(false);

    /// By the variables of <https://no-color.org> and <https://bixense.com/clicolors>, of which NO_COLOR is the stronger.
    pub(crate) fn of(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is = |name: &str, meant: &str| set(name).is_some_and(|value| value == meant);
        let forced = set("CLICOLOR_FORCE").is_some() && !is("CLICOLOR_FORCE", "0");
        let able = is_terminal && set("TERM").is_some() && !is("TERM", "dumb") && !is("CLICOLOR", "0");
        Self(set("NO_COLOR").is_none() && (forced || able))
    }

    pub(crate) fn whole(self, tone: Tone, text: &str) -> String {
        if !self.0 || text.is_empty() {
            return text.to_owned();
        }
        let style = match tone {
            Tone::Pass => Style::new().green(),
            Tone::Fail => Style::new().red(),
            Tone::Warning => Style::new().yellow(),
            Tone::Strong => Style::new().bold(),
            Tone::Quiet => Style::new().dim(),
        };
        style.force_styling(true).apply_to(text).to_string()
    }

    /// The text with the first of these words in that tone; between them may be the end of a line.
    pub(crate) fn first(self, tone: Tone, words: &str, text: &str) -> String {
        match place(words, text).filter(|_| self.0) {
            Some((from, to)) => format!("{}{}{}", &text[..from], self.whole(tone, &text[from..to]), &text[to..]),
            None => text.to_owned(),
        }
    }

    /// A report whose lines begin with `warning`, or end with a verdict but for a remark behind `<-`.
    pub(crate) fn report(self, text: &str) -> String {
        let line = |line: &str| {
            if line.starts_with("warning") {
                return self.first(Tone::Warning, "warning", line);
            }
            let row = line.split(" <-").next().unwrap_or(line).trim_end();
            let verdicts = [(" pass", Tone::Pass), (" fail", Tone::Fail), (" void", Tone::Warning)];
            match verdicts.into_iter().find(|(word, _)| row.ends_with(*word)) {
                Some((word, tone)) => {
                    let (before, after) = (&row[..row.len() - word.len()], &line[row.len()..]);
                    format!("{before}{}{after}", self.whole(tone, word))
                }
                None => line.to_owned(),
            }
        };
        text.split_inclusive('\n').map(line).collect()
    }
}

/// Where the words stand in a text that may be folded between them.
fn place(words: &str, text: &str) -> Option<(usize, usize)> {
    let mut words = words.split_whitespace();
    let first = words.next()?;
    let end = |from: usize| {
        words.clone().try_fold(from + first.len(), |to, word| {
            let rest = text[to..].trim_start();
            rest.starts_with(word).then(|| text.len() - rest.len() + word.len())
        })
    };
    text.match_indices(first).find_map(|(from, _)| Some((from, end(from)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(is_terminal: bool, variables: &[(&str, &str)]) -> bool {
        let value = |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).into());
        Colour::of(is_terminal, value).0
    }

    #[test]
    fn a_terminal_gets_colour_unless_it_is_dumb_or_somebody_said_no() {
        let xterm = ("TERM", "xterm-256color");
        assert!(of(true, &[xterm]) && of(true, &[xterm, ("NO_COLOR", "")]));
        assert!(!of(false, &[xterm]) && !of(true, &[]) && !of(true, &[("TERM", "dumb")]));
        assert!(!of(true, &[xterm, ("NO_COLOR", "1")]) && !of(true, &[xterm, ("CLICOLOR", "0")]));
        assert!(of(false, &[("CLICOLOR_FORCE", "1")]) && of(true, &[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")]));
        assert!(!of(false, &[("CLICOLOR_FORCE", "0")]) && !of(true, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    }

    #[test]
    fn words_are_found_across_the_end_of_a_line() {
        let colour = Colour(true);
        assert_eq!(
            colour.first(Tone::Fail, "is too much", "9 is too\n  much: x"),
            "9 \u{1b}[31mis too\n  much\u{1b}[0m: x"
        );
        assert_eq!(colour.first(Tone::Pass, "holds", "it\nholds"), "it\n\u{1b}[32mholds\u{1b}[0m");
        assert_eq!(colour.first(Tone::Pass, "holds up", "holds, holds up"), "holds, \u{1b}[32mholds up\u{1b}[0m");
        assert_eq!(colour.first(Tone::Pass, "fails", "holds"), "holds");
        assert_eq!(Colour(false).first(Tone::Pass, "holds", "holds"), "holds");
    }

    #[test]
    fn a_report_shows_its_warnings_and_the_verdicts_at_the_ends_of_its_lines() {
        let text = "  5.00 pass <- highest\n   120 fail\nwarning  a p99 of few\nno verdict\n";
        let said = Colour(true).report(text);
        assert_eq!(console::strip_ansi_codes(&said), text);
        let expected = "  5.00\u{1b}[32m pass\u{1b}[0m <- highest\n   120\u{1b}[31m fail\u{1b}[0m\n\u{1b}[33mwarning\u{1b}[0m  a p99 of few\nno verdict\n";
        assert_eq!(said, expected);
        assert_eq!(Colour(false).report(text), text);
    }
}
