//! What a manifest starts, for whoever writes a space file from it.

use super::arguments::keys::Keys;
use super::flags::{Flags, is_placeholder};
use super::known::model_of;
use super::locate::Located;
use super::source::{Document, Source};
use super::write::{IntendedFlags, choose, found, nothing_found, read, text_that_starts};
use super::yaml::Node;
use crate::engine::programs::Engine;
use crate::problems::{Problem, Problems};

/// An engine of a manifest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deployed {
    /// What a person calls it: the container, the component.
    pub name: String,
    /// The words that start it; those of the image's entry point are not among them.
    pub words: Vec<String>,
    /// How many GPUs it asks for.
    pub gpus: Option<String>,
    /// The names of its environment variables.
    pub variables: Vec<String>,
}

/// The engine of a manifest; `container` names it where there are several.
pub fn deployed(name: &str, text: &str, container: Option<&str>, tuned: &[&str]) -> Result<Deployed, Problems> {
    let wanted = IntendedFlags { containers: container.map(str::to_owned).into_iter().collect(), ..Default::default() };
    let flags = Flags::of(crate::settings::EngineKind::Vllm, tuned.iter().copied());
    look(text, &wanted, &flags).map_err(|problem| Problems::new(name, text, vec![problem]))
}

fn look(text: &str, wanted: &IntendedFlags, flags: &Flags) -> Result<Deployed, Problem> {
    let (source, meanings) = read(text)?;
    let documents: Vec<Document<'_>> =
        meanings.iter().enumerate().map(|(index, meaning)| Document { source: &source, index, meaning }).collect();
    let engines = found(&documents, flags)?;
    if engines.is_empty() {
        if let Some((index, path)) = text_that_starts(&documents, flags)?
            && let Some(node) = documents[index].root().at(&path)
        {
            let outer = |problem: Problem| Problem { span: node.span.clone(), ..problem };
            return look(node.text().unwrap_or_default(), wanted, flags).map_err(outer);
        }
        let hint = "give the command instead of the manifest: autotune init -- vllm serve MODEL ...".to_owned();
        return Err(Problem { hint, ..nothing_found(&documents, &[]) });
    }
    let engines = choose(&documents, engines, wanted, flags)?;
    // Leader and workers of a group run one engine.
    let Some(engine) = engines.first() else { return Err(nothing_found(&documents, &[])) };
    if engine.engine != Engine::Vllm {
        let place = engine.arguments.first().map_or(0..0, |place| place.span(0));
        let says = format!("{} runs {}, and `init` knows vLLM alone", engine.location.name, engine.engine.name());
        return Err(Problem::new(
            &place,
            says,
            "here",
            "choose another engine with --container, or write the space file by hand",
        ));
    }
    Ok(described(&source, documents[engine.document], engine))
}

fn described(source: &Source, document: Document<'_>, engine: &Located<'_>) -> Deployed {
    let location = &engine.location;
    let node = |path: &Option<super::yaml::Path>| document.root().at(path.as_ref()?).filter(|node| !node.is_nothing());
    let plain = |node: &Node| node.text().filter(|_| !is_placeholder(source.raw(node))).map(str::to_owned);
    let mut words = engine.words.clone();
    // Words of a variable stand where the script expands it.
    let variables = engine.arguments.iter().filter(|place| {
        let path = &place.path().0;
        location.env.iter().any(|env| path.starts_with(&env.0)) && document.root().at(place.path()).is_some()
    });
    words.extend(variables.flat_map(|place| place.seen()).map(|word| word.text.to_owned()));
    words.extend(by_keys(location.keys, document.root().at(&location.keys_at)));
    if model_of(&words).is_none()
        && let Some(model) = node(&location.model).and_then(plain)
    {
        words.extend(["--model".to_owned(), model.trim_start_matches("hf://").to_owned()]);
    }
    let variables = location.env.iter().filter_map(|env| document.root().at(env)).flat_map(|env| {
        let named = env.items().iter().filter_map(|item| item.get("name")?.text());
        named.chain(env.entries().iter().filter_map(|(key, _)| key.text())).map(str::to_owned).collect::<Vec<_>>()
    });
    Deployed {
        name: location.name.clone(),
        words,
        gpus: node(&location.gpus).and_then(plain),
        variables: variables.collect(),
    }
}

/// The flags that stand as keys of a mapping.
fn by_keys(keys: Keys, map: Option<&Node>) -> Vec<String> {
    let Some(map) = map else { return Vec::new() };
    let words = |flag: &str, value: &str| match value {
        "true" => vec![format!("--{flag}")],
        "false" => vec![format!("--no-{flag}")],
        value => vec![format!("--{flag}"), value.to_owned()],
    };
    match keys {
        Keys::None => Vec::new(),
        Keys::Named(keys) => {
            let at = |path: &str| map.at(&super::yaml::Path::default().key(path)).and_then(Node::text);
            keys.iter().filter_map(|key| Some(words(key.flag, at(key.path)?))).flatten().collect()
        }
        Keys::Config | Keys::Python => {
            let entries = map.entries().iter();
            let of = |(key, value): &(Node, Node)| Some(words(&key.text()?.replace('_', "-"), value.text()?));
            entries.filter_map(of).flatten().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TUNED: [&str; 3] = ["gpu-memory-utilization", "max-num-seqs", "max-num-batched-tokens"];

    #[test]
    fn a_deployment_tells_words_variables_and_gpus() {
        let text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  template:\n    spec:\n      containers:\n      - name: vllm\n        image: vllm/vllm-openai:v0.24.0\n        args: [--model, org/model, --max-num-seqs=64]\n        env:\n        - {name: HF_TOKEN, value: planted}\n        resources: {limits: {nvidia.com/gpu: 2}}\n";
        let engine = deployed("d.yaml", text, None, &TUNED).unwrap();
        assert_eq!(engine.words, ["--model", "org/model", "--max-num-seqs=64"]);
        assert_eq!((engine.name.as_str(), engine.gpus.as_deref()), ("vllm", Some("2")));
        assert_eq!(engine.variables, ["HF_TOKEN"]);
        let other = deployed("d.yaml", text, Some("router"), &TUNED).unwrap_err().render();
        assert!(other.contains("no engine is called `router`"), "{other}");
        let service = deployed("s.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n", None, &TUNED);
        assert!(service.unwrap_err().render().contains("autotune init -- vllm serve MODEL"));
    }
}
