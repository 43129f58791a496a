//! Defects: every request has a record that says what went wrong, and none is lost.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use autotune::clock;

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
    all_end_with("known?status=429", &["too-many-requests", "refused"], soon(20));
    all_end_with("known?status=503", &["unavailable", "refused"], soon(20));
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
    all_end_with("known?cut=0", &["truncated", "connection"], soon(20));
}

#[test]
fn two_hundred_streams_cut_at_once_are_all_counted() {
    let begun = clock::now();
    let pairs = served("known?ttft=200&itl=20&cut=5&idle=100", Traffic::at(vec![0.0; 200], 10));
    assert!(begun.elapsed() < Duration::from_secs(15), "it does not hang: {:?}", begun.elapsed());
    for (record, served) in pairs {
        assert!(["truncated", "connection"].contains(&error(&record)), "{record:?}");
        assert_eq!(served.tokens.len(), 5);
        assert!(record.first.is_some() && record.gaps.len() <= 4, "half an event is no token: {record:?}");
    }
}

#[test]
fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let begun: Instant = clock::now();
    let driven = driven(&url, "known", soon(20));
    assert_eq!(driven.records.len(), 20);
    assert!(driven.records.iter().all(|r| ["refused-connection", "connection"].contains(&error(r))));
    assert!(begun.elapsed() < Duration::from_secs(10));
}
