//! The parts of the benchmark, each against a fresh server.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use autotune::clock;
use autotune::load::RequestRecord;

use crate::process::{Server, memory, own_cpu};
use crate::stats::{TRUTH_HEAD, failures, quantile, truth};
use crate::traffic::{Traffic, driven};

/// One traffic, and what it cost both sides.
struct Run {
    records: Vec<RequestRecord>,
    client: f64,
    server: f64,
    wall: f64,
}

impl Run {
    fn new(server: &Server, model: &str, traffic: Traffic) -> Self {
        let (client, served, begun) = (own_cpu(), server.cpu(), clock::now());
        let records = driven(&server.url, model, traffic).records;
        let wall = begun.elapsed().as_secs_f64();
        // The server's own note-taking ends a moment after the last byte.
        std::thread::sleep(Duration::from_millis(50));
        Self { records, client: own_cpu() - client, server: server.cpu() - served, wall }
    }

    fn tokens(&self) -> f64 {
        self.records.iter().filter_map(|r| r.tokens_out).map(f64::from).sum()
    }
}

/// All parts; the number of failed requests.
pub fn all(quick: bool) -> usize {
    // Memory first: the highest mark of a process never sinks.
    memory_of_tokens(quick) + cost(quick) + arrivals(quick) + saturation(quick) + delays(quick)
}

fn cost(quick: bool) -> usize {
    let (tokens, seconds) = if quick { (25, 2.0) } else { (100, 10.0) };
    let rate = 200.0 * 50.0 / f64::from(tokens);
    let count = (rate * seconds) as usize;
    let server = Server::start(true);
    let model = "known?ttft=20&itl=20";
    let long = Run::new(&server, model, Traffic::at_rate(rate, count, tokens));
    let tokens_of_long = long.tokens();
    let line = truth("200 streams x 50 tokens/s", &long.records, &server.notes());
    // As many streams and tokens per second in five times as many requests: the difference is the requests' share.
    let short = Run::new(&server, model, Traffic::at_rate(rate * 5.0, count * 5, tokens / 5));
    let per_request = |long: f64, short: f64| (short - long) / (count * 4) as f64 * 1e6;
    let per_token = |long: f64, request: f64| (long * 1e6 - request * count as f64) / tokens_of_long;
    println!("CPU at 200 streams x 50 tokens/s, {count} requests of {tokens} tokens     client   server");
    let line_of = |what: &str, client: f64, server: f64| println!("  {what:63} {client:7.1}  {server:7.1}");
    line_of(
        "microseconds per token, all included",
        long.client / tokens_of_long * 1e6,
        long.server / tokens_of_long * 1e6,
    );
    let (c, s) = (per_request(long.client, short.client), per_request(long.server, short.server));
    line_of("microseconds per request without its tokens", c, s);
    line_of("microseconds per token without its request", per_token(long.client, c), per_token(long.server, s));
    line_of("percent of a core", long.client / long.wall * 100.0, long.server / long.wall * 100.0);
    println!("{TRUTH_HEAD}\n{line}\n");
    failures(&long.records) + failures(&short.records)
}

fn arrivals(quick: bool) -> usize {
    let (rate, tokens, seconds) = if quick { (300.0, 20, 4.0) } else { (200.0, 100, 20.0) };
    let life = f64::from(tokens) * 0.1;
    let server = Server::start(true);
    let run = Run::new(&server, "known?ttft=100&itl=100", Traffic::at_rate(rate, (rate * seconds) as usize, tokens));
    let late = |from: f64, until: f64| -> Vec<f64> {
        let inside = run.records.iter().filter(|r| r.due.0 >= from && r.due.0 < until);
        inside.map(|r| (r.sent - r.due).millis()).collect()
    };
    let loaded = late(life, seconds);
    println!(
        "Arrivals at {rate} requests/s with {:.0} streams open: sent minus due, ms, of {} requests",
        rate * life,
        loaded.len()
    );
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|q| quantile(&loaded, q));
    println!("  p50 {p50:.3}   p99 {p99:.3}   max {most:.3}");
    let (c, s) = (run.client / run.wall * 100.0, run.server / run.wall * 100.0);
    println!("  percent of a core: client {c:.1}, server {s:.1}");
    println!("{TRUTH_HEAD}\n{}\n", truth("with those streams open", &run.records, &server.notes()));
    failures(&run.records)
}

