//! The simulated engine as TensorRT-LLM behind Dynamo: a worker (`-m dynamo.trtllm`) with its flags, metrics and log lines, and the frontend
//! beside it (`-m dynamo.frontend`). The frontend routes nothing: it passes connections to the one worker, and the worker answers for both.
//! Faults speak as vLLM.

use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::args::SimArgs;
use super::engine::Snapshot;
use super::http::{App, page};
use super::info::Config;
use super::log::raw;
use autotune_clock as clock;
use autotune_http::serving::{Limits, Serving};
use autotune_twin::MemoryFailure;

/// Its flags, and those of the simulated engine that stand for them.
pub(super) const FLAGS: [(&str, &str); 12] = [
    ("--model-path", "--model"),
    ("--model", "--model"),
    ("--served-model-name", "--served-model-name"),
    ("--tensor-parallel-size", "--tensor-parallel-size"),
    ("--kv-block-size", "--sim-ignored"),
    ("--publish-metrics", "--sim-metrics"),
    ("--trtllm.max_batch_size", "--max-num-seqs"),
    ("--trtllm.max_num_tokens", "--max-num-batched-tokens"),
    ("--trtllm.max_seq_len", "--max-model-len"),
    ("--trtllm.kv_cache_config.free_gpu_memory_fraction", "--gpu-memory-utilization"),
    ("--trtllm.enable_chunked_prefill", "--sim-ignored"),
    ("-m", "--sim-dialect"),
];

/// The share of the free memory where none is given.
pub(super) const SHARE: f64 = 0.9;

// The variables may stand there for any engine: only a worker and a frontend read what they say.
/// Where a process of the graph finds the others.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Place {
    /// The folder in which Dynamo's processes find each other
    #[arg(long, hide = true, env = "DYN_FILE_KV", value_name = "FOLDER")]
    pub sim_discovery: Option<OsString>,
    /// The port of a worker's metrics
    #[arg(long, hide = true, env = "DYN_SYSTEM_PORT", value_name = "PORT")]
    pub sim_system_port: Option<OsString>,
    /// The port of the frontend
    #[arg(long, hide = true, env = "DYN_HTTP_PORT", value_name = "PORT")]
    pub sim_http_port: Option<OsString>,
}

impl Place {
    fn worker(&self) -> Option<PathBuf> {
        let folder = self.sim_discovery.as_ref().filter(|folder| !folder.is_empty())?;
        Some(Path::new(folder).join("sim-worker"))
    }
}

/// The number of a port; `None` if there is none.
fn port<N: FromStr>(text: Option<&OsString>) -> io::Result<Option<N>> {
    let text = text.map(|text| text.to_string_lossy()).filter(|text| !text.is_empty());
    let wrong = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("'{text}' is no port"));
    text.map(|text| text.parse().map_err(|_| wrong(&text))).transpose()
}

fn say(level: &str, text: &str) {
    let stamp = clock::utc(clock::unix_seconds(), "%Y-%m-%dT%H:%M:%S.000000Z");
    raw(&format!("{stamp} {level:>5} llm_worker.init_llm_worker: {text}"));
}

/// What it says first.
pub(super) fn announce(args: &SimArgs) {
    let profile = &args.sim_profile;
    say("INFO", &format!("simulates {}: {}; nothing it answers is a measurement", profile.name, profile.source));
    raw("[TensorRT-LLM] TensorRT-LLM version: 0+sim");
    let flags = args.flags();
    say(
        "INFO",
        &format!(
            "TensorRT-LLM engine args: {{'model': '{}', 'kv_cache_config': {{'free_gpu_memory_fraction': {:?}}}, \
             'max_num_tokens': {}, 'max_seq_len': {}, 'max_batch_size': {}}}",
            args.model(),
            args.gpu_memory_utilization.unwrap_or(SHARE),
            flags.max_num_batched_tokens,
            flags.max_model_len,
            flags.max_num_seqs,
        ),
    );
}

/// The start failed for memory: the executor explains, and the worker repeats the end of it.
pub(super) fn memory_failure(failure: MemoryFailure) {
    match failure {
        MemoryFailure::OutOfMemory { .. } => {
            let stamp = clock::utc(clock::unix_seconds(), "[%m/%d/%Y-%H:%M:%S]");
            raw(&format!(
                "{stamp} [TRT-LLM] [RANK 0] [E] Failed to initialize executor on rank 0: Executor creation failed due to \
                 insufficient GPU memory."
            ));
            raw("The following component could not be created: KV cache");
        }
        MemoryFailure::NoKvBlocks | MemoryFailure::KvTooSmallForOneRequest { .. } => {
            raw("AssertionError: Impossible to fit in any sequence in kvCache");
        }
    }
    say("ERROR", "Error in engine context: Executor worker returned error");
}

