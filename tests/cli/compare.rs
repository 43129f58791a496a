//! `autotune compare` and `autotune verify` as their user runs them, against simulated engines.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::bench::Engine;
use crate::workbench::{BINARY, Workbench, said};

/// Limits that no machine breaks: which level breaks tighter ones depends on how busy it is. Then the difference of the limits is not known.
const KEPT: &str = "--slo ttft_p95=60s,tpot_p99=60s";
const TRAFFIC: &str = "--input-tokens 100-200 --output-tokens 16-32 --with shared_prefix_tokens=300 --duration 700ms \
                       --cool-down 1ms --slo ttft_p95=60s,tpot_p99=60s --quiet";

fn compare(sides: &[&str], flags: &str) -> Output {
    let mut command = Command::new(BINARY);
    command.arg("compare").args(sides).args(flags.split_whitespace()).stdin(Stdio::null());
    // Engines inherit it, by which those that are left are known.
    command.env("COMPARED_WITH", flags);
    command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("RUST_LOG").output().unwrap()
}

#[test]
fn prefix_caching_on_against_off_is_seen_and_what_is_not_on_ends_the_run() {
    let (off, on) = (Engine::start(&["--no-enable-prefix-caching"]), Engine::start(&[]));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let flags = format!("{TRAFFIC} --users 8,20,48 --sweeps 3 --require B:cached_share>=0.4 --out {}", out.display());
    let run = compare(&[off.url(), on.url()], &flags);
    assert_eq!(run.status.code(), Some(6), "{}", said(&run));
    let table = String::from_utf8(run.stdout.clone()).unwrap();
    for part in [
        "enable-prefix-caching: false | true",
        "B against A, paired by sweep",
        "cached",
        "3 sweeps of 3 levels",
        "add higher ones",
    ] {
        assert!(table.contains(part), "{part} is missing in\n{table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let found: Value = serde_json::from_slice(&std::fs::read(out.join("compare.json")).unwrap()).unwrap();
    let level = &found["levels"][1];
    let share = |side: usize| level["sides"][side]["cached_share"].as_f64().unwrap();
    assert!(share(0) < 0.05 && share(1) > 0.4, "{level}");
    // Both computed the same requests, and one had to compute three times as many tokens.
    assert!(level["differences"]["ttft_p95"]["ratio"].as_f64().unwrap() < -0.2, "{level}");
    assert!(found["same"].as_array().unwrap().contains(&"engine version".into()), "{}", found["same"]);
    let tsv = std::fs::read_to_string(out.join("compare.tsv")).unwrap();
    let columns: Vec<usize> = tsv.lines().map(|line| line.split('\t').count()).collect();
    assert!(tsv.contains("\nbreakpoint\tA\tusers\t") && columns.iter().all(|n| *n == columns[0]), "{tsv}");
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("TTFT p95 against its limit") && page.contains("enable-prefix-caching"), "{page}");
    let again = compare(&[off.url(), on.url()], &flags);
    let words = said(&again);
    assert!(words.contains("holds the results of an earlier comparison; name another --out"), "{words}");

    let flags = format!("{TRAFFIC} --users 8 --require cached_share>=0.4 --require A:acceptance_length>1.3");
    let run = compare(&[off.url(), on.url()], &flags);
    assert_eq!(run.status.code(), Some(7), "{}", said(&run));
    let words = said(&run).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "A is not what was to be compared: cached_share is 0, and >=0.4 is required",
        "acceptance_length is not told (its /metrics counts no drafts of speculative decoding)",
        "answers at 8 users. Is it on, and does the traffic give it something to do?",
    ] {
        assert!(words.contains(part), "{part} is missing in {words}");
    }
}

