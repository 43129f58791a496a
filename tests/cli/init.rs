//! First steps: a space file from what runs already, its check, and what is told of the command line.

use std::path::Path;
use std::process::{Command, Output};

use crate::bench::Engine;
use crate::workbench::{BINARY, Workbench, project, said};

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).current_dir(folder).output().unwrap()
}

/// The file of an init, which a check takes.
fn written(folder: &Path, arguments: &[&str]) -> String {
    let init = run(folder, &[&["init"], arguments].concat());
    assert!(init.status.success(), "{}", said(&init));
    assert!(said(&init).contains("autotune check space.toml"), "{}", said(&init));
    let check = run(folder, &["check", "space.toml"]);
    // Its engine need not be here.
    assert!(said(&check).contains("is a valid space file"), "{}", said(&check));
    std::fs::read_to_string(folder.join("space.toml")).unwrap()
}

#[test]
fn a_command_becomes_a_space_file_that_check_takes() {
    let folder = tempfile::tempdir().unwrap();
    let command = ["--", "vllm", "serve", "org/model", "--port", "8000", "--max-num-seqs", "96"];
    let text = written(folder.path(), &command);
    assert!(text.contains("default = 96") && !text.contains("8000"), "{text}");
    // It is not replaced unless that is asked for.
    let again = run(folder.path(), &[&["init"], &command[..]].concat());
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains(" is there already; --force replaces it, or name another file"), "{}", said(&again));
    let flags = ["--force", "--slo", "ttft_p95=300ms", "--input-tokens", "100-200", "--budget", "7m"];
    let text = written(folder.path(), &[&flags[..], &command[..]].concat());
    for part in ["ttft_p95 = \"300ms\"", "min = 100, max = 200", "gpu_time = \"7m\""] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    for wrong in [&["init"][..], &["init", "--", "nginx"], &["init", "--url", "http://127.0.0.1:1", "--", "vllm"]] {
        assert_eq!(run(folder.path(), wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_manifest_becomes_a_space_file_without_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(project().join("tests/data/manifests/deployment-args.yaml"), folder.path().join("deployment.yaml"))
        .unwrap();
    let text = written(folder.path(), &["--manifest", "deployment.yaml"]);
    assert!(text.starts_with("# From ") && text.contains("in deployment.yaml"), "{text}");
    std::fs::write(folder.path().join("other.yaml"), MANIFEST).unwrap();
    let text = written(folder.path(), &["--force", "--manifest", "other.yaml"]);
    assert!(text.contains("There the number of GPUs (nvidia.com/gpu) is 2") && text.contains("HF_TOKEN"), "{text}");
    assert!(text.contains("\"--tensor-parallel-size\", \"2\"") && !text.contains("planted"), "{text}");
    std::fs::write(folder.path().join("service.yaml"), "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n").unwrap();
    let none = run(folder.path(), &["init", "--force", "--manifest", "service.yaml"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(said(&none).contains("no engine was found"), "{}", said(&none));
}

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  template:
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.24.0
        args: [--model, org/model, --tensor-parallel-size=2, --max-num-seqs=64, --api-key, planted-key-of-ours]
        env:
        - {name: HF_TOKEN, value: hf_planted}
        resources: {limits: {nvidia.com/gpu: 2}}
"#;

#[test]
fn a_server_becomes_a_space_file_with_what_it_tells() {
    let (engine, folder) = (Engine::start(&["--max-num-seqs", "24"]), tempfile::tempdir().unwrap());
    let text = written(folder.path(), &["--url", engine.url()]);
    assert!(
        text.contains("\"--max-model-len\", \"1024\"") && text.contains("The server") || text.contains("the server"),
        "{text}"
    );
    let dead = run(folder.path(), &["init", "--force", "--url", "http://127.0.0.1:1"]);
    assert_eq!(dead.status.code(), Some(1));
    assert!(said(&dead).contains("nothing listens there"), "{}", said(&dead));
}

#[test]
fn a_check_shows_the_plan_and_what_the_machine_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        std::fs::write(folder.path().join("space.toml"), text).unwrap();
        said(&run(folder.path(), &["check", "space.toml"]))
    };
    let text = std::fs::read_to_string(project().join("search-spaces/phase1.toml")).unwrap();
    let shown = check(&text.replace("\"vllm\", \"serve\"", "\"no-such-program\", \"serve\""));
    for part in [
        "ttft_p99 <= 1.0 s",
        "conversations of 5 turns on 10 documents",
        "max-num-seqs: 32 48",
        "bayes, until the limit is known to 4.0 %",
        "no-such-program is not on the PATH",
        "the model /models/nvidia/Llama-3.1-70B-Instruct-FP8 is not there",
        "nvidia-smi tells no GPU",
    ] {
        // A machine with a GPU has one.
        let has_gpu = part.starts_with("nvidia-smi") && Path::new("/usr/bin/nvidia-smi").exists();
        assert!(has_gpu || shown.contains(part), "{part} is missing in\n{shown}");
    }
    let hidden = check(&text.replace("[workload]", "env = { CUDA_VISIBLE_DEVICES = \"\" }\n[workload]"));
    assert!(hidden.contains("CUDA_VISIBLE_DEVICES in engine.env hides all GPUs"), "{hidden}");
    std::fs::write(folder.path().join("space.toml"), &text).unwrap();
    let mut hidden = Command::new(BINARY);
    let hidden = hidden.args(["check", "space.toml"]).current_dir(folder.path()).env("CUDA_VISIBLE_DEVICES", "");
    let hidden = said(&hidden.output().unwrap());
    assert!(hidden.contains("CUDA_VISIBLE_DEVICES in the environment hides all GPUs"), "{hidden}");
    let quickstart = std::fs::read_to_string(project().join("search-spaces/quickstart.toml")).unwrap();
    let shown = check(&quickstart);
    assert!(shown.contains("lacking here") && shown.contains("nothing that was looked for"), "{shown}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let shown = check(
        &quickstart
            .replace("gpu_time = \"85s\"", "gpu_time = \"2s\"")
            .replace("[workload]", &format!("port = {port}\n[workload]")),
    );
    assert!(shown.contains("not enough to certify the defaults"), "{shown}");
    assert!(shown.contains(&format!("port {port} is taken")), "{shown}");
}

#[test]
fn the_answer_is_json_where_that_is_asked_for_and_runs_are_compared() {
    let bench = Workbench::too_short();
    let first = bench.run(&["--json", "--seed", "1"]);
    let printed: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(bench.path("out/outcome.json")).unwrap()).unwrap();
    assert_eq!(printed, kept, "{}", said(&first));
    let status = run(&bench.path(""), &["status", "out"]);
    assert!(status.status.success() && said(&status).contains("ended"), "{}", said(&status));
    let again = bench.run(&["--seed", "2", "--quiet", "--fresh"]);
    assert!(bench.measured_nothing(again.status), "{}", said(&again));
    let compared = run(&bench.path(""), &["report", "out.previous-1", "out"]);
    assert!(compared.status.success(), "{}", said(&compared));
    assert!(said(&compared).contains("seed: 1 | 2") && said(&compared).contains("engine time"), "{}", said(&compared));
    let nothing = run(&bench.path(""), &["status", "tmp"]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(said(&nothing).contains("DIR is the folder that a run wrote into"), "{}", said(&nothing));
}

#[test]
fn shells_and_man_know_the_command_line() {
    for (shell, parts) in [
        ("bash", &["_autotune", "--manifest"][..]),
        ("zsh", &["#compdef autotune", "init"]),
        ("fish", &["complete -c autotune", "rehearse"]),
        ("man", &[".TH autotune", "AUTOTUNE INIT", "\\-\\-budget"]),
    ] {
        let printed = run(project(), &["completions", shell]);
        assert!(printed.status.success(), "{}", said(&printed));
        let text = String::from_utf8(printed.stdout).unwrap();
        for part in parts {
            assert!(text.contains(part), "{shell}: {part}");
        }
        assert!(!text.contains("guardian"), "{shell} knows what is internal");
    }
}
