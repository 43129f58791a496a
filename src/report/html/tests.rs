use std::path::{Path, PathBuf};

use super::*;
use crate::journal::{Journal, Record, read};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn stored(name: &str) -> Journal {
    read(&std::fs::read(folder(name).join("journal.jsonl")).unwrap()).unwrap()
}

fn made(journal: &Journal, folder: &Path) -> String {
    let page = page(&ReportData::new(journal, folder));
    assert_well_formed(&page);
    page.replace('\u{a0}', " ").replace("<code>", "").replace("</code>", "")
}

/// Each tag is closed in its order, and nothing but tags opens one.
pub(in crate::report) fn assert_well_formed(page: &str) {
    let (head, rest) = page.split_once("<style>").unwrap();
    let (_, rest) = rest.split_once("</style>").unwrap();
    let text = format!("{}{rest}", head.strip_prefix("<!DOCTYPE html>").unwrap());
    let mut open: Vec<&str> = Vec::new();
    for part in text.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("not closed: {part}"));
        assert!(!text.contains('>') && !tag.contains('\n'), "{part}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric()), "{tag}");
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name), "{part}"),
            (false, true) => {}
            (false, false) => open.push(name),
        }
        for entity in text.split('&').skip(1).chain(tag.split('&').skip(1)) {
            assert!(["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|e| entity.starts_with(e)), "&{entity}");
        }
    }
    assert_eq!(open, Vec::<&str>::new());
    for wrong in ["NaN", "\"inf", " inf", "<script", "href=\"http", "url("] {
        assert!(!page.contains(wrong), "{wrong}");
    }
}

