//! Times: the client's stamps beside the instants at which the server really wrote.
//!
//! The delays are long (tens of milliseconds), and medians over at least 40 requests are compared. They agree within 1 ms or 2 %, whichever is more:
//! a scheduler that is late now and then moves no median. Where the whole machine is busy, a comparison is tried three times.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use autotune::load::RequestRecord;

use crate::known::Served;
use crate::paired::{error, served};
use crate::traffic::Traffic;

const TRIES: usize = 3;
const REQUESTS: usize = 44;

/// One comparison at a time: two of them would share the cores that they measure.
static ALONE: Mutex<()> = Mutex::new(());

/// Medians in milliseconds of one side.
#[derive(Debug)]
struct Times {
    ttft: f64,
    tpot: f64,
    itl: f64,
    largest: f64,
    arrivals: f64,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn times(pairs: &[(RequestRecord, Served)], of: impl Fn(&(RequestRecord, Served)) -> (f64, f64, Vec<f64>)) -> Times {
    let each: Vec<_> = pairs.iter().map(of).collect();
    Times {
        ttft: median(each.iter().map(|e| e.0).collect()),
        tpot: median(each.iter().map(|e| e.1).collect()),
        itl: median(each.iter().flat_map(|e| e.2.iter().copied()).collect()),
        largest: median(each.iter().map(|e| e.2.iter().copied().fold(0.0, f64::max)).collect()),
        arrivals: median(each.iter().map(|e| e.2.len() as f64 + 1.0).collect()),
    }
}

/// What the client says, from the request's sending.
fn client((record, _): &(RequestRecord, Served)) -> (f64, f64, Vec<f64>) {
    let ttft = (record.first.unwrap() - record.sent).millis();
    (ttft, record.tpot().unwrap().millis(), record.gaps.iter().map(|g| f64::from(*g) * 1e3).collect())
}

/// What the server did, from the request's reading; tokens of one write are one arrival.
fn server((_, served): &(RequestRecord, Served)) -> (f64, f64, Vec<f64>) {
    let (first, last) = (served.tokens[0], served.tokens[served.tokens.len() - 1]);
    let millis = |span: Duration| span.as_secs_f64() * 1e3;
    let mut writes = served.tokens.clone();
    writes.dedup();
    (
        millis(first - served.read),
        millis(last - first) / (served.tokens.len() - 1) as f64,
        writes.windows(2).map(|pair| millis(pair[1] - pair[0])).collect(),
    )
}

/// What two sides are compared in.
const ALL: [&str; 5] = ["TTFT", "TPOT", "the largest gap", "ITL", "the number of arrivals"];

fn differs(what: &str, client: &Times, server: &Times) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= (b * 0.02).max(1.0);
    !match what {
        "TTFT" => near(client.ttft, server.ttft),
        "TPOT" => near(client.tpot, server.tpot),
        "the largest gap" => near(client.largest, server.largest),
        "ITL" => near(client.itl, server.itl),
        _ => client.arrivals == server.arrivals,
    }
}

/// Compares both sides, and gives back what the server's own delays came to.
fn compare(model: &str, traffic: Traffic) -> Times {
    compare_in(&ALL, model, traffic)
}

fn compare_in(what: &[&str], model: &str, traffic: Traffic) -> Times {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..TRIES {
        let (prompt_tokens, tokens) = (traffic.prompt_tokens, traffic.tokens);
        let pairs = served(model, traffic.clone());
        for (record, served) in &pairs {
            assert_eq!(error(record), "", "{model}: {record:?}");
            assert_eq!((record.tokens_in, record.tokens_out), (Some(prompt_tokens), Some(tokens)), "{model}");
            assert_eq!(record.tokens_cached, Some(0), "{model}");
            assert_eq!((served.tokens.len(), served.whole), (tokens as usize, true), "{model}");
        }
        let (client, server) = (times(&pairs, client), times(&pairs, server));
        println!("{model}\n  client {client:.3?}\n  server {server:.3?}");
        match what.iter().find(|what| differs(what, &client, &server)) {
            None => return server,
            Some(what) => println!("  {what} differs"),
        }
    }
    panic!("{model}: client and server differ in {TRIES} tries");
}

fn steady(tokens: u32) -> Traffic {
    Traffic::at_rate(40.0, REQUESTS, tokens)
}

#[test]
fn a_plain_stream() {
    let server = compare("known?ttft=300&itl=60", steady(9));
    assert!(server.ttft >= 300.0 && server.itl > 55.0, "the server keeps its own word: {server:?}");
}

#[test]
fn a_chat_begins_with_a_role_that_is_no_token() {
    let server = compare("known?role&ttft=300&itl=60", steady(6).chat());
    assert!(server.ttft >= 300.0, "{server:?}");
}

#[test]
fn headers_are_no_token_however_they_come() {
    compare("known?headers=0&ttft=400&itl=60", steady(4));
    compare("known?headers=250&ttft=300&itl=60", steady(4));
}

const SHARED: &str = "known?ttft=200&itl=40&coalesce=4";

#[test]
fn tokens_that_share_a_write_count_one_by_one() {
    let server = compare_in(&ALL[..3], SHARED, steady(12));
    assert!(server.tpot < 32.0, "three writes of four tokens, 160 ms apart: {server:?}");
}

#[test]
fn tokens_that_share_a_write_are_one_arrival() {
    let server = compare(SHARED, steady(12));
    assert_eq!(server.arrivals, 3.0);
    assert!((server.itl - 160.0).abs() < 16.0, "{server:?}");
}

#[test]
fn a_stream_in_single_bytes_is_stamped_when_its_events_are_whole() {
    compare("known?ttft=300&itl=150&pieces=1", Traffic::at_rate(16.0, REQUESTS, 4));
}

#[test]
fn a_token_without_text_is_a_token() {
    compare("known?ttft=200&itl=80&empty=0", steady(4));
    compare("known?role&ttft=200&itl=80&empty=0", steady(4).chat());
}

#[test]
fn a_stall_is_the_largest_gap() {
    let server = compare("known?ttft=200&itl=50&stall=4:300", steady(8));
    assert!(server.largest > 345.0, "{server:?}");
}

#[test]
fn late_usage_is_no_time_of_tokens() {
    compare("known?ttft=200&itl=60&late_usage=500", steady(5));
}
