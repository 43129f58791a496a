//! The table of known error messages: what each means, and what the search makes of it.
//!
//! Matched against single error lines in lower case, from top to bottom, so that the narrower of two rows stands first.
//! Only words that survive releases are named; files, line numbers and sizes do not.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What made an engine fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The device or the host ran out of memory.
    OutOfMemory,
    /// What was left for the KV cache does not hold one request.
    KvCacheTooSmall,
    /// An argument is unknown, or its value is refused.
    BadArgument,
    /// Another process listens on the port.
    PortTaken,
    ModelMissing,
    /// The model cannot be loaded: weights, architecture, tokenizer or quantization.
    ModelBroken,
    /// The machine lacks something: devices, NUMA nodes, file descriptors, room on a disk.
    Environment,
    /// It serves, and refuses the requests of the workload.
    Refused,
    /// It did not become ready in time.
    Timeout,
    /// It ended without a word.
    Silent,
    /// It drafts tokens, of which too few are accepted.
    RarelyAccepted,
    /// It ended with an error that nobody classified.
    Crashed,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "out of memory",
            Self::KvCacheTooSmall => "KV cache too small",
            Self::BadArgument => "bad argument",
            Self::PortTaken => "port taken",
            Self::ModelMissing => "model missing",
            Self::ModelBroken => "model broken",
            Self::Environment => "environment not fit",
            Self::Refused => "requests refused",
            Self::Timeout => "not ready in time",
            Self::Silent => "ended without a word",
            Self::RarelyAccepted => "drafts rarely accepted",
            Self::Crashed => "crashed",
        })
    }
}

/// What a known message means for the search, before anybody knows which parameters are tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Asking for less memory helps.
    MemoryBound,
    /// More memory for the KV cache helps.
    NeedsMoreMemory,
    /// Chance, or somebody else, is to blame.
    Retry,
    Abort,
    /// These flags are to blame, and every flag that the message names: whichever of them is tuned.
    Blames(&'static [&'static str]),
}

/// One row: a message, its meaning and what to tell a person.
pub struct Symptom {
    /// Every one of these must be in the line; lower case.
    pub(super) words: &'static [&'static str],
    pub(super) cause: Cause,
    pub(super) effect: Effect,
    /// What happened and the remedy, with places for the engine's flags.
    pub(super) says: &'static str,
}

impl Symptom {
    /// The first row that knows the line: of the engine's own, then of all engines'.
    pub(super) fn of(line: &str, own: &'static [Self]) -> Option<&'static Self> {
        let line = line.to_lowercase();
        let known = own.iter().chain(COMMON);
        known.into_iter().find(|symptom| symptom.words.iter().all(|word| line.contains(word)))
    }
}

pub(super) const fn row(words: &'static [&'static str], cause: Cause, effect: Effect, says: &'static str) -> Symptom {
    Symptom { words, cause, effect, says }
}

const HOST_MEMORY: &str = "The host ran out of memory: give the pod a higher memory limit, or the engine less to hold.";
const DEVICE_MEMORY: &str = "The device ran out of memory: lower {memory}, {sequences} or {tokens}.";
const PORT: &str =
    "Another process listens on the port, and may answer in this engine's place: end it or take another port.";
const MODEL_MISSING: &str =
    "The model was not found: check its name or path, the access token, and whether the hub can be reached.";
const WEIGHTS: &str = "The model's weights cannot be read: fetch the model again.";
const TOKENIZER: &str = "The model has no tokenizer that the engine can load: add the tokenizer's files to the model.";
const ARCHITECTURE: &str = "The engine does not know the model's architecture: use a newer engine or another model.";
pub(super) const QUANTIZATION: &str =
    "The quantization is not supported by this engine on this device: choose another one.";
const MORE_DEVICES: &str =
    "The parallel sizes ask for more devices than there are: lower them, tensor-parallel-size first.";
const NO_DEVICE: &str = "The engine found no usable accelerator: check the driver and the devices given to it.";
const BROKEN_DEVICE: &str = "The accelerator reported a hardware fault: have the node checked.";
pub(super) const PARALLEL: &[&str] = &["tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"];
pub(super) const FORMATS: &[&str] = &["quantization", "kv-cache-dtype"];

use Cause::{Environment, ModelBroken, ModelMissing, OutOfMemory, PortTaken};
use Effect::{Abort, Blames, MemoryBound, Retry};

