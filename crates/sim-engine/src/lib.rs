//! The process `autotune sim-engine`: the twin behind vLLM's flags, log lines, endpoints and failures.
//!
//! It exists so that the whole program can be tried, and every way of failing supervised, without an accelerator.

mod answer;
mod args;
mod body;
mod command_line;
mod core;
mod engine;
mod faults;
mod http;
mod ignored;
mod info;
mod live;
mod log;
mod metrics;
mod observations;
mod pacer;
mod prompt;
mod refusal;
mod request;
mod sglang;
mod speculative;
mod start;
mod tokenize;
mod trtllm;
mod wire;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

pub use args::{DEFAULT_PROFILE, SimArgs, SimDialect};
pub use command_line::{complaint, spelled_out, whole_help};
pub use faults::Fault;
pub use ignored::Ignored;
pub use speculative::Speculative;

use self::args::seconds;
use self::core::CoreProcess;
use self::engine::EngineHandle;
use self::faults::Death;
use self::http::App;
use self::info::Config;
use self::request::Rules;
use self::start::{Started, start};
use autotune_http::serving::{Limits, Serving};

/// How long open streams may take to end after a stop; the promise is to be gone within a second.
const GRACE: Duration = Duration::from_millis(300);
/// How long vLLM's API process lives on, and answers 503 to `/health`, when its core is gone.
const WITHOUT_CORE: Duration = Duration::from_millis(2300);

/// Runs the engine until a signal or its fault ends it; returns the exit code, which is vLLM's for the same event.
pub async fn run(args: SimArgs) -> u8 {
    if args.sim_core {
        return core::be_core(args.sim_fault).await;
    }
    if args.sim_dialect == SimDialect::Frontend {
        // A signal ends it as any program.
        return trtllm::frontend(&args).await.map_or_else(
            |error| {
                log::raw(&format!("OSError: {error}"));
                1
            },
            |()| 0,
        );
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
        tokio::time::sleep(seconds(args.sim_stop_seconds)).await;
    });
    // A start that is interrupted drops its child, which then ends by itself.
    let started = tokio::select! {
        started = start(&args) => started,
        () = &mut stop => Err(0),
    };
    match started {
        Err(code) => code,
        Ok(Started { listener, config, mut core }) => {
            let code = serve(listener, config, &args, Some(&mut core), stop).await;
            core.stop();
            code
        }
    }
}

/// Serves until `stop` or the engine's death; returns the exit code.
async fn serve(
    listener: TcpListener,
    config: Config,
    args: &SimArgs,
    mut core: Option<&mut CoreProcess>,
    stop: impl Future<Output = ()>,
) -> u8 {
    let (engine, death) = pacer::start(config.limits, args);
    let app = Arc::new(app(config, args, engine));
    let address = listener.local_addr();
    let serving = Serving::start(listener, http::router(Arc::clone(&app), args), Limits::OWN);
    if app.healthy.load(Ordering::Relaxed) {
        match args.sim_dialect {
            SimDialect::Vllm => {
                log::raw(&format!("(APIServer pid={}) INFO:     Application startup complete.", std::process::id()));
            }
            SimDialect::Sglang => sglang::is_ready(),
            SimDialect::Trtllm | SimDialect::Frontend => {}
        }
    }
    // It serves for as long as the engine does.
    let _metrics = match (args.sim_dialect, address) {
        (SimDialect::Trtllm, Ok(address)) => match trtllm::register(Arc::clone(&app), args, address).await {
            Ok(serving) => serving,
            Err(error) => {
                log::raw(&format!("OSError: {error}"));
                return 1;
            }
        },
        _ => None,
    };
    let mut stop = pin!(stop);
    let died = tokio::select! {
        () = &mut stop => None,
        Ok(how) = death => Some(how),
        () = gone(core.as_deref_mut()) => Some(Death::CoreGone { segfault: false }),
    };
    if died == Some(Death::Abrupt) {
        // The caller exits at once, and the sockets close with the process.
        return 1;
    }
    app.healthy.store(false, Ordering::Relaxed);
    // The engine lets go of its streams, which then end with an error event; connections close when they are idle.
    app.engine.stop();
    match died {
        Some(Death::OutOfMemory) => log::out_of_memory_in_load(args.sim_profile.memory.total),
        Some(Death::CoreGone { segfault }) => {
            if let Some(core) = core {
                core.kill(segfault);
            }
            log::core_gone(segfault);
            drop(tokio::time::timeout(WITHOUT_CORE.div_f64(args.sim_speed), stop).await);
        }
        Some(Death::Abrupt) | None => {}
    }
    serving.end(GRACE).await;
    0
}

fn app(config: Config, args: &SimArgs, engine: EngineHandle) -> App {
    App {
        rules: Rules {
            served_name: config.served_name.clone(),
            max_model_len: config.max_model_len,
            block_size: config.limits.block_size,
            prefix_caching: config.prefix_caching,
            seed: args.seed,
        },
        config,
        engine,
        healthy: AtomicBool::new(args.sim_fault != Fault::NeverReady),
        requests: AtomicU64::new(0),
        seed: args.seed,
        api_keys: args.api_key.clone(),
        fault: args.sim_fault,
        fault_after: args.sim_fault_after,
    }
}

/// Waits for the end of the core; for ever where there is none, as in tests.
async fn gone(core: Option<&mut CoreProcess>) {
    match core {
        Some(core) => core.gone().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
