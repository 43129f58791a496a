//! From a manifest and the settings of a winner to the manifest with those settings, proved to differ in nothing else.

use super::arguments::keys::{self, KeyOf};
use super::arguments::{Arguments, Written};
use super::flags::{Change, Flags, Refused, Setting, changes, occurrences};
use super::hints::{not_found, paste};
use super::locate::{Located, locate, point_to};
use super::provenance;
use super::render::{Entry, insert_at, scalar};
use super::shapes::texts::texts;
use super::shapes::{ArgumentLocation, Kind, shape};
use super::source::{Document, Format, Source};
use super::text::{Edit, splice};
use super::trtllm::{self, Place, Placed};
use super::variables;
use super::yaml::{self, Meaning, Node, Path, Step, Style, meaning};
use crate::engine::programs::Engine;
use crate::engine::{is_left_out, variable};
use crate::problems::{Problem, Problems, list};
use crate::space::Value;

#[derive(Clone, Debug, Default)]
pub struct IntendedFlags {
    pub settings: Vec<Setting>,
    /// Annotations of the object, in their order; none writes none.
    pub annotations: Vec<(String, String)>,
    /// Containers by name, where the manifest has several engines; `object/container` where names repeat.
    pub containers: Vec<String>,
    /// The place of the arguments, where it is not recognised.
    pub path: Option<Path>,
}

/// A value of a document that becomes another.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// The document, from 0.
    pub document: usize,
    pub path: Path,
    /// What stood there; `None` if nothing did.
    pub before: Option<Meaning>,
    pub after: Meaning,
}

/// A manifest with its new arguments.
pub struct Exported {
    pub text: String,
    /// Every value that differs, and no other does.
    pub changed: Vec<Changed>,
    /// What a person should know of the manifest, with places in the text as it was.
    pub notes: Vec<Problem>,
    /// The engines that were set, by name.
    pub engines: Vec<String>,
    /// What was written, in bytes of the text as it was.
    edits: Vec<Edit>,
}

/// An engine as [`export`] found it, for whoever compares it with what was measured.
pub type Visit<'v> = &'v dyn Fn(Document<'_>, &Located<'_>) -> Vec<Problem>;

/// Writes settings into a manifest. `visit` looks at each engine that is set, and its findings are among the notes.
pub fn export(
    name: &str,
    text: &str,
    wanted: &IntendedFlags,
    flags: &Flags,
    visit: Visit<'_>,
) -> Result<Exported, Problems> {
    let written = write(text, wanted, flags, visit).and_then(|done| {
        // Read as the first time, it says what was wanted: a shell may understand words together that YAML keeps apart.
        match write(&done.text, wanted, flags, &|_, _| Vec::new()) {
            Ok(again) if again.text == done.text => Ok(done),
            _ => {
                let source = Source::new(text).ok();
                let root = source.as_ref().and_then(|source| source.documents.first());
                Err(cannot_be_written(&(0..0), root, &wanted.settings))
            }
        }
    });
    written.map_err(|problem| Problems::new(name, text, vec![problem]))
}

/// The documents of a manifest, and what they mean.
pub(super) fn read(text: &str) -> Result<(Source, Vec<Meaning>), Problem> {
    let source = Source::new(text).map_err(|wrong| {
        let hint = "write valid YAML; templates around the arguments are understood as long as each stands in a value or on a line of its own";
        Problem::new(&(wrong.at..wrong.at), format!("not valid YAML: {}", wrong.says), "here", hint)
    })?;
    let meanings = meanings(&source).ok_or_else(|| {
        Problem::new(&(0..0), "the aliases of this file unfold without end", "", "write some of them out")
    })?;
    Ok((source, meanings))
}

