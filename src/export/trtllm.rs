//! TensorRT-LLM under Dynamo, whose settings have four homes: flags, a file, a JSON object that silently wins over both, and dotted flags
//! that do the same. A setting is written where it is in force.

use super::flags::{Change, Flags, Seen, Setting, changes, occurrences};
use super::homes::keys;
use super::homes::{Words, Written};
use super::locate::Document;
use super::source::Source;
use super::text::{Edit, Layer, splice};
use super::yaml::{Kind, Meaning, Node, Path};
use crate::problems::Problem;

/// A setting by its names: vLLM's flag, its own flag, its key in files and JSON.
struct Name {
    vllm: &'static str,
    flag: &'static str,
    key: &'static str,
}

/// From the name maps of Dynamo 1.6.1 and aiconfigurator 0.12.0.
const NAMES: [Name; 3] = [
    Name { vllm: "max-num-seqs", flag: "max-batch-size", key: "max_batch_size" },
    Name { vllm: "max-num-batched-tokens", flag: "max-num-tokens", key: "max_num_tokens" },
    Name { vllm: "max-model-len", flag: "max-seq-len", key: "max_seq_len" },
];
/// The share of memory: of what is free behind the weights here, of all in vLLM, so that the numbers do not carry over.
const MEMORY: Name =
    Name { vllm: "", flag: "free-gpu-memory-fraction", key: "kv_cache_config.free_gpu_memory_fraction" };

/// The flag whose JSON wins over flags and file.
const OVERRIDE: &str = "override-engine-args";
/// The flags that name a file of settings.
const FILE: &str = "extra-engine-args";

/// What a setting is called here; `Err` if its number means something else here.
fn name_of(setting: &Setting) -> Result<Option<&'static Name>, ()> {
    if setting.name == "gpu-memory-utilization" {
        return Err(());
    }
    let all = NAMES.iter().chain([&MEMORY]);
    Ok(all.into_iter().find(|n| n.vllm == setting.name || n.flag == setting.name))
}

