//! The engine's log: lines as vLLM writes them, on stderr.

use std::io::Write;

use autotune_clock as clock;
use autotune_twin::MemoryFailure;

/// Which of vLLM's processes a line pretends to come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Api,
    Core,
}

impl Source {
    /// The core's process id is not that of the child, which is a mere stand-in: it only has to look like one.
    fn prefix(self) -> String {
        match self {
            Self::Api => format!("(APIServer pid={})", std::process::id()),
            Self::Core => format!("(EngineCore pid={})", std::process::id() + 1),
        }
    }
}

/// Writes one line. Losing it is no reason to stop serving, so a closed stderr is ignored; `eprintln!` would panic there.
pub(super) fn raw(line: &str) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

/// A line of information, such as `(APIServer pid=7) INFO 11-21 06:53:16 [api_utils.py:273] ...`.
pub(super) fn info(source: Source, place: &str, text: &str) {
    raw(&format!("{} INFO {} [{place}] {text}", source.prefix(), stamp(clock::unix_seconds())));
}

fn stamp(unix_seconds: f64) -> String {
    clock::utc(unix_seconds, "%m-%d %H:%M:%S")
}

/// A whole number with commas, as in `12,345 tokens`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// vLLM's complaint about a flag: pydantic's text, from the API process.
pub(super) fn validation_error(config: &str, problem: &str) {
    let prefix = Source::Api.prefix();
    raw(&format!("{prefix} Traceback (most recent call last):"));
    raw(&format!("{prefix} pydantic_core._pydantic_core.ValidationError: 1 validation error for {config}"));
    problem.lines().for_each(|line| raw(&format!("{prefix} {line}")));
    raw(&format!("{prefix}     For further information visit https://errors.pydantic.dev/2.14/v/value_error"));
}

/// Another process listens on the port.
pub(super) fn port_in_use() {
    let prefix = Source::Api.prefix();
    raw(&format!("{prefix} Traceback (most recent call last):"));
    raw(&format!("{prefix}     sock.bind(addr)"));
    raw(&format!("{prefix} OSError: [Errno 98] Address already in use"));
}

/// The start failed for memory: the root cause in the engine core, then the API process that only points at it.
pub(super) fn memory_failure(failure: MemoryFailure, bytes_per_kv_token: u64) {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let cause = match failure {
        MemoryFailure::OutOfMemory { needed, available } => out_of_memory(needed.saturating_sub(available), available),
        MemoryFailure::NoKvBlocks => "ValueError: No available memory for the cache blocks. Try increasing \
             `gpu_memory_utilization` when initializing the engine (this flag also controls CPU memory reservation on the CPU \
             backend, despite its name). See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
            .to_owned(),
        MemoryFailure::KvTooSmallForOneRequest { needed_len, max_len } => format!(
            "ValueError: To serve at least one request with the model's max seq len ({needed_len}), ({:.2} GiB KV cache is \
             needed, which is larger than the available KV cache memory ({:.2} GiB). Based on the available memory, the \
             estimated maximum model length is {max_len}. Try increasing `gpu_memory_utilization` (which also controls CPU \
             memory on the CPU backend) or decreasing `max_model_len` when initializing the engine.",
            gib(u64::from(needed_len) * bytes_per_kv_token),
            gib(u64::from(max_len) * bytes_per_kv_token),
        ),
    };
    core_traceback("EngineCore failed to start.", "run_engine_core", &cause);
    core_failed();
}

/// What the API process says of a core that did not start: it only points at it.
fn core_failed() {
    let prefix = Source::Api.prefix();
    raw(&format!("{prefix} Traceback (most recent call last):"));
    raw(&format!("{prefix}     raise RuntimeError("));
    raw(&format!(
        "{prefix} RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}"
    ));
}

/// The engine core ran out of memory while it served: the API process notices and shuts itself down.
pub(super) fn out_of_memory_in_load(total: u64) {
    core_traceback("EngineCore encountered a fatal error.", "run_busy_loop", &out_of_memory(256 << 20, total));
    let prefix = Source::Api.prefix();
    raw(&format!("{prefix} ERROR {} [async_llm.py:704] AsyncLLM output_handler failed.", stamp(clock::unix_seconds())));
    raw(&format!(
        "{prefix} vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the \
         root cause."
    ));
}

/// The core process is gone: the API process notices, and shuts itself down.
pub(super) fn core_gone(segfault: bool) {
    if segfault {
        raw("!!!!!!! Segfault encountered !!!!!!!");
    }
    let prefix = Source::Api.prefix();
    let now = stamp(clock::unix_seconds());
    raw(&format!(
        "{prefix} WARNING {now} [core_client.py:817] [shutdown] MPClient: engine core exited unexpectedly; starting cleanup"
    ));
    raw(&format!("{prefix} ERROR {now} [async_llm.py:704] AsyncLLM output_handler failed."));
    raw(&format!(
        "{prefix} vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the \
         root cause."
    ));
}

/// The model is at no path, and its name is none that a hub could have.
pub(super) fn model_missing(model: &str) {
    let prefix = Source::Api.prefix();
    raw(&format!("{prefix} Traceback (most recent call last):"));
    raw(&format!("{prefix}     raise HFValidationError("));
    raw(&format!(
        "{prefix} huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': \
         '{model}'. Use `repo_type` argument if needed."
    ));
}

/// The weights cannot be read.
pub(super) fn broken_weights() {
    let cause = "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not \
                 fully covered";
    core_traceback("EngineCore failed to start.", "run_engine_core", cause);
    core_failed();
}

fn core_traceback(headline: &str, function: &str, cause: &str) {
    let line = |text: &str| {
        raw(&format!("{} ERROR {} [core.py:1231] {text}", Source::Core.prefix(), stamp(clock::unix_seconds())));
    };
    line(headline);
    line("Traceback (most recent call last):");
    line(&format!("  File \"vllm/v1/engine/core.py\", line 1200, in {function}"));
    line(cause);
}

fn out_of_memory(wanted: u64, total: u64) -> String {
    let (mib, gib) = (|b: u64| b as f64 / f64::from(1 << 20), |b: u64| b as f64 / f64::from(1 << 30));
    format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {:.2} MiB. GPU 0 has a total capacity of {:.2} GiB of \
         which 11.12 MiB is free. Including non-PyTorch memory, this process has {:.2} GiB memory in use. If reserved but \
         unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
        mib(wanted),
        gib(total),
        gib(total.saturating_sub(12 << 20)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_and_numbers_read_as_vllm_writes_them() {
        assert_eq!(stamp(1_795_239_986.4), "11-21 05:46:26");
        assert_eq!(stamp(951_782_400.0), "02-29 00:00:00");
        assert_eq!([7, 123, 1_007_584].map(grouped), ["7", "123", "1,007,584"]);
    }
}