/// What comes from the device, the host, the model and the libraries that engines share.
const COMMON: &[Symptom] = &[
    // The kernel's words on host memory hold the device's "out of memory", and "outofmemoryerror" holds "memoryerror".
    row(&["out of memory: killed process"], OutOfMemory, MemoryBound, HOST_MEMORY),
    row(&["memory cgroup out of memory"], OutOfMemory, MemoryBound, HOST_MEMORY),
    row(&["oom-kill"], OutOfMemory, MemoryBound, HOST_MEMORY),
    row(&["oomkilled"], OutOfMemory, MemoryBound, HOST_MEMORY),
    // Device memory. "CUDA out of memory" comes from weights, profiling, graph capture and from load.
    row(&["out of memory"], OutOfMemory, MemoryBound, DEVICE_MEMORY),
    row(&["outofmemoryerror"], OutOfMemory, MemoryBound, DEVICE_MEMORY),
    row(&["cudaerrormemoryallocation"], OutOfMemory, MemoryBound, DEVICE_MEMORY),
    row(&["status_alloc_failed"], OutOfMemory, MemoryBound, DEVICE_MEMORY),
    row(&["defaultcpuallocator"], OutOfMemory, MemoryBound, HOST_MEMORY),
    row(&["cannot allocate memory"], OutOfMemory, MemoryBound, HOST_MEMORY),
    row(&["std::bad_alloc"], OutOfMemory, MemoryBound, HOST_MEMORY),
    row(&["memoryerror"], OutOfMemory, MemoryBound, HOST_MEMORY),
    row(&["address already in use"], PortTaken, Retry, PORT),
    row(&["eaddrinuse"], PortTaken, Retry, PORT),
    row(&["error while attempting to bind on address"], PortTaken, Retry, PORT),
    row(&["repo id must be"], ModelMissing, Abort, MODEL_MISSING),
    row(&["localentrynotfounderror"], ModelMissing, Abort, MODEL_MISSING),
    row(&["couldn't connect to", "huggingface"], ModelMissing, Abort, MODEL_MISSING),
    row(&["offlinemodeisenabled"], ModelMissing, Abort, MODEL_MISSING),
    row(&["repositorynotfounderror"], ModelMissing, Abort, MODEL_MISSING),
    row(&["gatedrepoerror"], ModelMissing, Abort, MODEL_MISSING),
    row(&["cannot access gated repo"], ModelMissing, Abort, MODEL_MISSING),
    row(&["is not a valid model identifier"], ModelMissing, Abort, MODEL_MISSING),
    row(&["invalid repository id or local directory"], ModelMissing, Abort, MODEL_MISSING),
    row(&["does not appear to have a file named"], ModelMissing, Abort, MODEL_MISSING),
    row(&["cannot find any model weights"], ModelMissing, Abort, MODEL_MISSING),
    row(&["safetensorerror"], ModelBroken, Abort, WEIGHTS),
    row(&["error while deserializing header"], ModelBroken, Abort, WEIGHTS),
    row(&["pytorchstreamreader failed"], ModelBroken, Abort, WEIGHTS),
    row(&["weights were not initialized from checkpoint"], ModelBroken, Abort, WEIGHTS),
    row(&["couldn't instantiate the backend tokenizer"], ModelBroken, Abort, TOKENIZER),
    row(&["can't load tokenizer for"], ModelBroken, Abort, TOKENIZER),
    row(&["does not recognize this architecture"], ModelBroken, Abort, ARCHITECTURE),
    row(&["model architectures", "not supported"], ModelBroken, Abort, ARCHITECTURE),
    row(&["unknown quantization method"], ModelBroken, Blames(FORMATS), QUANTIZATION),
    row(&["quantization method", "not supported"], ModelBroken, Blames(FORMATS), QUANTIZATION),
    row(&["world size", "larger than the number of available gpus"], Environment, Blames(PARALLEL), MORE_DEVICES),
    row(&["invalid device ordinal"], Environment, Blames(PARALLEL), MORE_DEVICES),
    row(&["failed to infer device type"], Environment, Abort, NO_DEVICE),
    row(&["no cuda gpus are available"], Environment, Abort, NO_DEVICE),
    row(&["no cuda-capable device"], Environment, Abort, NO_DEVICE),
    row(&["found no nvidia driver"], Environment, Abort, NO_DEVICE),
    row(&["driver", "is too old"], Environment, Abort, NO_DEVICE),
    row(&["cuda driver version is insufficient"], Environment, Abort, NO_DEVICE),
    row(&["no kernel image is available"], Environment, Abort, NO_DEVICE),
    row(&["uncorrectable ecc error"], Environment, Abort, BROKEN_DEVICE),
    row(&["fallen off the bus"], Environment, Abort, BROKEN_DEVICE),
    row(
        &["too many open files"],
        Environment,
        Retry,
        "The engine ran out of file descriptors: raise the limit (ulimit -n).",
    ),
    row(
        &["no space left on device"],
        Environment,
        Retry,
        "A disk or /dev/shm is full: make room, or give the pod a larger one.",
    ),
];
