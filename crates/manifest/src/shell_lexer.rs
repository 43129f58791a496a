//! The words of a shell script, each with its place. It reads enough of the POSIX grammar to find the engine's command and its
//! arguments, and leaves all else alone.

use std::ops::Range;

use crate::text::{Encoding, Layer};

#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// Where it stands, quotes included, in bytes of the script.
    pub range: Range<usize>,
    /// What the shell makes of it, expansions left as they are written; each byte with its place in the script.
    pub layer: Layer,
    /// Whether the shell would put something else in its place (`$x`, `$(…)`, backticks, `*`).
    pub expands: bool,
    /// The words between the brackets of `NAME=(…)`.
    pub items: Option<Vec<Word>>,
}

impl Word {
    /// What the shell makes of it.
    pub fn text(&self) -> &str {
        &self.layer.text
    }
}

/// A simple command, with the words behind its first redirection apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Command {
    /// Its words up to the first redirection.
    pub words: Vec<Word>,
    /// Words behind the first redirection, where the engine's flags could stand as well.
    pub behind: Vec<Word>,
    /// How many of its first words belong to the grammar (`then`, `{`).
    pub reserved: usize,
    /// The blocks that it stands in, from the outermost: branches, loops, functions, subshells, and chains of `&&`. Where those of one command
    /// begin those of a later one, the later one runs only if the earlier one did.
    pub blocks: Vec<usize>,
}

/// A block that is open: what begins it, and its number.
struct Block {
    begins: &'static str,
    number: usize,
}