fn write(text: &str, wanted: &IntendedFlags, flags: &Flags, visit: Visit<'_>) -> Result<Exported, Problem> {
    let (source, meanings) = read(text)?;
    let documents: Vec<Document<'_>> =
        meanings.iter().enumerate().map(|(index, meaning)| Document { source: &source, index, meaning }).collect();
    let mut draft = Draft { expected: meanings.clone(), ..Draft::default() };
    let engines = if wanted.path.is_none() { found(&documents, flags)? } else { Vec::new() };
    let inner = match &wanted.path {
        Some(path) => file_at(&documents, path),
        None if engines.is_empty() => text_that_starts(&documents, flags)?,
        None => None,
    };
    if let Some((index, path)) = inner {
        draft.set_inner(documents[index], &path, wanted, flags, visit)?;
    } else {
        let engines = match &wanted.path {
            Some(path) => vec![pointed(&documents, path, flags)?],
            None => choose(&documents, engines, wanted, flags)?,
        };
        for engine in &engines {
            let document = documents[engine.document];
            let (new, beside) = settle(&documents, engine, &wanted.settings, flags)?;
            draft.place = engine.arguments.first().map_or(0..0, |place| place.span(0));
            draft.notes.extend(visit(document, engine));
            if let Some((says, hint)) = engine.location.note.filter(|_| !new.edits.is_empty()) {
                draft.notes.push(Problem::new(&draft.place, says, "here", hint));
            }
            draft.notes.extend(beside.notes);
            if let Some(file) = &beside.file {
                let all = found(&documents, flags).unwrap_or_default();
                refuse_shared(&documents, file, (engine, &engines), &all, flags)?;
            }
            let cannot = cannot_be_written(&draft.place, Some(document.root()), &wanted.settings);
            let recorded = draft.record(document, new);
            let recorded = recorded.and_then(|()| match beside.file {
                Some(file) => draft.set_file(&documents, &file),
                None => Some(()),
            });
            recorded.ok_or(cannot)?;
            draft.engines.push(engine.location.name.clone());
        }
    }
    let mut annotated: Vec<usize> = draft.touched.clone();
    annotated.sort_unstable();
    annotated.dedup();
    for index in annotated {
        let document = documents[index];
        let is_object = shape(document.root()).is_none_or(|s| s.kind != Kind::File)
            && document.root().text_at("kind") != Some("List");
        if wanted.annotations.is_empty() || !is_object || document.root().get("metadata").is_none() {
            continue;
        }
        let cannot = || cannot_be_annotated(document.root());
        let written = provenance::annotate(document, &wanted.annotations).ok_or_else(cannot)?;
        draft.record(document, written).ok_or_else(cannot)?;
    }
    let touched = draft.touched.first().map(|index| documents[*index].root());
    let cannot = cannot_be_written(&draft.place, touched, &wanted.settings);
    draft.proved(text).ok_or(cannot)
}

/// What is about to be written.
#[derive(Default)]
struct Draft {
    edits: Vec<Edit>,
    /// What the documents mean afterwards.
    expected: Vec<Meaning>,
    changed: Vec<Changed>,
    notes: Vec<Problem>,
    engines: Vec<String>,
    /// Documents with an engine, which get the annotations.
    touched: Vec<usize>,
    /// Where the arguments of the last engine stand.
    place: std::ops::Range<usize>,
}

impl Draft {
    /// Takes over what was written in a document; `None` if there is no such place.
    fn record(&mut self, document: Document<'_>, written: Written) -> Option<()> {
        self.edits.extend(written.edits);
        self.touched.push(document.index);
        for (path, after) in written.meanings {
            self.expected.get_mut(document.index)?.set(&path.0, after.clone()).then_some(())?;
            let before = document.meaning.at(&path).cloned();
            self.changed.push(Changed { document: document.index, path, before, after });
        }
        Some(())
    }

