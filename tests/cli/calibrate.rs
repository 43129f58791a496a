//! Calibrations as their user runs them: from requests of a real engine and from the folder of a run to a profile that is used.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use autotune::twin::Profile;

use crate::workbench::{BINARY, Workbench, project, said};

fn autotune(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).current_dir(folder).output().unwrap()
}

/// The first requests of a probe of an H200: enough to say something, few enough for a build without optimization.
fn short(folder: &Path, name: &str, requests: usize) -> PathBuf {
    let text = std::fs::read_to_string(project().join("tests/data/h200").join(name)).unwrap();
    let lines: Vec<&str> = text.lines().take(1 + requests).collect();
    let path = folder.join(name);
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    path
}

#[test]
fn requests_of_an_h200_become_a_profile_that_a_rehearsal_takes() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["def_r15.16_d40_s11.csv", "def_r15.16_d40_s12.csv", "def_r17.43_d40_s23.csv"] {
        short(folder.path(), name, 130);
    }
    let arguments = [
        "calibrate",
        "def_r15.16_d40_s11.csv,kv-tokens=919824",
        "def_r15.16_d40_s12.csv",
        "def_r17.43_d40_s23.csv",
        "--hold-out",
        "def_r15.16_d40_s12.csv",
        "--base",
        "h200-llama8b",
        "--out",
        "mine.toml",
    ];
    let made = autotune(folder.path(), &arguments);
    assert!(made.status.success(), "{}", said(&made));
    let text = said(&made);
    for part in [
        "fitting 2 probes with 260 requests",
        "def_r15.16_d40_s12.csv  held out",
        "per_prefill_token",
        "held out  p99 off by: TTFT",
        "assumed: max-num-seqs 1024, max-num-batched-tokens 8192 of h200-llama8b (def_r15.16_d40_s11.csv)",
        "kept in mine.toml",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let file = folder.path().join("mine.toml");
    let profile = Profile::find(file.to_str().unwrap()).unwrap();
    assert_eq!((profile.name.as_str(), profile.memory), ("mine", Profile::named("h200-llama8b").unwrap().memory));
    assert!(profile.source.contains("def_r17.43_d40_s23.csv") && !profile.source.contains('/'), "{}", profile.source);
    assert!((2e-3..8e-3).contains(&profile.costs.base), "{:?}", profile.costs);

    let again = autotune(folder.path(), &arguments);
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains("--force"), "{}", said(&again));

    let space = std::fs::read_to_string(project().join("search-spaces/quickstart.toml")).unwrap();
    let space = space
        .replace("[0.80, 0.85, 0.90, 0.94, 0.98], default = 0.85", "[0.9], default = 0.9")
        .replace("tpot_p99 = \"7ms\"", "itl_p99 = \"40ms\"");
    std::fs::write(folder.path().join("space.toml"), space).unwrap();
    let arguments =
        ["rehearse", "--space", "space.toml", "--profile", "./mine.toml", "--seeds", "1", "--budget", "90s"];
    let rehearsed = autotune(folder.path(), &arguments);
    assert!(rehearsed.status.success(), "{}", said(&rehearsed));
    assert!(said(&rehearsed).contains("mine (fitted by autotune calibrate"), "{}", said(&rehearsed));
}

#[test]
fn the_folder_of_a_run_tells_its_configurations_itself() {
    let bench = Workbench::with_budget("", "", "6s");
    let run = bench.run(&[]);
    assert!(bench.path("out/journal.jsonl").exists(), "{}", said(&run));
    let made = autotune(&bench.path(""), &["calibrate", "out", "--json", "--out", "mine.toml"]);
    assert!(made.status.success(), "{}", said(&made));
    let json: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!((&json["base"], &json["engines"][0]), (&"quickstart".into(), &"a simulated engine".into()));
    let probes = json["compared"].as_array().unwrap();
    assert!(
        !probes.is_empty() && probes[0]["name"] == "t001-p01" && probes[0]["bounds"]["max_num_seqs"] == 4,
        "{json}"
    );
    assert!(json["memory"].as_array().unwrap().iter().all(|size| size["logged"] == size["predicted"]), "{json}");
    let profile = Profile::find(bench.path("mine.toml").to_str().unwrap()).unwrap();
    assert!(profile.source.contains("on a simulated engine (out)") && profile.start.is_some(), "{}", profile.source);
}

#[test]
fn mistakes_are_said_before_anything_is_fitted() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("summary.json", r#"{"completed": 60, "p99_ttft_ms": 92.9}"#);
    write("mine.toml", "");
    short(folder.path(), "def_r15.16_d40_s11.csv", 20);
    let csv = "def_r15.16_d40_s11.csv";
    for (arguments, parts) in [
        (&["summary.json"][..], &["summary.json", "only their summary", "--save-detailed", "bench --out"][..]),
        (&[csv, "--set", "block-size=32"], &["block-size", "max-num-seqs", "kv-tokens"]),
        (&["x.csv,block-size=32"], &["block-size", "max-num-seqs", "kv-tokens"]),
        (&["nothing.csv"], &["nothing.csv"]),
        (&["."], &["journal.jsonl"]),
        (&[csv, "--out", "mine.toml"], &["mine.toml", "--force"]),
        (&[csv, "--out", "mine.json"], &[".toml"]),
        (&[csv, "--out", "new.toml"], &["--base", "h200-llama8b"]),
        (&[csv, "--hold-out", csv], &["held out"]),
        (&[csv], &["max-num-seqs", "--set"]),
        (&[csv, "--base", "h200-llama8b"], &["20 whole answers", "\n  = hint: "]),
        (&[csv, "--base", "h100"], &["h200-llama8b"]),
    ] {
        let refused = autotune(folder.path(), &[&["calibrate"], arguments].concat());
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {}", said(&refused));
        for part in parts {
            assert!(said(&refused).contains(part), "{arguments:?}: {part} is missing in\n{}", said(&refused));
        }
    }
    assert!(!folder.path().join("new.toml").exists());
}