#[test]
fn a_finished_run_answers_first_and_shows_what_it_rests_on() {
    let name = "results/h200-8b";
    let page = made(&stored(name), &folder(name));
    for part in [
        "<span class=\"badge measured\">Measured</span>",
        "<h1>The defaults are the best point found with this budget.</h1>",
        "<p class=\"number\">14.88 req/s</p><p>certified, 95 % sure</p>",
        "by estimate: defaults 15.78 req/s, standard error 3.1 %.",
        "--max-num-batched-tokens 8192 \\\n--max-num-seqs 1024",
        "- &quot;--max-num-seqs&quot;\n- &quot;1024&quot;</pre>",
        "nearest probe at",
        "Latencies: of the certifying probe nearest to the certified rate, not at that rate.",
        "TTFT p99 against its limit",
        "defaults: 14.88 req/s certified",
        "Fewer than two points were probed at a rate",
        "Engine time as the budget counts it: 8 min of 12 min",
        "Trial 2, probe 2, with the defaults: a certifying probe at 15.93 req/s. 1455 requests count",
        "Arrivals: 13.73 req/s asked, 13.79 req/s arrived (+0.4 %), 1241 requests count.",
        "TPOT p99, judged by the paired estimate: 16.4 ms in a long run",
        "--space .h200/8b.toml --seed 1 --budget 720s --strategy bayes --precision 4%",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    let places: Vec<usize> = ["answer", "promises", "parameters", "time", "requests", "evidence", "repeat"]
        .iter()
        .map(|id| page.find(&format!("<section id=\"{id}\">")).unwrap())
        .collect();
    assert!(places.is_sorted());
    assert!(page.len() < 300_000, "{} bytes", page.len());
}

#[test]
fn an_unfinished_run_shows_what_there_is_and_says_what_is_missing() {
    let name = "tests/data/h200-turns";
    let journal = stored(name);
    let page = made(&journal, &folder(name));
    for part in [
        "<h1>Stopped before its end.</h1>",
        "There is no answer yet: 4 trials and 4 probes at a rate are recorded, and shown below.",
        "Nothing was certified. All rates above are estimates of the search.",
        "3 points were probed at a rate.",
        "autotune --space phase1.toml --seed 1 --budget 5400s --strategy bayes --precision 4% --out /",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    // Its requests may be elsewhere.
    let elsewhere = made(&journal, Path::new("/nowhere"));
    assert!(elsewhere.contains("Its requests cannot be shown: requests/") && elsewhere.contains("is missing"));
    let empty = made(&Journal::default(), Path::new("/nowhere"));
    assert!(!empty.contains("id=\"promises\"") && !empty.contains("href=\"#requests\""), "nothing is there to show");
    for end in 0..journal.entries.len() {
        made(&Journal { entries: journal.entries[..end].to_vec(), ..Journal::default() }, &folder(name));
    }
}

#[test]
fn the_reasons_of_a_long_headline_stand_below_it() {
    let name = "results/h200-8b";
    let mut journal = stored(name);
    for entry in &mut journal.entries {
        if let Record::Concluded(conclusion) = &mut entry.record {
            (conclusion.baseline, conclusion.best) = (None, None);
            conclusion.because = format!("no point keeps the promises; at 60.0 req/s, {}", "too slow ".repeat(12));
        }
    }
    let page = made(&journal, &folder(name));
    assert!(page.contains("<h1>No point keeps the promises.</h1><ul><li>at 60.0 req/s, too slow"));
}

#[test]
fn what_no_probe_measured_is_not_what_no_rate_holds() {
    let name = "results/h200-8b";
    let mut journal = stored(name);
    for entry in &mut journal.entries {
        if let Record::Launching { point, .. } = &mut entry.record {
            *point = point.clone().with("max-num-seqs", crate::space::Value::Int(1024));
        }
        if let Record::Concluded(conclusion) = &mut entry.record {
            let Some(best) = &mut conclusion.best else { panic!("it has an answer") };
            best.certified_rate = None;
            best.estimated_rate = None;
            let elsewhere = best.point.clone().with("max-num-seqs", crate::space::Value::Int(7));
            conclusion.baseline = Some(crate::journal::PointResult { point: elsewhere, ..best.clone() });
        }
    }
    let page = made(&journal, &folder(name));
    for part in [
        "<p>defaults</p><p class=\"number\">not measured</p><p>no probe at a rate</p>",
        "<p>tuned</p><p class=\"number\">no rate</p><p>none that was tried holds</p>",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
}

#[test]
fn a_probe_that_was_cut_is_drawn_where_it_broke_and_legends_name_what_is_drawn() {
    let name = "results/h200-8b";
    let mut journal = stored(name);
    let whole = made(&journal, &folder(name));
    assert!(whole.contains("defaults, measured") && whole.contains("defaults, in a long run"));
    for absent in ["tuned, measured", "other candidates", "above the limit, then cut", "(90 %)"] {
        assert!(!whole.contains(absent), "{absent}");
    }
    for entry in &mut journal.entries {
        if let Record::Probed { verdict, .. } = &mut entry.record {
            for limit in &mut verdict.limits {
                (limit.measured, limit.margin, limit.paired) = (None, None, None);
                limit.violations = if limit.key == "ttft_p99" { limit.observations } else { 0 };
            }
        }
    }
    journal.entries.retain(|entry| !matches!(entry.record, Record::Fitted { .. }));
    let cut = made(&journal, &folder(name));
    for part in
        ["<path class=\"limit hollow\"", "above the limit, then cut", "Not measured: every probe was cut before."]
    {
        assert!(cut.contains(part), "{part}");
    }
}

#[test]
fn hostile_names_are_shown_as_text() {
    let name = "results/h200-8b";
    let mut journal = stored(name);
    let hostile = "</title><img src=x onerror=\"alert(1)\">'&\u{1b}[2J";
    for entry in &mut journal.entries {
        match &mut entry.record {
            Record::Header(header) => {
                header.space_file = hostile.to_owned();
                header.plan.engine.args.push(hostile.to_owned());
                header.plan.space.parameters[0].values[0] = crate::space::Value::Text(hostile.to_owned());
            }
            Record::Ready { ready, .. } => ready.model = hostile.to_owned(),
            Record::Probed { verdict, .. } => verdict.because = hostile.to_owned(),
            Record::Concluded(conclusion) => conclusion.left_out.push(hostile.to_owned()),
            _ => {}
        }
    }
    let page = made(&journal, &folder(name));
    assert!(!page.contains("<img") && !page.contains('\u{1b}'));
    assert!(page.contains("&lt;img src=x onerror=&quot;alert(1)&quot;&gt;&#39;&amp;\u{fffd}[2J"));
}

/// Adds a hundred probes of a hundred other points before the answer, and gives every probe the same five thousand requests.
fn with_many_probes(journal: &mut Journal, place: &Path) {
    let recorded = std::fs::read_dir(folder("results/h200-8b").join("requests")).unwrap().next().unwrap().unwrap();
    let text = std::fs::read_to_string(recorded.path()).unwrap();
    let (head, rows) = text.split_once('\n').unwrap();
    let rows: Vec<&str> = rows.lines().cycle().take(5_000).collect();
    std::fs::write(place.join("many.csv"), format!("{head}\n{}\n", rows.join("\n"))).unwrap();
    let answer = journal.entries.pop().unwrap();
    let of = |wanted: fn(&Record) -> bool| journal.entries.iter().find(|e| wanted(&e.record)).unwrap().clone();
    let (launching, probed) = (
        of(|record| matches!(record, Record::Launching { .. })),
        of(|record| matches!(record, Record::Probed { ask, .. } if !ask.is_burst())),
    );
    for n in 0..100 {
        let (mut launching, mut probed) = (launching.clone(), probed.clone());
        if let Record::Launching { trial, point, purpose, .. } = &mut launching.record {
            (*trial, *purpose) = (1_000 + n, crate::journal::Purpose::Search);
            *point = point.clone().with("max-num-seqs", crate::space::Value::Int(i64::from(n)));
        }
        if let Record::Probed { trial, ask, .. } = &mut probed.record {
            (*trial, ask.rate.0) = (1_000 + n, 5.0 + 0.2 * f64::from(n));
        }
        journal.entries.extend([launching, probed]);
    }
    journal.entries.push(answer);
    for entry in &mut journal.entries {
        if let Record::Probed { requests, requests_sha256, .. } = &mut entry.record {
            (*requests, *requests_sha256) = ("many.csv".to_owned(), None);
        }
    }
}

#[test]
fn a_hundred_probes_of_five_thousand_requests_fit_into_two_megabytes() {
    let place = tempfile::tempdir().unwrap();
    let mut journal = stored("results/h200-8b");
    with_many_probes(&mut journal, place.path());
    let page = made(&journal, place.path());
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    assert!(page.contains("requests count") && !page.contains("cannot be shown"), "its requests are drawn");
    assert!(page.matches("trial 1").count() > 100);
    if let Some(kept) = std::env::var_os("KEEP") {
        // For whoever wants to see it, or to measure the program with it.
        let lines = journal.entries.iter().map(|entry| serde_json::to_string(entry).unwrap() + "\n");
        std::fs::write(Path::new(&kept).join("journal.jsonl"), lines.collect::<String>()).unwrap();
        std::fs::copy(place.path().join("many.csv"), Path::new(&kept).join("many.csv")).unwrap();
    }
}

#[test]
fn what_certification_expects_is_a_band_and_the_cache_a_line() {
    let name = "results/h200-8b";
    let mut journal = stored(name);
    assert!(!made(&journal, &folder(name)).contains("class=\"band"), "an earlier journal holds none");
    for entry in &mut journal.entries {
        match &mut entry.record {
            Record::Probed { telemetry, .. } => {
                telemetry.kv_usage =
                    (0..100).map(|i| (crate::units::Seconds(f64::from(i)), 0.004 * f64::from(i))).collect();
            }
            Record::Concluded(conclusion) => {
                let margins =
                    [12.0, 13.0, 14.0, 15.0, 16.0].map(|rate| (crate::units::Rate(rate), (rate - 16.0) / 10.0, 0.05));
                let expected = crate::journal::ExpectedQuantile { key: "tpot_p99".into(), margins: margins.to_vec() };
                // The defaults are the answer.
                for answer in conclusion.best.iter_mut().chain(&mut conclusion.baseline) {
                    answer.expected = vec![expected.clone()];
                }
            }
            _ => {}
        }
    }
    let page = made(&journal, &folder(name));
    assert_eq!(page.matches("<path class=\"band defaults\" d=\"M").count(), 2, "in the legend and in one chart");
    // Between the rates on both sides of the certified one.
    let latency = "<td>17.9 ms</td>";
    let says = "Latencies: expected at the certified rate, from all certifying probes";
    for part in ["defaults, expected (90 %)", "Use of the KV cache", latency, says] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("nearest probe at"));
}
