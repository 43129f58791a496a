//! Secrets planted wherever a user puts one, and none of them in anything that a session leaves behind.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::workbench::{BINARY, Workbench, said};

/// Every file and folder below one, itself included.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let inside = entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] });
    std::iter::once(folder.to_owned()).chain(inside).collect()
}

#[test]
fn nothing_that_a_session_leaves_behind_holds_a_secret_or_is_anybodys_to_read() {
    // An engine that tells all it knows, as careless ones do.
    let engine = format!(
        r#"
command = ["sh", "-c", "env; echo $0 $@; echo \"{{'hf_token': '$HF_TOKEN'}}\"; exec {BINARY} sim-engine \"$@\"", "DEPLOY_TOKEN=planted-0001"]
args = ["--api-key", "planted-0002", "planted-0003", "--additional-config", '{{"password": "planted-0004", "nested": {{"api_key": "planted-0005"}}}}']
env = {{ GIT_PAT = "planted-0006", NGC_AUTH = "planted-0007", DB_PWD = "planted-0008", HTTPS_PROXY = "http://me:planted-0009@127.0.0.1:9/", INDEX = "https://planted-0010@127.0.0.1:9/simple?api_key=planted-0011", MODE = "a-mode-that-is-told" }}
"#
    );
    let bench = Workbench::with_budget(&engine, "candidates = 1", "3s");
    let mut command = bench.command(&[]);
    command.env("HF_TOKEN", "planted-0012").env("AWS_SECRET_ACCESS_KEY", "planted-0013");
    let run = command.output().unwrap();
    assert!(bench.path("out/outcome.json").exists(), "{}", said(&run));
    assert!(!said(&run).contains("planted"), "{}", said(&run));
    let mut told = false;
    for path in below(&bench.path("out")) {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let name = path.file_name().unwrap().to_str().unwrap();
        let shared = ["outcome.json", "trials.csv", "args.txt"].contains(&name);
        let expected = if path.is_dir() {
            0o700
        } else if shared {
            0o644
        } else {
            0o600
        };
        assert_eq!(mode, expected, "{}: {mode:o}", path.display());
        if path.is_file() {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            assert!(!text.contains("planted"), "{}: {text}", path.display());
            told |= text.contains("a-mode-that-is-told");
        }
    }
    assert!(told, "the engine said what it knows");
    bench.assert_nothing_left();
}
