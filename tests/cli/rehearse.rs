//! Rehearsals as their user runs them: what is printed, what is refused, and that no file is left.

use std::process::{Command, Output};

use crate::workbench::{BINARY, project, said};

/// Runs in an empty folder with `space.toml` in it, and asserts that nothing else is there afterwards.
fn rehearse(space: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("space.toml"), space).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["rehearse", "--space", "space.toml"]).args(arguments).current_dir(folder.path());
    let output = command.output().unwrap();
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["space.toml"], "{}", said(&output));
    output
}

fn space_file(name: &str) -> String {
    std::fs::read_to_string(project().join("search-spaces").join(name)).unwrap()
}

/// The quickstart with two points and gaps promised instead of means, whose true limits are not computed.
fn small() -> String {
    space_file("quickstart.toml")
        .replace("[0.80, 0.85, 0.90, 0.94, 0.98], default = 0.85", "[0.94], default = 0.94")
        .replace("[128, 256, 2048]", "[2048]")
        .replace("[8, 16, 128]", "[16, 128]")
        .replace("tpot_p99 = \"7ms\"", "itl_p99 = \"40ms\"")
}

#[test]
fn a_rehearsal_says_first_and_last_that_it_is_a_simulation() {
    let text = rehearse(&small(), &["--seeds", "2", "--budget", "60s"]);
    assert!(text.status.success(), "{}", said(&text));
    let text = String::from_utf8(text.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for line in [lines[0], lines[lines.len() - 1]] {
        assert!(line.contains("imulation") && line.contains("not a measurement"), "{line}");
        assert!(line.contains("quickstart") && line.chars().count() <= 80, "{line}");
    }
    assert!(lines[0].contains("quickstart (imaginary"), "{}", lines[0]);
    for part in ["2 of space.toml", "budget of 60.0 s", "launches", "GPU time", "gain", "chosen", "not computed"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn as_json_it_is_marked_as_a_simulation() {
    let json = rehearse(&small(), &["--seeds", "2", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["simulation"], &json["profile"]), (&true.into(), &"quickstart".into()));
    assert_eq!(json["sessions"].as_array().unwrap().len(), 2);
    assert!(json["sessions"][0]["cost"]["launches"].as_u64().unwrap() >= 2);
}

#[test]
fn a_real_engine_needs_a_profile_and_what_is_not_simulated_is_refused_or_said() {
    let real = small().replace(
        "kind = \"simulated\"",
        "kind = \"vllm\"\ncommand = [\"no-such-program\"]\nargs = [\"--enforce-eager\", \"--max-model-len\", \"512\"]",
    );
    let without = rehearse(&real, &[]);
    assert_eq!(without.status.code(), Some(2));
    assert!(said(&without).contains("--profile h200-llama70b"), "{}", said(&without));
    let unknown = rehearse(&real, &["--profile", "h100"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(said(&unknown).contains("vllm-cpu-small"), "{}", said(&unknown));
    let file = project().join("profiles/quickstart.toml");
    let with = rehearse(&real, &["--profile", file.to_str().unwrap(), "--seeds", "1"]);
    assert!(with.status.success(), "{}", said(&with));
    assert!(said(&with).contains("not simulated, of the fixed arguments: --enforce-eager\n"), "{}", said(&with));
    let strange = real.replace("[search]", "block-size = { values = [16, 32] }\n[search]");
    let refused = rehearse(&strange, &["--profile", "quickstart"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("`block-size`"), "{}", said(&refused));
}

#[test]
fn a_report_of_a_rehearsal_says_that_nothing_was_measured_and_leads_to_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let real = small().replace("kind = \"simulated\"", "kind = \"vllm\"\ncommand = [\"no-such-program\"]");
    std::fs::write(folder.path().join("space.toml"), real).unwrap();
    let run = || {
        let arguments =
            ["rehearse", "space.toml", "--profile", "quickstart", "--seeds", "1", "--budget", "60s", "--out", "out"];
        Command::new(BINARY).args(arguments).current_dir(folder.path()).output().unwrap()
    };
    let first = run();
    assert!(first.status.success() && said(&first).contains("out/report.html"), "{}", said(&first));
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    let page = page.replace("<code>", "").replace("</code>", "");
    for part in [
        "<span class=\"badge simulated\">Simulated engine</span>",
        "Next: run it on the engine itself</h3><pre>autotune space.toml</pre>",
        "autotune rehearse space.toml --profile quickstart --seeds 1 --budget 60s --strategy bayes",
        "requests count",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    for part in ["Measured", "cannot be shown", "The journal holds no times"] {
        assert!(!page.contains(part), "{part}");
    }
    assert!(!folder.path().join("out/journal.jsonl").exists(), "no run can go on from it");
    assert_eq!(run().status.code(), Some(2), "an earlier report is not overwritten");
}

#[test]
fn help_names_every_profile_that_comes_with_the_program() {
    for command in ["rehearse", "sim-engine", "calibrate"] {
        let help = Command::new(BINARY).args([command, "--help"]).output().unwrap();
        for name in autotune::twin::Profile::NAMES {
            assert!(said(&help).contains(name), "{name} is missing in\n{}", said(&help));
        }
    }
}
