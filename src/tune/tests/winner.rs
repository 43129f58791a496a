//! Which point a session proves and recommends.

use super::*;
use crate::search::{Ask, Expectation, Incumbent, MakeStrategy, ProbedRate, Query, Strategy, Tell, strategy};
use crate::units::Rate;

/// The plan's strategy, to which every point is as good as another within 0.4 %.
struct Tied(Box<dyn Strategy>);

impl Strategy for Tied {
    fn open(&mut self, held: &Point) {
        self.0.open(held);
    }

    fn ask(&mut self, engine: &mut dyn Expectation, in_flight: &[Query]) -> Ask {
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
