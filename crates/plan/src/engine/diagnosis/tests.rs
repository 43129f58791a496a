//! Every failed start that was recorded from the real engine, and the ways to die that leave no record.

use proptest::prelude::*;

use super::super::dialects::vllm::Vllm;
use super::*;

const CASES: &str = include_str!("../../../../../tests/data/vllm/failure_modes.txt");
/// The lines below `validation error`, which the recording of the cases leaves out.
const DETAILS: &str = include_str!("../../../../../tests/data/vllm/failure_pydantic_lines.txt");
const CUDA: &str = include_str!("../../../../../tests/data/vllm/h200_oom_start.log");
const STARTED: &str = include_str!("../../../../../tests/data/vllm/h200_llama70b_fp8_start.log");

const TUNED: &[&str] = &["max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization"];

struct Case {
    name: String,
    exit: i32,
    log: String,
}

/// The failed cases of the recording; `name: rc=1 after ...` heads one, and `name: READY after ...` one that started.
fn cases() -> Vec<Case> {
    let details: Vec<(&str, &str)> = DETAILS.split("## ").filter_map(|s| s.split_once('\n')).collect();
    let sections = CASES.split("=== ").filter_map(|section| section.split_once('\n'));
    let failed = sections.filter_map(|(head, body)| {
        let (name, ending) = head.split_once(": ").unwrap();
        let exit = ending.strip_prefix("rc=")?.split(' ').next().unwrap().parse().unwrap();
        // The recording indents every line by four, shortens long ones and marks the last.
        let plain = |l: &str| l.strip_prefix("    ").unwrap_or(l).trim_start_matches("LAST: ").to_owned() + "\n";
        let mut log: String = body.lines().map(plain).collect();
        if let Some((_, lines)) = details.iter().find(|(n, _)| *n == name) {
            let (before, after) = log.split_once("pydantic_core._pydantic_core").unwrap();
            log = format!("{before}{lines}{}", after.split_once('\n').unwrap().1);
        }
        Some(Case { name: name.to_owned(), exit, log })
    });
    failed.collect()
}

fn refused(flag: &str) -> Consequence {
    Consequence::ValueRefused { flag: Some(flag.to_owned()) }
}

#[test]
fn every_recorded_failure_is_told_apart() {
    use Cause::*;
    use Consequence::*;
    let nodes = "Not enough allowed NUMA nodes";
    let table: &[(&str, Cause, Consequence, &str)] = &[
        ("kv_too_small", KvCacheTooSmall, NeedsMoreMemory, "estimated maximum model length is 3968"),
        ("kv_tiny_one_block", KvCacheTooSmall, NeedsMoreMemory, "No available memory for the cache blocks"),
        ("kvspace_too_big", OutOfMemory, MemoryBound, "requested memory for kv (100.0 GiB)"),
        ("kvspace_float", BadArgument, Abort, "invalid literal for int() with base 10: '0.5'"),
        ("gpu_mem_util_too_high", OutOfMemory, MemoryBound, "less than desired CPU memory utilization (0.99"),
        ("gpu_mem_util_too_low", KvCacheTooSmall, NeedsMoreMemory, "requested memory for kv (-0.3/0.31 GiB)"),
        (
            "gpu_mem_util_over_1",
            BadArgument,
            refused("gpu-memory-utilization"),
            "gpu_memory_utilization: Input should be less than or equal to 1",
        ),
        ("max_model_len_over_config", BadArgument, Abort, "User-specified max_model_len (200000) is greater"),
        ("invalid_flag", BadArgument, Abort, "unrecognized arguments: --max-num-sqes 8"),
        ("abbrev_flag", BadArgument, Abort, "ambiguous option: --max-num-s could match"),
        ("invalid_value_type", BadArgument, refused("max-num-seqs"), "invalid int value: 'abc'"),
        ("max_num_seqs_0", BadArgument, PointOnly, "max_num_seqs: Input should be greater than or equal to 1"),
        ("nochunk_mnbt_lt_mml", BadArgument, refused("max-num-batched-tokens"), "(2048) is smaller than max_model_len"),
        ("mnbt_lt_mns", BadArgument, PointOnly, "(64) must be greater than or equal to max_num_seqs (128)."),
        ("missing_model_offline", ModelMissing, Abort, "Repo id must be in the form"),
        ("missing_model_hub_offline", ModelMissing, Abort, "Cannot find an appropriate cached snapshot folder"),
        ("missing_model_hub_online", ModelMissing, Abort, "trying to locate the file on the Hub"),
        ("corrupt_weights", ModelBroken, Abort, "incomplete metadata, file not fully covered"),
        ("no_tokenizer", ModelBroken, Abort, "Couldn't instantiate the backend tokenizer"),
        ("unknown_arch", ModelBroken, Abort, "model type `foo` but Transformers does not recognize"),
        ("bad_block_size", BadArgument, Abort, "No common block size for 7"),
        ("tp2", Environment, Abort, nodes),
        ("quant_unsupported", ModelBroken, Abort, "static_scaled_fp8_quant() expected at most 0"),
        ("ulimit_oom", OutOfMemory, MemoryBound, "tried to allocate 8589934592 bytes"),
        ("port_in_use", PortTaken, Retry, "Address already in use"),
    ];
    let cases = cases();
    let names: Vec<&str> = cases.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, table.iter().map(|row| row.0).collect::<Vec<_>>(), "the table names every failed case, in order");
    for (case, (name, cause, consequence, quoted)) in cases.iter().zip(table) {
        let found = diagnose(&Vllm, &case.log, Exit::Code(case.exit), TUNED);
        assert_eq!((found.cause, &found.consequence), (*cause, consequence), "{name}: {found:?}");
        let line = found.line.unwrap();
        assert!(line.contains(quoted), "{name}: {line}");
        assert!(!line.contains("ulimit") && line.chars().count() <= LINE_LIMIT, "{name}: {line}");
        assert!(found.says.ends_with('.') && found.says.len() > 30, "{name}: {}", found.says);
    }
}

