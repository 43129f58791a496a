//! What a person does with flags that are not written: where each kind of manifest takes them.

use super::flags::Setting;
use super::shapes::shape;
use super::source::Document;

/// What to do with the flags where no engine was found, by kind.
pub fn not_found(documents: &[Document<'_>], settings: &[Setting]) -> String {
    let known = documents.iter().find_map(|document| Some((document.root(), shape(document.root())?)));
    let root = known.map(|(root, _)| root).or(documents.first().map(Document::root));
    let kind = root.and_then(|root| root.text_at("kind")).unwrap_or_default();
    let name = known.map_or("", |(_, shape)| shape.name);
    // Where containers are, a kind of the same name is another one: Knative has a Service of its own.
    let by_command = known.is_some_and(|(root, shape)| (shape.locations)(root).iter().any(|at| at.engine.is_none()));
    let fits = |kinds: &[&str]| (kinds.contains(&kind) && !by_command) || kinds.contains(&name);
    if let Some((_, says)) = HINTS.iter().find(|(kinds, _)| fits(kinds)) {
        return filled(says, settings);
    }
    let Some((_, shape)) = known else {
        return filled(
            "paste FLAGS where this kind takes the engine's arguments, or point there with --path",
            settings,
        );
    };
    let start = if by_command { "start the engine by its name (vllm serve …), or " } else { "" };
    format!("{start}{}", paste(shape.name, settings))
}

/// Where a person pastes the flags that cannot be written.
pub fn paste(shape: &str, settings: &[Setting]) -> String {
    let takes =
        TAKES.iter().find(|(name, _)| *name == shape).map_or("paste FLAGS into its arguments", |(_, takes)| takes);
    filled(takes, settings)
}

/// A hint with the flags in it: FLAGS as words, KEYS as keys of Python, LINES as keys with dashes.
fn filled(hint: &str, settings: &[Setting]) -> String {
    let flags = settings.iter().flat_map(|setting| setting.words(false)).collect::<Vec<_>>().join(" ");
    let keys = |joined: &str| {
        let key = |s: &Setting| format!("{}: {}", s.name.replace('-', joined), s.value);
        settings.iter().map(key).collect::<Vec<_>>().join(", ")
    };
    hint.replace("FLAGS", &flags).replace("KEYS", &keys("_")).replace("LINES", &keys("-"))
}

/// Kinds and shapes in which nothing starts an engine, and what to do with the flags.
const HINTS: [(&[&str], &str); 9] = [
    (&["RayCluster", "RayJob"], "paste KEYS where the Python code builds its engine"),
    (
        &["DynamoGraphDeploymentRequest"],
        "paste FLAGS into the worker's arguments in spec.overrides.dgd, or export into the deployment that it makes",
    ),
    (
        &["HelmRelease", "Application", "ApplicationSet", "HelmChart"],
        "the values are elsewhere: export into that values file, or paste FLAGS into the engine's arguments there",
    ),
    (&["Kustomization", "Component"], "export into the file of the workload or of the patch"),
    (&["KubeAI Model"], "only `engine: VLLM` takes these flags: FLAGS"),
    (
        &["KServe InferenceService"],
        "the runtime's container starts the engine: export into its ServingRuntime, or paste FLAGS into spec.predictor.model.args",
    ),
    (
        &["LLMInferenceServiceConfig"],
        "add the container `main` to spec.template.containers, with the variable VLLM_ADDITIONAL_ARGS: FLAGS",
    ),
    (
        &["ConfigMap"],
        "no text in it starts an engine: export into the file of the workload, or paste FLAGS into its script",
    ),
    (
        &["Service", "Ingress", "Gateway", "HTTPRoute", "Secret", "Namespace", "PersistentVolumeClaim"],
        "this object starts nothing: export into the file of the workload",
    ),
];

/// Shapes by name, and where in them flags are pasted.
const TAKES: [(&str, &str); 20] = [
    ("Helm values", "paste FLAGS into the list that holds the engine's arguments"),
    ("Docker Compose", "paste FLAGS into the `command` of the service"),
    ("DynamoGraphDeployment v1alpha1", "paste FLAGS into extraPodSpec.mainContainer.args of the worker"),
    ("DynamoGraphDeployment v1beta1", "paste FLAGS into the `args` of the worker's container `main`"),
    ("KServe InferenceService", "paste FLAGS into spec.predictor.model.args"),
    ("JSON patch", "paste FLAGS into the `args` of the container, as a whole list"),
    ("KubeAI Model", "paste FLAGS into spec.args"),
    ("LeaderWorkerSet", "paste FLAGS into the `args` of the leader, and of workers that run the engine"),
    (
        "llm-d Helm values",
        "paste FLAGS into the `args` of the container in `decode`, and in `prefill` if it was measured",
    ),
    ("KServe LLMInferenceService", "paste FLAGS into the variable VLLM_ADDITIONAL_ARGS of the container `main`"),
    ("Helm values in an object", "paste FLAGS into the engine's arguments in the values"),
    ("pod template", "paste FLAGS into the `args` of the container"),
    (
        "production stack Helm values",
        "paste FLAGS into vllmConfig.extraArgs of the model in servingEngineSpec.modelSpec",
    ),
    ("Ray Serve configuration", "paste KEYS into the `engine_kwargs` of the model"),
    (
        "RayService",
        "paste KEYS into the `engine_kwargs` of the model in spec.serveConfigV2, or where the Python code builds its engine",
    ),
    ("shell script", "paste FLAGS behind the command that starts it"),
    ("systemd unit", "paste FLAGS behind the command of ExecStart, or of Exec in a quadlet"),
    ("vllm serve --config", "add the keys LINES"),
    ("production stack VLLMRuntime", "paste FLAGS into spec.vllmConfig.extraArgs"),
    ("Kubernetes workload", "paste FLAGS into the `args` of the container"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::shapes::SHAPES;

    #[test]
    fn every_shape_has_a_place_for_flags() {
        assert!(SHAPES.iter().all(|shape| TAKES.iter().any(|(name, _)| *name == shape.name)));
        assert!(TAKES.iter().all(|(_, takes)| ["FLAGS", "KEYS", "LINES"].iter().any(|flags| takes.contains(flags))));
    }
}