/// What setting an engine came to, besides what is written.
#[derive(Default)]
pub struct Placed {
    /// Changes of the words of the first home.
    pub changes: Vec<Change>,
    /// What is written elsewhere.
    pub written: Written,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// Decides where each setting is in force, and changes it there.
///
/// # Errors
/// Where that place cannot be changed without changing what else it says.
pub fn place(
    documents: &[Document<'_>],
    home: &dyn Words,
    settings: &[Setting],
) -> Result<(Placed, Vec<(usize, Written)>), Problem> {
    let words = home.seen();
    let mut placed = Placed::default();
    let mut in_file: Vec<(&'static str, &Setting)> = Vec::new();
    let json = value_place(&words, OVERRIDE);
    let mut object = json.map(|place| Json::new(place.text(&words))).transpose().map_err(|says| {
        let span = home.span(json.map_or(0, |p| p.word));
        Problem::new(&span, says, "this object", "write it as one JSON object, or take the keys out of it")
    })?;
    for setting in settings {
        let name = match name_of(setting) {
            Ok(Some(name)) => name,
            Ok(None) => {
                let flag = format!("--{}", setting.name);
                return Err(Problem::new(
                    &home.span(0),
                    format!("{flag} is no setting of TensorRT-LLM that is known"),
                    "this engine",
                    "leave the parameter out of the space file, or write it by hand",
                ));
            }
            Err(()) => {
                placed.notes.push(format!(
                    "--{} is left out: TensorRT-LLM counts its share of what is free behind the weights, vLLM of all memory",
                    setting.name
                ));
                continue;
            }
        };
        if setting.name == name.vllm {
            placed.notes.push(format!("--{} was measured on vLLM; TensorRT-LLM calls it {}", name.vllm, name.flag));
        }
        if let Some(object) = object.as_mut().filter(|object| object.governs(name.key)) {
            object.set(name.key, &setting.value.to_string());
            continue;
        }
        let dotted = Setting { name: format!("trtllm.{}", name.key), value: setting.value.clone() };
        let flag = Setting { name: name.flag.to_owned(), value: setting.value.clone() };
        let refused = |r: super::flags::Refused| Problem::new(&home.span(r.word), r.says, "here", r.hint);
        let none = Flags::default();
        // Dotted names keep their underscores.
        let is_dotted = words.iter().position(|w| w.text.split('=').next() == Some(&format!("--{}", dotted.name)));
        if let Some(index) = is_dotted {
            placed.changes.extend(dotted_change(&words, index, &dotted));
            continue;
        }
        if let Some(file) = value_place(&words, FILE).map(|place| place.text(&words).to_owned()) {
            if Config::find(documents, &file).is_some_and(|config| config.has(name.key)) {
                in_file.push((name.key, setting));
                continue;
            }
            match (object.as_mut(), name.key.split_once('.')) {
                (Some(object), None) => object.set(name.key, &setting.value.to_string()),
                (Some(_), Some((parent, _))) => {
                    let says =
                        format!("--{OVERRIDE} would replace all of {parent} of {file}, which is not in this file");
                    let hint = format!("add the ConfigMap with {file} to the manifest, or {parent} to --{OVERRIDE}");
                    return Err(Problem::new(&home.span(0), says, "this engine", hint));
                }
                (None, _) => {
                    let words = vec![format!("--{}", dotted.name), dotted.value.to_string()];
                    placed.changes.push(Change::Append(words));
                }
            }
            continue;
        }
        if name.key.contains('.') && occurrences(&words, &flag, &none).is_ok_and(|found| found.is_empty()) {
            placed.notes.push(format!("{} is set by its flag, which an object {OVERRIDE} would override", name.key));
        }
        placed.changes.extend(changes(&words, &flag, &none).map_err(refused)?);
    }
    if let (Some(place), Some(object)) = (json, object) {
        let before = place.text(&words);
        if object.text != before {
            placed.changes.push(Change::Set(place.word, format!("{}{}", place.prefix(&words), object.text)));
        }
    }
    let mut elsewhere = Vec::new();
    if let (Some(place), [_, ..]) = (value_place(&words, FILE), &in_file[..]) {
        let file = place.text(&words);
        placed.notes.push(format!("set in the ConfigMap behind {file}, which pods read when they start: restart them"));
        let unwritable = || {
            let says = format!("the ConfigMap behind {file} is written in a way that cannot be changed");
            Problem::new(&home.span(place.word), says, "named here", "write its file as a block (`|`) of plain YAML")
        };
        elsewhere.push(Config::find(documents, file).and_then(|config| config.write(&in_file)).ok_or_else(unwritable)?);
    }
    Ok((placed, elsewhere))
}

fn dotted_change(words: &[Seen<'_>], index: usize, setting: &Setting) -> Option<Change> {
    let word = words.get(index)?.text;
    match word.split_once('=') {
        Some((flag, value)) => (!setting.is(value)).then(|| Change::Set(index, format!("{flag}={}", setting.value))),
        None => {
            let value = words.get(index + 1)?.text;
            (!setting.is(value)).then(|| Change::Set(index + 1, setting.value.to_string()))
        }
    }
}

/// Where the value of a flag stands.
#[derive(Clone, Copy)]
struct Place {
    word: usize,
    /// How many bytes of the word come before it: `--flag=`.
    skip: usize,
}

impl Place {
    fn text<'w>(&self, words: &[Seen<'w>]) -> &'w str {
        words.get(self.word).and_then(|w| w.text.get(self.skip..)).unwrap_or_default()
    }

    fn prefix<'w>(&self, words: &[Seen<'w>]) -> &'w str {
        words.get(self.word).and_then(|w| w.text.get(..self.skip)).unwrap_or_default()
    }
}

fn value_place(words: &[Seen<'_>], flag: &str) -> Option<Place> {
    words.iter().enumerate().rev().find_map(|(i, word)| {
        let body = word.text.strip_prefix("--")?;
        match body.split_once('=') {
            Some((name, _)) => (name.replace('_', "-") == flag).then_some(Place { word: i, skip: name.len() + 3 }),
            None => (body.replace('_', "-") == flag && words.len() > i + 1).then_some(Place { word: i + 1, skip: 0 }),
        }
    })
}

/// A JSON object as its author wrote it.
struct Json {
    text: String,
}

impl Json {
    fn new(text: &str) -> Result<Self, String> {
        let parsed: serde_json::Value =
            serde_json::from_str(text).map_err(|e| format!("the value of --{OVERRIDE} is no JSON: {e}"))?;
        if parsed.is_object() { Ok(Self { text: text.to_owned() }) } else { Err(format!("--{OVERRIDE} is no object")) }
    }

    fn value(&self) -> serde_json::Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Whether the object decides a key: it has the key, or the object that would hold it, which replaces the one of other sources.
    fn governs(&self, key: &str) -> bool {
        let first = key.split('.').next().unwrap_or(key);
        self.value().get(first).is_some()
    }

    /// Gives a key a number, in place or behind the last key of its object, in the author's own spacing.
    fn set(&mut self, key: &str, number: &str) {
        // JSON is YAML in brackets.
        let Ok(source) = Source::new(self.text.clone()) else { return };
        let Some(root) = source.documents.first() else { return };
        let path = Path::default().key(key);
        let edit = match (root.at(&path), path.parent().and_then(|(above, _)| root.at(&above))) {
            (Some(there), _) if there.text() == Some(number) => return,
            (Some(there), _) => {
                let same = there.text().and_then(|t| t.parse::<f64>().ok()) == number.parse::<f64>().ok();
                if same {
                    return;
                }
                Edit::replace(there.span.clone(), number)
            }
            (None, Some(object)) => {
                let name = key.rsplit('.').next().unwrap_or(key);
                let spaced = self.text.contains("\": ");
                let colon = if spaced { ": " } else { ":" };
                let comma = if spaced { ", " } else { "," };
                match object.entries().last() {
                    Some((_, last)) => Edit::insert(last.span.end, format!("{comma}\"{name}\"{colon}{number}")),
                    None => Edit::replace(object.span.clone(), format!("{{\"{name}\"{colon}{number}}}")),
                }
            }
            (None, None) => return,
        };
        if let Some(edited) = splice(&self.text, &[edit]) {
            self.text = edited;
        }
    }
}

/// A file of settings in a ConfigMap of the same manifest.
struct Config<'m> {
    document: usize,
    path: Path,
    node: &'m Node,
    /// The file, each byte with its place in the manifest.
    layer: Layer,
    /// The file as YAML.
    inner: Source,
}

