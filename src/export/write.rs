//! From a manifest and the settings of a winner to the manifest with those settings, proved to differ in nothing else.

use super::flags::{Change, Flags, Refused, Setting, changes, occurrences};
use super::arguments::{Arguments, Written, keys};
use super::locate::{Document, Located, locate, point_to};
use super::provenance;
use super::shapes::{Engine, Kind, shape};
use super::source::Source;
use super::text::{Edit, splice};
use super::yaml::{Meaning, Node, Path, meaning};
use crate::problems::{Problem, Problems, list};

/// What to write, and where.
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
    /// What stood there; none where nothing did.
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
}

/// An engine as [`export`] found it, for whoever compares it with what was measured.
pub type Visit<'v> = &'v dyn Fn(Document<'_>, &Located<'_>) -> Vec<Problem>;

/// Writes settings into a manifest. `visit` looks at each engine that is set, and its findings are among the notes.
///
/// # Errors
/// Why nothing can be written, with the place and a remedy.
pub fn export(name: &str, text: &str, wanted: &IntendedFlags, flags: &Flags, visit: Visit<'_>) -> Result<Exported, Problems> {
    let written = write(text, wanted, flags, visit).and_then(|done| {
        // Read as the first time, it says what was wanted: a shell may understand words together that YAML keeps apart.
        match write(&done.text, wanted, flags, &|_, _| Vec::new()) {
            Ok(again) if again.text == done.text => Ok(done),
            _ => Err(cannot_be_written(&(0..0))),
        }
    });
    written.map_err(|problem| Problems::new(name, text, vec![problem]))
}

fn write(text: &str, wanted: &IntendedFlags, flags: &Flags, visit: Visit<'_>) -> Result<Exported, Problem> {
    let source = Source::new(text).map_err(|wrong| {
        let hint = "write valid YAML; templates around the arguments are understood as long as each stands in a value or on a line of its own";
        Problem::new(&(wrong.at..wrong.at), format!("not valid YAML: {}", wrong.says), "here", hint)
    })?;
    let meanings = meanings(&source).ok_or_else(|| {
        Problem::new(&(0..0), "the aliases of this file unfold without end", "", "write some of them out")
    })?;
    let documents: Vec<Document<'_>> =
        meanings.iter().enumerate().map(|(index, meaning)| Document { source: &source, index, meaning }).collect();
    let engines = match &wanted.path {
        Some(path) => vec![pointed(&documents, path, flags)?],
        None => choose(&documents, found(&documents, flags)?, wanted)?,
    };
    let (mut edits, mut expected) = (Vec::<Edit>::new(), meanings.clone());
    let (mut changed, mut notes, mut annotated) = (Vec::new(), Vec::new(), Vec::new());
    for engine in &engines {
        let document = documents[engine.document];
        let Written { edits: new, meanings } = settle(&documents, engine, &wanted.settings, flags)?;
        let place = engine.arguments.first().map_or(0..0, |place| place.span(0));
        notes.extend(visit(document, engine));
        edits.extend(new);
        for (path, after) in meanings {
            record(&mut changed, document.meaning, &mut expected, engine.document, path, after)
                .ok_or_else(|| cannot_be_written(&place))?;
        }
        if !annotated.contains(&engine.document) {
            annotated.push(engine.document);
        }
    }
    for index in annotated {
        let document = documents[index];
        let is_object = shape(document.root()).is_none_or(|s| s.kind != Kind::Values)
            && document.root().get("kind").and_then(Node::text) != Some("List");
        if wanted.annotations.is_empty() || !is_object || document.root().get("kind").is_none() {
            continue;
        }
        let written =
            provenance::annotate(document, &wanted.annotations).ok_or_else(|| cannot_be_annotated(document.root()))?;
        edits.extend(written.edits);
        for (path, after) in written.meanings {
            record(&mut changed, document.meaning, &mut expected, index, path, after)
                .ok_or_else(|| cannot_be_annotated(document.root()))?;
        }
    }
    let whole = splice(text, &edits).ok_or_else(|| cannot_be_written(&(0..0)))?;
    let proved = Source::new(whole.clone())
        .ok()
        .and_then(|after| self::meanings(&after))
        .is_some_and(|after| after.len() == expected.len() && after.iter().zip(&expected).all(|(a, b)| a.same(b)));
    if !proved {
        let place = engines.first().and_then(|e| e.arguments.first()).map_or(0..0, |place| place.span(0));
        return Err(cannot_be_written(&place));
    }
    changed.retain(|c: &Changed| c.before.as_ref().is_none_or(|before| !before.same(&c.after)));
    let engines = engines.iter().map(|e| e.location.name.clone()).collect();
    Ok(Exported { text: whole, changed, notes, engines })
}

