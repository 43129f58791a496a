//! Arguments in one text. It is the engine's command in a shell script, or a variable or array that it expands. It may also be an environment
//! variable that a script splits into words.

use std::collections::HashMap;
use std::ops::Range;

use super::{Arguments, Written};
use crate::export::flags::{Change, Seen, is_placeholder};
use crate::export::known::Start;
use crate::export::shell_lexer::{Word, commands, split};
use crate::export::source::Source;
use crate::export::text::{Edit, Encoding, Layer, Piece, splice};
use crate::export::yaml::{Meaning, Node, Path, Style};
use crate::report::shell_quoted;

/// The arguments in a scalar.
pub struct Line<'m> {
    file: &'m str,
    node: &'m Node,
    path: Path,
    /// Where the words stand.
    homes: Vec<Home>,
    /// Every word that may be an argument, in the order in which the engine gets them: its home, and its place there.
    words: Vec<(usize, usize)>,
    /// The home of new words.
    into: usize,
    /// Homes of a value, with the word of the command that expands it.
    values: Vec<(usize, usize)>,
}

/// A text that holds arguments: the command itself, or the value of a variable that it expands.
pub struct Home {
    /// The scalar's text, and the texts within it, each in the one before.
    layers: Vec<Layer>,
    words: Vec<Word>,
    /// The first that may be an argument.
    first: usize,
    /// New words may stand behind the first so many words. Behind a redirection they may not.
    until: usize,
    reads: Reads,
}

/// How the words of a text are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// A shell reads quotes in it.
    Quotes,
    /// It is split at white space.
    Spaces,
    /// It is split at white space. A word that a shell would expand or unquote is refused.
    Plain,
}

/// A variable or an array that the engine's command expands.
pub struct Kept {
    /// The word that expands it.
    pub word: usize,
    pub home: Home,
    /// Whether new words may stand in it.
    pub grows: bool,
    /// Whether it is the value of a flag: without it, the word that expands it has no place either.
    pub value: bool,
}

impl<'m> Line<'m> {
    fn new(source: &'m Source, node: &'m Node, path: Path, home: Home) -> Self {
        let words = (home.first..home.words.len()).map(|word| (0, word)).collect();
        Self { file: &source.text, node, path, homes: vec![home], words, into: 0, values: Vec::new() }
    }

    /// The command that starts an engine in a script, with what it expands.
    pub fn script(source: &'m Source, node: &'m Node, path: Path, start: &Start, kept: Vec<Kept>) -> Option<Self> {
        let layers = std::iter::once(source.layer(node)?).chain(start.layers.iter().cloned()).collect();
        let command = start.command().clone();
        let until = command.words.len();
        let words = command.words.into_iter().chain(command.behind).collect();
        let home = Home { layers, words, first: start.first, until, reads: Reads::Quotes };
        let mut line = Self::new(source, node, path, home);
        for Kept { word, home, grows, value } in kept {
            let at = line.words.iter().position(|there| *there == (0, word))?;
            let inner = (home.first..home.words.len()).map(|word| (line.homes.len(), word));
            line.words.splice(at..=at, inner.collect::<Vec<_>>());
            // Behind the last word, new ones may as well stand in what it expands.
            if grows && word + 1 == until {
                line.into = line.homes.len();
            }
            line.values.extend(value.then_some((line.homes.len(), word)));
            line.homes.push(home);
        }
        Some(line)
    }

    /// A text of nothing but arguments, split as a shell does.
    pub fn words(source: &'m Source, node: &'m Node, path: Path) -> Option<Self> {
        let layer = source.layer(node)?;
        let [command] = <[_; 1]>::try_from(commands(&layer.text).ok()?).ok()?;
        let until = command.words.len();
        let words = command.words.into_iter().chain(command.behind).collect();
        Some(Self::new(source, node, path, Home { layers: vec![layer], words, first: 0, until, reads: Reads::Quotes }))
    }

    /// A text that is split at white space, whole.
    pub fn variable(source: &'m Source, node: &'m Node, path: Path) -> Option<Self> {
        let home = Home::split(vec![source.layer(node)?], Reads::Spaces);
        Some(Self::new(source, node, path, home))
    }

