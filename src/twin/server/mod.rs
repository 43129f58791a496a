//! The process `autotune sim-engine`: the twin behind vLLM's flags, log lines, endpoints and failures.
//!
//! It exists so that the whole program can be tried, and every way of failing supervised, without an accelerator.

mod args;
mod core;
mod engine;
mod http;
mod info;
mod log;
mod request;
mod tokenize;
mod wire;

use std::io;
use std::net::ToSocketAddrs;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::serve::ListenerExt;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

pub use args::{DEFAULT_PROFILE, Fault, SimArgs};

use self::core::CoreProcess;
use self::engine::{Death, Engine};
use self::http::App;
use self::info::Config;
use self::log::Source;
use self::request::Rules;
use crate::clock;
use crate::twin::{EngineFlags, Limits};

/// Connections that the kernel queues, as uvicorn asks for.
const BACKLOG: u32 = 2048;
/// How long open streams may take to end after a stop; the promise is to be gone within a second.
const GRACE: Duration = Duration::from_millis(300);

/// Runs the engine until a signal or its fault ends it; returns the exit code, which is vLLM's for the same event.
pub async fn run(args: SimArgs) -> u8 {
    if args.sim_core {
        return core::be_core(args.sim_fault).await;
    }
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        log::raw("RuntimeError: signals cannot be handled");
        return 1;
    };
    let mut stop = pin!(async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    });
    // A start that is interrupted drops its child, which then ends by itself.
    let started = tokio::select! {
        started = start(&args) => started,
        () = &mut stop => Err(0),
    };
    match started {
        Err(code) => code,
        Ok(Started { listener, config, core }) => {
            let code = serve(listener, config, &args, stop).await;
            core.stop();
            code
        }
    }
}

/// An engine that has found its memory and listens.
struct Started {
    listener: TcpListener,
    config: Config,
    core: CoreProcess,
}

/// Does what vLLM does before it is ready, in its order; the error is the exit code.
async fn start(args: &SimArgs) -> Result<Started, u8> {
    if args.sim_fault == Fault::SilentDeath {
        return Err(1);
    }
    let profile = &args.sim_profile;
    log::info(Source::Api, "api_utils.py:339", "version 0.32.0 (simulated engine, no model behind it)");
    let simulates = format!("simulates {}: {}; nothing it answers is a measurement", profile.name, profile.source);
    log::info(Source::Api, "api_utils.py:340", &simulates);
    log::info(Source::Api, "api_utils.py:273", &format!("non-default args: {}", args.non_default()));
    let flags = args.flags();
    if let Some((config, problem)) = invalid(&flags) {
        log::validation_error(config, &problem);
        return Err(1);
    }
    log::info(Source::Api, "model.py:1725", &format!("Using max model len {}", flags.max_model_len));
    let chunked = format!("Chunked prefill is enabled with max_num_batched_tokens={}.", flags.max_num_batched_tokens);
    log::info(Source::Api, "scheduler.py:252", &chunked);
    // Bound now, listening only when ready: until then connections are refused, as with vLLM.
    let socket = bind(args).map_err(port_failure)?;
    let core = CoreProcess::start(args.sim_fault).map_err(|error| {
        log::raw(&format!("RuntimeError: the engine core cannot be started: {error}"));
        1
    })?;
    tokio::time::sleep(Duration::from_secs_f64(args.sim_start_seconds.clamp(0.0, 3_600.0))).await;
    let limits = match profile.limits_under(&flags) {
        Ok(limits) => limits,
        Err(failure) => {
            log::memory_failure(failure, profile.memory.per_kv_token);
            core.stop();
            return Err(1);
        }
    };
    let config = config(args, &flags, limits);
    if args.sim_fault == Fault::ExitZeroAtStart {
        core.stop();
        return Err(0);
    }
    log_memory(&config, profile.memory.per_kv_token, args.sim_start_seconds);
    let listener = socket.listen(BACKLOG).map_err(port_failure)?;
    log::info(Source::Api, "api_server.py:581", &format!("Starting vLLM server on http://{}:{}", args.host, args.port));
    Ok(Started { listener, config, core })
}

