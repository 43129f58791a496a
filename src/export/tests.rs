//! Every kind of manifest: what is written into the fixtures is what a careful colleague would have written.

use std::path::PathBuf;

use super::flags::{Flags, Setting};
use super::forms::diff;
use super::write::{Exported, Wanted, export};
use crate::space::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/manifests")
}

fn winner() -> Vec<Setting> {
    let setting = |name: &str, value| Setting { name: name.to_owned(), value };
    vec![
        setting("gpu-memory-utilization", Value::Real(0.93)),
        setting("max-num-batched-tokens", Value::Int(4096)),
        setting("max-num-seqs", Value::Int(96)),
    ]
}

fn wanted(containers: &[&str]) -> Wanted {
    let annotations = [("autotune/version", "0.1.0"), ("autotune/certified-rate", "15.8 req/s, 97 % sure")];
    Wanted {
        settings: winner(),
        annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec(),
        containers: containers.iter().map(|c| (*c).to_owned()).collect(),
        path: None,
    }
}

fn flags() -> Flags {
    let settings = winner();
    Flags::of_vllm(settings.iter().map(|s| s.name.as_str()))
}

fn exported(text: &str, wanted: &Wanted) -> Result<Exported, String> {
    export("m.yaml", text, wanted, &flags(), &|_, _| Vec::new()).map_err(|problems| problems.render())
}

/// Fixtures with several engines, and which of them are set.
const SEVERAL: [(&str, &[&str]); 4] = [
    ("dgd-v1alpha1-disagg", &["VllmDecodeWorker"]),
    ("dgd-v1beta1-disagg", &["prefill", "decode"]),
    ("llminferenceservice-args", &["main", "prefill"]),
    ("values-llm-d", &["decode"]),
];

#[test]
fn every_kind_of_manifest_is_changed_as_a_careful_colleague_would() {
    let mut seen = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let before = std::fs::read_to_string(&path).unwrap();
        let containers = SEVERAL.iter().find(|(n, _)| *n == name).map_or(&[][..], |(_, c)| *c);
        let done = exported(&before, &wanted(containers)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let notes: String = done.notes.iter().map(|n| format!("# {}\n", n.message)).collect();
        let shown = notes + &diff(&format!("{name}.yaml"), &before, &done.text);
        let golden = path.with_extension("diff");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&golden, &shown).unwrap();
        }
        assert_eq!(shown, std::fs::read_to_string(&golden).unwrap(), "{name}: UPDATE=1 cargo test writes it anew");
        // The second time there is nothing left to do.
        let again = exported(&done.text, &wanted(containers)).unwrap();
        assert_eq!(again.text, done.text, "{name}");
        assert!(again.changed.is_empty(), "{name}: {:?}", again.changed);
        seen += 1;
    }
    assert_eq!(seen, 26);
}

/// What is refused, by fixture, and the words that say why and what to do.
const REFUSED: [(&str, &[&str]); 10] = [
    ("args-alias", &["through an anchor", "write out"]),
    ("args-merge-key", &["merge key", "write out"]),
    ("duplicate-key", &["stands twice"]),
    ("invalid", &["not valid YAML", "m.yaml:"]),
    ("no-engine", &["no engine was found", "--path"]),
    ("placeholder-value", &["placeholder", "${max_seqs}"]),
    ("template-in-args", &["template", "render"]),
    ("two-containers", &["--container"]),
    ("two-engines", &["--container"]),
    ("unknown-kind", &["ModelServer chat: a kind that is not known", "--path"]),
];

#[test]
fn what_cannot_be_changed_safely_is_refused_with_its_place_and_a_remedy() {
    for (name, words) in REFUSED {
        let text = std::fs::read_to_string(folder().join("refused").join(format!("{name}.yaml"))).unwrap();
        let says = exported(&text, &wanted(&[])).map(|done| diff("m", &text, &done.text)).unwrap_err();
        if std::env::var_os("SHOW").is_some() {
            println!("== {name}\n{says}\n");
        }
        for word in words {
            assert!(says.contains(word), "{name}: {word} is missing in\n{says}");
        }
    }
}

#[test]
fn the_user_can_point_to_arguments_that_are_not_found() {
    let text = std::fs::read_to_string(folder().join("refused/unknown-kind.yaml")).unwrap();
    let pointed = Wanted { path: Some("spec.args".parse().unwrap()), ..wanted(&[]) };
    let done = exported(&text, &pointed).unwrap();
    assert!(done.text.contains("    - --max-num-seqs\n    - \"96\"\n"), "{}", done.text);
    assert!(exported(&text, &Wanted { path: Some("spec.arguments[3]".parse().unwrap()), ..wanted(&[]) }).is_err());
}

#[test]
fn one_of_two_engines_can_be_named() {
    for (name, container) in [("two-engines", None), ("two-containers", None)] {
        let text = std::fs::read_to_string(folder().join("refused").join(format!("{name}.yaml"))).unwrap();
        let says = exported(&text, &wanted(&[])).map(|_| ()).unwrap_err();
        let hint = says.split("--container ").nth(1).unwrap().split([' ', ';', '\n']).next().unwrap();
        let done = exported(&text, &wanted(&[container.unwrap_or(hint)])).unwrap();
        assert_eq!(done.engines.len(), 1);
        assert!(
            exported(&text, &wanted(&["nobody"])).map(|_| ()).unwrap_err().contains("no engine is called `nobody`")
        );
    }
}

#[test]
fn placeholders_in_scripts_are_seen_and_kept() {
    let pod = |script: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n  - name: c\n    command: [sh, -c]\n    args:\n    - |\n      {script}\n"
        )
    };
    let says = exported(&pod("vllm serve ${MODEL} --max-num-seqs ${SEQS}"), &wanted(&[])).map(|_| ()).unwrap_err();
    assert!(says.contains("placeholder `${SEQS}`"), "{says}");
    let done = exported(&pod("exec vllm serve ${MODEL} --port $${PORT:-80} && true"), &wanted(&[])).unwrap();
    let line = "exec vllm serve ${MODEL} --port $${PORT:-80} --gpu-memory-utilization 0.93 --max-num-batched-tokens 4096 --max-num-seqs 96 && true\n";
    assert!(done.text.contains(line), "{}", done.text);
    assert_eq!(done.changed.iter().filter(|c| c.after.text() == Some(line)).count(), 1);
}
