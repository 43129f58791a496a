//! `autotune check` beside engines that list their flags, and beside programs that do not.

use std::process::{Command, Output};

use crate::workbench::{BINARY, Workbench, project, said, started_in};

/// A job whose engine is a shell script; `args` stand in `engine.args`, and `parameters` behind that of the job.
fn with_engine(script: &str, args: &str, parameters: &str) -> Workbench {
    let bench = Workbench::new("", "");
    let engine = bench.script("engine", &format!("echo \"$@\" >> asked\n{script}"));
    let is = format!(
        "kind = \"vllm\"\ncommand = [\"{}\", \"serve\", \"org/model\"]\nargs = [{args}]\nenv = {{ HF_TOKEN = \"planted-0001\" }}",
        engine.display()
    );
    let space = std::fs::read_to_string(bench.path("space.toml")).unwrap();
    let space = space
        .replace("kind = \"simulated\"", &is)
        .replace("[search]", &format!("{parameters}\n[search]"))
        .replace("stall_timeout = \"1s\"", "");
    std::fs::write(bench.path("space.toml"), space).unwrap();
    bench
}

fn check(bench: &Workbench, timeout: &str) -> Output {
    let mut command = Command::new(BINARY);
    command.args(["check", "space.toml", "--help-timeout", timeout]);
    let output = command.current_dir(bench.path("")).env("TMPDIR", bench.path("tmp")).output().unwrap();
    assert_eq!(started_in(&bench.path("tmp")), Vec::<i32>::new(), "processes are left: {}", said(&output));
    assert_eq!(std::fs::read_dir(bench.path("tmp")).unwrap().count(), 0, "files are left: {}", said(&output));
    output
}

fn asked(bench: &Workbench) -> String {
    std::fs::read_to_string(bench.path("asked")).unwrap()
}

fn real_help() -> String {
    format!("exec cat {}", project().join("tests/data/vllm/help.txt").display())
}

#[test]
fn flags_that_the_engine_does_not_list_are_mistakes_with_their_place() {
    let args = r#""--async-scheduling", "--max_log_len=8", "-tp", "2""#;
    let bench = with_engine(&real_help(), args, "");
    let known = check(&bench, "60s");
    assert!(known.status.success(), "{}", said(&known));
    assert!(said(&known).contains("serve org/model --help=all` lists every flag of this file"), "{}", said(&known));
    assert_eq!(asked(&bench), "serve org/model --help=all\n", "it is asked once");

    let args = r#""--tensor-paralel-size", "2", "--max-num", "8", "--port-file x""#;
    let tuned =
        "max-num-sqes = { values = [1, 2] }\ngrpc = { values = [true, false] }\nwatermar = { values = [0.1, 0.2] }";
    let bench = with_engine(&real_help(), args, tuned);
    let refused = check(&bench, "60s");
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    let said = said(&refused);
    for part in [
        "the engine has no flag `--tensor-paralel-size`",
        "space.toml:8:9",
        "did you mean `tensor-parallel-size`?",
        "write it in full: --max-num-active-seqs, --max-num-batched-tokens",
        "write the flag and its value as two words",
        "the engine has no flag `--max-num-sqes`",
        "did you mean `max-num-seqs`?",
        "leave it out of the values of `grpc`",
        "`watermar` is short for `watermark`",
    ] {
        assert!(said.contains(part), "{part} is missing in\n{said}");
    }
    assert_eq!(said.matches("error: ").count(), 6, "{said}");
}

#[test]
fn an_engine_that_lists_a_part_or_does_not_know_all_is_asked_for_its_plain_help() {
    for refuses in
        ["echo 'engine: error: argument -h/--help: ignored explicit argument' >&2; exit 2", "echo '  --all-reduce X'"]
    {
        let script = format!("case \"$*\" in *=all) {refuses};; *) {};; esac", real_help());
        let bench = with_engine(&script, "", "");
        let known = check(&bench, "60s");
        assert!(known.status.success() && said(&known).contains("--help` lists every flag"), "{}", said(&known));
        assert_eq!(asked(&bench), "serve org/model --help=all\nserve org/model --help\n");
    }
}

