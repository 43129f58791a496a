//! The quickstart's answer against the exhaustive truth of its model.
//!
//!     cargo run --release --example quickstart_truth [-- SESSIONS [OUTCOME.json]]
//!
//! First the true limit of every point of `search-spaces/quickstart.toml`, from 60,000 replayed requests each; then whole sessions in
//! virtual time with different seeds, or the outcome of a run, beside it: how good the chosen point is, and whether the
//! certified rate lies above the truth.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "an example prints, and ends at the first thing that is wrong"
)]

use autotune::journal::Journal;
use autotune::progress::Silent;
use autotune::report::{Answer, Outcome, outcome};
use autotune::rig::SimulatedRig;
use autotune::settings::{Plan, parse};
use autotune::space::{Point, candidates};
use autotune::tune::{Bench, Session};
use autotune::twin::{Arrival, Profile, PromptShape, replay};
use autotune::units::{Rate, Seconds};
use autotune::workload::{Demand, Material, Pace, Prompt, source};

const REQUESTS: usize = 60_000;

/// The same requests for every point, at unit rate.
fn requests(plan: &Plan) -> Vec<Arrival> {
    let pace = Pace {
        demand: Demand::Open(Rate(1.0)),
        horizon: Seconds(f64::MAX),
        arrival_seed: 77,
        content_seed: 0,
        shared_seed: 0,
        answer_time: Seconds(0.0),
    };
    let mut source = source(&plan.workload, &Material::default(), pace);
    (0..REQUESTS)
        .map(|_| {
            let planned = source.take().unwrap();
            let Prompt::Tokens(ids) = planned.prompt else { panic!("the quickstart asks by token ids") };
            let prompt = PromptShape { tokens: ids.len() as u32, blocks: Vec::new() };
            Arrival { id: u64::from(planned.id), due_s: planned.due.0, prompt, output_tokens: planned.output_tokens }
        })
        .collect()
}

/// The highest rate at which both promises hold over all requests, within 0.2 %.
fn limit(rig: &SimulatedRig, profile: &Profile, point: &Point, requests: &[Arrival]) -> Option<f64> {
    let limits = rig.limits(point)?;
    let holds = |rate: f64| {
        let arrivals = requests.iter().map(|a| Arrival { due_s: a.due_s / rate, ..a.clone() });
        let done = replay(profile.costs, limits, arrivals);
        let slow = |over: &dyn Fn(usize) -> bool| (0..done.len()).filter(|i| over(*i)).count() * 100 <= done.len();
        slow(&|i| done[i].first - done[i].due > 0.150)
            && slow(&|i| (done[i].last - done[i].first) / f64::from(requests[i].output_tokens - 1) > 0.007)
    };
    let (mut low, mut high) = (5.0, 200.0);
    while high / low > 1.002 {
        let middle = f64::sqrt(low * high);
        if holds(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let sessions: u64 = arguments.first().map_or(20, |n| n.parse().unwrap());
    let plan = parse("quickstart.toml", include_str!("../search-spaces/quickstart.toml")).unwrap();
    let profile = Profile::named("quickstart").unwrap();
    let rig = SimulatedRig::new(plan.clone(), profile.clone(), 0, Material::default());
    let requests = requests(&plan);
    let mut truth: Vec<(Point, Option<f64>)> = candidates(&plan.space, &Point::default(), plan.space.size(), 0)
        .into_iter()
        .map(|point| (point.clone(), limit(&rig, &profile, &point, &requests)))
        .collect();
    truth.sort_by(|a, b| b.1.unwrap_or(0.0).total_cmp(&a.1.unwrap_or(0.0)));
    let of = |point: &Point| truth.iter().find(|(p, _)| p == point).and_then(|(_, limit)| *limit).unwrap_or(0.0);
    let best = truth[0].1.unwrap();
    println!("true limits of {} points, the best first:", truth.len());
    for (point, limit) in truth.iter().take(8) {
        println!("  {:6.1} req/s  {point}", limit.unwrap_or(0.0));
    }
    println!("  {:6.1} req/s  the defaults", of(&plan.space.baseline()));
    println!("  {} points do not start\n", truth.iter().filter(|(_, l)| l.is_none()).count());
    let show = |name: &str, answer: &Answer| {
        let (true_limit, certified) = (of(&answer.parameters), answer.certified_rate.map_or(f64::NAN, |r| r.0));
        println!(
            "{name}: {} | true limit {true_limit:.1}, {:.0} % of the best | certified {certified:.1}, {:+.0} % of its truth",
            answer.parameters,
            100.0 * true_limit / best,
            100.0 * (certified / true_limit - 1.0)
        );
        (true_limit / best, certified / true_limit)
    };
    if let Some(path) = arguments.get(1) {
        let outcome: Outcome = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        show("baseline", &outcome.baseline.unwrap());
        show("best", &outcome.best.unwrap());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut chosen, mut stated) = (Vec::new(), Vec::new());
    for seed in 1..=sessions {
        let rig = SimulatedRig::new(plan.clone(), profile.clone(), seed, Material::default());
        let bench = Bench::new(rig, &plan, &Silent, None, Journal::default());
        let mut session = Session::new(bench, &plan, &Silent, seed);
        runtime.block_on(session.run()).unwrap();
        let outcome = outcome(session.bench().journal());
        let Some(best) = outcome.best else {
            println!("seed {seed}: {}", outcome.because);
            continue;
        };
        let (quality, honesty) = show(&format!("seed {seed}"), &best);
        chosen.push(quality);
        stated.extend(honesty.is_finite().then_some(honesty));
        if let Some(baseline) = outcome.baseline.filter(|b| b.certified_rate.is_some()) {
            stated.push(baseline.certified_rate.unwrap().0 / of(&baseline.parameters));
        }
    }
    let share = |values: &[f64], holds: &dyn Fn(f64) -> bool| {
        100.0 * values.iter().filter(|v| holds(**v)).count() as f64 / values.len().max(1) as f64
    };
    println!(
        "\n{} simulated sessions: the chosen point has at least 90 % of the best one's capacity in {:.0} %; a certified rate lies above \
         its truth in {:.0} %, by more than 3 % in {:.0} % ({} of them, best points and baselines)",
        sessions,
        share(&chosen, &|q| q >= 0.90),
        share(&stated, &|s| s > 1.0),
        share(&stated, &|s| s > 1.03),
        stated.len(),
    );
}