/// Where a script cannot be read, in bytes, and why.
pub type NotRead = (usize, &'static str);

/// The simple commands of a script in their order, also those inside of groups and subshells.
///
/// # Errors
/// What this reader does not understand, as a person says it, and where: a quote or a here-document without an end.
pub fn commands(script: &str) -> Result<Vec<Command>, NotRead> {
    let mut reader = Reader { script, ..Reader::default() };
    reader.read()?;
    Ok(reader.done)
}

#[derive(Default)]
struct Reader<'s> {
    script: &'s str,
    at: usize,
    done: Vec<Command>,
    open: Command,
    redirected: bool,
    /// The words that end the here-documents which begin on the next line, and whether tabs may stand before them.
    here: Vec<(String, bool)>,
    blocks: Vec<Block>,
    /// How many blocks there were.
    numbers: usize,
    /// The number of the chain of `&&`, of the branch of `||`, or of the part of a pipe that is being read.
    chain: Option<usize>,
    in_array: bool,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.script[self.at..]
    }

    /// Ends a command; `alone` is the number of a part of a pipe, or of what runs in the background.
    fn end_command(&mut self, alone: Option<usize>) {
        let mut command = std::mem::take(&mut self.open);
        self.redirected = false;
        if !command.words.is_empty() {
            command.reserved = self.grammar(&command);
            command.blocks = self.blocks.iter().map(|block| block.number).chain(self.chain).chain(alone).collect();
            self.done.push(command);
        }
    }

    /// Opens and closes the blocks that the first words of a command say, and counts these words.
    fn grammar(&mut self, command: &Command) -> usize {
        for (index, word) in command.words.iter().enumerate() {
            match &self.script[word.range.clone()] {
                "if" => self.open_block("if"),
                "while" | "until" => self.open_block("do"),
                "{" => self.open_block("{"),
                "fi" => self.close_block("if"),
                "done" => self.close_block("do"),
                "esac" => self.close_block("case"),
                "}" => self.close_block("{"),
                "then" | "else" | "elif" | "do" => self.next_branch(),
                "!" | "time" => {}
                "for" | "select" => {
                    self.open_block("do");
                    return index;
                }
                "case" => {
                    self.open_block("case");
                    return index;
                }
                _ => return index,
            }
        }
        command.words.len()
    }

    fn number(&mut self) -> usize {
        self.numbers += 1;
        self.numbers
    }

    fn open_block(&mut self, begins: &'static str) {
        let number = self.number();
        self.blocks.push(Block { begins, number });
    }

    fn close_block(&mut self, begins: &str) {
        if self.blocks.last().is_some_and(|block| block.begins == begins) {
            self.blocks.pop();
        }
    }

    /// Of two branches of one block, one alone runs.
    fn next_branch(&mut self) {
        let number = self.number();
        if let Some(block) = self.blocks.last_mut() {
            block.number = number;
        }
    }

    /// Ends a command at a separator, and knows from it when the next one runs.
    fn separator(&mut self, c: char) {
        let (before, rest) = (self.open.words.is_empty(), self.rest());
        let double = rest[1..].starts_with(c);
        match c {
            // A chain goes on behind the end of a line.
            '\n' if before => {}
            '&' if double => {
                self.end_command(None);
                let number = self.number();
                self.chain = self.chain.or(Some(number));
            }
            '|' | '&' => {
                // What runs beside others, or in a pipe, changes nothing for them.
                let alone = (!double).then(|| self.number());
                self.end_command(alone);
                self.chain = (c == '|').then(|| self.number());
            }
            _ => {
                self.end_command(None);
                self.chain = None;
            }
        }
        match c {
            ';' if double => self.next_branch(),
            '(' => self.open_block("("),
            ')' if self.blocks.last().is_some_and(|block| block.begins == "case") => self.next_branch(),
            ')' => self.close_block("("),
            _ => {}
        }
        self.at += if double && ['&', '|', ';'].contains(&c) { 2 } else { 1 };
    }

    fn read(&mut self) -> Result<(), NotRead> {
        while let Some(c) = self.rest().chars().next() {
            match c {
                ' ' | '\t' | '\r' => self.at += 1,
                '\\' if self.line_continues() > 0 => self.at += self.line_continues(),
                '\n' | ';' | '&' | '|' | '(' | ')' if !self.rest().starts_with("&>") => {
                    self.separator(c);
                    if c == '\n' {
                        self.here_documents()?;
                    }
                }
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                '<' | '>' if self.substitutes() => {
                    let word = self.word()?;
                    if self.redirected { self.open.behind.push(word) } else { self.open.words.push(word) }
                }
                '<' | '>' | '&' => self.redirection()?,
                _ => {
                    let word = self.word()?;
                    // A number right before a redirection is its file descriptor.
                    let descriptor =
                        word.text().bytes().all(|b| b.is_ascii_digit()) && self.rest().starts_with(['<', '>']);
                    if descriptor {
                        self.redirection()?;
                    } else if self.redirected {
                        self.open.behind.push(word);
                    } else {
                        self.open.words.push(word);
                    }
                }
            }
        }
        self.end_command(None);
        if self.here.is_empty() { Ok(()) } else { Err((self.at, "a here-document without an end")) }
    }

    /// Leaves out the texts of here-documents.
    fn here_documents(&mut self) -> Result<(), NotRead> {
        let script = self.script;
        for (end, tabs) in std::mem::take(&mut self.here) {
            loop {
                let line = script[self.at..]
                    .split_inclusive('\n')
                    .next()
                    .ok_or((self.at, "a here-document without an end"))?;
                self.at += line.len();
                let line = line.trim_end_matches(['\n', '\r']);
                if (if tabs { line.trim_start_matches('\t') } else { line }) == end {
                    break;
                }
            }
        }
        Ok(())
    }

    /// How long an escaped line end is at this place; 0 if there is none.
    fn line_continues(&self) -> usize {
        // The line end behind the last backslash belongs to the block that the script stands in.
        if self.rest() == "\\" {
            return 1;
        }
        ["\\\n", "\\\r\n"].into_iter().find(|e| self.rest().starts_with(e)).map_or(0, str::len)
    }

    /// Whether `<(…)` or `>(…)` stands here: a word that the shell puts a file's name in place of.
    fn substitutes(&self) -> bool {
        self.rest().starts_with("<(") || self.rest().starts_with(">(")
    }

    fn redirection(&mut self) -> Result<(), NotRead> {
        if self.rest().starts_with("<<") && !self.rest().starts_with("<<<") {
            self.at += 2;
            let tabs = self.rest().starts_with('-');
            self.at += usize::from(tabs);
            self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
            let end = self.word()?.text().to_owned();
            self.here.push((end, tabs));
            self.redirected = true;
            return Ok(());
        }
        while self.rest().starts_with(['<', '>', '&', '|']) && !self.substitutes() {
            self.at += 1;
        }
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
        if !self.rest().is_empty() && !self.rest().starts_with(['\n', ';', '|', ')']) {
            self.word()?;
        }
        self.redirected = true;
        Ok(())
    }

    fn word(&mut self) -> Result<Word, NotRead> {
        let start = self.at;
        let encoding = match self.rest().chars().next() {
            Some('\'') => Encoding::ShellQuoted,
            Some('"') => Encoding::DoubleQuoted,
            _ => Encoding::Plain,
        };
        let mut word = Word { range: start..start, layer: Layer::new(start, encoding), expands: false, items: None };
        while let Some(c) = self.rest().chars().next() {
            match c {
                '<' | '>' if self.substitutes() && self.at == start => {
                    let length = balanced(self.rest(), '(', ')').ok_or((self.at, "an expansion without an end"))?;
                    word.expands = true;
                    self.verbatim(&mut word, self.at..self.at + length);
                    self.at += length;
                }
                '(' if !self.in_array
                    && assigned(&self.script[start..self.at]).is_some_and(|(_, value)| value == self.at - start) =>
                {
                    self.array(&mut word)?;
                }
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                // A template is one word, whatever pipes and quotes it has.
                '{' if self.rest().starts_with("{{") && self.rest().contains("}}") => {
                    let length = self.rest().find("}}").map_or(2, |end| end + 2);
                    word.expands = true;
                    self.verbatim(&mut word, self.at..self.at + length);
                    self.at += length;
                }
                '\'' => {
                    let end = self.rest()[1..].find('\'').ok_or((self.at, "a quote without an end"))?;
                    let (from, to) = (self.at + 1, self.at + 1 + end);
                    self.verbatim(&mut word, from..to);
                    self.at = to + 1;
                }
                '"' => self.double_quoted(&mut word)?,
                '\\' if self.line_continues() > 0 => self.at += self.line_continues(),
                '\\' => self.escaped(&mut word),
                '$' | '`' => self.expansion(&mut word)?,
                _ => {
                    word.expands |= matches!(c, '*' | '?' | '[') || (c == '~' && word.text().is_empty());
                    self.verbatim(&mut word, self.at..self.at + c.len_utf8());
                    self.at += c.len_utf8();
                }
            }
        }
        word.range.end = self.at;
        Ok(word)
    }

    /// `(a b)` behind `NAME=`, which may stand on several lines, with comments.
    fn array(&mut self, word: &mut Word) -> Result<(), NotRead> {
        let open = self.at;
        self.at += 1;
        // There are no arrays in arrays.
        self.in_array = true;
        let mut items = Vec::new();
        loop {
            match self.rest().chars().next() {
                None => return Err((open, "an array without an end")),
                Some(')') => break,
                Some('\\') if self.line_continues() > 0 => self.at += self.line_continues(),
                Some('#') => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                Some(c) if c.is_whitespace() => self.at += c.len_utf8(),
                Some(';' | '&' | '|' | '(' | '<' | '>') if !self.substitutes() => {
                    return Err((self.at, "an array of more than words"));
                }
                Some(_) => items.push(self.word()?),
            }
        }
        self.at += 1;
        self.in_array = false;
        self.verbatim(word, open..self.at);
        word.items = Some(items);
        Ok(())
    }

    fn verbatim(&self, word: &mut Word, range: Range<usize>) {
        word.layer.copy(self.script, range);
    }

    fn escaped(&mut self, word: &mut Word) {
        if let Some(c) = self.rest()[1..].chars().next() {
            word.layer.push(c, self.at..self.at + 1 + c.len_utf8());
            self.at += c.len_utf8();
        }
        self.at += 1;
    }

    fn double_quoted(&mut self, word: &mut Word) -> Result<(), NotRead> {
        let opened = self.at;
        self.at += 1;
        loop {
            match self.rest().chars().next() {
                None => return Err((opened, "a quote without an end")),
                Some('"') => break,
                Some('\\') if self.line_continues() > 0 => self.at += self.line_continues(),
                Some('\\') if self.rest()[1..].starts_with(['$', '`', '"', '\\']) => self.escaped(word),
                Some('$' | '`') => self.expansion(word)?,
                Some(c) => {
                    self.verbatim(word, self.at..self.at + c.len_utf8());
                    self.at += c.len_utf8();
                }
            }
        }
        self.at += 1;
        Ok(())
    }

    /// `$x`, `${x}`, `$(…)` or `` `…` ``, kept as written.
    fn expansion(&mut self, word: &mut Word) -> Result<(), NotRead> {
        let rest = self.rest();
        let without_end = (self.at, "an expansion without an end");
        let length = if let Some(inner) = rest.strip_prefix('`') {
            inner.find('`').ok_or(without_end)? + 2
        } else if rest.starts_with("${") {
            balanced(rest, '{', '}').ok_or(without_end)?
        } else if rest.starts_with("$(") {
            balanced(rest, '(', ')').ok_or(without_end)?
        } else {
            1
        };
        // A dollar that nothing follows is a dollar.
        word.expands |=
            length > 1 || rest[1..].starts_with(|c: char| c.is_ascii_alphanumeric() || "_@*#?$!-".contains(c));
        self.verbatim(word, self.at..self.at + length);
        self.at += length;
        Ok(())
    }
}