#[test]
fn prompts_of_a_file_are_sent_once_and_a_file_that_is_too_short_is_told() {
    let (a, b) = (Engine::start(&[]), Engine::start(&[]));
    let folder = tempfile::tempdir().unwrap();
    let share = |requests: u32| {
        let file = folder.path().join(format!("{requests}.jsonl"));
        // Of several blocks each, and different from the first word on.
        let line = |i: u32| format!("{{\"prompt\": \"{}\", \"output_tokens\": 8}}\n", format!("{i} word ").repeat(60));
        std::fs::write(&file, (0..requests).map(line).collect::<String>()).unwrap();
        let flags = "--users 2,4 --sweeps 2 --duration 300ms --ramp 50ms --cool-down 1ms --slo ttft_p95=10s --keep-cache --json";
        let run = compare(&[a.url(), b.url()], &format!("{flags} --dataset {}", file.display()));
        let found: Value = serde_json::from_slice(&run.stdout).unwrap();
        let sides = found["levels"].as_array().unwrap().iter().flat_map(|level| level["sides"].as_array().unwrap());
        let shares: Vec<f64> = sides.filter_map(|side| side["cached_share"].as_f64()).collect();
        (shares, found["cache"].as_str().unwrap().to_owned(), found["warnings"].to_string(), said(&run))
    };
    let (shares, cache, warnings, notes) = share(4000);
    // The warm-up sends a few of them.
    assert!(shares.iter().all(|share| *share < 0.1), "{shares:?}");
    assert!(cache.contains("every window has prompts of its own") && !warnings.contains("too few"), "{warnings}");
    assert!(!notes.contains("too few prompts"), "{notes}");
    let (shares, cache, warnings, notes) = share(12);
    assert!(shares.iter().any(|share| *share > 0.3), "{shares:?}");
    assert!(cache.contains("the file is too short for every window to have prompts of its own"), "{cache}");
    assert!(warnings.contains("the file's 12 prompts are too few: "), "{warnings}");
    assert_eq!(notes.matches("the file has too few prompts: from here on").count(), 1, "{notes}");
}

