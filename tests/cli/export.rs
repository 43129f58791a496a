//! `autotune export` as its user runs it: the files it writes, what it refuses, and that an engine takes what it wrote.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use autotune::export::yaml;

use crate::sim_engine::Engine;
use crate::workbench::{BINARY, project, said};

/// A folder with an outcome in it and a manifest.
struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new(changes: &[(&str, serde_json::Value)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(project().join("tests/data/outcome.json")).unwrap();
        let mut outcome: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (key, value) in changes {
            outcome[*key] = value.clone();
        }
        std::fs::write(folder.path().join("outcome.json"), outcome.to_string()).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn manifest(&self, name: &str) -> PathBuf {
        let path = self.path("manifest.yaml");
        std::fs::copy(project().join("tests/data/manifests").join(name), &path).unwrap();
        path
    }

    fn export(&self, manifest: &Path, arguments: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(["export", "--outcome"]).arg(self.folder.path()).arg("--manifest").arg(manifest);
        command.args(arguments).output().unwrap()
    }
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", said(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_file_is_changed_in_place_its_copy_kept_and_the_second_time_nothing_happens() {
    use std::os::unix::fs::PermissionsExt;
    let desk = Desk::new(&[]);
    let manifest = desk.manifest("deployment-equals.yaml");
    let before = std::fs::read_to_string(&manifest).unwrap();
    std::fs::set_permissions(&manifest, std::fs::Permissions::from_mode(0o600)).unwrap();
    let printed = out(&desk.export(&manifest, &[]));
    assert_eq!(std::fs::read_to_string(&manifest).unwrap(), before);
    let done = desk.export(&manifest, &["--in-place"]);
    assert!(done.status.success() && done.stdout.is_empty(), "{}", said(&done));
    assert_eq!(std::fs::read_to_string(&manifest).unwrap(), printed);
    assert_eq!(std::fs::metadata(&manifest).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(desk.path("manifest.yaml.bak")).unwrap(), before);
    let again = desk.export(&manifest, &["--in-place"]);
    assert!(said(&again).contains("nothing to change"), "{}", said(&again));
    assert!(!desk.path("manifest.yaml.bak.1").exists());
    for (form, empty) in [("diff", ""), ("kustomize", ""), ("json-patch", "[]\n")] {
        assert_eq!(out(&desk.export(&manifest, &["--form", form])), empty);
    }
    let refused = desk.export(&manifest, &["--in-place", "--form", "diff"]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
}

#[test]
fn patches_say_the_same_as_the_file() {
    let desk = Desk::new(&[]);
    let manifest = desk.manifest("deployment-args.yaml");
    let patch: serde_json::Value =
        serde_json::from_str(&out(&desk.export(&manifest, &["--form", "json-patch"]))).unwrap();
    let operations = patch.as_array().unwrap();
    assert_eq!(operations[0]["op"], "test");
    let args = operations.iter().find(|o| o["path"] == "/spec/template/spec/containers/0/args").unwrap();
    let words: Vec<&str> = args["value"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
    assert!(words.contains(&"/models/${model_name}") && words.ends_with(&["--max-num-seqs", "16"]), "{words:?}");
    let component = out(&desk.export(&manifest, &["--form", "kustomize"]));
    assert!(component.contains("kind: Component") && component.contains("              - args:"), "{component}");
    let values = desk.manifest("values-production-stack.yaml");
    let refused = desk.export(&values, &["--form", "kustomize"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("Helm"), "{}", said(&refused));
}

#[test]
fn an_answer_that_was_never_certified_is_marked_or_refused() {
    let desk = Desk::new(&[("status", "uncertified".into())]);
    let manifest = desk.manifest("deployment-args.yaml");
    let refused = desk.export(&manifest, &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        refused.stdout.is_empty() && said(&refused).contains("the best point was never certified: "),
        "{}",
        said(&refused)
    );
    assert!(said(&refused).contains("; --uncertified exports it all the same and says so in the annotations"));
    let marked = out(&desk.export(&manifest, &["--uncertified"]));
    assert!(marked.contains("NOT certified"), "{marked}");
    assert!(!out(&desk.export(&manifest, &["--uncertified", "--no-annotations"])).contains("autotune/"));
    let nothing = Desk::new(&[("best", serde_json::Value::Null)]);
    assert!(said(&nothing.export(&manifest, &["--uncertified"])).contains("the outcome has no best point: "));
}

#[test]
fn a_manifest_that_is_not_what_was_measured_is_warned_of() {
    let desk = Desk::new(&[
        ("simulated", false.into()),
        ("model", "meta-llama/Llama-3.1-70B".into()),
        ("engine_version", "0.14.1".into()),
        ("gpus", serde_json::json!(["NVIDIA H200", "NVIDIA H200"])),
        ("slowest_start", 300.0.into()),
        ("host_memory", 90_000_000_000_u64.into()),
        ("fixed_arguments", serde_json::json!(["--kv-cache-dtype", "fp8", "--port", "1"])),
    ]);
    let manifest = desk.manifest("deployment-command.yaml");
    let done = desk.export(&manifest, &[]);
    assert!(done.status.success());
    let said = said(&done);
    for words in ["was measured", "--kv-cache-dtype fp8, which is not here", "image", "measure with this model"] {
        assert!(said.contains(words), "{words} is missing in\n{said}");
    }
    assert!(!said.contains("--port"), "{said}");
}

#[test]
fn mistakes_have_words_and_their_own_exit_code() {
    let desk = Desk::new(&[]);
    let manifest = desk.manifest("refused/two-engines.yaml");
    let refused = desk.export(&manifest, &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stdout.is_empty() && said(&refused).contains("--container"), "{}", said(&refused));
    assert!(desk.export(&manifest, &["--container", "big/vllm"]).status.success());
    assert_eq!(desk.export(&desk.path("nowhere.yaml"), &[]).status.code(), Some(2));
    std::fs::write(desk.path("outcome.json"), "{}").unwrap();
    assert!(said(&desk.export(&manifest, &[])).contains("no outcome"));
}

#[test]
fn the_exported_arguments_start_the_simulated_engine() {
    let desk = Desk::new(&[]);
    let manifest = desk.path("pod.yaml");
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: engine\n    command: [autotune, sim-engine, m]\n    args: [--max_num_seqs=4]\n";
    std::fs::write(&manifest, text).unwrap();
    let exported = out(&desk.export(&manifest, &[]));
    let documents = yaml::parse(&exported).unwrap();
    let args = documents[0].at(&"spec.containers[0].args".parse().unwrap()).unwrap();
    let words: Vec<&str> = args.items().iter().map(|item| item.text().unwrap()).collect();
    assert_eq!(words.len(), 3, "{words:?}");
    let engine = Engine::start(&words);
    assert_eq!(engine.status("/health"), Some(200));
}