    /// Writes a file in a ConfigMap.
    fn set_file(&mut self, documents: &[Document<'_>], file: &trtllm::Text) -> Option<()> {
        let Place::File(index, path) = &file.place else { return None };
        let document = documents.get(*index)?;
        let (edits, meaning) = file.written(*document, path)?;
        // Another worker has the same file.
        if edits.iter().all(|edit| self.edits.contains(edit)) {
            return Some(());
        }
        let span = document.root().at(path)?.span.clone();
        self.notes.push(old_text(&span));
        self.record(*document, Written { edits, meanings: vec![(path.clone(), meaning)] })
    }

    /// Sets the flags in a text of a document that is a file of its own.
    fn set_inner(
        &mut self,
        document: Document<'_>,
        path: &Path,
        wanted: &IntendedFlags,
        flags: &Flags,
        visit: Visit<'_>,
    ) -> Result<(), Problem> {
        let node = document.root().at(path);
        self.place = node.map_or(0..0, |node| node.span.clone());
        let place = self.place.clone();
        let cannot = || cannot_be_written(&place, Some(document.root()), &wanted.settings);
        let node = node.ok_or_else(cannot)?;
        let layer = document.source.layer(node).ok_or_else(cannot)?;
        let inner = IntendedFlags { annotations: Vec::new(), path: None, ..wanted.clone() };
        let outer = |problem: Problem| Problem { span: layer.outer(&problem.span), ..problem };
        let done = write(&layer.text, &inner, flags, visit).map_err(outer)?;
        let text = done.text + node.text().and_then(|text| text.get(layer.text.len()..)).unwrap_or_default();
        let meaning = Meaning::Scalar { text, plain: node.style() == Some(Style::Plain), tag: node.tag.clone() };
        self.notes.extend(done.notes.into_iter().map(outer));
        self.engines.extend(done.engines);
        if document.root().text_at("kind") == Some("ConfigMap") && !done.changed.is_empty() {
            self.notes.push(old_text(&self.place));
        }
        let edits = done.edits.iter().map(|edit| layer.lift(edit)).collect();
        self.record(document, Written { edits, meanings: vec![(path.clone(), meaning)] }).ok_or_else(cannot)
    }

    /// The text with all edits, if it means what was intended and nothing else.
    fn proved(mut self, text: &str) -> Option<Exported> {
        let whole = splice(text, &self.edits)?;
        let after = Source::new(whole.clone()).ok().and_then(|after| meanings(&after));
        let expected = &self.expected;
        let proved = after
            .is_some_and(|after| after.len() == expected.len() && after.iter().zip(expected).all(|(a, b)| a.same(b)));
        proved.then_some(())?;
        self.changed.retain(|c: &Changed| c.before.as_ref().is_none_or(|before| !before.same(&c.after)));
        let Self { changed, notes, engines, edits, .. } = self;
        Some(Exported { text: whole, changed, notes, engines, edits })
    }
}

fn old_text(span: &std::ops::Range<usize>) -> Problem {
    let hint = "kubectl rollout restart the workload that mounts it";
    Problem::new(span, "pods that run keep the old text of a ConfigMap", "this text", hint)
}

fn meanings(source: &Source) -> Option<Vec<Meaning>> {
    source.documents.iter().map(meaning).collect()
}

/// The text at a place of a document, if one stands there.
fn text_at(document: &Document<'_>, path: &Path) -> Option<String> {
    let node = document.root().at(path)?;
    node.text().is_some().then(|| document.source.layer(node)).flatten().map(|layer| layer.text)
}

/// The place that the user pointed to, where a text stands that is a file of its own; in which document.
fn file_at(documents: &[Document<'_>], path: &Path) -> Option<(usize, Path)> {
    let holds = |document: &&Document<'_>| {
        let inner = text_at(document, path).and_then(|text| Source::new(text).ok());
        inner.is_some_and(|inner| inner.documents.iter().any(|root| root.text().is_none() && shape(root).is_some()))
    };
    documents.iter().find(holds).map(|document| (document.index, path.clone()))
}

/// The text in a document that is a file of its own and starts the engine.
pub(super) fn text_that_starts(documents: &[Document<'_>], flags: &Flags) -> Result<Option<(usize, Path)>, Problem> {
    let mut starting = Vec::new();
    for document in documents.iter().filter(|document| document.source.format == Format::Yaml) {
        let texts = texts(document.root()).into_iter();
        let starts = |path: &Path| text_at(document, path).is_some_and(|text| starts_engine(&text, flags));
        starting.extend(texts.filter(starts).map(|path| (document.index, path)));
    }
    match &starting[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        [(_, first), (index, second), ..] => {
            let span = documents[*index].root().at(second).map_or(0..0, |node| node.span.clone());
            let says = format!("{first} and {second} may start the engine that was tuned");
            Err(Problem::new(&span, says, "the second of them", format!("say which one with --path '{first}'")))
        }
    }
}

/// Whether a text is a file in which something starts an engine, or seems to.
fn starts_engine(text: &str, flags: &Flags) -> bool {
    let Ok(source) = Source::new(text) else { return false };
    let Some(meanings) = meanings(&source) else { return false };
    let documents = meanings.iter().enumerate().map(|(index, meaning)| Document { source: &source, index, meaning });
    found(&documents.collect::<Vec<_>>(), flags).map_or(true, |engines| !engines.is_empty())
}

/// Arguments of a document that the edit or its proof failed on.
fn cannot_be_written(place: &std::ops::Range<usize>, root: Option<&Node>, settings: &[Setting]) -> Problem {
    let says = "these arguments are written in a way that cannot be changed without changing something else; nothing was written";
    let hint = root.and_then(shape).map_or("edit them by hand".to_owned(), |shape| paste(shape.name, settings));
    Problem::new(place, says, "here", format!("write them as a plain list of words, or {hint}"))
}

fn cannot_be_annotated(root: &Node) -> Problem {
    let place = root.get("metadata").map_or(root.span.start..root.span.start, |m| m.span.clone());
    let hint = "leave them out with --no-annotations";
    Problem::new(&place, "annotations cannot be added here without changing something else", "here", hint)
}

/// Every engine of a manifest.
pub(super) fn found<'m>(documents: &[Document<'m>], flags: &Flags) -> Result<Vec<Located<'m>>, Problem> {
    let mut engines = Vec::new();
    for document in documents {
        let locations = shape(document.root()).map_or(Vec::new(), |shape| (shape.locations)(document.root()));
        for location in locations {
            engines.extend(locate(*document, location, flags)?);
        }
    }
    Ok(engines)
}

