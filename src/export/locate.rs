//! Where an engine keeps its arguments, found by the words that start it.

use std::ops::Range;

use super::arguments::Arguments;
use super::arguments::line::Line;
use super::arguments::list::List;
use super::arguments::variable::NewVariable;
use super::flags::{Flags, flag_of};
use super::kept::{environment, is_plain, kept, splits};
use super::known::{
    awaits_script, engine_of_script, mentions, runs_another_program, script_of, starts, texts_of, value_of,
};
use super::shapes::ArgumentLocation;
use super::shell_lexer::{Command, assigned, commands, split};
use super::source::{Document, Format};
use super::text::Layer;
use super::yaml::{Meaning, Node, Path};
use crate::engine::VLLM_FLAGS;
use crate::engine::programs::{Engine, basename, engine_at, engine_in, of_image};
use crate::problems::Problem;

/// An engine in a manifest.
pub struct Located<'m> {
    pub location: ArgumentLocation,
    pub document: usize,
    pub engine: Engine,
    /// Where arguments may stand. New ones go to the first.
    pub arguments: Vec<Box<dyn Arguments + 'm>>,
    /// Whether its words say that it is an engine; otherwise its image alone does.
    pub sure: bool,
    /// The words that start it, as far as they are known, for what they say besides.
    pub words: Vec<String>,
}

/// One word of what a container starts.
struct Started {
    text: String,
    /// Whether it is in `args`, and its place in its list.
    in_args: bool,
    index: usize,
}

/// The engine of a location; `None` if nothing there looks like one.
///
/// # Errors
/// What starts an engine but cannot be edited: templates, anchors that others use, a here-document without an end, two engines in one script.
pub fn locate<'m>(
    document: Document<'m>,
    location: ArgumentLocation,
    flags: &Flags,
) -> Result<Option<Located<'m>>, Problem> {
    Finder { document, flags }.find(location)
}

struct Finder<'m, 'f> {
    document: Document<'m>,
    flags: &'f Flags,
}

