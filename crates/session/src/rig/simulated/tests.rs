//! Tests of the simulated rig: what misses, kernels, sketches, a cold start and the gauges make of a run.

use futures_util::FutureExt;

use super::*;
use autotune_load::RequestRecord;
use autotune_plan::settings::{WorkloadPlan, parse};
use autotune_twin::{Launch, Start};

fn plan(workload: &str) -> Plan {
    let quickstart = include_str!("../../../../../search-spaces/quickstart.toml");
    let from = quickstart.find("[workload]").unwrap();
    let to = quickstart.find("[parameters]").unwrap();
    parse("test.toml", &format!("{}{workload}\n{}", &quickstart[..from], &quickstart[to..])).unwrap()
}

fn random() -> Plan {
    plan(
        "[workload]\nkind = \"random\"\ninput_tokens = 200\noutput_tokens = 24\nshared_prefix_tokens = 101\nshared_prefixes = 3",
    )
}

fn conversations(endpoint: &str) -> Plan {
    answered(endpoint, 20)
}

fn answered(endpoint: &str, tokens: u32) -> Plan {
    plan(&format!(
        "[workload]\nkind = \"conversations\"\nendpoint = \"{endpoint}\"\nstarters = 3\nstarter_tokens = 130\nturns = 3\n\
         question_tokens = 21\noutput_tokens = {tokens}\nthink_time = \"500ms\""
    ))
}

fn rig(plan: &Plan) -> SimulatedRig {
    SimulatedRig::new(plan.clone(), Profile::quickstart(), 1, Material::default())
}

fn pace(rate: f64, seconds: f64) -> Pace {
    Pace {
        arrival_seed: 3,
        content_seed: 4,
        answer_time: Seconds(0.1),
        ..Pace::new(Demand::Open(Rate(rate)), Seconds(seconds), 5)
    }
}

fn serve(plan: &Plan, misses: f64, traffic: Traffic) -> (Vec<RequestRecord>, Telemetry) {
    serve_by(&rig(plan).misses(misses), plan, traffic)
}

fn serve_by(rig: &SimulatedRig, plan: &Plan, traffic: Traffic) -> (Vec<RequestRecord>, Telemetry) {
    let engine = rig.engine(&plan.space.baseline(), Launch::MEDIAN).unwrap();
    let mut watch = ToTheEnd;
    let mut records = Records::new(&mut watch, Seconds(0.0));
    let telemetry = engine.serve(traffic, &mut records, 9).unwrap().telemetry;
    (records.all(), telemetry)
}

fn sketched(plan: &Plan, rate: f64) -> Traffic {
    Traffic::new(&plan.workload, &Material::default(), pace(rate, 8.0))
}

#[test]
fn sketches_are_served_as_the_words_they_stand_for() {
    for plan in [random(), conversations("completions"), conversations("chat")] {
        let worded = Traffic::worded(&plan.workload, &Material::default(), pace(40.0, 8.0));
        let (words, sketches) = (serve(&plan, 0.0, worded), serve(&plan, 0.0, sketched(&plan, 40.0)));
        assert!(words.0.len() > 250 && words.0.iter().any(|r| r.tokens_cached.is_some_and(|cached| cached > 90)));
        let by_words: Vec<_> = words.0.iter().map(|r| (r.id, r.tokens_in, r.tokens_cached, r.first, r.last)).collect();
        let by_sketches: Vec<_> =
            sketches.0.iter().map(|r| (r.id, r.tokens_in, r.tokens_cached, r.first, r.last)).collect();
        assert_eq!(by_words, by_sketches);
    }
}

#[test]
fn answers_that_are_sent_again_are_found_but_for_the_conversations_that_miss() {
    let plan = answered("chat", 200);
    let missed = |misses| {
        let traffic = Traffic::new(&plan.workload, &Material::default(), pace(1.5, 150.0));
        let records = serve(&plan, misses, traffic).0;
        let later = records.iter().filter(|r| r.turn.is_some_and(|(_, turn)| turn == 1));
        // What of the history was computed again, beside the last block and the question.
        let missed = later.map(|r| r.shared_in.saturating_sub(r.tokens_cached.unwrap_or(0)) > 100);
        let missed: Vec<bool> = missed.collect();
        missed.iter().filter(|missed| **missed).count() as f64 / missed.len() as f64
    };
    let [none, half, all] = [0.0, 0.5, 1.0].map(missed);
    assert!(none < 0.35 && all > none + 0.5, "but for those whose first turn was never sent: {none}, {all}");
    assert!(half > none + 0.15 && half < all - 0.15, "{none}, {half}, {all}");
}

