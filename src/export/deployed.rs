//! What a manifest starts, for whoever writes a space file from it.

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
    // Arguments behind the keys win over them.
    let mut words = location.keys.words(document.root().at(&location.keys_at), location.off);
    words.extend(engine.words.iter().cloned());
    // Words of a variable stand where the script expands it.
    let variables = engine.arguments.iter().filter(|place| {
        let path = &place.path().0;
        location.env.iter().any(|env| path.starts_with(&env.0)) && document.root().at(place.path()).is_some()
    });
    words.extend(variables.flat_map(|place| place.seen()).map(|word| word.text.to_owned()));
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

    fn of_keys(text: &str) -> String {
        deployed("m.yaml", text, None, &TUNED).unwrap_or_else(|e| panic!("{}", e.render())).words.join(" ")
    }

    #[test]
    fn keys_of_the_production_stack_are_words_as_the_chart_passes_them() {
        let values = |model: &str| of_keys(&format!("servingEngineSpec: {{modelSpec: [{{modelURL: m{model}}}]}}\n"));
        assert_eq!(
            values(", vllmConfig: {tensorParallelSize: 2, dtype: bfloat16, enablePrefixCaching: true, maxLoras: 4}"),
            "--enable-prefix-caching --dtype bfloat16 --tensor-parallel-size 2 --max-loras 4 --model m"
        );
        assert_eq!(
            values(", vllmConfig: {enableChunkedPrefill: false, runner: auto, revision: '', extraArgs: [--seed, '1']}"),
            "--no-enable-chunked-prefill --no-enable-prefix-caching --runner auto --seed 1 --model m"
        );
        // Without a key it passes nothing, and nor does Ray's template for a key that is missing.
        for nothing in ["", ", vllmConfig: {}", ", vllmConfig: "] {
            assert_eq!(values(nothing), "--model m", "{nothing}");
        }
        assert_eq!(values(", raySpec: {enabled: true}, vllmConfig: {dtype: auto}"), "--dtype auto --model m");
        assert!(
            values(", raySpec: {enabled: false}, vllmConfig: {dtype: auto}").contains("--no-enable-prefix-caching")
        );
    }

    #[test]
    fn keys_of_a_runtime_are_words_as_its_operator_passes_them() {
        let runtime = |config: &str| {
            of_keys(&format!(
                "apiVersion: production-stack.vllm.ai/v1alpha1\nkind: VLLMRuntime\nmetadata: {{name: r}}\nspec: {{model: {{modelURL: m, dtype: half}}, vllmConfig: {config}}}\n"
            ))
        };
        assert_eq!(
            runtime("{tensorParallelSize: 2, enableChunkedPrefill: true}"),
            "--enable-chunked-prefill --no-enable-prefix-caching --dtype half --tensor-parallel-size 2 --model m"
        );
        assert_eq!(runtime("{}"), "--no-enable-chunked-prefill --no-enable-prefix-caching --dtype half --model m");
    }
}
