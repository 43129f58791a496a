//! The start of the simulated engine: what vLLM does before it is ready, in its order and with its complaints.

use std::io;
use std::net::ToSocketAddrs;

use tokio::net::{TcpListener, TcpSocket};

use super::args::{SimArgs, seconds};
use super::core::CoreProcess;
use super::faults::Fault;
use super::info::Config;
use super::live::LiveLimits;
use super::log::{self, Source};
use super::{SimDialect, sglang, speculative::Speculative, trtllm};
use autotune_clock as clock;
use autotune_plan::engine::live::LIVE_SCHEDULER;
use autotune_twin::{EngineFlags, Limits, MemoryFailure};

/// Connections that the kernel queues, as uvicorn asks for.
const BACKLOG: u32 = 2048;

/// An engine that has found its memory and listens.
pub(super) struct Started {
    pub(super) listener: TcpListener,
    pub(super) config: Config,
    pub(super) core: CoreProcess,
}

/// Does what vLLM does before it is ready, in its order; the error is the exit code.
pub(super) async fn start(args: &SimArgs) -> Result<Started, u8> {
    if args.sim_fault == Fault::SilentDeath {
        return Err(1);
    }
    let profile = &args.sim_profile;
    let vllm = args.sim_dialect == SimDialect::Vllm;
    match args.sim_dialect {
        SimDialect::Vllm | SimDialect::Frontend => announce(args),
        SimDialect::Sglang => sglang::announce(args),
        SimDialect::Trtllm => trtllm::announce(args),
    }
    let flags = args.flags();
    check(args, &flags)?;
    if args.sim_fault == Fault::ModelMissing {
        log::model_missing(args.model());
        return Err(1);
    }
    if vllm {
        log::info(Source::Api, "model.py:1725", &format!("Using max model len {}", flags.max_model_len));
        let chunked =
            format!("Chunked prefill is enabled with max_num_batched_tokens={}.", flags.max_num_batched_tokens);
        log::info(Source::Api, "scheduler.py:252", &chunked);
    }
    // Bound now, listening only when ready: until then connections are refused, as with vLLM.
    let socket = bind(args).map_err(port_failure)?;
    let core = CoreProcess::start(args.sim_fault).map_err(|error| {
        log::raw(&format!("RuntimeError: the engine core cannot be started: {error}"));
        1
    })?;
    tokio::time::sleep(seconds(args.sim_start_seconds)).await;
    if args.sim_fault == Fault::BrokenWeights {
        log::broken_weights();
        core.stop();
        return Err(1);
    }
    let limits = match profile.limits_under(&flags) {
        Ok(limits) => limits,
        Err(failure) => {
            match args.sim_dialect {
                SimDialect::Vllm | SimDialect::Frontend => log::memory_failure(failure, profile.memory.per_kv_token),
                SimDialect::Sglang => sglang::memory_failure(failure, flags.gpu_memory_utilization),
                SimDialect::Trtllm => trtllm::memory_failure(failure),
            }
            core.stop();
            return Err(1);
        }
    };
    if let Err(error) = LiveLimits::of(args, limits) {
        log::raw(&error.to_string());
        core.stop();
        return Err(1);
    }
    let config = config(args, &flags, limits);
    if args.sim_fault == Fault::ExitZeroAtStart {
        core.stop();
        return Err(0);
    }
    if vllm {
        log_memory(&config, profile.memory.per_kv_token, args.sim_start_seconds);
    } else if args.sim_dialect == SimDialect::Sglang {
        sglang::resolved(&config);
    }
    if args.sim_fault == Fault::OomAtStart {
        // Graphs are captured, and weights may be unpacked, after the cache was taken.
        let available = profile.memory.total;
        let failure = MemoryFailure::OutOfMemory { needed: available + (256 << 20), available };
        log::memory_failure(failure, profile.memory.per_kv_token);
        core.stop();
        return Err(1);
    }
    let listener = socket.listen(BACKLOG).map_err(port_failure)?;
    let port = listener.local_addr().map_or(args.port, |address| address.port());
    let address = format!("http://{}:{port}", args.host);
    if vllm {
        log::info(Source::Api, "api_server.py:581", &format!("Starting vLLM server on {address}"));
    } else if args.sim_dialect == SimDialect::Sglang {
        sglang::listens(&address);
    }
    Ok(Started { listener, config, core })
}

/// What vLLM says first.
fn announce(args: &SimArgs) {
    let profile = &args.sim_profile;
    log::info(Source::Api, "api_utils.py:339", "version 0.32.0 (simulated engine, no model behind it)");
    let simulates = format!("simulates {}: {}; nothing it answers is a measurement", profile.name, profile.source);
    log::info(Source::Api, "api_utils.py:340", &simulates);
    log::info(Source::Api, "api_utils.py:273", &format!("non-default args: {}", args.non_default()));
}

/// Says what is wrong with the flags; the error is the exit code.
fn check(args: &SimArgs, flags: &EngineFlags) -> Result<(), u8> {
    let block_size = args.sim_profile.memory.block_size;
    if let Some(asked) = args.block_size.filter(|asked| *asked != block_size) {
        log::raw(&format!(
            "usage: vllm serve [model_tag] [options]\nvllm serve: error: argument --block-size: the simulated engine knows \
             {block_size} alone, not '{asked}'"
        ));
        return Err(2);
    }
    if let Some(class) = args.scheduler_cls.as_deref().filter(|class| *class != LIVE_SCHEDULER) {
        let module = class.rsplit_once('.').map_or(class, |(module, _)| module);
        log::raw(&format!("ModuleNotFoundError: No module named '{module}'"));
        return Err(1);
    }
    let speculation = || args.speculative_config.as_ref().and_then(Speculative::problem);
    // vLLM alone wants a budget of at least the cap.
    let own = invalid(flags).filter(|_| args.sim_dialect == SimDialect::Vllm);
    let problem = own.or_else(|| Some(("SpeculativeConfig", speculation()?)));
    problem.map_or(Ok(()), |(config, problem)| {
        log::validation_error(config, &problem);
        Err(1)
    })
}

/// vLLM's complaint, if it has one: the class that complains and what it says.
pub(super) fn invalid(flags: &EngineFlags) -> Option<(&'static str, String)> {
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

pub(super) fn config(args: &SimArgs, flags: &EngineFlags, limits: Limits) -> Config {
    Config {
        model: args.model().to_owned(),
        served_name: args.served_name().to_owned(),
        limits,
        max_model_len: flags.max_model_len,
        gpu_memory_utilization: flags.gpu_memory_utilization,
        prefix_caching: flags.prefix_caching,
        stream_interval: args.stream_interval,
        speculative: args.speculative_config.as_ref().and_then(Speculative::json),
        started: clock::unix_seconds() as u64,
    }
}

fn bind(args: &SimArgs) -> io::Result<TcpSocket> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "unknown host");
    // A worker of Dynamo takes any port, and registers it.
    let port = if args.sim_dialect == SimDialect::Trtllm { 0 } else { args.port };
    let address = (args.host.as_str(), port).to_socket_addrs()?.next().ok_or_else(unknown)?;
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