/// The length of a text up to the bracket that closes its first one; within `(…)`, brackets in quotes are text.
fn balanced(text: &str, open: char, close: char) -> Option<usize> {
    let (mut depth, mut quote, mut escaped) = (0, None, false);
    for (at, c) in text.char_indices() {
        if open == '(' && std::mem::take(&mut escaped) {
            continue;
        }
        if open == '(' && c == '\\' && quote != Some('\'') {
            escaped = true;
        } else if quote == Some(c) {
            quote = None;
        } else if quote.is_some() {
            continue;
        } else if open == '(' && ['\'', '"'].contains(&c) {
            quote = Some(c);
        } else if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
            if depth == 0 {
                return Some(at + close.len_utf8());
            }
        }
    }
    None
}

/// The name that a word gives a value, `+` included where it adds to it, and where the value begins.
pub fn assigned(word: &str) -> Option<(&str, usize)> {
    let (name, _) = word.split_once('=')?;
    let plain = name.strip_suffix('+').unwrap_or(name);
    let letters = plain.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (letters && plain.starts_with(|c: char| !c.is_ascii_digit())).then_some((name, name.len() + 1))
}

/// The words of a text that is split at white space without a look at quotes, as `$EXTRA_ARGS` is. An expansion is one word.
pub fn split(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    // Where one expansion has no end, none behind it is looked for: that would take as long as the text for each.
    let (mut at, mut endless) = (0, false);
    while at < text.len() {
        let rest = &text[at..];
        let blank = rest.len() - rest.trim_start().len();
        if blank > 0 {
            at += blank;
            continue;
        }
        let (start, mut expands) = (at, false);
        while let Some(c) = text[at..].chars().next().filter(|c| !c.is_whitespace()) {
            let rest = &text[at..];
            expands |= c == '$' || c == '`';
            let inside = match c {
                _ if endless => None,
                '`' => rest[1..].find('`').map(|end| end + 2),
                _ if rest.starts_with("${") => balanced(rest, '{', '}'),
                _ if rest.starts_with("$(") => balanced(rest, '(', ')'),
                _ => None,
            };
            endless |= inside.is_none() && (c == '`' || rest.starts_with("${") || rest.starts_with("$("));
            at += inside.unwrap_or(c.len_utf8());
        }
        let layer = Layer::verbatim(text, start..at);
        words.push(Word { layer, range: start..at, expands, items: None });
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &str) -> Vec<Vec<String>> {
        let commands = commands(script).unwrap();
        commands.iter().map(|c| c.words.iter().map(|w| w.text().to_owned()).collect()).collect()
    }

    #[test]
    fn commands_and_their_words_are_found() {
        let script = "set -e # x\nexport A=\"b c\" && exec vllm serve m \\\n  --x 'a b' --y=\"q\\\"r\" 2>&1 | tee /tmp/l; (sleep 1)";
        let expected = [
            &["set", "-e"][..],
            &["export", "A=b c"],
            &["exec", "vllm", "serve", "m", "--x", "a b", "--y=q\"r"],
            &["tee", "/tmp/l"],
            &["sleep", "1"],
        ];
        assert_eq!(texts(script), expected);
    }

    #[test]
    fn arrays_are_words_with_words_in_them() {
        let commands = commands("A=(--x 'a b' # c\n  \"$M\"\n) B+=(y) c\nf() { x; }").unwrap();
        let items = |word: &Word| word.items.iter().flatten().map(|w| w.text().to_owned()).collect::<Vec<_>>();
        let [a, b, c] = &commands[0].words[..] else { panic!("{commands:?}") };
        assert_eq!(
            (items(a), items(b), &c.items),
            (vec!["--x".into(), "a b".into(), "$M".into()], vec!["y".into()], &None)
        );
        assert_eq!(commands.len(), 4);
        assert!(super::commands("A=(a; b)").is_err() && super::commands("A=(a").is_err());
        assert!(super::commands(&"A=(".repeat(100_000)).is_err());
        let words: Vec<String> =
            split("--a $(x | y) `p q` ${B:-c d} --e").iter().map(|w| w.text().to_owned()).collect();
        assert_eq!(words, ["--a", "$(x | y)", "`p q`", "${B:-c d}", "--e"]);
        assert_eq!(split(&"${a ".repeat(100_000)).len(), 100_000);
    }

    #[test]
    fn a_command_runs_for_certain_if_one_in_its_blocks_does() {
        // Whether `vllm` runs only where `A=1` did.
        let certain = |script: &str| {
            let commands = commands(script).unwrap();
            let find = |word: &str| commands.iter().find(|c| c.words.get(c.reserved).is_some_and(|w| w.text() == word));
            find("vllm").unwrap().blocks.starts_with(&find("A=1").unwrap().blocks)
        };
        for script in [
            "A=1; vllm",
            "cd / && A=1 && vllm",
            "cd / &&\n A=1 &&\n\n vllm | tee l",
            "A=1\nif x; then vllm; fi",
            "if x; then A=1; vllm; fi",
            "f() {\n A=1\n for i in 1; do vllm & done\n}",
            "case $x in a) A=1; vllm;; esac",
            "if x; then y; fi; case $x in a) (y);; esac; (y) ; { A=1; }; A=1; vllm",
        ] {
            let last = script.rfind("A=1").unwrap();
            let script =
                script.char_indices().map(|(at, c)| if at < last && c == 'A' { 'B' } else { c }).collect::<String>();
            assert!(certain(&script), "{script}");
        }
        for script in [
            "x && A=1; vllm",
            "x || A=1\nvllm",
            "if x; then A=1; fi; vllm",
            "if x; then A=1; else vllm; fi",
            "case $x in a) A=1;; b) vllm;; esac",
            "(A=1); vllm",
            "A=1 | x; vllm",
            "A=1 & vllm",
            "f() { A=1; }; vllm",
            "while x; do A=1; done; vllm",
            "x && { A=1; }\nvllm",
        ] {
            assert!(!certain(script), "{script}");
        }
    }

    #[test]
    fn what_a_shell_would_replace_is_known() {
        let script = "vllm $MODEL \"${A:-b c}\" $(nproc) 'no $x' \"$@\" *.json a\\$b cost$";
        let commands = commands(script).unwrap();
        let expands: Vec<bool> = commands[0].words.iter().map(|w| w.expands).collect();
        assert_eq!(expands, [false, true, true, true, false, true, true, false, false]);
        assert_eq!(&script[commands[0].words[2].range.clone()], "\"${A:-b c}\"");
    }

    #[test]
    fn words_behind_a_redirection_and_here_documents_are_kept_apart() {
        let commands = commands("vllm serve m > /log --x 1").unwrap();
        assert_eq!(commands[0].behind[0].text(), "--x");
        let substituted = super::commands("vllm serve --config <(cat c) --x 1 > >(tee l) 2>&1").unwrap();
        assert_eq!(texts("vllm serve --config <(cat c) --x 1 > >(tee l) 2>&1")[0][3], "<(cat c)");
        assert_eq!((substituted.len(), substituted[0].words.len()), (1, 6));
        assert_eq!(texts("vllm serve m \\\n  --x \\"), [["vllm", "serve", "m", "--x"]]);
        assert_eq!(texts("X=$(echo \")\" 'it)' \\) )\nvllm serve m")[1], ["vllm", "serve", "m"]);
        assert_eq!(texts("cat <<-'E' > f\nvllm serve x\n\tE\nvllm serve m"), [&["cat"][..], &["vllm", "serve", "m"]]);
        assert!(super::commands("cat <<EOF\nx\nEO").is_err());
        assert!(super::commands("echo 'x").is_err());
    }
}