#[test]
fn a_failure_is_said_with_its_remedy() {
    let says = |log: &str| diagnose(&Vllm, log, Exit::Code(1), TUNED).says;
    let of = |name: &str| {
        let case = cases().into_iter().find(|c| c.name == name).unwrap();
        diagnose(&Vllm, &case.log, Exit::Code(case.exit), TUNED).says
    };
    for (said, expected) in [
        (
            of("gpu_mem_util_too_high"),
            "Less memory is free than the engine was told to take: lower gpu-memory-utilization, or end whatever else holds memory there.",
        ),
        (
            of("kv_too_small"),
            "The KV cache is too small for one request of full length: give it more memory or lower max-model-len.",
        ),
        (
            of("ulimit_oom"),
            "The host ran out of memory: give the pod a higher memory limit, or the engine less to hold.",
        ),
        (
            of("port_in_use"),
            "Another process listens on the port, and may answer in this engine's place: end it or take another port.",
        ),
        (
            of("missing_model_offline"),
            "The model was not found: check its name or path, the access token, and whether the hub can be reached.",
        ),
        (
            of("invalid_value_type"),
            "The engine's command line has an argument that it does not take: correct the values of max-num-seqs in the space file.",
        ),
        (
            of("max_num_seqs_0"),
            "The engine's configuration refused a value: the parameters it names do not go together, so add a constraint.",
        ),
        (
            of("mnbt_lt_mns"),
            "The token budget must be at least the number of sequences: add the constraint max-num-batched-tokens >= max-num-seqs.",
        ),
        (
            says("RuntimeError: Failed to infer device type"),
            "The engine found no usable accelerator: check the driver and the devices given to it.",
        ),
        (
            says("(EngineCore pid=7) ModuleNotFoundError: No module named 'autotune_live'"),
            "The engine's command does not pass on the PYTHONPATH that it gets, so the module that changes limits is not found: let it add to that path.",
        ),
        (
            says("OSError: [Errno 28] No space left on device"),
            "A disk or /dev/shm is full: make room, or give the pod a larger one.",
        ),
        (
            diagnose(&Vllm, "", Exit::Signal(9), TUNED).says,
            "The engine was killed by signal 9 without a word: most likely the kernel's out-of-memory killer, so see the host's memory and the pod's memory limit.",
        ),
    ] {
        assert_eq!(said, expected);
    }
}

#[test]
fn a_fixed_argument_aborts_and_a_tuned_one_is_refused() {
    let of = |name: &str, tuned: &[&str]| {
        let case = cases().into_iter().find(|c| c.name == name).unwrap();
        diagnose(&Vllm, &case.log, Exit::Code(case.exit), tuned).consequence
    };
    assert_eq!(of("bad_block_size", &["block-size"]), refused("block-size"));
    assert_eq!(of("tp2", &["tensor-parallel-size"]), refused("tensor-parallel-size"));
    assert_eq!(of("quant_unsupported", &["quantization"]), refused("quantization"));
    assert_eq!(of("max_model_len_over_config", &["max-model-len"]), refused("max-model-len"));
    assert_eq!(of("max_num_seqs_0", &["max_num_seqs"]), refused("max_num_seqs"), "in the caller's spelling");
    assert_eq!(of("invalid_flag", &["max-num-sqes"]), refused("max-num-sqes"));
    assert_eq!(of("mnbt_lt_mns", &["max-num-seqs"]), refused("max-num-seqs"), "the other side is fixed");
    assert_eq!(of("abbrev_flag", &["max-num-seqs"]), Consequence::Abort, "only proposed by the message");
    assert_eq!(of("mnbt_lt_mns", &["stream-interval"]), Consequence::Abort, "only in the dump of the arguments");
    assert_eq!(
        of("nochunk_mnbt_lt_mml", &["max-num-batched-tokens", "enable-chunked-prefill"]),
        Consequence::PointOnly,
        "the switch is not named, but takes part"
    );
    let log = "vllm serve: error: argument --enable-x/--no-enable-x: invalid choice: 'max-num-seqs'";
    assert_eq!(diagnose(&Vllm, log, Exit::Code(2), &["enable-x", "max-num-seqs"]).consequence, refused("enable-x"));
}

