//! The simulated engine over a real socket, in this process: shapes of streams, usage, errors, metrics, faults.

#![expect(clippy::disallowed_methods, reason = "the answers are our own, and end")]

mod endpoints;
mod faults;
mod flags;
mod streams;

use clap::Parser;
use serde_json::Value;
use tokio::sync::oneshot;

use super::*;
use autotune_clock as clock;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: SimArgs,
}

fn args(words: &str) -> SimArgs {
    Cli::try_parse_from(["sim-engine", "m"].into_iter().chain(words.split_whitespace())).unwrap().args
}

fn client() -> reqwest::Client {
    autotune_http::access::Access::default().builder("http://127.0.0.1").unwrap().build().unwrap()
}

struct Server {
    base: String,
    stop: Option<oneshot::Sender<()>>,
    code: tokio::task::JoinHandle<u8>,
}

impl Server {
    /// The server without its child process: the test binary is no engine core.
    async fn start(words: &str) -> Self {
        Self::of(args(&format!("{words} --sim-dev-mode"))).await
    }

    async fn of(args: SimArgs) -> Self {
        let flags = args.flags();
        let limits = args.sim_profile.limits_under(&flags).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let code = tokio::spawn(async move {
            let config = start::config(&args, &flags, limits);
            serve(listener, config, &args, None, async { drop(stopped.await) }).await
        });
        Self { base, stop: Some(stop), code }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let response = client().get(format!("{}{path}", self.base)).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn post(&self, path: &str, body: Value) -> (u16, String) {
        let response = client().post(format!("{}{path}", self.base)).json(&body).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").await.1;
        let line = page.lines().find(|l| l.starts_with(&format!("vllm:{name}{{"))).unwrap_or_else(|| panic!("{name}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    async fn stop(mut self) -> u8 {
        self.stop.take().unwrap().send(()).unwrap();
        self.code.await.unwrap()
    }
}

/// The JSON of each event; the stream must be made of `data:` events and end with `[DONE]`.
fn events(stream: &str) -> Vec<Value> {
    let mut events: Vec<&str> = stream.strip_suffix("\n\n").unwrap().split("\n\n").collect();
    assert_eq!(events.pop(), Some("data: [DONE]"));
    events.iter().map(|e| serde_json::from_str(e.strip_prefix("data: ").unwrap()).unwrap()).collect()
}

fn prompt(words: usize) -> String {
    (0..words).map(|i| format!("w{i} ")).collect()
}