fn meanings(source: &Source) -> Option<Vec<Meaning>> {
    source.documents.iter().map(meaning).collect()
}

/// Notes a change and makes it in what is expected; none if there is no such place.
fn record(
    changed: &mut Vec<Changed>,
    before: &Meaning,
    expected: &mut [Meaning],
    document: usize,
    path: Path,
    after: Meaning,
) -> Option<()> {
    expected.get_mut(document)?.set(&path.0, after.clone()).then_some(())?;
    let before = before.at(&path).cloned();
    changed.push(Changed { document, path, before, after });
    Some(())
}

fn cannot_be_written(place: &std::ops::Range<usize>) -> Problem {
    let says = "these arguments are written in a way that cannot be changed without changing something else; nothing was written";
    Problem::new(place, says, "here", "write them as a plain list of words, or edit them by hand")
}

fn cannot_be_annotated(root: &Node) -> Problem {
    let place = root.get("metadata").map_or(root.span.start..root.span.start, |m| m.span.clone());
    let hint = "leave them out with --no-annotations";
    Problem::new(&place, "annotations cannot be added here without changing something else", "here", hint)
}

/// Every engine of a manifest.
fn found<'m>(documents: &[Document<'m>], flags: &Flags) -> Result<Vec<Located<'m>>, Problem> {
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
    let name = root.at(&Path::default().key("metadata.name")).and_then(Node::text);
    let kind = root.get("kind").and_then(Node::text).unwrap_or("a document without a kind");
    name.map_or_else(|| kind.to_owned(), |name| format!("{kind} {name}"))
}

/// The engines that are meant.
fn choose<'m>(
    documents: &[Document<'m>],
    engines: Vec<Located<'m>>,
    wanted: &IntendedFlags,
) -> Result<Vec<Located<'m>>, Problem> {
    let object = |e: &Located<'_>| {
        let root = documents[e.document].root();
        root.at(&Path::default().key("metadata.name")).and_then(Node::text).unwrap_or_default().to_owned()
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
        for name in names {
            let fits = engines.iter().filter(|e| *name == full(e) || *name == format!("{}/{}", object(e), e.location.name));
            if fits.count() != 1 {
                let known = list(all.iter().map(String::as_str), "and");
                let says = format!("no engine is called `{name}` here");
                return Err(Problem::new(&(0..0), says, "", format!("there are {known}")));
            }
        }
        let chosen =
            |e: &Located<'_>| names.iter().any(|n| *n == full(e) || *n == format!("{}/{}", object(e), e.location.name));
        return Ok(engines.into_iter().filter(|e| chosen(e)).collect());
    }
    // What another engine runs was not measured.
    let ours = |e: &Located<'_>| (e.sure, e.engine == Engine::Vllm);
    let best = engines.iter().map(ours).max();
    let mut meant: Vec<Located<'m>> = engines.into_iter().filter(|e| Some(ours(e)) == best).collect();
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