impl<'m> Finder<'m, '_> {
    fn list(&self, path: &Path, first: usize) -> Option<Box<dyn Arguments + 'm>> {
        let Document { source, meaning, .. } = self.document;
        Some(Box::new(List::new(source, self.document.root(), meaning, path.clone(), first)?))
    }

    fn find(&self, location: ArgumentLocation) -> Result<Option<Located<'m>>, Problem> {
        self.refuse_merged(&location)?;
        let started = self.started(&location);
        let texts: Vec<&str> = started.iter().map(|w| w.text.as_str()).collect();
        let mut variables = self.variables(&location);
        let image = location.image.as_ref().and_then(|at| self.document.meaning.at(at)?.text());
        let script = script_of(&texts);
        let mut found = match (self.line(&location), script) {
            (Some(line), _) => self.in_line(&location, line)?,
            (None, Some(script)) => self.in_script(&location, &started, script)?,
            (None, None) => self.in_words(&location, &started),
        };
        let words = || texts.iter().map(|t| (*t).to_owned()).collect();
        let of_image = image.and_then(of_image);
        let engine = location.engine.or(of_image);
        let tells = |text: &str| text.split_whitespace().any(|word| self.is_tuned_flag(word));
        let told = |place: &dyn Arguments| place.seen().iter().any(|word| tells(word.text));
        // A variable counts where something expands it: a script, a script of a ConfigMap beside it, a preset.
        let file = started.iter().find_map(|word| self.file(basename(&word.text)));
        let expanded = |name: &String| {
            script.and_then(|script| texts.get(script)).is_some_and(|text| mentions(text, name))
                || file.is_some_and(|file| mentions(file, name))
                || (location.expands.contains(&name.as_str()) && !self.has_command(&location))
        };
        let itself = found.as_ref().is_some_and(|found| found.named) || !self.has_command(&location);
        if let Some((name, place)) =
            variables.iter().find(|(name, place)| is_for_arguments(name) && !expanded(name) && told(place.as_ref()))
            && !itself
            && script.is_none()
        {
            let says = format!("it is not known whether {} reads {name}", texts.first().unwrap_or(&"the program"));
            let hint = "add the ConfigMap with this script to the manifest, or start the engine by its name";
            return Err(Problem::new(&place.span(0), says, "this variable", hint));
        }
        if script.is_none() {
            self.refuse_pasted(&location, &texts)?;
        }
        variables.retain(|(name, _)| expanded(name));
        let tells = texts.iter().any(|text| tells(text)) || variables.iter().any(|(_, place)| told(place.as_ref()));
        if found.is_none() && !variables.is_empty() {
            let started = file.and_then(engine_of_script).unwrap_or(Engine::Vllm);
            found = Some(Found { engine: started, arguments: Vec::new(), words: words(), named: file.is_some() });
        }
        if found.is_none()
            && let Some(engine) = engine
        {
            // Behind a script, more words are no arguments of what it starts.
            if let Some(word) = script.and_then(|script| started.get(script)) {
                return if runs_another_program(&word.text) {
                    Ok(None)
                } else {
                    Err(self.not_understood(&location, word))
                };
            }
            // Another program than the image's own takes no flags that it did not take before.
            let other = texts.iter().any(|word| basename(word) == "vllm");
            if location.engine.is_none() && self.has_command(&location) && (other || !tells) {
                return Ok(None);
            }
            let arguments = location.args.iter().filter_map(|args| self.list(args, 0)).collect();
            found = Some(Found { engine, arguments, words: words(), named: false });
        }
        let Some(mut found) = found else { return Ok(None) };
        // `--model` alone is a flag of many programs.
        let sure = found.named || engine.is_some() || tells;
        for (name, place) in variables {
            // A preset that reads this variable may replace `args`.
            if location.expands.contains(&name.as_str()) {
                found.arguments.insert(0, place);
            } else {
                found.arguments.push(place);
            }
        }
        if let Some(new) = &location.new_variable
            && !self.has_command(&location)
            && location
                .args
                .as_ref()
                .and_then(|at| self.document.root().at(at))
                .is_none_or(|args| args.items().is_empty())
            && !found.arguments.iter().any(|place| place.path().0.starts_with(&new.list.0))
        {
            found.arguments.insert(0, Box::new(NewVariable::new(self.document, new.clone())));
        }
        self.refuse_shared(&location, script.and_then(|script| started.get(script)))?;
        let Found { arguments, words, named, engine: started } = found;
        let engine = match value_of(&words, "backend") {
            Some("huggingface") => Engine::HuggingFace,
            _ if named => started,
            _ => engine.unwrap_or(started),
        };
        Ok(Some(Located { document: self.document.index, engine, arguments, sure, words, location }))
    }

    /// The text of a script that a ConfigMap of the same manifest holds.
    fn file(&self, name: &str) -> Option<&'m str> {
        let maps = self.document.source.documents.iter();
        let mut maps = maps.filter(|root| root.text_at("kind") == Some("ConfigMap"));
        maps.find_map(|root| root.get("data")?.get(name)?.text())
    }

    /// Arguments written as one text, which is split as a shell does and run without one.
    fn line(&self, location: &ArgumentLocation) -> Option<(&'m Node, Path)> {
        [&location.args, &location.command].into_iter().flatten().find_map(|path| {
            let node = self.document.root().at(path)?;
            (node.text().is_some() && !node.is_null()).then(|| (node, path.clone()))
        })
    }

    fn in_line(
        &self,
        location: &ArgumentLocation,
        (node, path): (&'m Node, Path),
    ) -> Result<Option<Found<'m>>, Problem> {
        let text = node.text().unwrap_or_default();
        let split_text = |text: &str| split(text).iter().map(|word| word.text().to_owned()).collect::<Vec<_>>();
        let words = split_text(text);
        let own: Vec<&str> = words.iter().map(String::as_str).collect();
        // What stands before the line: the entry point, as a list or as a text of its own.
        let before = location.command.as_ref().filter(|command| **command != path);
        let before: Vec<String> = match before.and_then(|at| self.document.meaning.at(at)) {
            Some(Meaning::List(items)) => items.iter().filter_map(Meaning::text).map(str::to_owned).collect(),
            Some(Meaning::Scalar { text, .. }) => split_text(text),
            _ => Vec::new(),
        };
        let entry: Vec<&str> = before.iter().map(String::as_str).collect();
        if awaits_script(&entry).is_some() {
            let says =
                format!("{path} is split into words, and the shell before it takes the first one alone as its script");
            return Err(Problem::new(
                &node.span,
                says,
                "this text",
                "write it as a list of one text: [\"vllm serve …\"]",
            ));
        }
        let joins = |(at, _): (usize, &str)| !text[..at].ends_with(' ') && !text[at + 2..].starts_with([' ', '\t']);
        let is_unit = self.document.source.format == Format::Unit;
        if is_unit && text.match_indices("\\\n").any(joins) {
            let says = "systemd reads a space where a line is continued, and a shell would read nothing";
            return Err(Problem::new(&node.span, says, "this line", "write a space before the backslash"));
        }
        if engine_at(&own).is_some() || script_of(&own).is_some() {
            return self.script(node, path, text).map(|found| found.ok().map(|script| script.found));
        }
        let named = engine_in(&entry).map(|(engine, _)| engine);
        let image = location.image.as_ref().and_then(|at| self.document.meaning.at(at)?.text()).and_then(of_image);
        let engine = named.or(if entry.is_empty() { location.engine.or(image) } else { None });
        let Some(engine) = engine.filter(|_| location.args.as_ref() == Some(&path)) else { return Ok(None) };
        let line = Line::words(self.document.source, node, path);
        let mut arguments: Vec<Box<dyn Arguments + 'm>> = Vec::new();
        arguments.extend(line.map(|line| Box::new(line) as Box<dyn Arguments + 'm>));
        arguments.extend(self.in_environment(&commands(text).unwrap_or_default(), text, false)?);
        Ok(Some(Found { engine, arguments, words, named: named.is_some() }))
    }

    fn has_command(&self, location: &ArgumentLocation) -> bool {
        let command = location.command.as_ref().and_then(|at| self.document.root().at(at));
        command.is_some_and(|node| !(node.is_null() || node.is_flow() && node.items().is_empty()))
    }

    /// A script that starts an engine in a way that cannot be followed.
    fn not_understood(&self, location: &ArgumentLocation, word: &Started) -> Problem {
        let list = if word.in_args { &location.args } else { &location.command };
        let node = list.as_ref().and_then(|list| self.document.root().at(&list.item(word.index)));
        let hint = "start the engine by its name in the script (vllm serve …)";
        let says = format!("it is not clear how this script of {} starts the engine", location.name);
        Problem::new(&node.map_or(0..0, |node| node.span.clone()), says, "this script", hint)
    }

    /// The words of `command` and `args`.
    fn started(&self, location: &ArgumentLocation) -> Vec<Started> {
        let mut words = Vec::new();
        for (in_args, path) in [(false, &location.command), (true, &location.args)] {
            if let Some(Meaning::List(items)) = path.as_ref().and_then(|path| self.document.meaning.at(path)) {
                let texts = items.iter().enumerate().filter_map(|(index, item)| Some((index, item.text()?)));
                words.extend(texts.map(|(index, text)| Started { text: text.to_owned(), in_args, index }));
            }
        }
        words
    }

    /// Where no shell is in between.
    fn in_words(&self, location: &ArgumentLocation, started: &[Started]) -> Option<Found<'m>> {
        let texts: Vec<&str> = started.iter().map(|w| w.text.as_str()).collect();
        let words = || texts.iter().map(|t| (*t).to_owned()).collect();
        let args_there =
            location.args.as_ref().and_then(|args| self.document.root().at(args)).is_some_and(|args| !args.is_null());
        let (engine, first, named) = match engine_in(&texts) {
            Some((engine, first)) => (engine, first, true),
            // The image's own entry point, recognised by the arguments that it is given.
            None if !self.has_command(location) && texts.iter().any(|text| self.is_engine_flag(text)) => {
                // A flag that vLLM has too does not say which of them runs.
                let alone = |name: &String| self.flags.tunes(name) && !VLLM_FLAGS.lines().any(|flag| flag == name);
                let tuned = texts.iter().any(|text| flag_of(text).is_some_and(|name| alone(&name)));
                (if tuned { self.flags.engine() } else { Engine::Vllm }, 0, false)
            }
            None => return None,
        };
        let begins_in_args = started.get(first.saturating_sub(1)).is_some_and(|w| w.in_args);
        let first_in = |in_args: bool| {
            let first = started.get(first).filter(|w| w.in_args == in_args);
            first.map_or_else(|| started.iter().filter(|w| w.in_args == in_args).count(), |w| w.index)
        };
        let in_command = || {
            (!begins_in_args).then_some(())?;
            let command = location.command.as_ref().filter(|at| self.document.root().at(at).is_some())?;
            self.list(command, first_in(false))
        };
        let in_args = || self.list(location.args.as_ref()?, if begins_in_args { first_in(true) } else { 0 });
        // Arguments stand in `args`, unless all of the command line is the command.
        let arguments =
            if args_there || in_command().is_none() { [in_args(), in_command()] } else { [in_command(), None] };
        Some(Found { engine, arguments: arguments.into_iter().flatten().collect(), words: words(), named })
    }

    /// Whether a word is a flag that shall be set, or one that no other program has.
    fn is_tuned_flag(&self, word: &str) -> bool {
        flag_of(word).is_some_and(|name| name == "max-model-len" || self.flags.tunes(&name))
    }

    fn is_engine_flag(&self, word: &str) -> bool {
        flag_of(word).is_some_and(|name| name == "model") || self.is_tuned_flag(word)
    }

    /// Where a shell runs a script.
    fn in_script(
        &self,
        location: &ArgumentLocation,
        started: &[Started],
        script: usize,
    ) -> Result<Option<Found<'m>>, Problem> {
        let Some(word) = started.get(script) else { return Ok(None) };
        let Some(list) = (if word.in_args { &location.args } else { &location.command }) else { return Ok(None) };
        let path = list.item(word.index);
        let Some(node) = self.document.root().at(&path) else { return Ok(None) };
        let Script { mut found, takes_positional } = match self.script(node, path, &word.text)? {
            Ok(script) => script,
            Err(parsed) => return Ok(self.in_positional(location, started, script, &parsed)),
        };
        // Behind the script stands what it calls itself, and then what it calls "$@".
        let positional = started.get(script + 2..).unwrap_or_default();
        if takes_positional
            && let Some(args) = &location.args
            && let Some(first) = positional.iter().find(|w| w.in_args)
            && let Some(place) = self.list(args, first.index)
        {
            found.words.extend(positional.iter().map(|w| w.text.clone()));
            found.arguments.insert(0, place);
        }
        Ok(Some(found))
    }

    /// The engine that a script starts; else the commands of the script.
    fn script(&self, node: &'m Node, path: Path, text: &str) -> Result<Result<Script<'m>, Vec<Command>>, Problem> {
        let refuse = |says: String, hint: &str| Err(Problem::new(&node.span, says, "this script", hint));
        // The line ends at the end of a block are not the script's: its layer has none.
        let text = text.trim_end_matches('\n');
        let parsed = match commands(text) {
            Ok(parsed) => parsed,
            Err((_, what)) if engine_at(&text.split_whitespace().collect::<Vec<_>>()).is_some() => {
                let hint = "write the engine's arguments into `args` and use \"$@\" in the script, or edit it by hand";
                return refuse(format!("this script has {what}, which is not understood"), hint);
            }
            Err(_) => return Ok(Err(Vec::new())),
        };
        let source = self.document.source;
        let is_unit = source.format == Format::Unit;
        if is_unit && (parsed.len() > 1 || parsed.iter().any(|c| !c.behind.is_empty())) {
            return refuse(
                "no shell reads this line: `|`, `>` and `&` are words of the engine".to_owned(),
                "write bash -c '…'",
            );
        }
        let found = starts(text, &parsed);
        let start = match &found[..] {
            [] => return Ok(Err(parsed)),
            [one] => one,
            [..] => return refuse("this script starts two engines".to_owned(), "start each in a container of its own"),
        };
        let words = texts_of(start.command());
        // A template that takes the line end before it away continues the command.
        if template_in(&words) || start.after.trim_start().starts_with("{{-") {
            return refuse("a template adds to the arguments of the engine".to_owned(), RENDER);
        }
        let Some(outermost) = source.layer(node) else {
            let says = "this script is written in a way that cannot be edited without changing more".to_owned();
            return refuse(says, "write it as a block (`|`) or in quotes");
        };
        let layers: Vec<Layer> = std::iter::once(outermost).chain(start.layers.iter().cloned()).collect();
        // What an outer script keeps is not followed into an inner one.
        let inner = start.layers.first();
        let outer = parsed.iter().flat_map(|c| &c.words).filter(|word| inner.is_some_and(|inner| *inner != word.layer));
        let reads = |name: &str| words.iter().any(|word| mentions(word, name));
        let outer = outer.filter(|word| assigned(word.text()).is_some_and(|(name, _)| reads(name)));
        if let Some(word) = outer.into_iter().find(|word| self.flags.holds(word.text())) {
            return Err(kept_elsewhere(&layers[..1], &word.range, "a script within this one reads them"));
        }
        let in_script =
            kept(start, &layers, self.flags).map_err(|(range, says)| kept_elsewhere(&layers, &range, &says))?;
        let innermost = layers.last().map_or("", |layer| layer.text.as_str());
        let around = self.in_environment(&start.commands, innermost, !start.layers.is_empty())?;
        let positional = start.command().words.iter().any(|word| matches!(word.text(), "$@" | "${@}" | "$*"));
        let takes_positional = positional && start.layers.is_empty();
        let Some(line) = Line::script(source, node, path, start, in_script) else { return Ok(Err(parsed)) };
        let mut arguments: Vec<Box<dyn Arguments + 'm>> = vec![Box::new(line)];
        arguments.extend(around);
        Ok(Ok(Script { found: Found { engine: start.engine, arguments, words, named: true }, takes_positional }))
    }

    /// Flags that a unit's `Environment` keeps in a variable which the engine's command expands.
    fn in_environment(
        &self,
        started: &[Command],
        script: &str,
        in_shell: bool,
    ) -> Result<Vec<Box<dyn Arguments + 'm>>, Problem> {
        let (source, root) = (self.document.source, self.document.root());
        let mut lines = Vec::new();
        if source.format != Format::Unit {
            return Ok(Vec::new());
        }
        for key in ["Service.Environment", "Container.Environment"] {
            let at = Path::default().key(key);
            let Some(node) = root.at(&at) else { continue };
            let several = node.items().iter().enumerate().map(|(index, item)| (item, at.item(index)));
            lines.extend(several);
            lines.extend(node.text().map(|_| (node, at)));
        }
        let parsed: Vec<Vec<Command>> =
            lines.iter().map(|(node, _)| commands(node.text().unwrap_or_default()).unwrap_or_default()).collect();
        let all = || parsed.iter().flat_map(|commands| environment(commands)).map(|(_, name, _)| name);
        let mut found: Vec<Box<dyn Arguments + 'm>> = Vec::new();
        for ((node, path), commands) in lines.into_iter().zip(&parsed) {
            for (word, name, value) in environment(commands).filter(|(word, ..)| self.flags.holds(word.text())) {
                if !started.iter().flat_map(texts_of).any(|text| mentions(&text, name)) {
                    continue;
                }
                let once = all().filter(|other| *other == name).count() == 1 && splits(started, script, in_shell, name);
                let of_service = path.0.starts_with(&Path::default().key("Service").0);
                let plain = once && of_service && is_plain(&word.text()[value..], self.flags);
                match Line::assigned(source, node, path.clone(), word, value).filter(|_| plain) {
                    Some(line) => found.push(Box::new(line)),
                    None => {
                        let layers: Vec<Layer> = source.layer(node).into_iter().collect();
                        let says = format!("{name} is not given once in [Service] and expanded once, as ${name}");
                        return Err(kept_elsewhere(&layers, &word.range, &says));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Where a script ends in `exec "$@"`, and the words behind it start the engine.
    fn in_positional(
        &self,
        location: &ArgumentLocation,
        started: &[Started],
        script: usize,
        parsed: &[Command],
    ) -> Option<Found<'m>> {
        let runs = |command: &Command| {
            let texts: Vec<&str> = command.words.iter().map(super::shell_lexer::Word::text).collect();
            matches!(texts[..], ["$@" | "${@}"] | ["exec", "$@" | "${@}"])
        };
        parsed.iter().any(runs).then_some(())?;
        let positional = started.get(script + 2..)?;
        let texts: Vec<&str> = positional.iter().map(|w| w.text.as_str()).collect();
        let (engine, first) = engine_in(&texts)?;
        // The last words are arguments: new ones go behind them.
        let last = positional.last()?;
        let list = if last.in_args { &location.args } else { &location.command };
        let first = positional.get(first).map_or(last.index + 1, |w| w.index);
        (positional.iter().all(|w| w.in_args == last.in_args)).then_some(())?;
        let words = texts.iter().map(|t| (*t).to_owned()).collect();
        Some(Found { engine, arguments: vec![self.list(list.as_ref()?, first)?], words, named: true })
    }

    /// Environment variables: their names, values and places.
    fn env(&self, location: &ArgumentLocation) -> Vec<(&'m str, &'m Node, Path)> {
        let mut found = Vec::new();
        for env in &location.env {
            let Some(node) = self.document.root().at(env) else { continue };
            found.extend(node.items().iter().enumerate().filter_map(|(i, item)| {
                Some((item.get("name")?.text()?, item.get("value")?, env.item(i).key("value")))
            }));
            let mapped = node.entries().iter();
            found.extend(mapped.filter_map(|(key, value)| Some((key.text()?, value, env.literal_key(key.text()?)))));
        }
        found
    }

    /// Environment variables that hold arguments.
    fn variables(&self, location: &ArgumentLocation) -> Vec<(String, Box<dyn Arguments + 'm>)> {
        let mut found: Vec<(String, Box<dyn Arguments + 'm>)> = Vec::new();
        for (name, value, path) in self.env(location) {
            let text = value.text().unwrap_or_default();
            let says = text.split_whitespace().any(|word| self.is_engine_flag(word));
            let known = says || location.expands.contains(&name) || name == "VLLM_EXTRA_ARGS";
            if ((is_for_arguments(name) && known) || self.flags.holds(text))
                && let Some(line) = Line::variable(self.document.source, value, path)
            {
                found.push((name.to_owned(), Box::new(line)));
            }
        }
        found
    }

    /// Kubernetes puts the value of `$(NAME)` into the arguments as one word, to which no flag can be added.
    fn refuse_pasted(&self, location: &ArgumentLocation, texts: &[&str]) -> Result<(), Problem> {
        let tuned = |value: &Node| value.text().is_some_and(|v| v.split_whitespace().any(|w| self.is_tuned_flag(w)));
        let pasted = |name: &str| texts.iter().any(|text| text.contains(&format!("$({name})")));
        let Some((name, value, _)) =
            self.env(location).into_iter().find(|(name, value, _)| pasted(name) && tuned(value))
        else {
            return Ok(());
        };
        let says = format!("$({name}) in the arguments stands for flags that are to be set");
        let hint = "write these flags into `args` themselves, each as a word of its own";
        Err(Problem::new(&value.span, says, "this variable", hint))
    }

    /// An engine whose arguments come through a merge key cannot be edited where it stands.
    fn refuse_merged(&self, location: &ArgumentLocation) -> Result<(), Problem> {
        let root = self.document.root();
        let Some((owner, _)) = location.args.as_ref().and_then(Path::parent) else { return Ok(()) };
        let merge = root.at(&owner).and_then(|map| map.entries().iter().find(|(key, _)| key.text() == Some("<<")));
        let (Some((key, _)), Some(merged)) = (merge, self.document.meaning.at(&owner.literal_key("<<"))) else {
            return Ok(());
        };
        let sources = match merged {
            Meaning::List(sources) => sources.as_slice(),
            one => std::slice::from_ref(one),
        };
        for name in ["args", "command"] {
            let own = root.at(&owner.key(name)).is_some();
            let words = sources.iter().filter_map(|source| source.get(name)).flat_map(|list| match list {
                Meaning::List(items) => items.iter().filter_map(Meaning::text).collect(),
                _ => Vec::new(),
            });
            let words: Vec<&str> = words.collect();
            if !own && (engine_in(&words).is_some() || words.iter().any(|word| self.is_engine_flag(word))) {
                let says = format!("{} comes from elsewhere, through the merge key `<<`", owner.key(name));
                let hint = "write out the arguments of this container";
                return Err(Problem::new(&key.span, says, "merged in here", hint));
            }
        }
        Ok(())
    }

    /// What others share cannot be edited for one.
    fn refuse_shared(&self, location: &ArgumentLocation, script: Option<&Started>) -> Result<(), Problem> {
        let root = self.document.root();
        for list in [&location.command, &location.args].into_iter().flatten() {
            if let Some(node) = root.at(list)
                && matches!(node.kind, super::yaml::Kind::Alias(_))
            {
                let hint = "write out the arguments of this container";
                return Err(Problem::new(&node.span, format!("{list} is shared through an anchor"), "an alias", hint));
            }
            if let Some(node) = root.at(list) {
                let source = self.document.source;
                let is_script = |index: usize| {
                    script.is_some_and(|w| w.index == index && w.in_args == (location.args.as_ref() == Some(list)))
                };
                let words = node.items().iter().enumerate();
                let words =
                    words.map(|(i, item)| if is_script(i) { "" } else { item.text().unwrap_or_default() }.to_owned());
                // A template on a line of its own is a comment to the parser.
                let inside = |at: usize| node.items().iter().any(|item| item.span.contains(&at));
                let text = &source.text[node.span.start..source.end(node)];
                let lines = text.match_indices("{{").map(|(at, _)| node.span.start + at);
                let line = lines.into_iter().find(|at| !inside(*at) && source.before(*at).trim().is_empty());
                if let Some(start) = line.or_else(|| template_in(&words.collect::<Vec<_>>()).then_some(node.span.start))
                {
                    let says = format!("{list} holds a template");
                    return Err(Problem::new(&(start..start + 2), says, "a template", RENDER));
                }
                if let Some(at) = self.template_behind(list, node) {
                    let says = format!("a template adds to {list}, perhaps what is set here");
                    return Err(Problem::new(&(at..at + 2), says, "a template", RENDER));
                }
            }
        }
        Ok(())
    }
}

impl Finder<'_, '_> {
    /// A template on a line behind a list that writes more items of it, as `toYaml` does.
    fn template_behind(&self, list: &Path, node: &Node) -> Option<usize> {
        let source = self.document.source;
        let block = matches!(node.kind, super::yaml::Kind::Sequence { flow: false, .. });
        let owner = self.document.root().at(&list.parent()?.0).filter(|_| block || node.is_nothing())?;
        let key = source.column(owner);
        let unindented = block && source.column(node) == key;
        let mut at = source.line_stop(if block { source.end(node) } else { node.span.start });
        for line in source.text[at..].split_inclusive('\n').skip(1) {
            at = source.text[at..].find('\n').map_or(at, |end| at + end + 1);
            let words = line.trim();
            if words.is_empty() || words.starts_with('#') {
                continue;
            }
            let inside = words.strip_prefix("{{").filter(|_| words.ends_with("}}"))?;
            if is_control(words) {
                continue;
            }
            let indent = inside.split("indent").nth(1).and_then(|after| after.split_whitespace().next()?.parse().ok());
            let column = indent.unwrap_or(line.len() - line.trim_start().len());
            return (column > key || (column == key && unindented)).then(|| at + line.len() - line.trim_start().len());
        }
        None
    }
}

/// Flags that are to be set and stand where they cannot be edited; the layers are the texts down to the one with the place.
fn kept_elsewhere(layers: &[Layer], place: &Range<usize>, why: &str) -> Problem {
    let place = layers.iter().rev().fold(place.clone(), |range, layer| layer.outer(&range));
    let says = format!("flags that are to be set stand outside of the engine's command: {why}");
    let hint = "write them into the engine's command, or into a variable that is set once before it, for it alone";
    Problem::new(&place, says, "here", hint)
}

/// What to do about a template that may write flags.
const RENDER: &str = "render the template first, or set the arguments in the template's values";

/// An engine that a script starts.
struct Script<'m> {
    found: Found<'m>,
    takes_positional: bool,
}

struct Found<'m> {
    engine: Engine,
    arguments: Vec<Box<dyn Arguments + 'm>>,
    words: Vec<String>,
    /// Whether words start it by its name; otherwise the image's own entry point does.
    named: bool,
}

/// Whether a template among words may write flags: one that is neither a flag's value nor what is served.
fn template_in(words: &[String]) -> bool {
    words.iter().enumerate().any(|(i, word)| {
        let value = || {
            let before = words.get(i.wrapping_sub(1)).map_or("", String::as_str);
            before == "serve" || (before.starts_with("--") && !before.contains('='))
        };
        word.starts_with("{{") && (is_control(word) || !value())
    })
}

/// Whether a template decides what stands around it.
fn is_control(template: &str) -> bool {
    let inside = template.trim_start_matches(['{', '-', ' ']);
    CONTROL.iter().any(|control| inside.starts_with(control))
}

/// How templates that write nothing themselves begin.
const CONTROL: [&str; 9] = ["if", "else", "end", "with", "range", "define", "block", "/*", "$"];

/// Whether a variable is named as one that holds arguments.
fn is_for_arguments(name: &str) -> bool {
    ["_ARGS", "_FLAGS", "_OPTS"].iter().any(|end| name.ends_with(end))
}

/// The engine whose arguments stand at a place that the user pointed to. The place says only where: what runs there decides the rest.
pub fn point_to<'m>(
    document: Document<'m>,
    path: &Path,
    locations: Vec<ArgumentLocation>,
    flags: &Flags,
) -> Result<Located<'m>, Problem> {
    let root = document.root();
    let node = root.at(path);
    let span = node.map_or(root.span.start..root.span.start, |n| n.span.clone());
    let finder = Finder { document, flags };
    let holds = |location: &ArgumentLocation| {
        let lists = [&location.args, &location.command].into_iter().flatten().chain(&location.env);
        lists.into_iter().any(|list| path.0.starts_with(&list.0))
    };
    let above = || {
        (1..path.0.len())
            .rev()
            .map(|depth| ArgumentLocation::container(path.to_string(), &Path(path.0[..depth].to_vec())))
    };
    let location = locations.into_iter().find(holds).or_else(|| above().find(holds));
    let nothing = |says: String| {
        let hint = "point to the arguments of a container whose command or image starts an engine";
        Problem::new(&span, says, "this", hint)
    };
    let script = node.filter(|node| location.is_none() && node.text().is_some_and(|text| !text.is_empty()));
    let located = match (script, location) {
        (Some(node), _) => finder.script(node, path.clone(), node.text().unwrap_or_default())?.ok().map(|script| {
            let Found { engine, arguments, words, .. } = script.found;
            let location = ArgumentLocation { name: path.to_string(), ..ArgumentLocation::default() };
            Located { location, document: document.index, engine, arguments, sure: true, words }
        }),
        (None, Some(location)) => finder.find(location)?,
        (None, None) => {
            let above = path.parent().map(|(above, _)| above).unwrap_or_default();
            finder.find(ArgumentLocation {
                args: Some(path.clone()),
                ..ArgumentLocation::container(path.to_string(), &above)
            })?
        }
    };
    let mut located =
        located.ok_or_else(|| nothing(format!("what stands at {path} starts no engine that is known")))?;
    let all: Vec<String> = located.arguments.iter().map(|place| place.place()).collect();
    located.arguments.retain(|place| {
        let place = &place.path().0;
        place.starts_with(&path.0) || path.0.starts_with(place)
    });
    if located.arguments.is_empty() {
        return Err(nothing(format!(
            "{path} is not where the engine reads its arguments: that is {}",
            all.join(" or ")
        )));
    }
    Ok(located)
}