fn saturation(quick: bool) -> usize {
    let (streams, tokens) = if quick { (16, 5_000) } else { (16, 40_000) };
    println!("Saturation: {streams} streams, written as fast as the sockets take them");
    let one = |(what, model, tokens): (&str, &str, u32)| {
        let all = streams as f64 * f64::from(tokens);
        let server = Server::start(false);
        let run = Run::new(&server, model, Traffic::at(vec![0.0; streams], tokens));
        println!("  {what}: {:.0} tokens/s, {:.0} per core of the client", all / run.wall, all / run.client);
        println!("    the server used {:.0} % of its one core", run.server / run.wall * 100.0);
        let (served, begun) = (server.cpu(), clock::now());
        let bytes = drain(&server, model, streams, tokens);
        let wall = begun.elapsed().as_secs_f64();
        println!(
            "    read and thrown away instead: {:.0} tokens/s ({:.0} MB/s), {:.0} % of the server's core",
            all / wall,
            bytes as f64 / wall / 1e6,
            (server.cpu() - served) / wall * 100.0
        );
        failures(&run.records)
    };
    // Where the server's writes are what limits, fewer of them show the client's own limit.
    let failed = [("one token per write", "known", tokens), ("32 tokens per write", "known?coalesce=32", tokens * 8)]
        .map(one)
        .iter()
        .sum();
    println!();
    failed
}

/// Reads such streams to their ends; the number of bytes. One thread sweeps over them and sleeps in between: a reader that every
/// write wakes would cost the server more than its own work.
fn drain(server: &Server, model: &str, streams: usize, tokens: u32) -> usize {
    let body = format!("{{\"model\":\"{model}\",\"prompt\":[1,2,3],\"max_tokens\":{tokens},\"stream\":true}}");
    let length = body.len();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: known\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let open = |_| {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let mut open: Vec<TcpStream> = (0..streams).map(open).collect();
    let (mut buffer, mut bytes) = (vec![0; 1 << 20], 0);
    while !open.is_empty() {
        open.retain_mut(|stream| match stream.read(&mut buffer) {
            Ok(n) => {
                bytes += n;
                n > 0
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                true
            }
        });
        std::thread::sleep(Duration::from_micros(300));
    }
    bytes
}

fn memory_of_tokens(quick: bool) -> usize {
    let (model, few, many) = if quick { ("known?ttft=5&itl=5", 50, 400) } else { ("known?ttft=10&itl=10", 100, 1000) };
    let server = Server::start(false);
    let peak = |tokens: u32| {
        let run = Run::new(&server, model, Traffic::at(vec![0.0; 100], tokens));
        (run.tokens(), memory("VmHWM") as f64 / 1024.0, failures(&run.records))
    };
    let before = memory("VmHWM") as f64 / 1024.0;
    let ((few, low, failed), (many, high, too)) = (peak(few), peak(many));
    println!("Memory of the client: {before:.1} MiB at first, {low:.1} MiB at most with 100 streams and {few} tokens");
    let per_million = (high - low) / (many - few) * 1e6;
    println!("  {high:.1} MiB with {many} tokens: {per_million:.1} MiB per million streamed tokens\n");
    failed + too
}

fn delays(quick: bool) -> usize {
    let models = [
        "known?ttft=300&itl=60",
        "known?ttft=50&itl=10",
        "known?role&ttft=300&itl=60",
        "known?headers=150&ttft=300&itl=60",
        "known?ttft=200&itl=40&coalesce=4",
        "known?ttft=200&itl=40&pieces=16",
        "known?ttft=100&itl=40&stall=4:200",
        "known?ttft=100&itl=40&late_usage=300",
    ];
    let models = if quick { &models[..3] } else { &models[..] };
    println!("Truth over known delays, 44 requests of 12 tokens each\n{TRUTH_HEAD}");
    let one = |model: &&str| {
        let server = Server::start(true);
        let traffic = Traffic::at_rate(if quick { 80.0 } else { 40.0 }, 44, 12);
        let traffic = if model.contains("role") { traffic.chat() } else { traffic };
        let run = Run::new(&server, model, traffic);
        println!("{}", truth(model, &run.records, &server.notes()));
        failures(&run.records)
    };
    models.iter().map(one).sum()
}
