//! Rehearsals of small jobs: what they say, what they refuse, and that they repeat.

use super::*;
use crate::journal::Record;
use crate::quickstart::quickstart as plan;
use autotune_plan::engine::diagnosis::Cause;
use autotune_twin::Noise;

/// Six points, and probes so short that a session takes a moment also without optimisation.
const SMALL: [(&str, &str); 4] = [
    ("[0.80, 0.85, 0.90, 0.94, 0.98], default = 0.85", "[0.94], default = 0.94"),
    ("[128, 256, 2048]", "[256, 2048]"),
    ("window = \"1500ms\"", "window = \"1s\""),
    ("certify_window = \"6s\"", "certify_window = \"8s\""),
];

fn run(plan: &Plan, profile: &Profile, seeds: &[u64], truth_requests: usize) -> Result<Rehearsal, RehearsalError> {
    rehearse(Job::of(plan, profile, &Material::default(), truth_requests), seeds)
}

#[test]
fn a_rehearsal_tells_cost_gain_and_truth() {
    let (plan, profile) = (plan(&SMALL), Profile::quickstart());
    let rehearsal = run(&plan, &profile, &[1, 2, 3], 1500).unwrap();
    assert_eq!(rehearsal.sessions.iter().map(|s| s.seed).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(rehearsal.statuses.iter().map(|(_, count)| count).sum::<usize>(), 3);
    assert!(rehearsal.launches.unwrap().median >= 3.0);
    for session in &rehearsal.sessions {
        let (spending, whole) = (session.spending, session.cost.engine_seconds.0);
        let proof = (spending.proof_launches + spending.proof_probes + spending.proof_bursts).0;
        let searching = spending.launches + spending.probes + spending.bursts;
        assert!(proof > 0.0 && searching.0 > 0.0, "{spending:?}");
        assert!((searching.0 + proof - whole).abs() < 1e-6, "nothing is left out: {spending:?} of {whole}");
    }
    let budget = rehearsal.budget.0 * 1.1;
    assert!(rehearsal.gpu_seconds.is_some_and(|s| s.low > 1.0 && s.high < budget), "{:?}", rehearsal.gpu_seconds);
    let truth = rehearsal.truth.as_ref().unwrap();
    assert_eq!((truth.points, truth.not_starting, truth.requests), (6, 0, 1500));
    assert!(truth.baseline_rate.unwrap().0 < truth.best_rate.0, "{truth:?}");
    assert!(truth.chosen.is_some_and(|c| c.high <= 1.0 && c.low > 0.5), "{truth:?}");
    assert_eq!(rehearsal, run(&plan, &profile, &[1, 2, 3], 1500).unwrap(), "the same seeds give the same rehearsal");

    let json = serde_json::to_string(&rehearsal).unwrap();
    assert!(json.starts_with("{\"simulation\":true,"), "{json}");
}

#[test]
fn parameters_that_the_model_does_not_know_are_refused_by_name() {
    let strange =
        plan(&[("[search]", "block-size = { values = [16, 32] }\nswap-space = { values = [0, 4] }\n[search]")]);
    let error = run(&strange, &Profile::quickstart(), &[1], 0).unwrap_err().to_string();
    assert!(
        ["`block-size`", "`swap-space`", "hint", "max-num-seqs"].iter().all(|part| error.contains(part)),
        "{error}"
    );
    // A space file with it is refused.
    let mut impossible = plan(&[]);
    let parameters = impossible.space.parameters.iter_mut();
    parameters.filter(|p| p.name == "max-num-seqs").for_each(|p| p.values[0] = autotune_plan::space::Value::Int(0));
    let error = run(&impossible, &Profile::quickstart(), &[1], 0).unwrap_err().to_string();
    assert!(error.contains("`max-num-seqs` cannot be `0`"), "{error}");
}

#[test]
fn fixed_arguments_count_where_the_model_knows_them_and_are_told_where_not() {
    let args =
        |words: &str| ("kind = \"simulated\"", format!("kind = \"vllm\"\ncommand = [\"vllm\"]\nargs = [{words}]"));
    let (from, args_known) = args("\"--enforce-eager\", \"--max-model-len\", \"512\"");
    let mut changes = SMALL.to_vec();
    changes.push((from, &args_known));
    let rehearsal = run(&plan(&changes), &Profile::quickstart(), &[1], 0).unwrap();
    assert_eq!(rehearsal.not_simulated, ["--enforce-eager"]);
    // The longest requests have 282 tokens: an engine for 200 refuses most of the traffic.
    let (from, short) = args("\"--max-model-len=200\"");
    changes.pop();
    changes.push((from, &short));
    let rehearsal = run(&plan(&changes), &Profile::quickstart(), &[1], 0).unwrap();
    assert_eq!(rehearsal.sessions[0].status, Status::NotReachable, "{}", rehearsal.sessions[0].because);
}

#[test]
fn an_unsteady_engine_ends_otherwise_and_repeats_with_its_seed() {
    let (plan, steady) = (plan(&SMALL), Profile::quickstart());
    let noise =
        Noise { run_to_run: 0.05, step_to_step: 0.05, stall_chance: 1e-3, stall_seconds: 0.05, ..Noise::default() };
    let unsteady = Profile { noise: Some(noise), ..steady.clone() };
    let of = |profile: &Profile| run(&plan, profile, &[5], 0).unwrap().sessions;
    assert_ne!(of(&steady), of(&unsteady));
    assert_eq!(of(&unsteady), of(&unsteady));
}

#[test]
fn an_engine_that_starts_and_runs_out_of_memory_under_load_is_told_so() {
    // At 0.94 some 81 MiB are left. The samplers of 128 sequences take 64 of them, and the rest is enough for 17 that run.
    let mut profile = Profile::quickstart();
    profile.memory.load_per_sequence = 1 << 20;
    let plan = plan(&SMALL);
    let rig = SimulatedRig::new(plan.clone(), profile.clone(), 1, Material::default());
    let trial_runner = TrialRunner::new(vec![rig], &plan, 1, &Silent, None, Journal::default());
    let mut session = Session::new(trial_runner, &plan, &Silent);
    let conclusion = session.run().now_or_never().unwrap().unwrap();
    let seen = session.trial_runner().journal().entries.iter().any(|e| match &e.record {
        Record::Broken { failure, .. } | Record::NotReady { failure, .. } => {
            failure.diagnosis.cause == Cause::OutOfMemory && failure.diagnosis.says.contains("under load")
        }
        _ => false,
    });
    assert!(seen, "the defaults admit 128 sequences: {}", conclusion.because);
    let best = conclusion.best.unwrap_or_else(|| panic!("{}", conclusion.because)).point;
    assert!(
        best.get("max-num-seqs").and_then(autotune_plan::space::Value::number).is_some_and(|seqs| seqs < 128.0),
        "{best}"
    );
}

#[test]
fn the_truth_is_told_or_why_there_is_none() {
    let job = |plan: &Plan| {
        let (profile, material) = (Profile::quickstart(), Material::default());
        Truth::in_time(Job::of(plan, &profile, &material, 1500))
            .map(|truth| truth.best().map(|(point, rate)| (point.clone(), rate)))
    };
    let (point, rate) = job(&plan(&SMALL)).unwrap().unwrap();
    assert_eq!(point.get("max-num-seqs"), Some(&autotune_plan::space::Value::Int(16)), "{point} {rate}");
    assert_eq!(job(&plan(&[("tpot_p99 = \"7ms\"", "itl_p99 = \"7ms\"")])), Err(NoTruth::Gaps));
    let long = plan(&[("min = 16, max = 32", "min = 16000, max = 32000")]);
    assert!(matches!(job(&long), Err(NoTruth::TooLong { points: 45 })));
    assert_eq!(job(&plan(&[("tpot_p99 = \"7ms\"", "tpot_p99 = \"1us\"")])), Ok(None));
}

/// Speculation beside none, where each drafted token is accepted with that chance.
fn speculating(acceptance: f64) -> Plan {
    let text = include_str!("../../../../search-spaces/speculation.toml");
    autotune_plan::settings::parse("speculation.toml", &text.replace("\"0.8\"", &format!("\"{acceptance}\""))).unwrap()
}

#[test]
fn speculation_is_chosen_where_it_is_better_and_left_where_it_is_not() {
    let drafts = |session: &Rehearsed| {
        let point = &session.best.as_ref().unwrap().point;
        point.get("speculative-config").is_some_and(|value| value.to_string() != "off")
    };
    for (acceptance, better) in [(0.8, true), (0.0, false)] {
        let plan = speculating(acceptance);
        assert_eq!((plan.without_term(), plan.with_twin()), (vec!["speculative-config"], false));
        let rehearsal = run(&plan, &Profile::quickstart(), &[1, 2, 3, 4, 5, 6], 1500).unwrap();
        let truth = rehearsal.truth.as_ref().unwrap();
        let drafted = truth.best.get("speculative-config").is_some_and(|value| value.to_string() != "off");
        assert_eq!(drafted, better, "at {acceptance}: {truth:?}");
        let right = rehearsal.sessions.iter().filter(|session| drafts(session) == better).count();
        assert_eq!(right, 6, "at {acceptance}: {:?}", rehearsal.chosen);
    }
}
