//! `--listen`: where a session stands, asked over HTTP while it runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Child;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::workbench::{Workbench, half_sent, said};

/// Head and body of an answer; none where nobody listens.
pub fn get(address: &str, path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

/// Where a session listens, and what else it says.
fn listening(session: &mut Child) -> (String, JoinHandle<String>) {
    let mut lines = BufReader::new(session.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address =
        lines.find_map(|line| Some(line.strip_prefix("listening on http://")?.split(": ").next()?.to_owned()));
    // A full pipe would stop the session.
    (address.unwrap(), std::thread::spawn(move || lines.collect::<Vec<String>>().join("\n")))
}

/// The value of a metric without labels.
fn metric(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn a_session_says_over_http_where_it_stands_until_it_ends() {
    let bench = Workbench::certifying("");
    let mut run = bench.command(&["--listen", "127.0.0.1:0"]).spawn().unwrap();
    let (address, rest) = listening(&mut run);

    let (head, body) = get(&address, "/healthz").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && body == "ok\n", "{head}\n{body}");
    assert!(get(&address, "/").unwrap().0.starts_with("HTTP/1.1 404"));
    // Somebody who asks and never reads is no burden.
    let mut idle = TcpStream::connect(&address).unwrap();
    idle.write_all(b"GET /status HTTP/1.1\r\n").unwrap();

    let (mut launches, mut probes, mut phases, mut best) = (vec![], vec![], vec![], None);
    while let Some(((head, status), (_, page))) = get(&address, "/status").zip(get(&address, "/metrics")) {
        assert!(head.contains("application/json"), "{head}");
        let status: Value = serde_json::from_str(&status).unwrap();
        assert_eq!((&status["version"], &status["about"]["simulated"]), (&1.into(), &true.into()));
        assert!(!page.contains("NaN") && page.contains("# TYPE autotune_probes_total counter"), "{page}");
        launches.push(metric(&page, "autotune_launches_total").unwrap());
        probes.push(metric(&page, "autotune_probes_total").unwrap());
        phases.push(status["phase"].as_str().unwrap().to_owned());
        best = metric(&page, "autotune_best_rate_requests_per_second").or(best);
        // The page may be a probe ahead of the status.
        if status["cost"]["probes"].as_f64().unwrap() > 0.0 {
            assert!(status["last_probe"]["rate"].as_f64().unwrap() > 0.0, "{status}");
            assert!(metric(&page, "autotune_time_left_seconds").is_some(), "{page}");
            assert_eq!(status["model"], "sim-model", "{status}");
        }
        assert!(status["since"].as_f64().unwrap() < 30.0, "{status}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let status = run.wait().unwrap();
    let words = rest.join().unwrap();
    assert_eq!(status.code(), Some(0), "{words}");
    assert!(TcpStream::connect(&address).is_err(), "the port is gone");
    for counts in [&launches, &probes] {
        assert!(counts.is_sorted() && counts.last() > counts.first(), "{counts:?}");
    }
    let cost = bench.outcome().cost;
    assert!(*launches.last().unwrap() <= f64::from(cost.launches), "{launches:?}, {cost:?}");
    assert!(*probes.last().unwrap() <= f64::from(cost.probes), "{probes:?}, {cost:?}");
    assert!(phases.iter().any(|phase| phase == "baseline"), "{phases:?}");
    assert!(best.is_some_and(|rate| rate > 0.0), "{best:?}\n{words}");
    bench.assert_nothing_left();
}

#[test]
fn an_address_that_cannot_be_had_is_said_before_anything_is_touched() {
    let bench = Workbench::new("", "");
    let somebody = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = somebody.local_addr().unwrap().to_string();
    for (address, parts) in [
        (taken.as_str(), &[taken.as_str(), "in use", "port 0"][..]),
        ("192.0.2.1:0", &["192.0.2.1:0", "hint"]),
        ("localhost", &["localhost", "127.0.0.1:9090"]),
    ] {
        let refused = bench.run(&["--listen", address]);
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        for part in parts {
            assert!(said(&refused).contains(part), "{part} is missing in {}", said(&refused));
        }
    }
    assert!(!bench.path("out").exists());
}

#[test]
fn requests_that_come_to_no_end_take_no_file_from_a_session() {
    let bench = Workbench::too_short();
    let mut run = bench.command_of_few_files(&["--listen", "127.0.0.1:0"]).spawn().unwrap();
    let (address, rest) = listening(&mut run);
    let half = half_sent(&address);
    assert!(half.len() > 100, "{}", half.len());
    let (status, words) = (run.wait().unwrap(), rest.join().unwrap());
    assert!(bench.measured_nothing(status), "{status:?} {words}");
    bench.assert_nothing_left();
}