    /// The value that a word of a text gives a variable, from a byte of the word.
    pub fn assigned(source: &'m Source, node: &'m Node, path: Path, word: &Word, value: usize) -> Option<Self> {
        let home = Home::assigned(vec![source.layer(node)?], word, value);
        Some(Self::new(source, node, path, home))
    }

    fn edits(&self, changes: &[Change]) -> Option<Vec<Edit>> {
        let (mut edits, mut gone) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Set(word, text) => {
                    let (home, word) = self.at(*word)?;
                    let there = home.words.get(word)?;
                    edits.push(home.lift(Edit::replace(there.range.clone(), home.quoted(text, home.like(there))?)));
                }
                Change::Remove(word) => gone.push(self.expanded(*word)?),
                Change::Append(words) => edits.push(self.homes.get(self.into)?.append(words, self.file)?),
            }
        }
        for &(index, word) in &gone {
            let home = self.homes.get(index)?;
            let range = home.words.get(word)?.range.clone();
            // A redirection in a gap stays.
            let blank = |gap: &Range<usize>| home.text()[gap.clone()].chars().all(|c| c.is_whitespace() || c == '\\');
            let kept = (0..home.until).rev().find(|word| !gone.contains(&(index, *word)));
            let is_last = kept.filter(|kept| (kept + 1..home.until).contains(&word));
            let is_last = is_last.and_then(|kept| home.gap(kept + 1)).is_some_and(|gap| blank(&gap));
            // The gap behind it goes with it: whoever overrides it stands there. Of the last words it is the gap before.
            let range = match (home.gap(word).filter(blank), home.gap(word + 1).filter(blank)) {
                (Some(before), _) if is_last => before.start..range.end,
                (_, Some(behind)) => range.start..behind.end,
                _ => range,
            };
            edits.push(home.lift(Edit::replace(range, "")));
        }
        Some(edits)
    }

    /// Where a word stands that goes: the home and the word there. Without the value of a flag, the word that expands it goes.
    fn expanded(&self, word: usize) -> Option<(usize, usize)> {
        let (home, word) = *self.words.get(word)?;
        let of_value = self.values.iter().find(|(value, _)| *value == home);
        Some(of_value.map_or((home, word), |(_, word)| (0, *word)))
    }

    fn at(&self, word: usize) -> Option<(&Home, usize)> {
        let (home, word) = self.words.get(word)?;
        Some((self.homes.get(*home)?, *word))
    }
}

impl Home {
    pub fn array(layers: Vec<Layer>, words: Vec<Word>, reads: Reads) -> Self {
        Self { layers, first: 0, until: words.len(), words, reads }
    }

    /// The value that a word of a text gives a variable, from a byte of the word.
    pub fn assigned(layers: Vec<Layer>, word: &Word, value: usize) -> Self {
        let inner = Layer::verbatim(word.text(), value..word.text().len());
        Self::split(layers.into_iter().chain([word.layer.clone(), inner]).collect(), Reads::Plain)
    }

    fn split(layers: Vec<Layer>, reads: Reads) -> Self {
        let words = layers.last().map_or_else(Vec::new, |layer| split(&layer.text));
        Self { layers, first: 0, until: words.len(), words, reads }
    }

    pub fn seen(&self) -> &[Word] {
        &self.words
    }

    /// The text that the words stand in.
    fn text(&self) -> &str {
        self.layers.last().map_or("", |layer| &layer.text)
    }

    /// The range of the file that a range of [`Home::text`] came from.
    fn outer(&self, range: &Range<usize>) -> Range<usize> {
        self.layers.iter().rev().fold(range.clone(), |range, layer| layer.outer(&range))
    }

    /// An edit of [`Home::text`] as one of the scalar's.
    fn lift(&self, edit: Edit) -> Edit {
        self.layers.iter().skip(1).rev().fold(edit, |edit, layer| layer.lift(&edit))
    }

