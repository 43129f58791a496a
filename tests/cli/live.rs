//! Engines that take the limits of other points while they run, and engines that do not.

use autotune::journal::{Journal, Purpose, Record};
use autotune::rig::Ready;
use autotune::space::Value;

use crate::workbench::{BINARY, Workbench, said};

/// What each trial was for, and what became of its start.
fn trials(journal: &Journal) -> Vec<(Purpose, Ready)> {
    let mut purpose = Purpose::Baseline;
    let started = |record: &Record| match record {
        Record::Launching { purpose: wanted, .. } => {
            purpose = *wanted;
            None
        }
        Record::Ready { ready, .. } => Some((purpose, (**ready).clone())),
        _ => None,
    };
    journal.entries.iter().map(|entry| &entry.record).filter_map(started).collect()
}

/// A job on the simulated engine behind a script, in which each argument is `$a`.
fn behind(script: &str) -> Workbench {
    let bench = Workbench::new("live = true\ncommand = [\"./engine.sh\"]", "");
    let text = format!("args=\nfor a; do {script}\nargs=\"$args $a\"; done\nexec {BINARY} sim-engine $args");
    bench.script("engine.sh", &text);
    bench
}

#[test]
fn one_engine_serves_the_points_of_the_search_and_the_best_is_launched_for_its_proof() {
    let bench = Workbench::certifying("live = true");
    let run = bench.run(&["--seed", "1"]);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let trials = trials(&bench.journal());
    let (first, later) = trials.split_first().unwrap();
    assert!(!first.1.process.altered && first.1.process.widest.is_some(), "{first:?}");
    assert!(later.iter().any(|(purpose, _)| !purpose.certifies()), "the search looks at some point");
    for (purpose, ready) in later {
        assert_eq!(ready.process.altered, !purpose.launches_plainly(), "{purpose:?} {ready:?}");
        assert_eq!(ready.process.widest.is_some(), !purpose.launches_plainly());
        assert!(ready.effective.values.contains_key("max-num-seqs"));
    }
    let launched = trials.iter().filter(|(_, ready)| !ready.process.altered).count();
    assert_eq!(bench.outcome().cost.launches as usize, launched);
    assert!(said(&run).contains("changing the running engine to max-num-seqs"), "{}", said(&run));
    bench.assert_nothing_left();
}

#[test]
fn an_engine_that_does_not_take_other_limits_is_launched_for_each_point() {
    // One that has never heard of them, and one that does not start with another scheduler.
    let deaf = "case $a in --scheduler-cls|autotune_live.Scheduler) continue;; esac";
    let broken = "case $a in autotune_live.Scheduler) a=gone.Scheduler;; esac";
    for (script, why) in [(deaf, "did not take the limits"), (broken, "No module named 'gone'")] {
        let bench = behind(script);
        let run = bench.run(&[]);
        assert!(bench.has_answered(run.status), "{}", said(&run));
        let trials = trials(&bench.journal());
        assert!(trials.len() > 1 && trials.iter().all(|(_, ready)| !ready.process.altered), "{trials:?}");
        let stays = trials[0].1.process.live_unsupported_reason.clone().unwrap_or_default();
        assert!(stays.contains(why) && said(&run).contains("cannot change its limits"), "{stays}\n{}", said(&run));
        assert!(
            bench.path("out/trials/t001-1/engine-live.log").exists()
                && bench.path("out/trials/t001-1/engine.log").exists()
        );
        bench.assert_nothing_left();
    }
}

/// As on a GPU: an engine has CUDA graphs for steps of up to twice its cap on sequences. No other cap of this space leaves as many.
#[test]
fn a_cap_that_leaves_fewer_cuda_graphs_is_launched_and_not_changed() {
    let told = "Initializing a V1 LLM engine (v0.32.0) with config: compilation_config={'max_cudagraph_capture_size': $((2 * seqs))}";
    let script = format!("[ \"$before\" = --max-num-seqs ] && {{ seqs=$a; echo \"{told}\"; }}; before=$a");
    let bench = behind(&script);
    let run = bench.run(&["--seed", "1", "--budget", "30s"]);
    assert!(bench.has_answered(run.status), "{}", said(&run));
    let trials = trials(&bench.journal());
    let tried: Vec<_> = trials.iter().filter(|(purpose, _)| !purpose.launches_plainly()).collect();
    assert!(tried.len() > 1, "another cap is launched: {trials:?}");
    for (_, Ready { process, effective, .. }) in tried {
        let launched = process.widest.as_ref().and_then(|widest| widest.get("max-num-seqs"));
        assert_eq!(launched, effective.values.get("max-num-seqs"), "{process:?}");
        let Some(Value::Int(sequences)) = launched else { panic!("{process:?}") };
        assert_eq!(process.graph, Some(2 * sequences));
    }
    bench.assert_nothing_left();
}
