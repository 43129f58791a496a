//! Where a setting of TensorRT-LLM stands in a worker of Dynamo. What wins there is edited, in this order: `--trtllm.KEY VALUE`, the JSON of
//! `--override-engine-args`, the YAML of `--extra-engine-args` in a ConfigMap of the same manifest, the worker's own flag.
//!
//! A part of `kv_cache_config` in one of them replaces what the weaker ones say of the whole: such a setting is written beside the part.

use super::arguments::keys::{self, Keys};
use super::flags::{Flags, Seen, Setting, is_placeholder, occurrences};
use super::locate::Located;
use super::render::{Entry, insert_entry};
use super::source::{Document, Source};
use super::text::{Edit, Layer, splice};
use super::write::given_by;
use super::yaml::{Kind, Meaning, Path, Style};
use crate::engine::is_left_out;
use crate::problems::Problem;
use crate::space::Value;

/// The beginning of a parameter that is a setting.
const SETTING: &str = "trtllm.";
const OVERRIDE: &str = "override-engine-args";
const FILE: &str = "extra-engine-args";
/// Variables that stand for these flags.
const VARIABLES: [&str; 2] = ["DYN_TRTLLM_OVERRIDE_ENGINE_ARGS", "DYN_TRTLLM_EXTRA_ENGINE_ARGS"];

/// What becomes of the settings of one engine.
#[derive(Default)]
pub struct Placed {
    /// Flags as this engine takes them.
    pub flags: Vec<Setting>,
    /// Texts that become others: the list of arguments, the word there, the text.
    pub words: Vec<(usize, usize, String)>,
    /// The file in a ConfigMap that becomes another one.
    pub file: Option<Text>,
    pub notes: Vec<Problem>,
}

/// A text with settings, as JSON or YAML.
pub struct Text {
    pub place: Place,
    before: String,
    /// The settings with what is set.
    now: String,
    /// In the text as it was.
    edits: Vec<Edit>,
    is_json: bool,
}

/// Where such a text stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// The list of arguments, the word, and what stands before the text in it.
    Word(usize, usize, String),
    /// The document, and the key in it.
    File(usize, Path),
}

impl Text {
    fn new(place: Place, text: String) -> Self {
        Self { is_json: matches!(place, Place::Word(..)), place, before: text.clone(), now: text, edits: Vec::new() }
    }

    fn source(&self) -> Option<Source> {
        mapping(&self.before)
    }

    /// Whether a setting may come from where its key does not stand: a text that is no mapping, a merge key, an alias.
    fn hides(&self, key: &str) -> bool {
        let Some(source) = self.source() else {
            let is_empty = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
            return !self.before.lines().all(is_empty);
        };
        let Some(root) = source.documents.first() else { return false };
        let above = key.rsplit_once('.').and_then(|(above, _)| root.at(&Path::default().key(above)));
        let mut maps = [Some(root), above].into_iter().flatten();
        maps.any(|map| map.get("<<").is_some() || matches!(map.kind, Kind::Alias(_)))
    }

    /// The placeholder that stands for a setting.
    fn placeholder(&self, key: &str) -> Option<String> {
        let source = self.source()?;
        let node = source.documents.first()?.at(&Path::default().key(key))?;
        let is = keys::is_placeholder_at(&source, node) || node.text().is_some_and(is_placeholder);
        is.then(|| source.raw(node).to_owned())
    }

    fn is_changed(&self) -> bool {
        self.now != self.before
    }

    /// Whether a setting stands in it, or the mapping that it is a part of.
    fn decides(&self, key: &str) -> bool {
        self.has(key) || key.rsplit_once('.').is_some_and(|(above, _)| self.has(above))
    }

    fn has(&self, key: &str) -> bool {
        let source = self.source();
        let root = source.as_ref().and_then(|source| source.documents.first());
        root.is_some_and(|root| root.at(&Path::default().key(key)).is_some())
    }

