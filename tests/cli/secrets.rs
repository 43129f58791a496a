//! Secrets planted wherever a user puts one, and none of them in anything that the program leaves behind or says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::bench::Engine;
use crate::listen::get;
use crate::workbench::{BINARY, Workbench, said};

/// What every secret begins with.
const PLANTED: &str = "planted";

/// Every file and folder below one, itself included.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let inside = entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] });
    std::iter::once(folder.to_owned()).chain(inside).collect()
}

/// Asserts that only this user reads what is in a folder and not made to be `shared`, and that nothing holds a secret. Returns all of it.
fn harmless(folder: &Path, shared: impl Fn(&str) -> bool) -> String {
    let mut all = String::new();
    for path in below(folder) {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let expected = match path.file_name().unwrap().to_str().unwrap() {
            _ if path.is_dir() => 0o700,
            name if shared(name) => 0o644,
            _ => 0o600,
        };
        assert_eq!(mode, expected, "{}: {mode:o}", path.display());
        if path.is_file() {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            assert!(!text.contains(PLANTED), "{}: {text}", path.display());
            all += &text;
        }
    }
    all
}

fn assert_says_none(run: &Output) {
    assert!(!said(run).contains(PLANTED), "{}", said(run));
}

/// An engine that tells all it knows, as careless ones do, before it does that.
fn careless(then: &str) -> String {
    format!(
        r#"
command = ["sh", "-c", "export INNER_TOKEN=planted-0001; env; echo $0 $@; echo \"{{'hf_token': '$HF_TOKEN'}}\"; {then}", "DEPLOY_TOKEN=planted-0002"]
args = ["--api-key", "planted-0003", "planted-0004", "--additional-config", '{{"password": "planted-0005", "nested": {{"api_key": "planted-0006"}}}}']
[engine.env]
GIT_PAT = "planted-0007"
NGC_AUTH = "planted-0008"
DB_PWD = "planted-0009"
HTTPS_PROXY = "http://me:planted-0010@127.0.0.1:9/"
INDEX = "https://planted-0011@127.0.0.1:9/simple?api_key=planted-0012"
HEADER = "Authorization: Bearer planted-0013"
SETTINGS = '{{"auth_token": "planted-0014"}}'
MODE = "a-mode-that-is-told"
"#
    )
}

/// The program in that bench, with secrets in its own environment and all its diagnostics.
fn command(bench: &Workbench, arguments: &[&str]) -> Command {
    let mut command = bench.command(arguments);
    let proxy = ("http_proxy", "http://me:planted-0017@127.0.0.1:9/");
    let secrets = [("HF_TOKEN", "planted-0015"), ("AWS_SECRET_ACCESS_KEY", "planted-0016"), proxy];
    command.envs(secrets).env("RUST_LOG", "trace");
    command
}

const SHARED: [&str; 5] = ["report.html", "report.md", "outcome.json", "trials.csv", "args.txt"];

#[test]
fn nothing_that_a_session_leaves_behind_holds_a_secret_or_is_anybodys_to_read() {
    let bench = Workbench::with_budget(
        &careless(&format!("shift 5; exec {BINARY} sim-engine \\\"$@\\\"")),
        "candidates = 1",
        "8s",
    );
    let mut run = command(&bench, &["--listen", "127.0.0.1:0", "--termination-log", "last-words"]).spawn().unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut before = Vec::new();
    let address = lines.by_ref().find_map(|line| {
        before.push(line.clone());
        Some(line.strip_prefix("listening on http://")?.split(": ").next()?.to_owned())
    });
    let address = address.unwrap();
    let events = std::thread::spawn(move || before.into_iter().chain(lines).collect::<Vec<String>>().join("\n"));
    let mut pages = String::new();
    while let Some(((_, status), (_, metrics))) = get(&address, "/status").zip(get(&address, "/metrics")) {
        pages = pages + &status + &metrics;
        std::thread::sleep(Duration::from_millis(200));
    }
    let run = run.wait_with_output().unwrap();
    let events = events.join().unwrap();
    assert!(bench.path("out/outcome.json").exists(), "{events}");
    for part in ["the engine is started", "DEPLOY_TOKEN=[redacted]", "load ended", "a record is written"] {
        assert!(events.contains(part), "{part} is missing in {events}");
    }
    let last_words = std::fs::read_to_string(bench.path("last-words")).unwrap();
    for text in [&events, &pages, &last_words, &said(&run)] {
        assert!(!text.is_empty() && !text.contains(PLANTED), "{text}");
    }
    let all = harmless(&bench.path("out"), |name| SHARED.contains(&name));
    assert!(all.contains("a-mode-that-is-told"), "the engine said what it knows");
    bench.assert_nothing_left();
}