/// What a person calls an object: `Deployment vllm`.
fn title(root: &Node) -> String {
    let name = root.text_at("metadata.name");
    let kind = root.text_at("kind").unwrap_or("a document without a kind");
    name.map_or_else(|| kind.to_owned(), |name| format!("{kind} {name}"))
}

/// The engines that are meant.
pub(super) fn choose<'m>(
    documents: &[Document<'m>],
    engines: Vec<Located<'m>>,
    wanted: &IntendedFlags,
    flags: &Flags,
) -> Result<Vec<Located<'m>>, Problem> {
    let object = |e: &Located<'_>| {
        let root = documents[e.document].root();
        root.text_at("metadata.name").unwrap_or_default().to_owned()
    };
    let names = &wanted.containers;
    if engines.is_empty() {
        return Err(nothing_found(documents, &wanted.settings));
    }
    let place = |e: &Located<'_>| e.arguments.first().map_or(0..0, |place| place.span(0));
    let called: Vec<String> = engines.iter().map(|e| e.location.name.clone()).collect();
    let several = |name: &str| called.iter().filter(|c| *c == name).count() > 1;
    let full = |e: &Located<'_>| {
        if several(&e.location.name) { format!("{}/{}", object(e), e.location.name) } else { e.location.name.clone() }
    };
    let all: Vec<String> = engines.iter().map(full).collect();
    if !names.is_empty() {
        let is =
            |e: &Located<'_>, name: &String| *name == full(e) || *name == format!("{}/{}", object(e), e.location.name);
        for name in names {
            if engines.iter().filter(|e| is(e, name)).count() != 1 {
                let known = list(all.iter().map(String::as_str), "and");
                let says = format!("no engine is called `{name}` here");
                return Err(Problem::new(&(0..0), says, "", format!("there are {known}")));
            }
        }
        let chosen = |e: &Located<'_>| names.iter().any(|name| is(e, name));
        return Ok(engines.into_iter().filter(|e| chosen(e)).collect());
    }
    // What another engine runs was not measured.
    let ours = |e: &Located<'_>| (e.sure, e.engine == flags.engine());
    let best = engines.iter().map(ours).max();
    let mut meant: Vec<Located<'m>> = engines.into_iter().filter(|e| Some(ours(e)) == best).collect();
    if let [one] = &meant[..]
        && !one.sure
    {
        let name = full(one);
        let says = format!("nothing but --model says that {name} runs vLLM, and other servers have that flag");
        return Err(Problem::new(&place(one), says, "here", format!("if it does, say so with --container {name}")));
    }
    let group = |e: &Located<'_>| e.location.group.map(|group| (e.document, group));
    let together = group(&meant[0]).is_some() && meant.iter().all(|e| group(e) == group(&meant[0]));
    match meant.len() {
        1 => Ok(meant),
        // Leader and workers run one engine: both take the limits.
        _ if together => Ok(meant),
        _ => {
            let names: Vec<String> = meant.iter().map(full).collect();
            let containers: Vec<String> = names.iter().map(|name| format!("--container {name}")).collect();
            let hint = format!("say which one was measured with {}; or name several", containers.join(" or "));
            let says = format!("{} may be the engine that was tuned", list(names.iter().map(String::as_str), "and"));
            let second = meant.remove(1);
            Err(Problem::new(&place(&second), says, "the second of them", hint))
        }
    }
}

