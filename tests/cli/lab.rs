//! The control arm of the lab, and its true limits.

#[path = "../../lab/capacity.rs"]
mod capacity;
#[path = "../../lab/strategies.rs"]
mod strategies;

use autotune::rehearsal::{Deviations, Job, Truth};
use autotune::search::{MakeStrategy, Observation, ProbedRate, Query, Tell};
use autotune::settings::{Plan, parse};
use autotune::space::{Parameter, Point, Space, Value};
use autotune::twin::{Noise, Profile};
use autotune::units::Rate;
use autotune::workload::Material;

use capacity::{LongRunTraffic, bracket};
use strategies::random;

/// Nothing is expected of an engine that is a function.
struct Nothing;

impl autotune::search::Expectation for Nothing {
    fn margins(&mut self, _: &Point, _: Rate) -> Vec<Option<f64>> {
        Vec::new()
    }

    fn runs(&self, _: &Point) -> bool {
        true
    }

    fn price(&self, _: &Point, _: Rate) -> autotune::units::Seconds {
        autotune::units::Seconds(1.0)
    }
}

fn quickstart() -> Plan {
    parse("quickstart.toml", include_str!("../../search-spaces/quickstart.toml")).unwrap()
}

fn plan(candidates: u32) -> Plan {
    let mut plan = quickstart();
    let parameter = |(name, values): (&str, i64)| Parameter {
        name: name.into(),
        values: (0..values).map(Value::Int).collect(),
        default: Some(Value::Int(0)),
        when: None,
    };
    plan.space = Space { parameters: [("a", 4), ("b", 3)].map(parameter).to_vec(), constraints: Vec::new() };
    plan.search.candidates = candidates;
    plan
}

/// The points of a search in their order. A point keeps 8 req/s and half of one more for each of `a`.
fn searched(make: MakeStrategy, plan: &Plan, seed: u64) -> Vec<String> {
    let mut strategy = make(plan, seed, &plan.space.baseline(), Rate(8.0));
    let (mut points, mut heard, mut opened) = (Vec::new(), Vec::new(), false);
    loop {
        let Some(query) = strategy.ask(&mut Nothing, &[]) else {
            if opened {
                return points;
            }
            strategy.open(&Point::default());
            opened = true;
            continue;
        };
        let Query { point, rate } = &query;
        if points.last() != Some(&point.to_string()) {
            heard.clear();
            points.push(point.to_string());
        }
        let keeps = 8.0 + 0.5 * point.get("a").and_then(Value::number).unwrap();
        let margin = (rate.0 / keeps).ln();
        let seen = Observation {
            kept: margin <= 0.0,
            margin: Some(margin),
            limits: Vec::new(),
            saturated: false,
            by_twin: None,
        };
        heard.push(ProbedRate { rate: *rate, seen });
        strategy.tell(&query, &Tell::Probed(heard.clone()));
    }
}

#[test]
fn random_points_repeat_with_the_seed_and_never_within_a_search() {
    let points = |candidates, seed| searched(random, &plan(candidates), seed);
    assert_eq!(points(6, 1), points(6, 1));
    assert_ne!(points(6, 1), points(6, 2));
    assert_eq!(points(6, 1).len(), 1 + 6);
    let mut all = points(100, 3);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 12, "as many as there are, the baseline among them, none of them twice");
}

#[test]
fn a_bracket_holds_the_limit_from_any_guess() {
    for (limit, guess) in [(0.03, 1.0), (1.1, 1.0), (77.0, 80.0), (77.0, 3.0)] {
        let found = bracket(|rate| 3.0 * (rate.0 / limit).ln(), Rate(guess), 1.06, 1.02).unwrap();
        assert!((found.root().0 / limit - 1.0).abs() < 1e-9 && (found.slope() - 3.0).abs() < 1e-6, "{found:?}");
    }
    assert!(bracket(|_| 1.0, Rate(1.0), 2.0, 1.02).is_none());
}

fn job<'a>(plan: &'a Plan, profile: &'a Profile, material: &'a Material, deviations: Deviations) -> Job<'a> {
    Job { deviations, ..Job::of(plan, profile, material, 20_000) }
}

#[test]
fn without_noise_it_is_the_limit_that_replays_find() {
    let mut plan = quickstart();
    let [seqs, tokens] = [16, 256].map(Value::Int);
    let keep = plan.space.baseline().with("gpu-memory-utilization", Value::Real(0.94));
    let keep = keep.with("max-num-seqs", seqs).with("max-num-batched-tokens", tokens);
    plan.space.parameters.iter_mut().for_each(|p| p.values.retain(|v| keep.0[&p.name].same(v)));
    let (profile, material) = (Profile::named("quickstart").unwrap(), Material::default());
    let job = job(&plan, &profile, &material, Deviations::default());
    let replayed = Truth::of(job).unwrap().limit(&keep).unwrap().0;
    let long_run = LongRunTraffic::new(job, 20_000).unwrap();
    let long = long_run.long(&keep).unwrap();
    let fine = long.fine(long.coarse(20_000), 20_000);
    assert!((fine.rate.0 / replayed - 1.0).abs() < 0.01, "{fine:?} against {replayed}");
}

#[test]
fn the_fast_way_says_what_the_blocks_say() {
    let (plan, material) = (quickstart(), Material::default());
    let noise = Noise { step_to_step: 0.05, ..Noise::default() };
    let profile = Profile { noise: Some(noise), ..Profile::named("quickstart").unwrap() };
    let long_run = LongRunTraffic::new(job(&plan, &profile, &material, Deviations::default()), 3_000).unwrap();
    let long = long_run.long(&plan.space.baseline()).unwrap();
    // Above, the KV cache fills now and then, and blocks decide.
    for rate in [2.0, 5.0] {
        let (fast, slow) = (long.margin(Rate(rate), 3_000), long.by_blocks(Rate(rate), 3_000));
        assert!(long.is_fast(Rate(rate)) && (fast - slow).abs() < 1e-6, "{fast} against {slow} at {rate}");
    }
}

#[test]
fn noise_and_age_lower_a_limit_and_what_does_not_start_has_none() {
    let (plan, steady, material) = (quickstart(), Profile::named("quickstart").unwrap(), Material::default());
    let stalls = Noise { stall_chance: 2e-3, stall_seconds: 0.1, ..Noise::default() };
    let noisy = Profile { noise: Some(stalls), ..steady.clone() };
    let aged = Noise { ageing: 0.1, ageing_seconds: 60.0, ..Noise::default() };
    let aged = Profile { noise: Some(aged), ..steady.clone() };
    let limit = |profile: &Profile| {
        let long_run = LongRunTraffic::new(job(&plan, profile, &material, Deviations::default()), 3_000).unwrap();
        long_run.long(&plan.space.baseline()).unwrap().coarse(3_000).rate.0
    };
    let plain = limit(&steady);
    assert!(limit(&noisy) < plain && limit(&aged) < 0.95 * plain);
    let none = plan.space.baseline().with("gpu-memory-utilization", Value::Real(0.98));
    assert!(
        LongRunTraffic::new(job(&plan, &steady, &material, Deviations::default()), 1).unwrap().long(&none).is_none()
    );
}
