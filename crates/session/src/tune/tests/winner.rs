//! Which point a session proves and recommends.

use super::live::alive;
use super::*;
use crate::rig::Trial;
use crate::search::{Expectation, Incumbent, MakeStrategy, ProbedRate, Query, Strategy, Tell, strategy};
use autotune_plan::space::Value;
use autotune_records::units::Rate;

/// The plan's strategy, to which every point is as good as another within 0.4 %.
struct Tied(Box<dyn Strategy>);

impl Strategy for Tied {
    fn open(&mut self, held: &Point) {
        self.0.open(held);
    }

    fn ask(&mut self, engine: &mut dyn Expectation, in_flight: &[Query]) -> Option<Query> {
        self.0.ask(engine, in_flight)
    }

    fn tell(&mut self, query: &Query, tell: &Tell) {
        self.0.tell(query, tell);
    }

    fn retell(&mut self, probed: Vec<ProbedRate>) {
        self.0.retell(probed);
    }

    fn incumbent(&self) -> Option<Incumbent> {
        self.0.incumbent()
    }

    fn estimate(&self, point: &Point) -> Option<Rate> {
        self.0.estimate(point)
    }

    fn advantage(&self, of: &Point, over: &Point) -> Option<(f64, f64)> {
        Some(if of == over { (0.0, 0.01) } else { (0.004, 0.01) })
    }

    fn points_left(&self) -> usize {
        self.0.points_left()
    }
}

#[tokio::test]
async fn the_defaults_stay_where_they_tie_with_the_winner() {
    let plan = small();
    let run = async |tied: bool| {
        let memory = Memory::default();
        let rig = Scripted::new(&plan, 3, Uneventful, memory.clone());
        let session = Session::new(runner(vec![rig], &plan, 3, &memory, Journal::default()), &plan, &Silent);
        let make: MakeStrategy = if tied { |p, s, b, r| Box::new(Tied(strategy(p, s, b, r))) } else { strategy };
        let mut session = session.with_strategy(make);
        let answer = session.run().await.unwrap();
        let entries = session.trial_runner().journal().entries.clone();
        let proofs = entries.iter().filter_map(|entry| match &entry.record {
            Record::Launching { purpose, point, .. } if purpose.certifies() => Some(point.clone()),
            _ => None,
        });
        (answer.best.unwrap().point, answer.baseline.unwrap().point, proofs.collect::<Vec<_>>())
    };
    let (best, defaults, proofs) = run(false).await;
    assert!(best != defaults && proofs.contains(&best));
    let (kept, defaults, proofs) = run(true).await;
    assert!(kept == defaults && proofs.iter().all(|point| *point == defaults), "{kept}: {proofs:?}");
}

/// The defaults serve well in their first trial, and badly in later ones.
struct WorseLater(Point);

impl Script for WorseLater {
    fn swapped(&mut self, trial: Trial, point: &Point) -> Point {
        let is_worse = trial.number > 1 && *point == self.0;
        if is_worse { point.with("max-num-seqs", Value::Int(1)) } else { point.clone() }
    }
}

#[tokio::test]
async fn defaults_whose_proof_failed_in_a_tie_are_not_proved_again() {
    let mut plan = alive(small());
    plan.space.parameters.retain(|parameter| parameter.name != "gpu-memory-utilization");
    plan.budget.gpu_time *= 4;
    let (memory, script) = (Memory::default(), WorseLater(plan.space.baseline()));
    let rig = Scripted::new(&plan, 3, script, memory.clone());
    let session = Session::new(runner(vec![rig], &plan, 3, &memory, Journal::default()), &plan, &Silent);
    let mut session = session.with_strategy(|p, s, b, r| Box::new(Tied(strategy(p, s, b, r))));
    let answer = session.run().await.unwrap();
    let (best, defaults) = (answer.best.unwrap(), answer.baseline.unwrap());
    assert!(best.certified_rate.is_some() && defaults.certified_rate.is_none(), "{}", answer.because);
    let proofs = session.trial_runner().journal().entries.iter().filter_map(|entry| match &entry.record {
        Record::Launching { purpose, point, .. } if purpose.certifies() => Some(point.clone()),
        _ => None,
    });
    assert_eq!(proofs.collect::<Vec<_>>(), [defaults.point, best.point]);
}

/// Engines that are launched plainly are worse than those whose limits were changed, but for that of the defaults.
struct WorsePlainly(Point);

impl Script for WorsePlainly {
    fn swapped(&mut self, trial: Trial, point: &Point) -> Point {
        let is_worse = trial.on.is_none() && *point != self.0;
        if is_worse { point.with("max-num-seqs", Value::Int(1)) } else { point.clone() }
    }
}

#[tokio::test]
async fn a_proof_ends_where_its_point_breaks_a_promise_at_the_certified_rate_of_the_defaults() {
    let mut plan = alive(small());
    plan.space.parameters.retain(|parameter| parameter.name != "gpu-memory-utilization");
    plan.budget.gpu_time *= 4;
    let Run { answer, entries, .. } = run_scripted(&plan, 3, WorsePlainly(plan.space.baseline())).await;
    let answer = answer.unwrap();
    let certified = answer.baseline.unwrap().certified_rate.unwrap();
    assert!(answer.left_out.iter().any(|what| what.contains("it cannot gain")), "{:?}", answer.left_out);
    let driven: Vec<Rate> = by_trial(&entries)
        .filter_map(|(purpose, _, record)| match record {
            Record::Probed { ask, .. } if purpose == Purpose::Certify && !ask.is_burst() => Some(ask.rate),
            _ => None,
        })
        .collect();
    let below = driven.iter().filter(|rate| rate.0 <= certified.0).count();
    assert!(!driven.is_empty() && below <= 1, "{driven:?} and {certified}");
}
