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
    reason = "an example prints, and ends at the first thing that is wrong"
)]

use autotune::rehearsal::{Job, Quirks, Rehearsed, TRUTH_REQUESTS, Truth, session};
use autotune::report::Outcome;
use autotune::settings::parse;
use autotune::space::Point;
use autotune::twin::Profile;
use autotune::units::Rate;
use autotune::workload::Material;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let sessions: u64 = arguments.first().map_or(20, |n| n.parse().unwrap());
    let plan = parse("quickstart.toml", include_str!("../search-spaces/quickstart.toml")).unwrap();
    let profile = Profile::named("quickstart").unwrap();
    let material = Material::default();
    let job = Job {
        plan: &plan,
        profile: &profile,
        material: &material,
        quirks: Quirks::default(),
        workers: 1,
        strategy: autotune::search::strategy,
        truth_requests: TRUTH_REQUESTS,
        progress: &|_, _, _| (),
        sink: &autotune::progress::Silent,
    };
    let truth = Truth::of(job).unwrap();
    let of = |point: &Point| truth.limit(point).map_or(0.0, |limit| limit.0);
    let best = truth.best().unwrap().1.0;
    println!("a simulation on profile {} ({}), not a measurement", profile.name, profile.source);
    println!("true limits of {} points, the best first:", truth.points().len());
    for (point, limit) in truth.points().iter().take(8) {
        println!("  {:6.1} req/s  {point}", limit.map_or(0.0, |limit| limit.0));
    }
    println!("  {:6.1} req/s  the defaults", of(&plan.space.baseline()));
    println!("  {} points do not start\n", truth.points().iter().filter(|(_, limit)| limit.is_none()).count());
    let show = |name: &str, point: &Point, certified: Option<Rate>| {
        let (true_limit, certified) = (of(point), certified.map_or(f64::NAN, |r| r.0));
        println!(
            "{name}: {point} | true limit {true_limit:.1}, {:.0} % of the best | certified {certified:.1}, {:+.0} % of its truth",
            100.0 * true_limit / best,
            100.0 * (certified / true_limit - 1.0)
        );
        (true_limit / best, certified / true_limit)
    };
    if let Some(path) = arguments.get(1) {
        let outcome: Outcome = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for (name, answer) in [("baseline", outcome.baseline.unwrap()), ("best", outcome.best.unwrap())] {
            show(name, &answer.parameters, answer.certified_rate);
        }
    }
    let (mut chosen, mut stated) = (Vec::new(), Vec::new());
    for seed in 1..=sessions {
        let Rehearsed { baseline, best, because, .. } = session(&job, seed).unwrap();
        let Some(best) = best else {
            println!("seed {seed}: {because}");
            continue;
        };
        let (quality, honesty) = show(&format!("seed {seed}"), &best.point, best.certified_rate);
        chosen.push(quality);
        stated.extend(honesty.is_finite().then_some(honesty));
        if let Some((baseline, rate)) = baseline.and_then(|b| Some((of(&b.point), b.certified_rate?))) {
            stated.push(rate.0 / baseline);
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