/// Registers the worker that listens there, and serves the page of its metrics.
pub(super) async fn register(app: Arc<App>, args: &SimArgs, address: SocketAddr) -> io::Result<Option<Serving>> {
    if let Some(file) = args.sim_place.worker() {
        // It appears whole.
        let new = file.with_extension("new");
        tokio::fs::write(&new, address.to_string()).await?;
        tokio::fs::rename(&new, file).await?;
    }
    // -1 is none, as in Dynamo.
    let port = port::<i32>(args.sim_place.sim_system_port.as_ref())?.and_then(|port| u16::try_from(port).ok());
    let Some(port) = port else { return Ok(None) };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let metrics = async |State(app): State<Arc<App>>| page(&app, metrics).await;
    let router = if args.sim_metrics { Router::new().route("/metrics", get(metrics)) } else { Router::new() };
    Ok(Some(Serving::start(listener, router.with_state(app), Limits::OWN)))
}

/// What the frontend answers to `/health`: whether the worker is there.
pub(super) fn health(serves: bool) -> Value {
    let instance = serde_json::json!({"component": "backend", "endpoint": "generate", "namespace": "dynamo"});
    serde_json::json!({"status": "healthy", "endpoints": [], "instances": if serves { vec![instance] } else { vec![] }})
}

/// The worker's page of metrics: the families that a tuner reads.
fn metrics(config: &Config, snapshot: &Snapshot) -> String {
    let c = snapshot.counters;
    let families = [
        ("trtllm_num_requests_running", f64::from(c.running)),
        ("trtllm_num_requests_waiting", f64::from(c.waiting)),
        ("trtllm_kv_cache_utilization", c.kv_usage),
    ];
    written(config, "model_name", &families)
}

/// The frontend's page of metrics: the families that a tuner reads.
pub(super) fn frontend_metrics(config: &Config, snapshot: &Snapshot) -> String {
    let (c, limits) = (snapshot.counters, config.limits);
    let families = [
        ("dynamo_frontend_model_max_num_seqs", f64::from(limits.max_num_seqs)),
        ("dynamo_frontend_model_max_num_batched_tokens", f64::from(limits.max_num_batched_tokens)),
        ("dynamo_frontend_model_total_kv_blocks", f64::from(limits.num_blocks)),
        ("dynamo_frontend_model_kv_cache_block_size", f64::from(limits.block_size)),
        ("dynamo_frontend_input_sequence_tokens_sum", c.prompt_tokens as f64),
        ("dynamo_frontend_cached_tokens_sum", c.prefix_hits as f64),
        ("dynamo_frontend_output_tokens_total", c.generation_tokens as f64),
    ];
    written(config, "model", &families)
}

fn written(config: &Config, label: &str, families: &[(&str, f64)]) -> String {
    let model = Value::from(config.served_name.as_str());
    families.iter().fold(String::new(), |mut page, (name, value)| {
        let _ = writeln!(page, "{name}{{{label}={model}}} {value:?}");
        page
    })
}

/// The frontend: passes each connection to the worker; without one it is healthy and serves nothing, as Dynamo's.
pub(super) async fn frontend(args: &SimArgs) -> io::Result<()> {
    let own = port(args.sim_place.sim_http_port.as_ref())?;
    let listener = TcpListener::bind(("127.0.0.1", own.unwrap_or(args.port))).await?;
    let worker = args.sim_place.worker();
    loop {
        let (client, _) = listener.accept().await?;
        // What breaks a connection is its client's affair.
        let worker = worker.clone();
        tokio::spawn(async move { drop(pass(client, worker.as_deref()).await) });
    }
}

async fn pass(mut client: TcpStream, worker: Option<&Path>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let address = match worker {
        Some(file) => tokio::fs::read_to_string(file).await.ok(),
        None => None,
    };
    let Some(address) = address else {
        let mut head = [0; 16];
        let read = client.read(&mut head).await?;
        let (status, body) = match head[..read].starts_with(b"GET /health ") {
            true => ("200 OK", r#"{"status":"healthy","endpoints":[],"instances":[]}"#),
            false => ("404 Not Found", "{}"),
        };
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n");
        return client.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await;
    };
    let mut server = TcpStream::connect(address).await?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