pub(super) fn nothing_found(documents: &[Document<'_>], settings: &[Setting]) -> Problem {
    let looked = documents.iter().map(|document| {
        let root = document.root();
        match shape(root) {
            Some(shape) => {
                let locations = (shape.locations)(root);
                let paths = locations.iter().filter_map(|s| s.args.as_ref()).filter(|path| !path.0.is_empty());
                let paths: Vec<String> = paths.map(ToString::to_string).collect();
                let at = if paths.is_empty() { String::new() } else { format!(": looked at {}", paths.join(", ")) };
                format!("{} (a {}){at}", title(root), shape.name)
            }
            None => format!("{}: a kind that is not known", title(root)),
        }
    });
    let looked: Vec<String> = looked.collect();
    let place = documents.first().map_or(0..0, |d| d.root().get("kind").map_or(0..0, |kind| kind.span.clone()));
    let says = format!("no engine was found in this manifest. {}", looked.join("; "));
    Problem::new(&place, says, "", not_found(documents, settings))
}

fn pointed<'m>(documents: &[Document<'m>], path: &Path, flags: &Flags) -> Result<Located<'m>, Problem> {
    let parent_there = |d: &&Document<'_>| {
        d.root().at(path).is_some() || path.parent().is_some_and(|(above, _)| d.root().at(&above).is_some())
    };
    let there: Vec<&Document<'m>> = documents.iter().filter(|d| d.root().at(path).is_some()).collect();
    let near: Vec<&Document<'m>> = documents.iter().filter(parent_there).collect();
    match (&there[..], &near[..]) {
        ([one], _) | ([], [one]) => {
            let locations = shape(one.root()).map_or(Vec::new(), |shape| (shape.locations)(one.root()));
            point_to(**one, path, locations, flags)
        }
        ([], _) => {
            let hint = "dots between keys, [0] for an item, [\"a.b\"] for a key with dots";
            Err(Problem::new(&(0..0), format!("{path} is not in this manifest"), "", hint))
        }
        ([_, second, ..], _) => {
            let place = second.root().at(path).map_or(0..0, |n| n.span.clone());
            let says = format!("{path} stands in several documents of this file");
            Err(Problem::new(&place, says, "the second of them", "keep one of them in the file"))
        }
    }
}