    /// Sets a key whose mapping is there.
    fn set(&mut self, key: &str, value: &Value) -> Option<()> {
        // JSON is written anew after each key: the next one may go into the same empty mapping.
        let source = mapping(if self.is_json { &self.now } else { &self.before })?;
        let root = source.documents.first()?;
        let setting = Setting { name: key.to_owned(), value: value.clone() };
        let of = Keys::Python.of(Some(root), &setting)?;
        let (above, name) = key.rsplit_once('.').unwrap_or(("", key));
        let map = if above.is_empty() { root } else { root.at(&Path::default().key(above))? };
        let edits = if self.is_json && map.get(name).is_none() {
            let value = match value {
                Value::Text(text) => Value::Text(serde_json::Value::from(text.as_str()).to_string()),
                other => other.clone(),
            };
            vec![insert_entry(&source, root, map, &format!("\"{name}\""), &Entry::Scalar(value.to_string()))?]
        } else {
            keys::write(&source, root, &Path::default(), &of, &setting)?.edits
        };
        if self.is_json {
            self.now = splice(&self.now, &edits)?;
        } else {
            self.edits.extend(edits);
            self.now = splice(&self.before, &self.edits)?;
        }
        Some(())
    }

    /// A number that it gives a key, with what is set.
    fn number(&self, key: &str) -> Option<f64> {
        mapping(&self.now)?.documents.first()?.at(&Path::default().key(key))?.text()?.parse().ok()
    }

    /// The edits of a file in the text around it, and what it means afterwards.
    pub fn written(&self, document: Document<'_>, path: &Path) -> Option<(Vec<Edit>, Meaning)> {
        let node = document.root().at(path)?;
        let layer: Layer = document.source.layer(node)?;
        let text = self.now.clone() + node.text()?.get(layer.text.len()..)?;
        let meaning = Meaning::Scalar { text, plain: node.style() == Some(Style::Plain), tag: node.tag.clone() };
        Some((self.edits.iter().map(|edit| layer.lift(edit)).collect(), meaning))
    }
}

/// A text that is one mapping.
fn mapping(text: &str) -> Option<Source> {
    let source = Source::new(text).ok()?;
    source.documents.first().is_some_and(|root| root.text().is_none() && root.items().is_empty()).then_some(source)
}

