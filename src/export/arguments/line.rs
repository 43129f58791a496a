//! Arguments in one text: the engine's command in a shell script, or an environment variable that a script splits into words.

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
    /// The scalar's text, and the scripts within it, each in a word of the one before.
    layers: Vec<Layer>,
    /// Every word of the engine's command, or of the variable.
    words: Vec<Word>,
    /// The first that may be an argument.
    first: usize,
    /// How many may be followed by new words; those behind a redirection may not.
    until: usize,
    /// Whether a shell reads quotes in it.
    quotes: bool,
}

impl<'m> Line<'m> {
    /// The command that starts an engine in a script; `first` is its first word that may be an argument.
    pub fn script(source: &'m Source, node: &'m Node, path: Path, start: &Start) -> Option<Self> {
        let mut layers = vec![source.layer(node)?];
        for (command, word) in &start.within {
            let inner = commands(&layers.last()?.text).ok()?.into_iter().nth(*command)?.words.into_iter().nth(*word)?;
            layers.push(inner.layer);
        }
        let command = commands(&layers.last()?.text).ok()?.into_iter().nth(start.index)?;
        let until = command.words.len();
        let words = command.words.into_iter().chain(command.behind).collect();
        Some(Self { file: &source.text, node, path, layers, words, first: start.first, until, quotes: true })
    }

    /// A text of nothing but arguments, split as a shell does.
    pub fn words(source: &'m Source, node: &'m Node, path: Path) -> Option<Self> {
        let layer = source.layer(node)?;
        let [command] = <[_; 1]>::try_from(commands(&layer.text).ok()?).ok()?;
        let until = command.words.len();
        let words = command.words.into_iter().chain(command.behind).collect();
        Some(Self { file: &source.text, node, path, layers: vec![layer], words, first: 0, until, quotes: true })
    }

    /// A text that is split at white space, whole.
    pub fn variable(source: &'m Source, node: &'m Node, path: Path) -> Option<Self> {
        let layer = source.layer(node)?;
        let words = split(&layer.text);
        let until = words.len();
        Some(Self { file: &source.text, node, path, until, words, layers: vec![layer], first: 0, quotes: false })
    }

    /// The text that the words stand in.
    fn text(&self) -> &str {
        self.layers.last().map_or("", |layer| &layer.text)
    }

    /// The range of the file that a range of [`Line::text`] came from.
    fn outer(&self, range: &Range<usize>) -> Range<usize> {
        self.layers.iter().rev().fold(range.clone(), |range, layer| layer.outer(&range))
    }

    /// A new text for a word in its own quotes; none where it would be split.
    fn quoted(&self, text: &str, like: Encoding) -> Option<String> {
        match like {
            _ if !self.quotes => (!text.is_empty() && !text.contains(char::is_whitespace)).then(|| text.to_owned()),
            Encoding::DoubleQuoted if !text.contains(['$', '`', '!']) => {
                Some(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
            }
            Encoding::Plain => Some(shell_quoted(text)),
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

    /// What stands before most flags of this line: a space, or the end of a line and the indentation of the next.
    fn separator(&self) -> Piece {
        let gaps: Vec<Range<usize>> = (self.first.max(1)..self.until)
            .filter(|word| self.words[*word].text().starts_with("--"))
            .filter_map(|word| self.gap(word))
            .collect();
        // In a folded block a line end reads as a space: what counts is how it is written. Where flags begin lines, new ones do too.
        let written = |gap: &Range<usize>| &self.file[self.outer(gap)];
        let on_lines: Vec<&Range<usize>> = gaps.iter().filter(|gap| written(gap).contains('\n')).collect();
        let gaps: Vec<&Range<usize>> = if on_lines.is_empty() { gaps.iter().collect() } else { on_lines };
        let mut alike: HashMap<&str, usize> = HashMap::new();
        gaps.iter().for_each(|gap| *alike.entry(written(gap)).or_default() += 1);
        let best = gaps.iter().rev().max_by_key(|gap| alike[written(gap)]);
        best.map_or_else(|| Piece::Text(" ".to_owned()), |gap| Piece::Copy((*gap).clone()))
    }

    fn edits(&self, changes: &[Change]) -> Option<Vec<Edit>> {
        let mut edits = Vec::new();
        for change in changes {
            match change {
                Change::Set(word, text) => {
                    let word = self.words.get(self.first + word)?;
                    edits.push(Edit::replace(word.range.clone(), self.quoted(text, self.like(word))?));
                }
                Change::Remove(word) => {
                    let range = self.words.get(self.first + word)?.range.clone();
                    // The gap behind it goes with it: whoever overrides it stands there. A redirection in the gap stays.
                    let next = self.words.get(self.first + word + 1).map_or(range.end, |next| next.range.start);
                    let blank = self.text()[range.end..next].chars().all(|c| c.is_whitespace() || c == '\\');
                    edits.push(Edit::replace(range.start..if blank { next } else { range.end }, ""));
                }
                Change::Append(words) => {
                    let at = match self.until.checked_sub(1) {
                        Some(last) => self.words.get(last)?.range.end,
                        None => self.text().len(),
                    };
                    let mut pieces = Vec::new();
                    for (i, word) in words.iter().enumerate() {
                        match i {
                            0 if self.until == 0 => {}
                            0 => pieces.push(self.separator()),
                            _ => pieces.push(Piece::Text(" ".to_owned())),
                        }
                        pieces.push(Piece::Text(self.quoted(word, Encoding::Plain)?));
                    }
                    // A number right before a redirection would be its file descriptor.
                    if self.text()[at..].starts_with(['<', '>']) {
                        pieces.push(Piece::Text(" ".to_owned()));
                    }
                    edits.push(Edit { range: at..at, pieces });
                }
            }
        }
        Some(edits)
    }
}

impl Arguments for Line<'_> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn seen(&self) -> Vec<Seen<'_>> {
        let word = |word: &'_ Word| word.expands || is_placeholder(&self.text()[word.range.clone()]);
        self.words.iter().skip(self.first).map(|w| Seen { text: w.text(), placeholder: word(w) }).collect()
    }

    fn span(&self, word: usize) -> Range<usize> {
        self.words.get(self.first + word).map_or(self.node.span.clone(), |word| self.outer(&word.range))
    }

    fn write(&self, changes: &[Change]) -> Option<Written> {
        let (outermost, inner) = self.layers.split_first()?;
        let lift = |edit: Edit| inner.iter().rev().fold(edit, |edit, layer| layer.lift(&edit));
        let edits: Vec<Edit> = self.edits(changes)?.into_iter().map(lift).collect();
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
