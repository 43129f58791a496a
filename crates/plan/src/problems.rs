//! Mistakes in a person's file, and how a person reads them: file, line, caret and a remedy.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet, normalize_untrusted_str};

/// So many mistakes are shown: each takes the renderer as long as the whole text, and nobody reads more at once.
const MOST_SHOWN: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is, in bytes of the file.
    pub span: Range<usize>,
    /// What is wrong, in one line.
    pub message: String,
    /// What stands beside the caret.
    pub label: String,
    pub hint: String,
}

impl Problem {
    /// A mistake at a place.
    pub fn new(
        span: &Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { span: span.clone(), message: message.into(), label: label.into(), hint: hint.into() }
    }
}

/// Every mistake found in one file, in the order of the file; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    name: String,
    text: String,
    pub list: Vec<Problem>,
}

impl Problems {
    /// Sorts the mistakes and brings their spans within the text, where the renderer can show them.
    pub fn new(name: &str, text: &str, mut list: Vec<Problem>) -> Self {
        if list.is_empty() {
            // Unreachable as long as every reader that gives nothing also reports why; an error without words would be
            // worse.
            let hint = "compare it with the documented format";
            list.push(Problem::new(&(0..0), "the file could not be read", "", hint));
        }
        for problem in &mut list {
            let start = text.floor_char_boundary(problem.span.start);
            let end = text.ceil_char_boundary(problem.span.end).max(start);
            problem.span = start..end;
        }
        list.sort_by_key(|problem| problem.span.start);
        list.dedup();
        Self { name: name.to_owned(), text: text.to_owned(), list }
    }

    /// The mistakes as the Rust compiler would show them, without colour; at most the first [`MOST_SHOWN`].
    pub fn render(&self) -> String {
        self.render_all(Level::ERROR)
    }

    /// All problems, printed as warnings: nothing was refused.
    pub fn render_as_warnings(&self) -> String {
        self.render_all(Level::WARNING)
    }

    fn render_all(&self, level: Level<'static>) -> String {
        let shown = self.list.iter().take(MOST_SHOWN).map(|problem| self.render_one(problem, level.clone()));
        let more = self.list.len().saturating_sub(MOST_SHOWN);
        let more = (more > 0).then(|| format!("and {more} more mistakes; mend the first ones and try again"));
        shown.chain(more).collect::<Vec<String>>().join("\n\n")
    }

    fn render_one(&self, problem: &Problem, level: Level<'static>) -> String {
        // Labels and hints quote the file, which may hold control characters.
        let label = normalize_untrusted_str(&problem.label);
        let mut annotation = AnnotationKind::Primary.span(problem.span.clone());
        if !label.is_empty() {
            annotation = annotation.label(label);
        }
        let mut group = level
            .primary_title(&problem.message)
            .element(Snippet::source(&self.text).path(&self.name).annotation(annotation));
        if !problem.hint.is_empty() {
            group = group.element(Level::HELP.with_name("hint").message(normalize_untrusted_str(&problem.hint)));
        }
        Renderer::plain().render(&[group])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render())
    }
}

impl std::error::Error for Problems {}

/// Words in backticks, joined as prose: `a`, `b` and `c`.
pub fn list<'c>(words: impl IntoIterator<Item = &'c str>, last: &str) -> String {
    join(words.into_iter().map(|word| format!("`{word}`")), last)
}

/// Words joined as prose: a, b and c.
pub fn join(words: impl IntoIterator<Item = String>, last: &str) -> String {
    let words: Vec<String> = words.into_iter().collect();
    match words.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((end, rest)) => format!("{} {last} {end}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_look_like_the_compilers() {
        let text = "[slo]\nttft_p99 = 1\n";
        let problem = Problem::new(&(17..18), "`slo.ttft_p99` has no unit", "a bare number", "write \"1s\"");
        let problems = Problems::new("space.toml", text, vec![problem]);
        insta::assert_snapshot!(problems, @r#"
        error: `slo.ttft_p99` has no unit
         --> space.toml:2:12
          |
        2 | ttft_p99 = 1
          |            ^ a bare number
          |
          = hint: write "1s"
        "#);
    }

    #[test]
    fn of_very_many_mistakes_the_first_are_shown() {
        let text = "x = 1\n".repeat(10_000);
        let problem = |at: usize| Problem::new(&(6 * at..6 * at + 1), "`x` is unknown", "", "");
        let said = Problems::new("f", &text, (0..10_000).map(problem).collect()).render();
        assert!(
            said.matches("error: ").count() == MOST_SHOWN
                && said.ends_with("and 9980 more mistakes; mend the first ones and try again")
        );
    }

    #[test]
    fn positions_count_characters_and_spans_stay_within_the_text() {
        let text = "a = 1\n\"é\" = x";
        let at = |start, end| Problems::new("f", text, vec![Problem::new(&(start..end), "m", "l", "h")]);
        assert!(at(0, 1).render().contains("f:1:1") && at(10, 11).render().contains("f:2:4"));
        // Inside of the two bytes of é, and beyond the end.
        assert_eq!(at(8, 8).list[0].span, 7..9);
        assert_eq!(at(90, 99).list[0].span, text.len()..text.len());
        assert!(at(90, 99).render().contains("f:2:8"));
    }

    #[test]
    fn lists_read_as_prose() {
        assert_eq!(list(["a"], "and"), "`a`");
        assert_eq!(list(["a", "b", "c"], "or"), "`a`, `b` or `c`");
    }
}