#[test]
fn cuda_out_of_memory_is_found_behind_a_long_traceback() {
    for exit in [Exit::Code(1), Exit::Code(0), Exit::Signal(9), Exit::StillRunning] {
        let found = diagnose(&Vllm, CUDA, exit, TUNED);
        assert_eq!((found.cause, found.consequence), (Cause::OutOfMemory, Consequence::MemoryBound));
        assert!(
            found.line.unwrap().starts_with("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB")
        );
        assert!(found.says.contains("device"));
    }
    let missing = |line: &str| {
        let line = Some(line.to_owned());
        let found = Diagnosis { line, ..diagnose(&Vllm, CUDA, Exit::Code(1), TUNED) };
        found.missing_share()
    };
    let cuda = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has a total capacity of \
                139.80 GiB of which 2.97 GiB is free. Including non-PyTorch memory, this process has 136.83 GiB";
    assert_eq!(missing(cuda).map(|share| (share * 1e4).round()), Some(38.0));
    let in_mib = cuda.replace("3.50 GiB", "256.00 MiB").replace("2.97 GiB", "91.12 MiB");
    assert_eq!(missing(&in_mib).map(|share| (share * 1e4).round()), Some(12.0));
    assert_eq!(missing(&cuda.replace("3.50", "2.50")), None, "it was free, but not in one piece");
    assert_eq!(missing("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB"), None);
    let busy = "(Worker pid=3) ValueError: Free memory on device cuda:0 (21.3/139.8 GiB) on startup is less than desired \
                GPU memory utilization (0.9, 125.8 GiB). Decrease GPU memory utilization or reduce GPU memory used.";
    assert_eq!(diagnose(&Vllm, busy, Exit::Code(1), TUNED).consequence, Consequence::MemoryBound);
}

#[test]
fn an_engine_that_says_nothing_is_tried_again() {
    for (exit, cause, word) in [
        (Exit::StillRunning, Cause::Timeout, "in time"),
        (Exit::Code(0), Cause::Silent, "exit code 0"),
        (Exit::Code(1), Cause::Silent, "exit code 1"),
        (Exit::Signal(9), Cause::Silent, "out-of-memory killer"),
        (Exit::Code(137), Cause::Silent, "out-of-memory killer"),
        (Exit::Signal(15), Cause::Silent, "stopped"),
    ] {
        let noise =
            "a.py:3: UserWarning: resource_tracker: There appear\n  warnings.warn('resource_tracker: There appear'\n";
        let found = diagnose(&Vllm, &format!("{STARTED}{noise}"), exit, TUNED);
        assert_eq!((found.cause, found.consequence), (cause, Consequence::Retry), "{exit:?}");
        assert!(found.says.contains(word), "{}", found.says);
        assert_eq!(found.line.as_deref(), Some("Application startup complete."));
        assert_eq!(diagnose(&Vllm, "", exit, TUNED).line, None);
    }
    assert_eq!(diagnose(&Vllm, "", Exit::Signal(11), TUNED).consequence, Consequence::PointOnly);
    assert_eq!(diagnose(&Vllm, "", Exit::Code(2), TUNED).consequence, Consequence::Abort);
}

#[test]
fn the_kernels_killer_is_host_memory_only_where_the_log_says_so() {
    let hint = "INFO 11-21 06:53:34 [a.py:1] up\nMemory cgroup out of memory: Killed process 77 (VLLM::EngineCor)\n";
    let found = diagnose(&Vllm, hint, Exit::Signal(9), TUNED);
    assert_eq!((found.cause, found.consequence), (Cause::OutOfMemory, Consequence::MemoryBound));
    assert!(found.says.contains("memory limit"));
    let lost = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. \
                Failed core proc(s): {'EngineCore_DP0': -9}";
    let found = diagnose(&Vllm, lost, Exit::Code(1), TUNED);
    assert_eq!((found.cause, found.consequence), (Cause::Silent, Consequence::Retry));
    assert!(found.says.contains("memory limit"));
}

