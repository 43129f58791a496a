//! What people read: help, schema, errors, and the space files that teach the format.

use std::path::Path;
use std::process::Command;

use crate::workbench::{BINARY, project, said};

fn run(arguments: &[&str]) -> std::process::Output {
    Command::new(BINARY).args(arguments).current_dir(project()).output().unwrap()
}

/// The help in a terminal of so many columns.
fn help(arguments: &[&str], columns: usize) -> String {
    let mut command = Command::new(BINARY);
    let command = command.args(arguments).env("COLUMNS", columns.to_string()).current_dir(project());
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn help_wraps_at_the_width_of_the_terminal() {
    let commands =
        ["init", "check", "bench", "rehearse", "calibrate", "export", "report", "status", "restore", "completions"];
    let of_commands = commands.map(|command| vec![command, "--help"]);
    for arguments in of_commands.into_iter().chain([vec!["--help"], vec!["job", "run", "--help"]]) {
        for columns in [60, 80] {
            let help = help(&arguments, columns);
            // A word alone, or a flag with its value, may be longer.
            let long: Vec<&str> = help
                .lines()
                .filter(|line| {
                    line.chars().count() > columns && line.split_whitespace().count() > 3 && !line.starts_with("Usage:")
                })
                .collect();
            assert!(help.lines().count() > 5 && long.is_empty(), "{arguments:?} at {columns}: {long:#?}");
        }
    }
}

#[test]
fn the_help_is_as_people_know_it() {
    for (arguments, file) in [
        (&["--help"][..], "help.txt"),
        (&["bench", "--help"], "help-bench.txt"),
        (&["calibrate", "--help"], "help-calibrate.txt"),
        (&["compare", "--help"], "help-compare.txt"),
        (&["export", "--help"], "help-export.txt"),
        (&["job", "run", "--help"], "help-job-run.txt"),
    ] {
        let help = help(arguments, 80);
        let path = project().join("tests/data").join(file);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &help).unwrap();
        }
        assert_eq!(help, std::fs::read_to_string(path).unwrap(), "UPDATE=1 cargo test writes it anew");
    }
}

#[test]
fn the_committed_schema_is_that_of_the_program() {
    let schema = String::from_utf8(run(&["schema"]).stdout).unwrap();
    let path = project().join("search-spaces/space.schema.json");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    assert_eq!(schema, std::fs::read_to_string(path).unwrap(), "UPDATE=1 cargo test writes it anew");
}

#[test]
fn every_committed_space_file_is_valid_and_forecast() {
    for folder in ["search-spaces", "tests/real", "jobs"] {
        for entry in std::fs::read_dir(project().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "toml") {
                let check = run(&["check", "--space", path.to_str().unwrap()]);
                // Its engine need not be here.
                let lacks_program = said(&check).contains("a run here cannot launch the engine");
                assert_eq!(check.status.code(), Some(if lacks_program { 4 } else { 0 }), "{}", said(&check));
                assert!(said(&check).contains("forecast"), "{}", said(&check));
            }
        }
    }
}

#[test]
fn mistakes_in_a_space_file_are_shown_with_their_place_and_cost_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.toml");
    let text = std::fs::read_to_string(project().join("search-spaces/quickstart.toml")).unwrap();
    std::fs::write(
        &path,
        text.replace("ttft_p99 = \"150ms\"", "ttft_p99 = 150").replace("max-num-seqs =", "max-num-sqes ="),
    )
    .unwrap();
    let check = run(&["--space", path.to_str().unwrap(), "--out", folder.path().join("out").to_str().unwrap()]);
    assert_eq!(check.status.code(), Some(2));
    let said = said(&check);
    for part in ["wrong.toml:7", "^", "150ms", "max-num-seqs"] {
        assert!(said.contains(part), "{part} is missing in\n{said}");
    }
    assert!(!folder.path().join("out").exists());
}

#[test]
fn the_file_of_a_workload_is_read_beside_the_space_file_and_what_is_left_out_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (space, file) = (folder.path().join("space.toml"), folder.path().join("dialogues.json"));
    let text = std::fs::read_to_string(project().join("search-spaces/quickstart.toml")).unwrap();
    let (start, end) = (text.find("[workload]").unwrap(), text.find("[parameters]").unwrap());
    let workload = "[workload]\nkind = \"sharegpt\"\nfile = \"dialogues.json\"\n\n";
    std::fs::write(&space, format!("{}{workload}{}", &text[..start], &text[end..])).unwrap();
    let check = || run(&["check", "--space", space.to_str().unwrap()]);
    let missing = check();
    assert_eq!(missing.status.code(), Some(2));
    assert!(said(&missing).contains("dialogues.json") && said(&missing).contains("hint"), "{}", said(&missing));
    std::fs::write(&file, "{}").unwrap();
    assert_eq!(check().status.code(), Some(2));
    let dialogue = r#"{"conversations": [{"from": "human", "value": "why?"}, {"from": "gpt", "value": "because"}]}"#;
    std::fs::write(&file, format!("[{dialogue}, {{}}, {dialogue}]")).unwrap();
    let read = check();
    assert!(read.status.success(), "{}", said(&read));
    assert!(said(&read).contains("2 requests in dialogues.json, 1 left out (1 without a dialogue)"), "{}", said(&read));
}

#[test]
fn usage_mistakes_have_their_own_exit_code() {
    assert_eq!(run(&["--space", "no-such-file.toml"]).status.code(), Some(2));
    assert_eq!(run(&["--space", "x.toml", "--budget", "45"]).status.code(), Some(2));
    assert_eq!(run(&["--space", "x.toml", "--resume", "--fresh"]).status.code(), Some(2));
    assert_eq!(run(&["--nonsense"]).status.code(), Some(2));
    let misspelt = run(&["chek"]);
    assert_eq!(misspelt.status.code(), Some(2));
    assert!(said(&misspelt).starts_with("error: failed to read the space file "), "{}", said(&misspelt));
    assert!(said(&misspelt).contains("nor is that a command"), "{}", said(&misspelt));
    assert!(said(&run(&["x.toml", "--space", "y.toml"])).contains("cannot be used with"));
    for (words, says) in [
        (&["chek", "x.toml"][..], "error: there is no command `chek`; did you mean `check`?"),
        (&["chek", "--help-timeout", "3s", "x.toml"], "error: there is no command `chek`; did you mean `check`?"),
        (&["x.toml", "check"], "error: the command stands before the file: autotune check x.toml"),
        (&["init", "f.toml", "vllm", "serve", "m"], "put `--` before the engine's command"),
        (&["export", "--outcome", "out"], "args.txt in the folder of the run has the arguments"),
    ] {
        let refused = run(words);
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        assert!(said(&refused).contains(says), "{}", said(&refused));
    }
}

/// Whether a function of that name stands in a Rust file below that folder.
fn is_a_function(name: &str, folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_a_function(name, &path);
        }
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        is_rust && std::fs::read_to_string(&path).unwrap().contains(&format!("fn {name}("))
    })
}

#[test]
fn the_tests_that_security_md_names_are_there() {
    let text = std::fs::read_to_string(project().join("docs/security.md")).unwrap();
    let cells = text.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit_once(" | ")).map(|(_, cell)| cell);
    let named: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 40, "{named:?}");
    for name in named {
        let is_there = ["src", "crates", "tests"].iter().any(|folder| is_a_function(name, &project().join(folder)));
        assert!(is_there, "{name}");
    }
}