#[test]
fn one_space_file_under_two_values_is_launched_in_turns_and_leaves_nothing() {
    let bench = Workbench::new("", "");
    let (space, out) = (bench.path("space.toml").display().to_string(), bench.path("out"));
    let flags = format!(
        "--vary args.max-num-seqs=2,32 --users 4,24 --sweeps 2 --duration 600ms --cool-down 1ms {KEPT} --json --out {}",
        out.display()
    );
    let run = compare(&[&space], &flags);
    assert_eq!(run.status.code(), Some(6), "{}", said(&run));
    let found: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(found["sides"][0]["what"].as_str().unwrap().ends_with("space.toml with --max-num-seqs 2"), "{found}");
    let differs = found["differs"].as_array().unwrap();
    let expected = serde_json::json!({"name": "max-num-seqs", "a": "2", "b": "32"});
    assert!(differs.contains(&expected), "{differs:?}");
    let throughput = |side: usize| found["levels"][1]["sides"][side]["output_throughput"].as_f64().unwrap();
    assert!(throughput(1) > 1.2 * throughput(0), "{found}");
    // A, B twice in a row, A again.
    for log in ["A/t001-1", "A/t002-1", "B/t001-1"] {
        assert!(out.join("engines").join(log).join("engine.log").exists(), "{log}");
    }
    assert!(!out.join("engines/B/t002-1").exists());
    let ours = |process: &std::path::Path| {
        let words = std::fs::read(process.join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(&out.display().to_string())
    };
    let left = std::fs::read_dir("/proc").unwrap().flatten().filter(|process| ours(&process.path())).count();
    assert_eq!(left, 0, "no engine is left");

    let speculates = r#"args.speculative-config=,{"method":"ngram","num_speculative_tokens":3}"#;
    let flags = format!("--users 4,8 --sweeps 1 --duration 600ms --cool-down 1ms {KEPT} --json");
    let run = compare(&[&space, "--vary", speculates], &flags);
    assert_eq!(run.status.code(), Some(6), "{}", said(&run));
    let found: Value = serde_json::from_slice(&run.stdout).unwrap();
    let length = |side: usize| &found["levels"][0]["sides"][side]["acceptance_length"];
    assert!(length(0).is_null() && length(1).as_f64().unwrap() > 1.0, "{found}");
    let run = compare(&[&space], "--vary args.max-num-seqs=2,nonsense --users 4 --quiet");
    assert_eq!(run.status.code(), Some(4), "{}", said(&run));
    assert!(said(&run).contains("the engine of B did not start"), "{}", said(&run));
}

#[test]
fn what_cannot_be_compared_is_refused_at_once() {
    let bench = Workbench::new("", "");
    let space = bench.path("space.toml").display().to_string();
    let url = "http://127.0.0.1:1";
    for (sides, flags, part) in [
        (vec![url], "--users 4", "compare needs two sides: two addresses, two space files or runs"),
        (
            vec![url, url],
            "--users 4 --slo ttft_p95=1s --vary args.x=1,2",
            "--vary makes both sides from one space file",
        ),
        (
            vec![url],
            "--users 4 --vary args.x=1,2",
            "a server that runs cannot be launched with another value: give a space file, or the object",
        ),
        (vec![url, url], "--users 4", "compare needs limits, such as --slo ttft_p95=400ms"),
        (vec![url, url], "--users 4 --slo ttft_p95=1s --container engine", "--container is of an object of a cluster"),
        (vec![url, url], "--users 4 --rates 1 --slo ttft_p95=1s", "cannot be used with"),
        (vec![url, url], "--rates 0 --slo ttft_p95=1s", "a rate is a number of requests per second above 0"),
        (
            vec![url, url],
            "--users 4 --slo ttft_p95=1s --require B:speed>2",
            "write a condition such as B:cached_share>=0.9",
        ),
        (
            vec![&space],
            "--users 4 --vary Frontend:env.DYN_ROUTER_MODE=round_robin,kv",
            "for an object of a cluster, name it, such as --deployment NAME, beside its address",
        ),
        (vec![url], "--users 4 --deployment chat", "give the one address by which it is reached, and --vary NAME=A,B"),
        (vec![&space], "--users 4 --deployment chat --vary env.A=1,2", "is no address: an object is measured through"),
        (vec![url], "--users 4 --deployment chat --statefulset chat --vary env.A=1,2", "cannot be used with"),
    ] {
        let run = compare(&sides, flags);
        assert!(run.status.code() == Some(2) && said(&run).contains(part), "{flags}: {}", said(&run));
    }
    let same = Engine::start(&[]);
    let run = compare(&[same.url(), same.url()], &format!("{TRAFFIC} --users 2 --keep-cache"));
    assert_eq!(run.status.code(), Some(2), "{}", said(&run));
    assert!(said(&run).contains("A and B are one server, and its prefix cache is not emptied"), "{}", said(&run));
}

#[test]
fn an_engine_is_verified_against_its_own_outcome() {
    let bench = Workbench::new("", "");
    let run = bench.run(&["--quiet"]);
    assert!(bench.has_answered(run.status), "{}", said(&run));
    let verify = |folder: &str, against: &str, flags: &str| {
        let mut command = Command::new(BINARY);
        command.args(["verify", "--against", against]).args(flags.split_whitespace()).current_dir(bench.path(folder));
        command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("RUST_LOG").stdin(Stdio::null()).output().unwrap()
    };
    let short = "--sweeps 3 --duration 600ms --cool-down 1ms --quiet";
    // What was sent then is in the journal, whatever became of the space file.
    std::fs::remove_file(bench.path("space.toml")).unwrap();
    // A far slower one is worse.
    let slow = Engine::start(&["--max-num-seqs", "1"]);
    let run = verify("out", "outcome.json", &format!("{short} --url {} --equal-within 5%", slow.url()));
    assert_eq!(run.status.code(), Some(3), "{}", said(&run));
    assert!(String::from_utf8_lossy(&run.stdout).contains("worse: "), "{}", said(&run));
    // An engine that serves several times its earlier limit, on a busy machine too.
    let mut outcome: Value = serde_json::from_slice(&std::fs::read(bench.path("out/outcome.json")).unwrap()).unwrap();
    outcome["best"]["limit"] = 8.0.into();
    std::fs::write(bench.path("out/outcome.json"), outcome.to_string()).unwrap();
    let run = verify("", "out", &format!("{short} {KEPT} --equal-within 50% --out verified"));
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    assert!(text.contains("same or better: every rate that was measured keeps the limits"), "{text}");
    assert!(text.contains("earlier   limit ") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let found: Value = serde_json::from_slice(&std::fs::read(bench.path("verified/verify.json")).unwrap()).unwrap();
    assert_eq!(found["levels"].as_array().unwrap().len(), 5, "{found}");
    let run = verify("", "out", "--think 5s");
    assert!(run.status.code() == Some(2) && said(&run).contains("verify sends rates"), "{}", said(&run));
}