#[test]
fn the_engine_is_believed_before_the_server_in_front_of_it() {
    let log = "(APIServer pid=1) ERROR 11-21 06:53:34 [hub.py:1] OfflineModeIsEnabled: cannot reach the hub\n\
               (Worker_TP0 pid=2) WARNING 11-21 06:53:35 [w.py:1] CUDA out of memory, trying a smaller workspace\n\
               (Worker_TP0 pid=2) ERROR 11-21 06:53:35 [w.py:1]     raise ValueError(\"No available memory for the cache blocks\")\n\
               (Worker_TP0 pid=2) ERROR 11-21 06:53:35 [w.py:1] \u{1b}[31mtriton.CompilationError\u{1b}[0m: at 3:4\n\
               (APIServer pid=1) RuntimeError: Engine core initialization failed.\n";
    let found = diagnose(&Vllm, log, Exit::Code(1), TUNED);
    assert_eq!((found.cause, found.consequence), (Cause::Crashed, Consequence::PointOnly));
    assert_eq!(found.line.as_deref(), Some("triton.CompilationError: at 3:4"));
    assert_eq!(
        diagnose(&Vllm, log, Exit::StillRunning, TUNED).cause,
        Cause::Timeout,
        "it may have survived that error"
    );
}

#[test]
fn a_diagnosis_can_be_kept_in_the_journal() {
    let found = Diagnosis {
        cause: Cause::KvCacheTooSmall,
        line: None,
        says: "x".into(),
        consequence: Consequence::ValueRefused { flag: Some("block-size".into()) },
    };
    let text = serde_json::to_string(&found).unwrap();
    assert!(
        text.contains("\"kv-cache-too-small\"") && text.contains("{\"value-refused\":{\"flag\":\"block-size\"}}"),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<Diagnosis>(&text).unwrap(), found);
    assert_eq!(found.cause.to_string(), "KV cache too small");
}

#[test]
fn a_refused_request_is_no_hang_and_names_the_remedy_of_its_words() {
    let long =
        "HTTP 400: This model's maximum context length is 64 tokens. However, your prompt contains 250 input tokens.";
    let found = request_refused(&Vllm, long, &["max-num-seqs"]);
    assert_eq!((found.cause, &found.consequence), (Cause::Refused, &Consequence::Abort));
    assert!(found.says.contains(long.trim_end_matches('.')), "{}", found.says);
    let tuned = request_refused(&Vllm, long, &["max-model-len"]);
    assert_eq!(tuned.consequence, Consequence::ValueRefused { flag: Some("max-model-len".to_owned()) });
    assert!(tuned.says.ends_with("leave out the values of max-model-len that are too small."), "{}", tuned.says);
    for (says, remedy) in [
        (
            long,
            "Every point would refuse it: shorten the requests in [workload], or raise --max-model-len in engine.args.",
        ),
        ("HTTP 404: The model `m` does not exist.", "correct --served-model-name in engine.args."),
        ("HTTP 401: Unauthorized", "give the engine's key with --api-key in engine.args."),
        (
            "HTTP 400: no chat template is defined",
            "add --chat-template to engine.args, or set endpoint = \"completions\" in [workload].",
        ),
        ("HTTP 422: é", "correct [workload] or engine.args."),
    ] {
        let found = request_refused(&Vllm, says, &["max-num-seqs"]);
        assert!(found.says.ends_with(remedy) && found.consequence == Consequence::Abort, "{}", found.says);
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_fall(
        texts in prop::collection::vec(prop_oneof![
            any::<String>(),
            "(\\(EngineCore pid=1\\) )?(ERROR |INFO:|\\[W|\\[rank0\\]: )?[ A-Za-z0-9_.:\\[\\]é\u{1b}]*",
            Just("1 validation error for X\n".to_owned()),
            Just("vllm: error: argument --é: invalid".to_owned()),
        ], 0..8),
        cut in 0..CUDA.len(),
        code in any::<i32>(),
    ) {
        let log = texts.join("\n");
        for exit in [Exit::Code(code), Exit::Signal(code), Exit::StillRunning] {
            let found = diagnose(&Vllm, &log, exit, &["max-num-seqs", "", "-", "no-"]);
            prop_assert!(!found.says.is_empty());
            prop_assert!(found.line.is_none_or(|l| l.chars().count() <= LINE_LIMIT));
        }
        let _ = diagnose(&Vllm, &String::from_utf8_lossy(&CUDA.as_bytes()[cut..]), Exit::Code(1), TUNED);
    }
}