#[test]
fn without_a_list_of_the_engine_that_of_vllm_decides_and_a_sentence_says_why() {
    let wrong = "max-num-sqes = { values = [1, 2] }";
    for (script, timeout, why) in [
        ("trap '' TERM; sleep 600 & sleep 600; sleep 600", "2s", "did not end within 2.0 s (--help-timeout)"),
        ("exec yes", "60s", "printed more than 384 KiB"),
        ("setsid sleep 600 & exit 0", "60s", "does not list --host and --port, which every launch sets"),
        (
            "echo begins; echo \"RuntimeError: no $HF_TOKEN\" >&2; exit 3",
            "60s",
            "ended with exit code 3: RuntimeError: no [redacted]",
        ),
        ("kill -9 $$", "60s", "was killed by signal 9"),
    ] {
        let bench = with_engine(script, "", wrong);
        let told = check(&bench, timeout);
        let said = said(&told);
        assert!(told.status.success(), "{said}");
        let sentence = "not all are flags of vLLM 0.32; the engine was not asked: ";
        for part in [why, sentence, "warning: vLLM 0.32 has no flag `--max-num-sqes`", "did you mean `max-num-seqs`?"] {
            assert!(said.contains(part), "{part} is missing in\n{said}");
        }
        // How long 384 KiB take hangs on the machine; the others end at once.
        if !why.contains("KiB") {
            assert_eq!(said.contains("waiting up to"), why.starts_with("did not end"), "{said}");
        }
        assert!(!said.contains("planted"), "{said}");
        // What took its time, or had no end, is not asked again.
        let times = if why.contains("did not end") || why.contains("KiB") { 1 } else { 2 };
        assert_eq!(asked(&bench).lines().count(), times, "{script}");
    }
}

#[test]
fn what_cannot_be_launched_is_refused_behind_the_plan_with_its_place() {
    let refused = |bench: &Workbench, why: &str| {
        let missing = check(bench, "60s");
        assert_eq!(missing.status.code(), Some(4), "{}", said(&missing));
        let said = said(&missing);
        for part in [why, "all are flags of vLLM 0.32; the engine was not asked: ", "forecast", "space.toml:", "hint: "]
        {
            assert!(said.contains(part), "{part} is missing in\n{said}");
        }
        assert!(said.contains("a run here cannot launch the engine"), "{said}");
    };
    let gone = with_engine("exit 1", "", "");
    std::fs::remove_file(gone.path("engine")).unwrap();
    refused(&gone, "/engine is no program here: a run here");
    let bench = with_engine("exit 1", "", "");
    let space = std::fs::read_to_string(bench.path("space.toml")).unwrap();
    let engine = bench.path("engine").display().to_string();
    std::fs::write(bench.path("space.toml"), space.replace(&engine, "no-such-program")).unwrap();
    refused(&bench, "no-such-program is not on the PATH: a run here");
    let within = space.replace(&format!("\"{engine}\", "), "\"/usr/bin/env\", \"no-such-program\", ");
    std::fs::write(bench.path("space.toml"), within).unwrap();
    refused(&bench, "ended with exit code 127");
    refused(
        &with_engine("echo \"python3: No module named vllm\" >&2; exit 1", "", ""),
        "No module named vllm: a run here",
    );
    // The end of a long line is not shown, and counts.
    let far = format!("echo \"{}: No module named vllm\" >&2; exit 1", "python3 ".repeat(30));
    refused(&with_engine(&far, "", ""), "…: a run here");
    let partly = "echo \"ImportError: cannot import name 'a' from 'vllm'\" >&2; exit 1";
    refused(&with_engine(partly, "", ""), "from 'vllm': a run here");
}

#[test]
fn the_simulated_engine_lists_what_it_takes() {
    let bench = Workbench::new(r#"args = ["--tensor-parallel-size", "1", "--sim-speed", "2", "--seed=3"]"#, "");
    let known = check(&bench, "60s");
    assert!(known.status.success(), "{}", said(&known));
    assert!(said(&known).contains("sim-engine --help=all` lists every flag of this file"), "{}", said(&known));
    let bench = Workbench::new(r#"args = ["--sim-sped", "2", "--quantization", "fp8"]"#, "");
    let refused = check(&bench, "60s");
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("did you mean `sim-speed`?"), "{}", said(&refused));
    assert!(said(&refused).contains("the engine has no flag `--quantization`"), "{}", said(&refused));
}