impl<'m> Config<'m> {
    /// The file by its name.
    fn find(documents: &[Document<'m>], file: &str) -> Option<Self> {
        let name = file.rsplit('/').next()?;
        documents.iter().find_map(|document| {
            let root = document.root();
            (root.get("kind")?.text()? == "ConfigMap").then_some(())?;
            let node = root.get("data")?.get(name)?;
            let layer = document.source.layer(node)?;
            let inner = Source::new(layer.text.clone()).ok()?;
            let path = Path::default().key("data").literal_key(name);
            Some(Self { document: document.index, path, node, layer, inner })
        })
    }

    fn there(&self, key: &str) -> Option<&Node> {
        self.inner.documents.first()?.at(&Path::default().key(key))
    }

    fn has(&self, key: &str) -> bool {
        self.there(key).is_some()
    }

    fn write(&self, settings: &[(&str, &Setting)]) -> Option<(usize, Written)> {
        // Graphs are captured up to a size, which must reach the largest batch.
        let graphs = "cuda_graph_config.max_batch_size";
        let mut edits = Vec::new();
        for (key, setting) in settings {
            edits.extend(self.set(key, setting)?);
            let size = self.there(graphs).and_then(|node| node.text()?.parse::<f64>().ok());
            if *key == "max_batch_size" && size.is_some_and(|size| setting.value.number().is_some_and(|n| size < n)) {
                edits.extend(self.set(graphs, setting)?);
            }
        }
        let mut text = splice(&self.layer.text, &edits)?;
        text.push_str(self.node.text()?.get(self.layer.text.len()..).unwrap_or_default());
        let meaning = Meaning::Scalar { text, plain: false, tag: self.node.tag.clone() };
        let lifted = edits.iter().map(|edit| self.layer.lift(edit)).collect();
        Some((self.document, Written { edits: lifted, meanings: vec![(self.path.clone(), meaning)] }))
    }

    /// None where no number stands.
    fn set(&self, key: &str, setting: &Setting) -> Option<Option<Edit>> {
        let node = self.there(key)?;
        if !matches!(node.kind, Kind::Scalar { .. }) || keys::is_placeholder_at(&self.inner, node) {
            return None;
        }
        let same = node.text().is_some_and(|there| setting.is(there));
        Some((!same).then(|| Edit::replace(node.span.clone(), setting.value.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Value;

    #[test]
    fn an_object_keeps_its_authors_spacing() {
        let set = |text: &str, key: &str, number: &str| {
            let mut json = Json::new(text).unwrap();
            json.set(key, number);
            json.text
        };
        let text = r#"{"a":true,"kv_cache_config":{"dtype":"fp8","free_gpu_memory_fraction":0.90}}"#;
        assert_eq!(set(text, "max_batch_size", "64"), format!("{},\"max_batch_size\":64}}", &text[..text.len() - 1]));
        assert_eq!(set(text, "kv_cache_config.free_gpu_memory_fraction", "0.85"), text.replace("0.90", "0.85"));
        assert_eq!(set(text, "kv_cache_config.free_gpu_memory_fraction", "0.9"), text);
        assert_eq!(set(r#"{ "a": 1 }"#, "b", "2"), r#"{ "a": 1, "b": 2 }"#);
        assert!(Json::new("[1]").is_err() && Json::new("{").is_err());
    }

    #[test]
    fn an_object_decides_the_keys_of_objects_that_it_replaces() {
        let json = Json::new(r#"{"kv_cache_config":{"dtype":"fp8"}}"#).unwrap();
        assert!(json.governs("kv_cache_config.free_gpu_memory_fraction") && !json.governs("max_batch_size"));
        assert_eq!(
            name_of(&Setting { name: "max-num-seqs".into(), value: Value::Int(1) }).unwrap().unwrap().key,
            "max_batch_size"
        );
        assert!(name_of(&Setting { name: "gpu-memory-utilization".into(), value: Value::Real(0.9) }).is_err());
    }
}
