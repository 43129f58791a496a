//! A whole session, and what happens when it is asked for again.

use std::process::Command;
use std::time::Duration;

use autotune::engine::diagnosis::Cause;
use autotune::journal::{FILE, Record, Status};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::workbench::{BINARY, Workbench, said};

#[test]
fn a_session_ends_with_an_answer_and_asking_again_costs_nothing() {
    let bench = Workbench::certifying("");
    let run = bench.run(&["--seed", "1"]);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let outcome = bench.outcome();
    assert!(outcome.simulated && outcome.status == Status::Certified);
    assert!(outcome.best.as_ref().is_some_and(|best| best.certified_rate.is_some()), "{}", said(&run));
    let best = outcome.best.unwrap();
    assert!(best.arguments.contains(&"--max-num-seqs".to_owned()));
    assert!(bench.path("out/args.txt").exists());
    let rows = std::fs::read_to_string(bench.path("out/trials.csv")).unwrap().lines().count();
    let probes = outcome.cost.probes as usize;
    assert_eq!(rows, 1 + probes, "one row a probe");
    for entry in &bench.journal().entries {
        if let Record::Probed { requests, verdict, .. } = &entry.record {
            let lines = std::fs::read_to_string(bench.path("out").join(requests)).unwrap().lines().count() as u64;
            assert!(lines > verdict.counted, "every request of every probe is kept");
        }
    }
    bench.assert_nothing_left();
    let page = std::fs::read_to_string(bench.path("out/report.html")).unwrap();
    assert!(page.contains("Simulated engine</span> no number is a measurement.") && page.ends_with("</html>\n"));
    assert!(said(&run).contains("report.html"));
    std::fs::remove_file(bench.path("out/report.html")).unwrap();
    let report = Command::new(BINARY).arg("report").arg("out").current_dir(bench.path("")).output().unwrap();
    assert_eq!(report.status.code(), Some(0), "{}", said(&report));
    assert!(said(&report).contains("out/report.md"));
    let again = std::fs::read_to_string(bench.path("out/report.html")).unwrap();
    assert!(again == page, "the folder holds all that the report needs");

    // A report that cannot be written costs neither the answer nor the exit code.
    std::fs::remove_file(bench.path("out/report.html")).unwrap();
    std::fs::create_dir_all(bench.path("out/report.html/full")).unwrap();
    let again = bench.run(&[]);
    assert_eq!(again.status.code(), run.status.code());
    assert!(said(&again).contains(" already holds the answer of this job; --fresh runs it again"));
    assert!(said(&again).contains("warning: report.html and report.md are not up to date"), "{}", said(&again));
    assert_eq!(bench.outcome().cost.probes as usize, probes);

    // Another job in the same folder is refused, and told apart.
    let text = std::fs::read_to_string(bench.path("space.toml")).unwrap();
    std::fs::write(bench.path("space.toml"), text.replace("tpot_p99 = \"30ms\"", "tpot_p99 = \"31ms\"")).unwrap();
    let other = bench.run(&["--resume"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(said(&other).contains("belongs to another job") && said(&other).contains("0.03"), "{}", said(&other));
    assert!(!bench.path("out.previous-1").exists());
    let fresh = bench.run(&["--fresh", "--budget", "1s"]);
    assert!(bench.path("out.previous-1/outcome.json").exists(), "put aside, not deleted: {}", said(&fresh));
}

#[test]
fn promises_that_no_rate_keeps_are_an_answer_too() {
    let bench = Workbench::new("", "candidates = 1");
    let text = std::fs::read_to_string(bench.path("space.toml")).unwrap();
    std::fs::write(bench.path("space.toml"), text.replace("tpot_p99 = \"30ms\"", "tpot_p99 = \"1us\"")).unwrap();
    let run = bench.run(&[]);
    assert_eq!(run.status.code(), Some(3), "{}", said(&run));
    assert_eq!(bench.outcome().status, Status::NotReachable);
    assert!(bench.outcome().because.contains("tpot_p99 breaks first"), "{}", bench.outcome().because);
    bench.assert_nothing_left();
}

/// The twin counts the tokens of prompts by the words and the chat template of the engine. A resumed session has no engine to ask.
#[test]
fn a_chat_is_resumed_in_the_words_that_its_engine_told() {
    let bench = Workbench::new("", "");
    let space = std::fs::read_to_string(bench.path("space.toml")).unwrap();
    let (before, rest) = space.split_once("[workload]").unwrap();
    let (_, after) = rest.split_once("[parameters]").unwrap();
    let chat = r#"
kind = "conversations"
endpoint = "chat"
starters = 4
starter_tokens = { distribution = "uniform", min = 80, max = 160 }
turns = 3
think_time = "100ms"
question_tokens = { distribution = "uniform", min = 10, max = 40 }
output_tokens = { distribution = "uniform", min = 16, max = 32 }
"#;
    std::fs::write(bench.path("space.toml"), format!("{before}[workload]{chat}[parameters]{after}")).unwrap();
    let first = bench.run(&[]);
    let (answer, whole) = (bench.outcome(), bench.journal());
    assert!(whole.entries.iter().any(|e| matches!(e.record, Record::Words(_))), "{}", said(&first));
    let file = bench.path("out").join(FILE);
    let text = std::fs::read_to_string(&file).unwrap();
    let without_answer = text.trim_end().rfind('\n').unwrap() + 1;
    std::fs::write(&file, &text[..without_answer]).unwrap();
    let again = bench.run(&["--resume"]);
    assert_eq!(again.status.code(), first.status.code(), "{}", said(&again));
    assert_eq!((bench.outcome().best, bench.outcome().cost), (answer.best, answer.cost), "{}", said(&again));
    bench.assert_nothing_left();
}

#[test]
fn a_terminal_that_goes_away_ends_a_session_unless_nohup_keeps_it() {
    for (hangup, ends) in [("--default-signal=HUP", true), ("--ignore-signal=HUP", false)] {
        let bench = Workbench::with_budget("", "candidates = 1", "3s");
        let mut env = Command::new("env");
        env.args([hangup, BINARY]);
        let mut child = bench.through(env, &[]).spawn().unwrap();
        while !bench.path("out").join(FILE).exists() || bench.journal().unstopped().is_empty() {
            assert_eq!(child.try_wait().unwrap(), None, "it ended before an engine was started");
            std::thread::sleep(Duration::from_millis(20));
        }
        kill(Pid::from_raw(child.id() as i32), Signal::SIGHUP).unwrap();
        let run = child.wait_with_output().unwrap();
        assert_eq!(run.status.code() == Some(5), ends, "{hangup}: {:?} {}", run.status, said(&run));
        assert!(run.status.code().is_some(), "{hangup}: {:?}", run.status);
        assert_eq!(said(&run).contains("interrupted") && said(&run).contains("--resume"), ends, "{}", said(&run));
        bench.assert_nothing_left();
    }
}

/// A text whose lines are not broken.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The same of an engine that is no vLLM: other flags, endpoints, metrics and log lines, and no model of it.
#[test]
fn a_session_on_sglang_ends_with_its_own_arguments() {
    let bench = Workbench::certifying("");
    let command = format!(
        "kind = \"sglang\"\ncommand = [\"{BINARY}\", \"sim-engine\", \"--sim-dialect\", \"sglang\", \"--model-path\", \"m\"]"
    );
    let space = std::fs::read_to_string(bench.path("space.toml")).unwrap();
    let space = space.replace("kind = \"simulated\"", &command).replace("max-num-seqs", "max-running-requests");
    std::fs::write(
        bench.path("space.toml"),
        space.replace("[search]", "disable-radix-cache = { values = [false] }\n[search]"),
    )
    .unwrap();
    let check = Command::new(BINARY).arg("check").arg(bench.path("space.toml")).output().unwrap();
    let says = in_one_line(&said(&check));
    assert_eq!(check.status.code(), Some(0), "{says}");
    assert!(says.contains("--sim-dialect sglang --model-path m --help` lists every flag"), "{says}");
    assert!(says.contains("violations are counted: there is no model of SGLang"), "{says}");
    let run = bench.run(&["--seed", "1"]);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let outcome = bench.outcome();
    let best = outcome.best.unwrap();
    assert_eq!((outcome.status, outcome.engine_version.as_deref()), (Status::Certified, Some("0.5.23+sim")));
    assert_eq!(best.arguments.first().map(String::as_str), Some("--max-running-requests"));
    assert_eq!(best.arguments.len(), 2, "what is off is left out");
    for entry in &bench.journal().entries {
        if let Record::Probed { telemetry, cache, .. } = &entry.record {
            assert!(telemetry.peak_running.is_some() && telemetry.peak_kv_usage.is_some(), "its counters were read");
            assert!(cache.reset, "its cache was emptied");
        }
    }
    bench.assert_nothing_left();
}

/// The same of a graph of Dynamo with TensorRT-LLM: a frontend and a worker of our own, and memory that runs out.
#[test]
fn a_session_on_tensorrt_llm_steps_its_memory_down_and_ends_with_its_own_arguments() {
    let bench = Workbench::certifying("");
    let command = format!(
        "kind = \"dynamo\"\nbackend = \"trtllm\"\ncommand = [\"{BINARY}\", \"sim-engine\"]\nargs = [\"--model-path\", \"m\"]"
    );
    let space = std::fs::read_to_string(bench.path("space.toml")).unwrap();
    let share = "\"trtllm.kv_cache_config.free_gpu_memory_fraction\" = { values = [0.5, 0.8, 0.999], default = 0.5 }";
    let space = space.replace("kind = \"simulated\"", &command).replace("max-num-seqs", "\"trtllm.max_batch_size\"");
    let space = space.replace("default = 4 }", "default = 64 }");
    std::fs::write(bench.path("space.toml"), space.replace("[search]", &format!("{share}\n[search]"))).unwrap();
    let check = Command::new(BINARY).arg("check").arg(bench.path("space.toml")).output().unwrap();
    let says = in_one_line(&said(&check));
    assert_eq!(check.status.code(), Some(0), "{says}");
    assert!(says.contains("sim-engine -m dynamo.trtllm --help` lists every flag"), "{says}");
    assert!(says.contains("there is no model of TensorRT-LLM behind Dynamo"), "{says}");
    let run = bench.run(&["--seed", "1"]);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let outcome = bench.outcome();
    let best = outcome.best.unwrap();
    assert_eq!((outcome.status, outcome.engine_version.as_deref()), (Status::Certified, Some("0+sim")));
    // Which of the two shares that start is the better one hangs on how busy this machine is.
    let arguments = best.arguments.join(" ");
    let share = |share| format!("--trtllm.kv_cache_config.free_gpu_memory_fraction {share} --trtllm.max_batch_size ");
    assert!(arguments.contains(&share(0.8)) || arguments.contains(&share(0.5)), "{arguments}");
    assert!(said(&run).contains("0.8 is kept in all further trials"), "the largest share that starts: {}", said(&run));
    let (mut out_of_memory, mut probed) = (0, 0);
    for entry in &bench.journal().entries {
        match &entry.record {
            Record::NotReady { failure, .. } => {
                assert_eq!(failure.diagnosis.cause, Cause::OutOfMemory, "{failure:?}");
                out_of_memory += 1;
            }
            Record::Probed { telemetry, .. } => {
                assert!(
                    telemetry.peak_running.is_some() && telemetry.peak_kv_usage.is_some(),
                    "its counters were read"
                );
                probed += 1;
            }
            _ => {}
        }
    }
    assert!(out_of_memory > 0 && probed > 0, "{}", said(&run));
    bench.assert_nothing_left();
}

/// A job in which a variable, a flag with a condition and a constraint with alternatives are tuned. The engine's own first line tells what
/// it was started with.
fn with_variables() -> Workbench {
    let command = format!(
        "command = [\"sh\", \"-c\", 'echo \"backend ${{BACKEND-none}}: $*\"; exec {BINARY} sim-engine \"$@\"', \"engine\"]"
    );
    let constraints = "constraints = [\"env.BACKEND == off or max-num-seqs == 16\"]";
    let bench = Workbench::with_budget(&command, constraints, "40s");
    let space = std::fs::read_to_string(bench.path("space.toml")).unwrap();
    let more = "max-num-seqs = { values = [4, 16], default = 4 }\n\
                \"env.BACKEND\" = { values = [\"off\", \"FLASHINFER\"], default = \"off\" }\n\
                block-size = { values = [16, 32], default = 32, when = \"env.BACKEND != off\" }";
    let space = space.replace("max-num-seqs = { values = [4, 16, 64], default = 4 }", more);
    std::fs::write(bench.path("space.toml"), space).unwrap();
    bench
}

#[test]
fn variables_and_conditions_go_through_launch_journal_and_answer() {
    let bench = with_variables();
    let check =
        Command::new(BINARY).args(["check", "--space", "space.toml"]).current_dir(bench.path("")).output().unwrap();
    let says = in_one_line(&said(&check));
    assert!(says.contains("6 in the grid, 4 keep the constraints"), "{says}");
    assert!(says.contains("the model of the engine has no term for `env.BACKEND`"), "{says}");
    assert!(says.contains("block-size: 16 32 (default 32), when env.BACKEND != off"), "{says}");

    let run = bench.run(&["--seed", "1"]);
    assert!(bench.has_answered(run.status), "{}", said(&run));
    let mut backends = 0;
    for entry in &bench.journal().entries {
        let Record::Launching { trial, point, .. } = &entry.record else { continue };
        let log = std::fs::read_to_string(bench.path(&format!("out/trials/t{trial:03}-1/engine.log"))).unwrap();
        let first = log.lines().find(|line| line.contains("backend ")).unwrap();
        let flashinfer = point.get("env.BACKEND").is_some_and(|backend| backend.to_string() == "FLASHINFER");
        assert_eq!(first.contains("backend FLASHINFER: "), flashinfer, "{point}: {first}");
        assert_eq!(first.contains("--block-size"), flashinfer, "{point}: {first}");
        assert!(!first.contains("env.BACKEND"), "{first}");
        assert!(!flashinfer || point.get("max-num-seqs").is_some_and(|seqs| seqs.to_string() == "16"), "{point}");
        backends += u32::from(flashinfer);
    }
    assert!(backends > 0, "each value of what has no term is launched: {}", said(&run));
    let best = bench.outcome().best.unwrap();
    let tuned = best.parameters.get("env.BACKEND").unwrap().to_string() == "FLASHINFER";
    assert_eq!(best.environment.get("BACKEND").map(String::as_str), tuned.then_some("FLASHINFER"));
    assert_eq!(best.left_out, if tuned { vec![] } else { vec!["block-size".to_owned()] });
    assert_eq!(bench.path("out/env.txt").exists(), tuned);
    let rows = std::fs::read_to_string(bench.path("out/trials.csv")).unwrap();
    assert!(rows.lines().next().unwrap().contains("max-num-seqs,env.BACKEND,block-size"), "{rows}");
}

/// Without its log and `/server_info`, an engine tells what it serves and no more.
#[test]
fn an_engine_that_tells_none_of_its_defaults_is_tuned_all_the_same() {
    let bench = Workbench::with_budget("", "", "60s");
    let engine = bench.script(
        "silent",
        &format!("unset VLLM_SERVER_DEV_MODE\nexec '{BINARY}' sim-engine sim-model \"$@\" > engine.out 2>&1"),
    );
    let vllm = format!("kind = \"vllm\"\ncommand = [\"{}\"]", engine.display());
    let space = std::fs::read_to_string(bench.path("space.toml")).unwrap();
    let space = space.replace("kind = \"simulated\"", &vllm).replace(", default = 4", "");
    std::fs::write(bench.path("space.toml"), space).unwrap();
    let run = bench.run(&["--seed", "1"]);
    let says = "the engine tells none of its defaults for the tuned parameters, so the report shows them without values; a `default` \
                of each in the space file names them";
    assert!(said(&run).contains(says) && bench.has_answered(run.status), "{}", said(&run));
    let launched = bench.journal().entries.into_iter().filter_map(|entry| match entry.record {
        Record::Launching { point, .. } => Some(point),
        _ => None,
    });
    let launched: Vec<_> = launched.collect();
    assert!(launched[0].0.is_empty() && launched.iter().any(|point| !point.0.is_empty()), "{launched:?}");
    let baseline = bench.outcome().baseline.unwrap();
    assert!(baseline.parameters.0.is_empty() && baseline.arguments.is_empty(), "{baseline:?}");
    let report = std::fs::read_to_string(bench.path("out/report.md")).unwrap();
    assert!(report.contains("| defaults |") || report.contains("| defaults, trial 1 |"), "{report}");
}

#[test]
fn a_point_that_takes_more_gpus_than_there_are_is_left_out() {
    let bench = Workbench::new("", "");
    let space = std::fs::read_to_string(bench.path("space.toml")).unwrap();
    let more =
        "max-num-seqs = { values = [16], default = 16 }\ntensor-parallel-size = { values = [1, 2, 4], default = 1 }";
    let space = space.replace("max-num-seqs = { values = [4, 16, 64], default = 4 }", more);
    std::fs::write(bench.path("space.toml"), &space).unwrap();
    let gpus = |command: &mut Command| command.env("CUDA_VISIBLE_DEVICES", "0,1").output().unwrap();
    let check = gpus(Command::new(BINARY).args(["check", "--space", "space.toml"]).current_dir(bench.path("")));
    assert!(said(&check).contains("some points take 4 GPUs, and 2 are there"), "{}", said(&check));
    let run = gpus(&mut bench.command(&["--seed", "1"]));
    assert!(bench.has_answered(run.status), "{}", said(&run));
    let best = bench.outcome().best.unwrap();
    assert!(best.parameters.get("tensor-parallel-size").unwrap().number().unwrap() <= 2.0);

    std::fs::write(bench.path("space.toml"), space.replace("default = 1 }", "default = 4 }")).unwrap();
    let run = gpus(&mut bench.command(&["--fresh"]));
    assert!(said(&run).contains("the defaults do not start (it takes 4 GPUs, and 2 are there"), "{}", said(&run));
}

/// On a machine with GPUs, their memory is that of other processes.
#[test]
fn gpus_that_are_hidden_are_not_looked_at() {
    let bench = Workbench::new("", "");
    bench.script("nvidia-smi", "echo \"$@\" >> asked\necho 5");
    let path = format!("{}:{}", bench.path("").display(), std::env::var("PATH").unwrap());
    for (visible, asks) in [("", false), ("0", true)] {
        let mut check = Command::new(BINARY);
        check.args(["check", "--space", "space.toml"]).current_dir(bench.path(""));
        let check = check.env("PATH", &path).env("CUDA_VISIBLE_DEVICES", visible).output().unwrap();
        assert_eq!(check.status.code(), Some(0), "{}", said(&check));
        assert_eq!(bench.path("asked").exists(), asks, "CUDA_VISIBLE_DEVICES='{visible}'");
    }
}

#[test]
fn a_trial_whose_drafts_are_never_accepted_ends_at_once_and_the_search_leaves_its_point() {
    let bench = Workbench::with_budget("args = [\"--sim-acceptance\", \"0\"]", "", "40s");
    let space = std::fs::read_to_string(bench.path("space.toml")).unwrap();
    let tuned = r#"speculative-config = { values = ["off", '{"method":"ngram","num_speculative_tokens":4}'], default = "off" }"#;
    let space = space.replace("max-num-seqs = { values = [4, 16, 64], default = 4 }", tuned);
    // A probe whose promises break would end the trial before enough is drafted.
    let space = space
        .replace("\"400ms\"", "\"2s\"")
        .replace("\"30ms\"", "\"1s\"")
        .replace("window = \"600ms\"", "window = \"4s\"");
    std::fs::write(bench.path("space.toml"), space).unwrap();
    let run = bench.run(&["--seed", "1"]);
    let journal = bench.journal();
    let broken: Vec<_> = journal
        .entries
        .iter()
        .filter_map(|entry| match &entry.record {
            Record::Broken { trial, probe, failure, .. } => Some((*trial, *probe, failure)),
            _ => None,
        })
        .collect();
    let [(trial, probe, failure)] = broken.as_slice() else { panic!("{broken:?}\n{}", said(&run)) };
    assert!(*trial > 1 && *probe == 1, "not the baseline, and no second try: {broken:?}");
    assert!(failure.took.0 < 4.0, "it ended before its window did: {failure:?}");
    let says = &failure.diagnosis.says;
    assert!(says.contains("drafts are not worth their cost: acceptance_length is 1, and >=1.1 is required"), "{says}");
    assert!(said(&run).contains("drafts are not worth their cost"), "{}", said(&run));
    let [csv, page] =
        ["trials.csv", "report.html"].map(|name| std::fs::read_to_string(bench.path("out").join(name)).unwrap());
    assert!(
        csv.contains("drafts are not worth their cost") && page.contains("drafts are not worth their cost"),
        "{csv}"
    );
    assert!(bench.outcome().best.is_none_or(|best| best.parameters.to_string().contains("off")), "{}", said(&run));
}
