//! Connections: they are used again, and their end loses and doubles no request.

use std::time::Duration;

use crate::known::Known;
use crate::paired::{error, served};
use crate::traffic::{Traffic, driven};

#[test]
fn a_connection_serves_request_after_request() {
    let server = Known::start(1).unwrap();
    let driven = driven(&server.url(), "known", Traffic::at_rate(20.0, 20, 3));
    assert!(driven.records.iter().all(|r| error(r).is_empty()));
    assert_eq!(server.requests(), 20);
    assert!(server.connections() < 10, "{} connections for 20 requests", server.connections());
}

#[test]
fn connections_that_idled_to_their_end_lose_and_double_nothing() {
    // Five bursts; the server closes every connection between them, as uvicorn does after five seconds.
    let due = (0..60).map(|i| f64::from(i / 12) * 0.8).collect();
    for (record, served) in served("known?ttft=20&itl=5&idle=300", Traffic::at(due, 8)) {
        assert_eq!(error(&record), "", "{record:?}");
        assert!(served.whole);
    }
}

#[test]
fn streams_at_once_do_not_wait_for_each_other() {
    let pairs = served("known?ttft=1000&itl=20", Traffic::at(vec![0.0; 100], 3));
    let reads = pairs.iter().map(|(_, s)| s.read);
    let spread = reads.clone().max().unwrap() - reads.min().unwrap();
    assert!(spread < Duration::from_millis(990), "all were asked before the first was answered: {spread:?}");
}