#[test]
fn kernels_tell_what_steps_take() {
    let plan = random();
    let profile = Profile::named("l40s_llama-3.1-8b_tp1_vllm_0.24.0").unwrap();
    let steady = Profile { noise: None, ..profile };
    let (kernels, costs) = (steady.kernels().unwrap(), steady.costs);
    let rig = SimulatedRig::new(plan.clone(), steady, 1, Material::default());
    let alone = serve_by(&rig, &plan, sketched(&plan, 0.5)).0;
    let tpot = alone[0].tpot().unwrap().0;
    let step = kernels.decode_step(1, 200) + costs.base + costs.per_decode;
    assert!((tpot / step - 1.0).abs() < 0.05, "{tpot} and {step}");
}

#[test]
fn gauges_peak_and_a_full_cache_shows() {
    let plan = random();
    let (idle, crowded) = (serve(&plan, 0.0, sketched(&plan, 2.0)).1, serve(&plan, 0.0, sketched(&plan, 300.0)).1);
    assert!(idle.peak_running < crowded.peak_running && idle.peak_waiting < crowded.peak_waiting);
    assert!(idle.peak_kv_usage.unwrap() < 0.5);
    assert!((0.95..=1.0).contains(&crowded.peak_kv_usage.unwrap()), "{crowded:?}");
}

#[test]
fn a_launch_that_knows_how_long_answers_take_warms_up_with_a_few_tokens() {
    let mut plan = random();
    plan.workload.ignore_eos = false;
    let launch = |plan: &Plan, warmed| {
        let trial = Trial { number: 2, attempt: 1, warmed, on: None };
        // Its profile says what a start takes: without that the warm-up takes no time.
        let mut rig = rig(plan);
        rig.profile.start = Some(Start { seconds: 30.0 });
        rig.launch(trial, &plan.space.baseline(), &mut |_| ()).now_or_never().unwrap().unwrap()
    };
    let whole = launch(&plan, None);
    let short = launch(&plan, Some(Warmed { burst_rate: Rate(7.0), answer_time: Seconds(9.0) }));
    assert_eq!((short.warmed.burst_rate, short.warmed.answer_time), (Rate(7.0), Seconds(9.0)), "what was known stays");
    let (warm_up, shorter) = (whole.warm_up.unwrap().0, short.warm_up.unwrap().0);
    assert!(shorter > 0.0 && shorter < 0.9 * warm_up, "{shorter} and {warm_up}");
    assert!((whole.starting().0 - 30.0).abs() < 1e-9 && (short.starting().0 - 30.0).abs() < 1e-9);
    // Answers as long as was asked need not be waited for.
    let asked =
        launch(&Plan { workload: WorkloadPlan { ignore_eos: true, ..plan.workload.clone() }, ..plan.clone() }, None);
    assert_eq!((asked.warm_up, asked.warmed), (short.warm_up, whole.warmed));
}

#[test]
fn the_first_start_alone_is_cold() {
    let plan = random();
    let took = |rig: &mut SimulatedRig, number, attempt| {
        let point = plan.space.baseline();
        let ready =
            rig.launch(Trial { number, attempt, warmed: None, on: None }, &point, &mut |_| ()).now_or_never().unwrap();
        ready.unwrap().took.0
    };
    let mut cold = rig(&plan).first_start(Some(Seconds(66.0)));
    assert!((66.0..68.0).contains(&took(&mut cold, 1, 1)));
    for (number, attempt) in [(1, 2), (2, 1)] {
        assert_eq!(took(&mut cold, number, attempt), took(&mut rig(&plan), number, attempt));
    }
}