#[test]
fn nothing_that_is_said_of_an_engine_that_fails_holds_a_secret() {
    let end = "echo \\\"RuntimeError: no access with $HF_TOKEN, $DB_PWD and $@\\\"; exit 1";
    let bench = Workbench::with_budget(&careless(end), "candidates = 1", "3s");
    let run = command(&bench, &[]).output().unwrap();
    assert!(said(&run).contains("no access with [redacted]"), "{}", said(&run));
    assert_says_none(&run);
    harmless(&bench.path("out"), |name| SHARED.contains(&name));
    // Nor the plan that is shown, and no object of a cluster is made of such a file.
    for arguments in [&["check"][..], &["job", "render", "--deployment", "chat", "--image", "i"]] {
        let mut command = Command::new(BINARY);
        let run = command.args(arguments).arg("--space").arg(bench.path("space.toml")).output().unwrap();
        assert_eq!(run.status.code(), Some(if arguments.len() > 1 { 2 } else { 0 }), "{}", said(&run));
        assert_says_none(&run);
    }
}

#[test]
fn mistakes_are_shown_without_the_secrets_beside_them() {
    for (engine, search, says) in [
        ("env = { HF_TOKEN = \"planted-0018\", PORT = 80 }", "", "PORT"),
        ("args = [\"--api-key\", \"planted-0018\", 4]", "", "args"),
        ("env = { HF_TOKEN = \"planted-0018\" } }", "", "space.toml"),
        ("", "[parameters.load-format]\nvalues = [\"a\", \"https://me:planted-0018@h/\"]", "cannot be tuned"),
        ("", "[parameters.hf-overrides]\nvalues = ['{\"api_key\": \"planted-0018\"}', '{}']", "cannot be tuned"),
        ("", "[parameters.hf-token]\nvalues = [\"planted-0018\", \"planted-0019\"]", "cannot be tuned"),
    ] {
        let bench = Workbench::new(engine, search);
        let run = bench.run(&[]);
        assert_eq!(run.status.code(), Some(2), "{}", said(&run));
        assert!(said(&run).contains(says), "{says}: {}", said(&run));
        assert_says_none(&run);
    }
}

/// A server that answers each request with an error that repeats all of it; ends with the test's process.
fn parrot() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = |mut stream: std::net::TcpStream| -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut request = Vec::new();
        let mut buffer = [0; 65536];
        // Head and body come in one write or in two.
        while !request.ends_with(b"}") && !request.starts_with(b"GET") {
            let read = stream.read(&mut buffer)?;
            request.extend_from_slice(&buffer[..read]);
        }
        let said: String = String::from_utf8_lossy(&request).chars().filter(|c| !c.is_control()).collect();
        let said: String = said.replace("input", "").chars().take(1000).collect();
        write!(stream, "HTTP/1.1 401 No\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{said}", said.len())
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    format!("http://{address}")
}

#[test]
fn a_benchmark_keeps_no_secret_and_its_requests_are_its_owners() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let bench = |url: &str| {
        let mut command = Command::new(BINARY);
        command
            .env("RUST_LOG", "trace")
            .args(["bench", "--url", url, "--model", "m", "--rate", "20", "--duration", "1s"])
            .arg("--out")
            .arg(&out);
        command.args(["--input-tokens", "8", "--output-tokens", "4", "--api-key", "planted-0018"]);
        command.args(["--header", "X-Auth: Basic planted-0019", "--extra-body", r#"{"api_key": "planted-0020"}"#]);
        command.output().unwrap()
    };
    let run = bench(&parrot());
    assert_eq!(run.status.code(), Some(1), "{}", said(&run));
    assert!(said(&run).contains("authorization: Bearer [redacted]"), "{}", said(&run));
    assert_says_none(&run);
    let engine = Engine::start(&[]);
    let run = engine.measure(&format!("--rate 20 --duration 1s --api-key planted-0018 --out {}", out.display()));
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    assert_says_none(&run);
    let all = harmless(&out, |name| name.ends_with(".json"));
    assert!(all.contains("\"failed\"") && all.contains("asked_out"), "{all}");
    for url in ["http://me:planted-0021@127.0.0.1:9", "http://127.0.0.1:9/?api_key=planted-0022", "me:planted-0023@h:1"]
    {
        let run = bench(url);
        assert_eq!(run.status.code(), Some(2), "{}", said(&run));
        assert_says_none(&run);
    }
}