fn nothing_found(documents: &[Document<'_>], settings: &[Setting]) -> Problem {
    let looked = documents.iter().map(|document| {
        let root = document.root();
        match shape(root) {
            Some(shape) => {
                let locations = (shape.locations)(root);
                let paths = locations.iter().filter_map(|s| s.args.as_ref()).map(ToString::to_string);
                let paths: Vec<String> = paths.collect();
                let at = if paths.is_empty() { "no container".to_owned() } else { paths.join(", ") };
                format!("{} (a {}): looked at {at}", title(root), shape.name)
            }
            None => format!("{}: a kind that is not known", title(root)),
        }
    });
    let looked: Vec<String> = looked.collect();
    let flags = settings.iter().flat_map(|setting| setting.words(false)).collect::<Vec<_>>().join(" ");
    let name = documents.iter().find_map(|d| shape(d.root())).map_or("", |shape| shape.name);
    let place = documents.first().map_or(0..0, |d| d.root().get("kind").map_or(0..0, |kind| kind.span.clone()));
    let hint = match name {
        "" => format!("paste {flags} where this kind takes vLLM's arguments, or point there with --path"),
        "KServe LLMInferenceService" => format!(
            "add the container `main` to spec.template.containers, with the variable VLLM_ADDITIONAL_ARGS: {flags}"
        ),
        _ => format!(
            "start vLLM by its name (vllm serve …) in one of these containers, or paste {flags} where it starts"
        ),
    };
    let says = format!("no engine was found in this manifest. {}", looked.join("; "));
    Problem::new(&place, says, "", hint)
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

fn settle(
    documents: &[Document<'_>],
    engine: &Located<'_>,
    settings: &[Setting],
    flags: &Flags,
) -> Result<Written, Problem> {
    let nowhere = || {
        let says = format!("{} has no place for arguments", engine.location.name);
        Problem::new(&(0..0), says, "", "give it a list `args` or an environment variable for them")
    };
    if engine.engine != Engine::Vllm {
        let place = engine.arguments.first().map_or(0..0, |place| place.span(0));
        let other = engine.engine.name();
        let says = format!("{} runs {other}, and these limits were measured on vLLM", engine.location.name);
        let hint = format!("the same number means something else in {other}: tune it by hand, or deploy vLLM");
        return Err(Problem::new(&place, says, "this engine", hint));
    }
    let document = documents[engine.document];
    let mut by_place: Vec<Vec<Change>> = engine.arguments.iter().map(|_| Vec::new()).collect();
    let mut of_keys = Written::default();
    for setting in settings {
        // Where the mapping of the keys is missing, the list beside them takes the flag.
        let keys = engine.location.keys.iter().filter(|key| {
            let at = engine.location.keys_at.key(key.path);
            at.parent().is_some_and(|(above, _)| document.root().at(&above).is_some_and(|map| !map.is_nothing()))
        });
        let key = keys.into_iter().find(|key| key.flag == setting.name);
        let mut named = Vec::new();
        for (i, place) in engine.arguments.iter().enumerate() {
            let seen = place.seen();
            if !occurrences(&seen, setting, flags).map_err(|r| refused(place.as_ref(), r))?.is_empty() {
                named.push(i);
            }
        }
        if let [first, second, ..] = named[..] {
            let (first, second) = (&engine.arguments[first], &engine.arguments[second]);
            let says = format!("--{} stands in {} and in {}", setting.name, first.place(), second.place());
            return Err(Problem::new(&second.span(0), says, "here too", "delete one of them"));
        }
        if let Some(key) = key {
            let at = &engine.location.keys_at;
            let there = document.root().at(&at.key(key.path)).filter(|node| !node.is_nothing());
            if let Some(node) = there.filter(|node| keys::is_placeholder_at(document.source, node)) {
                let says = format!("the value of {} is a placeholder", at.key(key.path));
                return Err(Problem::new(&node.span, says, "a placeholder", "write a number there"));
            }
            // An argument behind the key wins over it: both say the same afterwards.
            if named.is_empty() || there.is_some() {
                let new = keys::write(document.source, document.root(), at, key, setting).ok_or_else(nowhere)?;
                of_keys = of_keys.and(new);
            }
            if named.is_empty() {
                continue;
            }
        }
        let place = named.first().copied().unwrap_or(0);
        let seen = engine.arguments.get(place).ok_or_else(nowhere)?.seen();
        let new = changes(&seen, setting, flags).map_err(|r| refused(engine.arguments[place].as_ref(), r))?;
        by_place[place].extend(new);
    }
    // A list may be the last key of the mapping that gets new keys: its items come first.
    let mut written = Written::default();
    for (place, changes) in engine.arguments.iter().zip(&by_place) {
        if !changes.is_empty() {
            written = written.and(place.write(changes).ok_or_else(|| cannot_be_written(&place.span(0)))?);
        }
    }
    Ok(written.and(of_keys))
}

fn refused(place: &dyn Arguments, refused: Refused) -> Problem {
    Problem::new(&place.span(refused.word), refused.says, "here", refused.hint)
}
