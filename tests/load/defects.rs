//! Defects: every request has a record that says what went wrong, and none is lost.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use autotune::clock;
use autotune::load::RequestRecord;
use autotune::settings::limits;
use autotune::units::Seconds;
use autotune::verdict::{Certainty, Course, Outcome, Window, judge};

use crate::paired::{error, served};
use crate::traffic::{Traffic, driven};

fn soon(count: usize) -> Traffic {
    Traffic::at_rate(100.0, count, 8)
}

/// All requests of such traffic end with one of these words, and the server served each of them once.
fn all_end_with(model: &str, words: &[&str], traffic: Traffic) {
    for (record, _) in served(model, traffic) {
        assert!(words.contains(&error(&record)), "{model}: {record:?}");
    }
}

#[test]
fn an_error_inside_a_stream_is_an_error() {
    all_end_with("known?error=0", &["in-stream"], soon(20));
    all_end_with("known?itl=5&error=4", &["in-stream"], soon(20));
    all_end_with("known?itl=5&error=4&role&coalesce=3", &["in-stream"], soon(20).chat());
}

#[test]
fn statuses_are_told_apart() {
    all_end_with("known?status=429", &["too-many-requests"], soon(20));
    all_end_with("known?status=503", &["unavailable"], soon(20));
    all_end_with("known?status=500", &["status"], soon(20));
    all_end_with("known?status=404&headers=50", &["status"], soon(20));
}

#[test]
fn a_stream_without_its_end_is_truncated() {
    all_end_with("known?nodone", &["truncated"], soon(20));
    all_end_with("known?nousage", &["truncated"], soon(20));
}

#[test]
fn a_closed_connection_is_an_error() {
    all_end_with("known?drop", &["connection"], soon(20));
    all_end_with("known?cut=0", &["truncated"], soon(20));
}

#[test]
fn two_thousand_streams_cut_at_once_are_all_counted() {
    let begun = clock::now();
    let pairs = served("known?ttft=1500&itl=20&cut=5", Traffic::at(vec![0.0; 2000], 10));
    assert!(begun.elapsed() < Duration::from_secs(30), "it does not hang: {:?}", begun.elapsed());
    for (record, served) in pairs {
        assert_eq!(error(&record), "truncated", "{record:?}");
        assert_eq!(served.tokens.len(), 5);
        assert!(record.first.is_some() && record.gaps.len() <= 4, "half an event is no token: {record:?}");
    }
}

#[test]
fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    drop(none_is_answered(&url, "refused-connection"));
}

#[test]
fn a_name_that_nobody_knows() {
    // Reserved for this purpose by RFC 6761.
    drop(none_is_answered("http://nobody.invalid:8000", "dns"));
}

#[test]
fn a_server_that_speaks_no_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let speaker = std::thread::spawn(move || {
        for connection in listener.incoming().take(20) {
            connection.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        }
    });
    drop(none_is_answered(&url, "tls"));
    speaker.join().unwrap();
}

#[test]
fn a_stream_of_tokens_without_an_end_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let event = b"data: {\"choices\":[{\"index\":0,\"text\":\" mouse\"}]}\n\n";
    let speaker = std::thread::spawn(move || {
        let streams = listener.incoming().take(20).map(|connection| {
            std::thread::spawn(move || {
                let mut connection = connection.unwrap();
                // It answers whatever it is asked.
                let _ = connection.read(&mut [0; 1 << 16]).unwrap();
                connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").unwrap();
                while connection.write_all(&event.repeat(64)).is_ok() {}
            })
        });
        streams.collect::<Vec<_>>().into_iter().for_each(|stream| stream.join().unwrap());
    });
    for record in none_is_answered(&url, "malformed") {
        assert!(record.why.as_ref().unwrap().contains("asked for"), "{record:?}");
        assert!(record.gaps.len() < 5_000, "{}", record.gaps.len());
    }
    speaker.join().unwrap();
}

/// Every request has a record with that class, and every one breaks the promise.
fn none_is_answered(url: &str, class: &str) -> Vec<RequestRecord> {
    let begun: Instant = clock::now();
    let driven = driven(url, "known", soon(20));
    assert_eq!(driven.records.len(), 20);
    assert!(begun.elapsed() < Duration::from_secs(30));
    for record in &driven.records {
        assert_eq!(error(record), class, "{:?}", record.why);
        assert!(record.why.is_some());
    }
    let limits = limits("ttft_p99=10s").unwrap();
    let window = Window { from: Seconds(0.0), to: Seconds(1.0) };
    let course = Course { window, ended: driven.ended, complete: true, steady: true };
    let verdict = judge(&driven.records, &limits, course, &driven.health, Certainty(0.5));
    assert_eq!((verdict.outcome, verdict.limits[0].violations), (Outcome::Fail, 20), "{}", verdict.because);
    assert_eq!(verdict.errors.get(class), Some(&20));
    driven.records
}
