//! What the tests of the margins model and the Bayesian search share: a small space, what a probe shows, and expectations that are formulas.

use super::super::*;
use autotune_plan::space::{Parameter, Space, Value};

pub(in super::super) fn space() -> Space {
    let values = [4, 8, 16, 32, 64].map(Value::Int).to_vec();
    Space {
        parameters: vec![Parameter { name: "max-num-seqs".into(), values, default: None, when: None }],
        constraints: Vec::new(),
    }
}

pub(in super::super) fn point(seqs: i64) -> Point {
    Point::default().with("max-num-seqs", Value::Int(seqs))
}

/// What a probe shows of one promise; without a margin it was cut.
pub(in super::super) fn observation(margin: Option<f64>, error: f64) -> Observation {
    let broken = margin.is_none_or(|m| m > 0.0);
    Observation::expected(vec![PromiseMargin { margin, error, broken }])
}

/// An expectation that is a formula of `max-num-seqs` and the rate, or none; a rate above the ceiling of its `max-num-seqs` collapses.
pub(in super::super) struct Known {
    margin: Option<fn(f64, f64) -> f64>,
    ceiling: Option<fn(f64) -> f64>,
    /// From so many sequences on none waits for a place.
    pub(in super::super) roomy: f64,
    /// The point of the engine that runs, where others cost a launch.
    pub(in super::super) running: Option<Point>,
    believed: bool,
    /// A point that costs so many times as much as others.
    pub(in super::super) surcharge: Option<(Point, f64)>,
}

impl Known {
    pub(in super::super) fn twin(margin: fn(f64, f64) -> f64) -> Self {
        Self { margin: Some(margin), ..Self::nothing() }
    }

    pub(in super::super) fn nothing() -> Self {
        Self { margin: None, ceiling: None, roomy: f64::INFINITY, running: None, believed: true, surcharge: None }
    }

    pub(in super::super) fn with_ceiling(self, ceiling: fn(f64) -> f64) -> Self {
        Self { ceiling: Some(ceiling), ..self }
    }
}

impl Expectation for Known {
    fn margins(&mut self, point: &Point, rate: Rate) -> Vec<Option<f64>> {
        let seqs = point.get("max-num-seqs").and_then(Value::number).unwrap_or(0.0);
        vec![self.margin.filter(|_| self.believed).map(|margin| margin(seqs, rate.0))]
    }

    fn trust(&mut self, believed: bool) {
        self.believed = believed;
    }

    fn collapse(&mut self, point: &Point, rate: Rate) -> Option<f64> {
        let seqs = point.get("max-num-seqs").and_then(Value::number).unwrap_or(0.0);
        self.ceiling.filter(|_| self.believed).map(|ceiling| if rate.0 > ceiling(seqs) { 1.0 } else { -1.0 })
    }

    fn serve_alike(&mut self, one: &Point, other: &Point, _rate: Rate) -> bool {
        let roomy = |point: &Point| point.get("max-num-seqs").and_then(Value::number).is_some_and(|n| n >= self.roomy);
        self.believed && roomy(one) && roomy(other)
    }

    fn runs(&self, _point: &Point) -> bool {
        true
    }

    fn price(&self, point: &Point, _rate: Rate) -> Seconds {
        Seconds(if self.running.as_ref().is_none_or(|running| running == point) { 30.0 } else { 90.0 })
    }

    fn surcharge(&self, point: &Point, _rate: Rate) -> f64 {
        self.surcharge.as_ref().filter(|(of, _)| of == point).map_or(1.0, |(_, times)| *times)
    }
}