    /// A new text for a word in its own quotes; `None` if it would be split, or read otherwise.
    fn quoted(&self, text: &str, like: Encoding) -> Option<String> {
        match (self.reads, like) {
            (Reads::Plain, _) => (shell_quoted(text) == text).then(|| text.to_owned()),
            (Reads::Spaces, _) => (!text.is_empty() && !text.contains(char::is_whitespace)).then(|| text.to_owned()),
            (_, Encoding::DoubleQuoted) if !text.contains(['$', '`', '!']) => {
                Some(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
            }
            (_, Encoding::Plain) => Some(shell_quoted(text)),
            _ => Some(format!("'{}'", text.replace('\'', r"'\''"))),
        }
    }

    fn like(&self, word: &Word) -> Encoding {
        match self.text()[word.range.clone()].chars().next() {
            Some('\'') => Encoding::ShellQuoted,
            Some('"') => Encoding::DoubleQuoted,
            _ => Encoding::Plain,
        }
    }

    /// What stands between a word and the one before it.
    fn gap(&self, word: usize) -> Option<Range<usize>> {
        Some(self.words.get(word.checked_sub(1)?)?.range.end..self.words.get(word)?.range.start)
    }

    /// What stands before most flags of this text: a space, or the end of a line and the indentation of the next.
    fn separator(&self, file: &str) -> Piece {
        // In a folded block a line end reads as a space: what counts is how it is written. Where flags begin lines, new ones do too.
        let written = |gap: &Range<usize>| &file[self.outer(gap)];
        let gaps: Vec<Range<usize>> = (self.first.max(1)..self.until)
            .filter(|word| self.words[*word].text().starts_with("--"))
            .filter_map(|word| self.gap(word))
            .filter(|gap| !written(gap).contains('#'))
            .collect();
        let on_lines: Vec<&Range<usize>> = gaps.iter().filter(|gap| written(gap).contains('\n')).collect();
        let gaps: Vec<&Range<usize>> = if on_lines.is_empty() { gaps.iter().collect() } else { on_lines };
        let mut alike: HashMap<&str, usize> = HashMap::new();
        gaps.iter().for_each(|gap| *alike.entry(written(gap)).or_default() += 1);
        let best = gaps.iter().rev().max_by_key(|gap| alike[written(gap)]);
        best.map_or_else(|| Piece::Text(" ".to_owned()), |gap| Piece::Copy((*gap).clone()))
    }

    /// New words behind the others, as an edit of the scalar's text.
    fn append(&self, words: &[String], file: &str) -> Option<Edit> {
        let at = match self.until.checked_sub(1) {
            Some(last) => self.words.get(last)?.range.end,
            None => self.text().len(),
        };
        let mut pieces = Vec::new();
        for (i, word) in words.iter().enumerate() {
            match i {
                0 if self.until == 0 => {}
                0 => pieces.push(self.separator(file)),
                _ => pieces.push(Piece::Text(" ".to_owned())),
            }
            pieces.push(Piece::Text(self.quoted(word, Encoding::Plain)?));
        }
        // A number right before a redirection would be its file descriptor.
        if self.text()[at..].starts_with(['<', '>']) {
            pieces.push(Piece::Text(" ".to_owned()));
        }
        Some(self.lift(Edit { range: at..at, pieces }))
    }
}

impl Arguments for Line<'_> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn seen(&self) -> Vec<Seen<'_>> {
        let words = self.words.iter().map(|(home, word)| (&self.homes[*home], &self.homes[*home].words[*word]));
        let placeholder = |home: &Home, word: &Word| word.expands || is_placeholder(&home.text()[word.range.clone()]);
        words.map(|(home, word)| Seen { text: word.text(), placeholder: placeholder(home, word) }).collect()
    }

    fn span(&self, word: usize) -> Range<usize> {
        let there = self.at(word).and_then(|(home, word)| Some(home.outer(&home.words.get(word)?.range)));
        there.unwrap_or_else(|| self.node.span.clone())
    }

    fn write(&self, changes: &[Change]) -> Option<Written> {
        let outermost = self.homes.first()?.layers.first()?;
        let edits = self.edits(changes)?;
        let mut text = splice(&outermost.text, &edits)?;
        // The line ends that a block keeps at its end.
        text.push_str(self.node.text()?.get(outermost.text.len()..).unwrap_or_default());
        let plain = self.node.style() == Some(Style::Plain);
        let meaning = Meaning::Scalar { text, plain, tag: self.node.tag.clone() };
        Some(Written {
            edits: edits.iter().map(|edit| outermost.lift(edit)).collect(),
            meanings: vec![(self.path.clone(), meaning)],
        })
    }
}
