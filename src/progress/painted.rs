//! Lines of a session in colour: the word that says how a step ended, and the reasoning dimmed.

use super::Event;
use crate::colour::{Colour, Tone};

/// What a probe is said to be; the first of them in its line counts.
const ENDS: [(Tone, &str); 5] = [
    (Tone::Pass, "holds"),
    (Tone::Fail, "fails"),
    (Tone::Warning, "void"),
    (Tone::Pass, "no error"),
    (Tone::Fail, "failed"),
];

/// The line of an event with each of its lines folded, and coloured after that.
pub(super) fn painted(colour: Colour, event: &Event<'_>, text: &str, fold: impl Fn(&str) -> String) -> String {
    let line = |(n, line): (usize, &str)| {
        let line = fold(line);
        match event {
            Event::Detail(_) | Event::Fitted(_) | Event::Probing { .. } | Event::Standing { .. } => {
                colour.whole(Tone::Quiet, &line)
            }
            Event::Probed { .. } if n > 0 => colour.whole(Tone::Quiet, &line),
            Event::Probed { .. } => {
                let end = ENDS.iter().filter_map(|(tone, words)| Some((line.find(first_word(words))?, tone, words)));
                match end.min_by_key(|(at, ..)| *at) {
                    Some((_, tone, words)) => colour.first(*tone, words, &line),
                    None => line,
                }
            }
            Event::Failed { diagnosis, .. } if n == 0 => colour.first(Tone::Fail, &diagnosis.says, &line),
            Event::Ready { .. } => colour.first(Tone::Warning, "WARNING", &line),
            Event::Improved { .. } => colour.first(Tone::Strong, "best so far", &line),
            Event::Note(_) => colour.first(Tone::Warning, "left out:", &line),
            _ => line,
        }
    };
    text.lines().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

fn first_word(words: &str) -> &str {
    words.split(' ').next().unwrap_or(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{self, Purpose, Record};
    use crate::progress::plain::Lines;
    use crate::space::Point;
    use crate::verdict::Outcome;

    #[test]
    fn the_word_is_coloured_the_reasoning_is_dim_and_without_codes_the_line_is_the_same() {
        let journal = journal::read(include_bytes!("../../results/h200-8b/journal.jsonl")).unwrap();
        let colour = Colour::of(false, |name| (name == "CLICOLOR_FORCE").then(|| "1".into()));
        let (mut lines, point) = (Lines::new(true), Point::default());
        let launching =
            Event::Launching { trial: 1, attempt: 1, purpose: Purpose::Search, point: &point, alters: false };
        lines.line(&launching);
        let (mut good, mut bad) = (0, 0);
        for entry in &journal.entries {
            let Record::Probed { ask, verdict, .. } = &entry.record else { continue };
            let mut verdict = verdict.clone();
            if verdict.outcome == Outcome::Unresolved {
                verdict.outcome = Outcome::Fail;
            }
            let event = Event::Probed { trial: 1, ask, verdict: &verdict };
            let plain = lines.line(&event).unwrap();
            let said = painted(colour, &event, &plain, str::to_owned);
            assert_eq!(console::strip_ansi_codes(&said), plain);
            let (first, rest) = said.split_once('\n').unwrap();
            assert!(rest.lines().all(|line| line.starts_with("\u{1b}[2m")), "{said}");
            good += u32::from(first.contains("\u{1b}[32mholds\u{1b}[0m"));
            bad += u32::from(first.contains("\u{1b}[31mfails\u{1b}[0m"));
        }
        assert!(good > 0 && bad > 0, "{good} {bad}");
        let note = Event::Note("left out: 2 of the candidates");
        assert_eq!(
            painted(colour, &note, "left out: 2 of the candidates", str::to_owned),
            "\u{1b}[33mleft out:\u{1b}[0m 2 of the candidates"
        );
    }
}