/// vLLM's complaint, if it has one: the class that complains and what it says.
fn invalid(flags: &EngineFlags) -> Option<(&'static str, String)> {
    let EngineFlags { max_num_seqs, max_num_batched_tokens, gpu_memory_utilization, max_model_len, .. } = *flags;
    let positive = |name: &str, value: u32| {
        let text =
            format!("{name}\n  Input should be greater than or equal to 1 [type=greater_than_equal, input_value=0]");
        (value == 0).then_some(text)
    };
    let scheduler = positive("max_num_seqs", max_num_seqs)
        .or_else(|| positive("max_num_batched_tokens", max_num_batched_tokens))
        .or_else(|| {
            (max_num_batched_tokens < max_num_seqs).then(|| {
                format!(
                    "  Value error, max_num_batched_tokens ({max_num_batched_tokens}) must be greater than or equal to \
                     max_num_seqs ({max_num_seqs}). [type=value_error]"
                )
            })
        });
    let cache = (!(0.0 < gpu_memory_utilization && gpu_memory_utilization <= 1.0)).then(|| {
        let bound = if gpu_memory_utilization > 1.0 { "less than or equal to 1" } else { "greater than 0" };
        format!("gpu_memory_utilization\n  Input should be {bound} [input_value={gpu_memory_utilization:?}]")
    });
    scheduler
        .map(|problem| ("SchedulerConfig", problem))
        .or_else(|| cache.map(|problem| ("CacheConfig", problem)))
        .or_else(|| positive("max_model_len", max_model_len).map(|problem| ("ModelConfig", problem)))
}

fn config(args: &SimArgs, flags: &EngineFlags, limits: Limits) -> Config {
    Config {
        model: args.model().to_owned(),
        served_name: args.served_name().to_owned(),
        limits,
        max_model_len: flags.max_model_len,
        gpu_memory_utilization: flags.gpu_memory_utilization,
        prefix_caching: flags.prefix_caching,
        stream_interval: args.stream_interval,
        started: clock::unix_seconds() as u64,
    }
}

fn bind(args: &SimArgs) -> io::Result<TcpSocket> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "unknown host");
    let address = (args.host.as_str(), args.port).to_socket_addrs()?.next().ok_or_else(unknown)?;
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn port_failure(error: io::Error) -> u8 {
    if error.kind() == io::ErrorKind::AddrInUse {
        log::port_in_use();
    } else {
        log::raw(&format!("OSError: {error}"));
    }
    1
}

fn log_memory(config: &Config, bytes_per_kv_token: u64, start_seconds: f64) {
    let tokens = config.limits.kv_tokens();
    let gib = (tokens * bytes_per_kv_token) as f64 / f64::from(1 << 30);
    let line = |place: &str, text: String| log::info(Source::Core, place, &text);
    line("gpu_worker.py:508", format!("Available KV cache memory: {gib:.2} GiB"));
    // One line, as since vLLM 0.32; older releases write the concurrency in a line of its own.
    line(
        "kv_cache_utils.py:2327",
        format!(
            "GPU KV cache size: {} tokens, Maximum concurrency for {} tokens per request: {:.2}x",
            log::grouped(tokens),
            log::grouped(u64::from(config.max_model_len)),
            config.max_concurrency()
        ),
    );
    let took = format!("init engine (profile, create kv cache, warmup model) took {start_seconds:.2} s");
    line("core.py:337", took);
}

/// Serves until `stop` or the engine's death; returns the exit code.
async fn serve(listener: TcpListener, config: Config, args: &SimArgs, stop: impl Future<Output = ()>) -> u8 {
    let (engine, death) = Engine::start(config.limits, args);
    let rules = Rules {
        served_name: config.served_name.clone(),
        max_model_len: config.max_model_len,
        block_size: config.limits.block_size,
        prefix_caching: config.prefix_caching,
        seed: args.seed,
    };
    let ready = args.sim_fault != Fault::NeverReady;
    let app =
        Arc::new(App { config, rules, engine, healthy: AtomicBool::new(ready), requests: AtomicU64::new(args.seed) });
    // Nagle's algorithm would hold streamed tokens back for some 40 ms.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    let (close, closed) = oneshot::channel::<()>();
    let server = axum::serve(listener, http::router(Arc::clone(&app), args.sim_dev_mode));
    let mut server = tokio::spawn(server.with_graceful_shutdown(async { drop(closed.await) }).into_future());
    if ready {
        log::raw(&format!("(APIServer pid={}) INFO:     Application startup complete.", std::process::id()));
    }
    tokio::select! {
        () = stop => {}
        Ok(how) = death => match how {
            // The caller exits at once, and the sockets close with the process.
            Death::Abrupt => return 1,
            Death::OutOfMemory => log::out_of_memory_in_load(args.sim_profile.memory.total),
        },
    }
    app.healthy.store(false, Ordering::Relaxed);
    // The engine lets go of its streams, which then end with an error event; connections close when they are idle.
    app.engine.stop();
    let _ = close.send(());
    drop(tokio::time::timeout(GRACE, &mut server).await);
    server.abort();
    0
}

#[cfg(test)]
mod tests;