/// Finds where each setting has to be written.
///
/// # Errors
/// What wins is not in the manifest, or what is written would drop something else.
pub fn place(
    documents: &[Document<'_>],
    engine: &Located<'_>,
    settings: &[Setting],
    flags: &Flags,
) -> Result<Placed, Problem> {
    let (document, dialect) = (documents[engine.document], flags.dialect());
    let near = engine.arguments.first().map_or(0..0, |place| place.span(0));
    let refuse = |says: String, hint: String| Err(Problem::new(&near, says, "these arguments", hint));
    if !engine.words.iter().any(|word| word.contains("dynamo.trtllm")) {
        let says = format!("{} does not start TensorRT-LLM as `python3 -m dynamo.trtllm`", engine.location.name);
        return refuse(says, "its flags were measured: deploy such a worker, or set them by hand".to_owned());
    }
    if let Some((variable, at)) = VARIABLES.iter().find_map(|v| Some((v, document.source.text.find(v)?))) {
        let hint = "write its flag into the arguments instead";
        return Err(Problem::new(
            &(at..at + variable.len()),
            format!("{variable} may overrule the arguments"),
            "here",
            hint,
        ));
    }
    let words: Vec<Vec<Seen<'_>>> = engine.arguments.iter().map(|place| place.seen()).collect();
    let named = |name: &str| {
        let mut all = words.iter().flatten().filter_map(|word| word.text.strip_prefix("--"));
        all.any(|word| word.split('=').next() == Some(name))
    };
    let mut json = value(&words, OVERRIDE, flags)
        .map(|(list, word, before, text)| Text::new(Place::Word(list, word, before), text));
    if json.as_ref().is_some_and(|json| json.source().is_none() || is_placeholder(&json.before)) {
        return refuse(
            format!("what stands behind --{OVERRIDE} is no JSON object"),
            "write it out, in one word".to_owned(),
        );
    }
    if json.is_some()
        && let Some(flag) = words.iter().flatten().find(|word| word.text.starts_with("--trtllm."))
    {
        let flag = flag.text.split('=').next().unwrap_or_default();
        return refuse(
            format!("a worker takes no {flag} beside --{OVERRIDE}"),
            format!("write `{}` into its JSON, and delete the flag", flag.trim_start_matches("--trtllm.")),
        );
    }
    let mut file = match value(&words, FILE, flags) {
        Some((.., name)) => match <[_; 1]>::try_from(in_config_maps(documents, &name)) {
            Ok([file]) => Some((Some(file), name)),
            Err(files) if files.is_empty() => Some((None, name)),
            Err(_) => {
                let says = format!("several ConfigMaps of this manifest have a file for --{FILE} {name}");
                return refuse(says, "give the files names of their own".to_owned());
            }
        },
        None => None,
    };
    let mut placed = Placed::default();
    for setting in settings {
        let Some(key) = setting.name.strip_prefix(SETTING) else {
            placed.flags.push(setting.clone());
            continue;
        };
        let whole = key.rsplit_once('.').map(|(above, _)| format!("{SETTING}{above}."));
        let beside = |name: &str| whole.as_ref().is_some_and(|whole| name.starts_with(whole));
        let weaker = dialect.weaker().iter().find(|(_, strong)| *strong == setting.name);
        let hidden = file.as_ref().filter(|(file, _)| file.as_ref().is_some_and(|file| file.hides(key)));
        let hidden = hidden.map(|(_, name)| {
            let says = format!("{name} may set `{key}` in a way that is not read");
            (says, "write the file as one mapping, without anchors and merge keys".to_owned())
        });
        if is_left_out(&setting.value) {
            let texts = json.iter().chain(file.iter().filter_map(|(file, _)| file.as_ref()));
            if texts.into_iter().any(|text| text.has(key)) {
                let says = format!("`{key}` is set here, and was measured without");
                return refuse(says, "delete it by hand, and export again".to_owned());
            }
            if let Some((says, hint)) = hidden {
                return refuse(says, hint);
            }
            let off = |name: &str| Setting { name: name.to_owned(), value: setting.value.clone() };
            placed.flags.extend(weaker.map(|(weak, _)| off(weak)));
            placed.flags.push(setting.clone());
            continue;
        }
        let dotted = words.iter().flatten().filter_map(|word| word.text.strip_prefix("--")).any(beside);
        if named(&setting.name) || dotted {
            placed.flags.push(setting.clone());
            continue;
        }
        let put = |text: &mut Text| {
            if let Some(placeholder) = text.placeholder(key) {
                let says = format!("the value of `{key}` is the placeholder `{placeholder}`");
                return refuse(says, given_by(&document.source.text, &placeholder)).map(drop);
            }
            let says = || format!("`{key}` cannot be set here without changing something else");
            text.set(key, &setting.value)
                .ok_or_else(|| Problem::new(&near, says(), "these arguments", "set it by hand"))
        };
        if let Some(json) = json.as_mut().filter(|json| json.decides(key)) {
            put(json)?;
            continue;
        }
        match &mut file {
            Some((None, name)) => {
                let other = match json {
                    Some(_) => format!("`{key}` into the JSON of --{OVERRIDE}"),
                    None => format!("--{} {} into the arguments", setting.name, setting.value),
                };
                let hint = format!("add its ConfigMap to the manifest, or write {other}");
                return refuse(format!("{name} may set `{key}`, and is not in this manifest"), hint);
            }
            Some((Some(file), _)) => {
                if let Some((says, hint)) = hidden {
                    return refuse(says, hint);
                }
                if file.decides(key) {
                    put(file)?;
                    continue;
                }
            }
            None => {}
        }
        let shared = settings.iter().any(|other| other.name != setting.name && beside(&other.name));
        let weaker = weaker.filter(|_| !shared);
        let dropped = dialect.weaker().iter().find(|(weak, strong)| beside(strong) && named(weak));
        match (weaker, &mut json, &whole, dropped) {
            (Some((weak, _)), ..) => {
                placed.flags.push(Setting { name: (*weak).to_owned(), value: setting.value.clone() });
            }
            (None, _, Some(_), Some((weak, strong))) => {
                let says = format!("--{} would drop what --{weak} says", setting.name);
                let hint = match json {
                    Some(_) => {
                        let key = strong.trim_start_matches(SETTING);
                        format!("write `{key}` into the JSON of --{OVERRIDE}, in place of --{weak}")
                    }
                    None => format!("write --{strong} in place of --{weak}"),
                };
                return refuse(says, hint);
            }
            (None, None, ..) => placed.flags.push(setting.clone()),
            (None, Some(json), None, _) => put(json)?,
            (None, Some(_), Some(_), _) => {
                return refuse(
                    format!("`{key}` in --{OVERRIDE} would drop what else is set of the whole"),
                    "write the whole of it there, and export again".to_owned(),
                );
            }
        }
    }
    let texts = json.iter().chain(file.iter().filter_map(|(file, _)| file.as_ref()));
    let batch = settings.iter().find(|setting| setting.name == "trtllm.max_batch_size").and_then(|s| s.value.number());
    for (graphs, batch) in texts.filter_map(|text| text.number("cuda_graph_config.max_batch_size")).zip(batch) {
        if graphs < batch {
            let says = format!("cuda_graph_config.max_batch_size is {graphs}: larger batches run without CUDA graphs");
            placed.notes.push(Problem::new(
                &near,
                says,
                "this engine",
                format!("raise it to {batch}, or measure with it"),
            ));
        }
    }
    if let Some(json) = json.filter(Text::is_changed)
        && let Place::Word(list, word, before) = &json.place
    {
        placed.words.push((*list, *word, format!("{before}{}", json.now)));
    }
    placed.file = file.and_then(|(file, _)| file).filter(Text::is_changed);
    Ok(placed)
}

/// The value of a flag: its list of arguments, its word, what stands before it in the word, and itself.
fn value(words: &[Vec<Seen<'_>>], flag: &str, flags: &Flags) -> Option<(usize, usize, String, String)> {
    let setting = Setting { name: flag.to_owned(), value: Value::Int(0) };
    words.iter().enumerate().rev().find_map(|(list, words)| {
        let at = *occurrences(words, &setting, flags).ok()?.last()?;
        match words[at].text.split_once('=') {
            Some((name, text)) if name.starts_with("--") => Some((list, at, format!("{name}="), text.to_owned())),
            _ => Some((list, at + 1, String::new(), words.get(at + 1)?.text.to_owned())),
        }
    })
}

/// The last part of the name of the file that a worker reads.
pub fn file_of(engine: &Located<'_>, flags: &Flags) -> Option<String> {
    let words: Vec<Vec<Seen<'_>>> = engine.arguments.iter().map(|place| place.seen()).collect();
    let (.., name) = value(&words, FILE, flags)?;
    name.rsplit('/').next().map(str::to_owned)
}

/// The files of that name in ConfigMaps of the manifest.
fn in_config_maps(documents: &[Document<'_>], name: &str) -> Vec<Text> {
    let key = name.rsplit('/').next().unwrap_or(name);
    let maps = documents.iter().filter(|document| document.root().text_at("kind") == Some("ConfigMap"));
    let file = |document: &Document<'_>| {
        let path = Path::default().key("data").literal_key(key);
        let layer = document.source.layer(document.root().at(&path)?)?;
        Some(Text::new(Place::File(document.index, path), layer.text))
    };
    maps.filter_map(file).collect()
}