/// What to write for one engine in its document, and what beside it.
fn settle(
    documents: &[Document<'_>],
    engine: &Located<'_>,
    settings: &[Setting],
    flags: &Flags,
) -> Result<(Written, Placed), Problem> {
    let nowhere = || {
        let says = format!("{} has no place for arguments", engine.location.name);
        Problem::new(&(0..0), says, "", "give it a list `args` or an environment variable for them")
    };
    if engine.engine != flags.engine() {
        let place = engine.arguments.first().map_or(0..0, |place| place.span(0));
        let other = engine.engine.name();
        let says = format!(
            "{} runs {other}, and these limits were measured on {}",
            engine.location.name,
            flags.engine().name()
        );
        let hint = format!(
            "the same number means something else in {other}: tune it by hand, or deploy {}",
            flags.engine().name()
        );
        return Err(Problem::new(&place, says, "this engine", hint));
    }
    let document = documents[engine.document];
    let mut placed = match engine.engine {
        Engine::TensorRtLlm => trtllm::place(documents, engine, settings, flags)?,
        _ => Placed { flags: settings.to_vec(), ..Placed::default() },
    };
    let mut settings: Vec<Setting> = std::mem::take(&mut placed.flags).into_iter().map(Setting::in_words).collect();
    let is_new = document.root().at(&engine.location.keys_at).is_none_or(is_empty);
    if is_new {
        settings.extend(stay_on(&engine.location, &settings));
    }
    let settings = settings.as_slice();
    let mut by_place: Vec<Vec<Change>> = engine.arguments.iter().map(|_| Vec::new()).collect();
    for (list, word, text) in std::mem::take(&mut placed.words) {
        by_place[list].push(Change::Set(word, text));
    }
    let (mut of_keys, mut new_keys) = (Written::default(), Vec::new());
    let of_environment = variables::write(document, engine, settings)?;
    for setting in settings.iter().filter(|setting| variable(&setting.name).is_none()) {
        let location = &engine.location;
        let map = document.root().at(&location.keys_at);
        let key = location.keys.of(map, setting);
        if let Some(key) = key.as_ref().filter(|_| is_left_out(&setting.value)) {
            let there = document.root().at(&key.at(&location.keys_at)).filter(|node| !node.is_nothing());
            if let Some(node) = there {
                let says = format!("{} is set, and was measured without", key.at(&location.keys_at));
                return Err(Problem::new(&node.span, says, "this key", "delete it by hand, and export again"));
            }
        }
        let key = key.filter(|_| !is_left_out(&setting.value));
        if let Some(opposite) = location.keys.opposite(map, setting) {
            let says = format!("{}{opposite} says the opposite of what is to be set", dotted(&location.keys_at));
            let span = map.map_or(0..0, |map| map.span.clone());
            return Err(Problem::new(&span, says, "in here", format!("delete {opposite}")));
        }
        // Where the mapping of the keys is missing or empty, the list beside them takes the flag, or else it is made.
        let is_there = |key: &KeyOf| {
            let above = key.at(&location.keys_at).parent().map(|(above, _)| above);
            above.is_some_and(|above| document.root().at(&above).is_some_and(|map| !is_empty(map)))
        };
        let alone = engine.arguments.is_empty() || (is_new && location.off.contains(&setting.name.as_str()));
        let key = match key {
            Some(key) if alone && !is_there(&key) => {
                new_keys.push(key.entry());
                continue;
            }
            other => other.filter(is_there),
        };
        let mut named = Vec::new();
        for (i, place) in engine.arguments.iter().enumerate() {
            let seen = place.seen();
            if !occurrences(&seen, setting, flags).map_err(|r| refused(document, place.as_ref(), r))?.is_empty() {
                named.push(i);
            }
        }
        if let [first, second, ..] = named[..] {
            let (first, second) = (&engine.arguments[first], &engine.arguments[second]);
            let says = format!("--{} stands in {} and in {}", setting.name, first.place(), second.place());
            return Err(Problem::new(&second.span(0), says, "here too", "delete one of them"));
        }
        if let Some(key) = key {
            let at = &location.keys_at;
            let there = document.root().at(&key.at(at)).filter(|node| !node.is_nothing());
            if let Some(node) = there.filter(|node| keys::is_placeholder_at(document.source, node)) {
                let says = format!("the value of {} is the placeholder `{}`", key.at(at), document.source.raw(node));
                let hint = given_by(&document.source.text, document.source.raw(node));
                return Err(Problem::new(&node.span, says, "a placeholder", hint));
            }
            // An argument behind the key wins over it: both say the same afterwards.
            if named.is_empty() || there.is_some() {
                let new = keys::write(document.source, document.root(), at, &key, setting).ok_or_else(nowhere)?;
                of_keys = of_keys.and(new);
            }
            if named.is_empty() {
                continue;
            }
        }
        let place = named.first().copied().unwrap_or(0);
        let seen = engine.arguments.get(place).ok_or_else(nowhere)?.seen();
        let new = changes(&seen, setting, flags).map_err(|r| refused(document, engine.arguments[place].as_ref(), r))?;
        by_place[place].extend(new);
    }
    // The list beside new keys is a part of the same new mapping.
    let beside = engine.arguments.iter().position(|place| Some(place.path()) == engine.location.args.as_ref());
    if let Some(changes) = beside.map(|list| &mut by_place[list]).filter(|c| !new_keys.is_empty() && !c.is_empty()) {
        new_keys.extend(new_list(engine.location.args.as_ref(), &std::mem::take(changes)));
    }
    // A list may be the last key of the mapping that gets new keys: its items come first.
    let mut written = Written::default();
    for (place, changes) in engine.arguments.iter().zip(&by_place) {
        if !changes.is_empty() {
            written = written.and(
                place
                    .write(changes)
                    .ok_or_else(|| cannot_be_written(&place.span(0), Some(document.root()), settings))?,
            );
        }
    }
    if !new_keys.is_empty() {
        let (entries, meanings): (Vec<_>, Vec<_>) = new_keys.into_iter().unzip();
        let at = &engine.location.keys_at;
        let edit = insert_at(document.source, document.root(), at, Entry::Map(entries)).ok_or_else(nowhere)?;
        written = written.and(Written { edits: vec![edit], meanings: vec![(at.clone(), Meaning::Map(meanings))] });
    }
    Ok((written.and(of_keys).and(of_environment), placed))
}

/// Whether a mapping has no entry: none is written, or `null` or `{}`.
fn is_empty(map: &Node) -> bool {
    map.is_null() || matches!(&map.kind, yaml::Kind::Mapping { entries, .. } if entries.is_empty())
}

/// The flags that are on without a mapping of keys, and would be off in the one that these settings need.
fn stay_on(location: &ArgumentLocation, settings: &[Setting]) -> Vec<Setting> {
    let written = || settings.iter().filter(|s| variable(&s.name).is_none() && !is_left_out(&s.value));
    let off = location.off.iter().filter(|flag| written().all(|setting| setting.name != **flag));
    let on = off.map(|flag| Setting { name: (*flag).to_owned(), value: Value::Bool(true) });
    if written().next().is_some() { on.collect() } else { Vec::new() }
}

/// A list of new words as an entry of a new mapping, and what that means.
fn new_list(path: Option<&Path>, changes: &[Change]) -> Option<((String, Entry), (Meaning, Meaning))> {
    let Some(Step::Key(key)) = path?.0.last() else { return None };
    let words = changes.iter().flat_map(|change| match change {
        Change::Append(words) => words.as_slice(),
        Change::Set(..) | Change::Remove(_) => &[],
    });
    let item = |word: &String| (Entry::Scalar(scalar(word, Style::Plain, true)), Meaning::quoted(word.clone()));
    let (items, meanings) = words.map(item).unzip();
    Some(((key.clone(), Entry::List(items)), (Meaning::plain(key.clone()), Meaning::List(meanings))))
}

/// A file that a worker reads which is not set cannot be changed for another one.
fn refuse_shared(
    documents: &[Document<'_>],
    file: &trtllm::Text,
    (engine, chosen): (&Located<'_>, &[Located<'_>]),
    all: &[Located<'_>],
    flags: &Flags,
) -> Result<(), Problem> {
    let Place::File(index, path) = &file.place else { return Ok(()) };
    let is = |one: &Located<'_>, other: &Located<'_>| {
        let mut places = one.arguments.iter().flat_map(|a| other.arguments.iter().map(move |b| a.path() == b.path()));
        one.document == other.document && places.any(|same| same)
    };
    let name = trtllm::file_of(engine, flags);
    let reads = |one: &Located<'_>| name.is_some() && trtllm::file_of(one, flags) == name;
    let Some(other) = all.iter().find(|one| reads(one) && !chosen.iter().any(|chosen| is(one, chosen))) else {
        return Ok(());
    };
    let span = documents[*index].root().at(path).map_or(0..0, |node| node.span.clone());
    let (ours, theirs) = (&engine.location.name, &other.location.name);
    let says = format!("{ours} and {theirs} read this file, and {theirs} is not to be set");
    let hint = format!("give {theirs} a file of its own, or name both: --container {ours} --container {theirs}");
    Err(Problem::new(&span, says, "this file", hint))
}

/// A place with the dot behind it that a key needs; nothing for the root.
fn dotted(at: &Path) -> String {
    if at.0.is_empty() { String::new() } else { format!("{at}.") }
}

fn refused(document: Document<'_>, place: &dyn Arguments, refused: Refused) -> Problem {
    let hint = match &refused.placeholder {
        Some(placeholder) => given_by(&document.source.text, placeholder),
        None => refused.hint,
    };
    Problem::new(&place.span(refused.word), refused.says, "here", hint)
}

/// What to do about a placeholder: the line of the file that gives it its value, if there is one.
pub(super) fn given_by(text: &str, placeholder: &str) -> String {
    let name = placeholder.trim_matches(|c: char| "\"'${}()<> ".contains(c));
    let name = name.split([':', '|', '-', ' ']).next().unwrap_or(name);
    if let Some(value) = name.strip_prefix(".Values.") {
        return format!("set {value} in the chart's values, or write a number here");
    }
    let gives = |line: &str| {
        let line = line.trim_start_matches(['-', ' ', '\t', '{']);
        let line = ["export ", "Environment=", "local "]
            .iter()
            .fold(line, |line, before| line.strip_prefix(before).unwrap_or(line));
        let line = line.trim_start_matches(['"', '\'']);
        let named = line.strip_prefix("name:").map(|rest| rest.trim_start().trim_start_matches(['"', '\'']));
        let named = named
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
        named || line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['=', ':']))
    };
    match text.lines().position(gives).filter(|_| !name.is_empty()) {
        Some(line) => format!("it gets its value in line {}: write a number there, or here", line + 1),
        None => "write a number there, or set the flag where the placeholder gets its value".to_owned(),
    }
}
