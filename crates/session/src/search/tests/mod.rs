//! Whole searches on an engine that is a function, driven as a session drives them.

pub(super) mod known;
mod outcomes;

use self::known::Known;
use super::*;
use crate::quickstart::quickstart;
use autotune_plan::settings::StrategyKind;
use autotune_plan::space::{Parameter, Space, Value};

/// The engine: what points keep, and which of them fail.
struct Fake<'a> {
    keeps: &'a dyn Fn(&Point) -> f64,
    refuses: &'a dyn Fn(&Point) -> Option<Consequence>,
    dies_above: f64,
    /// Whether our own client is too slow, so that probes say nothing.
    void: bool,
}

impl<'a> Fake<'a> {
    fn new(keeps: &'a dyn Fn(&Point) -> f64) -> Self {
        Self { keeps, refuses: &|_| None, dies_above: f64::INFINITY, void: false }
    }

    fn shows(&self, point: &Point, rate: f64) -> Observation {
        let keeps = (self.keeps)(point);
        let margin = 3.0 * (rate / keeps).ln();
        Observation::expected([margin.min(-3.0), margin].map(|margin| PromiseMargin::expected(margin, 0.0)).to_vec())
    }
}

#[derive(Default)]
struct Searched {
    asked: Vec<Query>,
    /// Every launch but that of the baseline.
    launched: Vec<Point>,
    incumbent: Option<Incumbent>,
    baseline: Option<Rate>,
}

impl Searched {
    /// The points in the order in which they were first asked about.
    fn points(&self) -> Vec<Point> {
        let mut points: Vec<Point> = self.asked.iter().map(|query| query.point.clone()).collect();
        points.dedup();
        points
    }
}

/// Drives a strategy as a session does: the baseline runs already, then the space is opened.
fn search(plan: &Plan, seed: u64, engine: &Fake) -> Searched {
    search_holding(plan, seed, engine, &Point::default())
}

fn search_holding(plan: &Plan, seed: u64, engine: &Fake, held: &Point) -> Searched {
    let baseline = plan.space.baseline();
    let mut strategy = strategy(plan, seed, &baseline, Rate(8.0));
    let mut searched = Searched::default();
    let mut running = (engine.refuses)(&baseline).is_none().then(|| baseline.clone());
    let (mut probed, mut launched, mut opened) = (Vec::new(), Vec::new(), false);
    // What a session does with a question, and tells.
    let mut answer = |query: &Query| {
        if running.as_ref() != Some(&query.point) {
            probed.clear();
            launched.push(query.point.clone());
            running = None;
            if let Some(consequence) = (engine.refuses)(&query.point) {
                return Tell::Failed(consequence);
            }
            running = Some(query.point.clone());
        }
        let rate = query.rate.0;
        if rate > engine.dies_above {
            running = None;
            return Tell::Failed(Consequence::PointOnly);
        }
        if !engine.void {
            probed.push(ProbedRate { rate: query.rate, seen: engine.shows(&query.point, rate) });
        }
        Tell::Probed(probed.clone())
    };
    loop {
        let asked = strategy.ask(&mut Known::nothing(), &[]);
        assert_eq!(strategy.ask(&mut Known::nothing(), &[]), asked, "the same question until there is an answer");
        let query = match asked {
            Some(query) => query,
            None if opened => break,
            None => {
                assert!(searched.points().iter().all(|point| *point == baseline), "{:?}", searched.asked);
                searched.baseline = strategy.estimate(&baseline);
                strategy.open(held);
                opened = true;
                continue;
            }
        };
        assert!(searched.asked.len() < 50_000, "it never ends: {query:?}");
        let bayes = plan.search.strategy == StrategyKind::Bayes;
        assert!(bayes || !opened || query.point != baseline, "the baseline is known");
        strategy.tell(&query, &answer(&query));
        searched.asked.push(query);
    }
    assert_eq!(strategy.points_left(), 0);
    Searched { incumbent: strategy.incumbent(), launched, ..searched }
}

/// A plan over parameters `a`, `b`, ... with so many values from 0 on, whose defaults are their first.
fn plan(kind: StrategyKind, values: &[i64], candidates: u32) -> Plan {
    let mut plan = quickstart(&[]);
    let parameters = ["a", "b", "c", "d"].iter().zip(values).map(|(name, values)| Parameter {
        name: (*name).into(),
        values: (0..*values).map(Value::Int).collect(),
        default: Some(Value::Int(0)),
        when: None,
    });
    plan.space = Space { parameters: parameters.collect(), constraints: Vec::new() };
    plan.search.strategy = kind;
    plan.search.candidates = candidates;
    plan
}

fn number(point: &Point, name: &str) -> f64 {
    point.get(name).and_then(Value::number).unwrap()
}

/// Rates from one peak downwards, highest at `a` 5 and `b` 2.
fn hill(point: &Point) -> f64 {
    20.0 * (-((number(point, "a") - 5.0) / 4.0).powi(2) - ((number(point, "b") - 2.0) / 3.0).powi(2)).exp()
}
